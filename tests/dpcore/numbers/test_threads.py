"""One thread inside, as many as before outside."""

from __future__ import annotations

import numpy as np
import pytest
from threadpoolctl import (  # type: ignore[import-untyped]  # it has no types
    threadpool_info,
    threadpool_limits,
)

from dpcore.numbers.threads import one_thread


def threads() -> set[int]:
    np.ones((2, 2)) @ np.ones((2, 2))
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


def test_threads_are_as_many_as_before_afterwards() -> None:
    with threadpool_limits(2, user_api="blas"):
        before = threads()
        with one_thread():
            assert threads() == {1}
        assert threads() == before
        with pytest.raises(ZeroDivisionError), one_thread():
            raise ZeroDivisionError
        assert threads() == before
