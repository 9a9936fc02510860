r"""Share one false-alarm probability (alpha) among all tests of a run.

A statistical test rejects a correct mechanism with probability at most its alpha. A test spends its
alpha from an :class:`AlphaBudget` under a name, and uses the value that :meth:`AlphaBudget.buy`
returns as its level. The probability that any test of the run rejects a correct mechanism is at
most the sum of the spent alphas (union bound), and so at most the total. This holds for any
dependence between the tests. No alpha may depend on a result of the same run: alphas must be fixed
beforehand, for example as equal shares for a known number of tests (:func:`equal_share`).
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_UP, Decimal, localcontext
from fractions import Fraction
from types import MappingProxyType

from dpcore.errors import InvalidParameter
from dpcore.numbers.parameter import RationalLike, integer, rational


class BudgetExceeded(AssertionError):
    r"""Raised when a test cannot spend its alpha; an AssertionError, so that the test fails."""


class AlphaBudget:
    r"""A budget of alpha, ``total``, that named tests spend in exact arithmetic.

    >>> budget = AlphaBudget("1e-3")
    >>> budget.buy("a count", "4e-4")
    Fraction(1, 2500)
    >>> try:
    ...     budget.buy("a mean", "7e-4")
    ... except BudgetExceeded as refused:
    ...     print(str(refused).partition(":")[0])
    'a mean' needs alpha = 7e-4, but only 6e-4 of 1e-3 is left

    Raises :class:`InvalidParameter` if ``total`` is not positive.
    """

    def __init__(self, total: RationalLike) -> None:
        self.total = rational("total", total)
        if self.total <= 0:
            raise InvalidParameter("total", total, "must be > 0")
        self._bought: dict[str, Fraction] = {}

    def buy(self, name: str, alpha: RationalLike) -> Fraction:
        r"""Spend ``alpha`` in (0, 1) under a new name, and return it as a fraction.

        Raises :class:`BudgetExceeded`, and spends nothing, if the name is empty or already used, if
        ``alpha`` is not in (0, 1), or if less than ``alpha`` is left.
        """
        price = rational("alpha", alpha)
        if not name.strip():
            raise BudgetExceeded("the name of a test must not be empty")
        reason = None
        if not 0 < price < 1:
            reason = f"requests alpha = {alpha}, but alpha must lie strictly between 0 and 1"
        elif name in self._bought:
            reason = "has already been used: a second test needs its own name"
        elif price > self.left:
            reason = (
                f"needs alpha = {format_up(price)}, but only {format_up(self.left)} of "
                f"{format_up(self.total)} is left: use a smaller alpha or a larger total"
            )
        if reason is not None:
            raise BudgetExceeded(f"{name!r} {reason}")
        self._bought[name] = price
        return price

    @property
    def bought(self) -> Mapping[str, Fraction]:
        return MappingProxyType(self._bought)

    @property
    def spent(self) -> Fraction:
        return sum(self._bought.values(), Fraction())

    @property
    def left(self) -> Fraction:
        return self.total - self.spent

    def statement(self) -> str:
        r"""Summarise the number of tests and the spent alpha in one line; alphas are rounded up."""
        if not self._bought:
            return "no statistical test ran"
        many = f"{len(self._bought)} purchase{'' if len(self._bought) == 1 else 's'}"
        return f"{many} spent {format_up(self.spent)} of {format_up(self.total)}"


def equal_share(total: RationalLike, tests: int) -> Fraction:
    r"""Return the exact share total/tests of each of a fixed number of tests.

    >>> equal_share("1e-3", 500)
    Fraction(1, 500000)
    """
    return rational("total", total) / integer("tests", tests, at_least=1)


def format_up(alpha: Fraction) -> str:
    r"""Format ``alpha`` with three digits, rounded up.

    >>> format_up(Fraction(1, 3000)), format_up(Fraction(1, 1000)), format_up(Fraction(0))
    ('3.34e-4', '1e-3', '0')
    """
    with localcontext(prec=3, rounding=ROUND_UP):
        short = (Decimal(alpha.numerator) / Decimal(alpha.denominator)).normalize()
    return f"{short:e}" if short and short.adjusted() < -1 else f"{short:f}"
