r"""Audit a deployed protocol: every device draws its own noise, and one message is shown.

``Privatizer.release`` draws the noise of distributed users in one draw, which has the same law only
if the share of a device has the law that it should. Here the protocol itself is run
(``dpcore.protocols.run``), so that an audit sees what devices send. Proofs: docs/proofs/bandits.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, cast

import numpy as np

from bandits.batch import ReleasedSum
from bandits.privatizers.privatizer import Privatizer
from bandits.privatizers.protocols import AnyProtocol, Deployment, Relaxed
from dpcore.errors import InvalidParameter
from dpcore.noise import Noise
from dpcore.numbers.arrays import Integers
from dpcore.numbers.parameter import RationalLike
from dpcore.protocols.aggregation import IdealAggregation, Shuffler, Step, Total
from dpcore.protocols.pure_shuffle import PureShuffle
from dpcore.protocols.run import run, run_pure
from dpcore.protocols.shuffled_bits import BinaryShuffle
from dpcore.protocols.sums import ShuffledPure
from dpcore.sampling.rng import SYSTEM, Rng

__all__ = ["Devices"]

_BATCH: Final = "devices"
_NOBODY: Final[Mapping[str, Step]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Devices(Privatizer):
    r"""As ``of``, but each release is a run of its protocol by n users with rewards 0 and 1.

    Users come in the order of their rewards. ``messages`` collects what the first user of each
    release sent, where messages are residues that someone sums.

    >>> from bandits.privatizers.sums import SumPrivatizer
    >>> pure = SumPrivatizer(trust="pure", epsilon=1, failure="1e-3")
    >>> devices = Devices(of=pure)
    >>> total = devices.release(8 * pure.precision(16), 16)
    >>> (total * pure.precision(16)).denominator, len(devices.messages)
    (1, 1)
    """

    of: Privatizer
    messages: list[int] = field(default_factory=list, compare=False, repr=False)

    @property
    def name(self) -> str:
        return self.of.name

    @property
    def epsilon(self) -> RationalLike | None:
        return self.of.epsilon

    @property
    def assumptions(self) -> tuple[str, ...]:
        return self.of.assumptions

    @property
    def relaxed(self) -> Relaxed | None:
        return self.of.relaxed

    @property
    def deployment(self) -> Deployment:
        return self.of.deployment

    @property
    def least_noise(self) -> Noise | None:
        return self.of.least_noise

    def protocol(self, pulls: int) -> AnyProtocol | None:
        return self.of.protocol(pulls)

    def release(self, encoded_sum: int, pulls: int, rng: Rng = SYSTEM) -> ReleasedSum:
        r"""As ``Privatizer.release``, of the same law, for a sum of rewards 0 and 1 only.

        Raises :class:`InvalidParameter` for another sum, and where nothing is protected.
        """
        protocol = self.protocol(pulls)
        ones, rest = divmod(self.checked(encoded_sum, pulls), self.precision(pulls))
        if rest:
            raise InvalidParameter("encoded_sum", encoded_sum, "must be of rewards 0 and 1")
        # The last users vanish, before their message is in.
        gone = pulls - self.reporting(pulls)
        held = np.repeat([0, 1, 0], [pulls - gone - ones, ones, gone])
        vanish = {str(place): Step.INPUT for place in range(pulls - gone, pulls)}
        match protocol:
            case None:
                raise InvalidParameter("of", self.of.name, "protects nobody: it has no devices")
            case BinaryShuffle():
                shuffled = run(protocol, held, Shuffler(), batch=_BATCH, vanish=vanish, rng=rng)
                return ReleasedSum(cast(Fraction, shuffled.estimate))  # of one coordinate
            case PureShuffle():
                pure = run_pure(protocol, held, Shuffler(), vanish=vanish, rng=rng)
                return ReleasedSum(pure.estimate)
            case ShuffledPure():
                # The relaxed aggregation is assumed and cannot be run: the sum itself is one.
                sent = protocol.randomize(held[: pulls - gone], rng=rng)
                self.messages.append(int(sent[0]))
                return ReleasedSum(protocol.analyze(sum(sent.tolist()) % protocol.modulus))
            case _:
                ideal = IdealAggregation(modulus=protocol.modulus)
                seen = _Seen(ideal, self.messages)
                outcome = run(protocol, held, seen, batch=_BATCH, vanish=vanish, rng=rng)
                return ReleasedSum(cast(Fraction, outcome.estimate))  # a sum's is one number


@dataclass(frozen=True, slots=True)
class _Seen:
    # An ideal aggregation that notes what the first user sent.
    ideal: IdealAggregation
    noted: list[int]

    @property
    def modulus(self) -> int:
        return self.ideal.modulus

    def total(
        self,
        messages: Mapping[str, Integers],
        vanish: Mapping[str, Step] = _NOBODY,
        *,
        rng: Rng = SYSTEM,
    ) -> Total:
        self.noted.append(int(next(iter(messages.values()))[0]))
        return self.ideal.total(messages, vanish, rng=rng)
