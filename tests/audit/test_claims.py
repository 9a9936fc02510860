"""Tests of `audit.claims`: parsing, and points against independent mpmath curves."""

from __future__ import annotations

import json
import math
import pickle
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import partial
from typing import Any

import mpmath
import pytest

from audit import claims
from audit.claims import Claim, CurveClaim, read_claim
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Relation
from dpcore.numbers.rounding import down, up
from tests.audit.known_laws.test_compare_two_laws import masses
from tests.day_and_nightly import by_day
from tests.support.accounting.brute_force import normal_delta, real, shifted, worse
from tests.support.dpcore.mutants import mutated
from tests.support.dpcore.refusals import refusal

DIGITS = 40


def reached(masses: dict[int, mpmath.mpf], shift: int, epsilon: Fraction) -> mpmath.mpf:
    """delta at epsilon between a law and its shift by ``shift``, the larger of both directions."""
    return worse(shifted(masses, shift), epsilon)


Points = Iterable[tuple[Fraction, Fraction]]
Curve = Callable[[Fraction], Any]


def below(points: Points, true: Curve) -> list[Any]:
    """The points that lie below the true curve."""
    with mpmath.workdps(DIGITS):
        # The truncation error of the sums is below this slack.
        slack = mpmath.mpf(10) ** -30
        return [(e, d) for e, d in points if real(d) < true(e) - slack]


def just_above(points: Points, true: Curve) -> bool:
    """Whether points are on the true curve or above, by at most the rounding to six digits."""
    with mpmath.workdps(DIGITS):
        near = 1 + mpmath.mpf(10) ** -5
        return not below(points, true) and all(real(d) <= true(e) * near for e, d in points if d)


def exact(claim: CurveClaim | Claim) -> list[tuple[Fraction, Fraction]]:
    return [point.exact for point in claim.points]


LAWS = (
    "discrete-gaussian:sigma_squared=1/4",
    "discrete-laplace:scale=2",
    "discrete-gaussian:sigma_squared=59/8",
    "skellam:variance=25",
    "poisson:mean=4",
    "binomial:trials=50,probability=1/2",
)


@by_day(2)
@pytest.mark.parametrize("law", LAWS)
def test_points_of_a_law_are_just_above_its_curve(law: str) -> None:
    for shift in (1, 2):
        points = exact(CurveClaim(spelling=f"{law}@{shift}"))
        assert just_above(points, partial(reached, masses(law), shift))
        assert points[0][0] == 0


def test_a_delta_that_is_rounded_down_is_detected() -> None:
    true = partial(reached, masses("discrete-gaussian:sigma_squared=4"), 1)
    stated = claims._stated_curve("discrete-gaussian:sigma_squared=4@1")
    line = "rounded = Fraction(up(delta(epsilon), _DIGITS))"
    mutant = mutated(type(stated).points, line, line.replace("up(", "down("), down=down)
    assert not below(stated.points(), true)
    assert len(below(mutant(stated), true)) == 7


@by_day(2)
@pytest.mark.parametrize("rho", ["1/1000", "0.1", "2"])
def test_points_of_zcdp_follow_from_the_claim(rho: str) -> None:
    # Two rho-zCDP mechanisms whose curves lie below the points: the Gaussian of variance 1/(2 rho),
    # and randomised response with pure epsilon sqrt(2 rho) (Bun and Steinke 2016, Propositions 1.6
    # and 1.4).
    points = exact(read_claim(f"rho={rho}"))
    squared = 2 * real(rho)
    mu = mpmath.sqrt(squared)

    def response(epsilon: Fraction) -> mpmath.mpf:
        e = real(epsilon)
        return max((mpmath.exp(mu) - mpmath.exp(e)) / (1 + mpmath.exp(mu)), mpmath.mpf(0))

    assert not below(points, partial(normal_delta, squared))
    assert not below(points, response)
    # At epsilon = 0 also by Pinsker's inequality.
    assert points[0][0] == 0
    assert points[0][1] <= Fraction(up(math.sqrt(Fraction(rho) / 2), 6))
    # The points are not below the theorem's best order on a fine grid, found independently.
    for epsilon, delta in points[1:]:
        orders = (1 + 1.03**k for k in range(-234, 304))
        best = min(at_order(float(Fraction(rho)), float(epsilon), a) for a in orders)
        assert float(delta) <= best * 1.001


def at_order(rho: float, epsilon: float, order: float) -> float:
    """Canonne, Kamath and Steinke 2020, Proposition 12, at one order; floats."""
    log = (order - 1) * (rho * order - epsilon + math.log1p(-1 / order)) - math.log(order)
    return math.exp(min(log, 0.0))


@pytest.mark.parametrize("mu", ["0.01", "1", "3"])
def test_points_of_gaussian_dp_are_just_above_its_curve(mu: str) -> None:
    points = exact(read_claim(f"gdp={mu}"))
    assert just_above(points, partial(normal_delta, real(mu) ** 2))


SHAPES = {
    "discrete-gaussian:sigma_squared=4@1": (7, 0.0),
    "discrete-laplace:scale=2@1": (4, 0.5),
    "discrete-gaussian:sigma_squared=1000000@1": (4, 0.0),
    "poisson:mean=4@1": (3, 0.0),
    "rho=1e-9": (3, 0.0),
    "gdp=30": (1, 0.0),
}


