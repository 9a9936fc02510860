r"""What a run needs of any privatizer: how numbers are encoded, released, recorded and promised.

A *size* says which release it is: the number of users for a sum of one arm
(:class:`bandits.privatizers.privatizer.Privatizer`), users and coordinates for averages of several
actions (:class:`bandits.privatizers.averages.AveragePrivatizer`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeVar

from accounting.claims.guarantee import Guarantee
from bandits.batch import Ask, Encoding, ReleasedSum
from dpcore.mechanism import Release
from dpcore.numbers.parameter import RationalLike
from dpcore.sampling.rng import SYSTEM, Rng

__all__ = ["Releasing", "Size"]

Size = TypeVar("Size")


class Releasing(ABC, Generic[Size]):
    r"""Release what the users of an ask sent, summed over them and private."""

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
    def size_of(self, ask: Ask) -> Size:
        r"""Which release the users of ``ask`` are in.

        Raises :class:`InvalidParameter` for an ask of a kind that it cannot release.
        """

    def present(self, ask: Ask) -> Ask:
        r"""Those users of ``ask`` whose numbers are in the sums: all, unless some vanish."""
        return ask

    @abstractmethod
    def encoding(self, size: Size) -> Encoding:
        r"""How each user's number becomes an integer, before anything leaves the user."""

    @abstractmethod
    def bits(self, size: Size) -> int:
        r"""The length of all that one user sends."""

    @abstractmethod
    def release_sums(
        self, encoded: Sequence[int], size: Size, rng: Rng = SYSTEM
    ) -> tuple[ReleasedSum, ...]:
        r"""The released sums over users, in units of reward, one for each sum of encodings."""

    @abstractmethod
    def guarantee(self, size: Size) -> Guarantee | None:
        r"""What a release promises each user in it; None where nothing is promised."""

    @abstractmethod
    def assumed(self, size: Size) -> tuple[str, ...]:
        r"""All that this promise takes for granted beside the noise."""

    @abstractmethod
    def record(self, size: Size, batch: str) -> Release | None:
        r"""The record of one release; None where no mechanism says all that is seen."""
