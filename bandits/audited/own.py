r"""A policy of one's own, found by ``file.py:NAME`` or ``package.module:NAME``.

The file is imported into this process: a policy is trusted code, as one that ``play`` is given.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from bandits.policies.policy import Policy
from dpcore.errors import InvalidParameter

__all__ = ["is_own", "own_policy"]


def is_own(name: str) -> bool:
    r"""Whether a name is that of a file or module, and of no algorithm.

    >>> is_own("mine.py:Policy"), is_own("my.bandits:Policy"), is_own("dist-rdp-se:s=10")
    (True, True, False)
    """
    place, colon, attribute = name.rpartition(":")
    return bool(colon) and attribute.isidentifier() and (place.endswith(".py") or "=" not in name)


def own_policy(spelling: str, name: str) -> Policy[Any]:
    r"""The policy that ``name`` is, or what it returns when it is called without arguments.

    Raises :class:`InvalidParameter` for a file, module or name that is not there, that fails, or
    that gives no :class:`bandits.Policy`.
    """
    place, _, attribute = name.rpartition(":")
    try:
        module = _from_file(spelling, Path(place)) if place.endswith(".py") else _named(place)
        found = getattr(module, attribute)
        needed = [] if isinstance(found, Policy) else _needed(found)
        if needed:
            reason = (
                f"{name} cannot be made without {', '.join(needed)}: give each a default, as in "
                f"privatizer: Privatizer = field(default=SumPrivatizer(...)), or name an instance, "
                f"policy = {attribute}(...)"
            )
            raise InvalidParameter("target", spelling, reason)
        made = found if isinstance(found, Policy) else found()
    except InvalidParameter:
        raise
    except Exception as error:
        reason = f"{name} gives no policy: {type(error).__name__}: {error}"
        raise InvalidParameter("target", spelling, reason) from error
    if not isinstance(made, Policy):
        reason = f"{name} is a {type(made).__name__}, and must be or return a bandits.Policy"
        raise InvalidParameter("target", spelling, reason)
    return made


def _needed(maker: Any) -> list[str]:
    # The parameters that have no default. An annotation alone takes the property of Policy for one.
    try:
        given = inspect.signature(maker).parameters.values()
    except (TypeError, ValueError):  # not callable, or written in C: the call says what is wrong
        return []
    free = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [
        one.name
        for one in given
        if (one.default is one.empty or isinstance(one.default, property)) and one.kind not in free
    ]


def _named(module: str) -> ModuleType:
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.append(folder)
    return importlib.import_module(module)


def _from_file(spelling: str, path: Path) -> ModuleType:
    own = f"audited_{path.stem}"
    spec = importlib.util.spec_from_file_location(own, path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise InvalidParameter("target", spelling, f"there is no file {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[own] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[own]
        raise
    return module
