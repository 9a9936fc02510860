r"""Other people's auditors: asked where they are installed, or re-derived from what they publish.

None of them is taken for valid here. Re-derived means: written anew from the formula that is
published, without the peer's code.
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

from audit.evidence.baseline_bounds import BASELINES, Scores, gaussian_epsilon
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


# -- asked ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    r"""Outputs on each dataset as rows of floats, and what is claimed of them.

    ``marks`` are the floats that stand for a word, for NaN or for the end of a shorter list;
    ``more`` is for one peer alone.
    """

    sides: tuple[Floats, Floats]
    epsilon: float = 0.0
    delta: float = 0.0
    marks: tuple[float, ...] = ()
    more: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def of_json(cls, sides: Sequence[list[str]], epsilon: float, delta: float) -> Question:
        r"""Of outputs as lines of JSON.

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
        r"""Of scores in run order, with nothing claimed."""
        a, b = (outputs[worlds == world, np.newaxis] for world in (False, True))
        return cls(sides=(a, b), more=tuple(more.items()))


def _flat(found: Any) -> list[float | str]:
    if isinstance(found, list):
        return [each for one in found for each in _flat(one)]
    number = isinstance(found, int | float) and math.isfinite(found)
    return [float(found) if number else json.dumps(found)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    r"""An auditor that answers in an interpreter of its own: what it can be asked."""

    name: str
    vectors: bool = True
    words: bool = False
    delta: bool = False

    def refuses(self, question: Question) -> str | None:
        r"""Why it cannot be asked."""
        if question.marks and not self.words:
            return "an output is not a number"
        if question.sides[0].shape[1] > 1 and not self.vectors:
            return "an output is a list"
        return "a delta is claimed" if question.delta and not self.delta else None

    def ask(self, python: str, questions: Iterable[Question], *, seed: int = 0) -> dict[str, Any]:
        r"""Its version and, in order, its answers at level ``ALPHA``, in one process.

        Raises ``subprocess.CalledProcessError`` where that interpreter does not have it.
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
        r"""Which one the interpreter has; None where it has none."""
        try:
            return None if python is None else str(self.ask(python, ())["version"])
        except (OSError, subprocess.CalledProcessError):
            return None

    @property
    def lines(self) -> int:
        r"""Of the code that asks it."""
        return len(inspect.getsource(peer_programs.ASKS[self.name]).splitlines())


JAX_PRIVACY: Final = Peer(name="jax-privacy", vectors=False, delta=True)
DP_SNIPER: Final = Peer(name="dpsniper", words=True)
PEERS: Final = (
    JAX_PRIVACY,
    DP_SNIPER,
    Peer(name="dp-auditorium", delta=True),
    Peer(name="dp-recorder"),
)
r"""In the order of the tables."""


# -- jax_privacy ----------------------------------------------------------------------------------


def clopper_pearson(outputs: NDArray[Any], worlds: Worlds, seed: int) -> dict[str, float]:
    r"""Its two default thresholds, re-derived as in ``audit.evidence.baseline_bounds``."""
    names = {"bonferroni": "bonferroni-thresholds", "split": "clopper-pearson-split"}
    return {
        ours: BASELINES[name].lower(outputs, worlds, alpha=str(ALPHA), seed=seed)
        for ours, name in names.items()
    }


def gdp_by_magnitude(outputs: NDArray[Any], worlds: Worlds, delta: float) -> float:
    r"""``epsilon_from_gdp`` of jax_privacy 2.0, re-derived.

    At the thresholds on the hull of its error rates, upper bounds on both, the level shared by all;
    mu is taken by its magnitude. Of identical worlds the rates sum to 1 and their bounds to more:
    mu is negative, and its magnitude grows as the evidence gets thinner.
    """
    scores = Scores.read(outputs, worlds)
    _, above, *_ = scores.counts(scores.thresholds())
    # World B at most at the threshold, and world A: errors and hits of the guess "above is B".
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
r"""The universe of its histograms: integers within 32 of 0, others moved to its ends."""

Histogram: TypeAlias = Callable[[NDArray[np.int64]], Floats]


def histogram_by_loop(samples: NDArray[np.int64]) -> Floats:
    r"""The rates of all cells as the peer counts them: a counter, and a loop over the universe."""
    counts = Counter(samples)
    return np.array([counts[i] for i in range(CELLS)]) / len(samples)


def histogram_by_numpy(samples: NDArray[np.int64]) -> Floats:
    r"""The same by one call.

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
    later error bound): with rates p1, p2 of n samples a world it rejects (epsilon, 0) where

        sum max(p1 - e^epsilon p2, 0) >= 2/sqrt(n) (sum sqrt(p1) + e^epsilon sum sqrt(p2))
                                         + 6 (1 + e^epsilon) sqrt(ln(4/beta) / (2n)).

    As there, every epsilon is a test of its own that counts anew. The left side falls in epsilon
    and the right side grows, so bisection finds the last one rejected.
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


# -- tests with a slip ----------------------------------------------------------------------------


def world_swap(hits: tuple[int, int], runs: tuple[int, int], *, swapped: bool) -> float:
    r"""StatDP's p-value of epsilon = 0 (Ding et al. 2018), re-derived; there it is Fisher's test.

    ``swapped``: as released, the world with more hits is put first, whichever it is. Otherwise
    world B, as the event was chosen for.
    """
    first = 0 if swapped and hits[0] > hits[1] else 1
    more, fewer = hits[first], hits[1 - first]
    return float(hypergeom.sf(more - 1, sum(runs), runs[first], more + fewer))


def int_of_rates(hits: tuple[int, int], runs: int, *, rebuilt: bool) -> float:
    r"""DP-Sniper's lower bound on epsilon (Bichsel et al. 2021), re-derived.

    Clopper-Pearson bounds at alpha/2 each. ``rebuilt``: as released, from ``int(rate * runs)``,
    which loses a count where the quotient is rounded down: 1 of 49 becomes 0.
    """
    counted = [np.array([int(k / runs * runs) if rebuilt else k]) for k in hits]
    lower = lower_end(counted[1], runs, ALPHA / 2)[0]
    upper = upper_end(counted[0], runs, ALPHA / 2)[0]
    return math.log(lower / upper) if lower > 0 else 0.0
