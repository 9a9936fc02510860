r"""Papers' parameters against mpmath; their errors: printed claims that fail, ours that hold."""

from __future__ import annotations

from fractions import Fraction
from math import ceil
from typing import Any

import mpmath
import pytest

from accounting import PrivacyCurve
from accounting.protocols import paper_parameters
from accounting.theorems import noise_bounds
from accounting.theorems.real_gaussian import real_gaussian_delta, real_gaussian_ratio
from bandits.papers import cz, lzj
from dpcore import Sensitivity
from dpcore.errors import InvalidParameter
from dpcore.laws.skellam import Skellam
from dpcore.numbers.ceilings import ceil_sqrt
from dpcore.numbers.enclosure import Enclosure
from tests.support.accounting.brute import close, real
from tests.support.dpcore.mutants import mutated

mpf = mpmath.mpf


def ceil_of(compute: Any) -> int:
    with mpmath.workdps(60):
        return int(mpmath.ceil(compute()))


@pytest.mark.parametrize("users", [1, 2, 16, 1000, 1024, 10**6 + 1, 4**30])
@pytest.mark.parametrize("epsilon", ["0.1", "1/3", "1", "5/2"])
def test_cz(users: int, epsilon: str) -> None:
    e, s, p = Fraction(epsilon), Fraction(3, 2), Fraction(1, 1000)

    def log() -> Any:
        return mpmath.log(2 / real(p))

    g = ceil_of(lambda: real(e) * mpmath.sqrt(users) - mpf(10) ** -40)
    pure = paper_parameters.cz_pure(users, e, p)
    assert (pure.precision, pure.threshold) == (g, ceil_of(lambda: g / real(e) * log()))
    assert pure.modulus == users * g + 2 * pure.threshold + 1
    assert pure.noise.parameters == {"scale": g / e}
    local = cz.cz_local(users, e, p, constant=2)
    assert local.threshold == ceil_of(lambda: 2 * g / real(e) * mpmath.sqrt(2 * users * log()))
    g = ceil_of(lambda: real(s * e) * mpmath.sqrt(users) - mpf(10) ** -40)
    renyi = paper_parameters.cz_renyi(users, e, p, s)
    assert (renyi.precision, renyi.threshold) == (
        g,
        ceil_of(lambda: 2 * g / real(e) * mpmath.sqrt(log()) + mpmath.sqrt(2) * log()),
    )
    assert renyi.noise == Skellam(variance=(g / e) ** 2)
    if users > 1000:
        return
    spread = paper_parameters.cz_concentrated(users, e, p, s)
    assert spread.precision == g
    assert spread.threshold == ceil_of(lambda: g / real(e) * mpmath.sqrt(2 * log()))
    assert spread.noise.parameters == {"count": users, "sigma_squared": (g / e) ** 2 / users}


def test_a_float_ceiling_would_be_wrong() -> None:
    # 49/50 sqrt(2500) = 49 exactly; a float product can come out above it, and a huge n rounds.
    assert ceil_sqrt(Fraction(49, 50) ** 2 * 2500) == 49
    n = 10**40 + 1
    assert ceil_sqrt(Fraction(n)) == 10**20 + 1
    assert ceil(float(n) ** 0.5) != 10**20 + 1
    off = mutated(ceil_sqrt, "root if root * root == least else root + 1", "root + 1")
    assert off(Fraction(49)) != 7


def test_erratum_1_the_noise_of_theorem_3() -> None:
    # The aggregation spends 2 (epsilon/4); what is left for the noise is epsilon/2.
    for form, spent in (("printed", Fraction(3, 2)), ("corrected", Fraction(1))):
        found = paper_parameters.cz_shuffled(1024, 1, "1/1000", form=form)  # type: ignore[arg-type]  # a literal
        curve = PrivacyCurve(noise=found.noise, sensitivity=Sensitivity(found.precision))
        alone = curve.pure()
        assert alone.upper + Fraction(1, 2) == spent
    with pytest.raises(InvalidParameter):
        paper_parameters.cz_shuffled(4, 1, "1/2", form="other")  # type: ignore[arg-type]  # on purpose


def test_erratum_2_the_renyi_bound_of_theorem_2() -> None:
    # n = 2: g = ceil(2 * 0.3 * sqrt 2) = 1 < s = 2, and the lemma exceeds the printed theorem.
    found = paper_parameters.cz_renyi(2, "0.3", "1/1000", 2)
    assert found.precision == 1
    assert isinstance(found.noise, Skellam)
    lemma = noise_bounds.skellam_renyi_bound(32, found.noise.variance, found.precision)
    printed = cz.cz_renyi_bound(32, Fraction("0.3"), Fraction(2), form="printed")
    corrected = cz.cz_renyi_bound(32, Fraction("0.3"), Fraction(2), form="corrected")
    assert Fraction(104, 100) * printed < lemma <= corrected
    # The exact divergence stays below all of them.
    exact = PrivacyCurve(noise=found.noise, sensitivity=1).enclose_renyi(32)
    assert exact.upper < printed


@pytest.mark.parametrize("users", [1, 2, 5, 16, 100])
@pytest.mark.parametrize(("epsilon", "scaling"), [("0.3", 2), ("1", 1), ("2", "3/2"), ("0.05", 8)])
def test_the_corrected_bound_follows_from_the_lemma(
    users: int, epsilon: str, scaling: str | int
) -> None:
    found = paper_parameters.cz_renyi(users, epsilon, "1/1000", scaling)
    assert isinstance(found.noise, Skellam)
    for order in (2, 3, 8, 32, 100):
        lemma = noise_bounds.skellam_renyi_bound(order, found.noise.variance, found.precision)
        assert lemma <= cz.cz_renyi_bound(
            order, Fraction(epsilon), Fraction(scaling), form="corrected"
        )


