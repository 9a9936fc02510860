r"""Events of dp-accounting as JSON, both ways: each a name and its fields, events inside events.

``{"event": "GaussianDpEvent", "noise_multiplier": 1.1}``; the field of an inner event keeps its own
name, ``event``, so there the name of the outer one is written ``class_name``, as in the library's
own named tuples.
"""

from __future__ import annotations

import json
from typing import Any, Final, NoReturn

from accounting.interop.distributions import library
from dpcore.errors import InvalidParameter
from dpcore.spec import did_you_mean

__all__ = ["event_from_json", "event_to_json"]

_NAMES: Final = ("class_name", "name", "type", "event")
_SUFFIX: Final = "DpEvent"
_DEEPEST: Final = 32
_ARGUMENT: Final = "event"


def event_to_json(event: Any) -> dict[str, Any]:
    r"""The fields of an event under its ``class_name``: what :func:`event_from_json` reads."""
    dp = library("dp_accounting.dp_event")
    if not isinstance(event, dp.DpEvent):
        raise InvalidParameter(_ARGUMENT, event, "must be a DpEvent of dp_accounting")
    fields = {each.name: _plain(dp, getattr(event, each.name)) for each in _fields(type(event))}
    return {"class_name": type(event).__name__, **fields}


def event_from_json(text: str) -> Any:
    r"""The event that a JSON document spells.

    Raises :class:`InvalidParameter` for text that is no JSON, names no event, or lacks a field of
    one or has another.
    """
    try:
        document = json.loads(text, parse_constant=_refused)
    except RecursionError:
        raise InvalidParameter(_ARGUMENT, "...", "must be a JSON document: too deep") from None
    except ValueError as error:
        raise InvalidParameter(_ARGUMENT, "...", f"must be a JSON document: {error}") from None
    return _event(library("dp_accounting.dp_event"), document, 0)


def _event(dp: Any, document: Any, depth: int) -> Any:
    if not isinstance(document, dict):
        raise InvalidParameter(_ARGUMENT, document, "must be an object with a class_name")
    if depth > _DEEPEST:
        raise InvalidParameter(_ARGUMENT, "...", f"must nest at most {_DEEPEST} deep")
    given = {key: value for key, value in document.items() if key != "module_name"}
    said = next((key for key in _NAMES if isinstance(given.get(key), str)), None)
    if said is None:
        raise InvalidParameter(_ARGUMENT, document, 'must name an event: "class_name": "..."')
    name = given.pop(said)
    kind = getattr(dp, name if name.endswith(_SUFFIX) else name + _SUFFIX, None)
    if not (isinstance(kind, type) and issubclass(kind, dp.DpEvent)) or kind is dp.DpEvent:
        known_names = sorted(each.__name__ for each in dp.DpEvent.__subclasses__())
        hint = did_you_mean(name, [*known_names, *(n.removesuffix(_SUFFIX) for n in known_names)])
        must = f"must be the name of an event of dp_accounting: {', '.join(known_names)}"
        raise InvalidParameter(_ARGUMENT, name, hint + must)
    known = {each.name for each in _fields(kind)}
    other = sorted(set(given) - known)
    if other:
        fields = ", ".join(sorted(known)) or "no fields"
        raise InvalidParameter(_ARGUMENT, ", ".join(other), f"{name} takes {fields}")
    try:
        return kind(**{key: _value(dp, value, depth) for key, value in given.items()})
    except TypeError:
        raise InvalidParameter(_ARGUMENT, name, f"needs {', '.join(sorted(known))}") from None


def _value(dp: Any, value: Any, depth: int) -> Any:
    if isinstance(value, dict):
        return _event(dp, value, depth + 1)
    return [_value(dp, each, depth) for each in value] if isinstance(value, list) else value


def _plain(dp: Any, value: Any) -> Any:
    if isinstance(value, dp.DpEvent):
        return event_to_json(value)
    return [_plain(dp, each) for each in value] if isinstance(value, (list, tuple)) else value


def _fields(kind: type) -> Any:
    return getattr(kind, "__attrs_attrs__", ())


def _refused(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number of JSON")
