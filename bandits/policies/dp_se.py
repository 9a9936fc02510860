r"""DP-SE: successive elimination in the central model (Sajed and Sheffet 2019), discretised.

Epoch e = 1, 2, ... has Delta_e = 2^-e and pulls every active arm

    R_e = ceil(max(32 ln(8 |S| e^2/p)/Delta_e^2, 8 ln(4 |S| e^2/p)/(epsilon Delta_e))) + 1

times. Its mean is released with discrete Laplace noise of scale g/epsilon on rewards in
g = ceil(sqrt R_e) steps, in the place of the paper's Laplace(1/(epsilon R_e)) on the reals. In the
paper an arm stays while its mean is within 2 h_e + 2 c_e of the largest,

    h_e = sqrt(ln(8 |S| e^2/p)/(2 R_e)),   c_e = ln(4 |S| e^2/p)/(R_e epsilon)   (DpSeRadius).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from bandits.batch import confidence_of
from bandits.policies.elimination import SuccessiveElimination
from bandits.privatizers.sums import SumPrivatizer
from dpcore.numbers.ceilings import ceiling
from dpcore.numbers.enclosure import ball
from dpcore.numbers.parameter import Exact, RationalLike, integer, make_positive, positive_rational

__all__ = ["DpSe", "epoch_pulls"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DpSe(SuccessiveElimination):
    r"""Sajed and Sheffet's algorithm for ``epsilon``; a batch is an epoch.

    ``radius=DpSeRadius()`` is the paper's 2 h_e + 2 c_e; the default takes the certified quantile
    of the noise in its place. R_e is the paper's with any. ``failure`` is the chance that a sum is
    read wrongly mod m.

    >>> dp_se = DpSe(epsilon="1/2", failure="1e-6")
    >>> state = dp_se.init(10, 10**6)
    >>> dp_se.name, dp_se.choose(state).counts[0], dp_se.privatizer.precision(857)
    ('dp-se', 857, 30)

    Raises :class:`InvalidParameter` for epsilon not > 0, a failure outside of (0, 1), a confidence
    outside of (0, 1/2) and another kind of radius.
    """

    epsilon: Exact = Exact()
    failure: Exact = Exact()

    def __post_init__(self) -> None:
        SuccessiveElimination.__post_init__(self)
        make_positive(self, epsilon="no noise gives epsilon 0")
        object.__setattr__(self, "failure", self.privatizer.failure)

    @property
    def name(self) -> str:
        return "dp-se"

    @property
    def privatizer(self) -> SumPrivatizer:
        r"""Central noise on g = ceil(sqrt n) steps."""
        e = self.epsilon
        return SumPrivatizer(trust="central", epsilon=e, failure=self.failure, scaling=1 / e)

    def length(self, batch: int, active: int) -> int:
        r"""R_e of epoch e = ``batch``."""
        return epoch_pulls(batch, active, self.epsilon, self.confidence)


def epoch_pulls(epoch: int, active: int, epsilon: RationalLike, confidence: RationalLike) -> int:
    r"""R_e for e = ``epoch``, |S| = ``active`` and p = ``confidence``.

    >>> epoch_pulls(1, 10, "1/2", "1/10")
    857
    """
    return _pulls(
        integer("epoch", epoch, at_least=1),
        integer("active", active, at_least=1),
        positive_rational("epsilon", epsilon, "no noise gives epsilon 0"),
        confidence_of(confidence),
    )


@lru_cache(maxsize=1 << 12)
def _pulls(epoch: int, active: int, epsilon: Fraction, p: Fraction) -> int:
    odds = 4 * active * epoch**2 / p
    reward = ceiling(lambda: 32 * 4**epoch * ball(2 * odds).log())
    noise = ceiling(lambda: 8 * 2**epoch * ball(odds).log() / ball(epsilon))
    return max(reward, noise) + 1
