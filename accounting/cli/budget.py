r"""The ``dpcore budget`` commands: the privacy loss of compositions, and calibration.

The commands ``dpsgd`` and ``check`` are in the module ``training``; ``continual`` and ``matrix``
are in the module ``continual``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from accounting.cli import answers
from accounting.cli.composition_options import (
    NOT_BOTH,
    CertificateFile,
    Delta,
    Group,
    Neighbours,
    Relative,
    Releases,
    counts,
    rate_of,
    whole,
)
from accounting.cli.continual import continual, matrix
from accounting.cli.training import check, dpsgd, draw
from accounting.composition.training_run import TrainingRun
from dpcore.cli.figure_file import check_picture
from dpcore.cli.options import (
    AsJson,
    command_group,
    named,
    option,
    share,
    with_fields,
    with_time_limit,
)
from dpcore.cli.terminal import aligned, progress_bar, show
from dpcore.errors import ABSENT, InvalidParameter
from dpcore.mechanism import Relation
from dpcore.numbers.parameter import rational
from dpcore.numbers.rounding import exactly, up
from dpcore.parse_noise import read_sensitivity, write_noise

if TYPE_CHECKING:
    from accounting.composition.composition_theorems import Route
    from accounting.descriptions.sampling_schemes import Scheme
    from accounting.guarantees.bound import Bound
    from accounting.privacy_curves.release_curve import OneRelease


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
        "releases with different noise, repeat --noise. Give --rounds and --sensitivity once, or "
        "once per --noise in the same order.\n\n"
        "Exit code: 0 done; 2 an invalid option, or no theorem applies."
    ),
    no_args_is_help=True,
)


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
    with named("delta", "relative", "rounds"):
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
    with named("epsilon", "relative", "rounds"):
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
    r"""Compute the privacy curve: epsilon at deltas from 1/2 down to the smallest delta.

    Example: dpcore budget curve --noise discrete-gaussian:sigma_squared=400 --rounds 100
    """
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
    with progress_bar("points", len(deltas)) as advance, named("relative", "rounds"):
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
    from accounting.composition.composition_theorems import per_user, routes

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


# -- calibration ------------------------------------------------------------------------------

_MOST: Final = "most"
_SET: Final = "must be omitted: the training options set it"
_Answer: TypeAlias = tuple[dict[str, Any], list[answers.Fact]]
# The JSON document and the lines of text.


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationOptions:
    r"""A target guarantee and the known parameters of the releases, as options."""

    noise: str = option(
        "LAW",
        "The noise law without its scale, e.g. discrete-gaussian, gaussian (added in floats) or "
        "polya-difference:shape=0.9. Give the scale too if --rounds or --poisson is 'most'.",
        default=...,
    )
    epsilon: str = option("EPSILON", "The target epsilon, e.g. 2.", default=...)
    delta: Delta = "0"
    sensitivity: str = option("D", "The largest change that one person can cause.", default="1")
    rounds: str = option("K", "The number of releases, or 'most' to find the largest.", default="1")
    poisson: str = option(
        "RATE",
        "The sampling probability of a person in a round, e.g. 1/60, or 'most' for the largest.",
        default="100%",
    )
    scheme: str | None = option(
        "SCHEME",
        "Another sampling scheme, such as fixed-size:sample=10,population=1000, as in dpcore "
        "budget epsilon; it replaces --poisson.",
    )
    honest: str = option(
        "SHARE",
        "The fraction of users who add their noise, e.g. 90%; each user's share is then larger.",
        default="100%",
    )
    relation: Neighbours = None
    group: Group = "1"
    batch_size: str | None = option(
        "B", "The expected size of a Poisson batch; with --examples it replaces --poisson."
    )
    examples: str | None = option("N", "The size of the training data, with --batch-size.")
    epochs: str | None = option("E", "With --batch-size: the epochs, instead of --rounds.")


def _of_training(wanted: CalibrationOptions) -> CalibrationOptions:
    # Convert --batch-size, --examples and --epochs to --poisson and --rounds.
    given = {"--batch-size": wanted.batch_size, "--examples": wanted.examples}
    if wanted.epochs is None and not any(given.values()):
        return wanted
    for name, value in given.items():
        if value is None:
            raise InvalidParameter(name, ABSENT, "use --batch-size and --examples together")
    if wanted.poisson != "100%":
        raise InvalidParameter("--poisson", wanted.poisson, _SET)
    if wanted.epochs and wanted.rounds != "1":
        raise InvalidParameter("--rounds", wanted.rounds, _SET)
    with named("batch_size", "examples", "epochs"):
        run = TrainingRun(
            noise_multiplier=1,
            batch_size=whole("--batch-size", str(wanted.batch_size), 1),
            examples=whole("--examples", str(wanted.examples), 1),
            epochs=wanted.epochs or 0,
            rounds=0 if wanted.epochs else 1,
        )
    count = str(run.rounds) if wanted.epochs else wanted.rounds
    return replace(wanted, poisson=str(run.rate), rounds=count)


@budget.command()
@with_time_limit
@with_fields
def calibrate(wanted: CalibrationOptions, *, as_json: AsJson = False) -> None:
    r"""Find the least noise, the most rounds or the largest sampling rate for a guarantee.

    Example: dpcore budget calibrate --noise discrete-gaussian --rounds 50 --epsilon 2 --delta 1e-6

    --rounds most finds the largest number of rounds; --poisson most finds the largest sampling
    rate.
    """
    wanted = _of_training(wanted)
    document, facts = (_most if _MOST in (wanted.rounds, wanted.poisson) else _noise)(wanted)
    show({"schema": answers.SCHEMA, **document} if as_json else answers.lines(facts))


def _noise(wanted: CalibrationOptions) -> _Answer:
    from accounting.calibration.calibrate_noise_rounds_or_rate import calibrate as least_noise

    others = {"honest_fraction": "--honest", "members": "--group"}
    others |= dict.fromkeys(("shape", "probability", "count"), "--noise")
    count, kept = whole("--rounds", wanted.rounds, 1), rational("--delta", wanted.delta)
    names = ("noise", "epsilon", "delta", "relation", "group", "scheme", "sensitivity")
    with progress_bar("sizes of the noise tried", None) as advance, named(*names, **others):
        found = least_noise(
            noise=wanted.noise,
            epsilon=rational("--epsilon", wanted.epsilon),
            delta=kept,
            rounds=count,
            sensitivity=read_sensitivity("--sensitivity", wanted.sensitivity),
            honest_fraction=share("--honest", wanted.honest),
            rate=rate_of(wanted.poisson),
            scheme=_scheme(wanted),
            relation=wanted.relation,
            group=whole("--group", wanted.group, 1),
            watch=advance,
        )
    quantity, plural = f"delta({wanted.epsilon})" if kept else "epsilon(0)", "s" * (count != 1)
    target = f"epsilon = {wanted.epsilon}, delta = {wanted.delta}"
    facts = [
        ("noise", write_noise(found.noise)),
        ("target", f"{target} over {count} round{plural}"),
        ("reached", f"{quantity} is {answers.between(found.found)}"),
    ]
    if found.step_less is not None:
        less = write_noise(found.step_less)
        facts.append(answers.beyond_fact("less noise", less, found.edge, quantity))
    facts += [("method", answers.computed_by(found.found)), *answers.assumed(found.total())]
    return {**found.to_json(), "delta": answers.exact(kept)}, facts


def _scheme(wanted: CalibrationOptions) -> Scheme:
    from accounting.descriptions.sampling_schemes import EVERYONE, read_scheme

    if wanted.scheme is None:
        return EVERYONE
    if wanted.poisson != "100%":
        raise InvalidParameter("--scheme", wanted.scheme, NOT_BOTH)
    return read_scheme("--scheme", wanted.scheme)


def _most(wanted: CalibrationOptions) -> _Answer:
    from accounting.calibration.calibrate_noise_rounds_or_rate import largest_rate, most_rounds
    from dpcore.local import LocalReport

    of_rate = wanted.poisson == _MOST
    if of_rate and wanted.rounds == _MOST:
        raise InvalidParameter("--poisson", _MOST, "must be a rate, since --rounds is 'most' too")
    if share("--honest", wanted.honest) != 1:
        reason = "must be 100% when solving for rounds or rate: give the honest users' noise"
        raise InvalidParameter("--honest", wanted.honest, reason)
    at, limit = rational("--epsilon", wanted.epsilon), rational("--delta", wanted.delta)
    _scheme(wanted)
    rate = None if of_rate or rate_of(wanted.poisson) == 1 else [wanted.poisson]
    if of_rate and wanted.relation is Relation.REPLACE:
        reason = "must be add-remove when solving for the rate"
        raise InvalidParameter("--relation", wanted.relation.value, reason)
    if of_rate and wanted.group != "1":
        raise InvalidParameter("--group", wanted.group, "must be 1 when solving for the rate")
    one = Releases(
        noise=[wanted.noise],
        sensitivity=[wanted.sensitivity],
        poisson=rate,
        scheme=None if wanted.scheme is None else [wanted.scheme],
        relation=wanted.relation,
        group=wanted.group,
    )
    ((description, _),), total = one.described(), one.composed()
    what, next_one = ("rate", "higher rate") if of_rate else ("rounds", "more rounds")
    noise = description.noise
    part = cast("OneRelease", total.parts[0][0])  # the composition of a single release
    with progress_bar("bounds on delta", None), named("epsilon", "delta", "noise"):
        if not of_rate:
            found = most_rounds(part, epsilon=at, delta=limit)
        elif isinstance(noise, LocalReport):
            reason = "must be additive noise when solving for the rate"
            raise InvalidParameter("--noise", wanted.noise, reason)
        else:
            count, moves = whole("--rounds", wanted.rounds, 1), description.sensitivity
            found = largest_rate(noise, rounds=count, epsilon=at, delta=limit, sensitivity=moves)
    quantity = f"delta({wanted.epsilon})" if limit else "epsilon(0)"
    bound = f"epsilon = {wanted.epsilon}, delta"
    plural, value = not of_rate and found.value != 1, exactly(found.value)
    words = f"{value} {'are' if plural else 'is'} proven to satisfy"
    if found.proven:
        words = f"at most {value} {'satisfy' if plural else 'satisfies'}"
    facts = [
        (what, f"{words} {bound} = {wanted.delta}"),
        ("reached", f"{quantity} is {answers.between(found.found)}"),
    ]
    if found.beyond is not None:
        facts.append(answers.beyond_fact(next_one, exactly(found.beyond), found, quantity))
    document = {
        "looked_for": what,
        "assumptions": list(total.assumptions),
        "target": {"epsilon": answers.exact(at), "delta": answers.exact(limit)},
        "noise": wanted.noise,
        **found.to_json(beyond="one_step_more", proven="most", pure=not limit),
    }
    return document, [*facts, *answers.assumed(total)]


budget.command("dpsgd")(dpsgd)
budget.command("check")(check)
budget.command("continual")(continual)
budget.command("matrix")(matrix)
