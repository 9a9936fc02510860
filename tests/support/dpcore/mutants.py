r"""Mutants: the shipped code with one edit, or with some global names replaced."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from types import FunctionType
from typing import Any, cast


def rewired(original: Callable[..., Any], **stand_ins: Any) -> Callable[..., Any]:
    r"""Return the same code with some global names replaced, such as stubs of tested layers."""
    function = cast("FunctionType", original)
    missing = set(stand_ins) - set(function.__globals__)
    assert not missing, f"{function.__qualname__} has no {missing} to replace"
    made = FunctionType(
        function.__code__,
        {**function.__globals__, **stand_ins},
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def mutated(original: Callable[..., Any], old: str, new: str, **stand_ins: Any) -> Any:
    r"""Return the code of ``original`` with its only occurrence of ``old`` replaced by ``new``."""
    function = cast("FunctionType", original)
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(old) == 1, f"{old!r} must occur once in {function.__qualname__}"
    namespace = {**function.__globals__, **stand_ins}
    code = compile(source.replace(old, new), f"<mutant of {function.__qualname__}>", "exec")
    exec(code, namespace)  # noqa: S102 - running edited code is what a mutant is
    return namespace[function.__name__]
