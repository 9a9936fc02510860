r"""A release as data: noise, sensitivity, sampling scheme, neighbouring relation and group.

This module contains only data; :func:`accounting.derive_guarantee.guarantee` derives the guarantee.
The Python interface, the commands, events of dp-accounting, certificates and ledgers all use
:class:`Description`. For sampling schemes see :mod:`accounting.descriptions.sampling_schemes`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final, cast

from accounting.descriptions.real_noise import REAL_LAWS, Gaussian, RealNoise
from accounting.descriptions.sampling_schemes import (
    EVERYONE,
    SCHEMES,
    Everyone,
    Poisson,
    Scheme,
)
from dpcore.errors import InvalidParameter
from dpcore.local import FAMILIES, LocalReport, report_from_json
from dpcore.mechanism import Relation, Scope, Sensitivity, Unit
from dpcore.noise import Noise
from dpcore.numbers.parameter import Choice, Of, Whole, check_fields
from dpcore.parse_noise import (
    noise_from_json,
    sensitivity_from_json,
    write_noise,
    write_sensitivity,
)
from dpcore.spec_syntax import find_name

_ADDED, _REPLACED = Relation.ADD_REMOVE, Relation.REPLACE

GROUP_SAMPLED: Final = "group-sampled"
REAL_CURVE: Final = "real-curve"
LOCAL_REPORT: Final = "local-report"


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    r"""One release: noise added to a query of the units that participate under ``scheme``.

    One unit changes the query by up to ``sensitivity``. Neighbours differ in ``group`` units by
    ``relation``, by default the first relation in ``scheme.words``. With sampling, the sensitivity
    is that of adding a unit, except that with :class:`FixedSize` it is that of replacing a unit.

    ``noise`` may also be the local report of each user, shuffled or not. The relation must then be
    replace and the sensitivity 1, and the scope of the report is set to that of the description.

    >>> Description(noise=Gaussian(sigma=2), scheme=Poisson(rate="1/100"), group=3).text
    'gaussian:sigma=2 --sensitivity 1 --poisson 1/100 --group 3'

    Raises :class:`InvalidParameter` if a field has the wrong type, or if no bound is proven for the
    relation or the group size under the scheme.
    """

    noise: Noise | RealNoise | LocalReport
    sensitivity: Sensitivity | int = 1
    scheme: Of[Scheme] = Of(Scheme, "must be a Scheme", EVERYONE)
    relation: Relation | None = None
    unit: Choice[Unit] = Choice(Unit, Unit.CONTRIBUTION)
    group: Whole = Whole(1)

    def __post_init__(self) -> None:
        check_fields(self)
        if not isinstance(self.noise, _NOISES):
            must = f"must be a {' or a '.join(each.__name__ for each in _NOISES)}"
            raise InvalidParameter("noise", self.noise, must)
        object.__setattr__(self, "sensitivity", Sensitivity.of(self.sensitivity))
        usual, *_ = self.scheme.words
        chosen = usual if self.relation is None else self.relation
        scope = Scope(unit=self.unit, relation=chosen, group=self.group)
        object.__setattr__(self, "relation", scope.relation)
        for name, value, reason in self._unproven(scope.relation, usual):
            raise InvalidParameter(name, value, reason)
        if isinstance(self.noise, LocalReport):
            object.__setattr__(self, "noise", replace(self.noise, scope=scope))

    def _unproven(self, relation: Relation, usual: Relation) -> Iterator[tuple[str, object, str]]:
        # Yield the name and value of each unsupported field, and what is supported instead.
        scheme, gaussian = self.scheme, isinstance(self.noise, Gaussian)
        if relation not in scheme.words:
            yield "relation", relation.value, f"must be {usual.value}: {scheme.why}"
        if isinstance(self.noise, LocalReport):
            yield from self._unproven_of_reports(self.noise.scope.relation)
        elif scheme.reports:
            yield "scheme", scheme.text, f"applies to local reports only: {', '.join(FAMILIES)}"
        if isinstance(scheme, Poisson) and self.replaced and not self.real:
            must = (
                "must be add-remove with sampling, unless the noise is real-valued (gaussian or "
                "laplace)"
            )
            yield "relation", relation.value, must
        if scheme.gaussian and not gaussian:
            must = f"must be gaussian with the scheme {scheme.name}; no other noise is supported"
            yield "noise", write_noise(self.noise), must
        if self.group > 1 and relation not in scheme.grouped:
            kind = "replaced units of a sample" if self.replaced else f"{scheme.name} batches"
            must = f"must be 1: no bound is proven for larger groups with {kind}"
            yield "group", self.group, must
        if self.group > 1 and not scheme.everybody and not gaussian:
            yield "group", self.group, "must be 1 with sampling, unless the noise is gaussian"

    def _unproven_of_reports(self, own: Relation) -> Iterator[tuple[str, object, str]]:
        if self.scheme.reports is False:
            must = f"local reports need the scheme shuffled:users=N or {EVERYONE.name}, the default"
            yield "scheme", self.scheme.text, must
        for name, value, usual in (
            ("sensitivity", write_sensitivity(Sensitivity.of(self.sensitivity)), "1"),
            ("group", self.group, 1),
            ("relation", self.scope.relation.value, _REPLACED.value),
            ("relation", own.value, _REPLACED.value),
        ):
            if value != usual:
                yield name, value, f"must be {usual} for local reports"

    @property
    def real(self) -> bool:
        r"""Whether the noise is real-valued."""
        return isinstance(self.noise, RealNoise)

    @property
    def scope(self) -> Scope:
        relation = cast("Relation", self.relation)
        return Scope(unit=self.unit, relation=relation, group=self.group)

    @property
    def added(self) -> Relation:
        r"""The relation of the sensitivity: the scope's if ``scheme.whole``; add-remove if not."""
        return self.scope.relation if self.scheme.whole else _ADDED

    @property
    def replaced(self) -> bool:
        r"""Whether neighbours replace units but the sensitivity is that of adding one."""
        return self.scope.relation is not self.added

    @property
    def unsampled(self) -> Description:
        r"""The release without sampling, with a sensitivity that covers every change by one unit.

        In particular, replacing a unit changes the query up to twice as much as adding one.
        """
        times = self.scheme.most_moves * (2 if self.replaced else 1)
        moves = Sensitivity.of(self.sensitivity).times(times)
        if self.scheme.participations > 1:
            # The Gaussian noise of all rounds is treated as that of the coordinates of one release.
            moves = Sensitivity.l2_squared(self.scheme.participations * moves.squared)
        return replace(self, sensitivity=moves, scheme=EVERYONE)

    @property
    def moved(self) -> Sensitivity:
        r"""The sensitivity of the query to the whole group: ``group`` times ``sensitivity``."""
        return Sensitivity.of(self.sensitivity).times(self.group)

    @property
    def text(self) -> str:
        r"""The description as options of the ``dpcore`` commands."""
        moves = write_sensitivity(Sensitivity.of(self.sensitivity))
        if isinstance(self.noise, LocalReport):
            words = [self.noise.text]
        else:
            words = [f"{write_noise(self.noise)} --sensitivity {moves}"]
        if self.scheme.option:
            words.append(self.scheme.option)
        if self.relation is not next(iter(self.scheme.words)):
            words.append(f"--relation {self.scope.relation.value}")
        if self.group > 1:
            words.append(f"--group {self.group}")
        return " ".join(words)

    def to_json(self) -> dict[str, Any]:
        r"""All fields as JSON. ``claim`` depends on the noise, scheme, relation and group.

        >>> Description(noise=Gaussian(sigma=2), scheme=Poisson(rate="1/9")).to_json()["claim"]
        'poisson-sampled'
        """
        everyone = isinstance(self.scheme, Everyone)
        word = self.scheme.words[self.scope.relation]
        if isinstance(self.noise, LocalReport):
            of = {"claim": LOCAL_REPORT if everyone else word, "report": self.noise.to_json()}
            return of | self.scheme.parameters
        moves, group = (self.moved, self.group) if everyone else (self.sensitivity, 1)
        curve = {
            "claim": REAL_CURVE if self.real else Everyone.words[_REPLACED],
            "noise": self.noise.to_json(),
            "sensitivity": Sensitivity.of(moves).to_json(),
            "scope": replace(self.scope, relation=self.added, group=group).to_json(),
        }
        if everyone:
            return curve
        grouped = self.group > 1
        found: dict[str, Any] = {"claim": GROUP_SAMPLED if grouped else word}
        found |= self.scheme.parameters | ({"members": self.group} if grouped else {})
        if word in _OF_BOTH:
            found["relation"] = self.scope.relation.value
        return {**found, "curve": curve}


