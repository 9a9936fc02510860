r"""A release as data: noise, sensitivity, sampling scheme, neighbouring relation and group.

Nothing here computes: :func:`accounting.release.guarantee.guarantee` derives what a description
costs. Python, commands, events of dp-accounting, certificates and ledgers all build this one, and
``parse`` reads what :meth:`Description.to_json`, :attr:`Description.text` and :attr:`Scheme.text`
write. A new scheme is a class here and a case in ``guarantee``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from shlex import quote
from typing import Any, ClassVar, Final, cast

from accounting.mechanism.real_noise import Gaussian, RealNoise
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Relation, Scope, Sensitivity, Unit
from dpcore.noise import Noise
from dpcore.numbers.parameter import (
    Exact,
    RationalLike,
    make_integers,
    rational,
    rational_in,
    write_rational,
)
from dpcore.spelling import write_noise, write_sensitivity

__all__ = [
    "EVERYONE",
    "SCHEMES",
    "Allocation",
    "Description",
    "Everyone",
    "FixedSize",
    "Poisson",
    "Scheme",
    "Shifts",
    "TruncatedPoisson",
]

_ADDED, _REPLACED = Relation.ADD_REMOVE, Relation.REPLACE


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    r"""Who takes part in a round. ``name`` is that of text, ``words`` those of JSON by relation.

    The relations are those that a bound is proven for, the first one by default; ``why`` explains
    the missing one. ``gaussian``: only for Gaussian noise on the reals.
    """

    name: ClassVar[str]
    words: ClassVar[dict[Relation, str]]
    why: ClassVar[str] = ""
    gaussian: ClassVar[bool] = False

    @property
    def everybody(self) -> bool:
        r"""Whether all units are in every round."""
        if isinstance(self, FixedSize):
            return self.sample == self.population
        return isinstance(self, Everyone) or (isinstance(self, Poisson) and self.rate == 1)

    @property
    def text(self) -> str:
        r"""As :func:`accounting.mechanism.parse.read_scheme` reads it.

        >>> FixedSize(sample=10, population=1000).text
        'fixed-size:sample=10,population=1000'
        """
        given = ",".join(f"{key}={_text(value)}" for key, value in self.parameters.items())
        return f"{self.name}:{given}" if given else self.name

    @property
    def parameters(self) -> dict[str, Any]:
        r"""The parameters as JSON has them."""
        return {each.name: _plain(getattr(self, each.name)) for each in fields(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Everyone(Scheme):
    r"""Everybody takes part in every round."""

    name: ClassVar[str] = "everyone"
    words: ClassVar[dict[Relation, str]] = {_REPLACED: "curve", _ADDED: "curve"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Poisson(Scheme):
    r"""Each unit by itself, with probability ``rate`` in (0, 1]."""

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
    r"""``sample`` of ``population`` units, every subset of that size equally likely."""

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
    r"""Each unit in ``picks`` uniformly random rounds of the ``rounds`` of an epoch, by itself."""

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
    r"""Poisson samples of ``examples`` units, cut at random where they hold more than ``most``."""

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
    r"""The query moves by j times the sensitivity with chance ``weights[j]``."""

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
        r"""Whether the noise is on the reals."""
        return isinstance(self.noise, RealNoise)

    @property
    def scope(self) -> Scope:
        r"""Between which datasets it is a promise."""
        return Scope(unit=self.unit, relation=cast("Relation", self.relation))

    @property
    def added(self) -> Relation:
        r"""The relation that the sensitivity is of: of samples, a unit is added."""
        whole = isinstance(self.scheme, (Everyone, FixedSize))
        return self.scope.relation if whole else _ADDED

    @property
    def replaced(self) -> bool:
        r"""Whether a unit may be replaced by one that moves the query the other way, as far."""
        return self.scope.relation is not self.added

    @property
    def unsampled(self) -> Description:
        r"""The same release with everybody in it: a replaced unit then moves the query twice."""
        moves = Sensitivity.of(self.sensitivity).times(self.group * (2 if self.replaced else 1))
        return replace(self, sensitivity=moves, scheme=EVERYONE, group=1)

    @property
    def text(self) -> str:
        r"""As a command spells it."""
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
        r"""All fields, numbers as exact text, under the word of scheme and relation.

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
