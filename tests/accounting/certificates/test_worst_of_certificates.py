"""Tests of `accounting.certificates.worst_of_certificates`: too small bounds must fail."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from accounting import Allowance, Malformed, Status
from accounting.certificates.canonical_text import digest_of
from accounting.certificates.certify import certify
from accounting.certificates.worst_of_certificates import (
    WorstPart,
    check_certificates,
    stated_parts,
    worst_of,
)
from accounting.privacy_curves.release_curve import PrivacyCurve
from dpcore.laws.discrete_laplace import DiscreteLaplace

DELTA = "1/1000"


def part(scale: int) -> WorstPart:
    curve = PrivacyCurve(noise=DiscreteLaplace(scale=scale), sensitivity=1)
    own = certify(curve, deltas=[DELTA]).to_json()
    upper = next(each["upper"] for each in own["claims"] if each["quantity"] == "epsilon")
    return WorstPart(
        scope=own["scope"],
        inner=tuple(own["parts"]),
        claims={DELTA: Fraction(upper)},
        certificate=own,
        unchecked="",
    )


PARTS = (part(10), part(20))
EPSILON = PARTS[0].claims[DELTA]


def failures(epsilon: Fraction, *parts: WorstPart) -> list[tuple[str, str]]:
    found = worst_of({DELTA: epsilon}, parts, Allowance())
    return [(each.where, each.reason) for each in found if each.status is not Status.HOLDS]


def test_a_claim_must_be_at_least_the_largest_of_its_parts() -> None:
    assert PARTS[1].claims[DELTA] < EPSILON
    for turned in (PARTS, PARTS[::-1]):
        assert failures(EPSILON, *turned) == []
        assert failures(EPSILON + 1, *turned) == []
        less = failures(EPSILON - Fraction(1, 10**9), *turned)
        assert less == [("claims[0] (epsilon)", "is less than the epsilon of a part")]


def test_a_part_must_agree_with_its_own_certificate() -> None:
    small = replace(PARTS[0], claims={DELTA: EPSILON / 2})
    where, reason = failures(EPSILON, small)[0]
    assert (where, reason) == (
        "parts[0]",
        f"claims a smaller epsilon at {DELTA} than its certificate proves",
    )
    for other in ({"scope": {"unit": "user", "relation": "replace"}}, {"inner": PARTS[1].inner}):
        wrong = replace(PARTS[0], **other)
        assert failures(EPSILON, wrong) == [
            ("parts[0]", "differs from the content of its own certificate")
        ]
    sentence = replace(PARTS[0], assumption="somebody said so")
    assert failures(EPSILON, sentence) == [
        ("parts[0]", "its own certificate does not assume: somebody said so")
    ]


def test_a_pure_epsilon_bounds_a_part_at_every_delta() -> None:
    curve = PrivacyCurve(noise=DiscreteLaplace(scale=10), sensitivity=1)
    own = certify(curve, deltas=()).to_json()
    alone = replace(PARTS[0], certificate=own, claims={DELTA: Fraction(1, 10)})
    assert failures(Fraction(1, 10), alone) == []
    less = replace(alone, claims={DELTA: Fraction(1, 10) - Fraction(1, 10**9)})
    assert "claims a smaller" in failures(Fraction(1, 10), less)[0][1]
    # A claim of another kind does not bound epsilon.
    other = certify(curve, deltas=(), epsilons=["1/100"]).to_json()
    rest = [each for each in other["claims"] if each["quantity"] == "delta"]
    bare = {**other, "claims": rest, "digest": ""}
    bare["digest"] = digest_of(bare)
    assert "claims a smaller" in failures(Fraction(1, 10), replace(alone, certificate=bare))[0][1]


def test_a_failing_missing_or_stated_part_is_named() -> None:
    own: Any = PARTS[1].certificate
    broken = replace(PARTS[1], certificate={**own, "digest": "sha256:" + "0" * 64})
    ((where, _),) = failures(EPSILON, PARTS[0], broken)
    assert where == "parts[1].certificate.digest"
    with pytest.raises(Malformed, match=r"parts\[1\]\.certificate\.schema"):
        check_certificates([PARTS[0], replace(PARTS[1], certificate={"schema": "other"})])
    bare = replace(PARTS[0], certificate=None, unchecked="too large")
    assert failures(EPSILON, bare) == [("parts[0]", "too large")]
    stated = replace(PARTS[0], inner=({"epsilon": "1/8"},), reason="a theorem")
    (found,) = stated_parts([PARTS[1], stated])
    assert (found.where, found.status) == ("parts[1]", Status.ASSUMED)
    assert found.reason == "epsilon 1/8 is stated, not derived: a theorem"
