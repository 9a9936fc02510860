r"""A signal that meets an integrand is what its caller sees, and the shell."""

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from flint import acb, arb

import dpcore
from dpcore.analysis.polya_integral import Integrand, integral

TIGHT = arb(2) ** -50
Integrate = Callable[[Integrand], acb]


def ours(f: Integrand) -> acb:
    return integral(f, arb(0), arb(1000), rel_tol=TIGHT, abs_tol=TIGHT)


def bare(f: Integrand) -> acb:
    return acb.integral(f, arb(0), arb(1000), rel_tol=TIGHT, abs_tol=TIGHT)


def interrupted(integrate: Integrate, after: float) -> type[BaseException] | None:
    r"""What leaves an integration that SIGINT meets ``after`` seconds from its start."""
    stop = time.monotonic() + 5
    ended: type[BaseException] | None = None
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, after)
    try:
        while time.monotonic() < stop:
            integrate(lambda z, _: z.exp().sin() * z)
    except (KeyboardInterrupt, SystemError) as error:
        ended = type(error)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return ended


def test_an_interrupt_leaves_an_integral_as_an_interrupt() -> None:
    # At many places of the integration: within the integrand, at its door, and between two calls.
    assert {interrupted(ours, 0.002 + 0.00013 * i) for i in range(60)} == {KeyboardInterrupt}
    assert SystemError in {interrupted(bare, 0.002 + 0.00013 * i) for i in range(20)}


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, ValueError, SystemError])
def test_what_the_integrand_raises_is_what_the_caller_sees(error: type[BaseException]) -> None:
    def f(z: acb, analytic: bool) -> acb:  # FLINT's own signature
        raise error("said here")

    with pytest.raises(error, match="said here"):
        ours(f)


def test_nothing_else_calls_flints_integral() -> None:
    root = Path(dpcore.__file__).parent.parent
    packages = ("dpcore", "accounting", "audit", "bandits")
    files = [file for package in packages for file in (root / package).rglob("*.py")]
    callers = [file.name for file in files if "acb.integral(" in file.read_text("utf-8")]
    assert callers == ["polya_integral.py"]
