r"""The laws at every size of parameter, each with its second path: what the suite compares."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from dpcore import DiscreteGaussian, DiscreteLaplace, Noise
from tests.dpcore import second_path

Function = Callable[[Fraction, int], Any]
SECOND: dict[str, dict[str, Function]] = {
    "discrete-laplace": {
        "pmf": second_path.laplace_pmf,
        "log_pmf": second_path.laplace_log_pmf,
        "sf": second_path.laplace_sf,
        "cdf": lambda scale, k: second_path.laplace_sf(scale, -k - 1),
    },
    "discrete-gaussian": {
        "pmf": second_path.gaussian_pmf,
        "log_pmf": second_path.gaussian_log_pmf,
        "sf": second_path.gaussian_sf,
        "cdf": lambda variance, k: second_path.gaussian_sf(variance, -k - 1),
    },
}


def second(noise: Noise, function: str, k: int) -> Any:
    (value,) = noise.parameters.values()
    return SECOND[noise.name][function](Fraction(value), k)


def reach(noise: Noise) -> int:
    r"""About one standard deviation, at least 1."""
    (value,) = noise.parameters.values()
    if noise.name == "discrete-gaussian":
        return max(1, math.isqrt(math.ceil(value)))
    return max(1, math.ceil(value))


LAPLACES: list[Noise] = [
    DiscreteLaplace(scale=s) for s in ("1e-6", "1/50", "1/3", 1, 10, "1048576.3", 2**46, 2**80)
]
GAUSSIANS: list[Noise] = [
    DiscreteGaussian(sigma_squared=v)
    for v in (
        *("1e-12", "1/100", "1/4", "0.9999", 1, 2, "15.99", 16, "16.01", 401, "4095.99", 4096),
        *("4096.01", 10**6, 12582913, "4194304.3", 2**80, 2**92, 2**160),
    )
]
NOISES = LAPLACES + GAUSSIANS


def spelled(noise: Noise, k: int) -> bool:
    r"""Whether a mass at |k| + 1 is no smaller than about 2^-100000: a rational of some pages."""
    (value,) = map(Fraction, noise.parameters.values())
    out = abs(k) + 1
    return (out / value if noise.name == "discrete-laplace" else out * out / (2 * value)) < 60_000


def places(noise: Noise) -> list[int]:
    wide = reach(noise)
    near = [0, 1, 2, 3, 17]
    far = [wide * n // d for n, d in ((1, 3), (1, 1), (5, 2), (7, 1), (12, 1), (30, 1))]
    return sorted({sign * k for k in near + far for sign in (1, -1)})
