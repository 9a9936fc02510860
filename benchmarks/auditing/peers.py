r"""Other auditors, called if they are installed or re-derived from their publications.

None of them is assumed to be valid. "Re-derived" means implemented from the published formula,
without the peer's code.
"""

from __future__ import annotations

import inspect
import json
import math
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import ConvexHull
from scipy.special import ndtri
from scipy.stats import hypergeom

from audit.statistical_tests.clopper_pearson_and_other_baselines import (
    BASELINES,
    Scores,
    gaussian_epsilon,
)
from benchmarks.auditing import peer_programs
from benchmarks.auditing.harness import ALPHA
from dpcore.numbers.clopper_pearson import lower_end, upper_end

__all__ = [
    "CELLS",
    "DP_SNIPER",
    "JAX_PRIVACY",
    "PEERS",
    "Peer",
    "Question",
    "clopper_pearson",
    "dp_auditorium_lower",
    "gdp_by_magnitude",
    "histogram_by_loop",
    "histogram_by_numpy",
    "int_of_rates",
    "world_swap",
]

Floats: TypeAlias = NDArray[np.float64]
Worlds: TypeAlias = NDArray[np.bool_]

_REACH: Final = 32


# -- questions for a peer -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    r"""Outputs on each dataset as rows of floats, and the claim.

    ``marks`` are the floats that stand for a word, for NaN or for a missing end of a list;
    ``more`` are arguments for one peer.
    """

    sides: tuple[Floats, Floats]
    epsilon: float = 0.0
    delta: float = 0.0
    marks: tuple[float, ...] = ()
    more: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def of_json(cls, sides: Sequence[list[str]], epsilon: float, delta: float) -> Question:
        r"""Make a question from outputs as lines of JSON.

        >>> asked = Question.of_json((["[1, 2]", "[3]"], ['"raised"']), 1.0, 0.0)
        >>> asked.sides[0].tolist(), asked.marks
        ([[1.0, 2.0], [3.0, -999.0]], (-999.0, -1999.0))
        """
        read = [[_flat(json.loads(line)) for line in side] for side in sides]
        width = max(len(row) for side in read for row in side)
        read = [[[*row, *[""] * (width - len(row))] for row in side] for side in read]
        values = {x for side in read for row in side for x in row}
        words = sorted(x for x in values if isinstance(x, str))
        least = min((x for x in values if not isinstance(x, str)), default=0.0)
        step = max(1000.0, abs(least))
        codes: dict[Any, float] = {word: least - step * i for i, word in enumerate(words, 1)}
        a, b = (np.array([[codes.get(x, x) for x in row] for row in side]) for side in read)
        return cls(sides=(a, b), epsilon=epsilon, delta=delta, marks=tuple(codes.values()))

    @classmethod
    def of_worlds(cls, outputs: NDArray[Any], worlds: Worlds, **more: Any) -> Question:
        r"""Make a question from scores in the order of the runs, without a claim."""
        a, b = (outputs[worlds == world, np.newaxis] for world in (False, True))
        return cls(sides=(a, b), more=tuple(more.items()))


def _flat(found: Any) -> list[float | str]:
    if isinstance(found, list):
        return [each for one in found for each in _flat(one)]
    number = isinstance(found, int | float) and math.isfinite(found)
    return [float(found) if number else json.dumps(found)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    r"""An auditor in a separate interpreter, with the questions that it supports."""

    name: str
    vectors: bool = True
    words: bool = False
    delta: bool = False

    def refuses(self, question: Question) -> str | None:
        r"""The reason why the auditor does not support a question, or None."""
        if question.marks and not self.words:
            return "an output is not a number"
        if question.sides[0].shape[1] > 1 and not self.vectors:
            return "an output is a list"
        return "a delta is claimed" if question.delta and not self.delta else None

    def ask(self, python: str, questions: Iterable[Question], *, seed: int = 0) -> dict[str, Any]:
        r"""The auditor's version and, in order, its answers at level ``ALPHA``, in one process.

        Raises ``subprocess.CalledProcessError`` if the auditor is not installed there.
        """
        with tempfile.TemporaryDirectory() as folder:
            asked = []
            for i, each in enumerate(questions):
                file = f"{folder}/{i}.npz"
                np.savez_compressed(file, a=each.sides[0], b=each.sides[1])
                claimed = {"epsilon": each.epsilon, "delta": each.delta, "marks": each.marks}
                asked.append({"file": file, **claimed, **dict(each.more)})
            whole = {"peer": self.name, "alpha": ALPHA, "seed": seed, "questions": asked}
            done = subprocess.run(
                [python, "-P", peer_programs.__file__],
                input=json.dumps(whole),
                capture_output=True,
                text=True,
                check=True,
            )
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def version(self, python: str | None) -> str | None:
        r"""The version that the interpreter has, or None if the auditor is not installed."""
        try:
            return None if python is None else str(self.ask(python, ())["version"])
        except (OSError, subprocess.CalledProcessError):
            return None

    @property
    def lines(self) -> int:
        r"""The number of lines of the code that calls the auditor."""
        return len(inspect.getsource(peer_programs.ASKS[self.name]).splitlines())


JAX_PRIVACY: Final = Peer(name="jax-privacy", vectors=False, delta=True)
DP_SNIPER: Final = Peer(name="dpsniper", words=True)
PEERS: Final = (
    JAX_PRIVACY,
    DP_SNIPER,
    Peer(name="dp-auditorium", delta=True),
    Peer(name="dp-recorder"),
)
r"""The peers in the order of the tables."""


# -- jax_privacy ----------------------------------------------------------------------------------


def clopper_pearson(outputs: NDArray[Any], worlds: Worlds, seed: int) -> dict[str, float]:
    r"""Bounds with jax_privacy's two default thresholds, re-derived in dpcore's baselines."""
    names = {"bonferroni": "bonferroni-thresholds", "split": "clopper-pearson-split"}
    return {
        ours: BASELINES[name].lower(outputs, worlds, alpha=str(ALPHA), seed=seed)
        for ours, name in names.items()
    }


def gdp_by_magnitude(outputs: NDArray[Any], worlds: Worlds, delta: float) -> float:
    r"""``epsilon_from_gdp`` of jax_privacy 2.0, re-derived.

    It has upper bounds on both error rates at the thresholds on their convex hull, with a shared
    level, and uses the magnitude of mu. For identical datasets the error rates sum to 1 and their
    bounds to more than 1: mu is negative, and its magnitude grows as the evidence gets weaker.
    """
    scores = Scores.read(outputs, worlds)
    _, above, *_ = scores.counts(scores.thresholds())
    # Counts at or below the threshold on B and on A: errors and hits of the guess "above is B".
    points = np.stack((above.others - above.misses, above.runs - above.hits), axis=1)
    points = np.concatenate((np.zeros((1, 2), dtype=points.dtype), points))
    hull = points[ConvexHull(points).vertices]
    missed, spared = hull[hull[:, 1] * above.others >= hull[:, 0] * above.runs].T
    level = ALPHA / (2 * len(missed))
    rates = (
        upper_end(missed, above.others, level),
        upper_end(above.runs - spared, above.runs, level),
    )
    kept = np.maximum(*rates) < 1 - delta
    mu = np.abs(-ndtri(rates[0][kept]) - ndtri(rates[1][kept]))
    return gaussian_epsilon(float(mu.max(initial=0.0)), delta)


# -- DP-Auditorium --------------------------------------------------------------------------------

CELLS: Final = 2 * _REACH + 1
r"""The universe of the histograms: integers within 32 of 0; others are clipped to its ends."""

Histogram: TypeAlias = Callable[[NDArray[np.int64]], Floats]


def histogram_by_loop(samples: NDArray[np.int64]) -> Floats:
    r"""The rates of all cells, counted as in the peer's code by a loop over the universe."""
    counts = Counter(samples)
    return np.array([counts[i] for i in range(CELLS)]) / len(samples)


