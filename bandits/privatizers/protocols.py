r"""What a protocol of n users implies: its noise, its mechanism, its guarantee, what it assumes.

Everything is derived from the protocol and from the plan for users who vanish or collude
(``bandits.privatizers.deployment``). Proofs: docs/proofs/bandits.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Final, TypeAlias

from accounting.claims.claim import Assumed, Pure
from accounting.claims.guarantee import Guarantee
from accounting.errors import NotDerived
from accounting.protocols.choose import mechanism_guarantee
from accounting.protocols.pure_shuffle import certified_shuffle
from bandits.privatizers.deployment import MASKED, Deployment
from dpcore.laws.binomial import Binomial
from dpcore.laws.discrete_gaussian import DiscreteGaussian
from dpcore.laws.discrete_gaussian_sum import DiscreteGaussianSum
from dpcore.laws.sums import summed
from dpcore.mechanism import Mechanism
from dpcore.noise import Noise
from dpcore.numbers.arrays import Integers
from dpcore.protocols.pure_shuffle import PureShuffle
from dpcore.protocols.shuffled_bits import BinaryShuffle
from dpcore.protocols.sums import AggregatedSum, CentralSum, LocalSum, ShuffledPure
from dpcore.sampling.rng import Rng

__all__ = ["BITS_ONLY", "SUM_ONLY", "TRUSTED", "AnyProtocol", "BitProtocol", "Relaxed"]
__all__ += ["SumProtocol", "guarantee_of", "implied", "mechanism_of", "noise_by_user", "noise_of"]

TRUSTED: Final = "the analyzer is trusted with the sum and publishes its estimate only"
BITS_ONLY: Final = "the shuffler shows the server the bits only"
SUM_ONLY: Final = "the aggregation shows the server the sum and who is in it only"

SumProtocol: TypeAlias = AggregatedSum | CentralSum | LocalSum | ShuffledPure
"""The protocols that release a sum mod m."""

BitProtocol: TypeAlias = BinaryShuffle | PureShuffle
"""The protocols whose messages are bits, in shuffled order."""

AnyProtocol: TypeAlias = SumProtocol | BitProtocol

_AT_ONCE: Final = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Relaxed:
    r"""An (epsilon_hat, q_hat)-relaxed aggregation, which is assumed (CZ, before Theorem 3)."""

    epsilon_hat: Fraction
    q_hat: Fraction

    def __str__(self) -> str:
        hats = f"({self.epsilon_hat}, {self.q_hat})"
        return f"an {hats}-relaxed aggregation (CZ Theorem 3)"


def implied(
    protocol: AnyProtocol | None, relaxed: Relaxed | None, plan: Deployment
) -> tuple[str, ...]:
    r"""What the protocol takes for granted beside its noise."""
    match protocol:
        case AggregatedSum():
            masked = (MASKED,) if plan.aggregation == "masked" else ()
            return (SUM_ONLY, *masked, plan.assumption)
        case CentralSum():
            return (TRUSTED,)
        case ShuffledPure():
            return (str(relaxed), plan.assumption)
        case BinaryShuffle() | PureShuffle():
            return (BITS_ONLY, plan.assumption)
        case LocalSum() | None:
            return ()


def noise_of(protocol: AnyProtocol, present: int) -> Noise:
    r"""All the noise in the estimate when so many users sent their message."""
    match protocol:
        case BinaryShuffle() | PureShuffle():
            return protocol.observed_noise(present)
        case LocalSum():
            return summed(protocol.noise, present)
        case AggregatedSum() | ShuffledPure():
            return summed(protocol.share, present)
        case CentralSum():
            return protocol.planned_noise


def mechanism_of(
    protocol: SumProtocol | BinaryShuffle, plan: Deployment, least: Noise | None
) -> Mechanism:
    r"""What hides a user at the worst: the noise of those counted on, or its part ``least``.

    Raises :class:`NotDerived` where their noise does not hold ``least``.
    """
    counted = plan.counted_on(protocol.users)
    if isinstance(protocol, ShuffledPure):
        return protocol.sum_mechanism(counted)
    mechanism = protocol.mechanism(counted)
    if least is None or mechanism.noise == least:
        return mechanism
    if not _holds(mechanism.noise, least):
        raise NotDerived(
            "the guarantee of a release", f"{mechanism.noise!r} does not hold {least!r}"
        )
    return replace(mechanism, noise=least)


def _holds(noise: Noise, least: Noise) -> bool:
    # Whether ``noise`` is a draw of ``least`` and more that is independent: post-processing.
    match noise, least:
        case DiscreteGaussian(sigma_squared=v), DiscreteGaussianSum(count=1):
            return v == least.sigma_squared
        case DiscreteGaussianSum(), DiscreteGaussianSum():
            return noise.sigma_squared == least.sigma_squared and noise.count >= least.count
        case Binomial(), Binomial():
            return noise.probability == least.probability and noise.trials >= least.trials
    return False


@lru_cache(maxsize=1 << 10)
def guarantee_of(
    protocol: AnyProtocol, plan: Deployment, least: Noise | None, relaxed: Relaxed | None
) -> Guarantee:
    r"""What one release promises each user in it.

    Raises :class:`NotDerived` for :class:`ShuffledPure` over nothing that is ``relaxed``, and for a
    :class:`PureShuffle` that is not certified for the epsilon of its shares.
    """
    if isinstance(protocol, PureShuffle):
        return certified_shuffle(protocol, plan.counted_on(protocol.users))
    curve = mechanism_guarantee(mechanism_of(protocol, plan, least))
    if not isinstance(protocol, ShuffledPure):
        return curve
    if relaxed is None:
        raise NotDerived("the guarantee of ShuffledPure", "no relaxed aggregation is assumed")
    # The aggregation is e^(+-epsilon_hat) away from its simulation, on either side.
    spent = Fraction(curve.pure().upper) + 2 * relaxed.epsilon_hat
    return Assumed(Pure(spent), reason=str(relaxed))


def noise_by_user(noise: Noise, *, users: int, runs: int, rng: Rng) -> Iterator[Integers]:
    r"""The noise of each of ``users`` in each of ``runs`` batches, where every user draws alone.

    Arrays of shape (some users, runs), which together hold all users: what is in the messages of
    the local model, a part at a time. Their sum over users is the noise of the released sums.

    >>> from dpcore import DiscreteLaplace, SeededRng
    >>> drawn = noise_by_user(DiscreteLaplace(scale=2), users=70_000, runs=1, rng=SeededRng(1))
    >>> [part.shape for part in drawn]
    [(65536, 1), (4464, 1)]
    """
    rows = max(_AT_ONCE // runs, 1)
    for start in range(0, users, rows):
        count = min(rows, users - start)
        yield noise.sample(count * runs, rng=rng).reshape(count, runs)
