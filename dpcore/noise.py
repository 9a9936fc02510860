r"""Base classes of noise laws on the integers with exact rational parameters.

A law is an immutable value. Its mass, distribution function and quantiles are available as float64
with a stated relative error and as proven enclosures, and its draws are exact. This file contains
the shared code, and ``dpcore.laws`` one file per law. To add a law, subclass :class:`Noise` (or
:class:`SymmetricNoise`) and implement the abstract methods; CONTRIBUTING.md lists where to register
the law.
"""

from __future__ import annotations

import math
from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from fractions import Fraction
from functools import cache, lru_cache, partial
from typing import Any, ClassVar, Final, Protocol, Self, overload, runtime_checkable

import numpy as np
import numpy.typing as npt
from flint import arb

from dpcore.analysis.law_floats import by_runs, sizes
from dpcore.errors import ABSENT, InvalidParameter, PrecisionExhausted, Unrepresentable
from dpcore.forks import HERE
from dpcore.numbers.arrays import Floats, Integers, IntegersLike, integers, shape_of, shaped
from dpcore.numbers.enclosure import Enclosure, narrow, round_up
from dpcore.numbers.integer_search import least
from dpcore.numbers.parameter import check_fields, integer, write_rational
from dpcore.sampling.inversion import Batch
from dpcore.sampling.rng import SERVED, SYSTEM, Reservoir, Rng, SystemRng
from dpcore.spec_syntax import parameter_meant

FLOAT_ERROR: Final = 1e-13
"""The largest relative error of the float64 functions for values above 1e-300."""

_LARGEST_DRAW: Final = 1 << 62
_FINEST: Final = 1 << 20
_TELLING: Final = 1 << 14
_NEGLIGIBLE: Final = Fraction(1, 1 << 100)


@dataclass(frozen=True, slots=True)
class Covered:
    r"""The range ``least`` <= ``quantity`` <= ``most`` that the float64 functions of a law cover.

    ``quantity`` is the name of an attribute of the law. Error messages report the parameter
    ``argument``, and write the quantity as ``written``; both are by default ``quantity``.
    """

    quantity: str
    least: str
    most: str
    argument: str = ""
    written: str = ""

    def check(self, law: object) -> None:
        r"""Raise :class:`InvalidParameter` if the quantity of ``law`` is outside the range."""
        if not _power(self.least) <= getattr(law, self.quantity) <= _power(self.most):
            argument = self.argument or self.quantity
            covered = f"{self.least} <= {self.written or self.quantity} <= {self.most}"
            reason = (
                f"the float functions cover {covered}; use enclose_pmf, enclose_cdf and enclose_sf"
            )
            raise InvalidParameter(argument, getattr(law, argument), reason)


@cache
def _power(text: str) -> Fraction:
    base, _, exponent = text.partition("^")
    return Fraction(base) ** int(exponent or 1)


class LawType(ABCMeta):
    r"""The metaclass of laws: wrong parameter names raise :class:`InvalidParameter`.

    >>> from dpcore import DiscreteGaussian
    >>> DiscreteGaussian(sigma=20)
    Traceback (most recent call last):
    ...
    dpcore.errors.InvalidParameter: sigma = 20: DiscreteGaussian needs sigma_squared= (sigma^2)
    """

    def __call__(cls, *values: Any, **given: Any) -> Any:
        try:
            return super().__call__(*values, **given)
        except TypeError:
            error = _misnamed(cls, values, given)
            if error is None:
                raise
            raise error from None


