r"""Parse arrays of integers, return results in the same shape, and limit numpy's threads."""

from __future__ import annotations

import math
import sys
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore.errors import InvalidParameter
from dpcore.numbers.floating import Floats
from dpcore.numbers.parameter import integer

IntegersLike = int | npt.NDArray[Any] | list[Any] | tuple[Any, ...]


def integers(k: IntegersLike) -> Integers:
    r"""Return ``k`` as a flat int64 array."""
    try:
        array = np.asarray(k)
    except ValueError:
        raise InvalidParameter("k", k, "must be an integer or an array of integers") from None
    if array.size == 0:
        return np.zeros(0, dtype=np.int64)
    if array.dtype.kind not in "iu":
        reason = (
            "must fit in int64; enclose_pmf, enclose_cdf and enclose_sf take any integer"
            if array.dtype.kind == "O"
            else "must be an integer or an array of integers"
        )
        raise InvalidParameter("k", k, reason)
    if array.dtype.kind == "u" and bool(np.any(array > np.uint64(2**63 - 1))):
        raise InvalidParameter("k", k, "must fit in int64")
    return array.astype(np.int64).reshape(-1)


def shaped(k: IntegersLike, values: Floats) -> float | Floats:
    r"""Reshape the flat ``values`` to the shape of ``k``; a float if ``k`` is a single integer."""
    shape = np.shape(k)
    return values.reshape(shape) if shape else float(values[0])


def shape_of(size: int | tuple[int, ...]) -> tuple[int, ...]:
    r"""Return ``size`` as a shape tuple."""
    parts = size if isinstance(size, tuple) else (size,)
    shape = tuple(integer("size", part, at_least=0) for part in parts)
    if math.prod(shape) >= 1 << 60 or max(shape, default=0) >= 1 << 60:
        raise InvalidParameter("size", size, "does not fit in memory")
    return shape


Integers = npt.NDArray[np.int64]


def one_thread() -> AbstractContextManager[object]:
    r"""Return a context in which BLAS runs in the calling thread.

    For small matrices, threads spend more time waiting than computing, especially on a busy
    machine.
    """
    # Finding the loaded libraries takes milliseconds; only an import can load another one.
    found: AbstractContextManager[object] = _libraries(len(sys.modules)).limit(limits=1)
    return found


@lru_cache(maxsize=1)
def _libraries(_modules: int) -> Any:
    from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]  # it has no types

    return ThreadpoolController().select(user_api="blas")
