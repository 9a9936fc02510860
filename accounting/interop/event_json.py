r"""Events of dp-accounting as plain data and JSON; parsing JSON does not need the library.

``{"class_name": "GaussianDpEvent", "noise_multiplier": 1.1}`` is an example; the fields are those
of the library. The name may also be under ``event`` if there is no inner event, and may omit the
suffix ``DpEvent``.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final

from accounting.interop.export_pld import library
from dpcore.cli.files import parse_json
from dpcore.errors import InvalidParameter
from dpcore.spec_syntax import did_you_mean

_NAMES: Final = ("class_name", "name", "type", "event")
_SUFFIX: Final = "DpEvent"
_DEEPEST: Final = 32
_ARGUMENT: Final = "event"
_EVENTS: Final[dict[str, tuple[str, ...]]] = {
    "ComposedDpEvent": ("events",),
    "DiscreteLaplaceDpEvent": ("noise_parameter", "sensitivity"),
    "GaussianDpEvent": ("noise_multiplier",),
    "LaplaceDpEvent": ("noise_multiplier",),
    "MixtureOfGaussiansDpEvent": ("standard_deviation", "sensitivities", "sampling_probs"),
    "NoOpDpEvent": (),
    "NonPrivateDpEvent": (),
    "PoissonSampledDpEvent": ("sampling_probability", "event"),
    "RandomizedResponseDpEvent": ("noise_parameter", "num_buckets"),
    "RepeatAndSelectDpEvent": ("event", "mean", "shape"),
    "SampledWithReplacementDpEvent": ("source_dataset_size", "sample_size", "event"),
    "SampledWithoutReplacementDpEvent": ("source_dataset_size", "sample_size", "event"),
    "SelfComposedDpEvent": ("event", "count"),
    "SingleEpochTreeAggregationDpEvent": ("noise_multiplier", "step_counts"),
    "TruncatedSubsampledGaussianDpEvent": (
        *("dataset_size", "sampling_probability", "truncated_batch_size", "noise_multiplier"),
    ),
    "UnsupportedDpEvent": (),
    "ZCDpEvent": ("rho", "xi"),
}
_DEFAULTS: Final = {"ZCDpEvent": {"xi": 0.0}}


class Event(SimpleNamespace):
    r"""An event: its ``class_name`` and its fields, including nested events."""

    def __repr__(self) -> str:
        given = ", ".join(f"{k}={v!r}" for k, v in vars(self).items() if k != "class_name")
        return f"{self.class_name}({given})"


def event_of(event: Any) -> Event:
    r"""Convert an event of dp-accounting to plain data."""
    if isinstance(event, Event):
        return event
    dp = library("dp_accounting.dp_event")
    if not isinstance(event, dp.DpEvent):
        raise InvalidParameter(_ARGUMENT, event, "must be a DpEvent of dp_accounting")
    names = [each.name for each in getattr(type(event), "__attrs_attrs__", ())]
    fields = {name: _each(getattr(event, name), event_of, dp.DpEvent) for name in names}
    return Event(class_name=type(event).__name__, **fields)


def event_to_json(event: Any) -> dict[str, Any]:
    r"""The fields of an event under its ``class_name``, for :func:`event_from_json`."""
    fields = vars(event_of(event)).items()
    return {name: _each(value, event_to_json, Event) for name, value in fields}


def event_from_json(text: str) -> Event:
    r"""Parse an event from a JSON document."""
    return _event(document_of(text), 0)


def document_of(text: str) -> Any:
    r"""Parse a JSON document; raises :class:`InvalidParameter` if it is invalid."""
    try:
        return parse_json(text, object_pairs_hook=_without_twins)
    except ValueError as error:
        raise InvalidParameter(_ARGUMENT, "...", f"must be a JSON document: {error}") from None


def _event(document: Any, depth: int) -> Event:
    if not isinstance(document, dict):
        raise InvalidParameter(_ARGUMENT, document, "must be an object with a class_name")
    if depth > _DEEPEST:
        raise InvalidParameter(_ARGUMENT, "...", f"must have at most {_DEEPEST} nested levels")
    given = {key: value for key, value in document.items() if key != "module_name"}
    place = next((key for key in _NAMES if isinstance(given.get(key), str)), None)
    if place is None:
        raise InvalidParameter(_ARGUMENT, document, 'must have a key "class_name"')
    name = given.pop(place)
    full = name if name.endswith(_SUFFIX) else name + _SUFFIX
    if full not in _EVENTS:
        hint = did_you_mean(name, [*_EVENTS, *(each.removesuffix(_SUFFIX) for each in _EVENTS)])
        must = f"must be the name of an event of dp_accounting: {', '.join(_EVENTS)}"
        raise InvalidParameter(_ARGUMENT, name, hint + must)
    known, takes = _EVENTS[full], ", ".join(sorted(_EVENTS[full]))
    given = {**_DEFAULTS.get(full, {}), **given}
    other = sorted(set(given) - {*known})
    if other:
        must = f"{name} takes {takes or 'no fields'}"
        raise InvalidParameter(_ARGUMENT, ", ".join(other), must)
    if set(given) != {*known}:
        raise InvalidParameter(_ARGUMENT, name, f"needs {takes}")
    fields = {key: _each(given[key], lambda inner: _event(inner, depth + 1), dict) for key in known}
    return Event(class_name=full, **fields)


def _each(value: Any, convert: Any, kind: type) -> Any:
    # The events in fields, and in lists in fields.
    if isinstance(value, kind):
        return convert(value)
    if isinstance(value, (list, tuple)):
        return [_each(one, convert, kind) for one in value]
    return value


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice[:40]!a} is given twice")
    return found
