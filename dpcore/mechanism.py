r"""One release: noise, sensitivity, and scope.

A :class:`Mechanism` combines a noise distribution with the sensitivity of its query and the scope
of the guarantee. It states no epsilon: ``accounting.derive_guarantee`` derives the guarantee.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeAlias, overload

import numpy as np
import numpy.typing as npt

from dpcore.errors import InvalidParameter, Unrepresentable
from dpcore.noise import Noise
from dpcore.numbers.arrays import Integers, refuse_masked
from dpcore.numbers.parameter import Choice, Declared, Exact, Of, Whole, check_fields, integer, name
from dpcore.sampling.rng import SYSTEM, Rng

A_NOISE: Final = "must be a Noise, e.g. DiscreteLaplace"
A_SCOPE: Final = 'must be a Scope, such as Scope(unit="user", relation="add-remove")'
_ROOM: Final = (1 << 63) - (1 << 62)
_NO_ROOM: Final = (
    "value: an entry of absolute value >= 2^62 plus noise may exceed int64; release such values "
    "one by one as Python integers"
)
_Numbers: TypeAlias = npt.NDArray[np.integer[Any]] | Sequence[Any]


class Unit(Enum):
    r"""The unit of privacy: whose data differs between neighbouring datasets."""

    CONTRIBUTION = "contribution"
    USER = "user"


class Relation(Enum):
    r"""How neighbouring datasets differ: one unit replaced, or one added or removed."""

    REPLACE = "replace"
    ADD_REMOVE = "add-remove"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    r"""The scope of a guarantee. Guarantees of different scopes cannot be composed.

    Neighbouring datasets differ in ``group`` units: all of them are replaced, or each is added or
    removed.

    >>> Scope(), Scope(group=3)
    (Scope(unit='contribution', relation='replace'), Scope(..., group=3))
    >>> Scope(unit="user").to_json()
    {'unit': 'user', 'relation': 'replace'}
    """

    unit: Choice[Unit] = Choice(Unit, Unit.CONTRIBUTION)
    relation: Choice[Relation] = Choice(Relation, Relation.REPLACE)
    group: Whole = Whole(1)

    def __post_init__(self) -> None:
        check_fields(self)

    def __repr__(self) -> str:
        return f"Scope({', '.join(f'{key}={each!r}' for key, each in self.to_json().items())})"

    def to_json(self) -> dict[str, Any]:
        r"""The unit, the relation, and the group if it is not one unit, as a JSON object."""
        found: dict[str, Any] = {"unit": self.unit.value, "relation": self.relation.value}
        return found if self.group == 1 else {**found, "group": self.group}

    @classmethod
    def from_json(cls, data: object) -> Scope:
        if not isinstance(data, Mapping) or {*data, "group"} != {"unit", "relation", "group"}:
            must = "must contain the fields unit and relation, and for a group also group"
            raise InvalidParameter("scope", data, must)
        return cls(**data)


class InScope(Of[Scope]):
    r"""A field that must be a :class:`Scope`; ``groups=True`` allows a scope with ``group`` > 1."""

    def __init__(self, *, groups: bool = False) -> None:
        super().__init__(Scope, A_SCOPE, Scope())
        self._groups = groups

    def read(self, argument: str, value: object) -> Scope:
        scope = super().read(argument, value)
        if scope.group > 1 and not self._groups:
            must = "must have group=1; accounting.Description describes a release for a group"
            raise InvalidParameter(argument, scope, must)
        return scope


class Norm(Enum):
    r"""The norm that measures the distance between two query answers."""

    ABSOLUTE = "absolute"
    L1 = "l1"
    L2_SQUARED = "l2-squared"
    BOX = "box"


@dataclass(frozen=True, slots=True)
class Sensitivity:
    r"""The largest change of an integer query between neighbouring datasets.

    Let q and q' be the answers on two neighbouring datasets.

    ``Sensitivity(d)``: |q - q'| <= d, one number. ``Sensitivity.l1(d)``: sum_i |q_i - q'_i| <= d.
    ``Sensitivity.l2_squared(d)``: sum_i (q_i - q'_i)^2 <= d. ``Sensitivity.box((d_1, ...))``:
    |q_i - q'_i| <= d_i for every i. Amounts are integers >= 1: a query of sensitivity 0 needs no
    noise. A plain amount applies to one number, a box to an array with one bound per entry, l1 and
    l2 to an array of any shape.

    >>> Sensitivity(1), Sensitivity.box((1, 2))
    (Sensitivity(1), Sensitivity.box((1, 2)))
    """

    amount: int | tuple[int, ...]
    norm: Choice[Norm] = Choice(Norm, Norm.ABSOLUTE)

    def __post_init__(self) -> None:
        check_fields(self)
        amount: object = self.amount
        if self.norm is not Norm.BOX:
            amount = _moves(amount)
        elif isinstance(amount, tuple | list) and amount:
            amount = tuple(map(_moves, amount))
        else:
            raise InvalidParameter("sensitivity", amount, "must be a tuple of one or more bounds")
        object.__setattr__(self, "amount", amount)

    @classmethod
    def l1(cls, amount: int) -> Sensitivity:
        r"""The sensitivity bound sum_i |q_i - q'_i| <= ``amount``."""
        return cls(amount, Norm.L1)

    @classmethod
    def l2_squared(cls, amount: int) -> Sensitivity:
        r"""The sensitivity bound sum_i (q_i - q'_i)^2 <= ``amount``, the squared l2 sensitivity."""
        return cls(amount, Norm.L2_SQUARED)

    @classmethod
    def box(cls, bounds: tuple[int, ...]) -> Sensitivity:
        r"""The sensitivity bound |q_i - q'_i| <= ``bounds[i]`` for every coordinate i."""
        return cls(bounds, Norm.BOX)

    @classmethod
    def of(cls, value: Sensitivity | int) -> Sensitivity:
        r"""Return ``value``, with a plain integer converted to a one-number sensitivity.

        >>> Sensitivity.of(2)
        Sensitivity(2)
        """
        return value if isinstance(value, Sensitivity) else cls(value)

    @property
    def squared(self) -> int:
        r"""The squared l2 sensitivity: an upper bound on sum_i (q_i - q'_i)^2."""
        if isinstance(self.amount, tuple):
            return sum(bound * bound for bound in self.amount)
        return self.amount if self.norm is Norm.L2_SQUARED else self.amount**2

    def times(self, units: int) -> Sensitivity:
        r"""The sensitivity to a change of ``units`` units, in the same norm.

        >>> Sensitivity(2).times(3), Sensitivity.l2_squared(2).times(3)
        (Sensitivity(6), Sensitivity.l2_squared(18))
        """
        factor = self._factor(_moves(units))
        return self._each(lambda amount: factor * amount)

    def shared(self, units: int) -> Sensitivity:
        r"""The sensitivity to one unit, if ``self`` is the sensitivity to ``units`` units.

        >>> Sensitivity(6).shared(3), Sensitivity.l2_squared(2).times(3).shared(3)
        (Sensitivity(2), Sensitivity.l2_squared(2))

        Raises :class:`InvalidParameter` if an amount is not a multiple of ``units``, or, for a
        squared l2 sensitivity, of the square of ``units``.
        """
        factor = self._factor(units)

        def divided(amount: int) -> int:
            if amount % factor:
                must = f"must be a multiple of {factor}, for a group of {units} units"
                raise InvalidParameter("sensitivity", self, must)
            return amount // factor

        return self._each(divided)

    def _factor(self, units: int) -> int:
        return units * units if self.norm is Norm.L2_SQUARED else units

    def _each(self, change: Callable[[int], int]) -> Sensitivity:
        amount = self.amount
        changed = tuple(map(change, amount)) if isinstance(amount, tuple) else change(amount)
        return Sensitivity(changed, self.norm)

    def to_json(self) -> dict[str, Any]:
        r"""The norm and the amount as a JSON object; ``sensitivity_from_json`` parses it."""
        amount = list(self.amount) if isinstance(self.amount, tuple) else self.amount
        return {"norm": self.norm.value, "amount": amount}

    def __repr__(self) -> str:
        made = "" if self.norm is Norm.ABSOLUTE else f".{self.norm.name.lower()}"
        return f"Sensitivity{made}({self.amount})"


def _moves(amount: object) -> int:
    return integer("sensitivity", amount, at_least=1)


class Moved(Declared[Sensitivity | int, Sensitivity]):
    r"""A field that must be a :class:`Sensitivity`; a plain integer is converted to one."""

    def read(self, argument: str, value: object) -> Sensitivity:
        return value if isinstance(value, Sensitivity) else Sensitivity(integer(argument, value))


@dataclass(frozen=True, slots=True, kw_only=True)
class Mechanism:
    r"""Release an integer query plus noise: one independent draw for each coordinate.

    ``sensitivity`` may be given as a plain integer. The guarantee relies on the caller: under
    ``scope``, the query must not change by more than the declared sensitivity
    (``audit.assert_sensitivity`` tests this).

    >>> from dpcore import DiscreteLaplace
    >>> mechanism = Mechanism(noise=DiscreteLaplace(scale=10), sensitivity=1)
    >>> isinstance(mechanism.release(42), int)
    True

    Raises :class:`InvalidParameter` if the noise, sensitivity or scope has the wrong type.
    """

    noise: Of[Noise] = Of(Noise, A_NOISE)
    sensitivity: Moved = Moved()
    scope: InScope = InScope()

    def __post_init__(self) -> None:
        check_fields(self)

    @overload
    def release(self, value: int, *, rng: Rng = ...) -> int: ...
    @overload
    def release(self, value: _Numbers, *, rng: Rng = ...) -> Integers: ...
    def release(self, value: int | _Numbers, *, rng: Rng = SYSTEM) -> int | Integers:
        r"""Return ``value`` plus fresh noise: an int, or an int64 array with one draw per entry.

        An array may also be a list, a tuple, or a column of a table, such as a pandas Series.

        The value must fit the sensitivity: one number for ``Sensitivity(d)``, one entry per bound
        for a box, an array of any shape for l1 and l2. Several numbers that each change by d are
        several releases.

        A Python integer of any size is released exactly. Raises :class:`Unrepresentable`, before
        any draw, if an array entry has an absolute value of 2^62 or more, or if the noise of an
        array could exceed int64. Raises :class:`InvalidParameter` if the value is not made of
        integers, has masked entries, or has a shape that does not fit the sensitivity.

        >>> from dpcore import DiscreteLaplace
        >>> histogram = Mechanism(noise=DiscreteLaplace(scale=10), sensitivity=Sensitivity.l1(2))
        >>> histogram.release(np.array([100, 200, 300])).shape
        (3,)
        """
        if isinstance(value, list | tuple) or hasattr(value, "to_numpy"):
            value = _array(value)
        if not isinstance(value, np.ndarray):
            number = integer("value", value)
            self._must_fit(value, ())
            return number + self.noise.sample(rng=rng)
        if value.dtype.kind not in "iu":
            raise InvalidParameter(
                "value", value, "must contain integers; encode real numbers first"
            )
        refuse_masked("value", value)
        self._must_fit(value, value.shape)
        if value.size and not -_ROOM < int(value.min()) <= int(value.max()) < _ROOM:
            raise Unrepresentable(_NO_ROOM)
        noisy = self.noise.sample(value.shape, rng=rng)
        noisy += value.astype(np.int64)
        return noisy

    def _must_fit(self, value: object, shape: tuple[int, ...]) -> None:
        declared = self.sensitivity
        if isinstance(declared.amount, tuple):
            size = len(declared.amount)
            if shape != (size,) and (size, shape) != (1, ()):
                numbers = f"{size} number{'s' if size > 1 else ''} in one dimension"
                raise InvalidParameter(
                    "value", value, f"must be {numbers}: {declared!r} has one bound per number"
                )
        elif declared.norm is Norm.ABSOLUTE and shape:
            amount = declared.amount
            raise InvalidParameter(
                "value",
                value,
                f"must be one number, as in {declared!r}. For an array, use the sensitivity of "
                "the whole array: Sensitivity.l1(d), Sensitivity.l2_squared(d), or with a "
                f"bound for each entry Sensitivity.box(({amount}, ...))",
            )


def _array(value: Any) -> Any:
    # A column converts itself to an array. The entries of a list are checked one by one, because
    # True is not a number.
    if not isinstance(value, list | tuple):
        return value.to_numpy()
    numbers = np.array(value, dtype=object)
    read = [integer("value", each) for each in numbers.flat]
    if any(not -_ROOM < each < _ROOM for each in read):
        raise Unrepresentable(_NO_ROOM)
    return np.array(read, dtype=np.int64).reshape(numbers.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    r"""The record of one release: its mechanism, batch, participants and honest fraction.

    ``honest`` is the fraction of the planned noise that honest parties actually added (1 for
    central or local noise). The noise of ``mechanism`` is already reduced to this fraction: do not
    apply ``honest`` again. Accounting, ledgers, certificates and protocol runs use this record.

    >>> from dpcore import DiscreteLaplace
    >>> mechanism = Mechanism(noise=DiscreteLaplace(scale=10), sensitivity=1)
    >>> Release(mechanism=mechanism, batch="2026-11-21").honest
    Fraction(1, 1)
    """

    mechanism: Of[Mechanism] = Of(Mechanism, "must be a Mechanism")
    batch: str
    participants: tuple[str, ...] = ()
    honest: Exact = Exact(1, within="(0, 1]")

    def __post_init__(self) -> None:
        check_fields(self)
        object.__setattr__(self, "batch", name("batch", self.batch))
        given = self.participants
        if not isinstance(given, (tuple, list)):
            raise InvalidParameter("participants", given, "must be a tuple of names")
        named = tuple(name("participants", one) for one in given)
        object.__setattr__(self, "participants", named)
        if len(set(self.participants)) != len(self.participants):
            raise InvalidParameter("participants", self.participants, "must not contain duplicates")
