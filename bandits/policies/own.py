r"""A policy of one's own, found by ``file.py:NAME`` or ``package.module:NAME``.

The file is imported into this process: a policy is trusted code, as one that ``play`` is given.
An audit makes it without arguments; a run gives it those of ``epsilon``, ``delta``, ``horizon``,
``arms`` and ``confidence`` that it has parameters for.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from bandits.policies.policy import Policy
from dpcore.errors import InvalidParameter

__all__ = ["is_own", "own_policy", "source_of"]


def is_own(name: str) -> bool:
    r"""Whether a name is that of a file or module, and of no algorithm.

    >>> is_own("mine.py:Policy"), is_own("my.bandits:Policy"), is_own("dist-rdp-se:s=10")
    (True, True, False)
    """
    place, colon, attribute = name.rpartition(":")
    module = place.endswith(".py") or all(part.isidentifier() for part in place.split("."))
    return bool(colon) and attribute.isidentifier() and module


def own_policy(
    spelling: str, name: str, argument: str = "target", given: Mapping[str, Any] | None = None
) -> Policy[Any]:
    r"""The policy that ``name`` is, or what it returns when it is called.

    It is called with those of ``given`` that it has parameters for; ``epsilon`` among them must be
    one. Errors name ``argument`` and its value, ``spelling``.

    Raises :class:`InvalidParameter` for a file, module or name that is not there, that fails, or
    that gives no :class:`bandits.Policy`.
    """
    place, _, attribute = name.rpartition(":")

    def refused(reason: str) -> InvalidParameter:
        return InvalidParameter(argument, spelling, reason)

    try:
        module = _from_file(refused, Path(place)) if place.endswith(".py") else _named(place)
        found = getattr(module, attribute)
        names = {} if isinstance(found, Policy) else _parameters(found)
        needed = [each for each, free in names.items() if not free and each not in (given or {})]
        if needed:
            hint = f"or name an instance, policy = {attribute}(...)"
            if given:
                hint = f"or one of the names that a run gives, {', '.join(given)}"
            raise refused(
                f"{name} cannot be made without {', '.join(needed)}: give each a default, as in "
                f"privatizer: Privatizer = field(default=SumPrivatizer(...)), {hint}"
            )
        if given and "epsilon" not in names and (isinstance(found, Policy) or callable(found)):
            raise refused(f"{name} must be made from epsilon: name a class or function that has it")
        own = {key: value for key, value in (given or {}).items() if key in names}
        made = found if isinstance(found, Policy) else found(**own)
    except InvalidParameter as error:
        if error.argument == argument:
            raise
        raise refused(f"{name} gives no policy: {error}") from error
    except Exception as error:
        raise refused(f"{name} gives no policy: {type(error).__name__}: {error}") from error
    if not isinstance(made, Policy):
        raise refused(f"{name} is a {type(made).__name__}, and must be or return a bandits.Policy")
    return made


def source_of(name: str) -> str:
    r"""The SHA-256 of the file that ``name`` is read from; empty where there is none.

    >>> source_of("lost.py:Policy")
    ''
    """
    place = name.rpartition(":")[0]
    path = Path(place)
    if not place.endswith(".py"):
        origin = getattr(_named(place), "__file__", None)
        path = Path(origin or "")
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def _parameters(maker: Any) -> dict[str, bool]:
    # Each parameter, and whether it has a default. An annotation alone takes the property of Policy
    # for one.
    try:
        given = inspect.signature(maker).parameters.values()
    except (TypeError, ValueError):  # not callable, or written in C: the call says what is wrong
        return {}
    free = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {
        one.name: not (one.default is one.empty or isinstance(one.default, property))
        for one in given
        if one.kind not in free
    }


def _named(module: str) -> ModuleType:
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.append(folder)
    return importlib.import_module(module)


def _from_file(refused: Callable[[str], InvalidParameter], path: Path) -> ModuleType:
    own = f"own_{path.stem}"
    spec = importlib.util.spec_from_file_location(own, path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise refused(f"there is no file {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[own] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[own]
        raise
    return module
