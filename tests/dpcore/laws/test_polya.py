r"""Polya laws: contours, recurrences, shares and the exact reference samplers.

The samplers are unrolled: rational sandwiches that miss the enclosed mass are bugs, never bad luck.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache, partial
from typing import Any

import pytest
from flint import acb, arb
from mpmath import mp

from dpcore import DiscreteLaplace, Enclosure
from dpcore.analysis import polya_integral as branch_contour
from dpcore.analysis.polya_integral import Branch
from dpcore.laws import polya
from dpcore.laws import polya_jumps as log_jumps
from dpcore.laws.polya import Polya
from dpcore.laws.polya_difference import PolyaDifference
from dpcore.numbers.enclosure import ball, narrow, precision
from tests.effort import by_day
from tests.support.dpcore import second_path
from tests.support.dpcore.layers import bernoulli_exp_proven, bernoulli_proven, geometric_exp_proven
from tests.support.dpcore.mutants import mutated, rewired
from tests.support.dpcore.second_path import real
from tests.support.exact_law import Forking, Law, coarser, coin, unroll
from tests.support.laws import polya as one_sided
from tests.support.laws import polya_difference as two_sided

NEAR = 10**-9


def holds(enclosure: Enclosure, value: Any) -> bool:
    slack = abs(value) * mp.mpf(10) ** -45
    lower, upper = Fraction(enclosure.lower), Fraction(enclosure.upper)
    return bool(real(lower) <= value + slack and value - slack <= real(upper))


# -- contours --------------------------------------------------------------------------------------

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


@pytest.mark.parametrize("scale", ["1e-6", "1/2", 1000, 2**46, 2**80])
@pytest.mark.parametrize("shape", ["1/1048576", "1/2", 64, 1024, 10**5])
def test_the_left_end_is_the_closed_form(shape: Any, scale: Any) -> None:
    # P(X <= 0) = (1-beta)^r, down to 2^-8000000: the line must pass near the saddle to see it.
    law = Polya(shape=shape, scale=scale)
    one = Branch(right=Fraction(shape), left=Fraction(0), scale=Fraction(scale))
    found = narrow(lambda: branch_contour.lower_tail(one, 0), 40)
    assert found.overlaps(law.enclose_pmf(0))
    assert found.overlaps(law.enclose_cdf(0))


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


# -- identities ------------------------------------------------------------------------------------

SHAPES = [("1/3", "1/2"), ("0.9", 10), ("7/2", "5/3"), ("1/1024", 700)]


@pytest.mark.parametrize(("shape", "scale"), SHAPES)
@pytest.mark.parametrize("law", [Polya, PolyaDifference])
def test_ratios_are_those_of_the_masses(law: Any, shape: str, scale: Any) -> None:
    noise = law(shape=shape, scale=scale)
    with precision(256):
        ratios = noise.ratios(0, 12)
        for k, ratio in zip(range(12, 0, -1), ratios, strict=True):
            assert ratio.overlaps(noise.pmf_ball(k) / noise.pmf_ball(k - 1)), k
            assert ratio.rel_accuracy_bits() > 150


@by_day(1)
@pytest.mark.parametrize("law", [Polya, PolyaDifference])
@pytest.mark.parametrize("parties", [2, 3])
def test_shares_convolve_to_the_whole(law: Any, parties: int) -> None:
    noise = law(shape="3/4", scale="3/2")
    share = noise.share(parties)
    far = 90
    with precision(128):
        masses = [share.pmf_ball(k) for k in range(-far, far + 1)]
        lost = narrow(lambda: share.sf_ball(far) + share.cdf_ball(-far - 1), 32)
        whole = masses
        for _ in range(parties - 1):
            wide = len(whole) + len(masses) - 1
            sums = [arb(0)] * wide
            for i, a in enumerate(whole):
                for j, b in enumerate(masses):
                    sums[i + j] += a * b
            whole = sums
        middle = len(whole) // 2
        slack = arb(0, parties * ball(Fraction(lost.upper)))
        for k in (-5, -1, 0, 1, 2, 10):
            assert (whole[middle + k] + slack).overlaps(noise.pmf_ball(k)), k
            if k >= 0 or noise.symmetric:  # the twin: the law of one share is not that of the sum
                assert not (whole[middle + k] + slack).overlaps(share.pmf_ball(k)), k


def test_two_polya_of_shape_one_make_a_discrete_laplace() -> None:
    for k in (-7, 0, 3, 40):
        whole = DiscreteLaplace(scale=7)
        assert whole.enclose_pmf(k).overlaps(PolyaDifference(shape=1, scale=7).enclose_pmf(k))
        assert whole.enclose_sf(k).overlaps(PolyaDifference(shape=1, scale=7).enclose_sf(k))


@pytest.mark.parametrize("law", [Polya, PolyaDifference])
@pytest.mark.parametrize(("shape", "scale"), [("1/3", "1/2"), ("0.9", 4), ("7/2", "3/2")])
def test_the_whole_mass_is_one(law: Any, shape: str, scale: Any) -> None:
    noise = law(shape=shape, scale=scale)
    far = 40
    parts = [coarser(noise.enclose_pmf(k, 64), 200) for k in range(-far, far + 1)]
    parts.append(coarser(noise.enclose_tail(far, 64), 200))
    assert sum(part.lower for part in parts) <= 1 <= sum(part.upper for part in parts)


@pytest.mark.parametrize("scale", ["1/3", 10])
def test_shapes_below_one_are_not_log_concave(scale: Any) -> None:
    for law in (Polya, PolyaDifference):
        assert law(shape=1, scale=scale).log_concave
        noise = law(shape="1/2", scale=scale)
        assert not noise.log_concave
        left, middle, right = (noise.enclose_pmf(k) for k in (20, 21, 22))
        assert Fraction(middle.upper) ** 2 < Fraction(left.lower) * Fraction(right.lower)


@cache
def polya_masses(shape: Fraction, scale: Fraction) -> list[Fraction]:
    law = Polya(shape=shape, scale=scale)
    return [coarser(law.enclose_pmf(k), 192).lower for k in range(60)]


# -- the urn, unrolled -----------------------------------------------------------------------------

URNS = [(Fraction(r), Fraction(s)) for r, s in (("1/3", "1/2"), ("1/2", "2/3"), ("9/10", "1"))]
STUBS: dict[str, Any] = {"geometric_exp": geometric_exp_proven, "bernoulli": bernoulli_proven}


def refuted(law: Law, shape: Fraction, scale: Fraction) -> list[Any]:
    return law.refuted(Polya(shape=shape, scale=scale).enclose_pmf, range(-2, 12))


def urn_law(shape: Fraction, scale: Fraction, code: Callable[..., Any]) -> Law:
    return unroll(lambda rng: code(rng, shape, scale), open_mass=Fraction(NEAR), runs=3000)


@pytest.mark.parametrize(("shape", "scale"), URNS)
def test_the_urn_is_exact(shape: Fraction, scale: Fraction) -> None:
    law = urn_law(shape, scale, rewired(polya.urn, **STUBS))
    assert law.leftover < Fraction(1, 100)
    assert refuted(law, shape, scale) == []


@pytest.mark.parametrize("shape", ["1/3", "4/3", "5/2", "2"])
def test_the_reference_adds_geometrics_for_whole_shapes(shape: str) -> None:
    def urn(rng: Forking, part: Fraction, scale: Fraction) -> int:
        return rng.choose(polya_masses(part, scale), "urn")

    noise = Polya(shape=shape, scale="1/2")
    code = rewired(Polya.sample_reference, geometric_exp=geometric_exp_proven, urn=urn)
    law = unroll(lambda rng: code(noise, rng), open_mass=Fraction(1, 10**5), runs=5000)
    assert law.leftover < Fraction(1, 10**3)
    assert refuted(law, Fraction(shape), Fraction(1, 2)) == []
    mutant = mutated(
        Polya.sample_reference,
        "math.floor(self.shape)",
        "math.ceil(self.shape) - 1",
        geometric_exp=geometric_exp_proven,
        urn=urn,
    )
    if shape == "2":  # one geometric, and an urn of shape 1: the same law another way
        law = unroll(lambda rng: mutant(noise, rng), open_mass=Fraction(NEAR))
        assert refuted(law, Fraction(shape), Fraction(1, 2)) == []


URN_MUTANTS = {
    "2 + i for 1 + i": ("/ (1 + i)", "/ (2 + i)"),
    "a unit skipped": ("range(geometric", "range(1, geometric"),
    "shape for 1 - shape": ("(shape + own)", "(1 - shape + own)"),
    "own forgotten": ("(shape + own)", "shape"),
    "scale for 1/scale": ("1 / scale", "scale"),
    "counts twice": ("own += 1", "own += 2 if i > 1 and own < i - 1 else 1"),
}  # fmt: skip


@by_day(1)
@pytest.mark.parametrize("name", URN_MUTANTS)
def test_a_mutant_of_the_urn_is_caught(name: str) -> None:
    shape, scale = Fraction(1, 3), Fraction(3, 4)
    mutant = mutated(polya.urn, *URN_MUTANTS[name], **STUBS)
    assert refuted(urn_law(shape, scale, mutant), shape, scale)


# -- jumps, unrolled -------------------------------------------------------------------------------


def rate(scale: Fraction, size: int) -> Any:
    r"""e^(-m/s)/m, the rate of jumps of one size at shape 1."""
    return narrow(lambda: (-ball(Fraction(size) / scale)).exp() / size, 160)


def candidate(scale: Fraction, code: Callable[..., Any]) -> Law:
    cells = log_jumps.octaves(scale) + 1
    return unroll(lambda rng: code(rng, scale, rng.below(cells)), runs=1200)


def two_over_e_proven(rng: Forking) -> bool:
    return coin(rng, narrow(lambda: 2 * (-arb(1)).exp(), 160))


JUMP_STUBS: dict[str, Any] = {
    "bernoulli": bernoulli_proven,
    "bernoulli_exp": bernoulli_exp_proven,
    "_two_over_e": two_over_e_proven,
}


def jump_refuted(scale: Fraction, code: Callable[..., Any]) -> list[Any]:
    # (t+1) P(one candidate is kept with size m) must be e^(-m/s)/m: candidates arrive at (t+1) r.
    cells = log_jumps.octaves(scale) + 1

    def mass(size: int) -> Enclosure:
        if size == 0:
            return Enclosure(Fraction(0), Fraction(1))
        held = rate(scale, size)
        return Enclosure(held.lower / cells, held.upper / cells)

    return candidate(scale, code).refuted(mass, range(1, 40))


JUMP_SCALES = [Fraction(s) for s in ("1/3", "1", "2", "7/2", "8", "17/2")]


@pytest.mark.nightly
@by_day(1)
@pytest.mark.parametrize("scale", JUMP_SCALES, ids=str)
def test_candidates_are_kept_at_the_right_rate(scale: Fraction) -> None:
    assert candidate(scale, rewired(log_jumps.jump, **JUMP_STUBS)).leftover < Fraction(1, 20)
    assert jump_refuted(scale, rewired(log_jumps.jump, **JUMP_STUBS)) == []


JUMP_MUTANTS = {
    "octave too short": ("unit + rng.bits(cell)", "unit + rng.bits(cell // 2)"),
    "unit coin forgotten": ("bernoulli(rng, Fraction(unit, size))", "True"),
    "decay forgotten": ("and bernoulli_exp(rng, excess)", ""),
    "one run less": ("range(run + 1)", "range(run)"),
    "runs cut": ("while rng.flip():", "while run < 2 and rng.flip():"),
    "decay counted twice": ("- (run + 1)", ""),
}  # fmt: skip


@by_day(1)
@pytest.mark.parametrize("name", JUMP_MUTANTS)
def test_a_mutant_of_a_jump_is_caught(name: str) -> None:
    assert jump_refuted(Fraction(7, 2), mutated(log_jumps.jump, *JUMP_MUTANTS[name], **JUMP_STUBS))


def two_over_e_refuted(code: Callable[..., Any]) -> list[Any]:
    chance = narrow(lambda: 2 * (-arb(1)).exp(), 160)
    miss = Enclosure(1 - chance.upper, 1 - chance.lower)
    law = unroll(code, open_mass=Fraction(1, 10**30))
    return law.refuted(lambda hit: chance if hit else miss, (True, False))


def test_two_over_e_is_exact() -> None:
    assert two_over_e_refuted(rewired(log_jumps._two_over_e, bernoulli=bernoulli_proven)) == []
    for old, new in (("trial = 3", "trial = 2"), ("% 2 == 1", "% 2 == 0"), ("+= 1", "+= 2")):
        mutant = mutated(log_jumps._two_over_e, old, new, bernoulli=bernoulli_proven)
        assert two_over_e_refuted(mutant)


@pytest.mark.nightly
def test_the_sum_of_jumps_has_the_law() -> None:
    # The number of candidates as one fork of its exact law, each candidate as another.
    shape, scale = Fraction(1, 3), Fraction(3, 2)

    class Arrivals:
        def __init__(self, mean: Fraction) -> None:
            self.mean = mean

        def sample_reference(self, rng: Forking) -> int:
            return rng.choose(arrivals(self.mean), "arrivals")

    def jump(rng: Forking, scale: Fraction, cell: int) -> int:
        every = candidate_masses(scale)[cell]
        return rng.choose(every, "jump")

    code = rewired(log_jumps.sum_of_jumps, Poisson=Arrivals, jump=jump)
    law = unroll(lambda rng: code(rng, shape, scale), runs=3000)
    assert law.leftover < Fraction(1, 20)
    assert refuted(law, shape, scale) == []
    for old, new in (("+ 1\n", "\n"), ("mean=shape * cells", "mean=shape")):
        mutant = mutated(log_jumps.sum_of_jumps, old, new, Poisson=Arrivals, jump=jump)
        law = unroll(partial(mutant, shape=shape, scale=scale), runs=3000)
        assert refuted(law, shape, scale)


@cache
def arrivals(mean: Fraction) -> list[Fraction]:
    def mass(k: int) -> Any:
        return (-ball(mean)).exp() * ball(mean) ** k / arb(k + 1).gamma()

    return [coarser(narrow(partial(mass, k), 100), 96).lower for k in range(12)]


@cache
def candidate_masses(scale: Fraction) -> list[list[Fraction]]:
    r"""The law of one candidate in each cell, from the rates alone: 0 where it is not kept."""
    last = log_jumps.octaves(scale)
    found = []
    for cell in range(last + 2):
        sizes = range(1 << cell, 1 << (cell + 1)) if cell < last else range(1 << last, 30)
        every = [Fraction(0)] * 30
        for m in sizes if cell <= last else ():
            every[m] = coarser(rate(scale, m), 96).lower
        kept = sum(coarser(rate(scale, m), 96).upper for m in sizes) if cell <= last else 0
        every[0] = max(1 - kept - Fraction(1, 10**8), Fraction(0))
        found.append(every)
    return found
