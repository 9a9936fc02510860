r"""Samples and noise on the reals on the second path: moments, totals, and certificates of them."""

from __future__ import annotations

import cmath
import itertools
import json
import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy.stats import norm

from accounting.certificates.certificate import certify
from accounting.checker import Status, verify
from accounting.checker import rounds as lists
from accounting.checker.closed import delta_of
from accounting.checker.curve import worst_deltas
from accounting.checker.estimate import checked
from accounting.checker.laws import losses
from accounting.checker.laws.density import Density
from accounting.checker.laws.law import Law, Unchecked
from accounting.checker.laws.value import Wanted
from accounting.checker.sums.densities import smooth_integral
from accounting.checker.text.form import required_assumptions
from accounting.checker.text.reading import part_of
from accounting.errors import NotDerived
from accounting.mechanism.real_noise import Gaussian, Laplace
from accounting.release.curve import PrivacyCurve
from accounting.release.real_curve import RealCurve
from accounting.release.replaced import PoissonReplaced
from accounting.release.subsampling import FixedSizeSampled, PoissonSampled
from accounting.totals.compose import compose
from dpcore import DiscreteGaussian, DiscreteLaplace, Relation, Scope
from tests.accounting.certificates.test_certificate import move, resealed
from tests.effort import by_day
from tests.support.dpcore.mutants import mutated

ADD_REMOVE = Scope(relation=Relation.ADD_REMOVE)
WAYS = ("present", "absent", "replaced")
LAWS = [
    *((("gaussian", "121/100", "1/50", way)) for way in WAYS),
    *((("gaussian", "1/4", "1/10", way)) for way in WAYS),
    *((("laplace", "3/2", "1/5", way)) for way in ("present", "absent")),
]


def density(law: str, size: str, rate: str, way: str) -> Density:
    return Density(law=law, size=Fraction(size), rate=Fraction(rate), way=way)


def moment(one: Density, z: complex) -> complex:
    """E[e^(zL)] by mpmath's quadrature of what the law is, P-mass times e^(zL)."""
    rate, size = mpmath.mpf(float(one.rate)), mpmath.mpf(float(one.size))
    rate = mpmath.mpf(one.rate.numerator) / one.rate.denominator

    def base(x: Any, centre: int) -> Any:
        if one.law == "gaussian":
            return mpmath.npdf(x, centre, mpmath.sqrt(size))
        return size / 2 * mpmath.exp(-size * abs(x - centre))

    def first(x: Any) -> Any:
        return (1 - rate) * base(x, 0) + rate * base(x, 1)

    def second(x: Any) -> Any:
        return base(x, 0) if one.way != "replaced" else (1 - rate) * base(x, 0) + rate * base(x, -1)

    p, q = (second, first) if one.way == "absent" else (first, second)
    wide = (60 if one.law == "laplace" else 14) / (
        math.sqrt(1 / float(one.size)) if one.law == "gaussian" else float(one.size)
    )
    shift = 2 * z.real + 2 if one.law == "gaussian" else 1
    ends = [-wide - shift, *(mpmath.mpf(k) / 4 for k in range(-8, 13)), wide + shift]
    found = mpmath.quad(lambda x: p(x) * mpmath.exp(z * mpmath.log(p(x) / q(x))), ends)
    return complex(found)


@by_day(3)
@pytest.mark.parametrize("row", LAWS, ids="-".join)
def test_moments_are_those_of_the_densities(row: tuple[str, str, str, str]) -> None:
    one = density(*row)
    z = complex(2.5, 6)
    nodes = one.nodes(z.real, 8.0)
    pairs = zip(nodes.powers, nodes.losses, strict=True)
    found = sum(cmath.exp(power + 1j * z.imag * loss) for power, loss in pairs)
    size = math.exp(nodes.log_moment)
    truth = moment(one, z)
    assert abs(found - truth) < 1e-11 * size
    # Beyond a frequency no moment is larger than the bound there.
    for y in (3.0, z.imag):
        assert abs(truth) <= one.far(z.real, y, nodes.log_moment) * size * (1 + 1e-12)


