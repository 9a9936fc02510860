r"""The common interface of all guarantees, for one release or many, derived or stated.

A method that computes a number returns a :class:`Bound`. If no theorem gives a bound, the method
raises :class:`NotDerived`, which names an alternative. Proofs: docs/proofs/composition.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

from accounting.errors import NotDerived
from accounting.guarantees.bound import Bound
from accounting.guarantees.tradeoff_function import curve_tradeoff
from dpcore.errors import InvalidParameter
from dpcore.numbers.parameter import RationalLike, positive_rational, rational, rational_in

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from dpcore.mechanism import Scope


_LINES: Final = "each (epsilon, delta) bounds every test (Dong, Roth and Su 2022, Proposition 2.5)"


class Guarantee(ABC):
    r"""A privacy guarantee between neighbouring datasets: epsilon, delta, rho and other parameters.

    ``relative`` is the requested relative width of a bound, by default one that is cheap to
    compute. An infinite upper bound means that the quantity is infinite, or that this method gives
    no bound.

    >>> from accounting.guarantees.stated_guarantees import Pure, ZCdp
    >>> [f"{claim.epsilon('1e-6'):.3f}" for claim in (Pure(1), ZCdp("1/800"))]
    ['1.000', '0.206']
    >>> f"{ZCdp('1/800').tradeoff('1/20'):.3f}"
    '0.943'
    """

    __slots__ = ()

    if TYPE_CHECKING:
        # Only for type checkers: at run time a property would become the default of the field.
        @property
        @abstractmethod
        def scope(self) -> Scope:
            r"""The neighbouring relation and unit of the guarantee."""

    @abstractmethod
    def epsilon(self, delta: RationalLike, relative: RationalLike | None = None) -> Bound:
        r"""The epsilon at ``delta`` in [0, 1]."""

    @abstractmethod
    def delta(self, epsilon: RationalLike, relative: RationalLike | None = None) -> Bound:
        r"""The delta at ``epsilon`` >= 0: the hockey-stick divergence."""

    @abstractmethod
    def to_json(self) -> Any:
        r"""The guarantee as JSON data, without computed bounds."""

    @property
    def text(self) -> str:
        r"""The guarantee in short form for tables, without its scope."""
        return repr(self)

    def renyi(self, order: RationalLike, relative: RationalLike | None = None) -> Bound:
        r"""The Renyi divergence D_alpha between neighbours, alpha = ``order`` > 1."""
        check_width(relative)
        at = order_above_one(order)
        raise NotDerived(f"the Renyi divergence of order {at} of {self!r}", _NONE)

    def zcdp(self, relative: RationalLike | None = None) -> Bound:
        r"""The zCDP parameter rho: the supremum of D_alpha/alpha over all orders alpha > 1."""
        check_width(relative)
        raise NotDerived(f"the zCDP parameter of {self!r}", _NONE)

    def pure(self, relative: RationalLike | None = None) -> Bound:
        r"""The largest privacy loss, that is, epsilon at delta = 0. It may be infinite."""
        return self.epsilon(0, relative)

    def tradeoff(self, alpha: RationalLike, relative: RationalLike | None = None) -> Bound:
        r"""A lower bound on the type II error of any test with type I error ``alpha``.

        An error of 1 - alpha means perfect privacy, 0 means none. Each point (epsilon, delta) of
        the privacy curve gives a valid bound; a search chooses the best one.
        """
        at = probability("alpha", alpha)
        found = curve_tradeoff(lambda e: Fraction(min(self.delta(e, relative).upper, 1)), at)
        return Bound(lower=found, upper=1 - at, method="lines", theorem=_LINES, safe="lower")

    def plot(
        self, ax: Axes | None = None, *, least_delta: RationalLike = "1e-12", points: int = 24
    ) -> Axes:
        r"""Plot epsilon for ``points`` deltas from 1/2 down to ``least_delta``, with both bounds.

        The plot is drawn on the matplotlib Axes ``ax``, or on a new figure, and the Axes are
        returned. Raises :class:`InvalidParameter` if matplotlib is missing, or if no epsilon is
        finite.
        """
        from accounting.guarantees.plot_curve import plot

        return plot(self.epsilon, ax, rational("least_delta", least_delta), points)


_NONE: Final = "no theorem bounds it; use epsilon(delta) or delta(epsilon)"


# -- arguments --------------------------------------------------------------------------------


def probability(argument: str, value: RationalLike) -> Fraction:
    r"""Parse an exact number in [0, 1]."""
    return rational_in(argument, value, "[0, 1]", "it is a probability")


def order_above_one(order: RationalLike) -> Fraction:
    r"""Parse the exact order of a Renyi divergence, a number > 1."""
    exact = rational("order", order)
    if exact <= 1:
        raise InvalidParameter("order", order, "must be > 1")
    return exact


def check_width(relative: RationalLike | None) -> None:
    r"""Check that ``relative`` is None or a valid relative width."""
    width(relative, Fraction(1, 2))


def width(relative: RationalLike | None, default: Fraction) -> Fraction:
    r"""Parse a relative width in (0, 1); return ``default`` if ``relative`` is None."""
    if relative is None:
        return default
    exact = positive_rational("relative", relative, "only an exact result has width 0")
    if exact >= 1:
        raise InvalidParameter("relative", relative, "must be below 1")
    return exact
