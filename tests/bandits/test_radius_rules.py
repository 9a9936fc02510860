"""The rules that eliminate: the papers' radii, the budget of a run, sums of Laplace draws."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest

from bandits import laplace_sum
from bandits.privatizer import Unprotected
from bandits.privatizer_bits import BitPrivatizer
from bandits.privatizer_sum import SumPrivatizer, Trust
from bandits.radius import DpSeRadius, ExactRadius, PaperRadius, radius_of, tkms_width
from bandits.radius_exact import certified_gap, certified_width, has_gap, hoeffding_width
from dpcore import DiscreteLaplace, InvalidParameter, PolyaDifference
from dpcore.enclosure import Enclosure, precision
from dpcore.poisson import Poisson
from tests.dpcore.mutants import mutated

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


def test_tails_of_sums_of_laplace_draws() -> None:
    for draws, scale in ((16, 3), (40, 10), (200, 2)):
        law = PolyaDifference(shape=draws, scale=scale)
        deviation = math.sqrt(2 * draws) * scale
        for multiple in (0.02, 1, 4, 9):
            least = int(deviation * multiple) + 1
            found = laplace_sum.sum_tail(draws=draws, scale=scale, least=least, bits=30)
            assert found.overlaps(law.enclose_sf(least - 1, 60))
            assert found.upper - found.lower <= Fraction(found.upper) / 2**29
    with pytest.raises(InvalidParameter, match="draws"):
        laplace_sum.sum_tail(draws=15, scale=3, least=4, bits=20)


@pytest.mark.parametrize("scale", [Fraction(1, 3), 1, 40, 10**6])
def test_the_tail_of_two_draws(scale: Fraction | int) -> None:
    law = PolyaDifference(shape=2, scale=scale)
    for least in (0, 1, 2, int(3 * scale), int(25 * scale) + 1):
        found = laplace_sum.pair_tail(scale=scale, least=least, bits=60)
        true = law.enclose_sf(least - 1, 60)
        assert found.overlaps(true)
        assert not found.overlaps(law.enclose_sf(least, 60))


def test_tails_of_laplace_sums_need_their_far_frequencies() -> None:
    # Forgetting what is beyond the last frequency gives balls that miss the tail.
    short = mutated(laplace_sum._sum, "last + 1):", "max(last // 8, 1)):")
    line = laplace_sum._line(16.0, 3.0, 20)
    with precision(64):
        cut = Enclosure.of(short(Fraction(16), Fraction(3), 20, *line))
        whole = Enclosure.of(laplace_sum._sum(Fraction(16), Fraction(3), 20, *line))
    true = PolyaDifference(shape=16, scale=3).enclose_sf(19, 60)
    assert whole.overlaps(true)
    assert not cut.overlaps(true)


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
    with pytest.raises(InvalidParameter, match="name"):
        radius_of("tight")  # type: ignore[arg-type]  # what is refused
    with pytest.raises(InvalidParameter, match="form"):
        PaperRadius(form="new")  # type: ignore[arg-type]  # what is refused
    with pytest.raises(InvalidParameter, match="batches"):
        ExactRadius(batches=0)
    with pytest.raises(InvalidParameter, match="sigma"):
        tkms_width(batches=1, pulls=10, sigma=-1, horizon=100)
    assert tkms_width(batches=4, pulls=100, sigma=3, horizon=1000) == pytest.approx(
        (2 * 2 * 3 / 100 + 0.1) * math.sqrt(2 * math.log(1000)), rel=1e-12
    )
