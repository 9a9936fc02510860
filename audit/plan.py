r"""What an audit sets out to do, fixed before anything is drawn."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from audit.claim import Claim
from audit.outputs import TRAINING
from audit.sequential import LOOKS
from dpcore.errors import InvalidParameter
from dpcore.parameter import RationalLike, integer, rational

__all__ = ["Plan"]

_LARGEST_BLOCK: Final = 8192
# A p-value below the floats is 0, and must not be taken for one below alpha.
_LEAST_ALPHA: Final = Fraction(1, 10**300)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    r"""What to test, and how far to go.

    ``runs`` over both worlds together: all of them, or with ``sequential`` at most so many.
    ``timeout`` seconds limit one call of the target, ``deadline`` seconds the drawing of runs.

    Raises :class:`InvalidParameter` for what is out of range.
    """

    claim: Claim
    pair: tuple[Any, Any]
    runs: int = 100_000
    sequential: bool = False
    alpha: RationalLike = "0.05"
    seed: int = 0
    timeout: float | None = 60.0
    deadline: float | None = None

    def __post_init__(self) -> None:
        integer("runs", self.runs, at_least=1)
        integer("seed", self.seed, at_least=0)
        alpha = rational("alpha", self.alpha)
        if not 0 < alpha < 1:
            raise InvalidParameter("alpha", self.alpha, "must be in (0, 1)")
        if alpha < _LEAST_ALPHA:
            raise InvalidParameter("alpha", self.alpha, "must be >= 1e-300")
        for name in ("timeout", "deadline"):
            seconds = getattr(self, name)
            if seconds is not None and not 0 < seconds < math.inf:
                raise InvalidParameter(name, seconds, "must be a finite number of seconds > 0")

    def blocks(self) -> Iterator[int]:
        r"""The sizes of the blocks, the first one for training; they depend on nothing drawn.

        >>> list(Plan(claim=Claim(epsilon=1), pair=(0, 1), runs=200).blocks())
        [32, 32, 64, 72]
        """
        drawn = 0
        looks = iter(LOOKS)
        while drawn < self.runs:
            end = next(looks) if self.sequential else 2 * drawn
            end = min(max(end, TRAINING), self.runs)
            while drawn < end:
                size = min(end - drawn, _LARGEST_BLOCK)
                yield size
                drawn += size
