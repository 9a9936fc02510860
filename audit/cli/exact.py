r"""``dpcore audit exact``: two known laws, and what is proven of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from audit.cli.written import leave
from audit.wording.formats import format_of
from dpcore.command.options import AsFormat, AsJson, Format, argument, option
from dpcore.command.terminal import page
from dpcore.errors import InvalidParameter, PrecisionExhausted
from dpcore.numbers.parameter import rational, rational_in
from dpcore.numbers.rounding import down

if TYPE_CHECKING:
    from audit.exact.divergence import Shifted
    from audit.exact.law_file import WrittenLaw
    from audit.exact.points import Order, Point

_EPSILONS: Final = ("0", "1/2", "1", "2")
_DELTAS: Final = ("0", "1e-6")
_ORDERS: Final = ("2", "inf")


def exact(
    p: str = argument(
        "P",
        "A noise moved by an integer, such as discrete-laplace:scale=1@0 (several coordinates: "
        '@0,1,0), or a file of probabilities: JSON such as {"yes": "3/4", "no": '
        '"1/4"}, or CSV with the columns output,probability.',
    ),
    q: str = argument("Q", "The other law, in the same form."),
    *,
    claim: str | None = option(
        "CLAIM",
        "What to prove or refute: epsilon=1, epsilon=1,delta=1e-6, or points of a claimed "
        "curve such as rho=0.1 or discrete-gaussian:sigma_squared=4@1.",
    ),
    epsilon: list[str] | None = option("E", "Compute delta at this epsilon; repeatable."),
    delta: list[str] | None = option("D", "Compute epsilon at this delta; repeatable."),
    order: list[str] | None = option(
        "A", "Compute the Renyi divergence of this order > 1, or inf."
    ),
    normalise: bool = option(
        "", "Divide the probabilities of a file by their exact sum.", "--normalise", default=False
    ),
    plot: Path | None = option("FILE", "Draw delta over epsilon to a file: .svg, .png or .pdf."),
    as_json: AsJson = False,
    form: AsFormat = Format.TEXT,
) -> None:
    r"""Compute the privacy loss between two known output laws P and Q, by proof.

    Example: dpcore audit exact with_alice.csv without.csv --claim epsilon=1

    Each number is the worse of P against Q and Q against P. Exit code: 0 proven, or nothing was
    claimed; 1 refuted; 2 usage; 4 undecided: the claimed delta is too close to the true one for the
    highest precision (never with two files).
    """
    printed = format_of(form, as_json=as_json)
    from audit.claims.curve_claim import read_claim
    from audit.evidence.verdict import versions
    from audit.exact.points import decide
    from audit.exact.report import ExactReport

    if plot is not None:
        from dpcore.command.picture import check_picture

        check_picture("--plot", plot)
    one, other, notes = _read(p, q, divide=normalise)
    claimed = None if claim is None else read_claim(claim)
    stated = () if claimed is None else claimed.points
    decisions = tuple(decide(one.law, other.law, at) for at in stated)
    points, missing = _points(one, other, (epsilon, delta, order), default=claim is None)
    report = ExactReport(
        p=one,
        q=other,
        points=points,
        claim=None if claimed is None else str(claimed),
        decisions=decisions,
        notes=(*notes, *missing),
        versions=versions(),
    )
    if plot is not None:
        from audit.cli.plot import curve_points, draw_curve

        drawn = curve_points(one.law, other.law)
        draw_curve(plot, drawn, title=f"P = {one.spelling}, Q = {other.spelling}")
    leave(report.to_format(printed, text=page(report.told().lines())), report.exit_code)


def _read(p: str, q: str, *, divide: bool) -> tuple[WrittenLaw, WrittenLaw, list[str]]:
    from audit.exact.divergence import Shifted
    from audit.exact.law_file import read_law

    written = [read_law(argument, text) for argument, text in (("P", p), ("Q", q))]
    if divide and all(law.outputs is None for law in written):
        raise InvalidParameter(
            "--normalise", "true", "is for files of probabilities; both are noises"
        )
    one, other = (law.normalised() if divide else law.checked() for law in written)
    here, there = one.law, other.law
    if isinstance(here, Shifted) and isinstance(there, Shifted):
        if here.noise != there.noise:
            raise InvalidParameter("Q", q, f"must be the noise of P, moved: P = {p}")
        if _coordinates(here) != _coordinates(there):
            raise InvalidParameter("Q", q, f"must be moved by as many integers as P = {p}")
    elif isinstance(here, Shifted) or isinstance(there, Shifted):
        raise InvalidParameter("Q", q, f"must be a noise or a file of probabilities, as P = {p} is")
    notes = [
        f"the probabilities of {law.argument} are divided by their sum, which is about 1 "
        f"{'+' if law.divided_by > 1 else '-'} {down(abs(law.divided_by - 1), 3)}"
        for law in (one, other)
        if law.divided_by != 1
    ]
    if one.outputs is not None and other.outputs is not None and not one.outputs & other.outputs:
        notes.append("no output has mass in both files: are they written alike?")
    return one, other, notes


def _coordinates(law: Shifted) -> int | None:
    return len(law.shift) if isinstance(law.shift, tuple) else None


def _points(
    one: WrittenLaw,
    other: WrittenLaw,
    asked: tuple[list[str] | None, list[str] | None, list[str] | None],
    *,
    default: bool,
) -> tuple[tuple[Point, ...], list[str]]:
    # The points asked for; of the table that is printed where nothing is asked, what is derived.
    from accounting.errors import NotDerived

    wanted = _wanted(one, other, asked)
    if wanted or not default:
        return tuple(find() for find in wanted), []
    found: list[Point] = []
    refused: list[Exception] = []
    for find in _wanted(one, other, (_EPSILONS, _DELTAS, _ORDERS)):
        try:
            found.append(find())
        except (NotDerived, PrecisionExhausted) as error:
            refused.append(error)
    if not found:
        raise refused[0]
    return tuple(found), list(dict.fromkeys(map(str, refused)))


def _wanted(
    one: WrittenLaw, other: WrittenLaw, asked: tuple[Sequence[str] | None, ...]
) -> list[Callable[[], Point]]:
    from audit.exact.points import delta_point, epsilon_point, renyi_point

    epsilons, deltas, orders = (texts or () for texts in asked)
    p, q = one.law, other.law
    return [
        *(partial(delta_point, p, q, _epsilon(text)) for text in epsilons),
        *(partial(epsilon_point, p, q, _delta(text)) for text in deltas),
        *(partial(renyi_point, p, q, _order(text)) for text in orders),
    ]


def _epsilon(text: str) -> Fraction:
    exact = rational("--epsilon", text)
    if exact < 0:
        raise InvalidParameter("--epsilon", text, "must be >= 0")
    return exact


def _delta(text: str) -> Fraction:
    return rational_in("--delta", text, "[0, 1)")


def _order(text: str) -> Order:
    if text.strip().lower() in {"inf", "infinity"}:
        return math.inf
    exact = rational("--order", text)
    if exact <= 1:
        raise InvalidParameter("--order", text, "must be > 1, or inf")
    return exact