_NOISES: Final = (Noise, RealNoise, LocalReport)
_WORDS: Final[dict[str, tuple[type[Scheme], Relation]]] = {
    word: (kind, relation) for kind in SCHEMES for relation, word in kind.words.items()
} | {GROUP_SAMPLED: (Poisson, _ADDED), LOCAL_REPORT: (Everyone, _REPLACED)}
_CURVES: Final = ("curve", REAL_CURVE)
_OF_BOTH: Final = {
    word
    for kind in SCHEMES
    for word in kind.words.values()
    if [*kind.words.values()].count(word) > 1
}
r"""The names of schemes in JSON that do not determine the relation."""


def description_from_json(data: object) -> Description:
    r"""Parse the output of ``Description.to_json``, including that of earlier versions.

    >>> from accounting.descriptions.real_noise import Gaussian
    >>> sampled = Description(noise=Gaussian(sigma=2), scheme=Poisson(rate="1/9"), group=2)
    >>> description_from_json(sampled.to_json()) == sampled
    True

    Raises :class:`InvalidParameter` if a name is unknown, a field is missing or superfluous, or a
    value is out of range.
    """
    if not isinstance(data, Mapping):
        raise InvalidParameter("part", data, "must be a JSON object")
    word: Any = data.get("claim")
    kind, relation = find_name("claim", word, dict.fromkeys(_CURVES, _WORDS["curve"]) | _WORDS)
    own = {each.name for each in fields(kind)}
    if kind.reports or word == LOCAL_REPORT:
        given = {key: value for key, value in data.items() if key != "claim"}
        _check_names(word, given, {"report", *own})
        report = report_from_json(given.pop("report"))
        return Description(noise=report, scheme=kind(**given), unit=report.scope.unit)
    inner = data if word in _CURVES else data.get("curve")
    keys = ("claim", "noise", "sensitivity", "scope")
    if not isinstance(inner, Mapping) or set(inner) != {*keys} or inner["claim"] not in _CURVES:
        reason = f"must be an object with exactly the fields {', '.join(keys)}, and a known claim"
        raise InvalidParameter("curve", inner, reason)
    scope = Scope.from_json(inner["scope"])
    given = {"members": scope.group}
    if inner is not data:
        given = {key: value for key, value in data.items() if key != "claim"}
        more = {"curve"} | ({"members"} if word == GROUP_SAMPLED else set())
        _check_names(word, given, own | more | ({"relation"} if word in _OF_BOTH else set()))
        del given["curve"]
    group = given.pop("members", 1)
    between = given.pop("relation", scope.relation if inner is data else relation)
    if between is None:
        raise InvalidParameter("relation", between, f"must be {_ADDED.value} or {_REPLACED.value}")
    found = Description(
        noise=noise_from_json(inner["noise"], REAL_LAWS),
        sensitivity=sensitivity_from_json(inner["sensitivity"]).shared(scope.group),
        scheme=kind(**given),
        relation=between,
        unit=scope.unit,
        group=group,
    )
    if found.added is not scope.relation or scope.group not in (1, found.group):
        must = f"must have relation {found.added.value!r}, the relation of the stated sensitivity"
        raise InvalidParameter("scope", inner["scope"], must)
    return found


def _check_names(word: str, given: Mapping[str, Any], names: set[str]) -> None:
    if set(given) != names:
        reason = f"needs exactly the fields {', '.join(sorted(names))}"
        raise InvalidParameter("claim", word, reason)
