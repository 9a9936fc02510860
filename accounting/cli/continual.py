r"""``dpcore budget continual`` and ``matrix``: running sums of a stream, and correlated noise."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from flint import arb

from accounting.cli import answers
from accounting.cli.composition_options import CertificateFile, exactly_one, relation_option
from dpcore.cli.files import read_text
from dpcore.cli.options import AsJson, named, option, read_law, with_time_limit
from dpcore.cli.terminal import aligned, progress_bar, show
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Relation, Scope
from dpcore.numbers.enclosure import Enclosure, ball, precision, round_up
from dpcore.numbers.parameter import rational, whole_number
from dpcore.numbers.rounding import down, up
from dpcore.parse_noise import read_sensitivity
from dpcore.spec_syntax import split_name

if TYPE_CHECKING:
    from accounting.calibration.calibrate_continual_sums import CalibratedSum
    from accounting.descriptions.real_noise import Gaussian
    from accounting.strategy_matrices import Strategy
    from dpcore.laws.discrete_gaussian import DiscreteGaussian


_COLUMNS = ("mechanism", "noise", "epsilon", "delta", "error", "largest", "items behind")
_LEGEND: Final = (
    "error: root mean squared error over all sums; largest: that of the worst sum",
    "items behind: the largest number of items not yet in a sum (its error excludes them)",
)
_MOST_TEXT: Final = 1 << 24
_BITS: Final = 128
_DIGITS: Final = 9
_NEIGHBOURS: Final = {
    Relation.REPLACE: "one person or example is replaced by another, in the same rounds",
    Relation.ADD_REMOVE: "one person or example is added or removed; the rounds stay the same",
}


@with_time_limit
def continual(
    *,
    horizon: str = option("T", "The number of items in the stream, at most 16384.", default=...),
    epsilon: str = option("EPSILON", "The epsilon for all released sums together.", default=...),
    delta: str = option("DELTA", "The delta of the guarantee; 0 for pure DP.", default="0"),
    low: str = option("X", "The smallest item.", default="0"),
    high: str = option("X", "The largest item.", default="1"),
    unit: str = option("X", "Items are multiples of this step, e.g. 1/16.", default="1"),
    relation: Relation = option(
        "WORD",
        "How neighbouring streams differ: one item is replaced (replace), or one item is set to 0 "
        "(add-remove).",
        default=Relation.REPLACE,
    ),
    as_json: AsJson = False,
) -> None:
    r"""Compare mechanisms for running sums of a stream (continual counting): noise and error.

    Example: dpcore budget continual --horizon 1024 --epsilon 1 --delta 1e-6
    """
    from accounting.calibration import calibrate_continual_sums as sums

    items = whole_number("--horizon", horizon, at_least=1, at_most=sums.MOST_COMPARED)
    target, most = rational("--epsilon", epsilon), rational("--delta", delta)
    scope = Scope(relation=relation)
    given = {"low": low, "high": high, "unit": unit}
    ends = {name: rational(f"--{name}", text) for name, text in given.items()}
    found: list[CalibratedSum] = []
    options = named("epsilon", "delta", *ends)
    with progress_bar("mechanisms", len(sums.MECHANISMS)) as advance, options:
        for row in sums.compare_sums(
            horizon=items, epsilon=target, delta=most, scope=scope, **ends
        ):
            found.append(row)
            advance(len(found))
    if as_json:
        goal = {"horizon": items, "epsilon": answers.exact(target), "delta": answers.exact(most)}
        head = {"schema": answers.SCHEMA, "target": goal, "scope": scope.to_json()}
        rows = [{**row.to_json(), "delta": answers.exact(row.calibration.delta)} for row in found]
        show({**head, "continual": rows})
        return
    table = aligned([_COLUMNS, *map(_cells, found)], right=range(2, len(_COLUMNS)))
    show([*table, "", *_LEGEND])


def _cells(row: CalibratedSum) -> tuple[str, ...]:
    found = row.calibration
    errors = (math.sqrt(round_up(each.upper)) for each in (row.mean, row.largest))
    roots = (up(math.nextafter(each, math.inf)) for each in errors)
    spent = up(found.epsilon_at_delta().upper), up(found.delta)
    return row.setting.name, row.noise, *spent, *roots, str(row.behind)


@with_time_limit
def matrix(
    *,
    strategy: str = option(
        "NAME",
        "The strategy matrix C, where C x is released with noise: tree, square-root, "
        "banded:bands=32, toeplitz:c=1 1/2 1/4, or file:PATH with rows of numbers as JSON.",
        default=...,
    ),
    rounds: str = option("T", "The number of rounds.", default=...),
    noise: str | None = option(
        "NOISE",
        "Gaussian noise, e.g. gaussian:sigma=4 for noise added in floats; discrete-gaussian:... "
        "needs an integer strategy such as square-root:grid=64. Or use --epsilon.",
    ),
    epsilon: str | None = option(
        "EPSILON", "Find the smallest sigma of Gaussian noise proven to satisfy this epsilon."
    ),
    delta: str = option("DELTA", "The delta, e.g. 1e-6.", default=...),
    participations: str = option(
        "K", "The largest number of rounds in which one person or example takes part.", default="1"
    ),
    apart: str = option(
        "B", "The least distance between two participations, in rounds (separation).", default="1"
    ),
    sensitivity: str = option(
        "D", "The sensitivity of one round to one participant: 1 or l2-squared=2.", default="1"
    ),
    relation: Relation = relation_option(default=Relation.ADD_REMOVE),
    certificate: CertificateFile = None,
    as_json: AsJson = False,
) -> None:
    r"""Compute the privacy of correlated noise: matrix mechanism, DP-FTRL, banded factorisations.

    Example: dpcore budget matrix --strategy banded:bands=342 --rounds 2052 \
    --participations 6 --apart 342 --noise gaussian:sigma=4 --delta 1e-6

    With --epsilon 3 instead of --noise the command finds the least noise for epsilon = 3.
    """
    from accounting.calibration.calibrate_noise_rounds_or_rate import least_sigma
    from accounting.composition.compose import compose
    from accounting.descriptions.real_noise import Gaussian
    from accounting.privacy_curves.matrix_mechanism import MatrixMechanism
    from accounting.strategy_matrices import MOST_ROUNDS, Participation

    count = whole_number("--rounds", rounds, at_least=1, at_most=MOST_ROUNDS)
    participation = Participation(
        most=whole_number("--participations", participations, at_least=1),
        apart=whole_number("--apart", apart, at_least=1),
    )
    at = rational("--delta", delta)
    exactly_one("--noise", noise, "--epsilon", epsilon)
    with named("noise", "strategy", "sensitivity", "epsilon", "delta"):
        mechanism = MatrixMechanism(
            strategy=_strategy(strategy, count),
            participation=participation,
            noise=_noise(noise or "gaussian:sigma=1"),
            sensitivity=read_sensitivity("--sensitivity", sensitivity),
            scope=Scope(relation=relation),
        )
        least = None if epsilon is None else least_sigma(mechanism, epsilon=epsilon, delta=at)
        if least is not None:
            mechanism = replace(mechanism, noise=Gaussian(sigma=least.value))
        total = compose(mechanism)
        found = total.epsilon(at)
    answers.write_certificate(certificate, total, at)
    moved = mechanism.moved
    ends: tuple[Any, Any] = (moved.squared.lower, moved.squared.upper)
    with precision(_BITS):
        low, high = (Enclosure.of(ball(end).sqrt() if end else arb(0)) for end in ends)
    size = Enclosure(low.lower, high.upper)
    if as_json:
        answer = {
            "epsilon": found.to_json(),
            "delta": answers.exact(at),
            "l2_sensitivity": {"lower": size.lower_float, "upper": size.upper_float},
            "exact": moved.exact,
        }
        if least is not None:
            answer["sigma"] = least.to_json(beyond="one_step_less", proven="least")
        show(answers.document(answer, total, found))
        return
    both = f"between {down(size.lower, _DIGITS)} and {up(size.upper, _DIGITS)}"
    several = f"is in at most {participation.most} rounds, {participation.apart} or more apart"
    facts = [
        *answers.of_least("sigma", least),
        ("epsilon", f"{answers.between(found)} at delta = {delta}"),
        ("sensitivity", f"{both} x {sensitivity} per round, in l2: {moved.how}"),
        ("strategy", f"{mechanism.strategy.written} over {count} rounds"),
        ("one unit", "is in one round" if participation.most == 1 else several),
        ("neighbours", _NEIGHBOURS[relation]),
        ("method", answers.computed_by(found)),
    ]
    show(answers.lines([*facts, *answers.assumed(total)]))


def _noise(written: str) -> Gaussian | DiscreteGaussian:
    from accounting.descriptions.real_noise import REAL_LAWS, Gaussian
    from dpcore.laws.discrete_gaussian import DiscreteGaussian

    found = read_law("--noise", written, REAL_LAWS)
    if not isinstance(found, (Gaussian, DiscreteGaussian)):
        reason = "must be gaussian:... or discrete-gaussian:...: the sensitivity is in the l2 norm"
        raise InvalidParameter("--noise", written, reason)
    return found


def _strategy(text: str, rounds: int) -> Strategy:
    from accounting.strategy_matrices import Dense, read_strategy

    name, path = split_name(text)
    if name != "file":
        return read_strategy("--strategy", text, rounds)
    written = read_text("--strategy", Path(path), most=_MOST_TEXT)
    try:
        rows = json.loads(written, parse_float=str, parse_constant=str)
        return Dense(rounds=rounds, rows=rows)
    except InvalidParameter as error:
        raise InvalidParameter("--strategy", text, f"{error.argument} {error.reason}") from None
    except (ValueError, RecursionError):
        raise InvalidParameter("--strategy", text, "must contain rows of numbers as JSON") from None