def _misnamed(
    law: Any, values: tuple[object, ...], given: Mapping[str, object]
) -> InvalidParameter | None:
    names = tuple(each.name for each in fields(law) if each.init)
    takes = f"{law.__name__} needs {', '.join(f'{name}=' for name in names)}"
    if values:
        return InvalidParameter(law.__name__, values, f"parameters are given by name: {takes}")
    for key, value in given.items():
        if key not in names:
            try:
                meant, power = parameter_meant(key, names)
            except InvalidParameter:
                return InvalidParameter(key, value, takes)
            here = f" ({key}^{power})" if power > 1 else ""
            return InvalidParameter(key, value, f"{law.__name__} needs {meant}={here}")
    needed = (each.name for each in fields(law) if each.init and each.default is MISSING)
    missing = next((name for name in needed if name not in given), None)
    return None if missing is None else InvalidParameter(missing, ABSENT, f"must be given: {takes}")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Noise(metaclass=LawType):
    r"""A noise law on the integers; a subclass implements the abstract methods.

    Below, X is one draw. A ball is an interval (``arb`` of python-flint) that contains the stated
    number, and is computed at the current precision (:func:`dpcore.numbers.enclosure.precision`).
    """

    name: ClassVar[str]
    r"""The name of the law in commands and files, e.g. ``"discrete-laplace"``."""
    symmetric: ClassVar[bool] = False
    r"""Whether P(X = k) = P(X = -k) for all k, for every parameter."""

    floats: ClassVar[tuple[Covered, ...]]
    r"""The parameter ranges in which the float64 functions are available."""

    _ahead: Reservoir = field(init=False, repr=False, compare=False, default_factory=Reservoir)

    def __post_init__(self) -> None:
        check_fields(self)

    @abstractmethod
    def pmf_ball(self, k: int) -> arb:
        r"""P(X = k) for every integer k, as a ball."""

    @abstractmethod
    def cdf_ball(self, k: int) -> arb:
        r"""P(X <= k) for every integer k, as a ball."""

    @abstractmethod
    def sf_ball(self, k: int) -> arb:
        r"""P(X > k) for every integer k, as a ball of small relative width."""

    def tail_ball(self, t: int) -> arb:
        r"""P(|X| > t) for t >= 0, as a ball."""
        return self.sf_ball(t) + self.cdf_ball(-t - 1)

    @property
    def log_concave(self) -> bool:
        r"""Whether the law is proven log-concave: P(X = k)^2 >= P(X = k-1) P(X = k+1) for all k."""
        return False

    @property
    @abstractmethod
    def mean(self) -> Fraction | Enclosure:
        r"""The mean E[X], exact if rational, otherwise enclosed to 128 bits."""

    @property
    @abstractmethod
    def variance(self) -> Fraction | Enclosure:
        r"""The variance Var[X], exact if rational, otherwise enclosed to 128 bits."""

    @abstractmethod
    def sample_reference(self, rng: Rng) -> int:
        r"""Draw one value exactly, in integer arithmetic: the reference for the batch sampler."""

    @abstractmethod
    def build_batch(self) -> Batch:
        r"""Build the batch sampler of this law; called once per parameter set and cached."""

    def masses(self, first: int, last: int) -> list[arb]:
        r"""P(X = k) for k = ``first``, ..., ``last``, as balls."""
        return [self.pmf_ball(k) for k in range(first, last + 1)]

    @abstractmethod
    def _log_pmf(self, k: Integers) -> Floats: ...

    # The next three methods are for a law on 0, 1, 2, ...; other laws override them.

    def _pmf(self, k: Integers) -> Floats:
        return by_runs(self, k, "pmf")

    def _cdf(self, k: Integers) -> Floats:
        return by_runs(self, k, "cdf")

    def _sf(self, k: Integers) -> Floats:
        return by_runs(self, k, "sf")

    @abstractmethod
    def _quantile_guess(self, p: Floats) -> Integers:
        r"""Guess the p-quantiles, usually within a few units; the caller certifies them."""

    def check_float_range(self) -> None:
        r"""Raise :class:`InvalidParameter` if the float64 functions do not cover the parameters."""
        for covered in self.floats:
            covered.check(self)

    @overload
    def pmf(self, k: int) -> float: ...
    @overload
    def pmf(self, k: npt.NDArray[Any] | list[Any] | tuple[Any, ...]) -> Floats: ...
    def pmf(self, k: IntegersLike) -> float | Floats:
        r"""P(X = k) as float64; values above 1e-300 have relative error <= 1e-13.

        ``k`` may have any shape.
        """
        self.check_float_range()
        return shaped(k, self._pmf(integers(k)))

    @overload
    def log_pmf(self, k: int) -> float: ...
    @overload
    def log_pmf(self, k: npt.NDArray[Any] | list[Any] | tuple[Any, ...]) -> Floats: ...
    def log_pmf(self, k: IntegersLike) -> float | Floats:
        r"""log P(X = k) as float64 with relative error <= 1e-13, even for P(X = k) < 1e-300."""
        self.check_float_range()
        return shaped(k, self._log_pmf(integers(k)))

    @overload
    def cdf(self, k: int) -> float: ...
    @overload
    def cdf(self, k: npt.NDArray[Any] | list[Any] | tuple[Any, ...]) -> Floats: ...
    def cdf(self, k: IntegersLike) -> float | Floats:
        r"""P(X <= k) as float64; values above 1e-300 have relative error <= 1e-13."""
        self.check_float_range()
        return shaped(k, self._cdf(integers(k)))

    @overload
    def sf(self, k: int) -> float: ...
    @overload
    def sf(self, k: npt.NDArray[Any] | list[Any] | tuple[Any, ...]) -> Floats: ...
    def sf(self, k: IntegersLike) -> float | Floats:
        r"""P(X > k) as float64; values above 1e-300 have relative error <= 1e-13."""
        self.check_float_range()
        return shaped(k, self._sf(integers(k)))

    def quantile(self, p: float | Fraction | npt.ArrayLike) -> int | Integers:
        r"""The smallest k with P(X <= k) >= p, decided exactly for the exact rational value of p.

        ``p`` lies in (0, 1): a float (read as its exact binary value), a Fraction, or an array of
        floats. Returns an int, or an int64 array of the same shape.
        """
        self.check_float_range()
        if isinstance(p, Fraction):
            if not 0 < p < 1:
                raise InvalidParameter("p", p, "must lie strictly between 0 and 1")
            inside = min(max(float(p), 5e-324), math.nextafter(1.0, 0.0))
            return self._settle(int(self._quantile_guess(np.array([inside]))[0]), p)
        try:
            levels = np.asarray(p)
        except ValueError:  # rows of different lengths
            levels = np.asarray(None)
        if levels.dtype.kind not in "iuf":
            raise InvalidParameter("p", p, "must be a number or an array of numbers")
        levels = levels.astype(np.float64)
        if not bool(np.all((levels > 0) & (levels < 1))):
            raise InvalidParameter("p", p, "must lie strictly between 0 and 1")
        found = self._quantile(levels.reshape(-1)).reshape(levels.shape)
        return found if levels.shape else int(found)

    def _quantile(self, levels: Floats) -> Integers:
        k = self._quantile_guess(levels)
        # k is the quantile iff F(k) >= p > F(k-1). Floats decide only by margins that cover the
        # error of both sides; enclosures decide the other cases.
        enough = self._excess(k, levels, 2 * FLOAT_ERROR) >= 0
        short = self._excess(k - 1, levels, -2 * FLOAT_ERROR) < 0
        for place in np.flatnonzero(~(enough & short & (levels > 1e-290))):
            k[place] = self._settle(int(k[place]), Fraction(float(levels[place])))
        return k

    def _excess(self, k: Integers, levels: Floats, error: float) -> Floats:
        # F(k) - p, lowered by a relative error of the smaller tail; 1 - p is exact for p >= 1/2.
        low = self._cdf(k) * (1 - error) - levels
        high = 1 - levels - self._sf(k) * (1 + error)
        return np.where(levels < 0.5, low, high)

    def _settle(self, guess: int, p: Fraction) -> int:
        return least(lambda k: self._reaches(k, p), guess)

    def _reaches(self, k: int, p: Fraction) -> bool:
        bits, small = 128, p < Fraction(1, 2)
        while True:
            value = self.enclose_cdf(k, bits) if small else self.enclose_sf(k, bits)
            ends = value.lower, value.upper
            low, high = ends if small else (1 - ends[1], 1 - ends[0])
            if low >= p:
                return True
            if high < p:
                return False
            if bits == _TELLING:
                raise PrecisionExhausted(f"p could not be separated from P(X <= {k}) of {self!r}")
            bits *= 2

    def enclose_pmf(self, k: int, bits: int = 128) -> Enclosure:
        r"""Enclose P(X = k) between two rationals, with relative width at most 2^-bits."""
        return _narrow(self.pmf_ball, integer("k", k), bits)

    def enclose_cdf(self, k: int, bits: int = 128) -> Enclosure:
        r"""Enclose P(X <= k) between two rationals, with relative width at most 2^-bits."""
        return _narrow(self.cdf_ball, integer("k", k), bits)

    def enclose_sf(self, k: int, bits: int = 128) -> Enclosure:
        r"""Enclose P(X > k) between two rationals, with relative width at most 2^-bits."""
        return _narrow(self.sf_ball, integer("k", k), bits)

    def enclose_tail(self, t: int, bits: int = 128) -> Enclosure:
        r"""Enclose P(|X| > t) for t >= 0 between rationals, with relative width at most 2^-bits."""
        return _narrow(self.tail_ball, integer("t", t, at_least=0), bits)

    def tail(self, t: int) -> float:
        r"""An upper bound on P(|X| > t), rounded up to a float."""
        return round_up(self.enclose_tail(t, 64).upper)

    @overload
    def sample(self, size: None = None, *, rng: Rng = ...) -> int: ...
    @overload
    def sample(self, size: int | tuple[int, ...], *, rng: Rng = ...) -> Integers: ...
    def sample(
        self, size: int | tuple[int, ...] | None = None, *, rng: Rng = SYSTEM
    ) -> int | Integers:
        r"""Draw values exactly from the law: a Python int, or an int64 array of shape ``size``.

        A single draw is a Python int and may have any size. Raises :class:`Unrepresentable`, before
        any draw, if an array is requested and P(|X| >= 2^62) <= 2^-100 cannot be certified.
        Raises :class:`InvalidParameter` if the size is negative or does not fit in memory.
        """
        if size is None:
            if HERE and (rng is SYSTEM or type(rng) is SystemRng):
                try:
                    return self._ahead.pop()
                except IndexError:
                    pass
            return self._draw_one(rng)
        shape = shape_of(size)
        count = math.prod(shape)
        batch = batch_of(self)
        if rng.__class__ is SystemRng and count <= SERVED:
            return self._ahead.many(count, partial(batch.draw, rng)).reshape(shape)
        try:
            return batch.draw(_check(rng), count).reshape(shape)
        except MemoryError:
            raise InvalidParameter("size", size, "does not fit in memory") from None

    def _draw_one(self, rng: Rng) -> int:
        try:
            batch = batch_of(self)
        except Unrepresentable:
            return self.sample_reference(_check(rng))
        if rng.__class__ is SystemRng:
            return self._ahead.one(partial(batch.draw, rng))
        return int(batch.draw(_check(rng), 1)[0])

    @property
    def parameters(self) -> dict[str, Fraction | int]:
        return {f.name: getattr(self, f.name) for f in fields(self) if f.init}

    def to_json(self) -> dict[str, str]:
        r"""The law and its parameters as a JSON object of strings, for ``noise_from_json``."""
        exact = {name: write_rational(Fraction(v)) for name, v in self.parameters.items()}
        return {"law": self.name, **exact}

    def __repr__(self) -> str:
        arguments = (
            f"{name}={value}" if Fraction(value).denominator == 1 else f"{name}='{value}'"
            for name, value in self.parameters.items()
        )
        return f"{type(self).__name__}({', '.join(arguments)})"

    def __reduce__(self) -> tuple[Any, ...]:
        # Only the parameters are pickled: noise drawn ahead must never be used twice.
        return partial(type(self), **self.parameters), ()


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Additive(Noise):
    r"""A family of laws that is closed under sums of independent draws.

    The parameter named ``adds`` of the sum is the sum of this parameter over the draws.
    """

    adds: ClassVar[str]
    r"""The name of the parameter that is added when independent draws are added."""

    def summed(self, count: int) -> Self:
        return self._with(self.parameters[self.adds] * count)

    def share(self, parties: int) -> Self:
        parties, whole = integer("parties", parties, at_least=1), self.parameters[self.adds]
        if isinstance(whole, Fraction):
            return self._with(whole / parties)
        if whole % parties:
            raise InvalidParameter("parties", parties, f"must divide {self.adds} = {whole}")
        return self._with(whole // parties)

    def _with(self, value: Fraction | int) -> Self:
        return type(self)(**{**self.parameters, self.adds: value})


@runtime_checkable
class Divisible(Protocol):
    r"""A noise law that can be divided into independent equal shares, one for each party."""

    def share(self, parties: int) -> Noise:
        r"""The law of one of k = ``parties`` independent shares whose sum has this law.

        Raises :class:`InvalidParameter` if there is no such law for this number of parties.
        """
        ...


@lru_cache(maxsize=256)
def batch_of(noise: Noise) -> Batch:
    r"""The batch sampler of ``noise``; raises ``Unrepresentable`` if a draw could exceed int64."""
    if not noise.enclose_tail(_LARGEST_DRAW - 1, 64).upper <= _NEGLIGIBLE:
        raise Unrepresentable(
            f"{noise!r} could overflow int64: a batch supports only |X| < 2^62; draw single values "
            "with sample(), which returns Python integers of any size"
        )
    return noise.build_batch()


def _check(rng: Rng) -> Rng:
    if not isinstance(rng, Rng):
        reason = "must be a dpcore Rng: SystemRng() or SeededRng(n)"
        hint = "; an audited function receives an Rng in a parameter annotated rng: dpcore.Rng"
        raise InvalidParameter("rng", rng, reason + hint)
    return rng


def _narrow(value: Callable[[int], arb], k: int, bits: int) -> Enclosure:
    return narrow(partial(value, k), integer("bits", bits, at_least=8, at_most=_FINEST))


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SymmetricNoise(Noise):
    r"""A law with P(X = k) = P(X = -k) for all k."""

    symmetric: ClassVar[bool] = True

    def _pmf(self, k: Integers) -> Floats:
        return by_runs(self, sizes(k), "pmf")

    def _upper(self, k: Integers) -> Floats:
        return by_runs(self, k, "sf")

    @property
    def mean(self) -> Fraction:
        return Fraction(0)

    def cdf_ball(self, k: int) -> arb:
        return self.sf_ball(-k - 1)

    def tail_ball(self, t: int) -> arb:
        return 2 * self.sf_ball(t)

    def _sf(self, k: Integers) -> Floats:
        # ~k = -k-1 without overflow at either end of int64.
        tail = self._upper(np.where(k >= 0, k, ~k))
        return np.where(k >= 0, tail, 1 - tail)

    def _cdf(self, k: Integers) -> Floats:
        return self._sf(~k)
