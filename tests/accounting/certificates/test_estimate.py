r"""Tests of `accounting.certificates.estimate`: dp-accounting, closed forms; mutants must fail."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from accounting import Status, compose, guarantee, verify
from accounting.certificates import estimate
from accounting.certificates.certificate_format import part_of
from dpcore import Mechanism, Skellam
from tests.accounting.certificates.conftest import clear
from tests.day_and_nightly import by_day
from tests.support.accounting.handwritten_certificates import certificate, enclosed, noise
from tests.support.dpcore.mutants import mutated

GOLDEN = Path(__file__).parents[2] / "vectors" / "certificates"
SAMPLE = {"sampling": {"kind": "poisson", "rate": "1/50"}}


def delta(part: dict[str, Any], epsilon: Fraction) -> tuple[float, float]:
    value, error = estimate._worst((part_of("part", part),), epsilon, 1e-8)
    return float(value), float(error)


@pytest.mark.parametrize("sigma", ["1/1000000", "1/1000000000000"])
def test_narrow_gaussians_are_refused_at_once(sigma: str) -> None:
    rounds = [noise("gaussian", 1, sigma=sigma), noise("discrete-laplace", 1, scale="4")]
    (finding,) = verify(certificate(rounds, [enclosed("epsilon", "1/1000", "1.0", "1.1")])).findings
    assert finding.status is Status.UNCHECKED
    assert "far below its sensitivity" in finding.reason


def test_a_direction_whose_losses_stay_below_epsilon_adds_nothing() -> None:
    # A removed unit loses at most 2 log 2: its delta is 0, and the other direction decides.
    part = noise("gaussian", 1, 2, sigma="1") | {"sampling": {"kind": "poisson", "rate": "1/2"}}
    value, error = delta(part, Fraction(5))
    assert error < 1e-9 * value
    scope = ("contribution", "add-remove")
    statuses = [
        verify(certificate([part], [enclosed("epsilon", "1/1000000", *ends)], scope)).findings[0]
        for ends in (("5.57239", "5.57240"), ("5.57240", "5.57241"))
    ]
    assert [each.status for each in statuses] == [Status.HOLDS, Status.FAILS]
    assert statuses[0].estimated


def test_the_tail_beyond_the_nodes_is_part_of_the_error() -> None:
    part = noise("gaussian", 1, 3, sigma="2") | SAMPLE
    assert delta(part, Fraction(300))[1] >= 1e-148


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """End the contour integral early: the error is larger, and decides the same."""
    monkeypatch.setattr(estimate, "_MOST_TERMS", 1 << 24)


@pytest.mark.usefixtures("short")
def test_an_estimate_counts_the_combinations_that_it_omits(monkeypatch: pytest.MonkeyPatch) -> None:
    # Their probability, below 1e-21 each, is more than delta = 5e-27.
    part = noise("skellam", 1, 2, variance="200")
    curve = guarantee(Mechanism(noise=Skellam(variance=200), sensitivity=1))
    truth = compose((curve, 2)).delta(1)
    value, error = delta(part, Fraction(1))
    assert float(truth.lower or 0) - error <= value <= float(truth.upper) + error < 1.001 * value
    broken = mutated(estimate._with_one, "omitted += float(p[~likely].sum()) * mass", "pass")
    monkeypatch.setattr(estimate, "_with_one", broken)
    clear()
    value, error = delta(part, Fraction(1))
    assert value + error < float(truth.lower or 0)


def test_a_renyi_divergence_of_skellam_noise_is_a_sum() -> None:
    mass = [math.exp(-9) * math.fsum(4.5 ** (2 * k + x) / math.factorial(k) / math.factorial(k + x)
                                     for k in range(60)) for x in range(60)]  # fmt: skip
    pairs = [(mass[abs(x)], mass[abs(x - 1)]) for x in range(-50, 50)]
    truth = 2 * math.log(math.fsum(p**1.5 * q**-0.5 for p, q in pairs))
    place = math.floor(truth * 10**8)
    ends = [f"{each / 10**8:.8f}" for each in range(place - 1, place + 3)]
    found = [
        verify(certificate([noise("skellam", 1, variance="9")], [enclosed("renyi", "3/2", *both)]))
        for both in itertools.pairwise(ends)
    ]
    assert [each.findings[0].status for each in found] == [Status.FAILS, Status.HOLDS, Status.FAILS]
    assert found[1].proof == "estimate"
    assert "estimate: agrees" in str(found[1])
    # A one-sided law has an infinite divergence.
    one_sided = [noise("poisson", 1, mean="3")]
    infinite = verify(certificate(one_sided, [enclosed("renyi", "2", "0.3", "0.4")]))
    assert (infinite.holds, "inf" in str(infinite)) == (False, True)


@pytest.mark.usefixtures("short")
def test_an_unresolved_claim_is_unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    # Losses of Laplace noise jump: the contour integral resolves fewer digits than these.
    rounds = noise("laplace", 1, 40, scale="3")
    narrow = certificate([rounds], [enclosed("delta", "5", "0.0296957790", "0.0296957791")])
    assert verify(narrow).findings[0].status is Status.UNCHECKED
    # An error estimate of zero would decide it.
    broken = mutated(estimate._integral, "8 * abs(first - second) + error", "0.0")
    monkeypatch.setattr(estimate, "_integral", broken)
    clear()
    assert verify(narrow).findings[0].status is not Status.UNCHECKED


@by_day(1)
@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("_contour", "(z * (z + 1))", "(z * z)"),
        ("_contour", "0.5, 1)", "1, 1)"),
        ("_atoms", "math.log(p / q)", "math.log(q / p)"),
    ],
)
def test_a_broken_formula_disagrees(
    name: str, old: str, new: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = noise("skellam", 1, 1000, variance="400")  # the intact estimate is a golden certificate
    monkeypatch.setattr(estimate, name, mutated(getattr(estimate, name), old, new))
    clear()
    claim = enclosed("delta", "8", "0.0000024963836", "0.0000024963837")
    assert not verify(certificate([many], [claim])).holds


# Certificates with evidence are checked in tests/accounting/proof_kernel, with the second kernel.
@by_day(2)
@pytest.mark.parametrize("path", sorted(GOLDEN.glob("[!e]*.json")), ids=lambda path: path.stem)
def test_golden_certificates_hold(path: Path) -> None:
    found = verify(path.read_text("utf-8"))
    assert found.holds, str(found)
    estimated = path.stem in ("thousand_skellams", "returning_users")
    assert found.proof == ("estimate" if estimated else "kernel")
