r"""A combinatorial problem: what a server knows before it plays. Super arms, reward, oracle."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from bandits.combinatorial.decisions import Bools, Decisions
from bandits.combinatorial.oracles import LargestSum, Oracle
from bandits.combinatorial.rewards import Linear, Reward
from dpcore.errors import InvalidParameter
from dpcore.numbers.floating import Floats

__all__ = ["Problem"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    r"""Super arms, the reward of each, and the oracle that chooses one.

    >>> from bandits.combinatorial.decisions import Unions
    >>> top = Problem(decisions=Unions.subsets(4, 2))
    >>> top.arms, top.most, top.best(np.array([0.1, 0.9, 0.5, 0.2]))
    (4, 2, 1.4)

    Raises :class:`InvalidParameter` for an oracle of other super arms, or whose (alpha, beta) are
    not of this reward, and parts of another kind.
    """

    decisions: Decisions
    reward: Reward = field(default=Linear())
    oracle: Oracle | None = None

    def __post_init__(self) -> None:
        for argument, kind in (("decisions", Decisions), ("reward", Reward)):
            if not isinstance(getattr(self, argument), kind):
                reason = f"must be a {kind.__name__}"
                raise InvalidParameter(argument, getattr(self, argument), reason)
        if self.oracle is None:
            offset = self.reward.offset if isinstance(self.reward, Linear) else Fraction(0)
            object.__setattr__(self, "oracle", LargestSum(self.decisions, offset))
        if not isinstance(self.oracle, Oracle) or self.oracle.decisions != self.decisions:
            raise InvalidParameter("oracle", self.oracle, "must be an Oracle of these super arms")
        if not self.oracle.fits(self.reward):
            reason = f"promises nothing for the reward {self.reward!r}"
            raise InvalidParameter("oracle", self.oracle, reason)

    @property
    def arms(self) -> int:
        r"""m."""
        return self.decisions.arms

    @property
    def most(self) -> int:
        r"""K."""
        return self.decisions.most

    @property
    def share(self) -> float:
        r"""alpha beta, the share of the best reward that regret is of."""
        return self._oracle.alpha * self._oracle.beta

    @property
    def _oracle(self) -> Oracle:
        assert self.oracle is not None  # noqa: S101  # set when it was made
        return self.oracle

    def choose(self, values: Floats, luck: Floats) -> Bools:
        r"""What the oracle plays for each row of values.

        Raises :class:`InvalidParameter` for what is no super arm: it would be played otherwise.
        """
        chosen = self._oracle.choose(values, luck)
        if type(self._oracle) is LargestSum:  # what ``decisions`` find best is one of them
            return chosen
        table = isinstance(chosen, np.ndarray) and chosen.dtype == np.bool_
        if not table or chosen.shape != values.shape:
            reason = "must return a boolean for each base arm of each row"
            raise InvalidParameter("oracle", type(self._oracle).__name__, reason)
        allowed = self.decisions.contains(chosen)
        if not allowed.all():
            wrong = np.flatnonzero(chosen[int(np.argmin(allowed))]).tolist()
            reason = f"returned the base arms {wrong}, which are no super arm"
            raise InvalidParameter("oracle", type(self._oracle).__name__, reason)
        return chosen

    def best(self, means: Floats) -> float:
        r"""opt, the largest mean reward: linear ones by the largest sum, others by trying all."""
        if isinstance(self.reward, Linear):
            chosen = self.decisions.best((means + float(self.reward.offset))[None, :])
        else:
            chosen = self.decisions.listed()
        return float(self.reward.of(means, chosen).max())
