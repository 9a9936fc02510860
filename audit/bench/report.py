r"""The report of a bench: a frozen record whose fields say what they mean, and its table.

``docs/schemas/dpcore-bench-1.json`` is the schema that follows from it.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar, Final

from audit.catalogue import Entry, Layer
from audit.claims.claim import Claim, shown
from audit.claims.levels import level_upper
from audit.wording.formats import Case, Outcome
from audit.wording.result import Result, Told, computed, fact, out_of
from dpcore.command.table import aligned
from dpcore.numbers.enclosure import Enclosure
from dpcore.numbers.rounding import down, up

if TYPE_CHECKING:
    from audit.wording.html import Section

__all__ = ["LEAST_CHANCE", "Answer", "Bench", "BenchRow"]

LEAST_CHANCE: Final = Fraction(1, 1000)
r"""So many refuted twins must not be less probable than this."""

_WIDTH: Final = 100
_HEADINGS: Final = ("", "broken", "claim", "true", "runs", "verdict", "lower", "layer", "twin")
_RIGHT: Final = (0, 3, 4, 6)
_KEPT: Final = {
    Layer.EXACT: "proven",
    Layer.FIT: "not refuted",
    Layer.REPLAY: "nothing found",
    Layer.SAMPLE: "not refuted",
    Layer.TIME: "not refuted",
}
_BELOW: Final = "below the resolution of a sample"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    r"""The result of one mechanism: of its last try, if it had several."""

    name: str = fact("of the mechanism")
    claim: str = fact("what was tested")
    runs: int = fact("of the last try, 0 where the laws are known")
    refuted: bool | None = fact("null where it failed")
    tries: int = fact("how many audits", default=1)
    epsilon_lower: float | None = fact('"inf" where no epsilon holds', default=None)
    p_value: float | None = fact("of the last try", default=None)
    resolution: float = fact(
        "a sample of that size catches an output that only one dataset gives from this "
        "probability on",
        write=lambda value: value if math.isfinite(value) else None,
        default=math.inf,
    )
    finding: str | None = fact("the error that a replay found", default=None)
    error: str | None = fact("why it failed", default=None)
    seconds: float = fact("it took", write=lambda value: round(value, 3), default=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRow:
    r"""An entry and its twin."""

    entry: Entry
    broken: Answer = fact("of the entry")
    twin: Answer = fact("of its correct twin")

    @property
    @computed("of the entry", before="broken")
    def number(self) -> int:
        r"""Of the entry."""
        return self.entry.number

    @property
    @computed("of the entry", before="broken")
    def name(self) -> str:
        r"""Of the entry."""
        return self.entry.name

    @property
    @computed("what was tested", before="broken")
    def claim(self) -> str:
        r"""What was tested."""
        return self.broken.claim

    @property
    @computed("the layer that must catch it", before="broken")
    def layer(self) -> Layer:
        r"""The layer that must catch it."""
        return self.entry.layer

    @property
    @computed("[lower, upper]", before="broken")
    def true_epsilon(self) -> Enclosure:
        r"""The true epsilon."""
        return self.entry.true_epsilon

    @property
    @computed("whether the layer that must catch it caught it", before="broken")
    def caught(self) -> bool:
        r"""Whether the layer that must catch the slip caught it."""
        return self.broken.refuted is True

    @property
    def sampled(self) -> bool:
        r"""Whether it is sampled, outputs or times; else it is declared below the resolution."""
        return self.entry.layer in {Layer.SAMPLE, Layer.TIME}

    def cases(self) -> Iterator[Case]:
        r"""The entry and its twin, for a test report."""
        for result, right, role in (
            (self.broken, self.caught, "caught"),
            (self.twin, self.sampled or not self.twin.refuted, "not refuted"),
        ):
            answered: Outcome = "passed" if right else "failed"
            yield Case(
                target=result.name,
                name=f"{self.name}: {role}",
                rule="dpcore-bench",
                outcome="error" if result.refuted is None else answered,
                message=result.error or f"{result.name} against {result.claim}",
                seconds=result.seconds,
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench(Result):
    r"""A run over the catalogue, in the order of its numbers.

    >>> Bench(rows=(), alpha=Fraction(1, 20), seed=1).to_json()["passed"]
    True
    """

    SCHEMA: ClassVar[str] = "dpcore-bench/1"

    alpha: Fraction = fact(
        "the level of an entry's tries together, and of each twin", write=level_upper, kind="float"
    )
    seed: int = fact("repeats the bench")
    rows: tuple[BenchRow, ...] = fact(
        '[{"number", "name", "claim", "layer", "true_epsilon": [lower, upper], "caught", "broken", '
        '"twin"}]; the last two are {"name", "claim", "runs", "refuted": null where it failed, '
        '"tries", "epsilon_lower", "p_value", "resolution", "finding", "error", "seconds"}'
    )
    left_out: tuple[str, ...] = fact("entries that were not audited (--quick)", default=())
    versions: dict[str, str] = fact('{"dpcore", "python", "numpy"}', default_factory=dict)

    @property
    @computed("whether all went as audit.bench.bench says it must", before="alpha")
    def passed(self) -> bool:
        r"""Whether all went as :mod:`audit.bench.bench` says it must."""
        answered = all(row.twin.refuted is not None for row in self.rows)
        no_fault = not any(row.twin.refuted for row in self.rows if not row.sampled)
        return (
            self.caught == len(self.rows) and answered and no_fault and self.chance >= LEAST_CHANCE
        )

    @property
    @computed("entries that the layer which must catch them caught", before="rows")
    def caught(self) -> int:
        r"""How many entries were caught."""
        return sum(row.caught for row in self.rows)

    @property
    @computed("how many there are", before="rows")
    def entries(self) -> int:
        r"""How many entries there are."""
        return len(self.rows)

    @property
    @computed(
        '{"sampled", "refuted": how many, "chance": the probability of so many or more where each '
        'is refuted with probability alpha, "least_chance": below it the bench fails}',
        before="rows",
    )
    def twins(self) -> dict[str, float]:
        r"""How many twins were sampled, how many refuted, and how probable that is."""
        return {
            "sampled": len(self.sampled_twins),
            "refuted": self.twins_refuted,
            "chance": self.chance,
            "least_chance": float(LEAST_CHANCE),
        }

    @property
    def sampled_twins(self) -> tuple[Answer, ...]:
        r"""The twins that were sampled, one an entry."""
        return tuple(row.twin for row in self.rows if row.sampled)

    @property
    def twins_refuted(self) -> int:
        r"""How many of them were refuted."""
        return sum(twin.refuted is True for twin in self.sampled_twins)

    @property
    def chance(self) -> float:
        r"""The probability of so many refuted twins or more, if each is refuted with alpha.

        >>> Bench(rows=(), alpha=Fraction(1, 20), seed=1).chance
        1.0
        """
        from scipy.stats import binom

        sampled = len(self.sampled_twins)
        return float(binom.sf(self.twins_refuted - 1, sampled, float(self.alpha)))

    @property
    def subject(self) -> str:
        return "the catalogue of broken mechanisms"

    @property
    def exit_code(self) -> int:
        r"""0 passed, 1 failed."""
        return 0 if self.passed else 1

    def told(self) -> Told:
        return Told(
            verdict="PASSED" if self.passed else "FAILED",
            about=f"caught {self.caught} of {len(self.rows)} broken mechanisms",
        )

    def cases(self) -> Iterator[Case]:
        r"""Each entry and each twin, and whether too many twins were refuted."""
        for row in self.rows:
            yield from row.cases()
        yield Case(
            target="dpcore audit bench",
            name="twins refuted by chance",
            rule="dpcore-bench",
            outcome="passed" if self.chance >= LEAST_CHANCE else "failed",
            message=f"{self.twins_refuted} of {len(self.sampled_twins)} correct twins are refuted",
        )

    def sections(self) -> Iterator[Section]:
        from audit.wording.html import Section

        yield Section(title="Entries", columns=_HEADINGS, rows=list(map(_cells, self.rows)))

    def __str__(self) -> str:
        # "true" is the true epsilon and "lower" the bound that was found, at confidence 1 - alpha
        # or, in the exact layer, proven; both are rounded down.
        lines = aligned([_HEADINGS, *map(_cells, self.rows)], right=_RIGHT)
        for sentence in _sentences(self):
            lines += textwrap.wrap(sentence, _WIDTH, break_on_hyphens=False)
        return "\n".join(lines)


def _cells(row: BenchRow) -> tuple[str, ...]:
    broken, twin = row.broken, row.twin
    runs = "" if row.entry.layer is Layer.EXACT else f"{broken.runs:,}"
    # A bound from a curve is at the delta of one of its points, and says nothing beside "true".
    curve = row.entry.curve is not None
    lower = None if curve else broken.epsilon_lower
    claim = Claim(epsilon=row.entry.epsilon, delta=row.entry.delta)
    epsilon, delta = map(shown, claim.exact)
    return (
        str(row.entry.number),
        row.entry.name,
        "its curve" if curve else epsilon if delta == "0" else f"{epsilon}, {delta}",
        _down(row.entry.true_epsilon.lower),
        runs,
        "failed" if broken.refuted is None else "caught" if broken.refuted else "MISSED",
        "" if lower is None else _down(lower),
        row.entry.layer.value,
        "failed" if twin.refuted is None else "REFUTED" if twin.refuted else _KEPT[row.entry.layer],
    )


def _down(value: Fraction | float) -> str:
    return "infinite" if value == math.inf else down(value, 4)


def _sentences(bench: Bench) -> Iterator[str]:
    alpha, cases = up(bench.alpha, 6), out_of(bench.alpha, 6)
    yield (
        f"caught: {bench.caught} of {len(bench.rows)}; a true claim would be refuted in at most "
        f"{cases} such audits"
    )
    other = [row for row in bench.rows if row.entry.layer is Layer.REPLAY]
    if other:
        names = ", ".join(row.entry.name for row in other)
        seen = min(row.broken.resolution for row in other)
        shown = f"; in {out_of(seen)} runs or more it would be seen" if math.isfinite(seen) else ""
        yield f"{_BELOW}, and looked for by replay: {names}{shown}"
    yield (
        f"twins: {bench.twins_refuted} of {len(bench.sampled_twins)} samples refuted, at level "
        f"{alpha} each; so many or more have probability <= {up(bench.chance, 3)} if their claims "
        f"hold ({down(LEAST_CHANCE, 3)} or more passes)"
    )
    for row in bench.rows:
        for result in (row.broken, row.twin):
            if result.error is not None:
                yield f"failed: {result.name}: {result.error}"
        if not row.sampled and row.twin.finding is not None:
            yield f"found in {row.twin.name}: {row.twin.finding}"
    if bench.left_out:
        yield f"left out, as they need more runs: {', '.join(bench.left_out)}"
    yield f"{bench.told().verdict}; repeat with --seed {bench.seed}"
