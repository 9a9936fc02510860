r"""The report of an exact comparison of two known output laws.

``docs/schemas/dpcore-exact-1.json`` is its JSON schema. An entry [lower, upper] contains proven
bounds on a real number: floats rounded outwards, or "inf" for infinity.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar, Final

from audit.claims import format_rational
from audit.formats.result import Result, Statement, computed, fact, format_enclosure, plain
from audit.known_laws.compare_two_laws import (
    Decision,
    Direction,
    Order,
    Point,
    delta_point,
    epsilon_point,
)
from audit.known_laws.law_file import WrittenLaw
from audit.targets.target import Law
from audit.verdict_words_and_exit_codes import EXACT_VERDICTS, ExactVerdict
from dpcore.cli.figure_file import curve_picture
from dpcore.errors import (
    ABSENT,
    ANSWER,
    InvalidParameter,
    PrecisionExhausted,
)
from dpcore.numbers.enclosure import Enclosure, round_down, round_up

_DIGITS: Final = 13


def _witness(decision: Decision | None) -> dict[str, Any] | None:
    event = None if decision is None else decision.event
    if decision is None or event is None:
        return None
    in_p, in_q = (event.p, event.q) if decision.direction == "p_against_q" else (event.q, event.p)
    return {
        "claim": str(decision.claim),
        "event": event.words,
        "direction": decision.direction,
        "probability_p": plain(in_p),
        "probability_q": plain(in_q),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactReport(Result):
    r"""The report of ``dpcore audit exact``: proven facts about two output laws.

    ``decisions`` contains one decision for each claimed point that was tested.
    """

    SCHEMA: ClassVar[str] = "dpcore-exact/1"

    p: WrittenLaw = fact(
        '{"law": as text, "outputs": the number of outcomes with mass, null if the law is noise, '
        '"divided_by": the exact sum by which --normalise divided the masses, as text}',
        kind="dict",
    )
    q: WrittenLaw = fact("the same facts about the other law", kind="dict")
    points: tuple[Point, ...] = ()
    claim: str | None = fact("the claim as text", default=None)
    decisions: tuple[Decision, ...] = fact(
        'one entry for each claimed point: [{"claim": {"epsilon", "delta"}, "verdict", "delta": as '
        'above, at the claimed epsilon, "epsilon": as above, at the claimed delta, or null if '
        "epsilon is discontinuous at that delta and no precision decides}]",
        kind="list",
        name="points",
        default=(),
    )
    notes: tuple[str, ...] = fact("a list of sentences", default=())
    versions: dict[str, str] = fact('{"dpcore", "python", "numpy"}', default_factory=dict)

    @property
    def exit_code(self) -> int:
        r"""The exit code: 0 proven, not refuted or no claim given, 1 refuted, 4 undecided."""
        return ANSWER if self.verdict is None else EXACT_VERDICTS[self.verdict][2]

    @computed(
        'the event of a refuted point, if one is named: {"claim": as text, "event", "direction", '
        '"probability_p", "probability_q"}',
        write=_witness,
        kind="dict | None",
        name="witness",
        before="notes",
    )
    def broken(self) -> Decision | None:
        r"""A refuted point, if possible with a known violating event; None if no point is."""
        refuted = [d for d in self.decisions if d.verdict == "refuted"]
        return next((d for d in refuted if d.event is not None), refuted[0] if refuted else None)

    @computed(
        'the smallest delta at each epsilon: [{"epsilon": exact, as text, ...}]. Entries of delta, '
        'epsilon and renyi have "worse", the larger of the two directions, "p_against_q" (as in '
        'P(S) <= e^epsilon Q(S) + delta) and "q_against_p": [lower, upper]. A direction is null '
        "if it is proven never to exceed the other",
        before="claim",
    )
    def delta(self) -> list[dict[str, Any]]:
        return self._of("delta", "epsilon")

    @computed(
        'the smallest epsilon at each delta: [{"delta": exact, as text, ...}]', before="claim"
    )
    def epsilon(self) -> list[dict[str, Any]]:
        return self._of("epsilon", "delta")

    @computed(
        'the Renyi divergence of each order: [{"order": exact, as text, or "inf", ...}]',
        before="claim",
    )
    def renyi(self) -> list[dict[str, Any]]:
        return self._of("renyi", "order")

    @computed(
        'the verdict on the claim, or null if there is no claim; "not_refuted" means that only '
        "single points of a claimed curve were proven",
        kind="Literal['proven', 'refuted', 'undecided', 'not_refuted'] | None",
        before="claim",
    )
    def verdict(self) -> ExactVerdict | None:
        r"""The verdict on the whole claim, which is None if there is no claim.

        The claim is "refuted" or "undecided" if any point is. Otherwise, a single point is
        "proven", and a claim of several points is "not_refuted".
        """
        found = [decision.verdict for decision in self.decisions]
        if not found:
            return None
        if "refuted" in found:
            return "refuted"
        if "undecided" in found:
            return "undecided"
        return "proven" if len(found) == 1 else "not_refuted"

    @property
    def subject(self) -> str:
        return f"{self.p.spelling} against {self.q.spelling}"

    def statement(self) -> Statement:
        word, about = "", ""
        if self.verdict is not None:
            word, about, _ = EXACT_VERDICTS[self.verdict]
        return Statement(verdict=word, about=about.format(self.claim), rows=tuple(_rows(self)))

    def _of(self, quantity: str, at: str) -> list[dict[str, Any]]:
        found = [point for point in self.points if point.quantity == quantity]
        return [{at: plain(point.at), **plain(point)} for point in found]


def _rows(report: ExactReport) -> Iterator[tuple[str, str]]:
    yield "P", _law_words(report.p)
    yield "Q", _law_words(report.q)
    if len(report.decisions) == 1:
        yield from _claim_rows(report.decisions[0])
    for decision in report.decisions if len(report.decisions) > 1 else ():
        yield decision.verdict, f"{decision.claim}: delta {_format_interval(decision.delta.worse)}"
    if report.broken is not None:
        of = f"of {report.broken.claim}, " if len(report.decisions) > 1 else ""
        yield "witness", of + _witness_words(report.broken)
    for point in report.points:
        name, at = {
            "delta": ("delta", f"at epsilon = {_short(point.at)}"),
            "epsilon": ("epsilon", f"at delta = {_short(point.at)}"),
            "renyi": ("Renyi", f"of order {_short(point.at)}"),
        }[point.quantity]
        yield name, f"{_format_interval(point.worse)} {at}"
    for note in report.notes:
        yield "note", note


def _claim_rows(decision: Decision) -> Iterator[tuple[str, str]]:
    epsilon, delta = decision.claim.exact
    yield (
        "delta",
        f"{_format_interval(decision.delta.worse)} at the claimed epsilon = {_short(epsilon)}",
    )
    reached = "is discontinuous there, and no precision decides which side applies,"
    if decision.epsilon is not None:
        reached = _format_interval(decision.epsilon.worse)
    yield "epsilon", f"{reached} at the claimed delta = {_short(delta)}"


def _law_words(law: WrittenLaw) -> str:
    outputs = law.outputs
    if outputs is None:
        return law.spelling
    counted = f"{len(outputs):,} output{'' if len(outputs) == 1 else 's'}"
    return f"{law.spelling}: {counted}"


def _short(at: Order) -> str:
    return "infinity" if isinstance(at, float) else format_rational(at)


def _format_interval(value: Enclosure) -> str:
    return "infinite" if value.lower == math.inf else format_enclosure(value, _DIGITS)


def _witness_words(decision: Decision) -> str:
    event = decision.event
    if event is None:
        return (
            "no event is named for noise with several coordinates; the delta above refutes the "
            "claim"
        )
    likely, rare = ("P", "Q") if decision.direction == "p_against_q" else ("Q", "P")
    return (
        f"{event.words}: probability {_format_interval(event.p)} under {likely}, "
        f"{_format_interval(event.q)} under {rare}"
    )


_POINTS: Final = 61
_SEEN: Final = 1e-15
"""Smaller deltas are not plotted: they would compress all others into one line."""
_LEAST_DELTA: Final = Fraction(1, 10**9)
_LAST: Final = 40


def curve_points(p: Law, q: Law) -> tuple[Point, ...]:
    r"""Compute delta at 61 epsilons, evenly spaced from 0 to the largest epsilon of the figure.

    The largest epsilon is about the least epsilon at delta = 0 or, unless that is finite and
    positive, at delta = 1e-9. The largest epsilon is at most 40.
    """
    end = _end(p, q)
    return tuple(delta_point(p, q, end * i / (_POINTS - 1)) for i in range(_POINTS))


def _end(p: Law, q: Law) -> Fraction:
    # The largest epsilon of the figure, rounded; no bound depends on it.
    for delta in (Fraction(), _LEAST_DELTA):
        try:
            found = epsilon_point(p, q, delta)
        except PrecisionExhausted:
            continue
        ends = (way.upper for way in found.ways.values())
        largest = max((end for end in ends if end < math.inf), default=0)
        if largest > 0:
            return Fraction(f"{min(float(largest), _LAST):.2g}")
    return Fraction(_LAST, 8)


def draw_curve(path: Path, points: tuple[Point, ...], *, title: str) -> None:
    r"""Plot delta against epsilon in both directions, with a logarithmic axis from 1e-15."""
    ways: dict[str, Direction] = {"P against Q": "p_against_q", "Q against P": "q_against_p"}
    visible = {label: list(_visible(points, way)) for label, way in ways.items()}
    if not any(visible.values()):
        raise InvalidParameter(
            "--plot", ABSENT, "every delta is below 1e-15, so there is nothing to plot"
        )
    styles: tuple[dict[str, Any], ...] = (
        {"color": "black", "marker": "o", "markersize": 4.0, "linewidth": 1.6},
        {"color": "tab:red", "marker": "o", "markersize": 2.0, "linewidth": 0.8},
    )
    with curve_picture("--plot", path, title=title) as axes:
        for (label, dots), style in zip(visible.items(), styles, strict=True):
            if dots:
                epsilons, lowers, uppers = zip(*dots, strict=True)
                axes.plot(epsilons, uppers, label=label, **style)
                axes.fill_between(epsilons, lowers, uppers, color=style["color"], alpha=0.3)


def _visible(points: tuple[Point, ...], way: Direction) -> Iterator[tuple[float, float, float]]:
    # The points that the logarithmic axis can show; the lower bound of a point may lie below it.
    for point in points:
        found = point.ways.get(way)
        if found is not None and found.upper > _SEEN:
            yield float(point.at), max(round_down(found.lower), _SEEN), round_up(found.upper)
