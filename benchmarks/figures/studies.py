r"""Studies beyond the paper's figures: schedules, s and bits, equal guarantees, shuffled bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bandits.elimination_radii import ExactRadius
from bandits.policies.successive_elimination import RELEASED, BatchedElimination
from bandits.privatizers.batch_sums_by_trust_model import SumPrivatizer, Trust
from bandits.regret_plots import Curve, Panel
from bandits.worlds import preset_of
from benchmarks.figures.section import (
    Cell,
    Check,
    Picture,
    Section,
    guarantee_of,
    is_less,
    of_ratio,
    regret_of,
    rounded,
)
from benchmarks.figures.shared_experiments import EXACT, PAPER, RADIUS, Player, curve, label, power
from benchmarks.figures.sweep import DELTA, Contender, Outcome, Outcomes, ratio
from dpcore.numbers.rounding import up

__all__ = ["equal_promises", "schedules", "shuffled_bits", "trade_off"]

_BASE: Final = "dist-dp-se"
_CENTRAL: Final = "dp-se"


# -- batches chosen from epsilon, K and p -----------------------------------------------------

_WITHIN: Final = 1.05
_SHORT: Final = 10


def schedules(player: Player) -> Section:
    r"""The study of Dist-DP-SE with its own schedule against central DP-SE, at T >= 10^5."""
    effort = player.effort
    places = [("easy", effort.easy // _SHORT), ("easy", effort.easy), ("hard", effort.hard)]
    rows: list[dict[str, Cell]] = []
    checks: list[Check] = []
    panels = []
    for world, horizon in places:
        by = {
            version: player.experiment(f"cz/{world}", version, (_CENTRAL, _BASE), horizon=horizon)
            for version in (PAPER, RADIUS, EXACT)
        }
        for epsilon in effort.epsilons:
            found = {
                "dp-se, paper": by[PAPER][_CENTRAL, epsilon],
                "dp-se, exact radius": by[EXACT][_CENTRAL, epsilon],
                "dist-dp-se, paper": by[PAPER][_BASE, epsilon],
                "dist-dp-se, exact radius": by[RADIUS][_BASE, epsilon],
                "dist-dp-se, exact": by[EXACT][_BASE, epsilon],
            }
            rows += _schedule_rows(f"{world}, T = {power(horizon)}", epsilon, found)
            ours = found["dist-dp-se, exact"]
            for central in ("dp-se, paper", "dp-se, exact radius"):
                where = f"{world}, T = {power(horizon)}, {epsilon}"
                statement = f"dist-dp-se, exact, has at most 5% more regret than {central}"
                checks.append(is_less(statement, where, ours, found[central], at_most=_WITHIN))
            if epsilon == effort.epsilons[len(effort.epsilons) // 2]:
                title = f"{world} instances, epsilon = {epsilon}, T = {power(horizon)}"
                curves = [curve(outcome, name) for name, outcome in found.items()]
                panels.append(Panel(title=title, curves=curves))
    return Section(
        name="schedule",
        title="Dist-DP-SE with its own schedule against central DP-SE",
        note=(
            "dp-se adds one draw of noise for every arm; *paper* is the rule of its paper, *exact "
            "radius* the certified gap at the same epochs. The versions of dist-dp-se are those of "
            "the first table."
        ),
        rows=tuple(rows),
        checks=tuple(checks),
        pictures=(
            Picture(
                name="schedule",
                title="Batches, precision and radius chosen from epsilon, K and p",
                panels=tuple(panels),
            ),
        ),
    )


def _schedule_rows(world: str, epsilon: str, found: dict[str, Outcome]) -> list[dict[str, Cell]]:
    return [
        {
            "world": world,
            "epsilon": epsilon,
            "algorithm": name,
            "regret": regret_of(outcome),
            "to dp-se, paper": of_ratio(ratio(outcome.final, found["dp-se, paper"].final)),
            "to dp-se, exact radius": of_ratio(
                ratio(outcome.final, found["dp-se, exact radius"].final)
            ),
            "wrong arm": outcome.wrong,
            "bits": outcome.bits,
        }
        for name, outcome in found.items()
    ]


# -- privacy, regret and communication, by s -------------------------------------------------

_SCALED: Final = ("dist-rdp-se", "dist-cdp-se")


def trade_off(player: Player) -> Section:
    r"""The study of s: a larger s gives more bits and less regret at almost the same epsilon."""
    scalings, epsilons = player.effort.scalings, player.effort.epsilons[:2]
    names = [_BASE, *(f"{name}:s={s}" for name in _SCALED for s in scalings)]
    paper, exact = (
        player.experiment("cz/easy", version, names, epsilons=epsilons)
        for version in (PAPER, EXACT)
    )
    rows: list[dict[str, Cell]] = []
    for epsilon in epsilons:
        for name in names:
            algorithm, _, s = name.partition(":s=")
            theirs, ours = paper[name, epsilon], exact[name, epsilon]
            rows.append(
                {
                    "epsilon": epsilon,
                    "algorithm": algorithm,
                    "s": s or "-",
                    PAPER: regret_of(theirs),
                    EXACT: regret_of(ours),
                    "wrong arm": f"{theirs.wrong}, {ours.wrong}",
                    "bits": f"{theirs.bits}, {ours.bits}",
                    "mean bits": f"{theirs.mean_bits:.1f}, {ours.mean_bits:.1f}",
                    f"epsilon at {DELTA}": guarantee_of(ours)[1],
                }
            )
    return Section(
        name="bits",
        title="Privacy, regret and communication",
        note=(
            f"Preset `cz/easy`, T = {power(player.effort.easy)}. A reward has ceil(s epsilon sqrt "
            "n) steps. *bits* is the largest number of bits that a user sends, *mean bits* the "
            "mean over users, in the versions paper and exact. The epsilon at "
            f"{DELTA} is that of the exact version."
        ),
        rows=tuple(rows),
        checks=tuple(_scaling_checks(paper, epsilons, scalings)),
        pictures=(
            Picture(
                name="bits",
                title=f"Effect of the scaling s: easy instances, epsilon = {epsilons[-1]}",
                panels=_bit_panels(paper, exact, epsilons[-1], scalings),
            ),
        ),
    )


def _named(name: str, s: int) -> str:
    return name if name == _BASE else f"{name}:s={s}"


def _scaling_checks(
    paper: Outcomes, epsilons: Sequence[str], scalings: Sequence[int]
) -> list[Check]:
    low, high = scalings[0], scalings[-1]
    return [
        is_less(
            f"{name} has less regret at s = {high} than at s = {low}",
            f"epsilon {epsilon}, paper",
            paper[_named(name, high), epsilon],
            paper[_named(name, low), epsilon],
        )
        for epsilon in epsilons
        for name in _SCALED
    ]


def _bit_panels(
    paper: Outcomes, exact: Outcomes, epsilon: str, scalings: Sequence[int]
) -> tuple[Panel, ...]:
    def line(name: str, found: Outcomes, what: str) -> Curve:
        outcomes = [found[_named(name, s), epsilon] for s in scalings]
        values = {
            "regret": [o.mean()[-1] for o in outcomes],
            "bits": [o.mean_bits for o in outcomes],
            "epsilon": [o.epsilon or 0.0 for o in outcomes],
        }[what]
        error = [o.error()[-1] if what == "regret" else 0.0 for o in outcomes]
        last = up(values[-1]) if what == "epsilon" else ""  # an upper bound
        return Curve(label=name, x=scalings, y=values, error=error, last=last)

    panels = (
        ("Regret, the paper's numbers", paper, "regret", "Reg(T)/T"),
        ("Regret, exact numbers", exact, "regret", "Reg(T)/T"),
        ("Communication, the paper's numbers", paper, "bits", "bits per user, mean"),
        ("Promise", paper, "epsilon", f"derived epsilon at {DELTA}"),
    )
    return tuple(
        Panel(
            title=title,
            curves=[line(name, found, what) for name in (*_SCALED, _BASE)],
            x_label="scaling s",
            y_label=y_label,
            y_scale="linear",
            ticks=scalings,
        )
        for title, found, what, y_label in panels
    )


# -- the same guarantee ------------------------------------------------------------------------

_PROMISES: Final[dict[str, tuple[Trust, int]]] = {
    _BASE: ("pure", 1),
    "dist-rdp-se": ("renyi", 10),
    "dist-cdp-se": ("concentrated", 10),
}
_SURE: Final = "1e-4"
"""The p of these runs, so small that dropped best arms do not hide the effect of the noise law."""
_READ: Final = "1e-12"
"""The probability of wraparound per interval, far below p, so that a width can be certified."""


def equal_promises(player: Player) -> Section:
    r"""The study of distributed algorithms with the least noise for the same (epsilon, delta)."""
    effort, horizon = player.effort, player.effort.easy
    worlds = preset_of("cz/easy").worlds(effort.instances).environments
    places = [(name, epsilon) for epsilon in effort.epsilons for name in _PROMISES]
    contenders = [
        Contender(
            label=name,
            epsilon=epsilon,
            policy=_promising(name, epsilon, horizon),
            worlds=tuple(worlds),
            horizon=horizon,
        )
        for name, epsilon in places
    ]
    found = player.contenders(contenders)
    rows: list[dict[str, Cell]] = []
    checks = []
    for name, epsilon in places:
        outcome, base = found[name, epsilon], found[_BASE, epsilon]
        pure, at_delta = guarantee_of(outcome)
        rows.append(
            {
                "epsilon asked": epsilon,
                "algorithm": label(name),
                "regret": regret_of(outcome),
                "to dist-dp-se": of_ratio(ratio(outcome.final, base.final)),
                "wrong arm": outcome.wrong,
                "bits": outcome.bits,
                "pure epsilon": pure,
                f"epsilon at {DELTA}": at_delta,
            }
        )
        if name != _BASE:
            statement = f"{label(name)} has less regret than dist-dp-se"
            checks.append(is_less(statement, f"({epsilon}, {DELTA})", outcome, base))
    return Section(
        name="promise",
        title="At the same guarantee",
        note=(
            f"Preset `cz/easy`, T = {power(horizon)}, batches of 4^b, exact radius. Every "
            f"algorithm has the least noise certified for (epsilon, {DELTA}); dist-dp-se has its "
            f"epsilon at delta 0. A run drops the best arm with probability at most p = {_SURE}."
        ),
        rows=tuple(rows),
        checks=tuple(checks),
        pictures=(),
    )


def _promising(name: str, epsilon: str, horizon: int) -> BatchedElimination:
    trust, s = _PROMISES[name]
    privatizer = SumPrivatizer(
        trust=trust,
        epsilon=epsilon,
        failure=_READ,
        scaling=s,
        delta=0 if trust == "pure" else DELTA,
    )
    radius = ExactRadius(batches=RELEASED.batches(horizon))
    return BatchedElimination(
        privatizer=privatizer, schedule=RELEASED, radius=radius, failure_probability=_SURE
    )


# -- shuffled bits -------------------------------------------------------------------------------

_BITS: Final = ("sdp-ae", "vb-sdp-ae")


def shuffled_bits(player: Player) -> Section:
    r"""The study of SDP-AE and VB-SDP-AE on rewards 0 and 1, with both sets of parameters."""
    epsilons = player.effort.epsilons[-2:]
    names = (*_BITS, _BASE, "se")
    found = {
        version: player.experiment("tkms/binary", version, names, epsilons=epsilons)
        for version in (PAPER, EXACT)
    }
    rows: list[dict[str, Cell]] = []
    for epsilon in epsilons:
        for name in names:
            theirs, ours = found[PAPER][name, epsilon], found[EXACT][name, epsilon]
            rows.append(
                {
                    "epsilon": epsilon,
                    "algorithm": name,
                    PAPER: regret_of(theirs),
                    EXACT: regret_of(ours),
                    "wrong arm": f"{theirs.wrong}, {ours.wrong}",
                    "bits": f"{theirs.bits}, {ours.bits}",
                    "mean bits": f"{rounded(theirs.mean_bits):.3g}, {rounded(ours.mean_bits):.3g}",
                    f"paper, epsilon at {DELTA}": guarantee_of(theirs)[1],
                    f"exact, epsilon at {DELTA}": guarantee_of(ours)[1],
                }
            )
    checks = [
        is_less(
            f"{name} has less regret, exact against paper",
            f"epsilon {epsilon}",
            found[EXACT][name, epsilon],
            found[PAPER][name, epsilon],
        )
        for epsilon in epsilons
        for name in _BITS
    ]
    panels = tuple(
        Panel(
            title=f"{numbers}, epsilon = {epsilon}, delta = {DELTA}",
            curves=[curve(found[version][name, epsilon]) for name in names],
        )
        for epsilon in epsilons
        for version, numbers in ((PAPER, "the paper's numbers"), (EXACT, "exact numbers"))
    )
    return Section(
        name="shuffle",
        title="Shuffled bits",
        note=(
            f"Preset `tkms/binary`: rewards 0 and 1 with the means of `cz/easy`, K = 10, T = "
            f"{power(player.effort.easy)}. *paper* has tau and radius of Tenenbaum et al.; *exact* "
            "has the fewest random bits that satisfy (epsilon, delta), and a certified radius. "
            "dist-dp-se (with an aggregation) and se (without privacy) are shown for comparison."
        ),
        rows=tuple(rows),
        checks=tuple(checks),
        pictures=(
            Picture(
                name="shuffle",
                title="Arm elimination over shuffled bits, rewards 0 and 1",
                panels=panels,
            ),
        ),
    )
