r"""The table of published theorems: each row states a claim, its exact value and the verdict.

Each claim has the form truth <= claimed. The truth is the exact privacy loss of the mechanism (an
epsilon, a delta or a divergence) or, if the paper states that some noise suffices, the least noise
for the guarantee. Both sides are enclosed by proven bounds, from which the verdict follows. Each
row is one statement at one choice of parameters, computed on request. docs/errata.md lists the
errors of the papers; the table also contains a row for each corrected statement of this package.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from inspect import signature
from typing import Any, Final, Literal, ParamSpec, TypeAlias

from accounting.guarantees.bound import Bound
from dpcore.numbers.enclosure import Enclosure, round_down, round_up
from dpcore.numbers.rounding import down, up

Answer: TypeAlias = Literal["holds", "fails", "unproven", "loose"]
"""The verdicts. holds: proven. loose: proven, with a factor of at least :data:`LOOSE` to spare.
fails: refuted. unproven: not refuted, but neither the paper's proof nor ours shows it."""

_DIGITS: Final = 6

LOOSE: Final = 2
"""A claim of at least this multiple of the truth is called loose."""


def answer(claimed: Enclosure, exact: Enclosure | Bound, proof: Enclosure | None = None) -> Answer:
    r"""The verdict on ``exact`` <= ``claimed``; ``proof`` is the bound that the paper proves."""
    if exact.lower is not None and exact.lower > claimed.upper:
        return "fails"
    if exact.upper > claimed.lower:
        # The proven bound exceeds the printed claim, which is not refuted.
        return "unproven"
    if proof is not None and proof.lower > claimed.upper:
        return "unproven"
    return "loose" if claimed.lower >= LOOSE * exact.upper > 0 else "holds"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    r"""The comparison of one claim with the exact value, at one choice of parameters.

    ``statement`` is the number of the theorem in the paper; it starts with "ours" for statements of
    this package. ``erratum`` is the entry in docs/errata.md. ``quantity`` names the number that the
    claim bounds, and ``note`` explains the numbers in one line.
    """

    paper: str
    statement: str
    parameters: str
    quantity: str
    claimed: Enclosure
    exact: Enclosure | Bound
    note: str
    erratum: str | None = None
    proof: Enclosure | None = None

    @property
    def verdict(self) -> Answer:
        return answer(self.claimed, self.exact, self.proof)

    @property
    def ours(self) -> bool:
        r"""Whether the statement is this package's and not the paper's."""
        return self.statement.startswith("ours")

    @property
    def explanation(self) -> str:
        truth, claim = decimals(self.exact), decimals(self.claimed)
        match self.verdict:
            case "fails":
                head = f"{self.quantity} is {truth}, claimed {claim}"
            case "holds":
                head = f"{self.quantity} is {truth}, at most the claimed {claim}"
            case "loose":
                times = Fraction(self.claimed.lower) / Fraction(self.exact.upper)
                head = f"{self.quantity} is {truth}; the claimed {claim} is "
                head += f"at least {down(times)} times as large"
            case "unproven":
                proven = self.exact if self.proof is None else self.proof
                head = f"the argument gives {decimals(proven)} for {self.quantity}, claimed {claim}"
        return f"{head}: {self.note}"

    def to_json(self) -> dict[str, Any]:
        r"""The row as JSON: floats rounded outwards, infinity as text, a missing bound as null."""
        return {
            "paper": self.paper,
            "statement": self.statement,
            "erratum": self.erratum,
            "parameters": self.parameters,
            "quantity": self.quantity,
            "claimed": _ends(self.claimed),
            "exact": _ends(self.exact),
            "proof": None if self.proof is None else _ends(self.proof),
            "verdict": self.verdict,
            "explanation": self.explanation,
        }


LaterRow: TypeAlias = Callable[[], Judgement]
"""A row that is not computed yet."""

Value: TypeAlias = Enclosure | Fraction | int
Truth: TypeAlias = Value | Bound
Found: TypeAlias = tuple[Value, Truth] | tuple[Value, Truth, dict[str, Any]]
"""The claimed value, the true value and, optionally, ``proof`` and values for the text."""

P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class Claim:
    r"""A decorator: the decorated function returns a :data:`LaterRow`, which computes the row."""

    paper: str
    statement: str
    parameters: str
    quantity: str
    note: str
    erratum: str | None = None

    def __call__(self, compute: Callable[P, Found]) -> Callable[P, LaterRow]:
        named = signature(compute)

        def later(*args: P.args, **kwargs: P.kwargs) -> LaterRow:
            given = named.bind(*args, **kwargs).arguments
            return lambda: self._row(compute(*args, **kwargs), given)

        return later

    def _row(self, found: Found, given: Mapping[str, Any]) -> Judgement:
        claimed, exact, *rest = found
        more = dict(rest[0]) if rest else {}
        proof = more.pop("proof", None)
        known = {**given, **more}
        words = {name: text and text.format(**known) for name, text in asdict(self).items()}
        return Judgement(
            **words,
            claimed=enclosed(claimed),
            exact=exact if isinstance(exact, Bound) else enclosed(exact),
            proof=None if proof is None else enclosed(proof),
        )


def enclosed(value: Value) -> Enclosure:
    r"""Return ``value`` as an enclosure; for an exact number the width is 0."""
    return value if isinstance(value, Enclosure) else Enclosure.exactly(value)


def along(ends: Enclosure, compute: Callable[[Fraction], Value]) -> Enclosure:
    r"""Enclose the values of the monotone function ``compute`` between the two ``ends``."""
    found = [enclosed(compute(Fraction(end))) for end in (ends.lower, ends.upper)]
    return Enclosure(min(each.lower for each in found), max(each.upper for each in found))


def decimals(value: Enclosure | Bound) -> str:
    r"""Format an enclosure with six digits, rounded outwards; equal ends are written once."""
    high = up(value.upper, _DIGITS)
    if value.lower is None:
        return f"at most {high}"
    low = down(value.lower, _DIGITS)
    return low if low == high else f"[{low}, {high}]"


def _ends(value: Enclosure | Bound) -> dict[str, float | str | None]:
    low = None if value.lower is None else _plain(round_down(value.lower))
    return {"lower": low, "upper": _plain(round_up(value.upper))}


def _plain(value: float) -> float | str:
    return str(value) if value in (float("inf"), float("-inf")) else value


def replay(
    todo: Iterable[LaterRow], progress: Callable[[int], None] = lambda _: None
) -> tuple[Judgement, ...]:
    r"""Compute the rows ``todo``; ``progress`` is called with the number of computed rows."""
    found: list[Judgement] = []
    for row in todo:
        found.append(row())
        progress(len(found))
    return tuple(found)


def lines(verdicts: Iterable[Judgement]) -> Iterator[str]:
    r"""Format the rows as text, by paper, with a final line that counts the verdicts."""
    counts: Counter[str] = Counter()
    paper = None
    for row in verdicts:
        if row.paper != paper:
            paper = row.paper
            yield paper
        counts[row.verdict] += 1
        erratum = "" if row.erratum is None else f" [erratum {row.erratum}]"
        yield f"  {row.verdict:8}  {row.statement}{erratum}; {row.parameters}"
        yield f"            {row.explanation}"
    yield ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))


def to_json(verdicts: Iterable[Judgement]) -> dict[str, Any]:
    r"""The rows and the count of each verdict, as a JSON object."""
    listed = tuple(verdicts)
    return {
        "rows": [row.to_json() for row in listed],
        "counts": dict(sorted(Counter(row.verdict for row in listed).items())),
    }
