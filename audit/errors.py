r"""Errors of an audited target: what it did instead of returning outputs."""

from __future__ import annotations

from typing import ClassVar

from audit.wording.shorten import shortened
from dpcore.command.terminal import printable
from dpcore.errors import DpcoreError

__all__ = ["TargetFailed", "Unreadable"]


class Unreadable(Exception):
    r"""A call returned something that outputs cannot be compared by."""


class TargetFailed(DpcoreError):
    r"""The audited code did not return outputs: what it did instead, and on which dataset.

    ``dataset`` is "A" or "B" (None before any run), ``run`` counts from 1 over both worlds where a
    single run is to blame. Exit code 3.

    >>> raise TargetFailed("noisy.py:count", "raised KeyError: 'age'", dataset="B", run=17)
    Traceback (most recent call last):
    ...
    audit.errors.TargetFailed: noisy.py:count: raised KeyError: 'age' (dataset B, run 17)
    """

    exit_code: ClassVar[int] = 3

    def __init__(
        self, target: str, reason: str, *, dataset: str | None = None, run: int | None = None
    ) -> None:
        super().__init__(target, reason)
        self.target = target
        self.reason = printable(shortened(" ".join(reason.split())))
        self.dataset = dataset
        self.run = run

    @property
    def told(self) -> str:
        r"""The reason, with its dataset and run where they are known."""
        places = [f"dataset {self.dataset}"] if self.dataset else []
        places += [f"run {self.run:,}"] if self.run else []
        return self.reason + (f" ({', '.join(places)})" if places else "")

    def __str__(self) -> str:
        return f"{self.target}: {self.told}"
