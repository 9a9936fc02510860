r"""The ``dpcore budget`` commands: what releases cost together, and the noise a promise needs."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from accounting.cli.arguments import (
    AsJson,
    between,
    each,
    number,
    progress,
    read_sensitivity,
    share,
    show,
    whole,
)
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Scope, Sensitivity
from dpcore.parameter import rational
from dpcore.spelling import read_noise

if TYPE_CHECKING:
    from accounting.compose import Composition

__all__ = ["Noises", "Rounds", "Sampled", "Sensitivities", "budget", "composed"]

_SCHEMA: Final = "dpcore-budget/1"
_MARGIN: Final = 13
_POINTS: Final = 61

budget = typer.Typer(
    name="budget",
    help="What releases cost together: certified epsilon and delta of any list of noises.",
    rich_markup_mode="rich",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    add_completion=False,
)

Noises = Annotated[
    list[str],
    typer.Option(
        "--noise", metavar="NOISE", help="A noise, e.g. skellam:variance=400; repeatable."
    ),
]
Sensitivities = Annotated[
    list[str] | None,
    typer.Option(
        "--sensitivity",
        help="What one person moves: 3, l1=3, l2-squared=4 or box=1x2; once, or once a noise. (1)",
    ),
]
Rounds = Annotated[
    list[str] | None,
    typer.Option("--rounds", help="How many releases; once, or once a noise. (1)"),
]
Sampled = Annotated[
    list[str] | None,
    typer.Option(
        "--poisson",
        help="Each person enters a round with this chance, e.g. 1%; once, or once a noise. (100%) "
        "Neighbours then differ by one person added or removed.",
    ),
]
Delta = Annotated[str, typer.Option(help="The delta of the promise, e.g. 1e-6; 0 for pure.")]
Relative = Annotated[str, typer.Option(help="The relative width asked of the two ends.")]


@budget.command()
def epsilon(
    *,
    noise: Noises,
    delta: Delta,
    sensitivity: Sensitivities = None,
    rounds: Rounds = None,
    poisson: Sampled = None,
    relative: Relative = "1e-8",
    as_json: AsJson = False,
) -> None:
    r"""epsilon at a delta, of all rounds together.

    Example: dpcore budget epsilon --noise skellam:variance=400 --rounds 1000 --delta 1e-6
    """
    total = composed(noise, sensitivity, rounds, poisson)
    at = rational("--delta", delta)
    found = total.epsilon(at, relative)
    if as_json:
        show(_document({"epsilon": found.to_json(), "delta": float(at)}, total, found))
        return
    show([_line("epsilon", f"{between(found)} at delta = {delta}"), *_lines(total, found)])


@budget.command("delta")
def delta_command(
    *,
    noise: Noises,
    epsilon: Annotated[str, typer.Option(help="The epsilon of the promise, e.g. 1 or 1/2.")],
    sensitivity: Sensitivities = None,
    rounds: Rounds = None,
    poisson: Sampled = None,
    relative: Relative = "1e-8",
    as_json: AsJson = False,
) -> None:
    r"""delta at an epsilon, of all rounds together.

    Example: dpcore budget delta --noise discrete-laplace:scale=20 --rounds 100 --epsilon 2
    """
    total = composed(noise, sensitivity, rounds, poisson)
    at = rational("--epsilon", epsilon)
    found = total.delta(at, relative)
    if as_json:
        show(_document({"delta": found.to_json(), "epsilon": float(at)}, total, found))
        return
    show([_line("delta", f"{between(found)} at epsilon = {epsilon}"), *_lines(total, found)])


@budget.command()
def curve(
    *,
    noise: Noises,
    sensitivity: Sensitivities = None,
    rounds: Rounds = None,
    poisson: Sampled = None,
    least: Annotated[str, typer.Option("--least-delta", help="Where the curve ends.")] = "1e-12",
    points: Annotated[str, typer.Option(help="How many points.")] = str(_POINTS),
    relative: Relative = "1e-6",
    plot: Annotated[
        Path | None, typer.Option(help="Draw it: a file ending in .svg, .png or .pdf.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    r"""The whole curve: epsilon for deltas from 1/2 downwards, as a table, JSON or a picture.

    Example: dpcore budget curve --noise discrete-gaussian:sigma_squared=400 --rounds 100
    """
    from accounting.privacy_plot import check_plot, draw

    if plot is not None:
        check_plot(plot)
    total = composed(noise, sensitivity, rounds, poisson)
    deltas = _deltas(rational("--least-delta", least), whole("--points", points, 2))
    found = []
    with progress(len(deltas), "points") as advance:
        for at in deltas:
            found.append((at, total.epsilon(at, relative)))
            if advance is not None:
                advance(len(found))
    if plot is not None:
        draw(plot, [(float(at), bound) for at, bound in found], title=_title(total))
    rows = [{"delta": float(at), "epsilon": bound.to_json()} for at, bound in found]
    if as_json:
        show(_document({"curve": rows}, total, found[0][1]))
        return
    show([f"{float(at):<12.4g}{between(bound)}" for at, bound in found])


@budget.command("calibrate")
def calibrate_command(
    *,
    noise: Annotated[
        str,
        typer.Option(
            metavar="LAW",
            help="A law without its size: discrete-gaussian, polya-difference:shape=0.9",
        ),
    ],
    epsilon: Annotated[str, typer.Option(help="The epsilon to keep.")],
    delta: Delta = "0",
    sensitivity: Annotated[str, typer.Option(help="What one person moves, as elsewhere.")] = "1",
    rounds: Annotated[str, typer.Option(help="How many releases.")] = "1",
    honest: Annotated[
        str, typer.Option(help="The share of users whose noise is counted on, e.g. 90%.")
    ] = "100%",
    as_json: AsJson = False,
) -> None:
    r"""The least noise that keeps a promise over all rounds, and proof that less does not.

    Example: dpcore budget calibrate --noise discrete-gaussian --rounds 50 --epsilon 2 --delta 1e-6
    """
    from accounting.calibrate import calibrate
    from dpcore.spelling import write_noise

    found = calibrate(
        noise=noise,
        epsilon=epsilon,
        delta=delta,
        max_visits=whole("--rounds", rounds, 1),
        sensitivity=read_sensitivity(sensitivity),
        honest_fraction=share("--honest", honest),
    )
    if as_json:
        show({"schema": _SCHEMA, **found.to_json()})
        return
    quantity = "delta" if found.delta else "epsilon"
    less = "does not keep it" if found.least else "could not be told from enough"
    show(
        [
            _line("noise", write_noise(found.noise)),
            _line("promise", f"epsilon = {epsilon}, delta = {delta} over {found.rounds} rounds"),
            _line("kept", f"{quantity} {between(found.found)}"),
            _line("less", f"{write_noise(found.step_less)} {less}: {between(found.found_less)}"),
            _line("method", found.found.method),
        ]
    )


@budget.command()
def returning(
    *,
    noise: Annotated[str, typer.Option(metavar="NOISE", help="The noise of one visit.")],
    visits: Annotated[
        str, typer.Option(help="How often a user may come back: a list, e.g. 1,2,4,8.")
    ] = "1,2,4,8,16,32,64,128,256,512,1024",
    delta: Delta = "1e-6",
    sensitivity: Annotated[str, typer.Option(help="What one visit moves, as elsewhere.")] = "1",
    as_json: AsJson = False,
) -> None:
    r"""Users who come back: epsilon of a user by every composition theorem, the tightest marked.

    Example: dpcore budget returning --noise skellam:variance=400 --visits 1,16,1024 --delta 1e-6
    """
    from accounting.returning import per_user, routes

    visit = _curve(noise, read_sensitivity(sensitivity), Scope())
    counts = [whole("--visits", text.strip(), 1) for text in visits.split(",")]
    at = rational("--delta", delta)
    table = []
    with progress(len(counts), "visits") as advance:
        for count in counts:
            table.append((count, routes(per_user(visit, max_visits=count), at)))
            if advance is not None:
                advance(len(table))
    if as_json:
        rows = [
            {"visits": count, "routes": [route.to_json() for route in found]}
            for count, found in table
        ]
        show({"schema": _SCHEMA, "delta": float(at), "noise": noise, "returning": rows})
        return
    show(_table(table, delta))


def _table(table: Sequence[tuple[int, Any]], delta: str) -> list[str]:
    names = [route.method for route in table[0][1]]
    lines = [f"epsilon of a user at delta = {delta}, rounded up; * is the least", ""]
    lines.append("visits".ljust(8) + "".join(name.rjust(14) for name in names))
    for count, found in table:
        bounds = [route.bound for route in found]
        best = min(bound.upper for bound in bounds if bound is not None)
        cells = ""
        for bound in bounds:
            text = "-" if bound is None else number(bound.upper)[:11]
            cells += (text + ("*" if bound is not None and bound.upper == best else " ")).rjust(14)
        lines.append(str(count).ljust(8) + cells)
    reasons = {
        f"{route.method}: {route.reason}" for _, found in table for route in found if route.reason
    }
    return lines + ([""] if reasons else []) + sorted(reasons)


def composed(
    noises: Sequence[str],
    sensitivities: Sequence[str] | None,
    rounds: Sequence[str] | None,
    poisson: Sequence[str] | None,
) -> Composition:
    r"""The composition that repeated options spell, one group for each noise."""
    from accounting.compose import compose
    from accounting.subsampling import PoissonSampled

    count = len(noises)
    moves = [read_sensitivity(s) for s in each("--sensitivity", sensitivities or [], count, "1")]
    times = [whole("--rounds", r, 1) for r in each("--rounds", rounds or [], count, "1")]
    rates = [share("--poisson", p) for p in each("--poisson", poisson or [], count, "100%")]
    scope = Scope() if poisson is None else Scope(relation="add-remove")  # type: ignore[arg-type]  # read by value
    parts = []
    for spelled, move, rate, time in zip(noises, moves, rates, times, strict=True):
        whole_curve = _curve(spelled, move, scope)
        if rate == 0:
            raise InvalidParameter("--poisson", "0", "must be above 0%: nobody is ever sampled")
        part = whole_curve if rate == 1 else PoissonSampled(curve=whole_curve, rate=rate)
        parts.append((part, time))
    return compose(*parts)


def _curve(noise: str, sensitivity: Sensitivity, scope: Scope) -> Any:
    from accounting.guarantee import guarantee
    from dpcore.mechanism import Mechanism

    return guarantee(Mechanism(noise=read_noise(noise), sensitivity=sensitivity, scope=scope))


def _deltas(least: Fraction, count: int) -> list[Fraction]:
    if not 0 < least < Fraction(1, 2):
        raise InvalidParameter("--least-delta", str(least), "must lie in (0, 1/2)")
    # Evenly spaced in the logarithm, written in four digits: 1/2 and the least one are exact.
    steps = [float(2 * least) ** (i / (count - 1)) / 2 for i in range(count)]
    return [Fraction(1, 2), *(Fraction(f"{step:.4g}") for step in steps[1:-1]), least]


def _document(answer: dict[str, Any], total: Composition, found: Any) -> dict[str, Any]:
    return {
        "schema": _SCHEMA,
        **answer,
        "rounds": total.rounds,
        "method": found.method,
        "theorem": found.theorem,
        "parts": total.to_json(),
        "assumptions": list(total.assumptions),
    }


def _lines(total: Composition, found: Any) -> list[str]:
    lines = [
        _line("rounds", str(total.rounds)),
        _line("method", f"{found.method}: {found.theorem}"),
    ]
    return lines + [_line("assumes", reason) for reason in total.assumptions]


def _title(total: Composition) -> str:
    return " and ".join(f"{rounds} x {source!r}" for source, rounds in total.parts)


def _line(name: str, value: str) -> str:
    return f"{name.ljust(_MARGIN)}{value}"