def histogram_by_numpy(samples: NDArray[np.int64]) -> Floats:
    r"""The rates of all cells, counted by one call of numpy.

    >>> some = np.array([0, 3, 3])
    >>> bool((histogram_by_numpy(some) == histogram_by_loop(some)).all())
    True
    """
    return np.bincount(samples, minlength=CELLS) / len(samples)


def dp_auditorium_lower(
    outputs: NDArray[np.int64], worlds: Worlds, histogram: Histogram, *, steps: int = 20
) -> float:
    r"""The largest epsilon that DP-Auditorium's histogram tester rejects at delta = 0.

    Re-derived from its published statistic (Gilbert and McMillan 2018, algorithm 2, with its
    later error bound): with rates p1, p2 of n samples per dataset it rejects (epsilon, 0) if

        sum max(p1 - e^epsilon p2, 0) >= 2/sqrt(n) (sum sqrt(p1) + e^epsilon sum sqrt(p2))
                                         + 6 (1 + e^epsilon) sqrt(ln(4/beta) / (2n)).

    As in the peer's code, every epsilon is a separate test with new counts. The left side decreases
    in epsilon and the right side increases, so bisection finds the largest rejected epsilon.
    """
    clipped = np.clip(outputs, -_REACH, _REACH) + _REACH
    first, second = clipped[~worlds], clipped[worlds]
    n = min(len(first), len(second))

    def rejected(epsilon: float) -> bool:
        p1, p2, growth = histogram(first), histogram(second), math.exp(epsilon)
        excess = p1 - growth * p2
        tolerance = 2 / math.sqrt(n) * (np.sqrt(p1).sum() + growth * np.sqrt(p2).sum())
        tolerance += 6 * (1 + growth) * math.sqrt(math.log(4 / ALPHA) / (2 * n))
        return bool(excess[excess > 0].sum() >= tolerance)

    low, high = 0.0, 8.0
    for _ in range(steps):
        middle = (low + high) / 2
        low, high = (middle, high) if rejected(middle) else (low, middle)
    return low


# -- tests with a known fault ---------------------------------------------------------------------


def world_swap(hits: tuple[int, int], runs: tuple[int, int], *, swapped: bool) -> float:
    r"""StatDP's p-value for epsilon = 0 (Ding et al. 2018), re-derived: Fisher's test.

    With ``swapped``, as in the released code, the dataset with more hits is put first. Otherwise
    dataset B is first, for which the event was selected.
    """
    first = 0 if swapped and hits[0] > hits[1] else 1
    more, fewer = hits[first], hits[1 - first]
    return float(hypergeom.sf(more - 1, sum(runs), runs[first], more + fewer))


def int_of_rates(hits: tuple[int, int], runs: int, *, rebuilt: bool) -> float:
    r"""DP-Sniper's lower bound on epsilon (Bichsel et al. 2021), re-derived.

    It uses Clopper-Pearson bounds at alpha/2 each. With ``rebuilt``, as in the released code,
    counts are ``int(rate * runs)``, which loses a count if the quotient is rounded down: 1 of 49
    becomes 0.
    """
    counted = [np.array([int(k / runs * runs) if rebuilt else k]) for k in hits]
    lower = lower_end(counted[1], runs, ALPHA / 2)[0]
    upper = upper_end(counted[0], runs, ALPHA / 2)[0]
    return math.log(lower / upper) if lower > 0 else 0.0