@pytest.mark.parametrize("text", SHAPES)
def test_points_are_few_distinct_short_and_in_order(text: str) -> None:
    claim = CurveClaim(spelling=text)
    count, pure = SHAPES[text]
    points = exact(claim)
    assert len(points) == count
    assert points == sorted(set(points))
    assert [d for _, d in points] == sorted((d for _, d in points), reverse=True)
    assert len({d for _, d in points}) == count
    assert all(0 <= d < 1 and e <= 500 for e, d in points)
    assert all(len(str(point)) <= 40 and "/" not in str(point) for point in claim.points)
    assert [float(e) for e, d in points if d == 0] == ([pure] if pure else [])
    assert CurveClaim(spelling=text).points == claim.points  # derived from the claim alone


SPELLINGS = {
    "rho=0.10": "rho=0.1",
    " gdp = 1/3": "gdp=1/3",
    "discrete-gaussian:sigma_squared=0.25 @ 1": "discrete-gaussian:sigma_squared=1/4@1",
    "discrete-gaussian:sigma_squared=4@l2-squared=2": (
        "discrete-gaussian:sigma_squared=4@l2-squared=2"
    ),
    "discrete-laplace:scale=2@l1=1e0": "discrete-laplace:scale=2@l1=1",
    "discrete-laplace:scale=2@box=1x2": "discrete-laplace:scale=2@box=1x2",
    "epsilon=1/2,delta=1e-6": "epsilon=0.5,delta=1e-6",
}


@pytest.mark.parametrize("text", SPELLINGS)
def test_a_claim_survives_a_round_trip(text: str) -> None:
    claim = read_claim(text, "add-remove")
    assert str(claim) == SPELLINGS[text]
    assert read_claim(str(claim), Relation.ADD_REMOVE) == claim
    assert pickle.loads(pickle.dumps(claim)) == claim  # noqa: S301 - our own bytes, just written
    assert {point.relation for point in claim.points} == {claim.relation} == {Relation.ADD_REMOVE}
    written = json.loads(json.dumps(claim.to_json()))
    if isinstance(claim, Claim):
        assert claim.points == (claim,)
        assert set(written) == {"epsilon", "delta", "relation"}
    else:
        assert (written["epsilon"], written["delta"]) == (None, None)
        assert (written["claim"], written["relation"]) == (str(claim), "add-remove")
        assert [tuple(map(Fraction, point)) for point in written["points"]] == exact(claim)


def test_the_curve_for_plots_is_rounded_up() -> None:
    claim = CurveClaim(spelling="discrete-gaussian:sigma_squared=4@1")
    law = masses("discrete-gaussian:sigma_squared=4")
    with mpmath.workdps(DIGITS):
        for epsilon in (0, 0.1, 1, 3.3):
            true = reached(law, 1, Fraction(str(epsilon)))
            assert true <= claim.delta_upper(epsilon) <= true * (1 + mpmath.mpf(10) ** -12)
    assert CurveClaim(spelling="rho=100").delta_upper(0) == 1.0
    assert "epsilon" in refusal(lambda: claim.delta_upper(-1))


REFUSED = [
    "",
    "delta=0.1",
    "rho=0",
    "rho=x",
    "rho=0.1,delta=1e-6",
    "discrete-laplace:scale=2",
    "discrete-laplace:scale=2@",
    "discrete-laplace:scale=2@0",
    "discrete-laplace:scale=2@l3=1",
    "discrete-laplace:scale=0@1",
    "discrete-laplace@1",
    "no-such-law:scale=2@1",
    "@1",
    "discrete-laplace:scale=1/1000@1",  # pure at epsilon = 1000 only, which audits do not test
]


@pytest.mark.parametrize("text", REFUSED)
def test_an_invalid_claim_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidParameter) as refused:
        read_claim(text)
    assert refused.value.argument == "claim"
    assert refused.value.value == text


def test_a_claim_is_parsed_with_its_relation() -> None:
    assert "claim" in refusal(lambda: read_claim(None))  # type: ignore[arg-type]  # on purpose
    assert "relation" in refusal(lambda: read_claim("rho=1", "neighbours"))
    assert "must be >= 0 and <= 1e300" in refusal(lambda: read_claim("epsilon=1e301"))


def test_accounting_is_imported_only_for_a_curve() -> None:
    code = (
        "import sys; from audit.claims import read_claim; read_claim('epsilon=1');"
        "assert not any(m.startswith('accounting') for m in sys.modules);"
        "read_claim('rho=1');"
        "assert 'accounting.guarantees.renyi_and_zcdp_to_epsilon' in sys.modules;"
        "assert not {'accounting.privacy_curves', 'accounting.composition'} & {*sys.modules}"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


ALL = r"epsilon=E,delta=D.*rho=R.*gdp=MU.*NOISE@SENS"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("gaussian:sigma=2@1", r"did you mean gdp=1/2\?"),
        ("gaussian:sigma=1/2@3", r"did you mean gdp=6\?"),
        ("gaussian:sigma=2@l2-squared=3", "write gdp=MU"),
        ("gaussian:sigma=0@1", "sigma"),
        ("delta=1e-5", "epsilon is missing"),
        ("epsilom=1", r"did you mean epsilon\?"),
        *((text, ALL) for text in ("sigma=1", "delta=1", "discrete-laplace:scale=2")),
    ],
)
def test_a_nearly_correct_claim_is_refused_with_a_suggestion(text: str, what: str) -> None:
    with pytest.raises(InvalidParameter) as refused:
        read_claim(text)
    assert re.search(what, str(refused.value))
    assert "did you mean delta" not in str(refused.value)
