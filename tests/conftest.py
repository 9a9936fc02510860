"""Settings of every test: a reproducible hypothesis, and one alpha budget, printed at the end."""

from __future__ import annotations

import gc
import os

import hypothesis
import pytest

from tests.alpha_budget import BUDGET
from tests.day_and_nightly import run_everything, waiting

# No deadline: the machine is shared. No database: a run depends only on the tree.
hypothesis.settings.register_profile(
    "repeatable", derandomize=True, deadline=None, database=None, max_examples=50
)
hypothesis.settings.register_profile(
    "nightly", hypothesis.settings.get_profile("repeatable"), max_examples=1000
)


_LATE = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    nightly = not config.getoption("markexpr")
    hypothesis.settings.load_profile("nightly" if nightly else "repeatable")
    run_everything(nightly)
    # Pages and commands are compared with the output of a terminal of fixed width, without colour.
    os.environ.update(COLUMNS="100", NO_COLOR="1", TERM="dumb")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    late = waiting(items)
    if late:
        config.hook.pytest_deselected(items=late)
        gone = {id(item) for item in late}
        items[:] = [item for item in items if id(item) not in gone]
    config.stash[_LATE] = len(late)


def pytest_collection_finish() -> None:
    gc.freeze()  # imported objects stay: the garbage collector need not traverse them again


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if late := config.stash.get(_LATE, 0):
        terminalreporter.line(f"{late} cases of long tests wait for the night: make nightly")
    terminalreporter.section("alpha budget")
    terminalreporter.line(BUDGET.statement())
