r"""The releases that repeated options spell, read into a composition and written back."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, cast

import typer

from accounting.cli.options import each, read_law, read_sensitivity, share, whole
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Mechanism, Norm, Relation, Scope, Sensitivity
from dpcore.spelling import write_noise

if TYPE_CHECKING:
    from accounting.claims.guarantee import Guarantee
    from accounting.release.curve import PrivacyCurve
    from accounting.totals.compose import Composition

__all__ = ["Noises", "Rounds", "Sampled", "Sensitivities", "composed", "told"]

Noises = Annotated[
    list[str],
    typer.Option(
        "--noise",
        metavar="NOISE",
        help="The noise of a release, e.g. skellam:variance=400; again for each further one.",
    ),
]
Sensitivities = Annotated[
    list[str] | None,
    typer.Option(
        "--sensitivity",
        metavar="MOVES",
        help="How far one person moves the query: 3; for vectors l1=3, l2-squared=4 or box=1x2. "
        "Once, or once a noise. (1)",
    ),
]
Rounds = Annotated[
    list[str] | None,
    typer.Option(
        "--rounds", metavar="K", help="How many releases: 1000 or 1e3; once, or once a noise. (1)"
    ),
]
Sampled = Annotated[
    list[str] | None,
    typer.Option(
        "--poisson",
        metavar="RATE",
        help="Each person enters a round with this chance, e.g. 1%, anew and in secret; once, or "
        "once a noise. (100%) Neighbours then differ by one person added or removed.",
    ),
]


def composed(
    noises: Sequence[str],
    sensitivities: Sequence[str] | None,
    rounds: Sequence[str] | None,
    poisson: Sequence[str] | None,
    relation: Relation = Relation.REPLACE,
) -> Composition:
    r"""The composition that repeated options spell, one group for each noise.

    Of neighbours by ``relation``; where people are sampled, by one who is added or removed.
    """
    from accounting.release.guarantee import guarantee
    from accounting.release.subsampling import PoissonSampled
    from accounting.totals.compose import compose

    count = len(noises)
    moves = [read_sensitivity(s) for s in each("--sensitivity", sensitivities or [], count, "1")]
    times = [whole("--rounds", r, 1) for r in each("--rounds", rounds or [], count, "1")]
    rates = [_rate(p) for p in each("--poisson", poisson or [], count, "100%")]
    relation = Relation.ADD_REMOVE if poisson else relation
    parts: list[tuple[Guarantee, int]] = []
    for spelled, move, rate, time in zip(noises, moves, rates, times, strict=True):
        mechanism = Mechanism(
            noise=read_law("--noise", spelled), sensitivity=move, scope=Scope(relation=relation)
        )
        part = guarantee(mechanism)
        if rate != 1:
            part = PoissonSampled(curve=cast("PrivacyCurve", part), rate=rate)  # it checks
        parts.append((part, time))
    return compose(*parts)


def _rate(text: str) -> Fraction:
    rate = share("--poisson", text)
    if not rate:
        raise InvalidParameter("--poisson", text, "must be above 0%: nobody is ever sampled")
    return rate


def told(source: Guarantee, rounds: int) -> str:
    r"""One part in a line, as a command spells it."""
    from accounting.release.curve import PrivacyCurve
    from accounting.release.subsampling import PoissonSampled

    match source:
        case PrivacyCurve():
            curve, rate = source, ""
        case PoissonSampled():
            curve, rate = source.curve, f" --poisson {source.rate}"
        case _:
            return f"{rounds} x {source!r}"
    moves = _moves(Sensitivity.of(curve.sensitivity))
    return f"{rounds} x {write_noise(curve.noise)} --sensitivity {moves}{rate}"


def _moves(sensitivity: Sensitivity) -> str:
    amount = sensitivity.amount
    text = "x".join(map(str, amount)) if isinstance(amount, tuple) else str(amount)
    return text if sensitivity.norm is Norm.ABSOLUTE else f"{sensitivity.norm.value}={text}"
