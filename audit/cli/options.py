r"""The options of ``dpcore audit``, made from the fields of :class:`audit.audit_spec.AuditSpec`."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import Field, fields, make_dataclass
from pathlib import Path
from typing import Any

from audit.audit_spec import AuditSpec, Option
from dpcore.cli.files import parse_json
from dpcore.cli.options import argument, named, option, with_fields
from dpcore.errors import InvalidParameter
from dpcore.spec_syntax import did_you_mean


class SpecOptions:
    r"""Options that are fields of a spec; :func:`with_spec` makes the class of each command."""

    def given(self) -> dict[str, Any]:
        r"""The values of the given options, by field."""
        return {name: value for name, value in vars(self).items() if value not in (None, False)}


def with_spec(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    r"""Decorate a command with the fields of these names as options; all fields if none is named.

    The command has them as its parameter ``options``, of type :class:`SpecOptions`.
    """
    taken = [each for each in fields(AuditSpec) if not names or each.name in names]
    options = [(each.name, *_option(each, panels=not names)) for each in taken]
    kind = make_dataclass("Options", options, bases=(SpecOptions,), kw_only=True)

    def made(command: Callable[..., None]) -> Callable[..., None]:
        command.__annotations__["options"] = kind
        return with_fields(command)

    return made


def spec_of(options: SpecOptions) -> AuditSpec:
    r"""The spec for the given options; errors name the options."""
    given = options.given()
    with named_by_options():
        if "pair" in given:
            given["pair"] = read_pair(given["pair"])
        return AuditSpec(**given)


def seed_of(spec: AuditSpec) -> int:
    r"""The seed of an audit; a random one if none is given."""
    return secrets.randbits(32) if spec.seed is None else spec.seed


def _option(field: Field[Any], *, panels: bool) -> tuple[Any, Any]:
    # The type of an option, and its declaration.
    stated: Option = field.metadata["option"]
    given = (stated.metavar, stated.help + _default(field))
    panel = {"rich_help_panel": stated.panel} if panels else {}
    if field.name == "target":
        return stated.kind | None, argument(*given, default=None)
    if field.default is False:
        return bool, option(*given, _name(field), default=False, **panel)
    typed = list[str] if field.default == () else stated.kind
    return typed | None, option(*given, *stated.names, **panel)


def _default(field: Field[Any]) -> str:
    # Only the help shows the default: an option that is not given may be set by --spec.
    default = field.default
    if default in (None, False, ()):
        return ""
    return f" (default: {default:g})" if isinstance(default, float) else f" (default: {default})"


def _name(field: Field[Any]) -> str:
    # Errors use the first name of an option, such as "-n" or "--allow-constant".
    short = [name for name in field.metadata["option"].names if name != "-j"]
    return short[0] if short else f"--{field.name.replace('_', '-')}"


def named_by_options() -> AbstractContextManager[None]:
    r"""Report errors about a field of a spec under the name of its option."""
    options = {each.name: _name(each) for each in fields(AuditSpec)}
    options |= {name.lstrip("-"): name for name in options.values()}  # such as feature
    within = {part: f"--claim: {part}" for part in ("epsilon", "delta")}
    return named(**options | within | {"target": "TARGET"})


def read_pair(texts: tuple[str, str]) -> tuple[Any, Any]:
    r"""Parse the datasets of --pair as JSON."""
    return _dataset("A", texts[0]), _dataset("B", texts[1])


def _dataset(name: str, text: str) -> Any:
    try:
        return parse_json(text)
    except ValueError as error:
        reason = f"must be JSON, such as 3, [1, 2] or '\"text\"' ({error})"
        raise InvalidParameter(f"--pair: dataset {name}", text, reason) from None


def read_spec(path: Path) -> dict[str, Any]:
    r"""Parse the fields of a file: TOML, or JSON if its name ends in ``.json``.

        target = "noisy.py:count"
        claim = "epsilon=1"
        pair = [0, 1]
        runs = 1e6

    File names are relative to the working folder, as on the command line.
    """
    from audit.targets.check_neighbours import read_document

    found = read_document("--spec", path)
    if not isinstance(found, dict):
        raise InvalidParameter("--spec", str(path), "must contain option names and values")
    known = [each.name for each in fields(AuditSpec)]
    for key in found:
        if key not in known:
            reason = f"{key} is unknown: {did_you_mean(key, known)}allowed are {', '.join(known)}"
            raise InvalidParameter("--spec", str(path), reason)
    if isinstance(found.get("pairs"), str):
        found["pairs"] = Path(found["pairs"])
    return found
