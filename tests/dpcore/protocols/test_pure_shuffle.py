r"""Tests of `dpcore.protocols.pure_shuffle`: the law of the messages, and their sum."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

from dpcore import DiscreteLaplace, SeededRng
from dpcore.laws.polya import PolyaDifference
from dpcore.protocols.ideal_aggregation import IdealAggregation, Shuffler
from dpcore.protocols.pure_shuffle import PureShuffle
from dpcore.protocols.run_protocol import run
from tests.alpha_budget import buy_alpha
from tests.support.accounting.shuffled_views import message_laws
from tests.support.dpcore.mutants import mutated
from tests.support.dpcore.refusals import names, refusal

SHARE = PolyaDifference(shape="1/2", scale=2)
SMALL = PureShuffle(users=3, precision=2, reach=3, cover="1/8", share=SHARE)
BITS = PureShuffle(users=3, precision=1, reach=2, cover="1/8", share=SHARE)
DRAWS = 60_000
ALPHA = "1e-10"
RUNS = 1200


def p_value(drawn: Any, law: dict[int, float]) -> float:
    r"""Pearson's test of draws against a law, with cells of fewer than ten merged."""
    counts, total = Counter(np.asarray(drawn).tolist()), len(drawn)
    if not set(counts) <= set(law):
        return 0.0
    cells = [(counts[k], total * mass) for k, mass in law.items()]
    cells.sort(key=lambda cell: cell[1])
    rare = [cell for cell in cells if cell[1] < 10]
    kept = [cell for cell in cells if cell[1] >= 10]
    if rare:
        kept.append((sum(c for c, _ in rare), sum(e for _, e in rare)))
    square = sum((c - e) ** 2 / e for c, e in kept)
    return float(chi2.sf(square, len(kept) - 1))


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
    drawn = many.values([x / 2] * DRAWS, rng=SeededRng(11 + x))
    assert p_value(drawn, of_one(SMALL, x)) > alpha
    assert p_value(drawn, of_one(SMALL, (x + 1) % 3)) < alpha


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("rng.below(self.width + 1)", "rng.below(self.width)"),  # the last number is never a cover
        ("self.reach + steps", "steps"),
        ("np.flatnonzero(covered)", "np.flatnonzero(np.abs(noise) > self.reach)"),
    ],
)
def test_a_mutant_message_is_refuted(old: str, new: str) -> None:
    alpha = buy_alpha(f"a mutant message of a pure shuffle: {new}", ALPHA)
    many = PureShuffle(users=DRAWS, precision=2, reach=3, cover="1/8", share=SHARE)
    drawn = mutated(PureShuffle.values, old, new)(many, [0] * DRAWS, rng=SeededRng(3))
    assert p_value(drawn, of_one(SMALL, 0)) < alpha


def test_bits_drawn_at_once_have_the_law_of_the_messages() -> None:
    alpha = buy_alpha("a pure shuffle of bits at once", ALPHA)
    law, rng = of_all(BITS, [0, 1, 1]), SeededRng(5)

    def drawn(draw: Any) -> list[int]:
        return [draw(BITS, 2, 3, rng=rng) for _ in range(RUNS)]

    assert p_value(drawn(PureShuffle.ones_of_bits), law) > alpha
    for old, new in ((" - held", ""), ("noise[covered == 0]", "noise")):
        assert p_value(drawn(mutated(PureShuffle.ones_of_bits, old, new)), law) < alpha


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
    ("argument", "value"),
    [
        ("users", 0),
        ("reach", 0),
        ("cover", 0),
        ("cover", float("nan")),
        ("share", DiscreteLaplace(scale=1)),
        ("share", PolyaDifference(shape="3/2", scale=1)),
    ],
)
def test_bad_parameters_are_refused(argument: str, value: Any) -> None:
    given = {"users": 3, "precision": 1, "reach": 3, "cover": "1/8", "share": SHARE}
    assert names(refusal(lambda: PureShuffle(**{**given, argument: value})), argument)


@pytest.mark.parametrize("x", [[], [0.5] * 4, [2], [float("nan")], [[0.5]], "x", [1, -1]])
def test_bad_values_are_refused(x: Any) -> None:
    assert names(refusal(lambda: SMALL.randomize(x)), "x")


def test_a_server_refuses_an_impossible_number_of_ones() -> None:
    row = np.zeros((1, SMALL.width), dtype=np.uint8)
    assert SMALL.analyze(row) == Fraction(-3, 2)
    bad: Any
    for bad in (row[0], row.astype(int), row[:, 1:], row + 2, np.repeat(row, 4, 1), "bits"):
        assert names(refusal(partial(SMALL.analyze, bad)), "shuffled")
    for total in (4, -1):
        assert names(refusal(partial(BITS.ones_of_bits, total, 3)), "total")
    assert names(refusal(lambda: SMALL.ones_of_bits(1, 3)), "precision")
    assert names(refusal(lambda: BITS.observed_noise(4)), "honest")


def test_a_pure_shuffle_runs_only_over_a_shuffler() -> None:
    ideal = IdealAggregation(modulus=8)
    assert names(refusal(lambda: run(SMALL, [0, 0, 0], ideal, batch="b")), "functionality")
