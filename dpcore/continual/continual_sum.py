r"""A stream of bounded items and its private running sums: what every mechanism shares.

A :class:`ContinualSum` is an immutable configuration: the horizon, the noise, the range of the
items. All releases are functions of the noisy numbers, which are integers plus fresh noise. One
item changes them by at most ``moves``, in units of the items, and the first item by exactly that.
So the whole stream costs exactly as much as one release of ``mechanism``, even if items depend on
earlier releases. The mechanisms are in ``dpcore.continual.tree`` (binary tree, doubling blocks) and
``dpcore.continual.square_root``. Proofs: docs/proofs/continual.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Final, final

from dpcore.errors import DpcoreError, InvalidParameter, Unrepresentable
from dpcore.forks import OwnedState
from dpcore.mechanism import A_NOISE, InScope, Mechanism, Relation, Sensitivity
from dpcore.noise import Noise
from dpcore.numbers.enclosure import Enclosure
from dpcore.numbers.parameter import Exact, Of, Whole, check_fields, integer, rational
from dpcore.sampling.rng import SYSTEM, Rng

MOST_ITEMS: Final = 1 << 40
r"""The largest horizon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    r"""A released sum: ``value`` estimates the sum of the first ``items`` items.

    >>> Total(value=Fraction(7, 2), items=4).items
    4
    """

    value: Fraction
    items: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinualSum(ABC):
    r"""The immutable configuration of running sums of at most ``horizon`` items.

    Items are multiples of ``unit`` in [``low``, ``high``] (fixed point: ``unit="1/16"``). Under the
    relation ``replace`` neighbouring streams differ in the value of one item; under ``add-remove``
    one stream has 0 in place of one item. The privacy unit is one item: with the unit ``user`` the
    caller must ensure that each user contributes at most one item.

    ``noise`` is added to each noisy number, in multiples of ``unit`` (for ``SquareRootSum``, of
    ``unit``/``grid``).

    Raises :class:`InvalidParameter` for a horizon that is not an integer >= 1 or is too long, a
    noise that is not a symmetric :class:`Noise`, and a range that has fewer than two items, has
    bounds that are not multiples of ``unit``, or lacks 0 if the scope needs it.
    """

    name: ClassVar[str]
    most: ClassVar[int] = MOST_ITEMS

    horizon: Whole = Whole()
    noise: Of[Noise] = Of(Noise, A_NOISE)
    low: Exact = Exact(0)
    high: Exact = Exact(1)
    unit: Exact = Exact(1, zero="items are multiples of the unit")
    scope: InScope = InScope()

    def __post_init__(self) -> None:
        check_fields(self)
        integer("horizon", self.horizon, at_most=self.most)
        for name in ("low", "high"):
            end = getattr(self, name)
            if (end / self.unit).denominator != 1:
                raise InvalidParameter(name, end, f"must be a multiple of the unit {self.unit}")
        if self.low >= self.high:
            raise InvalidParameter("high", self.high, f"must be > low = {self.low}")
        if not self.noise.symmetric:
            raise InvalidParameter("noise", self.noise, "must be symmetric, or totals are biased")
        if self.scope.relation is Relation.ADD_REMOVE and not self.low <= 0 <= self.high:
            reason = "must contain 0, the value of an absent item under add-remove"
            raise InvalidParameter("low, high", f"{self.low}, {self.high}", reason)

    @property
    def step(self) -> int:
        r"""The largest difference between neighbouring items, in units."""
        ends = self.high, -self.low
        apart = max(ends) if self.scope.relation is Relation.ADD_REMOVE else sum(ends)
        return int(apart / self.unit)

    @property
    @abstractmethod
    def moves(self) -> tuple[int, ...]:
        r"""The nonzero changes of the noisy numbers if the first item changes by one unit.

        For every k, the k-th largest change is at most this large for any other item.
        """

    @property
    def sensitivity(self) -> Sensitivity:
        r"""The joint sensitivity of all noisy numbers: a box whose corner is attained."""
        return Sensitivity.box(tuple(self.step * move for move in self.moves))

    @property
    def mechanism(self) -> Mechanism:
        r"""A single release that costs as much as the whole stream."""
        return Mechanism(noise=self.noise, sensitivity=self.sensitivity, scope=self.scope)

    @abstractmethod
    def mean_squared_error(self, taken: int) -> Enclosure:
        r"""E[(value - sum)^2] after ``taken`` items, for the sum of the items in the total."""

    def covered(self, taken: int) -> int:
        r"""The number of items in the total after ``taken`` items; by default all of them."""
        return self.checked_count(taken)

    def start(self, *, rng: Rng = SYSTEM) -> RunningSum:
        r"""Return a new stream, before its first item."""
        return RunningSum(self, rng)

    def checked_count(self, taken: object) -> int:
        r"""Return ``taken`` as an integer, checked to lie between 0 and the horizon."""
        return integer("taken", taken, at_least=0, at_most=self.horizon, limit="horizon")

    @abstractmethod
    def _begin(self) -> Any:
        r"""The state before the first item."""

    @abstractmethod
    def _next(self, state: Any, taken: int, item: int, rng: Rng) -> tuple[Any, Fraction | None]:
        r"""The state after item number ``taken``, and the new total in units or None."""

    def _units(self, item: object) -> int:
        exact = rational("item", item)
        if not self.low <= exact <= self.high:
            raise InvalidParameter("item", item, f"must lie in [{self.low}, {self.high}]")
        steps = exact / self.unit
        if steps.denominator != 1:
            raise InvalidParameter("item", item, f"must be a multiple of the unit {self.unit}")
        return int(steps)


