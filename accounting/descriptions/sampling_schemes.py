r"""Sampling schemes as data and text. A scheme determines the units that participate in a round.

A new scheme needs a class here and a case in :func:`accounting.derive_guarantee.guarantee`.
:func:`read_scheme` parses the output of :attr:`Scheme.text`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from shlex import quote
from typing import Any, ClassVar, Final

from dpcore.errors import InvalidParameter
from dpcore.mechanism import Relation
from dpcore.numbers.parameter import (
    Exact,
    RationalLike,
    Whole,
    check_fields,
    make_integers,
    rational,
    write_rational,
)
from dpcore.spec_syntax import read_spec

_ADDED, _REPLACED = Relation.ADD_REMOVE, Relation.REPLACE
_MOST_ROUNDS: Final = 10**6
_MOST_WEIGHTS: Final = 65


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    r"""A sampling scheme: it determines the units that participate in a round.

    Class attributes:

    - ``name``: the name of the scheme in text;
    - ``words``: its name in JSON for each relation with a proven bound, the default relation first;
    - ``why``: why no bound is supported for other relations;
    - ``grouped``: the relations with a proven bound for groups;
    - ``gaussian``: whether only real-valued Gaussian noise is supported;
    - ``reports``: True if the scheme supports only local reports, False if only noise, None
      if it supports both;
    - ``whole``: True if the sensitivity is that of a change under the relation, False if it is that
      of adding a unit.
    """

    name: ClassVar[str]
    words: ClassVar[dict[Relation, str]]
    why: ClassVar[str] = ""
    grouped: ClassVar[tuple[Relation, ...]] = ()
    gaussian: ClassVar[bool] = False
    reports: ClassVar[bool | None] = False
    whole: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def most_moves(self) -> int:
        r"""The largest change of the query by one unit, as a multiple of the sensitivity."""
        return 1

    @property
    def participations(self) -> int:
        r"""The number of rounds of one release in which a sampled unit takes part."""
        return 1

    @property
    def everybody(self) -> bool:
        r"""Whether all units participate in every round, so that privacy is not amplified."""
        return False

    @property
    def text(self) -> str:
        r"""The scheme in the syntax of :func:`read_scheme`.

        >>> FixedSize(sample=10, population=1000).text
        'fixed-size:sample=10,population=1000'
        """
        given = ",".join(f"{key}={_text(value)}" for key, value in self.parameters.items())
        return f"{self.name}:{given}" if given else self.name

    @property
    def option(self) -> str:
        r"""The scheme as an option of the commands."""
        return f"--scheme {quote(self.text)}"

    @property
    def parameters(self) -> dict[str, Any]:
        r"""The parameters for JSON, with rationals as text."""
        return {each.name: _plain(getattr(self, each.name)) for each in fields(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Everyone(Scheme):
    r"""Every unit participates."""

    name: ClassVar[str] = "everyone"
    words: ClassVar[dict[Relation, str]] = {_REPLACED: "curve", _ADDED: "curve"}
    grouped: ClassVar[tuple[Relation, ...]] = (_REPLACED, _ADDED)
    reports: ClassVar[bool | None] = None
    whole: ClassVar[bool] = True

    @property
    def everybody(self) -> bool:
        return True

    @property
    def option(self) -> str:
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Poisson(Scheme):
    r"""Each unit participates independently, with probability ``rate`` in (0, 1]."""

    name: ClassVar[str] = "poisson"
    words: ClassVar[dict[Relation, str]] = {
        _ADDED: "poisson-sampled",
        _REPLACED: "poisson-replaced",
    }
    grouped: ClassVar[tuple[Relation, ...]] = (_ADDED,)

    rate: Exact = Exact(within="(0, 1]", reason="it is a probability")

    @property
    def everybody(self) -> bool:
        return self.rate == 1

    @property
    def option(self) -> str:
        return f"--poisson {self.rate}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedSize(Scheme):
    r"""A uniformly random subset of ``sample`` units out of ``population``."""

    name: ClassVar[str] = "fixed-size"
    words: ClassVar[dict[Relation, str]] = {_REPLACED: "fixed-size-sampled"}
    why: ClassVar[str] = "the samples have a fixed size"
    whole: ClassVar[bool] = True

    sample: int
    population: int

    def __post_init__(self) -> None:
        make_integers(self, "population")
        make_integers(self, "sample", at_most=self.population)

    @property
    def everybody(self) -> bool:
        return self.sample == self.population

    @property
    def rate(self) -> Fraction:
        r"""The probability that a unit is in the sample."""
        return Fraction(self.sample, self.population)


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation(Scheme):
    r"""Each unit independently takes part in ``picks`` random rounds out of ``rounds`` rounds."""

    name: ClassVar[str] = "allocated"
    words: ClassVar[dict[Relation, str]] = {_ADDED: "random-allocation"}
    why: ClassVar[str] = "a replacement example chooses another batch"
    gaussian: ClassVar[bool] = True

    rounds: int
    picks: int = 1

    def __post_init__(self) -> None:
        make_integers(self, "rounds", at_most=_MOST_ROUNDS)
        make_integers(self, "picks", at_most=self.rounds)

    @property
    def participations(self) -> int:
        return self.picks

    @property
    def everybody(self) -> bool:
        return self.picks == self.rounds


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncatedPoisson(Scheme):
    r"""Poisson samples of ``examples`` units, reduced to a random subset of ``most`` if larger."""

    name: ClassVar[str] = "truncated"
    words: ClassVar[dict[Relation, str]] = {
        _ADDED: "poisson-truncated",
        _REPLACED: "poisson-truncated",
    }
    gaussian: ClassVar[bool] = True

    rate: Exact = Exact(within="(0, 1]", reason="it is a probability")
    examples: Whole = Whole()
    most: Whole = Whole()

    @property
    def most_moves(self) -> int:
        # In a full batch a sampled unit displaces another one.
        return 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Shifts(Scheme):
    r"""The query changes by j times the sensitivity with probability ``weights[j]``.

    There are 2 to 65 weights >= 0, with sum 1; the last one is > 0.
    """

    name: ClassVar[str] = "shifts"
    words: ClassVar[dict[Relation, str]] = {_ADDED: "shift-sampled"}
    why: ClassVar[str] = "one dataset gives the noise without a shift"
    gaussian: ClassVar[bool] = True

    weights: Sequence[RationalLike]

    def __post_init__(self) -> None:
        if not isinstance(self.weights, (list, tuple)):
            raise InvalidParameter("weights", self.weights, "must be a list of numbers")
        found = tuple(rational("weights", each) for each in self.weights)
        if not 2 <= len(found) <= _MOST_WEIGHTS or min(found) < 0 or not found[-1]:
            must = f"must contain 2 to {_MOST_WEIGHTS} numbers >= 0, the last one > 0"
            raise InvalidParameter("weights", self.weights, must)
        if sum(found) != 1:
            raise InvalidParameter("weights", self.weights, "must sum to 1")
        object.__setattr__(self, "weights", found)

    @property
    def most_moves(self) -> int:
        return len(self.weights) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Shuffled(Scheme):
    r"""The local reports of at least ``users`` users that follow the protocol, in random order."""

    name: ClassVar[str] = "shuffled"
    words: ClassVar[dict[Relation, str]] = {_REPLACED: "shuffled-reports"}
    why: ClassVar[str] = "a report shows that its user takes part"
    reports: ClassVar[bool | None] = True
    whole: ClassVar[bool] = True

    users: Whole = Whole(at_most=1 << 40)


EVERYONE: Final = Everyone()
SCHEMES: Final[tuple[type[Scheme], ...]] = (
    Everyone,
    Poisson,
    FixedSize,
    Allocation,
    TruncatedPoisson,
    Shifts,
    Shuffled,
)
r"""All sampling schemes."""


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return write_rational(value) if isinstance(value, Fraction) else value


def _text(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


_NAMES: Final = {kind.name: kind for kind in SCHEMES}


def read_scheme(argument: str, text: str) -> Scheme:
    r"""Parse a sampling scheme: ``poisson:rate=1/100``, ``fixed-size:sample=10,population=1000``.

    >>> read_scheme("--scheme", "allocated:rounds=100")
    Allocation(rounds=100, picks=1)

    Raises :class:`InvalidParameter` if the text is invalid; the message names ``argument``.
    """
    found, _ = read_spec(argument, text, _NAMES)
    return found
