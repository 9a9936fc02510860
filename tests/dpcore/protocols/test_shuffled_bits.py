r"""Tests of shuffled bits: uniform order by enumeration, unbiased estimates, input validation."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dpcore import DiscreteLaplace, SeededRng, Sensitivity
from dpcore.laws.poisson_and_binomial import Binomial
from dpcore.protocols.ideal_aggregation import IdealAggregation, Shuffler
from dpcore.protocols.noisy_sums import AggregatedSum
from dpcore.protocols.run_protocol import run
from dpcore.protocols.shuffled_bits import BinaryShuffle, BitMessages, BitSum, VectorShuffle
from dpcore.sampling.rng import permutation
from tests.alpha_budget import buy_alpha
from tests.support.dpcore.mutants import mutated
from tests.support.dpcore.refusals import names, refusal
from tests.support.dpcore.scripted_rng import Dealt, NeverAsked

BINARY = BinaryShuffle(users=6, noise_bits=2, probability="1/2")
VECTOR = VectorShuffle(users=5, precision=4, coordinates=2, noise_bits=3, probability="1/3")


def orders(order: Any, count: int, values: int) -> Counter[tuple[int, ...] | None]:
    r"""Count each order over all keys of few values; None where keys are redrawn."""
    found: Counter[tuple[int, ...] | None] = Counter()
    for keys in itertools.product(range(values), repeat=count):
        try:
            found[tuple(order(count, Dealt(*keys)).tolist())] += 1
        except AssertionError:
            found[None] += 1
    return found


def test_the_batch_order_is_uniform_over_keys_and_redraws_ties() -> None:
    for count, values in ((2, 3), (3, 4), (4, 5)):
        found = orders(permutation, count, values)
        redrawn = found.pop(None)
        assert redrawn == values**count - math.perm(values, count)
        assert set(found.values()) == {math.comb(values, count)}
        assert len(found) == math.factorial(count)


def test_an_order_that_keeps_ties_is_biased() -> None:
    tied = mutated(permutation, "ranked[1:] == ranked[:-1]", "ranked[1:] < ranked[:-1]")
    assert len(set(orders(tied, 3, 4).values())) > 1


def test_the_shuffler_keeps_the_bits_of_each_coordinate() -> None:
    messages = VECTOR.randomize(np.linspace(0, 1, 10).reshape(5, 2), rng=SeededRng(1))
    assert messages.bits.shape == (5, 2, 7)
    shuffled = Shuffler().shuffle(messages, rng=SeededRng(2))
    assert shuffled.shape == (2, 35)
    assert (shuffled.sum(axis=1) == messages.bits.sum(axis=(0, 2))).all()
    assert (shuffled != messages.bits.transpose(1, 0, 2).reshape(2, 35)).any()


def test_one_integer_per_user_is_refused_by_type_and_by_mypy() -> None:
    # An ignore that mypy does not need is itself an error, so mypy also refuses these lines.
    share = DiscreteLaplace(scale=8).share(4)
    protocol = AggregatedSum(users=4, precision=2, threshold=60, share=share)
    noisy = protocol.randomize([0.0, 0.0, 1.0, 1.0])
    line = refusal(lambda: Shuffler().shuffle(noisy, rng=NeverAsked()))  # type: ignore[arg-type]  # deliberately of the wrong type
    assert names(line, "messages")
    line = refusal(lambda: run(protocol, [0.5] * 4, Shuffler(), batch="b", rng=NeverAsked()))
    assert names(line, "functionality")
    ideal = IdealAggregation(modulus=protocol.modulus)
    line = refusal(lambda: run(BINARY, [1] * 6, ideal, batch="b", rng=NeverAsked()))
    assert names(line, "functionality")


@pytest.mark.parametrize(
    "bits",
    [
        np.zeros((2, 1, 3), dtype=np.int64),
        np.zeros((0, 1, 3), dtype=np.uint8),
        np.full((2, 1, 3), 2, dtype=np.uint8),
        None,
    ],
    ids=repr,
)
def test_messages_that_are_not_bits_are_refused(bits: Any) -> None:
    assert names(refusal(lambda: BitMessages(bits)), "bits")


def test_messages_are_immutable() -> None:
    given_bits = np.zeros((1, 1, 2), dtype=np.uint8)
    messages = BitMessages(given_bits)
    given_bits[0, 0, 0] = 7
    assert messages.bits.max() == 0
    with pytest.raises(ValueError, match="read-only"):
        messages.bits[0, 0, 0] = 1


def test_observed_noise_is_that_of_the_honest_users() -> None:
    assert BINARY.planned_noise == Binomial(trials=12, probability="1/2")
    assert BINARY.observed_noise(5) == Binomial(trials=10, probability="1/2")
    assert BINARY.mechanism(5).sensitivity == Sensitivity(1)
    assert VECTOR.observed_noise(2) == Binomial(trials=6, probability="1/3")
    assert VECTOR.mechanism(2).sensitivity == Sensitivity.box((4, 4))
    assert (BINARY.bits_per_user, VECTOR.bits_per_user) == (3, 14)


def bias(protocol: BitSum, truth: Fraction, present: int, estimates: Any = BitSum.estimates) -> Any:
    r"""E[estimate] - truth, for the mean number of ones: estimates are affine in the ones."""
    mean = present * protocol.noise_bits * Fraction(protocol.probability) + truth * 1
    low, high = math.floor(mean), math.floor(mean) + 1
    at = [estimates(protocol, np.array([k]), present)[0] for k in (low, high)]
    return at[0] + (at[1] - at[0]) * (mean - low) - truth / protocol.precision


def test_estimates_are_unbiased_with_dropouts() -> None:
    wide = VectorShuffle(users=7, precision=4, noise_bits=3, probability="1/3")
    for present in range(1, 7):
        assert bias(BINARY, Fraction(present), present) == 0
        assert bias(wide, Fraction(2 * present), present) == 0
    planned = mutated(BitSum.estimates, "bias(present)", "bias(self.users)")
    assert bias(wide, Fraction(4), 2, planned) != 0


def test_the_bits_have_the_law_of_their_noise() -> None:
    alpha = buy_alpha("binary shuffle: ones of three users", "1e-9")
    from scipy.stats import binom, binomtest  # imported here: only this test needs it

    def least_p(randomize: Any) -> float:
        rng, runs = SeededRng(21), 1500
        found = Counter(int(randomize(BINARY, [1, 0, 1], rng=rng).bits.sum()) for _ in range(runs))
        cells = [binomtest(found[k + 2], runs, binom.pmf(k, 6, 0.5)).pvalue for k in range(7)]
        return float(min(cells)) * 7

    assert least_p(BitSum.randomize) > alpha
    # The mutant: each user adds one more noise bit.
    assert least_p(mutated(BitSum.randomize, "trials=self", "trials=1 + self")) < alpha


def test_an_analysis_decodes_the_bits() -> None:
    x = np.array([[0.25, 1.0], [0.5, 0.0], [1.0, 0.75]])
    messages = VECTOR.randomize(x, rng=SeededRng(3))
    ones = messages.bits.sum(axis=(0, 2))
    estimate = VECTOR.analyze(Shuffler().shuffle(messages, rng=SeededRng(4)))
    assert estimate == tuple(Fraction(int(k) - 3, 4) for k in ones)  # 3 users, 3 bits of 1/3
    assert (messages.bits.sum(axis=2) >= x * 4).all()
    assert (messages.bits.sum(axis=2) <= x * 4 + 3).all()
    single = BINARY.analyze(np.array([[1, 0, 1, 1, 1, 0]], dtype=np.uint8))
    assert single == 4 - 2


def test_more_honest_users_than_participants_are_refused() -> None:
    assert names(refusal(lambda: BINARY.observed_noise(7)), "honest", 7)
    assert names(refusal(lambda: BINARY.mechanism(7)), "honest", 7)


@pytest.mark.parametrize("probability", [0, 1, "1.5", -1, "x", None])
def test_a_probability_without_privacy_is_refused(probability: Any) -> None:
    line = refusal(lambda: BinaryShuffle(users=1, noise_bits=1, probability=probability))
    assert names(line, "probability")


@pytest.mark.parametrize("x", [[], [2], [[1]], ["1"], [0] * 7, None])
def test_an_invalid_number_of_bits_is_refused(x: Any) -> None:
    assert names(refusal(lambda: BINARY.randomize(x, rng=NeverAsked())), "x")


@pytest.mark.parametrize("odd", [np.array([0, 1]), [0, 1], 1j, 1 + 0j, None, "1"], ids=repr)
def test_one_invalid_bit_of_one_user_is_refused(odd: Any) -> None:
    x = np.empty(2, dtype=object)
    x[0], x[1] = odd, 1
    assert names(refusal(lambda: BINARY.randomize(x, rng=NeverAsked())), "x")


@pytest.mark.parametrize(
    "x", [[[0.5]], [[0.5, 2.0]], [0.5, 0.5], [[0.5, 0.5]] * 6, [], 0.5, [[1], [1, 2]]]
)
def test_invalid_rows_of_bits_are_refused(x: Any) -> None:
    assert names(refusal(lambda: VECTOR.randomize(x, rng=NeverAsked())), "x")


@pytest.mark.parametrize(
    "shuffled",
    [
        np.zeros((1, 0), dtype=np.uint8),
        np.zeros((1, 4), dtype=np.uint8),
        np.zeros((1, 21), dtype=np.uint8),
        np.zeros((2, 3), dtype=np.uint8),
        np.zeros((1, 3), dtype=np.int64),
        np.full((1, 3), 2, dtype=np.uint8),
        [[0, 0, 0]],
    ],
    ids=repr,
)
def test_an_impossible_number_of_messages_is_refused(shuffled: Any) -> None:
    assert names(refusal(lambda: BINARY.analyze(shuffled)), "shuffled")