def variance(noise: Noise) -> tuple[Fraction, Fraction]:
    r"""A lower and an upper bound on the variance of ``noise``."""
    found = noise.variance
    ends = (found, found) if isinstance(found, Fraction) else (found.lower, found.upper)
    if not (isinstance(ends[0], Fraction) and isinstance(ends[1], Fraction)):
        raise Unrepresentable(f"the variance of {noise!r} has no finite bound")
    return ends[0], ends[1]


@final
class RunningSum(OwnedState):
    r"""Add items in order; each call returns the released running sum.

    >>> from dpcore import DiscreteLaplace, SeededRng
    >>> from dpcore.continual import TreeSum
    >>> tree = TreeSum(horizon=4, noise=DiscreteLaplace(scale=3))
    >>> stream = tree.start(rng=SeededRng(1))
    >>> [stream.add(item).items for item in (1, 0, 1, 1)]
    [1, 2, 3, 4]
    >>> stream.add(1)
    Traceback (most recent call last):
    ...
    dpcore.errors.InvalidParameter: item = 1: exceeds the horizon: the guarantee is for 4 items

    An invalid item leaves the stream unchanged. After any other error during an item, and in a
    forked process, all further calls raise an error. Copying and pickling raise ``TypeError``: a
    second stream from the same state would draw noise for the same items again.
    """

    __slots__ = ("_rng", "_taken", "_total", "configuration")

    _one: ClassVar[str] = "a copy would add fresh noise to the same items"

    def __init__(self, configuration: ContinualSum, rng: Rng = SYSTEM) -> None:
        if not isinstance(configuration, ContinualSum):
            raise InvalidParameter("configuration", configuration, "must be a ContinualSum")
        if not isinstance(rng, Rng):
            raise InvalidParameter("rng", rng, "must be an Rng")
        self.configuration: Final = configuration
        self._rng = rng
        self._taken = 0
        self._total = Total(value=Fraction(0), items=0)
        super().__init__(configuration._begin())

    @property
    def taken(self) -> int:
        r"""The number of items so far."""
        return self._taken

    @property
    def total(self) -> Total:
        r"""The last released total; initially an exact 0."""
        return self._total

    def add(self, item: object) -> Total:
        r"""Add one item and release the new total, or the previous one (``DoublingSum``).

        Raises :class:`InvalidParameter`, before any draw, for an item that is not a
        number, out of range, not a multiple of the unit, or beyond the horizon.
        """
        with self._lock.here():
            state, taken, setting = self._state, self._taken + 1, self.configuration
            if state is None:
                reason = (
                    "cannot be added: another item is being added, an earlier one was interrupted, "
                    "or the process "
                )
                raise InvalidParameter("item", item, reason + "was forked: start a new stream")
            if taken > setting.horizon:
                reason = f"exceeds the horizon: the guarantee is for {setting.horizon} items"
                raise InvalidParameter("item", item, reason)
            units = setting._units(item)
            # No state while noise is drawn: a signal handler or an Rng that calls back finds none.
            self._state = None
            try:
                after, value = setting._next(state, taken, units, self._rng)
            except DpcoreError:
                self._keep(state, item)  # nothing was released, and the drawn noise is dropped
                raise
            self._keep(after, item)
            self._taken = taken
            if value is not None:
                self._total = Total(value=value * setting.unit, items=taken)
            return self._total

    def _keep(self, state: Any, item: object) -> None:
        if self._gone():
            raise InvalidParameter("item", item, "needs a new stream: the process forked")
        self._state = state

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.configuration.name}: {self._taken} items>"
