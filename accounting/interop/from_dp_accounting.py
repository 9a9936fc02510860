r"""Read events of dp-accounting, as plain data or JSON, and convert them to guarantees.

Parsing JSON does not need the library. The fields are those of the library, e.g. ``{"class_name":
"GaussianDpEvent", "noise_multiplier": 1.1}``. The class name may omit the suffix ``DpEvent``. Its
key may also be ``name``, ``type``, or ``event`` if the value of ``event`` is text. Proofs:
docs/proofs/composition.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from importlib import import_module
from math import gcd, lcm
from types import SimpleNamespace
from typing import Any, Final, cast

from accounting.amplification.subsampling import MOST_MEMBERS, TruncatedSample
from accounting.composition.compose import Composition, compose
from accounting.derive_guarantee import guarantee
from accounting.descriptions.description import Description
from accounting.descriptions.real_noise import Gaussian, Laplace, RealNoise
from accounting.descriptions.sampling_schemes import (
    EVERYONE,
    FixedSize,
    Poisson,
    Scheme,
    Shifts,
    TruncatedPoisson,
)
from accounting.errors import NotDerived
from accounting.guarantees.guarantee import Guarantee
from accounting.guarantees.stated_guarantees import Approx, Assumed, Pure, Rdp, ZCdp
from accounting.privacy_curves.local_report_curve import ReportCurve
from accounting.privacy_curves.release_curve import described
from dpcore.cli.files import parse_json
from dpcore.errors import DpcoreError, InvalidParameter
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.mechanism import InScope, Relation, Scope, Sensitivity
from dpcore.noise import Noise
from dpcore.numbers.parameter import integer, positive_rational, rational, rational_in
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
_ORDERS: Final = tuple(
    # Orders from 1.02 to 10^4, close enough together for an error of at most 0.1%.
    sorted({1 + Fraction(round(256 * 1.1**k), 256) for k in range(-40, 100)})
)
_NEARLY_ONE: Final = Fraction(1, 10**9)
_ADD_REMOVE: Final = Scope(relation=Relation.ADD_REMOVE)


@dataclass(eq=False, repr=False)
class MissingExtra(DpcoreError):
    r"""A package of an optional extra is missing; the message names the extra to install."""

    package: str
    extra: str

    def __str__(self) -> str:
        return f"{self.package} is not installed: pip install 'dpcore[{self.extra}]'"


def library(name: str = "dp_accounting") -> Any:
    r"""Import the module ``name`` of dp-accounting; raises :class:`MissingExtra` without it."""
    try:
        return import_module(name)
    except ImportError as missing:
        raise MissingExtra("dp_accounting", "interop") from missing


# -- events as data ---------------------------------------------------------------------------


class Event(SimpleNamespace):
    r"""An event of dp-accounting as plain data: its ``class_name``, fields and nested events."""

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
    r"""The class name and the fields of an event, as read by :func:`event_from_json`."""
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
        raise InvalidParameter(_ARGUMENT, "...", f"must be nested at most {_DEEPEST} levels deep")
    given = {key: value for key, value in document.items() if key != "module_name"}
    place = next((key for key in _NAMES if isinstance(given.get(key), str)), None)
    if place is None:
        raise InvalidParameter(_ARGUMENT, document, 'must contain the key "class_name"')
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
        raise InvalidParameter(_ARGUMENT, name, f"requires {takes}")
    fields = {key: _each(given[key], lambda inner: _event(inner, depth + 1), dict) for key in known}
    return Event(class_name=full, **fields)


def _each(value: Any, convert: Any, kind: type) -> Any:
    # Converts the events in a field, also those in lists.
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


# -- guarantees of events ---------------------------------------------------------------------


def from_dp_event(event: Any, scope: Scope = _ADD_REMOVE) -> Composition:
    r"""Convert an event of dp-accounting to a composition under ``scope``.

    ``event`` is an event of the library, or the result of :func:`event_from_json`, which does not
    need the library. An event has no relation, so ``scope`` states it. The bounds in an event are
    for one record, so replacing a record changes a sum by twice as much.

    - A discrete Laplace event becomes an exact curve.
    - A Gaussian or Laplace event becomes the curve of real-valued noise, assuming ideal sampling.
    - A sampled event becomes an amplified curve. The dataset size of a truncated sample is the size
      of the larger dataset.
    - Randomised response becomes the curve of a local report.
    - A ``ZCDpEvent`` becomes an :class:`Assumed` claim.

    ``assumptions`` of the composition lists all assumptions. Raises :class:`NotDerived` if dpcore
    has no guarantee for the event.
    """
    one = InScope().read("scope", scope)
    return _read(event_of(event), one)


def _read(event: Event, scope: Scope) -> Composition:
    match event.class_name:
        case "SelfComposedDpEvent":
            count = integer("count", event.count, at_least=0)
            inner = _read(event.event, scope)
            return compose((inner, count)) if count else compose(Pure(0, scope=scope))
        case "ComposedDpEvent":
            parts = [_read(each, scope) for each in event.events]
            return compose(*parts) if parts else compose(Pure(0, scope=scope))
        case "PoissonSampledDpEvent" | "SampledWithoutReplacementDpEvent":
            return compose(_sampled(event, scope))
    return compose(_single(event, scope))


def _single(event: Event, scope: Scope) -> Guarantee:
    # The largest change of a sum of terms bounded by 1 due to one record.
    moves = 2 if scope.relation is Relation.REPLACE else 1
    match event.class_name:
        case "MixtureOfGaussiansDpEvent" if scope.relation is Relation.ADD_REMOVE:
            return _mixture(event, scope)
        case "NoOpDpEvent":
            return Pure(0, scope=scope)
        case "NonPrivateDpEvent":
            return Approx(0, 1, scope=scope)
        case "DiscreteLaplaceDpEvent" | "GaussianDpEvent" | "LaplaceDpEvent":
            return _noisy(event, moves, scope)
        case "RandomizedResponseDpEvent":
            return _response(event, scope)
        case "TruncatedSubsampledGaussianDpEvent":
            return _truncated(event, scope)
        case "SingleEpochTreeAggregationDpEvent" if scope.relation is Relation.REPLACE:
            return _tree(event, moves, scope)
        case "ZCDpEvent":
            return Assumed(_concentrated(event, scope), f"claimed by the event {event!r}")
    raise NotDerived(f"a guarantee from {event!r}", "there is no corresponding claim")


def _noisy(event: Event, moves: int, scope: Scope) -> Guarantee:
    whole = event.class_name == "DiscreteLaplaceDpEvent"
    name = "noise_parameter" if whole else "noise_multiplier"
    if getattr(event, name) == 0:
        return Approx(0, 1, scope=scope)
    size = _positive(name, getattr(event, name))
    if whole:
        moved = Sensitivity.l1(moves * integer("sensitivity", event.sensitivity))
        return _release(DiscreteLaplace(scale=1 / size), moved, scope)
    gaussian = event.class_name == "GaussianDpEvent"
    noise = Gaussian(sigma=size) if gaussian else Laplace(scale=size)
    return _release(noise, moves, scope)


def _release(
    noise: Noise | RealNoise, moves: Sensitivity | int, scope: Scope, scheme: Scheme = EVERYONE
) -> Guarantee:
    where: dict[str, Any] = {"relation": scope.relation, "unit": scope.unit}
    return guarantee(Description(noise=noise, sensitivity=moves, scheme=scheme, **where))


def _truncated(event: Event, scope: Scope) -> Guarantee:
    rate = rational_in("sampling_probability", event.sampling_probability, "[0, 1]")
    examples = integer("dataset_size", event.dataset_size, at_least=0)
    most = integer("truncated_batch_size", event.truncated_batch_size, at_least=0)
    if not (rate and examples and most):
        return Pure(0, scope=scope)
    bare = event.noise_multiplier == 0
    noise = Gaussian(sigma=1 if bare else _positive("noise_multiplier", event.noise_multiplier))
    scheme = TruncatedPoisson(rate=rate, examples=examples, most=most)
    found = _release(noise, 1, scope, scheme)
    # Without noise, every record in the truncated batch is revealed.
    return Approx(0, cast("TruncatedSample", found).kept.upper, scope=scope) if bare else found


def _mixture(event: Event, scope: Scope) -> Guarantee:
    # Shifts on a common grid; missing probability is given to the largest shift, which is safe.
    shifts = [rational("sensitivities", each) for each in event.sensitivities]
    chances = [rational_in("sampling_probs", each, "[0, 1]") for each in event.sampling_probs]
    if not shifts or len(shifts) != len(chances) or min(shifts) < 0:
        must = "must be numbers >= 0, one for each of sampling_probs"
        raise InvalidParameter("sensitivities", event.sensitivities, must)
    weights: dict[Fraction, Fraction] = {}
    for shift, chance in zip(shifts, chances, strict=True):
        weights[shift] = weights.get(shift, Fraction(0)) + chance
    missing = 1 - sum(chances)
    lacking = max(shifts) if missing > 0 else min(shifts)
    weights[lacking] += missing
    if abs(Fraction(missing)) > _NEARLY_ONE or weights[lacking] < 0:
        raise InvalidParameter("sampling_probs", event.sampling_probs, "must sum to 1")
    weights = {shift: chance for shift, chance in weights.items() if chance}
    if not max(weights):
        return Pure(0, scope=scope)
    if event.standard_deviation == 0:
        return Approx(0, 1 - weights.get(Fraction(0), Fraction(0)), scope=scope)
    scale = lcm(*(shift.denominator for shift in weights))
    step = Fraction(gcd(*(int(shift * scale) for shift in weights)), scale)
    most = int(max(weights) / step)
    if most > MOST_MEMBERS:
        reason = f"the sensitivities need more grid points than the limit of {MOST_MEMBERS}"
        raise NotDerived(f"a guarantee from {event!r}", reason)
    sigma = _positive("standard_deviation", event.standard_deviation)
    scheme = Shifts(weights=[weights.get(j * step, Fraction(0)) for j in range(most + 1)])
    return _release(Gaussian(sigma=sigma / step), 1, scope, scheme)


def _tree(event: Event, moves: int, scope: Scope) -> Guarantee:
    # A record is in one leaf of one tree, so it affects one node sum at each level of that tree.
    counts = event.step_counts if isinstance(event.step_counts, Iterable) else [event.step_counts]
    steps = [integer("step_counts", count, at_least=0) for count in counts]
    if not any(steps):
        raise InvalidParameter("step_counts", event.step_counts, "must contain at least one step")
    noise = Gaussian(sigma=_positive("noise_multiplier", event.noise_multiplier))
    moved = Sensitivity.l2_squared(max(steps).bit_length() * moves**2)
    return _release(noise, moved, scope)


def _concentrated(event: Event, scope: Scope) -> ZCdp | Rdp:
    rho, xi = rational("rho", event.rho), rational("xi", event.xi)
    if xi == 0:
        return ZCdp(rho, scope=scope)
    return Rdp([(order, xi + rho * order) for order in _ORDERS], scope=scope)


def _response(event: Event, scope: Scope) -> Guarantee:
    # The true bucket of k is reported with probability 1 - p + p/k, every other bucket with p/k.
    k = integer("num_buckets", event.num_buckets, at_least=1)
    p = rational_in("noise_parameter", event.noise_parameter, "[0, 1]")
    if scope.relation is not Relation.REPLACE:
        reason = "randomised response needs the replace-one relation"
        raise NotDerived(f"a guarantee from {event!r}", reason)
    if k == 1 or p == 1:
        return Pure(0, scope=scope)
    if p == 0:
        return Approx(0, 1, scope=scope)
    return ReportCurve(ratio=(1 - p) * k / p + 1, distance=1 - p, scope=scope)


def _sampled(event: Event, scope: Scope) -> Guarantee:
    poisson = event.class_name == "PoissonSampledDpEvent"
    # The sampled event is read under add-remove: under any relation, units are sampled
    # independently.
    alone = Scope(unit=scope.unit, relation=Relation.ADD_REMOVE) if poisson else scope
    inner = _read(event.event, alone)
    if poisson:
        rate = rational_in("sampling_probability", event.sampling_probability, "[0, 1]")
    else:
        sample = integer("sample_size", event.sample_size, at_least=0)
        population = integer("source_dataset_size", event.source_dataset_size, at_least=1)
        rate = Fraction(sample, population)
    if rate == 0 or inner.epsilon(0).upper == 0:
        return Pure(0, scope=scope)
    if reveals_all(inner):
        # Every sampled record is revealed.
        return Approx(0, min(rate, Fraction(1)), scope=scope)
    description = _one_round(inner)
    if description is None:
        reason = "sampling requires one round of one noise law, or rounds of Gaussian noise only"
        raise NotDerived(f"a guarantee from {event!r}", reason)
    if poisson and scope.relation is Relation.REPLACE and not description.real:
        reason = "under replace, Poisson sampling supports only real-valued noise"
        raise NotDerived(f"a guarantee from {event!r}", reason)
    scheme = Poisson(rate=rate) if poisson else FixedSize(sample=sample, population=population)
    return guarantee(replace(description, scheme=scheme, relation=scope.relation))


def reveals_all(total: Composition) -> bool:
    r"""Whether a part of ``total`` is a claim with delta = 1, so that all data may be revealed."""
    return any(isinstance(part, Approx) and part.stated_delta == 1 for part, _ in total.parts)


def _one_round(inner: Composition) -> Description | None:
    # The release that is sampled: one release, or Gaussian noise on any number of vectors, which is
    # Gaussian noise on one vector: the terms D^2/sigma^2 = 2 rho add up.
    listed = [(described(part), part, rounds) for part, rounds in inner.parts]
    first, _, times = listed[0]
    if first is None or any(one is None or one.scheme != EVERYONE for one, _, _ in listed):
        return None
    if len(listed) == 1 and times == 1:
        return first
    if not all(one is not None and isinstance(one.noise, Gaussian) for one, _, _ in listed):
        return None
    total = Fraction(sum(2 * rounds * Fraction(part.zcdp().upper) for _, part, rounds in listed))
    # The total N/M is N M/M^2: squared sensitivity N M and sigma M.
    moved = Sensitivity.l2_squared(total.numerator * total.denominator)
    return replace(first, noise=Gaussian(sigma=total.denominator), sensitivity=moved)


def _positive(argument: str, value: object) -> Fraction:
    return positive_rational(argument, value, "it scales the noise")


def refused_part(event: Any, scope: Scope) -> tuple[Any, DpcoreError] | None:
    r"""The first unsupported event in ``event``, with the reason; None if all are supported."""
    plain = event_of(event)
    inner = event.events if plain.class_name == "ComposedDpEvent" else []
    inner = [event.event] if plain.class_name == "SelfComposedDpEvent" else inner
    for each in inner:
        if (found := refused_part(each, scope)) is not None:
            return found
    try:
        _read(plain, scope)
    except DpcoreError as refusal:
        return event, refusal
    return None
