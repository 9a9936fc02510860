r"""Limit linear algebra on small matrices to one thread."""

from __future__ import annotations

from contextlib import AbstractContextManager


def one_thread() -> AbstractContextManager[object]:
    r"""A context in which BLAS runs in the calling thread.

    Several threads wait for each other longer than small matrices take, and a busy machine makes
    them wait longer still.
    """
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]  # it has no types

    found: AbstractContextManager[object] = threadpool_limits(1, user_api="blas")
    return found
