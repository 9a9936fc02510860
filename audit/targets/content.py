r"""The digest of the code of a target."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from audit.targets.target import Target

__all__ = ["content_of", "source_of"]


def source_of(function: Callable[..., Any] | None) -> str | None:
    r"""The file that a function is written in; None for native code, which has no source.

    >>> source_of(len) is None
    True
    """
    try:
        return None if function is None else inspect.getsourcefile(inspect.unwrap(function))
    except TypeError:
        return None


def content_of(target: Target) -> str | None:
    r"""A digest of the file a target is written in, or None where there is none.

    Of a program: of the executable and of those arguments that name files. What a file imports or
    reads is not part of it.

    >>> from audit.targets.spelling import read_target
    >>> content_of(read_target("discrete-laplace:scale=1"))
    """
    from audit.targets.program import Program

    paths: list[str] = []
    if isinstance(target, Program):
        paths = [word for word in target.command if Path(target.folder, word).is_file()]
    else:
        name, _, _ = target.spelling.rpartition(":")
        own = name if target.named and name.endswith(".py") else None
        source = source_of(getattr(target, "function", None)) or getattr(target, "source", None)
        paths = [path for path in (own or source,) if path is not None]
    digest = hashlib.sha256()
    found = False
    for path in paths:
        with contextlib.suppress(OSError):
            with Path(target.folder, path).open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
            found = True
    return digest.hexdigest() if found else None
