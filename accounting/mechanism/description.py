r"""A release as data: noise, sensitivity, sampling scheme, neighbouring relation and group.

Nothing here computes: :func:`accounting.release.guarantee.guarantee` derives what a description
costs. Python, commands, events of dp-accounting, certificates and ledgers all build this one;
:func:`description_from_json` and :func:`read_scheme` read what :meth:`Description.to_json` and
:attr:`Scheme.text` write. A new scheme is a class here and a case in ``guarantee``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from fractions import Fraction
from shlex import quote
from typing import Any, ClassVar, Final, cast

from accounting.claims.claim import scope_from_json
from accounting.mechanism.real_noise import REAL_LAWS, Gaussian, RealNoise
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Relation, Scope, Sensitivity, Unit
from dpcore.noise import Noise
from dpcore.numbers.parameter import (
    Exact,
    RationalLike,
    make_integers,
    rational,
    rational_in,
    whole_number,
    write_rational,
)
from dpcore.spec import find_name, read_keys, split_name
from dpcore.spelling import noise_from_json, sensitivity_from_json, write_noise, write_sensitivity

_ADDED, _REPLACED = Relation.ADD_REMOVE, Relation.REPLACE


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    r"""Participation in a round. ``name`` is used in text, ``words`` in JSON, by relation.

    The relations are those that a bound is proven for, the first one by default; ``why`` explains
    the missing one. ``gaussian``: only for Gaussian noise on the reals.
    """

    name: ClassVar[str]
    words: ClassVar[dict[Relation, str]]
    why: ClassVar[str] = ""
    gaussian: ClassVar[bool] = False

    @property
    def everybody(self) -> bool:
        r"""Whether all units participate in every round."""
        if isinstance(self, FixedSize):
            return self.sample == self.population
        return isinstance(self, Everyone) or (isinstance(self, Poisson) and self.rate == 1)

    @property
    def text(self) -> str:
        r"""The scheme in the syntax of :func:`accounting.mechanism.description.read_scheme`.

        >>> FixedSize(sample=10, population=1000).text
        'fixed-size:sample=10,population=1000'
        """
        given = ",".join(f"{key}={_text(value)}" for key, value in self.parameters.items())
        return f"{self.name}:{given}" if given else self.name

    @property
    def parameters(self) -> dict[str, Any]:
        r"""The parameters for JSON."""
        return {each.name: _plain(getattr(self, each.name)) for each in fields(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Everyone(Scheme):
    r"""Every unit participates."""

    name: ClassVar[str] = "everyone"
    words: ClassVar[dict[Relation, str]] = {_REPLACED: "curve", _ADDED: "curve"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Poisson(Scheme):
    r"""Each unit participates independently, with probability ``rate`` in (0, 1]."""

    name: ClassVar[str] = "poisson"
    words: ClassVar[dict[Relation, str]] = {
        _ADDED: "poisson-sampled",
        _REPLACED: "poisson-replaced",
    }

    rate: Exact = Exact()

    def __post_init__(self) -> None:
        _check_rate(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedSize(Scheme):
    r"""A uniformly random subset of ``sample`` out of ``population`` units."""

    name: ClassVar[str] = "fixed-size"
    words: ClassVar[dict[Relation, str]] = {_REPLACED: "fixed-size-sampled"}
    why: ClassVar[str] = "such samples keep their size"

    sample: int
    population: int

    def __post_init__(self) -> None:
        make_integers(self, "population")
        make_integers(self, "sample", at_most=self.population)


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation(Scheme):
    r"""Each unit is in ``picks`` uniformly random rounds of the ``rounds`` of an epoch,
    independently.
    """

    name: ClassVar[str] = "allocated"
    words: ClassVar[dict[Relation, str]] = {_ADDED: "random-allocation"}
    why: ClassVar[str] = "an example in place of another one chooses its own batch"
    gaussian: ClassVar[bool] = True

    rounds: int
    picks: int = 1

    def __post_init__(self) -> None:
        make_integers(self, "rounds")
        make_integers(self, "picks", at_most=self.rounds)


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncatedPoisson(Scheme):
    r"""Poisson samples of ``examples`` units, truncated at random to at most ``most``."""

    name: ClassVar[str] = "truncated"
    words: ClassVar[dict[Relation, str]] = {
        _ADDED: "poisson-truncated",
        _REPLACED: "poisson-truncated",
    }
    gaussian: ClassVar[bool] = True

    rate: Exact = Exact()
    examples: int
    most: int

    def __post_init__(self) -> None:
        _check_rate(self)
        make_integers(self, "examples", "most")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shifts(Scheme):
    r"""The query moves by j times the sensitivity with probability ``weights[j]``."""

    name: ClassVar[str] = "shifts"
    words: ClassVar[dict[Relation, str]] = {_ADDED: "shift-sampled"}
    why: ClassVar[str] = "one dataset has the noise alone"
    gaussian: ClassVar[bool] = True

    weights: Sequence[RationalLike]

    def __post_init__(self) -> None:
        if not isinstance(self.weights, (list, tuple)):
            raise InvalidParameter("weights", self.weights, "must be a list of numbers")
        found = tuple(rational("weights", each) for each in self.weights)
        object.__setattr__(self, "weights", found)


EVERYONE: Final = Everyone()
SCHEMES: Final[tuple[type[Scheme], ...]] = (
    Everyone,
    Poisson,
    FixedSize,
    Allocation,
    TruncatedPoisson,
    Shifts,
)
r"""All of them."""

GROUP_SAMPLED: Final = "group-sampled"
REAL_CURVE: Final = "real-curve"


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    r"""One release: ``noise`` on a query that one unit moves by ``sensitivity``, under ``scheme``.

    Neighbours differ in ``group`` units, by ``relation``; None takes the first one of the scheme.
    Of a sample the sensitivity is that of a unit added, except of :class:`FixedSize`, whose units
    are replaced.

    >>> Description(noise=Gaussian(sigma=2), scheme=Poisson(rate="1/100"), group=3).text
    'gaussian:sigma=2 --sensitivity 1 --poisson 1/100 --group 3'

    Raises :class:`InvalidParameter` for fields of another type, and for a relation or a group that
    nothing is proven of under the scheme.
    """

    noise: Noise | RealNoise
    sensitivity: Sensitivity | int = 1
    scheme: Scheme = EVERYONE
    relation: Relation | None = None
    unit: Unit = Unit.CONTRIBUTION
    group: int = 1

    def __post_init__(self) -> None:
        for name, kind in (("noise", (Noise, RealNoise)), ("scheme", (Scheme,))):
            if not isinstance(getattr(self, name), kind):
                must = f"must be a {' or a '.join(each.__name__ for each in kind)}"
                raise InvalidParameter(name, getattr(self, name), must)
        object.__setattr__(self, "sensitivity", Sensitivity.of(self.sensitivity))
        make_integers(self, "group")
        usual, *_ = self.scheme.words
        scope = Scope(unit=self.unit, relation=self.relation or usual)
        object.__setattr__(self, "relation", scope.relation)
        object.__setattr__(self, "unit", scope.unit)
        for name, value, must in self._unproven(scope.relation, usual):
            raise InvalidParameter(name, value, f"must be {must}")

    def _unproven(self, relation: Relation, usual: Relation) -> Iterator[tuple[str, object, str]]:
        # What nothing is proven of: the field, its value, and what it must be.
        scheme, gaussian = self.scheme, isinstance(self.noise, Gaussian)
        if relation not in scheme.words:
            yield "relation", relation.value, f"{usual.value}: {scheme.why}"
        if isinstance(scheme, Poisson) and self.replaced and not self.real:
            must = "add-remove for samples, unless noise is gaussian or laplace, in floats"
            yield "relation", relation.value, must
        if scheme.gaussian and not gaussian:
            noise = write_noise(self.noise)
            yield "noise", noise, f"gaussian under the scheme {scheme.name}: else it is not known"
        if self.group > 1 and not isinstance(scheme, Everyone):
            if self.replaced or not isinstance(scheme, Poisson):
                kind = "replaced units of a sample" if self.replaced else f"{scheme.name} batches"
                yield "group", self.group, f"1: of {kind} no bound is proven for more"
            elif not scheme.everybody and not gaussian:
                yield "group", self.group, "1 for samples, unless the noise is gaussian"

    @property
    def real(self) -> bool:
        r"""Whether the noise is real-valued."""
        return isinstance(self.noise, RealNoise)

    @property
    def scope(self) -> Scope:
        r"""The scope of the guarantee."""
        return Scope(unit=self.unit, relation=cast("Relation", self.relation))

    @property
    def added(self) -> Relation:
        r"""The relation of the sensitivity; for samples, a unit is added."""
        whole = isinstance(self.scheme, (Everyone, FixedSize))
        return self.scope.relation if whole else _ADDED

    @property
    def replaced(self) -> bool:
        r"""Whether a unit may be replaced by one that moves the query equally far the other way."""
        return self.scope.relation is not self.added

    @property
    def unsampled(self) -> Description:
        r"""The release without sampling: replacing a unit then moves the query twice as far."""
        moves = Sensitivity.of(self.sensitivity).times(self.group * (2 if self.replaced else 1))
        return replace(self, sensitivity=moves, scheme=EVERYONE, group=1)

    @property
    def text(self) -> str:
        r"""The description in the syntax of the commands."""
        moves = write_sensitivity(Sensitivity.of(self.sensitivity))
        words = [f"{write_noise(self.noise)} --sensitivity {moves}"]
        if isinstance(self.scheme, Poisson):
            words.append(f"--poisson {self.scheme.rate}")
        elif not isinstance(self.scheme, Everyone):
            words.append(f"--scheme {quote(self.scheme.text)}")
        if self.relation is not next(iter(self.scheme.words)):
            words.append(f"--relation {self.scope.relation.value}")
        if self.group > 1:
            words.append(f"--group {self.group}")
        return " ".join(words)

    def to_json(self) -> dict[str, Any]:
        r"""All fields as JSON, numbers as exact text, named by scheme and relation.

        >>> Description(noise=Gaussian(sigma=2), scheme=Poisson(rate="1/9")).to_json()["claim"]
        'poisson-sampled'
        """
        everyone = isinstance(self.scheme, Everyone)
        moves = Sensitivity.of(self.sensitivity).times(self.group if everyone else 1)
        curve = {
            "claim": REAL_CURVE if self.real else Everyone.words[_REPLACED],
            "noise": self.noise.to_json(),
            "sensitivity": moves.to_json(),
            "scope": replace(self.scope, relation=self.added).to_json(),
        }
        if everyone:
            return curve
        grouped = self.group > 1
        found: dict[str, Any] = {
            "claim": GROUP_SAMPLED if grouped else self.scheme.words[self.scope.relation]
        }
        found |= self.scheme.parameters | ({"members": self.group} if grouped else {})
        if isinstance(self.scheme, TruncatedPoisson):
            found["relation"] = self.scope.relation.value
        return {**found, "curve": curve}


def _check_rate(scheme: Poisson | TruncatedPoisson) -> None:
    rate = rational_in("rate", scheme.rate, "(0, 1]", "it is a probability")
    object.__setattr__(scheme, "rate", rate)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return write_rational(value) if isinstance(value, Fraction) else value


def _text(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


_NAMES: Final = {kind.name: kind for kind in SCHEMES}
_WORDS: Final[dict[str, tuple[type[Scheme], Relation]]] = {
    word: (kind, relation) for kind in SCHEMES for relation, word in kind.words.items()
} | {GROUP_SAMPLED: (Poisson, Relation.ADD_REMOVE)}
_CURVES: Final = ("curve", REAL_CURVE)


def read_scheme(argument: str, text: str) -> Scheme:
    r"""Parse a sampling scheme: ``poisson:rate=1/100``, ``fixed-size:sample=10,population=1000``.

    >>> read_scheme("--scheme", "allocated:rounds=100")
    Allocation(rounds=100, picks=1)

    Raises :class:`InvalidParameter`, naming the argument.
    """
    name, rest = split_name(text)
    kind = find_name(argument, text, _NAMES, name=name)
    known = {each.name: each.type for each in fields(kind)}
    needed = [each.name for each in fields(kind) if each.default is MISSING]
    written = read_keys(argument, text, rest, known, owner=name, needed=needed)
    given: dict[str, Any] = {}
    for key, value in written.items():
        if known[key] == "int":
            given[key] = whole_number(argument, value)
        else:
            given[key] = value.split() if key == "weights" else value
    try:
        return kind(**given)
    except InvalidParameter as error:
        raise InvalidParameter(argument, text, f"{error.argument} {error.reason}") from None


def description_from_json(data: object) -> Description:
    r"""The inverse of ``Description.to_json``, also for earlier versions.

    >>> from accounting.mechanism.real_noise import Gaussian
    >>> asked = Description(noise=Gaussian(sigma=2), scheme=Poisson(rate="1/9"), group=2)
    >>> description_from_json(asked.to_json()) == asked
    True

    Raises :class:`InvalidParameter` for an unknown word, fields missing or left over, and values
    out of range.
    """
    if not isinstance(data, Mapping):
        raise InvalidParameter("part", data, "must be a JSON object")
    word = data.get("claim")
    if not isinstance(word, str) or word not in (*_WORDS, *_CURVES):
        known = ", ".join(dict.fromkeys((*_CURVES, *_WORDS)))
        raise InvalidParameter("claim", word, f"must be one of {known}")
    kind, relation = _WORDS["curve" if word in _CURVES else word]
    inner = data if word in _CURVES else data.get("curve")
    keys = ("claim", "noise", "sensitivity", "scope")
    if not isinstance(inner, Mapping) or set(inner) != {*keys} or inner["claim"] not in _CURVES:
        raise InvalidParameter("curve", inner, f"has the fields {', '.join(keys)}")
    scope = scope_from_json(inner["scope"])
    given: dict[str, Any] = {}
    if inner is not data:
        given = {key: value for key, value in data.items() if key not in ("claim", "curve")}
        names = {each.name for each in fields(kind)}
        names |= {"members"} if word == GROUP_SAMPLED else set()
        names |= {"relation"} if word == "poisson-truncated" else set()
        if set(given) != names:
            raise InvalidParameter(
                "claim", word, f"has the fields curve, {', '.join(sorted(names))}"
            )
    group = given.pop("members", 1)
    between = given.pop("relation", scope.relation if inner is data else relation)
    found = Description(
        noise=noise_from_json(inner["noise"], REAL_LAWS),
        sensitivity=sensitivity_from_json(inner["sensitivity"]),
        scheme=kind(**given),
        relation=between,
        unit=scope.unit,
        group=group,
    )
    if found.added is not scope.relation:
        must = f"must have the relation {found.added.value!r}: the sensitivity is one of it"
        raise InvalidParameter("scope", inner["scope"], must)
    return found
