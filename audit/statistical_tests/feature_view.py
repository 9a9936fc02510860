r"""A view: a feature's values on the runs of one pair, and the witness of a learned score.

The witness of a learned score is "score >= t", with the definition of the score and its number of
training runs. Threshold and score are fixed by earlier runs; the counts are of later runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from audit.outputs.output_parser import Outputs
from audit.statistical_tests.event import Event, Witness
from audit.statistical_tests.learn_event import Trial

if TYPE_CHECKING:
    from audit.features.additive_classifier import Score

_DIGITS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    r"""The values of a feature on the runs of one pair, in run order.

    ``pair`` is the index of the pair in the audit's list, ``feature`` the feature's name, None for
    the outputs themselves. ``weight`` is the relative part of the level. For a learned feature
    ``outputs`` are scores, each by a model that was fitted only on earlier blocks of the test;
    ``models`` are keyed by the number of runs they were fitted on, and ``first(runs)`` gives the
    scores of an audit of this many runs. ``followed`` means that the leader of the pair may follow
    this view (:mod:`audit.statistical_tests.multiple_testing`).
    """

    pair: int = 0
    feature: str | None = None
    outputs: Outputs
    worlds: NDArray[np.bool_]
    weight: Fraction = Fraction(1)
    models: Mapping[int, Score] | None = None
    followed: bool = True
    first: Callable[[int], Outputs] | None = field(default=None, compare=False, repr=False)


def scored(
    trials: Sequence[Trial], claim: tuple[Any, Any], models: Mapping[int, Score]
) -> Witness | None:
    r"""The witness of a score: the half-line with the strongest evidence against ``claim``
    (epsilon, delta) on earlier runs, counted on the later block where its margin is largest; None
    without a block.
    """
    found = []
    for trial in trials:
        learned = int(trial.rule.cells.counts.sum())
        taught = max((runs for runs in models if runs <= learned), default=None)
        if taught is not None and (witness := _score_witness(trial, claim, taught, models[taught])):
            found.append(witness)
    return max(found, key=lambda witness: witness.margin, default=None)


def _score_witness(
    trial: Trial, claim: tuple[Any, Any], taught: int, model: Score
) -> Witness | None:
    cells = trial.rule.cells
    past = cells.counts[:, : cells.intervals].astype(np.float64)
    if cells.intervals < 2:
        return None
    q, delta = float(expit(float(claim[0]))), float(claim[1])
    above = np.cumsum(past[:, ::-1], axis=1)[:, ::-1][:, 1:]  # scores >= cuts[i]
    below = past.sum(axis=1, keepdims=True) - above

    def beyond(right: Any, wrong: Any) -> Any:
        guessed = right + wrong
        allowed = guessed * q + float(past.sum()) * delta * (1.0 - q)
        return (right - allowed) / np.sqrt(guessed * q * (1.0 - q) + 1.0)

    of_b, of_a = beyond(above[1], above[0]), beyond(below[0], below[1])
    world = 1 if of_b.max() >= of_a.max() else 0
    cut = int(np.argmax(of_b if world else of_a))
    chosen = np.zeros(cells.counts.shape[1], dtype=np.bool_)
    if world:
        chosen[cut + 1 : cells.intervals] = True
    else:
        chosen[: cut + 1] = True
    event = Event(cells=cells, chosen=chosen, integral=trial.integral)
    threshold = cells.cuts[cut : cut + 1].values.tolist()[0]
    return replace(
        Witness.counted(event, trial.counts, "B" if world else "A"),
        score={
            "learned_from": taught,
            "threshold": float(threshold),
            "side": ">=" if world else "<",
            "accuracy": _accuracy(trial),
            "words": model.words(float(threshold), above=bool(world)),
            **model.to_json(),
        },
    )


def _accuracy(trial: Trial) -> float | None:
    # The fraction of right guesses on later runs, if every cell is guessed by its learned odds.
    votes = trial.votes(0, np.zeros(1))
    guesses = int(votes.right[0] + votes.wrong[0])
    return round(int(votes.right[0]) / guesses, _DIGITS) if guesses else None
