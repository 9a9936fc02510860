r"""The plan of an audit, its claim and features read, fixed before anything is drawn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final

from audit.claims.claim import Claim
from audit.claims.looks import LOOKS, TRAINING
from audit.features.feature import Feature, beside_time
from dpcore.errors import InvalidParameter
from dpcore.numbers.parameter import RationalLike

if TYPE_CHECKING:
    from audit.claims.curve_claim import CurveClaim

__all__ = ["Plan", "Planned"]

_LARGEST_BLOCK: Final = 8192
# A block is a quarter of what came before it: several workers end at nearly the same time, and a
# target that starts a process for each block starts few.
_GROWTH: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    r"""Block ``index`` of an audit: ``runs`` of the pair at place ``pair``.

    ``drawn`` runs of all pairs come before it.
    """

    index: int
    pair: int
    runs: int
    drawn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    r"""What an audit tests, and how many runs it draws.

    ``runs`` over both worlds and all pairs together: all of them, or with ``sequential`` at most so
    many. ``others`` are further pairs, ``features`` what outputs are read through (the outputs
    themselves where empty, and their floating-point representation unless ``floats`` is "ignore").
    ``jobs`` processes draw, -1: one for each core; what is drawn does not depend on it.
    ``timeout`` seconds limit one call of the target, ``deadline`` seconds the drawing of runs.
    ``allow_constant`` accepts that every output is the same, in both worlds.

    Numbers are those of a validated :class:`audit.spec.AuditSpec`. Raises :class:`InvalidParameter`
    for fewer runs than pairs, and a feature that is given twice.
    """

    claim: Claim | CurveClaim
    pair: tuple[Any, Any]
    others: tuple[tuple[Any, Any], ...] = ()
    features: tuple[Feature, ...] = ()
    floats: str = "test"
    runs: int = 100_000
    sequential: bool = False
    alpha: RationalLike = "0.001"
    seed: int = 0
    jobs: int = 1
    timeout: float | None = 60.0
    deadline: float | None = None
    allow_constant: bool = False

    def __post_init__(self) -> None:
        if self.others and self.runs < len(self.pairs):
            reason = f"must be at least one for each of the {len(self.pairs)} pairs"
            raise InvalidParameter("runs", self.runs, reason)
        object.__setattr__(self, "features", beside_time(self.features))
        names = [feature.name for feature in self.features]
        for name in names:
            if names.count(name) > 1:
                raise InvalidParameter("features", name, "is given twice")

    @property
    def timed(self) -> bool:
        r"""Whether it is measured how long each call takes, for the feature ``time``."""
        return any(feature.of_time for feature in self.features)

    @property
    def pairs(self) -> tuple[tuple[Any, Any], ...]:
        r"""All pairs of datasets, in the order in which their blocks take turns."""
        return (self.pair, *self.others)

    def blocks(self) -> Iterator[Planned]:
        r"""The blocks, each pair's first one for training; they depend on nothing drawn.

        The pairs take turns and have equally many runs, up to one.

        >>> [block.runs for block in Plan(claim=Claim(epsilon=1), pair=(0, 1), runs=250).blocks()]
        [32, 32, 32, 32, 32, 40, 50]
        """
        share, rest = divmod(self.runs, len(self.pairs))
        rounds = zip_longest(*(self._sizes(share + (i < rest)) for i in range(len(self.pairs))))
        index = drawn = 0
        for sizes in rounds:
            for pair, size in enumerate(sizes):
                if size is not None:
                    yield Planned(index=index, pair=pair, runs=size, drawn=drawn)
                    index += 1
                    drawn += size

    def _sizes(self, runs: int) -> Iterator[int]:
        # Of the blocks of one pair.
        drawn = 0
        looks = iter(LOOKS)
        while drawn < runs:
            size = next(looks) - drawn if self.sequential else max(TRAINING, drawn // _GROWTH)
            end = min(drawn + size, runs)
            while drawn < end:
                part = min(end - drawn, _LARGEST_BLOCK)
                yield part
                drawn += part
