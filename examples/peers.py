r"""Mechanisms of OpenDP and diffprivlib as targets of an audit.

    pip install 'dpcore[peers]'
    dpcore audit examples/peers.py:opendp_laplace --claim epsilon=1 --pair 0 1 -n 20000
    dpcore audit examples/peers.py:opendp_laplace --claim epsilon=0.8 --pair 0 1 -n 20000

The first claim is proven by OpenDP and is not refuted (exit code 0). The second is false and is
refuted (exit code 1). The same holds for the other targets, at their claims and at 0.8 of them.

OpenDP draws from the operating system's entropy and cannot be seeded, so an audit of it is not
reproducible bit for bit and its randomness cannot be replayed.
"""

from __future__ import annotations

from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]


def opendp_laplace(value: int, n: int, rng: np.random.Generator) -> Integers:
    r"""OpenDP's discrete Laplace noise of scale 1 on an integer of sensitivity 1: epsilon = 1."""
    del rng  # OpenDP has its own entropy
    return _each(laplace_measurement(), value, n)


def opendp_gaussian(value: int, n: int, rng: np.random.Generator) -> Integers:
    r"""OpenDP's discrete Gaussian noise of sigma = 1 on the same integer: rho = 1/2.

    It is (1.5, 0.0381)-DP: delta(1.5) = P(X >= 2) - e^1.5 P(X >= 3) = 0.03808..., rounded up.
    The privacy loss takes the values k + 1/2, and delta(epsilon) has a kink at each of them. Below
    1.5 it increases steeply (delta(1.2) = 0.106), so the claim of 0.8 times this epsilon at the
    same delta is far from true and few runs refute it.
    """
    del rng
    return _each(gaussian_measurement(), value, n)


def diffprivlib_geometric(value: int, n: int, rng: np.random.Generator) -> Integers:
    r"""diffprivlib's two-sided geometric noise at epsilon = 1, with one call per run."""
    mechanism = _load_diffprivlib().Geometric(
        epsilon=1.0, sensitivity=1, random_state=int(rng.integers(1 << 31))
    )
    return np.array([mechanism.randomise(value) for _ in range(n)], dtype=np.int64)


def _each(add_noise: Any, value: int, n: int) -> Integers:
    # A vector of n copies is n releases: every entry has its own noise.
    return np.array(add_noise([value] * n) if n else [], dtype=np.int64)


@cache
def laplace_measurement() -> Any:
    r"""A measurement of integers with discrete Laplace noise of scale 1; epsilon is ``.map(1)``."""
    dp = _load_opendp()
    domain = dp.vector_domain(dp.atom_domain(T=int))
    return dp.m.make_laplace(domain, dp.l1_distance(T=int), scale=1.0)


@cache
def gaussian_measurement() -> Any:
    r"""A measurement of integers with discrete Gaussian noise, sigma = 1; rho is ``.map(1.0)``."""
    dp = _load_opendp()
    domain = dp.vector_domain(dp.atom_domain(T=int))
    return dp.m.make_gaussian(domain, dp.l2_distance(T=float), scale=1.0)


def _load_opendp() -> ModuleType:
    try:
        import opendp.prelude as dp
    except ImportError as error:
        raise _missing("opendp") from error
    dp.enable_features("contrib")
    return dp


@cache
def _load_diffprivlib() -> ModuleType:
    try:
        from diffprivlib import mechanisms
    except ImportError as error:
        raise _missing("diffprivlib") from error
    module: ModuleType = mechanisms
    return module


def _missing(library: str) -> ImportError:
    return ImportError(f"{library} is not installed: run pip install 'dpcore[peers]'")
