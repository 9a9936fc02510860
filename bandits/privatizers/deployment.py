r"""Dropouts, collusion and aggregation of a protocol, and the guarantee that results.

The noise of users who drop out or collude gives no protection, so the noise of the other users
alone must satisfy the guarantee. The noise, the mechanism, the guarantee and the assumptions of a
release are derived here from its protocol and its :class:`Deployment`. Proofs:
docs/proofs/bandits.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Final, Literal, TypeAlias

from accounting.derive_guarantee import guarantee
from accounting.errors import NotDerived
from accounting.guarantees.guarantee import Guarantee
from accounting.guarantees.stated_guarantees import Assumed, Pure
from accounting.protocol_guarantees.pure_shuffle_guarantee import certified_shuffle
from dpcore.errors import InvalidParameter
from dpcore.laws.discrete_gaussian import DiscreteGaussian, DiscreteGaussianSum
from dpcore.laws.poisson_and_binomial import Binomial
from dpcore.mechanism import Mechanism
from dpcore.noise import Noise
from dpcore.numbers.parameter import Exact, check_fields, integer
from dpcore.protocols.noisy_sums import AggregatedSum, CentralSum, LocalSum, ShuffledPure
from dpcore.protocols.run_protocol import run
from dpcore.protocols.shuffled_bits import BinaryShuffle, PureShuffle
from dpcore.sampling.rng import SYSTEM, Rng
from dpcore.secure_aggregation.masked_aggregation import MaskedAggregation, Step
from dpcore.secure_aggregation.round_parameters import size_neighbourhood
from dpcore.spec_syntax import word

AggregationName: TypeAlias = Literal["ideal", "masked"]
r"""How sums are computed: with an ideal aggregation, or from messages with a masked one."""

ALL_HONEST: Final = "all users of a release follow the protocol, stay, and keep their noise secret"
SOME_HONEST: Final = "of the users of a release at most "
MASKED: Final = (
    "the masked aggregation hides all but the sum from a semi-honest server: add 2^-40 to delta "
    "for every release in which users share with neighbours only"
)

_MOST_MASKED: Final = 1 << 16
_SILENT: Final = (Step.INPUT, Step.SHARES, Step.KEYS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    r"""The planned dropouts, the possible collusion, and the aggregation of a release.

    At most a fraction ``dropouts`` of the users drops out. At least a fraction ``honest`` of the
    users follows the protocol and keeps its noise secret; the others may collude with the server.
    The guarantee of a release is derived for the smallest possible number of honest users who do
    not drop out (:meth:`counted_on`). ``aggregation="masked"`` runs every release over
    :class:`dpcore.secure_aggregation.masked_aggregation.MaskedAggregation`.
    """

    honest: Exact = Exact(1, within="(0, 1]", reason="only the noise of honest users protects")
    dropouts: Exact = Exact(0, within="[0, 1)", reason="some users must remain")
    aggregation: AggregationName = word(AggregationName, "ideal")

    def __post_init__(self) -> None:
        check_fields(self)
        if self.honest <= self.dropouts:
            reason = f"must be < honest = {self.honest}, so that honest users remain"
            raise InvalidParameter("dropouts", self.dropouts, reason)
        if self.aggregation == "masked" and 2 * self.dropouts >= 1:
            reason = "must be < 1/2: a masked aggregation needs more than half of its users"
            raise InvalidParameter("dropouts", self.dropouts, reason)

    def reporting(self, users: int) -> int:
        r"""The number of users who send a message if the planned maximum of ``users`` drops out."""
        n = integer("users", users, at_least=1)
        return n - math.floor(n * self.dropouts) if self.dropouts else n

    def colluding(self, users: int) -> int:
        r"""The largest number of ``users`` who may reveal their noise to the server."""
        return math.floor(users * (1 - self.honest))

    def counted_on(self, users: int) -> int:
        r"""The smallest number of ``users`` who add noise and keep it secret; at least 1."""
        return self.reporting(users) - self.colluding(users)

    @property
    def factor(self) -> int:
        r"""An integer >= n/counted_on(n), by which the noise of each of n users may grow."""
        return math.ceil(1 / (self.honest - self.dropouts))

    @property
    def assumption(self) -> str:
        gone, dishonest = self.dropouts, 1 - self.honest
        if not gone and not dishonest:
            return ALL_HONEST
        broken = "break the protocol or reveal their noise"
        return f"{SOME_HONEST}{gone} drop out, and {dishonest} {broken}"

    def check(self, name: str, users: int, *, secure: bool) -> None:
        r"""Raise an error if privatizer ``name`` cannot release a sum over ``users`` users."""
        if self.aggregation == "ideal":
            return
        if not secure:
            reason = f"requires sums over secure aggregation, which {name} does not use"
            raise InvalidParameter("aggregation", self.aggregation, reason)
        if not 2 <= users < _MOST_MASKED:
            reason = f"supports 2 to 65,535 users, but a release may contain {users}"
            raise InvalidParameter("aggregation", self.aggregation, reason)


EVERYONE: Final = Deployment()
NO_NOISE: Final = "epsilon 0 needs infinite noise"


def masked_sum(
    protocol: AggregatedSum, encoded: int, plan: Deployment, rng: Rng = SYSTEM
) -> Fraction:
    r"""Run ``protocol`` once over a masked aggregation, and return the estimate.

    As many users drop out as ``plan`` allows, at three different steps. ``encoded`` is the sum of
    the encodings of the users who stay. Their single values do not affect the estimate, so the sum
    is divided evenly among them.
    """
    n = protocol.users
    stay, colluding = plan.reporting(n), plan.colluding(n)
    each, more = divmod(encoded, stay)
    steps = [each + 1] * more + [each] * (stay - more) + [0] * (n - stay)
    names = [f"user {place:05}" for place in range(n)]
    gone = names[stay:]
    secure = MaskedAggregation(
        users=n,
        dropouts=len(gone),
        coordinates=1,
        modulus=protocol.modulus,
        neighbourhood=size_neighbourhood(users=n, dropouts=len(gone), colluding=colluding),
    )
    outcome = run(
        protocol,
        {name: Fraction(k, protocol.precision) for name, k in zip(names, steps, strict=True)},
        secure,
        batch="masked",
        vanish={name: _SILENT[place % len(_SILENT)] for place, name in enumerate(gone)},
        colluding=names[:colluding],
        rng=rng,
    )
    assert isinstance(outcome.estimate, Fraction)  # noqa: S101  # a sum is one number
    return outcome.estimate


TRUSTED: Final = "the analyzer is trusted with the sum and publishes only its estimate"
BITS_ONLY: Final = "the shuffler shows the server only the bits, in random order"
SUM_ONLY: Final = "the aggregation shows the server only the sum and which users are in it"

SumProtocol: TypeAlias = AggregatedSum | CentralSum | LocalSum | ShuffledPure
"""The protocols that release a sum mod m."""

BitProtocol: TypeAlias = BinaryShuffle | PureShuffle
"""The protocols whose messages are bits, in shuffled order."""

AnyProtocol: TypeAlias = SumProtocol | BitProtocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Relaxed:
    r"""The assumption of an (epsilon_hat, q_hat)-relaxed aggregation (Chowdhury and Zhou 2023)."""

    epsilon_hat: Fraction
    q_hat: Fraction

    def __str__(self) -> str:
        hats = f"({self.epsilon_hat}, {self.q_hat})"
        return f"an {hats}-relaxed aggregation (CZ Theorem 3)"


def implied(
    protocol: AnyProtocol | None, relaxed: Relaxed | None, plan: Deployment
) -> tuple[str, ...]:
    r"""The assumptions of ``protocol`` under ``plan``, except those about the noise source."""
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


def mechanism_of(
    protocol: SumProtocol | BinaryShuffle, plan: Deployment, least: Noise | None
) -> Mechanism:
    """The mechanism that protects a user if all planned dropouts and collusion occur.

    If ``least`` is given, the noise of the mechanism is ``least``, and further noise is ignored.
    """
    counted = plan.counted_on(protocol.users)
    if isinstance(protocol, ShuffledPure):
        return protocol.sum_mechanism(counted)
    mechanism = protocol.mechanism(counted)
    if least is None or mechanism.noise == least:
        return mechanism
    if not _holds(mechanism.noise, least):
        raise NotDerived(
            "the guarantee of a release",
            f"{mechanism.noise!r} is not the certified noise {least!r} plus other noise",
        )
    return replace(mechanism, noise=least)


def _holds(noise: Noise, least: Noise) -> bool:
    # Whether ``noise`` is ``least`` plus independent noise, which is post-processing.
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
    r"""The guarantee of one release for each participating user."""
    if isinstance(protocol, PureShuffle):
        return certified_shuffle(protocol, plan.counted_on(protocol.users))
    curve = guarantee(mechanism_of(protocol, plan, least))
    if not isinstance(protocol, ShuffledPure):
        return curve
    if relaxed is None:
        raise NotDerived("the guarantee of ShuffledPure", "no relaxed aggregation is assumed")
    # For both neighbours the aggregation is within e^(+-epsilon_hat) of its simulation.
    spent = Fraction(curve.pure().upper) + 2 * relaxed.epsilon_hat
    return Assumed(Pure(spent), reason=str(relaxed))


def noise_by_user(
    noise: Noise, *, users: int, sums: int, rng: Rng, at_once: int = 1 << 16
) -> list[int]:
    r"""Draw the total noise of ``users`` in the local model, for each of ``sums`` released sums.

    The noise of every user is drawn, at most about ``at_once`` values at a time. Computing the law
    of the total for each number of users would take longer.
    """
    rows = max(at_once // sums, 1)
    counts = (min(rows, users - start) for start in range(0, users, rows))
    parts = (noise.sample((count, sums), rng=rng).sum(axis=0) for count in counts)
    return [sum(map(int, each)) for each in zip(*parts, strict=True)]
