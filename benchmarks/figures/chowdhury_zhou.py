r"""Figures 1 to 4 of Chowdhury and Zhou, the order of the algorithms, and the noise saved."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from bandits.regret_plots import Panel
from benchmarks.figures.dot_panels import Dots
from benchmarks.figures.section import (
    Cell,
    Check,
    Picture,
    Section,
    falls,
    guarantee_of,
    is_less,
    is_same,
    of_ratio,
    regret_of,
)
from benchmarks.figures.shared_experiments import (
    CZ,
    EXACT,
    PAPER,
    RADIUS,
    Player,
    Version,
    curve,
    label,
    power,
)
from benchmarks.figures.sweep import DELTA, Outcomes, Ratio, ratio

__all__ = ["paper_figures"]

_Found: TypeAlias = dict[tuple[str, Version], Outcomes]

WORLDS: Final = ("easy", "hard")
VERSIONS: Final = (PAPER, RADIUS, EXACT)
_DISTRIBUTED: Final = ("dist-dp-se", "dist-rdp-se", "dist-rdp-se:s=100", "dp-se", "se")
_TRUST: Final = ("ldp-se", "cdp-se", "dist-dp-se", "dist-rdp-se", "dist-cdp-se", "se")
_FAR: Final = 1 / 3
_NEAR: Final = 1.1
_FLOOR: Final = "se"

_NOTE: Final = """The presets are `cz/easy` (means of the arms uniform in [0.25, 0.75]) and
`cz/hard` ([0.45, 0.55]), with rewards Normal(mean, 0.1) clipped to [0, 1], K = 10, p = 0.1, and s =
10 unless stated. Regret is Reg(T)/T, the mean over instances with its standard error. There are
three versions. *paper* has the radius, g and tau of the paper, and the batches of 4^b of the code
released with it (its Algorithm 1 has 2^b). *exact radius* has a certified radius and tau, and four
times the g, with the same batches. *exact* also chooses the batches. All three draw from the same
seeds; if the batches are the same, they observe the same rewards. dp-se always has its own epochs.
*exact/se* is the regret of the exact version divided by that of se, which has no privacy. *wrong
arm* counts, for each version, the instances in which the best arm was dropped, so that the final
choice contains no arm of the largest mean; p = 0.1 allows this in one run of ten. In the version
*paper*, shuffled-se runs over an assumed aggregation; with the exact radius it runs its own
protocol on shuffled bits, whose epsilon is certified. *bits* is the largest number of bits that one
user sends, in the versions paper and exact. Both epsilons are derived, for the exact version; the
same parameter epsilon gives different guarantees for different algorithms."""


def paper_figures(player: Player) -> Section:
    r"""The study of all algorithms of ``CZ`` on both presets, by epsilon, in three versions."""
    found = {
        (world, version): player.experiment(f"cz/{world}", version)
        for world in WORLDS
        for version in VERSIONS
    }
    epsilons = player.effort.epsilons
    return Section(
        name="cz",
        title="Chowdhury and Zhou's figures",
        note=_NOTE,
        rows=tuple(_rows(found, epsilons)),
        checks=(*_order(found, epsilons), *_price(found, epsilons), *_saved(found, epsilons)),
        pictures=tuple(_pictures(found, epsilons)),
    )


def _rows(found: _Found, epsilons: Sequence[str]) -> Iterable[dict[str, Cell]]:
    for world in WORLDS:
        for epsilon in epsilons:
            for name in CZ:
                each = [found[world, version][name, epsilon] for version in VERSIONS]
                paper, radius, exact = each
                floor = found[world, EXACT][_FLOOR, epsilon]
                pure, at_delta = guarantee_of(exact)
                yield {
                    "world": f"{world}, T = {power(paper.rounds[-1])}",
                    "epsilon": epsilon,
                    "algorithm": label(name),
                    **{v: regret_of(outcome) for v, outcome in zip(VERSIONS, each, strict=True)},
                    "exact radius/paper": of_ratio(ratio(radius.final, paper.final)),
                    "exact/paper": of_ratio(ratio(exact.final, paper.final)),
                    "exact/se": of_ratio(ratio(exact.final, floor.final)),
                    "wrong arm": ", ".join(str(outcome.wrong) for outcome in each),
                    "bits": f"{paper.bits}, {exact.bits}",
                    "pure epsilon": pure,
                    f"epsilon at {DELTA}": at_delta,
                }


# -- the order ---------------------------------------------------------------------------------


def _order(found: _Found, epsilons: Sequence[str]) -> Iterable[Check]:
    for world in WORLDS:
        for epsilon in epsilons:
            here = {name: found[world, PAPER][name, epsilon] for name in CZ}
            where = f"{world}, {epsilon}"
            others = [here[name] for name in CZ if name not in ("ldp-se", _FLOOR)]
            worst = max(others, key=lambda outcome: outcome.mean()[-1])
            yield is_less(
                "ldp-se is by far the worst: all others have at most a third of its regret",
                where, worst, here["ldp-se"], at_most=_FAR,
            )  # fmt: skip
            for one, other in (("dist-dp-se", "cdp-se"), ("dist-dp-se", "dp-se")):
                statement = f"{one} has the regret of {other}, within a tenth"
                yield is_same(statement, where, here[one], here[other])
            for better, worse in (
                ("dist-rdp-se", "dist-dp-se"),
                ("dist-rdp-se:s=100", "dist-rdp-se"),
                ("dist-cdp-se", "dist-rdp-se"),
            ):
                statement = f"{label(better)} has less regret than {label(worse)}"
                yield is_less(statement, where, here[better], here[worse])
    span = f"epsilon {', '.join(epsilons)}"
    for name in ("dist-dp-se", "ldp-se"):
        for world in WORLDS:
            floor = [
                ratio(*(found[world, PAPER][each, epsilon].final for each in (name, _FLOOR)))
                for epsilon in epsilons
            ]
            yield falls(
                f"the regret of {name}, divided by that of se, falls as epsilon grows",
                f"{world}, {span}", floor,
            )  # fmt: skip


def _price(found: _Found, epsilons: Sequence[str]) -> Iterable[Check]:
    for world in WORLDS:
        for epsilon in epsilons:
            here = found[world, EXACT]
            yield is_less(
                "dist-dp-se has less than 1.1 times the regret of se, exact",
                f"{world}, {epsilon}", here["dist-dp-se", epsilon], here[_FLOOR, epsilon],
                at_most=_NEAR,
            )  # fmt: skip


def _saved(found: _Found, epsilons: Sequence[str]) -> Iterable[Check]:
    for version in (RADIUS, EXACT):
        for name in CZ:
            for world in WORLDS:
                for epsilon in epsilons:
                    exact, paper = (found[world, v][name, epsilon] for v in (version, PAPER))
                    statement = f"{label(name)} has less regret, {version} against paper"
                    yield is_less(statement, f"{world}, {epsilon}", exact, paper)


# -- the pictures ------------------------------------------------------------------------------


def _pictures(found: _Found, epsilons: Sequence[str]) -> Iterable[Picture]:
    def panel(
        title: str, world: str, epsilon: str, names: Sequence[str], version: Version = PAPER
    ) -> Panel:
        lines = [curve(found[world, version][name, epsilon]) for name in names]
        return Panel(title=f"{title}{world} instances, epsilon = {epsilon}", curves=lines)

    first, middle = epsilons[0], epsilons[len(epsilons) // 2]
    yield Picture(
        name="figure-1",
        title="Figure 1: distributed privacy and the central dp-se, the paper's numbers",
        panels=(
            panel("(a) ", "easy", first, _DISTRIBUTED),
            panel("(b) ", "easy", middle, _DISTRIBUTED),
            panel("(c) ", "hard", first, _DISTRIBUTED),
        ),
    )
    for name, title, world, names, version in (
        ("figure-2", "Figure 2: distributed privacy and dp-se", "easy", _DISTRIBUTED, PAPER),
        ("figure-3", "Figure 3: distributed privacy and dp-se", "hard", _DISTRIBUTED, PAPER),
        ("figure-4", "Figure 4: what trust costs", "easy", _TRUST, PAPER),
        ("figure-4-hard", "What trust costs on hard instances", "hard", _TRUST, PAPER),
        ("exact-easy", "What trust costs on easy instances", "easy", _TRUST, EXACT),
        ("exact-hard", "What trust costs on hard instances", "hard", _TRUST, EXACT),
    ):
        panels = (panel("", world, epsilon, names, version) for epsilon in epsilons)
        numbers = "the paper's numbers" if version == PAPER else "exact numbers"
        yield Picture(name=name, title=f"{title}, {numbers}", panels=tuple(panels))
    yield Picture(
        name="floor",
        title="What privacy costs at T: regret as a multiple of that of se, which has no privacy",
        panels=tuple(
            _floor(found, epsilons, world, version)
            for world in WORLDS
            for version in (PAPER, EXACT)
        ),
    )
    yield Picture(
        name="radius",
        title="Regret with certified parameters, divided by that with the paper's (same seeds)",
        panels=tuple(
            _saving(found, epsilons, world, version)
            for world in WORLDS
            for version in (RADIUS, EXACT)
        ),
    )


def _floor(found: _Found, epsilons: Sequence[str], world: str, version: Version) -> Dots:
    here = found[world, version]
    numbers = "the paper's numbers" if version == PAPER else "exact numbers"
    return Dots(
        title=f"{world} instances, {numbers}",
        marks=[f"epsilon = {epsilon}" for epsilon in epsilons],
        rows={
            label(name): [
                _pair(ratio(here[name, epsilon].final, here[_FLOOR, epsilon].final))
                for epsilon in epsilons
            ]
            for name in CZ
            if name != _FLOOR
        },
        x_label="Reg(T) to that of se",
        x_scale="log",
    )


def _saving(found: _Found, epsilons: Sequence[str], world: str, version: Version) -> Dots:
    ours, theirs = found[world, version], found[world, PAPER]
    return Dots(
        title=f"{world} instances, {version}",
        marks=[f"epsilon = {epsilon}" for epsilon in epsilons],
        rows={
            label(name): [
                _pair(ratio(ours[name, epsilon].final, theirs[name, epsilon].final))
                for epsilon in epsilons
            ]
            for name in CZ
        },
        x_label="Reg(T) to that with the paper's numbers",
    )


def _pair(found: Ratio) -> tuple[float, float]:
    return found.value, found.error
