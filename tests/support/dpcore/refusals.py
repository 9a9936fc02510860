r"""Check refusals: an error of one line that names the argument, its value and the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from dpcore import DpcoreError, InvalidParameter


def refusal(act: Callable[[], object], kind: type[DpcoreError] = InvalidParameter) -> str:
    r"""Return the one line of the error; fails if no error was raised."""
    with pytest.raises(kind) as caught:
        act()
    line = str(caught.value)
    assert "\n" not in line
    assert line == line.strip()
    return line


@contextmanager
def refused(argument: str) -> Iterator[None]:
    r"""Check that the block is refused under the name of that argument."""
    with pytest.raises(InvalidParameter) as caught:
        yield
    assert caught.value.argument == argument


def names(line: str, argument: str, value: object = None) -> bool:
    head, _, reason = line.partition(": ")
    shown = "" if value is None else f"{value}"
    return head.startswith(f"{argument} = ") and shown in head and len(reason) > 5


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError


def ident(value: object) -> str:
    try:
        text = value if isinstance(value, str) else repr(value)
    except (RuntimeError, ValueError):
        return f"unprintable {type(value).__name__}"
    return f"{type(value).__name__} {text[:60]} {len(text)}"
