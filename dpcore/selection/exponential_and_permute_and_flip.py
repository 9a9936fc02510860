r"""Permute-and-flip and the exponential mechanism: exact selection of high-scoring candidates.

Candidate i with integer score u_i has the gap g_i = max u - u_i to the best candidate. Both
mechanisms accept candidate i with probability exp(-epsilon g_i/(2 Delta)), where Delta is the
sensitivity of a score, or exp(-epsilon g_i/Delta) for monotonic scores.

- Permute-and-flip (McKenna and Sheldon 2020) considers each candidate once, in a random order, and
  returns the first that is accepted. Acceptances are independent, so this is a uniform
  choice among all accepted candidates; the best candidate is always accepted. The mechanism is
  epsilon-DP; at the same epsilon its expected gap is at most that of the exponential mechanism.
- The exponential mechanism (McSherry and Talwar 2007) draws uniform candidates until one is
  accepted. The mechanism is epsilon-DP, and epsilon^2/8-zCDP (Cesar and Rogers 2021: its privacy
  loss has range epsilon).

A uniform random number is compared with the acceptance probability in floating point, with a
certified error; if this cannot decide, interval arithmetic does, so the law is exact. Proofs:
docs/proofs/selection.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt

from dpcore.errors import InvalidParameter
from dpcore.mechanism import InScope
from dpcore.numbers.arrays import Floats, Integers, exp_neg, refuse_masked
from dpcore.numbers.enclosure import Enclosure, ball, precision
from dpcore.numbers.exp_field import ExpRational
from dpcore.numbers.parameter import Choice, Exact, Of, Whole, check_fields
from dpcore.sampling.bernoulli import bernoulli_exp
from dpcore.sampling.rng import SYSTEM, Rng, below
from dpcore.spec_syntax import parameter_names

NO_CHOICE: Final = "with epsilon 0 the choice would not depend on the scores"
A_TRUTH: Final = "must be True or False"
LARGEST: Final = 1 << 52
_MOST_TRIES: Final = 1 << 16
_BITS: Final = 53
# exp_neg has error below 2^-48, and an exponent below 700 error below 2^-41 after two roundings.
_ERROR: Final = 2.0**-40
_FAR: Final = 700.0
_MOST_UNIT: Final = Fraction(1 << 64)
_TINY: Final = 1e-300  # above e^-700
_CLEAR: Final = 44.0
_RARE: Final = 1e-19  # above e^-44


class Rule(Enum):
    r"""The selection rule."""

    PERMUTE_AND_FLIP = "permute-and-flip"
    EXPONENTIAL = "exponential"


class ScoreMechanism:
    r"""The common base class of mechanisms on scores; each subclass is a dataclass."""

    __slots__ = ()

    name: ClassVar[str]
    scope: Any

    def __post_init__(self) -> None:
        check_fields(self)

    def to_json(self) -> dict[str, Any]:
        r"""The fields as a JSON object, with exact numbers as text."""
        plain = {name: getattr(self, name) for name in parameter_names(type(self))}
        for name, value in plain.items():
            if isinstance(value, (Enum, Fraction)):
                plain[name] = value.value if isinstance(value, Enum) else str(value)
        return {"mechanism": self.name, **plain, "scope": self.scope.to_json()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection(ScoreMechanism):
    r"""Release the indices of ``count`` candidates with high scores, in sequence.

    If the scores are ``count`` rows, one candidate is chosen in each row; otherwise each choice is
    made among the remaining candidates. ``epsilon`` is for all choices together, and each choice
    costs epsilon/count. ``sensitivity`` bounds the change of any one score between neighbouring
    datasets. ``monotonic`` states that no two scores change in opposite directions, as for counts
    when a user is added or removed; the rate :attr:`unit` is then twice as large.

    >>> from dpcore import SeededRng
    >>> choice = Selection(epsilon=8, sensitivity=1)
    >>> [choice.release([0, 9, 10, 3], rng=SeededRng(n)) for n in range(8)]
    [2, 2, 2, 1, 2, 2, 2, 2]

    Raises :class:`InvalidParameter` if epsilon is not > 0, or if the sensitivity or the count is
    not an integer >= 1.
    """

    name: ClassVar[str] = "selection"

    epsilon: Exact = Exact(zero=NO_CHOICE)
    sensitivity: Whole = Whole(at_most=LARGEST)
    count: Whole = Whole(1, at_most=1 << 20)
    rule: Choice[Rule] = Choice(Rule, Rule.PERMUTE_AND_FLIP)
    monotonic: Of[bool] = Of(bool, A_TRUTH, default=False)
    scope: InScope = InScope()

    @property
    def unit(self) -> Fraction:
        r"""The rate c in the acceptance probability exp(-c g) of a candidate with gap g.

        With Delta = ``sensitivity``, c is epsilon/(2 count Delta), or twice that if ``monotonic``.
        """
        return self.epsilon / ((2 - self.monotonic) * self.count * self.sensitivity)

    def release(
        self, value: Sequence[int] | Sequence[Sequence[int]] | Integers, *, rng: Rng = SYSTEM
    ) -> int | Integers:
        r"""Return one index into ``value``, or an array if ``count`` > 1 or ``value`` has rows.

        >>> Selection(epsilon=40, sensitivity=1, count=2).release([[0, 9, 1], [5, 0, 0]]).tolist()
        [1, 0]

        Raises :class:`InvalidParameter`, before any draw, unless there are at least ``count``
        scores, or ``count`` rows of scores, and all are integers of absolute value at most 2^52.
        """
        scores = _array(value)
        if scores.ndim == 2:  # rows
            if len(scores) != self.count:
                must = f"must contain {self.count} rows of scores, one for each choice"
                raise InvalidParameter("value", value, must)
            rows = [checked_scores(row, 1) for row in scores]
            return np.array([self._choose(row.max() - row, rng) for row in rows], dtype=np.int64)
        left = checked_scores(value, self.count)
        places = np.arange(len(left))
        chosen: list[int] = []
        for _ in range(self.count):
            at = self._choose(left.max() - left, rng)
            chosen.append(int(places[at]))
            left, places = np.delete(left, at), np.delete(places, at)
        return chosen[0] if self.count == 1 else np.array(chosen, dtype=np.int64)

    def reference(self, scores: Sequence[int], rng: Rng) -> int:
        r"""Select one index in integer arithmetic, as in the papers, to test the fast sampler."""
        gaps = [max(scores) - score for score in scores]
        if self.rule is Rule.EXPONENTIAL:
            while True:
                at = rng.below(len(gaps))
                if bernoulli_exp(rng, gaps[at] * self.unit):
                    return at
        left = list(range(len(gaps)))
        while True:
            at = left.pop(rng.below(len(left)))
            if bernoulli_exp(rng, gaps[at] * self.unit):
                return at

    def law(self, scores: Sequence[int]) -> tuple[ExpRational, ...]:
        r"""The exact probability of each index in one selection, a rational function of e^(-unit).

        For permute-and-flip, P(i) = p_i E[1/(1 + N)], where p_i is the acceptance probability of
        candidate i, and N is the number of other accepted candidates.

        >>> [p.enclose(64).upper_float for p in Selection(epsilon=1, sensitivity=1).law([0, 2])]
        [0.183939720585721..., 0.8160602794142...]
        """
        x = ExpRational.base(self.unit)
        chances = [x ** (max(scores) - score) for score in scores]
        if self.rule is Rule.EXPONENTIAL:
            whole = sum(chances, x.of(0))
            return tuple(chance / whole for chance in chances)
        return tuple(
            chance * shared([(1 - other, other) for other in (*chances[:at], *chances[at + 1 :])])
            for at, chance in enumerate(chances)
        )

    def _choose(self, gaps: Integers, rng: Rng) -> int:
        if self.rule is Rule.PERMUTE_AND_FLIP:
            heads = np.flatnonzero(_flip(gaps, self.unit, rng))
            return int(heads[rng.below(len(heads))])
        tries = min(len(gaps), 64)
        while True:
            tried = below(rng, len(gaps), tries)
            heads = np.flatnonzero(_flip(gaps[tried], self.unit, rng))
            if len(heads):
                return int(tried[heads[0]])
            tries = min(2 * tries, _MOST_TRIES)

    def to_json(self) -> dict[str, Any]:
        # The value of the key ``mechanism`` is the rule.
        found = ScoreMechanism.to_json(self)
        found["mechanism"] = found.pop("rule")
        return found


def checked_scores(value: Any, count: int) -> Integers:
    r"""Return a copy of the scores. Raises the errors of :meth:`Selection.release`."""
    scores = _array(value)
    if scores.ndim != 1 or scores.dtype.kind not in "iu" or len(scores) < count:
        reason = f"must be a one-dimensional array of at least {count} integer scores"
        raise InvalidParameter("value", value, reason)
    if not -LARGEST <= int(scores.min()) <= int(scores.max()) <= LARGEST:
        raise InvalidParameter("value", value, f"must contain scores in [-{LARGEST}, {LARGEST}]")
    return scores.astype(np.int64)


def _array(value: Any) -> npt.NDArray[Any]:
    refuse_masked("value", value)
    try:
        return np.asarray(value)
    except ValueError:
        raise InvalidParameter("value", value, "must contain rows of equal length") from None


def shared(others: Iterable[tuple[ExpRational, ExpRational]]) -> ExpRational | Fraction | int:
    r"""The probability that a candidate is selected if ties are broken uniformly.

    This is E[1_A/(1 + N)], where A is the event that no other candidate is ahead, and N is the
    number of other candidates that tie. Each of the independent ``others`` is a pair: the
    probability of being behind, and that of a tie.
    """
    tied: list[ExpRational | int] = [1]
    for behind, ties in others:
        tied = [
            behind * stay + ties * more for stay, more in zip([*tied, 0], [0, *tied], strict=True)
        ]
    return sum((mass / Fraction(n + 1) for n, mass in enumerate(tied[1:], 1)), tied[0])


def _flip(gaps: Integers, unit: Fraction, rng: Rng) -> npt.NDArray[np.bool_]:
    # Draws independent Bernoulli variables, heads with probability e^(-unit gap).
    words = rng.words(len(gaps))
    uniform = (words >> np.uint64(11)).astype(np.float64) * 2.0**-_BITS
    # Capping a huge unit changes nothing: then only a gap of 0 can give heads.
    exponent: Floats = gaps.astype(np.float64) * float(min(unit, _MOST_UNIT))
    found = np.zeros(len(gaps), dtype=np.bool_)
    # For most candidates the result is clearly tails; only the others are computed.
    near = np.flatnonzero((exponent < _CLEAR) | (uniform < _RARE))
    gaps, exponent, uniform = gaps[near], exponent[near], uniform[near]
    chance = exp_neg(np.minimum(exponent, _FAR))
    heads = (uniform + 2.0**-_BITS <= chance * (1 - _ERROR)) & (exponent < _FAR)
    heads |= gaps == 0
    tails = uniform >= np.where(exponent < _FAR, chance * (1 + _ERROR), _TINY)
    for place in np.flatnonzero(~(heads | tails)):
        drawn = int(words[near[place]]) >> 11
        heads[place] = _settle(int(gaps[place]) * unit, drawn, rng)
    found[near] = heads
    return found


def _settle(exponent: Fraction, drawn: int, rng: Rng) -> bool:
    # Whether a uniform number that starts with the bits ``drawn`` lies below e^(-exponent).
    bits = _BITS
    while True:
        with precision(2 * bits):
            chance = Enclosure.of((-ball(exponent)).exp())
        if Fraction(drawn + 1, 1 << bits) <= chance.lower:
            return True
        if Fraction(drawn, 1 << bits) >= chance.upper:
            return False
        drawn, bits = (drawn << 64) | rng.bits(64), bits + 64
