r"""Local reports and private choices as targets.

    local:randomised-response:values=4,epsilon=1
    local:unary-encoding,values=6,epsilon=1,encoding=symmetric
    local:randomised-response,values=3,epsilon=1,users=4
    select:noisy-max,epsilon=1,noise=laplace
    select:above-threshold,epsilon=1,count=2,sensitivity=1

``local:`` is followed by the name of a class of ``dpcore.local``. A dataset is the value of one
user, and an output is the user's report. If a report has few possible values, their probabilities
are listed, and the exact layer proves or refutes the claim on the pair. With ``users``, an output
is the list of the reports of all users in a shuffled order, where all other users have the largest
value.

``select:`` is followed by permute-and-flip, exponential, noisy-max or above-threshold, which are
mechanisms of ``dpcore.selection``. For above-threshold, a dataset is a list of answers, which are
compared with 0. An output is then a row of 1 (above), 0 (below) and -1 (not answered) or, with
``gap=yes``, a row of gaps (above), -1 (below) and -2 (not answered). For the other mechanisms, a
dataset is a list of scores, and an output is the chosen index or, with ``gap=yes``, the index and
its lead over the other scores. If few outputs are possible, their exact probabilities are listed,
too (``dpcore.numbers.exp_field``).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from fractions import Fraction
from math import comb, perm, prod
from typing import Any, Final

import numpy as np

from audit.targets.target import Catalogued, Known, read_words
from dpcore.errors import InvalidParameter
from dpcore.local import FAMILIES, LocalReport, ShuffledReports
from dpcore.numbers.exp_field import ExpRational
from dpcore.numbers.parameter import integer, whole_number
from dpcore.sampling.rng import Rng
from dpcore.selection import AboveThreshold, NoisyMax, Rule, Selection
from dpcore.selection.sparse_vector_and_noisy_max import MOST_GAP
from dpcore.spec_syntax import read_spec

MOST_OUTCOMES: Final = 1 << 12
r"""The largest number of possible reports whose probabilities are listed for the exact layer."""

MOST_LISTED: Final = 64
r"""The largest number of outputs of a selection whose probabilities are listed for the exact layer.
"""

MOST_SPREAD: Final = 64
r"""The largest distance between scores, or between answers and the threshold, in a listed law."""

_CHOICES: Final = (*(rule.value for rule in Rule), "noisy-max", "above-threshold")
_WHOLE: Final = ("sensitivity", "count")
# The keys that apply only to some mechanisms, which are listed here.
_ONLY: Final = {
    "noise": ("noisy-max",),
    "count": ("above-threshold",),
    "gap": ("noisy-max", "above-threshold"),
}


def has_law(mechanism: Selection | NoisyMax | AboveThreshold, scores: Sequence[Any]) -> bool:
    r"""Whether the law of the output for ``scores`` is small enough to list all probabilities."""
    if scores and isinstance(scores[0], list):
        spread = max(max(row) - min(row) for row in scores)  # in finer units
        return prod(map(len, scores)) <= MOST_LISTED and spread <= 16 * MOST_SPREAD
    gaps = MOST_GAP + 1 if getattr(mechanism, "gap", False) else 1
    outputs, places = len(scores) * gaps, scores
    if isinstance(mechanism, AboveThreshold) and len(scores) < MOST_LISTED:
        outputs = sum(comb(len(scores), n) * gaps**n for n in range(mechanism.count + 1))
        places = [*scores, mechanism.threshold]
    elif isinstance(mechanism, Selection) and len(scores) <= MOST_LISTED:
        outputs = perm(len(scores), mechanism.count)
    return 0 < outputs <= MOST_LISTED and max(places) - min(places) <= MOST_SPREAD


def law_of(
    mechanism: Selection | NoisyMax | AboveThreshold, scores: Sequence[Any], dataset: Any
) -> dict[Hashable, ExpRational]:
    r"""The probability of each output of ``mechanism`` for ``scores``.

    Raises :class:`InvalidParameter` if the law is too large (:func:`has_law`); ``dataset`` is the
    value that the message shows.
    """
    if not has_law(mechanism, scores):
        reason = (
            f"has no exact law, which needs 1 to {MOST_LISTED} possible outputs and scores at most "
            f"{MOST_SPREAD} apart: use only the sample layer"
        )
        raise InvalidParameter("dataset", dataset, reason)
    if isinstance(mechanism, AboveThreshold):
        law = mechanism.law(scores)
        return {_row(mechanism, row, len(scores)): mass for row, mass in law.items()}
    if isinstance(mechanism, NoisyMax):
        return dict(mechanism.law(scores).items())
    rows: dict[tuple[int, ...], Any] = {(): 1}
    if isinstance(scores[0], list):
        for each in map(mechanism.law, scores):
            rows = {(*row, k): m * p for row, m in rows.items() for k, p in enumerate(each)}
        return dict(rows.items())
    for _ in range(mechanism.count):
        # Choose among the remaining candidates, as `release` does.
        rows = {
            (*row, left[at]): mass * chance
            for row, mass in rows.items()
            for left in [[each for each in range(len(scores)) if each not in row]]
            for at, chance in enumerate(mechanism.law([scores[each] for each in left]))
        }
    return {row[0] if mechanism.count == 1 else row: mass for row, mass in rows.items()}


def _row(
    mechanism: AboveThreshold, answered: Sequence[int | None], answers: int
) -> tuple[int, ...]:
    ends = [-1 - mechanism.gap] * (answers - len(answered))
    return (*(-1 if each is None else int(each) for each in answered), *ends)


def read_local(spelling: str, words: str, *, seeded: bool = True) -> Catalogued:
    r"""Build the target that the text ``words`` after "local:" describes."""
    made, more = read_spec(
        "target", spelling, FAMILIES, spec=words.replace(",", ":", ":" not in words), also=["users"]
    )
    if not more:
        return local_target(made, spelling=spelling, seeded=seeded)
    users = whole_number("users", more["users"], at_least=1)
    return shuffled_target(
        ShuffledReports(report=made, users=users), spelling=spelling, seeded=seeded
    )


def local_target(mechanism: LocalReport, *, spelling: str, seeded: bool = True) -> Catalogued:
    r"""Build a target that reports a value by ``mechanism``, and claims ``mechanism.epsilon``."""

    def run(dataset: Any, n: int, rng: Rng) -> Any:
        return mechanism.report(np.full(n, _value(dataset, mechanism)), rng=rng)

    epsilon = mechanism.epsilon
    if mechanism.outcomes > MOST_OUTCOMES:
        return Catalogued.of(spelling, run, seeded=seeded, epsilon=epsilon)
    own = {
        "laws": lambda pair: tuple(mechanism.law(_value(each, mechanism)) for each in pair),
        "about": ", of one report",
    }
    return Known.of(spelling, run, seeded=seeded, own=own, epsilon=epsilon)


def shuffled_target(votes: ShuffledReports, *, spelling: str, seeded: bool = True) -> Catalogued:
    r"""Build a target whose outputs are the shuffled reports of several users.

    The dataset is the value of one user; the other users have the largest value. The claim is the
    epsilon of one report.
    """
    report, others = votes.report, votes.users - 1

    def run(dataset: Any, n: int, rng: Rng) -> list[Any]:
        values = [_value(dataset, report), *[report.values - 1] * others]
        return [votes.release(values, rng=rng).tolist() for _ in range(n)]

    def law(dataset: Any) -> dict[Hashable, Fraction]:
        mine, theirs = report.law(_value(dataset, report)), report.law(report.values - 1)
        rows: dict[tuple[Any, ...], tuple[Fraction, Fraction]] = {(): (Fraction(1), Fraction(0))}
        # The probability of each list of reports if all come from other users, and if one of them
        # comes from the user.
        for _ in range(votes.users):
            rows = {
                (*row, x): (alone * theirs[x], within * theirs[x] + alone * mine[x])
                for row, (alone, within) in rows.items()
                for x in mine
            }
        return {row: within / votes.users for row, (_, within) in rows.items()}

    if report.outcomes**votes.users > MOST_OUTCOMES:
        return Catalogued.of(spelling, run, seeded=seeded, epsilon=report.epsilon)
    own = {"laws": lambda pair: tuple(map(law, pair)), "about": ", of all reports"}
    return Known.of(spelling, run, seeded=seeded, own=own, epsilon=report.epsilon)


def read_select(spelling: str, words: str, *, seeded: bool = True) -> Catalogued:
    r"""Build the target that the text ``words`` after "select:" describes."""
    known = ("epsilon", "sensitivity", "noise", "count", "gap", "monotonic")
    name, given = read_words(spelling, words, known, ("epsilon",), names=_CHOICES, whole=_WHOLE)
    for key, choices in _ONLY.items():
        if key in given and name not in choices:
            reason = f"{key} applies only to {' and '.join(choices)}"
            raise InvalidParameter("target", spelling, reason)
    for key in {"gap", "monotonic"} & set(given):
        if given[key] not in ("yes", "no"):
            raise InvalidParameter("target", spelling, f"{key} must be yes or no")
        given[key] = given[key] == "yes"
    given = {"sensitivity": 1} | given
    match name:
        case "noisy-max":
            made: Any = NoisyMax(**given)
        case "above-threshold":
            made = AboveThreshold(threshold=0, **given)
        case _:
            made = Selection(rule=Rule(name), **given)
    return select_target(made, spelling=spelling, seeded=seeded)


def select_target(
    mechanism: Selection | NoisyMax | AboveThreshold, *, spelling: str, seeded: bool = True
) -> Known:
    r"""Build a target that runs ``mechanism``, with a pair that nearly attains its ``epsilon``."""

    def run(dataset: Any, n: int, rng: Rng) -> list[Any]:
        scores = _scores(dataset)
        found: list[Any] = [mechanism.release(scores, rng=rng) for _ in range(n)]
        if isinstance(mechanism, AboveThreshold):
            found = [_row(mechanism, row, len(scores)) for row in found]
        return found

    moved = mechanism.sensitivity
    first = [0, *[moved] * 4]
    if isinstance(mechanism, AboveThreshold):
        first = [*[0] * 5, moved]
    pair = (first, [moved if mechanism.monotonic else moved - each for each in first])
    gap = getattr(mechanism, "gap", False)
    own = {
        "laws": lambda pair: tuple(law_of(mechanism, _scores(each), each) for each in pair),
        "about": ", of one release" + f" with gaps above {MOST_GAP} replaced by {MOST_GAP}" * gap,
    }
    return Known.of(spelling, run, seeded=seeded, own=own, pair=pair, epsilon=mechanism.epsilon)


def _value(dataset: Any, mechanism: LocalReport) -> int:
    return integer("dataset", dataset, at_least=0, at_most=mechanism.values - 1)


def _scores(dataset: Any) -> list[int]:
    if not isinstance(dataset, list):
        raise InvalidParameter("dataset", dataset, "must be a list of integers")
    return [integer("dataset", each) for each in dataset]
