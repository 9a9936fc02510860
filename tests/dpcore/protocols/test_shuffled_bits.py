r"""Tests of shuffled bits: uniform order by enumeration, unbiased estimates, input validation."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest

from dpcore import DiscreteLaplace, SeededRng, Sensitivity
from dpcore.laws.poisson_and_binomial import Binomial
from dpcore.laws.polya import PolyaDifference
from dpcore.protocols.noisy_sums import AggregatedSum
from dpcore.protocols.run_protocol import IdealAggregation, Shuffler, run
from dpcore.protocols.shuffled_bits import (
    BinaryShuffle,
    BitMessages,
    BitSum,
    PureShuffle,
    VectorShuffle,
)
from dpcore.sampling.rng import permutation
from tests.alpha_budget import buy_alpha
from tests.support.accounting.shuffled_views import message_laws
from tests.support.dpcore.cells import least_p
from tests.support.dpcore.mutants import mutated
from tests.support.dpcore.refusals import names, refusal
from tests.support.dpcore.scripted_rng import Dealt, NeverAsked

BINARY = BinaryShuffle(users=6, noise_bits=2, probability="1/2")
VECTOR = VectorShuffle(users=5, precision=4, coordinates=2, noise_bits=3, probability="1/3")

SHARE = PolyaDifference(shape="1/2", scale=2)
SMALL = PureShuffle(users=3, precision=2, reach=3, cover="1/8", share=SHARE)
BITS = PureShuffle(users=3, precision=1, reach=2, cover="1/8", share=SHARE)


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
    for bits in (BINARY, BITS):
        line = refusal(partial(run, bits, [1] * bits.users, ideal, batch="b", rng=NeverAsked()))
        assert names(line, "functionality")


def test_messages_are_immutable_bits() -> None:
    given_bits = np.zeros((1, 1, 2), dtype=np.uint8)
    messages = BitMessages(given_bits)
    given_bits[0, 0, 0] = 7
    assert messages.bits.max() == 0
    with pytest.raises(ValueError, match="read-only"):
        messages.bits[0, 0, 0] = 1
    wrong: list[Any] = [None, np.full((2, 1, 3), 2, dtype=np.uint8)]
    for bits in (*wrong, np.zeros((2, 1, 3), dtype=np.int64), np.zeros((0, 1, 3), dtype=np.uint8)):
        assert names(refusal(partial(BitMessages, bits)), "bits")


def test_observed_noise_is_that_of_the_honest_users() -> None:
    assert BINARY.planned_noise == Binomial(trials=12, probability="1/2")
    assert BINARY.observed_noise(5) == Binomial(trials=10, probability="1/2")
    assert BINARY.mechanism(5).sensitivity == Sensitivity(1)
    assert VECTOR.observed_noise(2) == Binomial(trials=6, probability="1/3")
    assert VECTOR.mechanism(2).sensitivity == Sensitivity.box((4, 4))
    assert (BINARY.bits_per_user, VECTOR.bits_per_user) == (3, 14)


def bias(protocol: Any, truth: Fraction, present: int, estimate: Any = BitSum.estimate) -> Any:
    r"""E[estimate] - truth, for the mean number of ones: estimates are affine in the ones."""
    mean = present * protocol.noise_bits * Fraction(protocol.probability) + truth * 1
    low, high = math.floor(mean), math.floor(mean) + 1
    at = [estimate(protocol, k, present) for k in (low, high)]
    return at[0] + (at[1] - at[0]) * (mean - low) - truth / protocol.precision


def test_estimates_are_unbiased_with_dropouts() -> None:
    wide = VectorShuffle(users=7, precision=4, noise_bits=3, probability="1/3")
    for present in range(1, 7):
        assert bias(BINARY, Fraction(present), present) == 0
        assert bias(wide, Fraction(2 * present), present) == 0
    planned = mutated(BitSum.estimate, "bias(present)", "bias(self.users)")
    assert bias(wide, Fraction(4), 2, planned) != 0


def test_the_bits_have_the_law_of_their_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    alpha = buy_alpha("binary shuffle: ones of three users", "1e-9")

    def p_value() -> float:
        rng = SeededRng(21)
        ones = [int(BINARY.randomize([1, 0, 1], rng=rng).bits.sum()) for _ in range(1000)]
        return least_p(ones, {k + 2: math.comb(6, k) / 64 for k in range(7)})

    assert p_value() > alpha
    # The mutant: each user adds one more noise bit.
    monkeypatch.setattr(BitSum, "_ones", mutated(BitSum._ones, "trials=self", "trials=1 + self"))
    assert p_value() < alpha


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


DRAWS = 20_000
ALPHA = "1e-10"
RUNS = 2000


def of_one(protocol: PureShuffle, x: int) -> dict[int, float]:
    return {y: mass / 2**256 for y, mass in enumerate(message_laws(protocol)[x])}


def of_all(protocol: PureShuffle, held: list[int]) -> dict[int, float]:
    laws = [np.array([mass / 2**256 for mass in law]) for law in message_laws(protocol)]
    found = np.ones(1)
    for x in held:
        found = np.convolve(found, laws[x])
    return dict(enumerate(found.tolist()))


@pytest.mark.parametrize("x", [0, 1, 2])
def test_a_message_has_its_stated_law(x: int) -> None:
    alpha = buy_alpha(f"a message of a pure shuffle, x = {x}", ALPHA)
    many = PureShuffle(users=DRAWS, precision=2, reach=3, cover="1/8", share=SHARE)

    def p_value(values: Any, law: dict[int, float]) -> float:
        return least_p(values(many, [x / 2] * DRAWS, rng=SeededRng(11 + x)).tolist(), law)

    assert p_value(PureShuffle.values, of_one(SMALL, x)) > alpha
    assert p_value(PureShuffle.values, of_one(SMALL, (x + 1) % 3)) < alpha
    for old, new in (
        ("rng.below(self.width + 1)", "rng.below(self.width)"),  # the last number is no cover
        ("np.flatnonzero(covered)", "np.flatnonzero(np.abs(noise) > self.reach)"),
    ):
        assert p_value(mutated(PureShuffle.values, old, new), of_one(SMALL, x)) < alpha


def test_bits_drawn_at_once_have_the_law_of_the_messages() -> None:
    alpha = buy_alpha("a pure shuffle of bits at once", ALPHA)
    law, rng = of_all(BITS, [0, 1, 1]), SeededRng(5)

    def drawn(draw: Any) -> list[int]:
        return [draw(BITS, 2, 3, rng=rng) for _ in range(RUNS)]

    assert least_p(drawn(PureShuffle.ones_of_bits), law) > alpha
    for old, new in ((" - held", ""), ("noise[covered == 0]", "noise")):
        assert least_p(drawn(mutated(PureShuffle.ones_of_bits, old, new)), law) < alpha


def test_shuffled_messages_give_the_sum() -> None:
    share = PolyaDifference(shape="1/50", scale="1/2")
    protocol = PureShuffle(users=50, precision=4, reach=200, cover=Fraction(1, 2**40), share=share)
    values = {f"user {i}": Fraction(i, 49) for i in range(50)}
    found = run(protocol, values, Shuffler(), batch="b", colluding=["user 3"], rng=SeededRng(2))
    assert found.record is None
    assert isinstance(found.estimate, Fraction)
    assert abs(found.estimate - 25) < 5
    assert (len(found.participants), found.honest) == (50, 49)
    assert protocol.observed_noise(50).pmf(3) == DiscreteLaplace(scale="1/2").pmf(3)


def test_the_error_and_the_probability_of_covers_are_bounds() -> None:
    law = np.array([mass / 2**256 for mass in message_laws(SMALL)[0]])
    off = np.arange(len(law)) - SMALL.reach
    mean, square = float(law @ off), float(law @ off**2)
    exact = (3 * (square - mean**2) + (3 * mean) ** 2) / SMALL.precision**2
    assert exact < float(SMALL.square_error(3)) < 4 * exact
    tau = law[-1] * (SMALL.width + 1)  # only a cover is at the far end for x = 0
    assert 3 * tau <= float(SMALL.missed(3)) < 3.3 * tau


@pytest.mark.parametrize(
    ("argument", "values"),
    [
        ("users", [0]),
        ("reach", [0]),
        ("cover", [0, float("nan")]),
        ("share", [DiscreteLaplace(scale=1), PolyaDifference(shape="3/2", scale=1)]),
        ("probability", [0, 1, "1.5", -1, "x", None]),
    ],
)
def test_bad_parameters_are_refused(argument: str, values: list[Any]) -> None:
    given = {"users": 3, "precision": 1, "reach": 3, "cover": "1/8", "share": SHARE}
    kind: Any = PureShuffle
    if argument == "probability":
        kind, given = BinaryShuffle, {"users": 1, "noise_bits": 1}
    for value in values:
        assert names(refusal(partial(kind, **{**given, argument: value})), argument)


def bit_of(odd: Any) -> Any:
    x = np.empty(2, dtype=object)
    x[0], x[1] = odd, 1
    return x


NOTHING: list[Any] = [None, [], [[1], [1, 2]], "x"]
INVALID: list[tuple[Any, list[Any]]] = [
    (BINARY, [[2], [[1]], ["1"], [0] * 7]),
    (BINARY, [*map(bit_of, (np.array([0, 1]), [0, 1], 1j, 1 + 0j, None, "1"))]),
    (VECTOR, [[[0.5]], [[0.5, 2.0]], [0.5, 0.5], [[0.5, 0.5]] * 6, 0.5]),
    (SMALL, [[0.5] * 4, [2], [float("nan")], [[0.5]], [1, -1]]),
]


@pytest.mark.parametrize(("protocol", "wrong"), INVALID)
def test_invalid_values_are_refused_before_any_draw(protocol: Any, wrong: list[Any]) -> None:
    for x in NOTHING + wrong:
        assert names(refusal(partial(protocol.randomize, x, rng=NeverAsked())), "x")


@pytest.mark.parametrize("protocol", [BINARY, SMALL])
def test_an_impossible_number_of_messages_is_refused(protocol: Any) -> None:
    # Bits of one user, and of all users and one more.
    row = np.zeros((1, len(protocol.randomize([1], rng=SeededRng(1)).bits[0, 0])), dtype=np.uint8)
    assert protocol.analyze(row) == (Fraction(-3, 2) if protocol is SMALL else -1)
    bad: list[Any] = [row[0], row.astype(int), row[:, 1:], row[:, :0], row + 2, [[0, 0, 0]], "bits"]
    for shuffled in (*bad, np.repeat(row, protocol.users + 1, 1), np.repeat(row, 2, 0)):
        assert names(refusal(partial(protocol.analyze, shuffled)), "shuffled")


def test_totals_and_honest_users_out_of_range_are_refused() -> None:
    for total in (4, -1):
        assert names(refusal(partial(BITS.ones_of_bits, total, 3)), "total")
    assert names(refusal(lambda: SMALL.ones_of_bits(1, 3)), "precision")
    for act in (BINARY.observed_noise, BINARY.mechanism, BITS.observed_noise):
        assert names(refusal(partial(act, 7)), "honest", 7)
