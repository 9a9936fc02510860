r"""Tests of protocols over a sum mod m: decoding of every residue, and the laws of the summands."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from functools import partial
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp

from dpcore import (
    DiscreteGaussian,
    DiscreteLaplace,
    InvalidParameter,
    Mechanism,
    SeededRng,
    Sensitivity,
    Unrepresentable,
)
from dpcore.laws.discrete_gaussian import DiscreteGaussianSum
from dpcore.laws.poisson_and_binomial import Binomial, Poisson
from dpcore.laws.polya import PolyaDifference
from dpcore.laws.skellam import Skellam
from dpcore.laws.sum_of_shares import summed
from dpcore.noise import Noise
from dpcore.protocols.noisy_sums import (
    AggregatedSum,
    CentralSum,
    LocalSum,
    ModularSum,
    ShuffledPure,
    size_protocol,
)
from tests.day_and_nightly import by_day
from tests.support.dpcore.mpmath_precision import digits, real
from tests.support.dpcore.mutants import mutated
from tests.support.dpcore.refusals import names, refusal
from tests.support.dpcore.scripted_rng import NeverAsked

LAPLACE = DiscreteLaplace(scale=2)


def aggregated(users: int, precision: int, threshold: int, **more: Any) -> AggregatedSum:
    share = DiscreteLaplace(scale=2).share(max(users, 1) if type(users) is int else 1)
    return AggregatedSum(users=users, precision=precision, threshold=threshold, share=share, **more)


SMALL = [
    aggregated(users, precision, threshold, modulus=modulus)
    for users in (1, 3)
    for precision in (1, 4)
    for threshold in (0, 5)
    for modulus in (None, 64)
]


def misread(protocol: ModularSum, unwrap: Any = ModularSum.unwrap) -> list[int]:
    r"""Return the sums within the threshold that are not decoded from their residue."""
    most = protocol.users * protocol.precision
    sums = range(-protocol.threshold, most + protocol.threshold + 1)
    return [total for total in sums if unwrap(protocol, total % protocol.modulus) != total]


@pytest.mark.parametrize("protocol", SMALL, ids=repr)
def test_every_sum_within_the_threshold_is_decoded(protocol: AggregatedSum) -> None:
    assert misread(protocol) == []
    every = np.arange(protocol.modulus)
    assert protocol.unwrap(every).tolist() == [protocol.unwrap(y) for y in range(protocol.modulus)]
    exact = [protocol.analyze(y) for y in range(protocol.modulus)]
    assert exact == [Fraction(protocol.unwrap(int(y)), protocol.precision) for y in every]
    assert protocol.analyze(every).tolist() == [float(z) for z in exact]
    # With one residue less two sums share one.
    need = protocol.users * protocol.precision + 2 * protocol.threshold + 1
    line = refusal(partial(dataclasses.replace, protocol, modulus=need - 1))
    assert names(line, "modulus", need - 1)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("whole > edge", "whole >= edge"),
        ("self.users * self.precision + self.threshold", "self.modulus // 2"),
    ],
)
def test_a_wrong_decoder_is_detected(old: str, new: str) -> None:
    broken = mutated(ModularSum.unwrap, old, new)
    assert any(misread(protocol, broken) for protocol in SMALL)


def test_only_noise_of_honest_users_is_counted() -> None:
    n = 10
    pure = AggregatedSum(
        users=n, precision=4, threshold=99, share=DiscreteLaplace(scale=5).share(n)
    )
    assert pure.planned_noise == DiscreteLaplace(scale=5) == pure.observed_noise(n)
    assert pure.observed_noise(9) == PolyaDifference(shape="0.9", scale=5)
    renyi = AggregatedSum(users=n, precision=4, threshold=99, share=Skellam(variance="8/10"))
    assert (renyi.planned_noise, renyi.observed_noise(5)) == (
        Skellam(variance=8),
        Skellam(variance=4),
    )
    gauss = DiscreteGaussian(sigma_squared="8/10")
    concentrated = AggregatedSum(users=n, precision=4, threshold=99, share=gauss)
    assert concentrated.observed_noise(3) == DiscreteGaussianSum(count=3, sigma_squared="8/10")
    assert concentrated.observed_noise(1) == gauss
    local = LocalSum(users=n, precision=4, threshold=99, noise=DiscreteLaplace(scale=5))
    assert local.planned_noise == PolyaDifference(shape=10, scale=5)
    assert local.observed_noise(1) == local.observed_noise(n) == DiscreteLaplace(scale=5)
    central = CentralSum(users=n, precision=4, threshold=99, noise=DiscreteLaplace(scale=5))
    assert central.planned_noise == central.observed_noise(2) == DiscreteLaplace(scale=5)
    shuffled = ShuffledPure(users=n, precision=4, threshold=99, share=LAPLACE.share(n))
    assert shuffled.sum_mechanism(5).noise == PolyaDifference(shape="1/2", scale=2)
    for protocol in (pure, renyi, concentrated, local, central):
        assert protocol.mechanism(4) == Mechanism(
            noise=protocol.observed_noise(4), sensitivity=Sensitivity(4)
        )


def test_a_message_is_the_encoding_plus_noise_mod_m() -> None:
    protocol = aggregated(50, 3, 2)
    many: Any = np.linspace(0, 1, 50)
    for x, size in ((many, 50), ("1/3", None)):
        messages = protocol.randomize(x, rng=SeededRng(3))
        rng = SeededRng(3)
        encoded = protocol.encoding.encode(x, rng=rng)
        noisy = encoded + np.asarray(protocol.share.sample(size, rng=rng))
        assert np.all(messages == noisy % protocol.modulus)


def test_a_central_message_carries_no_noise_and_each_analysis_draws() -> None:
    protocol = CentralSum(users=4, precision=2, threshold=99, noise=DiscreteLaplace(scale=2))
    assert protocol.randomize([0.0, 0.5, 1.0, 1.0]).tolist() == [0, 1, 2, 2]
    sums = protocol.analyze(np.full(1000, 5), rng=SeededRng(3))
    assert len(set(sums.tolist())) > 5
    assert names(refusal(lambda: protocol.analyze(-1, rng=NeverAsked())), "y", -1)


def test_central_noise_of_any_size_is_added_exactly() -> None:
    # A numpy integer as input, and noise beyond int64: failing after the draw would change the law.
    wide = CentralSum(users=4, precision=2, threshold=9, noise=DiscreteLaplace(scale=10**30))
    rng, again = SeededRng(3), SeededRng(3)
    y: Any = np.int64(5)
    for _ in range(20):
        total = (5 + wide.noise.sample(rng=again)) % wide.modulus
        assert wide.analyze(y, rng=rng) == Fraction(wide.unwrap(total), 2)
    numpy_adds = mutated(
        ModularSum.analyze, "read + noise.sample(rng=rng)", "y + noise.sample(rng=rng)"
    )
    with pytest.raises(OverflowError):
        numpy_adds(wide, y, rng=rng)


def test_a_modulus_at_the_limit_of_int64_is_exact() -> None:
    protocol = aggregated(2, 1, (1 << 61) - 2)
    assert protocol.modulus == (1 << 62) - 1
    assert ((messages := protocol.randomize([1.0, 0.0])) >= 0).all()
    assert (messages < protocol.modulus).all()
    assert protocol.unwrap(np.array([protocol.modulus - 1])).tolist() == [-1]
    assert names(refusal(lambda: aggregated(2, 1, 1 << 61)), "modulus")


def test_invalid_parameters_of_a_sum_are_refused() -> None:
    wrong: list[Any] = [0, 1.0, True]
    for value in wrong:
        threshold: Any = value or 1.5  # 0 is valid
        assert names(refusal(partial(aggregated, value, 1, 1)), "users", value)
        assert names(refusal(partial(aggregated, 1, value, 1)), "precision", value)
        assert names(refusal(partial(aggregated, 1, 1, threshold)), "threshold")
        assert names(refusal(partial(aggregated, 1, 1, 1, modulus=value)), "modulus", value)
    protocols: list[ModularSum] = [
        aggregated(3, 1, 1),
        LocalSum(users=3, precision=1, threshold=1, noise=LAPLACE),
        CentralSum(users=3, precision=1, threshold=1, noise=LAPLACE),
    ]
    some: list[Any] = [0, 4, 1.0]
    for protocol, honest in product(protocols, some):
        for act in (protocol.observed_noise, protocol.mechanism):  # type: ignore[attr-defined]  # all three have a mechanism
            assert names(refusal(partial(act, honest)), "honest", honest)
    assert aggregated(1, 1, 1).modulus == 4
    sums: list[Any] = [-1, 4, 1.0, None, np.array([4]), np.array([0.5])]
    for y in sums:
        assert names(refusal(partial(aggregated(1, 1, 1).unwrap, y)), "y")
        assert names(refusal(partial(aggregated(1, 1, 1).analyze, y)), "y")


def test_noise_that_is_biased_or_has_no_sum_is_refused() -> None:
    biased = Poisson(mean=3)
    wrong: Any = 3
    kinds: list[tuple[Any, str]] = [
        *((AggregatedSum, "share"), (LocalSum, "noise"), (CentralSum, "noise"))
    ]
    refused = [(kind, name, noise) for kind, name in kinds for noise in (biased, wrong)]
    for kind, name, noise in (*refused, (ShuffledPure, "share", Skellam(variance=4))):
        line = refusal(partial(kind, users=2, precision=1, threshold=1, **{name: noise}))
        assert names(line, name)


def test_invalid_values_are_refused_before_any_draw() -> None:
    protocol = aggregated(2, 1, 1)
    for x in ([0.5, 2.0], [0.1, 0.2, 0.3], [[1], [1, 0]], 1.5):
        value: Any = x
        assert names(refusal(partial(protocol.randomize, value, rng=NeverAsked())), "x")
        assert names(refusal(partial(protocol.sum_at_once, [x, x, x], rng=NeverAsked())), "x")
    wide = LocalSum(users=2, precision=1, threshold=1, noise=DiscreteLaplace(scale=10**30))
    with pytest.raises(Unrepresentable):
        wide.randomize([0.5, 0.5], rng=NeverAsked())
    with pytest.raises(InvalidParameter):
        protocol.sum_at_once([], rng=NeverAsked())


def laplace_tail(scale: Fraction, t: int) -> Any:
    r"""P(|X| > t) = 2 b^(t+1)/(1 + b), b = e^(-1/s), by mpmath."""
    beta = mp.exp(-1 / real(scale))
    return 2 * beta ** (t + 1) / (1 + beta)


def is_least(scale: Fraction, failure: Fraction, threshold: int) -> bool:
    with digits(60):
        enough = laplace_tail(scale, threshold) <= real(failure)
        less = threshold == 0 or laplace_tail(scale, threshold - 1) > real(failure)
        return bool(enough and less)


@given(st.fractions("1/50", 5000, max_denominator=50), st.fractions("1e-30", "9/10"))
def test_the_threshold_is_the_least_by_the_closed_form(scale: Fraction, failure: Fraction) -> None:
    size = size_protocol(users=3, precision=2, noise=DiscreteLaplace(scale=scale), failure=failure)
    assert is_least(scale, failure, size.threshold)
    assert size.modulus == 6 + 2 * size.threshold + 1
    assert size.wraparound.upper <= failure
    assert size.one_less is None or size.one_less.lower > failure
    assert 2 ** (size.bits_per_user - 1) < size.modulus <= 2**size.bits_per_user


@by_day(2)
@pytest.mark.parametrize(
    "noise",
    [
        Skellam(variance=7),
        DiscreteGaussianSum(count=5, sigma_squared=3),
        PolyaDifference(shape="1/2", scale=1),
        Binomial(trials=20, probability="1/3"),
    ],
    ids=repr,
)
def test_the_threshold_is_the_least_by_brute_force(noise: Noise) -> None:
    # Masses rounded down, and 2^-40 for the mass lost to rounding and beyond the range.
    found = {k: Fraction(noise.enclose_pmf(k, 110).lower) for k in range(-50, 51)}

    def outside(t: int) -> Fraction:
        return sum((mass for k, mass in found.items() if abs(k) > t), Fraction(0))

    for failure in (Fraction(1, 3), Fraction(1, 1000), Fraction(1, 10**6)):
        size = size_protocol(users=3, precision=2, noise=noise, failure=failure)
        t = size.threshold
        assert outside(t) <= failure < outside(t - 1) + Fraction(1, 1 << 40)
        # Decoding fails for no sum of values more often than stated.
        protocol = LocalSum(users=3, precision=2, threshold=t, noise=LAPLACE)
        assert protocol.modulus == size.modulus
        for total in range(7):
            wrong = [k for k in found if protocol.unwrap((total + k) % size.modulus) != total + k]
            assert sum(found[k] for k in wrong) <= size.wraparound.upper


def test_an_exact_tie_meets_the_target() -> None:
    fair, third = (Binomial(trials=2, probability=p) for p in ("1/2", "1/3"))
    size = size_protocol(users=1, precision=1, noise=fair, failure="1/4")
    assert size.threshold == 1
    size = size_protocol(users=1, precision=1, noise=third, failure="1/9")
    assert size.threshold in (1, 2)  # a tie may be undecided
    assert size.wraparound.upper <= Fraction(1, 9)


@by_day(1)
@pytest.mark.parametrize(
    "share",
    [
        DiscreteLaplace(scale=3).share(8),
        Skellam(variance="1/2"),
        DiscreteGaussian(sigma_squared="1/3"),
        DiscreteLaplace(scale=2),
        PolyaDifference(shape="1/3", scale=2),
    ],
    ids=repr,
)
def test_dropouts_do_not_increase_the_tail(share: Noise) -> None:
    for t in (0, 15):
        tails = [summed(share, honest).enclose_tail(t) for honest in range(1, 9)]
        assert all(a.upper <= b.lower for a, b in pairwise(tails))