def test_lemma_3_is_above_the_exact_divergence() -> None:
    exact = PrivacyCurve(noise=Skellam(variance=16), sensitivity=4).enclose_renyi(32)
    assert noise_bounds.skellam_renyi_bound(32, 16, 4) == Fraction(131, 8)
    assert Fraction("5.82613") < exact.lower <= exact.upper < Fraction("5.82615")


@pytest.mark.parametrize(
    ("ratio", "epsilon"),
    [("1/5", "10"), ("4", "1"), ("30", "1/10"), ("1", "0")],
)
def test_the_real_gaussian_curve(ratio: str, epsilon: str) -> None:
    with mpmath.workdps(50):
        r, e = real(ratio), real(epsilon)
        truth = mpmath.quad(
            lambda x: max(mpmath.npdf(x) - mpmath.exp(e) * mpmath.npdf(x + 1 / r), 0),
            [e * r - 1 / (2 * r), 0, 5, 20] if e * r < 1 / (2 * r) else [e * r - 1 / (2 * r), 40],
        )
        assert close(real_gaussian_delta(ratio, epsilon), truth, relative="1e-12")


def test_erratum_4_algorithm_4_and_its_lemma_do_not_match() -> None:
    algorithm = lzj.lzj_scalar(100, 20, Fraction(1), Fraction("1e-6"))
    lemma = lzj.lzj_scalar_lemma(100, 20, Fraction(1), Fraction("1e-6"))
    with mpmath.workdps(40):
        two, one = mpmath.log(mpf(2) * 10**6), mpmath.log(mpf(10) ** 6)
        assert algorithm.bits == ceil_of(lambda: 180 * 400 * 4 * two / 100)
        assert lemma.bits == ceil_of(lambda: 180 * 400 * one / 100)
        assert close(lemma.probability, 90 * 400 * two / (lemma.bits * 100))
    # With the lemma's b its p is not even a fair bit's at most.
    assert lemma.probability.lower > Fraction(1, 2) >= algorithm.probability.upper
    assert algorithm.bits > 4 * lemma.bits


def test_erratum_5_noise_bits() -> None:
    assert paper_parameters.tkms_bits(1, "0.5", "1e-6").bits == 5572
    assert paper_parameters.tkms_bits(1, "0.1", "1e-6").bits == 139284
    with mpmath.workdps(40):
        tau = 96 * mpmath.log(mpf(2) * 10**6) * 4
    assert close(paper_parameters.tkms_threshold("0.5", "1e-6"), tau)
    few, many = (paper_parameters.tkms_bits(m, "0.5", "1e-6") for m in (5571, 5572))
    assert (few.bits, few.probability) == (2, Enclosure.exactly(Fraction(1, 2)))
    assert many.bits == 1
    with mpmath.workdps(40):
        assert close(many.probability, tau / (2 * 5572))


@pytest.mark.parametrize("users", [10, 1000, 10**7])
def test_algorithm_2_of_lzj(users: int) -> None:
    found = paper_parameters.lzj_vector(users, 20, 1, "1e-6")
    with mpmath.workdps(40):
        log = mpmath.log(mpf(80) * 10**6)
        hat = 1 / (18 * mpmath.sqrt(mpmath.log(mpf(2) * 10**6)))
        g = int(mpmath.ceil(max(hat * mpmath.sqrt(users) / (6 * mpmath.sqrt(5 * log)), 10)))
        assert found.precision == g
        assert found.bits == int(mpmath.ceil(180 * g * g * log / (hat**2 * users)))
        assert close(found.probability, 90 * g * g * log / (found.bits * hat**2 * users))


@pytest.mark.parametrize(
    ("count", "variance", "d"), [(1, "1", 1), (16, "1", 4), (50, "1/4", 3), (8, "9", 2)]
)
def test_proposition_13(count: int, variance: str, d: int) -> None:
    with mpmath.workdps(40):
        v = real(variance)
        xi = 10 * mpmath.fsum(
            mpmath.exp(-2 * mpmath.pi**2 * v * k / (k + 1)) for k in range(1, count)
        )
        first = mpmath.sqrt(d * d / (count * v) + xi / 2)
        truth = min(first, d / mpmath.sqrt(count * v) + xi)
        assert close(noise_bounds.gaussian_sum_epsilon(count, variance, d), truth)
    with pytest.raises(InvalidParameter):
        noise_bounds.gaussian_sum_epsilon(count, "1/5", d)


def test_bad_arguments_are_refused() -> None:
    for call in (
        lambda: paper_parameters.cz_pure(0, 1, "1/2"),
        lambda: paper_parameters.cz_pure(1, 0, "1/2"),
        lambda: paper_parameters.cz_pure(1, 1, 1),
        lambda: paper_parameters.cz_renyi(1, 1, "1/2", "1/2"),
        lambda: paper_parameters.tkms_threshold(1, 0),
        lambda: paper_parameters.lzj_vector(1, 0, 1, "1/2"),
        lambda: lzj.lzj_classical_gaussian(1, 1),
        lambda: real_gaussian_delta(0, 1),
        lambda: real_gaussian_delta(1, -1),
        lambda: real_gaussian_ratio(1, 0),
    ):
        with pytest.raises(InvalidParameter):
            call()
