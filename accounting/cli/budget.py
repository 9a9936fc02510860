r"""The ``dpcore budget`` commands: the privacy loss of compositions, and calibration."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from accounting.cli import answers
from accounting.cli.calibrate import calibrate
from accounting.cli.composition_options import (
    WIDTH,
    CertificateFile,
    Delta,
    Releases,
    counts,
    whole,
)
from accounting.cli.continual import continual, matrix
from accounting.cli.training import check, dpsgd
from dpcore.cli.figure_file import check_picture
from dpcore.cli.options import AsJson, command_group, named, option, with_fields, with_time_limit
from dpcore.cli.terminal import aligned, progress_bar, show
from dpcore.errors import InvalidParameter
from dpcore.numbers.parameter import rational
from dpcore.numbers.rounding import exactly, up

if TYPE_CHECKING:
    from accounting.composition.returning_users import Route
    from accounting.guarantees.bound import Bound


_NO_DELTA: Final = "the privacy loss is unbounded: use a delta above 0"
_TOO_SMALL: Final = (
    "outputs that only one of the two datasets can produce have a probability above delta: use "
    "a larger delta, or noise with unbounded support, e.g. discrete-gaussian"
)
_SHOWN: Final = 6
_DRAWN: Final = Fraction(1, 10**300)

budget = command_group(
    "budget",
    help=(
        "Compute the privacy cost of any list of releases: proven epsilon and delta.\n\n"
        "The true value lies between two proven bounds: report the upper one. To combine "
        "releases with different noise, repeat --noise, each with its own --rounds and "
        "--sensitivity, in the same order.\n\n"
        "Exit code: 0 done; 2 an invalid option, or no theorem applies."
    ),
    no_args_is_help=True,
)

Relative = Annotated[str, option("WIDTH", WIDTH, default=...)]


@budget.command()
@with_time_limit
@with_fields
def epsilon(
    releases: Releases,
    *,
    delta: Delta,
    relative: Relative = "1e-6",
    certificate: CertificateFile = None,
    as_json: AsJson = False,
) -> None:
    r"""Compute epsilon at a delta for the composition of all rounds.

    Example: dpcore budget epsilon --noise skellam:variance=400 --rounds 1000 --delta 1e-6
    """
    total = releases.composed()
    at = rational("--delta", delta)
    with named("delta", "relative", count="--rounds"):
        found = total.epsilon(at, relative)
    answers.write_certificate(certificate, total, at)
    facts = [("epsilon", f"{answers.between(found)} at delta = {delta}")]
    if found.lower == math.inf:
        facts.append(("why", _NO_DELTA if at == 0 else _TOO_SMALL))
    answer = {"epsilon": found.to_json(), "delta": answers.exact(at)}
    answers.show_answer(answer, facts, total, found, as_json=as_json)


@budget.command("delta")
@with_time_limit
@with_fields
def delta_command(
    releases: Releases,
    *,
    epsilon: str = option("EPSILON", "The epsilon of the guarantee, e.g. 1 or 1/2.", default=...),
    relative: Relative = "1e-6",
    as_json: AsJson = False,
) -> None:
    r"""Compute delta at an epsilon for the composition of all rounds.

    Example: dpcore budget delta --noise discrete-laplace:scale=20 --rounds 100 --epsilon 2
    """
    total = releases.composed()
    at = rational("--epsilon", epsilon)
    with named("epsilon", "relative", count="--rounds"):
        found = total.delta(at, relative)
    facts = [("delta", f"{answers.between(found)} at epsilon = {epsilon}")]
    answer = {"delta": found.to_json(), "epsilon": answers.exact(at)}
    answers.show_answer(answer, facts, total, found, as_json=as_json)


@budget.command()
@with_time_limit
@with_fields
def curve(
    releases: Releases,
    *,
    least: str = option(
        "DELTA", "The smallest delta of the curve.", "--least-delta", default="1e-12"
    ),
    points: str = option("N", "The number of points of the curve.", default="61"),
    relative: Relative = "1e-6",
    plot: Path | None = option("FILE", "Draw the curve to a file: .svg, .png or .pdf."),
    as_json: AsJson = False,
) -> None:
    r"""Compute the privacy curve: epsilon for deltas from 1/2 down, as a table, JSON or plot.

    Example: dpcore budget curve --noise discrete-gaussian:sigma_squared=400 --rounds 100
    """
    from accounting.cli.plot import draw
    from accounting.guarantees.plot_curve import deltas_down_to

    lowest = rational("--least-delta", least)
    if plot is not None:
        check_picture("--plot", plot)
        if lowest < _DRAWN:
            raise InvalidParameter("--least-delta", least, "must be >= 1e-300 for a plot")
    total = releases.composed()
    with named("least_delta"):
        deltas = deltas_down_to(lowest, whole("--points", points, 2))
    found: list[tuple[Fraction, Bound]] = []
    options = named("relative", count="--rounds")
    with progress_bar("points", len(deltas)) as advance, options:
        for at in deltas:
            found.append((at, total.epsilon(at, relative)))
            advance(len(found))
    if plot is not None:
        title = " + ".join(f"{count} x {source.text}" for source, count in total.parts)
        draw(plot, [(float(at), bound) for at, bound in found], title=title)
    if as_json:
        rows = [{"delta": answers.exact(at), "epsilon": bound.to_json()} for at, bound in found]
        show(answers.document({"curve": rows}, total, found[-1][1]))
        return
    # The delta is exact: rounding it would invalidate the upper or the lower bound.
    rows_of_text = [(exactly(at), answers.between(bound)) for at, bound in found]
    table = aligned([("delta".ljust(answers.MARGIN - 2), "epsilon"), *rows_of_text])
    show([*table, "", *answers.lines_of(total, found[-1][1])])


@budget.command()
@with_time_limit
@with_fields
def returning(
    releases: Releases,
    *,
    visits: str = option(
        "LIST",
        "The numbers of rounds in which one user takes part, e.g. 1,3,9 or 1,2,4,...,64.",
        default="1,2,4,...,1024",
    ),
    delta: Delta = "1e-6",
    as_json: AsJson = False,
) -> None:
    r"""Compare composition theorems for returning users: each theorem's epsilon per user.

    Each visit is one release; --visits replaces --rounds.

    Example: dpcore budget returning --noise skellam:variance=400 --visits 1,16,1024 --delta 1e-6
    """
    from accounting.composition.returning_users import per_user, routes

    visit, assumptions = releases.visit(visits)
    times, at = counts("--visits", visits), rational("--delta", delta)
    table: list[tuple[int, tuple[Route, ...]]] = []
    with progress_bar("visits", len(times)) as advance, named("delta"):
        for count in times:
            table.append((count, routes(per_user(visit, max_visits=count), at)))
            advance(len(table))
    if as_json:
        found = [
            {"visits": n, "tightest": _tightest(by), "routes": [route.to_json() for route in by]}
            for n, by in table
        ]
        head = {"schema": answers.SCHEMA, "delta": answers.exact(at), "visit": visit.to_json()}
        show({**head, "returning": found, "assumptions": list(assumptions)})
        return
    rows = _table(table, f"epsilon of a user at delta = {delta}")
    show([*rows, *answers.lines(("assumes", reason) for reason in assumptions)])


def _tightest(found: Sequence[Route]) -> str | None:
    # Among equal bounds the first route is chosen: the exact one.
    bounded = [(route.bound.upper, route.method) for route in found if route.bound is not None]
    return min(bounded, key=lambda each: each[0])[1] if bounded else None


def _table(table: Sequence[tuple[int, Sequence[Route]]], title: str) -> list[str]:
    def cell(route: Route, best: str | None) -> str:
        text = "-" if route.bound is None else up(route.bound.upper, _SHOWN)
        return text + ("*" if route.method == best else " ")

    rows = [["visits", *(route.method for route in table[0][1])]]
    rows += [[str(n), *(cell(each, _tightest(found)) for each in found)] for n, found in table]
    every = [route for _, found in table for route in found if route.reason]
    reasons = dict.fromkeys(f"{route.method}: {route.reason}" for route in every)
    head = [f"{title}, rounded up; * marks the least", ""]
    rows_of_text = aligned(rows, right=range(1, len(rows[0])))
    return [*head, *rows_of_text, *([""] if reasons else []), *reasons]


budget.command("calibrate")(calibrate)
budget.command("dpsgd")(dpsgd)
budget.command("check")(check)
budget.command("continual")(continual)
budget.command("matrix")(matrix)