def test_nodes_that_are_too_far_apart_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The spacing is chosen by the integral beside the real line: without it a moment is wrong."""
    one = density("gaussian", "1/4", "1/10", "present")
    monkeypatch.setattr(
        Density,
        "_trapezoid",
        mutated(
            Density._trapezoid, "self._beside(c, angle, reach) - level", "-40.0 * level / level"
        ),
    )
    nodes = one.nodes(2.5, 8.0)
    pairs = zip(nodes.powers, nodes.losses, strict=True)
    found = sum(cmath.exp(power + 60j * loss) for power, loss in pairs)
    assert abs(found - moment(one, complex(2.5, 60))) > 1e-9 * math.exp(nodes.log_moment)


def by_grid(sigma: float, rate: float, epsilon: float, way: str) -> float:
    """max(P - e^eps Q, 0) summed over a fine grid, by scipy's normal density."""
    x, step = np.linspace(-12.0, 14.0, 100_001, retstep=True)
    q = norm.pdf(x, 0, sigma)
    mixed, back = ((1 - rate) * q + rate * norm.pdf(x, at, sigma) for at in (1, -1))
    p, q = {"present": (mixed, q), "absent": (q, mixed), "replaced": (mixed, back)}[way]
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum() * step)


@pytest.mark.parametrize("way", WAYS)
def test_one_round_is_the_integral_of_its_positive_part(way: str) -> None:
    one = density("gaussian", "9/4", "1/4", way)
    for epsilon in ("0", "1/10"):
        found = float(delta_of(one, Fraction(epsilon)).value)
        assert abs(found - by_grid(1.5, 0.25, float(Fraction(epsilon)), way)) < 1e-7


def part(noise: dict[str, str], rounds: int, rate: str | None, kind: str = "poisson") -> Any:
    move = {"norm": "absolute", "amount": 1}
    found: dict[str, Any] = {"noise": noise, "sensitivity": move, "honest": "1", "rounds": rounds}
    if rate is not None:
        found["sampling"] = {"kind": kind, "rate": rate}
    return part_of("part", found)


def test_totals_that_others_published() -> None:
    """dp-accounting's own tests: q .2, sigma .5, 3 rounds: delta(1) = .15594 to 1e-3."""
    sampled = part({"law": "gaussian", "sigma": "1/2"}, 3, "1/5")
    found = worst_deltas((sampled,), [Fraction(1)], Fraction(1, 10**6), Wanted(relative=1e-3))
    assert abs(float(found[0].value) - 0.15594) < 1e-3
    # Three Gaussians of variance 3 are one of variance 1: delta(1) = .126936 (Balle and Wang 2018).
    noise = {"law": "discrete-gaussian", "sigma_squared": "30000"}
    third = {**noise, "law": "gaussian", "sigma": "2"}
    del third["sigma_squared"]
    four = worst_deltas(
        (part(third, 4, None),), [Fraction(1)], Fraction(1, 10**9), Wanted(relative=1e-9)
    )
    assert abs(float(four[0].value) - (norm.cdf(-0.5) - math.e * norm.cdf(-1.5))) < 1e-12


@pytest.mark.parametrize("noise", ["discrete-laplace", "discrete-gaussian"])
def test_sampled_rounds_on_integers_by_enumeration(noise: str) -> None:
    """Three rounds, every outcome: the larger of the two directions."""
    law = Law(noise, (Fraction(2),))
    reach = 40 if noise == "discrete-laplace" else 16
    weight: Callable[[int], float] = (
        (lambda x: math.exp(-abs(x) / 2))
        if noise == "discrete-laplace"
        else lambda x: math.exp(-x * x / 4)
    )
    whole = math.fsum(weight(x) for x in range(-4 * reach, 4 * reach + 1))
    q = {x: weight(x) / whole for x in range(-reach, reach + 1)}
    p = {x: 0.9 * weight(x) / whole + 0.1 * weight(x - 1) / whole for x in q}
    ratios: dict[float, list[float]] = {}
    for x, there in q.items():
        row = ratios.setdefault(round(math.log(p[x] / there), 12), [0.0, 0.0])
        row[0] += p[x]
        row[1] += there
    epsilon, present, absent = 0.1, 0.0, 0.0
    for combined in itertools.product(ratios.values(), repeat=3):
        here = math.prod(each[0] for each in combined)
        there = math.prod(each[1] for each in combined)
        present += max(here - math.exp(epsilon) * there, 0.0)
        absent += max(there - math.exp(epsilon) * here, 0.0)
    document = {"law": noise, "scale" if noise == "discrete-laplace" else "sigma_squared": "2"}
    three = (part(document, 3, "1/10"),)
    wanted = Wanted(relative=1e-9)
    found = worst_deltas(three, [Fraction(1, 10)], Fraction(1, 10**12), wanted)
    assert float(found[0].value) == pytest.approx(max(present, absent), rel=1e-7)
    assert present != pytest.approx(absent, rel=1e-2)
    assert law.symmetric


