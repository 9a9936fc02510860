r"""Import the file or module of a target, and look up its attribute.

Importing runs the user's code: an exception it raises is a failure of the target.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from audit.errors import TargetFailed
from audit.outputs.call_guard import failure
from dpcore.cli.imports import UserCode, clash_of


def load(spelling: str) -> Any:
    r"""Import the object given by ``module:name`` or ``file.py:name``."""

    def failed(error: BaseException, folder: Path) -> TargetFailed:
        reason = f"{failure(spelling, error).reason} while it was imported"
        if isinstance(error, (ImportError, AttributeError)) and (clash := clash_of(folder)):
            named = f"{folder / clash} has the name of one of dpcore's packages"
            reason += f" ({named}, which is used instead)"
        return TargetFailed(spelling, reason)

    code = UserCode(argument="target", spelling=spelling, prefix="audited", failed=failed)
    return code.load(spelling)
