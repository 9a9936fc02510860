r"""The door between rewards and a policy: one batch of one arm becomes one released sum.

A privatizer knows for every number of users the protocol that they run, so its noise, its bits and
its guarantee are those of that protocol, never stated beside it. The kinds: ``none`` (here),
sums (``privatizer_sum``) and shuffled bits (``privatizer_bits``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, TypeAlias

from accounting.box import BinomialBox
from accounting.claim import Assumed
from accounting.curve import PrivacyCurve
from accounting.distributed import Protocol
from bandits.policy import ReleasedSum
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Release
from dpcore.noise import Noise
from dpcore.parameter import RationalLike, integer
from dpcore.rng import SYSTEM, Rng

__all__ = ["ALL_HONEST", "SUM_ONLY", "OfOne", "Privatizer", "Unprotected"]

SUM_ONLY: Final = "the aggregation shows the server the sum and who is in it only"
ALL_HONEST: Final = "all users of a release follow the protocol, stay, and keep their noise secret"

OfOne: TypeAlias = PrivacyCurve | BinomialBox | Assumed
"""What one user is promised by one release."""


class Privatizer(ABC):
    r"""What a batch of ``pulls`` users runs, and what comes out. Frozen: equal ones are the same.

    All methods take the number of users n = ``pulls`` >= 1, since g, m and noise depend on it.
    ``release`` must run what ``protocol`` says: nothing but an audit would find out.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def name(self) -> str:
        r"""The trust model, e.g. ``"central"``."""

    @property
    @abstractmethod
    def epsilon(self) -> RationalLike | None:
        r"""The epsilon of the papers' formulas; None where nothing is protected."""

    @abstractmethod
    def protocol(self, pulls: int) -> Protocol | None:
        r"""What n users run, made once for each n; None where nothing is protected."""

    @abstractmethod
    def precision(self, pulls: int) -> int:
        r"""g: the steps in which a reward of a batch of n is encoded."""

    @abstractmethod
    def bits(self, pulls: int) -> int:
        r"""The length of one user's message in a batch of n."""

    @abstractmethod
    def noise(self, pulls: int) -> Noise | None:
        r"""The law of the noise of the sum, in steps of 1/g, or None for none.

        A law that is not centred is taken less its mean: the analyzer subtracts that.
        """

    @abstractmethod
    def release(self, encoded_sum: int, pulls: int, rng: Rng = SYSTEM) -> ReleasedSum:
        r"""The released sum of n rewards, in units of reward, from the sum of their encodings.

        One fresh release at each call. Raises :class:`InvalidParameter` for a sum outside of
        [0, n g].
        """

    @abstractmethod
    def guarantee(self, pulls: int) -> OfOne | None:
        r"""What a release of a batch of n promises each user in it; None where nothing is."""

    @abstractmethod
    def record(self, pulls: int, batch: str) -> Release | None:
        r"""The record of one release, for accounting, ledgers and certificates.

        None where no mechanism says all that the server sees.
        """

    @property
    @abstractmethod
    def assumptions(self) -> tuple[str, ...]:
        r"""What the guarantee takes for granted beside the noise."""

    def checked(self, encoded_sum: int, pulls: int) -> int:
        r"""``encoded_sum``, if n encodings can have it; :class:`InvalidParameter` otherwise."""
        total = integer("encoded_sum", encoded_sum, at_least=0)
        if total > pulls * self.precision(pulls):
            raise InvalidParameter("encoded_sum", encoded_sum, "must be <= pulls * precision")
        return total


_FINE: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Unprotected(Privatizer):
    r"""No privacy: the sum itself, rewards read in 2^20 steps. The floor of every comparison.

    >>> Unprotected().release(3 << 20, 8), Unprotected().guarantee(8)
    (Fraction(3, 1), None)
    """

    @property
    def name(self) -> str:
        return "none"

    @property
    def epsilon(self) -> None:
        return None

    def protocol(self, pulls: int) -> None:
        integer("pulls", pulls, at_least=1)

    def precision(self, pulls: int) -> int:
        integer("pulls", pulls, at_least=1)
        return _FINE

    def bits(self, pulls: int) -> int:
        return self.precision(pulls).bit_length()

    def noise(self, pulls: int) -> None:
        integer("pulls", pulls, at_least=1)

    def release(
        self,
        encoded_sum: int,
        pulls: int,
        rng: Rng = SYSTEM,  # noqa: ARG002  # nothing is drawn where nothing is hidden
    ) -> ReleasedSum:
        return ReleasedSum(Fraction(self.checked(encoded_sum, pulls), _FINE))

    def guarantee(self, pulls: int) -> None:
        integer("pulls", pulls, at_least=1)

    def record(self, pulls: int, batch: str) -> None:  # noqa: ARG002  # there is no mechanism
        integer("pulls", pulls, at_least=1)

    @property
    def assumptions(self) -> tuple[str, ...]:
        return ()
