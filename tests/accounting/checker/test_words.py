"""What a verdict says that it verified: epsilon, noise and rounds, in lines that stay short."""

from __future__ import annotations

from fractions import Fraction

from accounting.certificates.certificate import certify
from accounting.checker import verify
from accounting.checker.text.words import decimal_of, rounds_in_words
from accounting.release.curve import PrivacyCurve
from dpcore import DiscreteGaussian


def test_what_was_verified_is_said_in_short_lines() -> None:
    curve = PrivacyCurve(noise=DiscreteGaussian(sigma_squared=400), sensitivity=1)
    gaussian = str(verify(certify(curve, deltas=["1e-6"]).text())).splitlines()[0]
    assert gaussian.startswith("claims[0] (epsilon): holds: epsilon in [0.18920733, 0.18920734]")
    assert "1 round of discrete-gaussian:sigma_squared=400 (sensitivity 1): just" in gaussian
    # Whoever wrote the text cannot make a line long.
    law = {"law": "skellam", "variance": "1" * 500}
    one = {"noise": law, "sensitivity": {"norm": "box", "amount": [1] * 500}, "rounds": 2}
    words = rounds_in_words([{**one, "honest": "3/4"}] * 500)
    assert len(words) < 1000
    assert "a box of 500 numbers, share of the honest 3/4" in words
    assert words.endswith(" and 497 kinds more")
    assert decimal_of(Fraction(1, 3)) == "1/3"
