r"""How a piece of work in another process ended, as plain data: what it returned, or its error."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any, Final

from audit.errors import TargetFailed
from audit.outputs.guard import RAISED, failure
from dpcore.errors import ABSENT, InvalidParameter

_TRACED: Final = 1 << 14


def answered(name: str, work: Callable[[], object]) -> tuple[str, object]:
    r"""Do the work of the target ``name``: ("done", what it returns), or the kind of its error."""
    try:
        return "done", work()
    except InvalidParameter as error:
        given = None if error.value is ABSENT else str(error.value)
        return "refused", (error.argument, given, error.reason)
    except KeyboardInterrupt:
        return "interrupted", None
    except RAISED as error:
        if isinstance(error, TargetFailed):
            return "failed", told(error)
        failed = failure(name, error)
        failed.__cause__ = error
        return "failed", told(failed)


def result_of(name: str, kind: object, value: Any) -> Any:
    r"""What work returned that :func:`answered` did.

    >>> result_of("six", *answered("six", lambda: 2 * 3))
    6

    Raises :class:`InvalidParameter` and :class:`TargetFailed` as the work did.
    """
    match kind, value:
        case "done", _:
            return value
        case "refused", (str(argument), None | str() as given, str(reason)):
            raise InvalidParameter(argument, ABSENT if given is None else given, reason)
        case "failed", _:
            raise failed_of(value)
    raise TargetFailed(name, "raised KeyboardInterrupt")


def told(error: TargetFailed) -> tuple[Any, ...]:
    r"""The error as plain data, with its traceback for ``--debug``: it is of another process."""
    traced = "".join(traceback.format_exception(error))[-_TRACED:]
    return error.target, error.reason, error.dataset, error.run, traced


def failed_of(value: Any) -> TargetFailed:
    r"""The error that :func:`told` told."""
    match value:
        case (str(target), str(reason), dataset, run, str(traced)):
            failed = TargetFailed(target, reason, dataset=dataset, run=run)
            failed.add_note(f"where it runs:\n{traced}")
            return failed
    raise ValueError("no answer of a worker")