# -- certificates ----------------------------------------------------------------------------------


def real(noise: Gaussian | Laplace) -> RealCurve:
    return RealCurve(noise=noise, sensitivity=1, scope=ADD_REMOVE)


@lru_cache(maxsize=1)
def written() -> str:
    curve = RealCurve(noise=Gaussian(sigma=6), sensitivity=3, scope=ADD_REMOVE)
    step = PoissonSampled(curve=curve, rate="1/50")
    return certify(compose((step, 400)), deltas=["1e-6"], digits=6).text()


def training() -> dict[str, Any]:
    found = json.loads(written())
    assert isinstance(found, dict)
    return found


def sealed(document: dict[str, Any]) -> dict[str, Any]:
    """With the assumptions that its parts imply, and the digest made to fit."""
    return resealed({**document, "assumptions": [*required_assumptions(document)]})


def test_a_certificate_of_a_training_run_holds_and_no_neighbour_of_it() -> None:
    document = training()
    assert verify(document).holds
    for end in (("lower", "upper"), ("lower",), ("upper",)):
        for by in (-1, 1):
            moved = training()
            for each in end:
                move(moved["claims"][0], each, by)
            assert not verify(resealed(moved)).holds


TAMPERED: list[tuple[str, Callable[[dict[str, Any]], Any]]] = [
    ("sigma", lambda d: d["parts"][0]["noise"].update(sigma="601/100")),
    ("rate", lambda d: d["parts"][0]["sampling"].update(rate="51/2500")),
    ("rounds", lambda d: d["parts"][0].update(rounds=401)),
    ("sensitivity", lambda d: d["parts"][0]["sensitivity"].update(amount=2)),
    ("law", lambda d: d["parts"][0].update(noise={"law": "laplace", "scale": "6"})),
    ("everybody", lambda d: d["parts"][0].pop("sampling")),
    ("delta", lambda d: d["claims"][0].update(delta="1/1001000")),
    (
        "replaced",
        lambda d: (
            d["parts"][0]["sampling"].update(kind="poisson-replaced"),
            d["scope"].update(relation="replace"),
        ),
    ),
]


@by_day(4)
@pytest.mark.parametrize(("what", "change"), TAMPERED, ids=[what for what, _ in TAMPERED])
def test_a_changed_parameter_with_everything_made_to_fit_is_caught(what: str, change: Any) -> None:
    document = training()
    change(document)
    found = verify(sealed(document))
    assert [each.status for each in found.failures] == [Status.FAILS], str(found)


def test_noise_on_a_grid_costs_what_the_real_one_does() -> None:
    """Of sigma = 2 the two laws differ by e^(-8 pi^2): a true certificate of either is the same."""
    document = training()
    document["parts"][0]["noise"] = {"law": "discrete-gaussian", "sigma_squared": "36"}
    assert verify(sealed(document)).holds


def test_an_assumption_left_out_is_missed() -> None:
    document = training()
    for word in ("noise on the reals", "samples: "):
        left = [each for each in document["assumptions"] if not each.startswith(word)]
        found = verify(resealed({**document, "assumptions": left}))
        assert [each.where for each in found.failures] == ["assumptions"]


MALFORMED: list[Any] = [
    None,
    [],
    {},
    {"kind": "poisson"},
    {"kind": "poisson", "rate": "0"},
    {"kind": "poisson", "rate": "1"},
    {"kind": "poisson", "rate": "2/4"},
    {"kind": "poisson", "rate": 0.5},
    {"kind": "fixed", "rate": "1/2"},
    {"kind": ["poisson"], "rate": "1/2"},
    {"kind": "poisson", "rate": "1/2", "more": 1},
    {"kind": "poisson-replaced", "rate": "1/2"},
]


@pytest.mark.parametrize("sampling", MALFORMED, ids=str)
def test_a_sampling_that_is_none_is_refused_by_name(sampling: Any) -> None:
    document = training()
    document["parts"][0]["sampling"] = sampling
    found = verify(resealed(document))
    assert found.failures[0].status is Status.FAILS
    assert found.failures[0].where.startswith("parts[0]")


