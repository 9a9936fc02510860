r"""The exit codes of all commands, explained in docs/reference/exit_codes.md."""

from __future__ import annotations

from typing import Final

ANSWER: Final = 0
NEGATIVE_ANSWER: Final = 1
USAGE: Final = 2
FAILED: Final = 3
NO_ANSWER: Final = 4
DEFECT: Final = 70
INTERRUPTED: Final = 130
CLOSED_PIPE: Final = 141
