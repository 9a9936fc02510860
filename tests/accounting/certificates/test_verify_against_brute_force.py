r"""Property tests of ``verify`` against brute force: a claim that verifies is true.

Certificates are drawn over every law, norm, number of rounds, mixture and scope, including those
that ``certify`` would not write. The reference is ``Truth``, which tries every shift of every
coordinate in every round. Claims are the cell of the exact value, neighbouring cells, a single
point, and the cost of a neighbour that a wrong checker would take for the worst one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from random import Random
from typing import Any

import pytest

from accounting import Status, deadline, verify
from accounting.descriptions.real_noise import REAL_LAWS
from accounting.proof_kernel import worst_case_neighbours
from tests.accounting.certificates.conftest import clear
from tests.accounting.certificates.test_claims_once_accepted import ALL_UP_OR_ALL_DOWN
from tests.accounting.certificates.test_verify_rounds import SMALL
from tests.day_and_nightly import effort
from tests.support.accounting.handwritten_certificates import cell, certificate, noise, stated
from tests.support.accounting.neighbour_lower_bounds import Truth, size

ONE_SIDED = ("poisson", "binomial", "polya")
TURNING = ("binomial", "binomial", "binomial", *ONE_SIDED)
LAWS = tuple(name for name in SMALL if name not in REAL_LAWS)
SLACK = 1e-11
_MOST = 2e5
_OTHERS = 4


def part(draws: Random, names: tuple[str, ...], norms: tuple[str, ...]) -> dict[str, Any]:
    if draws.random() < 0.08:
        epsilon, times = str(Fraction(draws.randint(0, 8), 5)), draws.randint(1, 3)
        if draws.random() < 0.5:
            return stated("pure", times, epsilon=epsilon)
        return stated("approx", times, epsilon=epsilon, delta="1/50")
    name, norm = draws.choice(names), draws.choice(norms)
    amount: Any = draws.randint(1, 3)
    times = draws.choice((1, 1, 1, 2, 3))
    if norms == ("box",):
        times, amount = 1, [1] * draws.choice((2, 2, 3))
    elif norm == "box":
        amount = [draws.randint(1, 3) for _ in range(draws.choice((1, 2, 2, 3)))]
    values = {key: draws.choice(some) for key, some in SMALL[name].items()}
    return noise(name, (norm, amount), times, **values)


def claims(draws: Random, found: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], float]]:
    """Return claims with their truth: cells around the value, and points."""
    truth = Truth.of(found)
    epsilon = Fraction(draws.randint(0, 30), 13)
    delta = Fraction(draws.randint(1, 700), 10**3)
    for _ in range(_OTHERS):
        near = Fraction(draws.randint(1, 20), 19)
        for other in truth.worst(float(near), _OTHERS):
            place = math.floor(other.delta(float(near)) * 10**6)
            yield cell("delta", str(near), place, 6), truth.delta(float(near))
    asked = [
        ("delta", str(epsilon), truth.delta(float(epsilon))),
        ("epsilon", str(delta), truth.epsilon(float(delta))),
    ]
    for quantity, at, value in asked:
        digits = draws.randint(3, 7)
        place = math.floor(min(value, 1e3) * 10**digits)
        for off in (-3, -1, 0, 1, 3):
            if place + off >= 0:
                yield cell(quantity, at, place + off, digits), value
                yield cell(quantity, at, place + off, digits, 0), value
        yield cell(quantity, at, round(min(value, 1e3)), 0, 0), value
    for other in truth.worst(min(asked[1][2], 1.0), _OTHERS):
        less = other.epsilon(float(delta))
        if less < 1e3:
            yield cell("epsilon", str(delta), math.floor(less * 10**5), 5), asked[1][2]


def is_false(claim: dict[str, Any], value: float) -> bool:
    low, high = float(Fraction(claim["lower"])), float(Fraction(claim["upper"]))
    slack = SLACK * (1 + high)
    return not low - slack <= value <= high + slack


def faults(
    seed: int,
    cases: int,
    names: tuple[str, ...] = LAWS,
    norms: tuple[str, ...] = ("absolute", "box", "l1", "l2-squared"),
) -> tuple[list[str], Counter[Status]]:
    """Return the false claims that verify, and the count of each verdict."""
    draws, bad, seen = Random(seed), [], Counter[Status]()
    for _ in range(cases):
        found = [part(draws, names, norms)]
        while size(found) > _MOST or draws.random() < 0.25:
            found = [part(draws, names, norms) for _ in range(draws.choice((1, 1, 1, 2)))]
        told = {str(claim): (claim, value) for claim, value in claims(draws, found)}
        scope = (draws.choice(("contribution", "user")), draws.choice(("replace", "add-remove")))
        with deadline(600):
            verdict_of = verify(certificate(found, [claim for claim, _ in told.values()], scope))
        if len(verdict_of.findings) < len(told):
            assert "no certificate covers" in str(verdict_of)
            continue
        for finding, (claim, value) in zip(verdict_of.findings, told.values(), strict=True):
            seen[finding.status] += 1
            if finding.status is Status.HOLDS and is_false(claim, value):
                bad.append(f"{found}: {claim}: the truth is {value}")
    return bad, seen


def test_no_false_claim_holds() -> None:
    bad, seen = faults(1, effort(4, 9))
    assert bad == []
    assert seen[Status.HOLDS] > effort(8, 20)
    assert seen[Status.FAILS] > effort(40, 100)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(10, 30))
def test_no_false_claim_holds_in_many_examples(seed: int) -> None:
    assert faults(seed, 100)[0] == []


@pytest.mark.nightly
def test_a_check_of_two_directions_of_an_asymmetric_box_is_detected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bad, seen = faults(5, 20, TURNING, ("box",))
    assert bad == []
    assert seen[Status.HOLDS] > 5
    monkeypatch.setattr(worst_case_neighbours, "_directions", ALL_UP_OR_ALL_DOWN)
    clear()
    assert faults(5, 20, TURNING, ("box",))[0] != []