def test_a_sample_needs_its_relation() -> None:
    document = training()
    document["scope"]["relation"] = "replace"
    assert verify(resealed(document)).failures[0].where == "parts[0].sampling"


MUTANTS = [
    (Density, "_loss", "return -self._mixed(2 * x - 1)", "return self._mixed(2 * x - 1)"),
    (Density, "_mixed", "float(self.rate)", "1 - float(self.rate)"),
    (lists, "_in_one_direction", "_real(part, part.law, way)", '_real(part, part.law, "absent")'),
    (lists, "_real", "step**2", "step"),
]


@by_day(2)
@pytest.mark.parametrize("row", MUTANTS, ids=lambda row: row[1])
def test_a_broken_formula_disagrees(
    row: tuple[Any, str, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sign, q and 1 - q swapped, a direction forgotten, an l2 shift used as l1."""
    owner, name, old, new = row
    good = written()
    monkeypatch.setattr(owner, name, mutated(getattr(owner, name), old, new))
    checked.cache_clear()
    assert not verify(good).holds


@pytest.mark.nightly
@by_day(1)
@pytest.mark.parametrize(
    "change",
    [("other * q + share * p", "share * q + other * p"), ("low - step, high,", "low, high,")],
)
def test_a_broken_mixture_of_integers_disagrees(
    change: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    curve = PrivacyCurve(noise=DiscreteGaussian(sigma_squared=1), sensitivity=8, scope=ADD_REMOVE)
    total = compose((PoissonSampled(curve=curve, rate="1/1000"), 2))
    good = certify(total, deltas=["1e-6"], epsilons=["1/1000"], digits=5).text()
    assert verify(good).holds
    broken = mutated(losses.sampled_losses.__wrapped__, *change)
    monkeypatch.setattr("accounting.checker.curve.sampled_losses", broken)
    checked.cache_clear()
    assert not verify(good).holds


def test_what_may_be_certified() -> None:
    """Mixtures of everything that is symmetric; each claim is decided to at least three digits."""
    gaussian = real(Gaussian(sigma=2))
    integers = PrivacyCurve(noise=DiscreteLaplace(scale=4), sensitivity=1, scope=ADD_REMOVE)
    mixed = compose(
        (PoissonSampled(curve=gaussian, rate="1/50"), 100),
        (PoissonSampled(curve=integers, rate="1/10"), 20),
        real(Gaussian(sigma=20)),
        integers,
    )
    found = certify(mixed, deltas=["1e-6"], digits=5)
    assert verify(found).holds
    replaced = PoissonReplaced(curve=gaussian, rate="1/50")
    assert verify(certify(compose((replaced, 100)), deltas=["1e-6"], digits=6)).holds
    alone = certify(real(Laplace(scale=3)), deltas=["1e-3"], epsilons=["1/10"])
    assert alone.claims[-1] == {**alone.claims[-1], "quantity": "pure", "epsilon": "1/3"}
    every = certify(real(Gaussian(sigma=3)), deltas=["1e-3"], orders=[4])
    assert [(c["quantity"], c.get("rho")) for c in every.claims][1:] == [
        ("renyi", None),
        ("zcdp", "1/18"),
    ]
    assert every.claims[1]["upper"].startswith("0.2222222")


def test_a_list_out_of_reach_is_no_opinion() -> None:
    one = density("gaussian", "1/10000", "1/10", "present")
    with pytest.raises(Unchecked, match=r"nodes|frequencies|digits|tilt"):
        smooth_integral([(one, 2)], [Fraction(1)], Wanted(of_epsilon=1e-9))


def test_what_the_second_path_does_not_know_is_refused_by_name() -> None:
    curve = RealCurve(noise=Gaussian(sigma=4), sensitivity=1)
    fixed = FixedSizeSampled(curve=curve, sample=1, population=10)
    with pytest.raises(NotDerived, match="knows no such part"):
        certify(compose((fixed, 3)), deltas=["1e-6"])
    replaced = PoissonReplaced(curve=real(Laplace(scale=3)), rate="1/10")
    with pytest.raises(NotDerived, match="no theorem for laplace"):
        certify(compose((replaced, 100)), deltas=["1e-6"])
