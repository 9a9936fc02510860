r"""A command that computes too long says so, and leaves no clock behind."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dpcore.command import time_limit as module
from dpcore.command.time_limit import OutOfTime, time_limit
from tests.support.typed import typed


def busy(seconds: float) -> None:
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


def test_what_computes_too_long_is_ended_and_what_does_not_is_not() -> None:
    before = signal.getsignal(signal.SIGPROF)
    with pytest.raises(OutOfTime, match="no answer within 1 seconds"), time_limit(1):
        busy(3)
    with time_limit(5):
        busy(0.01)
    assert signal.getsignal(signal.SIGPROF) == before
    assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)


def test_a_command_has_an_end(capsys: pytest.CaptureFixture[str]) -> None:
    noise = ["--noise", "skellam:variance=400", "--rounds", "10"]
    answer = typed(capsys, "budget", "epsilon", *noise, "--delta", "1e-3999", "--within", "1")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("error: no answer within 1 seconds of computing")
    assert answer.err.count("\n") == 1


def test_draws_take_as_long_as_they_need_unless_told_otherwise(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[int] = []

    @contextmanager
    def noted(seconds: int) -> Iterator[None]:
        limits.append(seconds)
        yield

    monkeypatch.setattr(module, "time_limit", noted)
    noise = "discrete-laplace:scale=1"
    assert typed(capsys, "sample", noise).code == 0
    assert limits == []
    assert typed(capsys, "sample", noise, "--within", "7").code == 0
    assert typed(capsys, "pmf", noise, "0").code == 0
    assert limits == [7, 60]


@pytest.mark.parametrize("value", ["0", "-1", "1/2", "nan", "1e309", ""])
def test_an_end_is_a_whole_number_of_seconds(
    value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = typed(capsys, "pmf", "discrete-laplace:scale=1", "0", "--within", value)
    assert answer.code == 2
    assert answer.err.startswith("error: --within = ")
