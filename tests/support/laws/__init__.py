r"""Reference implementations of every law, for the contract suite: one module and one line per law.

A module computes a law independently, by mpmath and plain sums, and imports no formula of dpcore:

    NAME     name of the law in specs
    ROWS     parameters as text: tiny, fractional, everyday, large (beyond one table)
    BEYOND   parameters whose batches could leave int64
    GRID     the noises at which floats and enclosures are compared with mpmath, with extremes
    pmf, log_pmf, sf (noise, k)         at the ambient ``mp.dps``, to a few units of it
    cdf                                 the same; omitted for a symmetric law: then k >= 0 in sf
    reach(noise)                        about one standard deviation, at least 1
    decay(noise, k)                     about -log P(|X| > |k|)

A module may also define this, if the general rule does not fit its law:

    smallest(noise, k)    about -log of the smallest of P(X = k), P(X <= k) and P(X > k)
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache
from typing import Any

import pytest
from mpmath import mp

from dpcore import Enclosure, InvalidParameter, Noise, read_noise
from tests.support.laws import (
    counted,
    discrete_gaussian,
    discrete_gaussian_sum,
    discrete_laplace,
    polya,
    polya_difference,
    skellam,
    staircase,
)


def _everyday(module: Any) -> str:
    # The row whose reach is closest to 10: fast for every function.
    rows = [f"{module.NAME}:{row}" for row in module.ROWS]
    return min(rows, key=lambda text: abs(math.log(module.reach(read_noise(text)) / 10)))


_MODULES: tuple[Any, ...] = (
    *(discrete_laplace, discrete_gaussian, discrete_gaussian_sum, staircase),
    *(skellam, polya, polya_difference, counted.POISSON, counted.BINOMIAL),
)
LAWS: dict[str, Any] = {module.NAME: module for module in _MODULES}
EXAMPLES = {name: module.ROWS for name, module in LAWS.items()}
SPELLED = [f"{name}:{row}" for name, rows in EXAMPLES.items() for row in rows]
EVERYDAY = {name: _everyday(module) for name, module in LAWS.items()}
BEYOND_INT64 = [f"{name}:{module.BEYOND}" for name, module in LAWS.items()]
NOISES: list[Noise] = [noise for module in LAWS.values() for noise in module.GRID]


def second(noise: Noise, function: str, k: int) -> Any:
    r"""``pmf``, ``log_pmf``, ``cdf`` or ``sf`` at k by the reference module, at ambient digits."""
    return _second(noise, function, k, mp.dps)


@cache
def _second(noise: Noise, function: str, k: int, _dps: int) -> Any:
    law: Any = LAWS[noise.name]
    if function == "cdf" and not hasattr(law, "cdf"):
        function, k = "sf", -k - 1
    if function == "sf" and k < 0 and not hasattr(law, "cdf"):
        return 1 - second(noise, "sf", -k - 1)
    return getattr(law, function)(noise, k)


def reach(noise: Noise) -> int:
    r"""About one standard deviation, at least 1."""
    return int(LAWS[noise.name].reach(noise))


def centre(noise: Noise) -> int:
    r"""Return an integer next to the mean: 0 for a symmetric law."""
    mean = noise.mean
    return round(Fraction(mean.lower) if isinstance(mean, Enclosure) else mean)


def spelled(noise: Noise, k: int) -> bool:
    r"""Whether all values at k exceed about 2^-100000: rationals of at most a few pages."""
    module = LAWS[noise.name]
    smallest = getattr(module, "smallest", None)
    if smallest is not None:
        return bool(smallest(noise, k) < 60_000)
    return bool(module.decay(noise, abs(k) + 1) < 60_000)


def places(noise: Noise) -> list[int]:
    r"""Return values next to 0 and to the mean, and on both sides up to thirty reaches."""
    middle, steps = centre(noise), ((1, 3), (1, 1), (5, 2), (7, 1), (12, 1), (30, 1))
    near, far = [0, 1, 2, 3, 17], [reach(noise) * n // d for n, d in steps]
    if reach(noise) >= WIDE:
        return sorted({0, middle, middle - far[3], middle + far[1], middle + far[5]})
    found = {middle + sign * k for k in near + far for sign in (1, -1)}
    return sorted({*found, -1, 0, 1})


WIDE = 100
r"""Laws of as many values cost a ball or a quadrature for each: they are looked at less often."""


def offers_floats(noise: Noise) -> bool:
    r"""Whether the float functions are available at these parameters."""
    try:
        noise.check_float_range()
    except InvalidParameter:
        return False
    return True


def _between(noises: list[Noise]) -> list[Noise]:
    wide = sorted((noise for noise in noises if reach(noise) >= WIDE), key=reach)
    return wide[1:-1]


def cases(noises: list[Noise], *, every: int = 1) -> list[Any]:
    r"""Return noises as test parameters: for wide laws only the first and the last.

    The others, and all but each ``every``-th of a law, run nightly.
    """
    found = []
    for name in LAWS:
        mine = [noise for noise in noises if noise.name == name]
        late = _between(mine)
        for place, noise in enumerate(mine):
            waits = noise in late or place % every
            found.append(pytest.param(noise, marks=pytest.mark.nightly) if waits else noise)
    return found


FLOAT_NOISES = [noise for noise in NOISES if offers_floats(noise)]
