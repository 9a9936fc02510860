r"""Source files of targets and features, and digests of targets."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from audit.features.parse_feature import FEATURES, Feature
from audit.targets.target import Target


def source_of(function: Callable[..., Any] | None) -> str | None:
    r"""The source file of a function; None for native code."""
    try:
        return None if function is None else inspect.getsourcefile(inspect.unwrap(function))
    except TypeError:
        return None


def content_of(target: Target) -> str | None:
    r"""A digest of the file of a target, or None if there is none.

    For a program, the digest covers the executable and the arguments that name files. Imported
    files and data files are not included.
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
    digests: list[bytes] = []
    for path in paths:
        with contextlib.suppress(OSError), Path(target.folder, path).open("rb") as file:
            digests.append(hashlib.file_digest(file, "sha256").digest())
    return hashlib.sha256(b"".join(digests)).hexdigest() if digests else None


def files_of(step: str, feature: Feature) -> list[str]:
    r"""The source files of a step of a feature; empty for a built-in step. For a map in a module,
    these are the file of the module and that of the function, which the module may have imported.
    """
    if step.partition(":")[0] in FEATURES:
        return []
    place, _, attribute = step.rpartition(":")
    if place.endswith(".py"):
        return [place]
    for applied in getattr(feature.apply, "steps", (feature.apply,)):
        # A map that runs in a sandbox states its source files.
        if getattr(applied, "spelling", None) == step and hasattr(applied, "sources"):
            return list(applied.sources)
    files: list[str | None] = []
    function: Any = feature.apply
    if (module := sys.modules.get(place)) is not None:
        files.append(getattr(module, "__file__", None))
        function = module
        for name in attribute.split("."):
            function = getattr(function, name, None)
    files.append(source_of(function))
    return [file for file in dict.fromkeys(files) if file is not None]
