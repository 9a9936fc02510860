r"""Polya laws: contours against plain sums, recurrences, and where they are log-concave."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import Any

import pytest
from flint import acb, arb
from mpmath import mp

from dpcore import DiscreteLaplace, Enclosure
from dpcore.analysis import polya_integral as branch_contour
from dpcore.analysis.polya_integral import Branch
from dpcore.laws.polya import Polya
from dpcore.laws.polya_difference import PolyaDifference
from dpcore.numbers.enclosure import narrow, precision
from tests.effort import by_day
from tests.support.dpcore import second_path
from tests.support.dpcore.mutants import mutated
from tests.support.dpcore.second_path import real
from tests.support.laws import polya as one_sided
from tests.support.laws import polya_difference as two_sided


def holds(enclosure: Enclosure, value: Any) -> bool:
    slack = abs(value) * mp.mpf(10) ** -45
    lower, upper = Fraction(enclosure.lower), Fraction(enclosure.upper)
    return bool(real(lower) <= value + slack and value - slack <= real(upper))


BRANCHES = [
    (Fraction(r), Fraction(s))
    for r, s in (("1/3", "1/2"), ("7/2", "3/2"), ("0.9", "10"), ("40", "5"), ("1/1024", "60"))
]


@by_day(1)
@pytest.mark.parametrize(("shape", "scale"), BRANCHES)
def test_contours_hold_what_plain_sums_find(shape: Fraction, scale: Fraction) -> None:
    one = Branch(right=shape, left=Fraction(0), scale=scale)
    two = Branch(right=shape, left=shape, scale=scale)
    law, difference = Polya(shape=shape, scale=scale), PolyaDifference(shape=shape, scale=scale)
    with second_path.digits(50):
        for k in (0, 1, 2, 9, 60, 300):
            found = narrow(partial(branch_contour.mass, one, k), 100)
            assert holds(found, one_sided.pmf(law, k)), k
            found = narrow(partial(branch_contour.mass, two, k), 100)
            assert holds(found, two_sided.pmf(difference, k)), k
            found = narrow(partial(branch_contour.upper_tail, one, k + 1), 100)
            assert holds(found, one_sided.sf(law, k)), k
            found = narrow(partial(branch_contour.upper_tail, two, k + 1), 100)
            assert holds(found, two_sided.sf(difference, k)), k
            found = narrow(partial(branch_contour.lower_tail, one, k), 60)
            assert holds(found, one_sided.cdf(law, k)), k


@by_day(2)
@pytest.mark.parametrize("scale", ["1e-3", "1/2", "1000", "1048576.3", 2**80, 2**200])
@pytest.mark.parametrize("k", [1, 2, 1000, 2**40, 2**90])
def test_shape_one_is_the_discrete_laplace(scale: Any, k: int) -> None:
    s = Fraction(scale)
    two = Branch(right=Fraction(1), left=Fraction(1), scale=s)
    laplace = DiscreteLaplace(scale=s)
    with precision(200):
        assert branch_contour.mass(two, k).overlaps(laplace.pmf_ball(k))
        assert branch_contour.upper_tail(two, k).overlaps(laplace.sf_ball(k - 1))
        if k < 1000 * s:
            assert narrow(lambda: branch_contour.mass(two, k), 64).width > 0


CONTOUR_MUTANTS = {
    "left branch on the right": ("(-u - far)", "(u - far)"),
    "one branch forgotten": ("if law.left:", "if False:"),
    "half the path": ("ball(start), arb.pi(),", "ball(start), arb.pi() / 2,"),
    "first octave forgotten": ("acb(0), Fraction(0), first", "acb(0), first, 2 * first"),
    "peak of one side": ("law.right + law.left", "law.right"),
}  # fmt: skip


@pytest.mark.parametrize("name", CONTOUR_MUTANTS)
def test_a_mutant_of_the_contour_is_caught(name: str) -> None:
    mutant = mutated(branch_contour._integral, *CONTOUR_MUTANTS[name])
    two = Branch(right=Fraction(9, 10), left=Fraction(9, 10), scale=Fraction(10))
    law = PolyaDifference(shape="0.9", scale=10)
    with precision(200), second_path.digits(50):
        gap = branch_contour._saddle(two, 7)
        found = Enclosure.of(mutant(two, 7, gap, lambda _: acb(1)))
        assert not holds(found, two_sided.pmf(law, 7))


def test_a_contour_that_ignores_the_cut_may_not_be_trusted() -> None:
    # With the flag ignored FLINT would integrate across the cut as if there were none.
    assert "analytic=analytic" in __import__("inspect").getsource(branch_contour._integral)
    two = Branch(right=Fraction(1, 2), left=Fraction(1, 2), scale=Fraction(3))
    with precision(100):
        wide = acb(arb(0, 4), arb(0, 4))
        assert not (-(wide).expm1()).log(analytic=True).is_finite()
        assert branch_contour.mass(two, 1).is_finite()


@pytest.mark.parametrize("scale", ["1/3", 10])
def test_shapes_below_one_are_not_log_concave(scale: Any) -> None:
    for law in (Polya, PolyaDifference):
        assert law(shape=1, scale=scale).log_concave
        noise = law(shape="1/2", scale=scale)
        assert not noise.log_concave
        left, middle, right = (noise.enclose_pmf(k) for k in (20, 21, 22))
        assert Fraction(middle.upper) ** 2 < Fraction(left.lower) * Fraction(right.lower)
