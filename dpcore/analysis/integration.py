r"""Certified integrals of a Python function, which can be interrupted.

FLINT calls the integrand from C, where an exception that is no ``Exception`` (Ctrl-C, an alarm's)
is not noticed: it stays set, every later call fails with a SystemError on top of it, and the last
of those is what the caller sees. Nothing but this file calls ``acb.integral``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from flint import acb, arb

Integrand: TypeAlias = Callable[[acb, bool], acb]
"""f(z, analytic): a ball around f on the ball z; where ``analytic``, one that is not finite unless
f is analytic on z."""


def integral(f: Integrand, start: arb, end: arb, *, rel_tol: arb, abs_tol: arb) -> acb:
    r"""A ball around the integral of ``f`` from ``start`` to ``end``, at the ambient precision.

    What ``f`` raises, or a signal's handler while it runs, is raised here.
    """
    raised: list[BaseException] = []

    def guarded(z: acb, analytic: bool) -> acb:  # noqa: FBT001 - FLINT's own signature
        # After an exception nothing is computed: zeros end the integration at once.
        if raised:
            return acb(0)
        try:
            return f(z, analytic)
        except BaseException as error:  # noqa: BLE001  # raised again below
            raised.append(error)
            return acb(0)

    try:
        found = acb.integral(guarded, start, end, rel_tol=rel_tol, abs_tol=abs_tol)
    except BaseException as error:  # noqa: BLE001  # raised again below
        raised.append(error)
    if raised:
        raise _first(raised[0])
    return found


def _first(error: BaseException) -> BaseException:
    # A handler that runs before the guard is entered is beyond its reach: its exception is what
    # the SystemError of the next call stands on.
    while isinstance(error, SystemError) and error.__cause__ is not None:
        error = error.__cause__
    return error
