r"""One purse of false-alarm probability (alpha) for the whole run.

A statistical test rejects correct code with probability at most its alpha. Each test buys that
alpha here, by name, and uses what :meth:`Purse.buy` returns; by the union bound a run of the whole
suite rejects correct code with probability at most :data:`TOTAL`, taken over the choice of the
seeds. The seeds are fixed, so a run repeats bit for bit: the purse bounds the chance that a seed
was bad when it was chosen, and keeps anyone from drawing seeds until one passes.

    alpha = purse.buy("discrete Laplace, scale 10: cells", "1e-9")
    assert p_value > alpha

A test of many cells buys once and divides what it bought among them (Bonferroni). A parametrised
test puts its parameter into the name.
"""

from __future__ import annotations

import os
from fractions import Fraction

from dpcore.numbers.parameter import RationalLike, rational

TOTAL = Fraction(1, 10**6)


class PurseError(AssertionError):
    """A purchase that is refused; an AssertionError, so that it fails the test that tried."""


class Purse:
    r"""Sells alpha by name until ``total`` is spent.

    >>> small = Purse("1e-6")
    >>> small.buy("cells", "4e-7")
    4e-07
    >>> small.buy("tails", "7e-7")
    Traceback (most recent call last):
    ...
    tests.purse.PurseError: 'tails' asks for 7e-07, and 6e-07 of 1e-06 is left
    """

    def __init__(self, total: RationalLike) -> None:
        self.total = rational("total", total)
        self._bought: dict[str, Fraction] = {}

    def buy(self, name: str, alpha: RationalLike) -> float:
        r"""Spend ``alpha`` in (0, 1) under a name nobody used in this run; returns it as a float.

        The sum is exact: a float counts as the decimal it prints as.
        """
        price = rational("alpha", alpha)
        if not 0 < price < 1:
            raise PurseError(f"{name!r} asks for {alpha}: an alpha lies strictly between 0 and 1")
        if not name.strip():
            raise PurseError("a purchase needs a name")
        if name in self._bought:
            raise PurseError(f"{name!r} is bought already: a second look needs its own name")
        if price > self.left:
            raise PurseError(
                f"{name!r} asks for {float(price):.3g}, "
                f"and {float(self.left):.3g} of {float(self.total):.3g} is left"
            )
        self._bought[name] = price
        return float(price)

    @property
    def spent(self) -> Fraction:
        return sum(self._bought.values(), Fraction(0))

    @property
    def left(self) -> Fraction:
        return self.total - self.spent

    def statement(self) -> str:
        r"""What the run may say about itself, in one line.

        >>> Purse("1e-6").statement()
        'no statistical test ran'
        """
        if not self._bought:
            return "no statistical test ran"
        return (
            f"{len(self._bought)} purchases spent {float(self.spent):.3g} of "
            f"{float(self.total):.3g}: the chance that the seeds reject correct code"
        )


# A run in several processes gives each of them its share of the one purse.
purse = Purse(TOTAL * Fraction(os.environ.get("PURSE_SHARE", "1")))
