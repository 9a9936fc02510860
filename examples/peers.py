r"""Mechanisms that other projects wrote, as targets of an audit.

    pip install 'dpcore[peers]'
    dpcore audit examples/peers.py:opendp_laplace --claim epsilon=1 --pair 0 1 -n 20000
    dpcore audit examples/peers.py:opendp_laplace --claim epsilon=0.8 --pair 0 1 -n 20000

The first is not refuted (exit 0): the library proves that much. The second is refuted (exit 1):
this much it does not keep. Likewise for the others, each at its own claim and at 0.8 of it.

OpenDP draws from the operating system's entropy and cannot be seeded: an audit of it does not
repeat bit for bit, and its randomness cannot be replayed.
"""

from __future__ import annotations

from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]


def opendp_laplace(value: int, n: int, rng: np.random.Generator) -> Integers:
    r"""OpenDP's discrete Laplace of scale 1 on an integer that moves by at most 1: epsilon = 1."""
    del rng  # OpenDP has its own entropy
    return _each(laplace_measurement(), value, n)


def opendp_gaussian(value: int, n: int, rng: np.random.Generator) -> Integers:
    r"""OpenDP's discrete Gaussian of sigma = 1 on the same integer: rho = 1/2, and exactly
    (1.5, 0.0381)-DP: delta(1.5) = P(X >= 2) - e^1.5 P(X >= 3) = 0.03808..., rounded up.

    Its privacy loss takes the values k + 1/2 and its curve delta(epsilon) bends at each. Below the
    bend at 1.5 it climbs steeply (delta(1.2) = 0.106), so that 0.8 times this epsilon at the same
    delta is far from true and few runs refute it.
    """
    del rng
    return _each(gaussian_measurement(), value, n)


def diffprivlib_geometric(value: int, n: int, rng: np.random.Generator) -> Integers:
    r"""diffprivlib's two-sided geometric at epsilon = 1, one call a run."""
    mechanism = _load_diffprivlib().Geometric(
        epsilon=1.0, sensitivity=1, random_state=int(rng.integers(1 << 31))
    )
    return np.array([mechanism.randomise(value) for _ in range(n)], dtype=np.int64)


def _each(add_noise: Any, value: int, n: int) -> Integers:
    # A vector of n copies is n releases: every entry gets a draw of its own.
    return np.array(add_noise([value] * n) if n else [], dtype=np.int64)


@cache
def laplace_measurement() -> Any:
    r"""A vector of integers plus discrete Laplace noise of scale 1; ``.map(1)`` is its epsilon."""
    dp = _load_opendp()
    domain = dp.vector_domain(dp.atom_domain(T=int))
    return dp.m.make_laplace(domain, dp.l1_distance(T=int), scale=1.0)


@cache
def gaussian_measurement() -> Any:
    r"""The same with discrete Gaussian noise of sigma = 1; ``.map(1.0)`` is its rho."""
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
    return ImportError(f"{library} is not installed here: pip install 'dpcore[peers]'")
