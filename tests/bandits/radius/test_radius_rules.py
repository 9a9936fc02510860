"""The rules that eliminate: the papers' radii, the budget of a run."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest

from bandits.privatizers.privatizer import Unprotected
from bandits.privatizers.sums import BitPrivatizer, SumPrivatizer, Trust
from bandits.radius.certified import (
    certified_gap,
    certified_width,
    has_gap,
    hoeffding_width,
    union_width,
)
from bandits.radius.radius import DpSeRadius, ExactRadius, PaperRadius, tkms_width
from dpcore import DiscreteLaplace, InvalidParameter
from dpcore.laws.poisson import Poisson
from tests.effort import by_day

# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize("trust", ["renyi", "concentrated"])
@pytest.mark.parametrize("form", ["printed", "released"])
def test_the_papers_radius_is_refused_for_noise_chosen_for_a_delta(trust: Trust, form: str) -> None:
    # Its formula reads epsilon, and sees nothing of noise that has another size.
    chosen = SumPrivatizer(trust=trust, epsilon="0.1", failure="1e-6", delta="1e-6")
    arguments: dict[str, Any] = {"batch": 1, "active": 10, "failure": "0.1"}
    paper = PaperRadius(form=form)  # type: ignore[arg-type]  # two of the literals
    for ask in (paper.width, paper.gap):
        with pytest.raises(InvalidParameter, match="no radius for noise chosen for a delta"):
            ask(chosen, 64, **arguments)
    plain = SumPrivatizer(trust=trust, epsilon="0.1", failure="1e-6")
    assert paper.width(plain, 64, **arguments) < math.inf
    exact = ExactRadius(batches=1)
    assert exact.width(chosen, 64, **arguments) > 1.5 * exact.width(plain, 64, **arguments)


@pytest.mark.parametrize("failure", ["1/2", "0.95"])
def test_a_run_that_is_likelier_wrong_than_right_is_refused(failure: str) -> None:
    for rule in (ExactRadius(), PaperRadius(), DpSeRadius()):
        for ask in (rule.width, rule.gap):
            with pytest.raises(InvalidParameter, match="it is the chance of a mistake") as no:
                ask(Unprotected(), 64, batch=1, active=2, failure=failure)
            assert no.value.argument == "failure"


def test_failures_that_no_float_holds_are_refused_by_name() -> None:
    law: dict[str, Any] = {"precision": 4, "pulls": 64}
    noise = DiscreteLaplace(scale=8)
    for ask in (certified_width, union_width, certified_gap):
        with pytest.raises(InvalidParameter, match="failure = 1e-330: must be >= 1e-300"):
            ask(noise, failure="1e-330", **law)
    least = certified_width(noise, failure="1e-300", **law)
    assert least <= union_width(noise, failure="1e-300", **law) < math.inf
    assert hoeffding_width(64, "1e-330") < math.inf  # in balls, at any


# -- the rules ------------------------------------------------------------------------------------

LENGTHS = (2, 60, 10**4, 10**7)
CHECKED = 60
CASES: list[tuple[Trust, int]] = [
    ("central", 1),
    ("local", 1),
    ("pure", 1),
    ("shuffled-pure", 1),
    *((trust, s) for trust in ("renyi", "concentrated") for s in (1, 10, 100)),
]


@by_day(10)
@pytest.mark.parametrize(("trust", "scaling"), CASES)
@pytest.mark.parametrize("epsilon", ["0.1", "0.5", "1"])
def test_exact_is_below_paper(trust: Trust, scaling: int, epsilon: str) -> None:
    privatizer = SumPrivatizer(
        trust=trust, epsilon=epsilon, failure="1e-7", scaling=scaling, parameters="paper"
    )
    for pulls in LENGTHS:
        arguments: dict[str, Any] = {"batch": 3, "active": 10, "failure": "0.1"}
        exact = ExactRadius().width(privatizer, pulls, **arguments)
        assert exact < PaperRadius().width(privatizer, pulls, **arguments)
        if pulls == CHECKED:
            assert ExactRadius().gap(privatizer, pulls, **arguments) < 1.42 * exact


def test_paper_radius_is_equation_2() -> None:
    odds = 10 * 9 / 0.1
    reward = math.sqrt(math.log(4 * odds) / 2048)
    tail = math.log(2 * odds)
    root, e, l, s = math.sqrt(2), 0.5, 1024, 10.0
    expected: dict[Trust, tuple[float, float]] = {
        "central": (root / e, 1 / e),
        "pure": (root / e, 1 / e),
        "shuffled-pure": (2 * root / e, 2 / e),
        "local": (2 * math.sqrt(2 * l) / e + root / e, 2 * root / e),
        "renyi": (2 / e + root / (s * e), root / (s * e * math.sqrt(l))),
        "concentrated": (root / e + root / (s * e), 0.0),
    }
    arguments: dict[str, Any] = {"batch": 3, "active": 10, "failure": "0.1"}
    for trust, (sigma, h) in expected.items():
        scaling = 10 if trust in ("renyi", "concentrated") else 1
        privatizer = SumPrivatizer(trust=trust, epsilon="1/2", failure="1e-6", scaling=scaling)
        found = PaperRadius().width(privatizer, l, **arguments)
        assert found == pytest.approx(
            reward + sigma * math.sqrt(tail) / l + h * tail / l, rel=1e-12
        )
    renyi = SumPrivatizer(trust="renyi", epsilon="1/2", failure="1e-6", scaling=10)
    released = PaperRadius(form="released").width(renyi, l, **arguments)
    added = (1 / (s * e)) * (1 - root / math.sqrt(l)) * tail / l
    assert released - PaperRadius().width(renyi, l, **arguments) == pytest.approx(added)
    assert PaperRadius().width(Unprotected(), l, **arguments) == pytest.approx(reward)
    with pytest.raises(InvalidParameter, match="no radius"):
        PaperRadius().width(BitPrivatizer(epsilon="1/2", delta="1e-6"), 64, **arguments)


def test_dp_se_radius() -> None:
    privatizer = SumPrivatizer(trust="central", epsilon="1/2", failure="1e-6")
    found = DpSeRadius().gap(privatizer, 857, batch=1, active=10, failure="0.1")
    h = math.sqrt(math.log(800) / (2 * 857))
    c = math.log(400) / (857 * 0.5)
    assert found == pytest.approx(2 * (h + c), rel=1e-12)
    local = SumPrivatizer(trust="local", epsilon="1/2", failure="1e-6")
    with pytest.raises(InvalidParameter, match="discrete Laplace"):
        DpSeRadius().width(local, 857, batch=1, active=10, failure="0.1")


def test_weights_add_up_to_one() -> None:
    assert sum(ExactRadius().weight(b) for b in range(1, 1000)) == 1 - Fraction(1, 1000)
    assert sum(ExactRadius(batches=7).weight(b) for b in range(1, 8)) == 1
    assert all(ExactRadius().weight(b) >= Fraction(1, 2 * b * b) for b in range(1, 50))
    with pytest.raises(InvalidParameter, match="batches = 7"):
        ExactRadius(batches=7).weight(8)


def test_without_noise_it_is_hoeffding() -> None:
    arguments: dict[str, Any] = {"batch": 1, "active": 10, "failure": "0.1"}
    radius = ExactRadius(batches=1)
    assert radius.width(Unprotected(), 400, **arguments) == hoeffding_width(400, "0.01")
    gap = radius.gap(Unprotected(), 400, **arguments)
    assert gap == 2 * hoeffding_width(800, Fraction(1, 90))
    assert gap < math.sqrt(2) * radius.width(Unprotected(), 400, **arguments)


def test_bits_fall_back_to_two_widths() -> None:
    arguments: dict[str, Any] = {"batch": 1, "active": 10, "failure": "0.1"}
    biased = BitPrivatizer(epsilon="1/2", delta="1e-6")
    assert not has_gap(biased.noise(1000))
    width = ExactRadius().width(biased, 1000, **arguments)
    assert ExactRadius().gap(biased, 1000, **arguments) == 2 * width
    fair = biased.noise(16)
    assert has_gap(fair)
    assert ExactRadius().gap(biased, 16, **arguments) < 1.42 * ExactRadius().width(
        biased, 16, **arguments
    )


# -- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argument", "edit"),
    [
        ("pulls", {"pulls": 0}),
        ("precision", {"precision": 0}),
        ("failure", {"failure": 0}),
        ("failure", {"failure": 1}),
        ("threshold", {"threshold": -1}),
        ("noise", {"noise": 3}),
        ("noise", {"noise": Poisson(mean=3), "gap": True}),
        ("threshold", {"noise": Poisson(mean=3), "threshold": 9}),
    ],
)
def test_bad_arguments(argument: str, edit: dict[str, Any]) -> None:
    given: dict[str, Any] = {
        "noise": DiscreteLaplace(scale=4),
        "precision": 2,
        "pulls": 9,
        "failure": "0.1",
    } | edit
    call = certified_gap if given.pop("gap", False) else certified_width
    with pytest.raises(InvalidParameter, match=argument):
        call(given.pop("noise"), **given)


def test_bad_rules() -> None:
    privatizer = Unprotected()
    for radius in (ExactRadius(), PaperRadius(), DpSeRadius()):
        for argument, edit in (("active", 0), ("batch", 0), ("failure", 2)):
            given: dict[str, Any] = {"batch": 1, "active": 2, "failure": "0.1"} | {argument: edit}
            with pytest.raises(InvalidParameter, match=argument):
                radius.width(privatizer, 10, **given)
        with pytest.raises(InvalidParameter, match="pulls"):
            radius.width(privatizer, 0, batch=1, active=2, failure="0.1")
    with pytest.raises(InvalidParameter, match="form"):
        PaperRadius(form="new")  # type: ignore[arg-type]  # what is refused
    with pytest.raises(InvalidParameter, match="batches"):
        ExactRadius(batches=0)
    with pytest.raises(InvalidParameter, match="sigma"):
        tkms_width(batches=1, pulls=10, sigma=-1, horizon=100)
    assert tkms_width(batches=4, pulls=100, sigma=3, horizon=1000) == pytest.approx(
        (2 * 2 * 3 / 100 + 0.1) * math.sqrt(2 * math.log(1000)), rel=1e-12
    )


@pytest.mark.nightly
def test_tiny_epsilons_have_a_width_or_are_refused_by_name() -> None:
    tiny = SumPrivatizer(trust="local", epsilon="1e-17", failure="1e-6")
    arguments: dict[str, Any] = {"batch": 1, "active": 2, "failure": "0.1"}
    assert 1e17 < ExactRadius(batches=1).width(tiny, 1, **arguments) < 1e18
    with pytest.raises(InvalidParameter, match="modulus"):  # sums of 16 leave int64
        ExactRadius(batches=1).width(tiny, 16, **arguments)


@pytest.mark.parametrize("scale", [10**6, 10**9, 10**15])
def test_noise_far_above_the_rewards_has_nearly_its_own_quantile(scale: int) -> None:
    # P(|X| > t) = 2 e^(-(t+1)/s)/(1 + e^(-1/s)), about e^(-t/s), and one reward is nothing to it.
    width = certified_width(DiscreteLaplace(scale=scale), precision=1, pulls=1, failure="1/30")
    assert 1 <= width / (scale * math.log(30)) < 1.02
