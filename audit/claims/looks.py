r"""The run counts at which a sequential audit tests its claim."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Final

_FIRST_LOOK: Final = 32
_LOOK_GROWTH: Final = Fraction(5, 4)
_MOST_RUNS: Final = 10**12


def _looks() -> tuple[int, ...]:
    found = [_FIRST_LOOK]
    while found[-1] < _MOST_RUNS:
        found.append(math.ceil(found[-1] * _LOOK_GROWTH))
    return tuple(found)


LOOKS: Final = _looks()
r"""The runs after which the rule is learned anew, fixed for ever: 32, 40, 50, 63, 79, 99, ..."""

TRAINING: Final = LOOKS[0]
r"""Both tests learn from the first runs, at least this many, and test none of them."""
