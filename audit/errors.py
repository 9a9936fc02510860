r"""Errors that an audited target can cause."""

from __future__ import annotations

from typing import ClassVar, Final

from audit.formats.shorten import shortened
from dpcore.cli.terminal import printable
from dpcore.errors import FAILED, DpcoreError

REPEATS: Final = 4
r"""The number of further runs on each dataset that show whether only one dataset fails."""


class Unreadable(Exception):
    r"""Raised if a call returned an object that an audit cannot compare with other outputs."""


class TargetFailed(DpcoreError):
    r"""Raised when the audited code did not return outputs; the message states the reason.

    ``dataset`` is "A" or "B", or None before any run. ``run`` is the number of the failed run,
    counted from 1 over both datasets, or None if unknown. ``reveals`` is True if the failure
    reveals the dataset: all of :data:`REPEATS` further runs on this dataset failed, and none of as
    many runs on the other dataset did. A command that raises this error ends with exit code 3.

    >>> raise TargetFailed("noisy.py:count", "raised KeyError: 'age'", dataset="B", run=17)
    Traceback (most recent call last):
    ...
    audit.errors.TargetFailed: noisy.py:count: raised KeyError: 'age' (dataset B, run 17)
    """

    exit_code: ClassVar[int] = FAILED

    def __init__(
        self,
        target: str,
        reason: str,
        *,
        dataset: str | None = None,
        run: int | None = None,
        reveals: bool = False,
    ) -> None:
        super().__init__(target, reason)
        self.target = target
        self.reason = printable(shortened(" ".join(reason.split())))
        self.dataset = dataset
        self.run = run
        self.reveals = reveals

    @property
    def sentence(self) -> str:
        r"""The reason of the failure, with the dataset and the run if they are known."""
        places = [f"dataset {self.dataset}"] if self.dataset else []
        places += [f"run {self.run:,}"] if self.run else []
        sentence = self.reason + (f" ({', '.join(places)})" if places else "")
        if not self.reveals:
            return sentence
        other = "B" if self.dataset == "A" else "A"
        sentence += f"; dataset {self.dataset} failed in {REPEATS} of {REPEATS} more runs, dataset "
        return sentence + f"{other} in none: the error itself reveals the dataset"

    def __str__(self) -> str:
        return f"{self.target}: {self.sentence}"
