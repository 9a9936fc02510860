r"""Tests of `accounting.composition.truncated_batches_delta`: all samples of small datasets."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import pytest

from accounting import PoissonSampled, PrivacyCurve, Pure, compose
from accounting.composition.truncated_batches_delta import Truncated
from dpcore import DiscreteLaplace
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Relation, Scope
from tests.support.accounting import subsampled_releases as releases
from tests.support.accounting.bound_ends import ends
from tests.support.accounting.brute_force import World, batch, worse

ADD_REMOVE = Scope(relation=Relation.ADD_REMOVE)
FAR = 40


def laws(values: list[int], rate: float, most: int) -> World:
    r"""Return the laws of the output with and without the first value."""
    ratio = math.exp(-1)
    size = (1 - ratio) / (1 + ratio)
    there, gone = (batch(data, rate, most) for data in (values, values[1:]))
    outputs = range(-FAR, FAR + 1)
    noise = {float(k): size * ratio ** abs(k) for k in range(-2 * FAR, 2 * FAR + 1)}
    both = [[sum(w * noise[y - s] for s, w in at.items()) for y in outputs] for at in (there, gone)]
    return [*zip(*both, strict=True)]


def cut(rate: str, examples: int, most: int, rounds: int = 1) -> Truncated:
    curve = PrivacyCurve(noise=DiscreteLaplace(scale=1), sensitivity=1, scope=ADD_REMOVE)
    total = compose((PoissonSampled(curve=curve, rate=rate), rounds))
    return Truncated(total=total, examples=examples, most=most)


def test_every_small_dataset_is_within_the_bound() -> None:
    r"""An example that displaces another one moves the sum by 2: eta is needed."""
    broken = 0
    for rate, most in itertools.product(("1/4", "3/4"), (1, 2, 3)):
        bound, q = cut(rate, 4, most), float(Fraction(rate))
        datasets = [*itertools.combinations_with_replacement((-1, 0, 1), 3)]
        worlds = {others: laws([1, *others], q, most) for others in datasets}
        for epsilon in ("1/10", "2/5", "9/10"):
            found, plain = ends(bound.delta(epsilon)), bound.total.delta(epsilon)
            truths = {others: float(worse(worlds[others], epsilon)) for others in datasets}
            assert max(truths.values()) <= found.upper_float + 1e-12
            broken += max(truths.values()) > plain.upper_float + 1e-9
            # With other examples that add nothing, the loss is nearly that without truncation.
            assert found.lower <= truths[0, 0, 0] + 1e-12
    assert broken > 0


def test_the_probability_of_truncation_is_exact() -> None:
    found = cut("1/4", 4, 2, rounds=3).cut_at_all
    once = Fraction(4 * 3 + 1, 4**4)
    truth = 1 - (1 - once) ** 3
    assert float(found.lower) == pytest.approx(float(truth), rel=1e-15)
    assert found.lower <= truth <= found.upper
    assert cut("1/4", 4, 4).cut_at_all.upper == 0
    assert cut("1", 4, 3).cut_at_all.upper == 1
    assert cut("1", 4, 3).epsilon("1e-3").upper == math.inf


def real(rounds: int = 30, sigma: str = "1") -> Any:
    return compose((releases.poisson(releases.gaussian(sigma), "1/100"), rounds))


@pytest.mark.nightly
def test_epsilon_is_the_inverse_of_delta() -> None:
    total = real()
    plain = total.epsilon("1e-6", "1e-4")
    bound = Truncated(total=total, examples=10_000, most=170)
    found = bound.epsilon("1e-6", "1e-4")
    assert found.lower is not None
    assert found.lower < plain.upper < found.upper
    # Delta at the upper end meets the target; at 99% of it, delta does not.
    assert bound.delta(found.upper, "1e-4").upper <= Fraction(1, 10**6)
    assert bound.delta(found.upper * Fraction(99, 100), "1e-4").upper > Fraction(1, 10**6)
    assert found.assumptions == total.assumptions != ()


def test_truncation_alone_can_cost_delta() -> None:
    total = real()
    assert Truncated(total=total, examples=10_000, most=150).epsilon("1e-6").upper == math.inf
    nothing = Truncated(total=total, examples=10_000, most=10_000).epsilon("1e-6", "1e-4")
    assert nothing.upper == total.epsilon("1e-6", "1e-4").upper
    # There is a cost at an epsilon beyond floats.
    far = Truncated(total=real(sigma="1e-6"), examples=1000, most=20).epsilon("1e-5")
    assert far.upper > 10**9


def test_bad_input_is_refused() -> None:
    total = real(1)
    good: dict[str, Any] = {"total": total, "examples": 100, "most": 10}
    for name, values in {
        "total": (compose(Pure(1, scope=ADD_REMOVE)), total.parts[0][0]),
        "examples": (0, -1, "1.5"),
        "most": (0, -1, "1.5"),
    }.items():
        for bad in values:
            with pytest.raises(InvalidParameter):
                Truncated(**{**good, name: bad})
