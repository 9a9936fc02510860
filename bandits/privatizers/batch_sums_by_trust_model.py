r"""Privatizers that release sums of rewards of users who do not return, calibrated to an epsilon.

They cover all trust models of Chowdhury and Zhou (Theorems 1 to 6), shuffled bits (Algorithm 3 of
Tenenbaum, Kaplan, Mansour and Stemmer) and the certified ``PureShuffle``. The released sums have
the same law as those that ``dpcore.protocols.run_protocol.run`` computes message by message; tests
compare the two.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar, cast

from accounting.protocol_guarantees.paper_parameters import paper_sum
from accounting.protocol_guarantees.plan_protocol import (
    SCALED,
    Instance,
    Parameters,
    choose,
    sum_protocol,
    user_noise,
)
from accounting.protocol_guarantees.pure_shuffle_guarantee import plan_pure_shuffle
from bandits.privatizers.deployment import (
    EVERYONE,
    NO_NOISE,
    AnyProtocol,
    Deployment,
    Relaxed,
    SumProtocol,
)
from bandits.privatizers.privatizer import Privatizer
from dpcore.analysis.contour_sums import FEWEST_DRAWS, quick_tail
from dpcore.errors import InvalidParameter
from dpcore.laws.polya import PolyaDifference
from dpcore.numbers.integer_search import ceil_sqrt, least
from dpcore.numbers.parameter import Exact, Of, check_fields, integer
from dpcore.protocols.noisy_sums import AggregatedSum, LocalSum, size_protocol
from dpcore.protocols.shuffled_bits import BinaryShuffle, PureShuffle
from dpcore.spec_syntax import word

Trust: TypeAlias = Literal["central", "local", "pure", "renyi", "concentrated", "shuffled-pure"]

_TAIL_BITS: Final = 32


_Run = TypeVar("_Run", bound=AnyProtocol)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned(Privatizer, Generic[_Run]):
    r"""Base class of privatizers that plan the protocol for n users once and then reuse it."""

    deployment: Of[Deployment] = Of(Deployment, "must be a Deployment", EVERYONE)
    plans: dict[int, _Run] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_fields(self)
        if self.deployment.factor != 1 and getattr(self, "parameters", "exact") == "paper":
            reason = "must be 'exact': the papers assume honest users without dropouts"
            raise InvalidParameter("parameters", "paper", reason)

    @abstractmethod
    def plan(self, n: int) -> _Run:
        r"""Plan the protocol for n >= 1 users."""

    def protocol(self, pulls: int) -> _Run:
        # Equal privatizers share their plans, but computing their hash takes longer than a release.
        n = integer("pulls", pulls, at_least=1)
        if n not in self.plans:
            self.plans[n] = _protocol(self, n)
        return self.plans[n]


@lru_cache(maxsize=1 << 11)
def _protocol(privatizer: Planned[Any], n: int) -> Any:
    return privatizer.plan(n)


@dataclass(frozen=True, slots=True, kw_only=True)
class SumPrivatizer(Planned[SumProtocol]):
    r"""Release a sum of rewards with noise calibrated to ``epsilon`` in the trust model ``trust``.

    For n users let g = ceil(s epsilon sqrt n), where s = ``scaling``. Each reward is encoded as an
    integer in [0, g]. The noise is

    - for ``central``, discrete Laplace of scale g/epsilon on the sum;
    - for ``pure``, the same noise, as the sum of shares that are differences of Polya variables;
    - for ``local``, discrete Laplace of scale g/epsilon on every reward;
    - for ``shuffled-pure``, discrete Laplace of scale 2g/epsilon on the sum, where g is computed
      with epsilon/2 instead of epsilon;
    - for ``renyi``, Skellam of variance g^2/epsilon^2 on the sum;
    - for ``concentrated``, the sum of n discrete Gaussians with sigma^2 = g^2/(n epsilon^2) each.

    The last two have an unbounded privacy loss, so their guarantee is a privacy curve. With a
    positive ``delta`` they instead use the least noise (on the grid of
    ``accounting.protocol_guarantees.plan_protocol.choose``) that gives (epsilon, delta).

    ``failure`` bounds the probability that a sum mod m is decoded incorrectly (1/T in the paper for
    T rounds). With ``parameters="exact"`` the threshold tau is the least that is certified for
    ``failure``. With ``"paper"`` it is the paper's threshold, except for ``local``, where the paper
    does not specify a constant.

    ``deployment`` plans for users who drop out or collude. Each user then adds more noise, so that
    in the worst case the other users add the noise above.

    >>> privatizer = SumPrivatizer(trust="pure", epsilon="1/2", failure="1e-6")
    >>> privatizer.precision(1024), privatizer.noise(1024), privatizer.bits(1024)
    (16, DiscreteLaplace(scale=32), 15)
    >>> privatizer.guarantee(1024).pure()
    Bound([0.5, 0.5], 'exact')

    Raises :class:`InvalidParameter` if the trust model is unknown, epsilon or scaling is not
    positive, failure is outside (0, 1), or the trust model does not support the given scaling or
    delta.
    """

    trust: Trust = word(Trust)
    epsilon: Exact = Exact(zero=NO_NOISE)
    failure: Exact = Exact(within="(0, 1)")
    scaling: Exact = Exact(1, zero="the scaling multiplies the precision")
    delta: Exact = Exact(0, within="[0, 1)")
    parameters: Parameters = word(Parameters, "exact")

    def __post_init__(self) -> None:
        Planned.__post_init__(self)
        if self.delta and (self.trust not in SCALED or self.parameters == "paper"):
            reason = "must be 0 unless trust is renyi or concentrated with exact parameters"
            raise InvalidParameter("delta", self.delta, reason)
        if self.scaling != 1 and self.trust not in SCALED and self.parameters == "paper":
            reason = "must be 1 unless trust is renyi or concentrated"
            raise InvalidParameter("scaling", self.scaling, reason)
        if self.scaling < 1 and self.trust in SCALED:
            raise InvalidParameter("scaling", self.scaling, "must be >= 1")

    @property
    def name(self) -> str:
        return self.trust

    @property
    def relaxed(self) -> Relaxed | None:
        if self.trust != "shuffled-pure":
            return None
        return Relaxed(epsilon_hat=self.epsilon / 4, q_hat=self.failure)

    def plan(self, n: int) -> SumProtocol:
        trust, epsilon, failure = self.trust, self.epsilon, self.failure
        if self.parameters == "paper" and trust != "local":
            return paper_sum(trust, n, epsilon, failure, self.scaling)
        counted = self.deployment.counted_on(n)
        if self.delta:
            plan = choose(
                instance=cast(Instance, trust),
                users=n,
                epsilon=epsilon,
                delta=self.delta,
                honest_fraction=Fraction(counted, n),
                failure=failure,
                scaling=self.scaling,
            )
            return cast(AggregatedSum, plan.protocol)
        if trust == "shuffled-pure":
            epsilon /= 2
        g = ceil_sqrt((self.scaling * epsilon) ** 2 * n)
        ratio = g / epsilon
        spread = ratio**2 / counted if trust in SCALED else ratio
        noise = user_noise(trust, spread, counted)
        plain = sum_protocol(trust, n, g, 0, noise)
        if isinstance(plain, LocalSum) and n >= FEWEST_DRAWS:
            tau = laplace_sum_threshold(n, ratio, failure)
        elif counted < n and trust in ("pure", "shuffled-pure"):
            # A sum of fewer draws has smaller tails, and integer numbers of draws are much faster.
            tau = laplace_sum_threshold(-(-n // counted), ratio, failure)
        else:
            law = plain.planned_noise
            tau = size_protocol(users=n, precision=g, noise=law, failure=failure).threshold
        return sum_protocol(trust, n, g, tau, noise)


def laplace_sum_threshold(n: int, scale: Fraction, failure: Fraction) -> int:
    r"""The least certified t with P(\|sum of n discrete Laplace draws\| > t) <= ``failure``."""

    def rare(t: int) -> bool:
        if t < 0:
            return False
        tail = quick_tail(draws=n, scale=scale, least=t + 1, bits=_TAIL_BITS)
        if tail is None:
            tail = PolyaDifference(shape=n, scale=scale).enclose_sf(t, _TAIL_BITS)
        return 2 * tail.upper <= failure

    # The search starts at about ten standard deviations.
    return least(rare, int(10 * scale) * ceil_sqrt(Fraction(n)))


@dataclass(frozen=True, slots=True, kw_only=True)
class BitPrivatizer(Planned[BinaryShuffle]):
    r"""Release the sum of n bits shuffled with random bits, (epsilon, delta)-DP for each user.

    Rewards other than 0 and 1 are first rounded at random to a bit, so g = 1. With
    ``parameters="exact"`` the number of random bits is the least that gives (epsilon, delta); with
    ``"paper"`` it is the paper's 96 ln(2/delta)/epsilon^2. The noise of the sum is binomial; the
    analyzer subtracts its mean.

    >>> privatizer = BitPrivatizer(epsilon="1/2", delta="1e-6")
    >>> privatizer.noise(16), privatizer.bits(16)
    (Binomial(trials=272, probability='1/2'), 18)
    >>> privatizer.guarantee(16).meets("1/2", "1e-6")
    True

    ``deployment`` plans for users who drop out or collude: the random bits of the other users
    suffice for the guarantee.

    Raises :class:`InvalidParameter` if epsilon <= 0, delta is outside (0, 1), or the paper's bits
    are combined with dropouts or collusion.
    """

    epsilon: Exact = Exact(zero=NO_NOISE)
    delta: Exact = Exact(within="(0, 1)")  # > 0: the privacy loss is unbounded
    parameters: Parameters = word(Parameters, "exact")

    @property
    def name(self) -> str:
        return "binary-shuffle"

    def plan(self, n: int) -> BinaryShuffle:
        plan = choose(
            instance="binary-shuffle",
            users=n,
            epsilon=self.epsilon,
            delta=self.delta,
            honest_fraction=Fraction(self.deployment.counted_on(n), n),
            parameters=self.parameters,
        )
        return cast(BinaryShuffle, plan.protocol)


@dataclass(frozen=True, slots=True, kw_only=True)
class PureShufflePrivatizer(Planned[PureShuffle]):
    r"""Release the sum of n bits from shuffled messages, epsilon-DP for each user.

    Rewards other than 0 and 1 are first rounded at random to a bit, so g = 1. A user sometimes
    sends a *cover*, that is, a random message instead of the reward. ``failure`` is approximately
    the probability that a release contains a cover (:meth:`missed`). The guarantee is certified for
    each number of users; if this is not possible, an error is raised.
    """

    epsilon: Exact = Exact(zero=NO_NOISE)
    failure: Exact = Exact(within="(0, 1)")

    @property
    def name(self) -> str:
        return "pure-shuffle"

    def plan(self, n: int) -> PureShuffle:
        return plan_pure_shuffle(
            users=n,
            honest=self.deployment.counted_on(n),
            epsilon=Fraction(self.epsilon),
            failure=self.failure,
        )
