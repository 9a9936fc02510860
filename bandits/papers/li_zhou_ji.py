r"""Theorems of Li, Zhou and Ji (2022, "LZJ" in the table) compared with exact values.

The paper is "Differentially Private Linear Bandits with Partial Distributed Feedback" (WiOpt 2022).
Theorems 4.2, 4.4, 4.6, A.2, C.1, C.3 and C.6, and Lemma C.5 are compared. Every client takes part
in one phase, so the guarantee is that of one release.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from typing import Final

from flint import arb

from accounting.guarantees.bound import Bound
from accounting.protocol_guarantees.paper_parameters import (
    WIDTH_BITS,
    BitNoise,
    bits_of_cheu,
    log_of,
    lzj_vector,
)
from accounting.protocol_guarantees.shuffled_bits_guarantee import BinomialBox, fewest_bits
from accounting.published_noise_bounds import real_gaussian_delta, real_gaussian_ratio
from bandits.papers.table import Claim, Found, LaterRow, along, decimals
from bandits.papers.tenenbaum_et_al import bits_box
from bandits.privatizers.vector_averages import lzj_classical_gaussian
from dpcore.numbers.enclosure import Enclosure, ball, narrow
from dpcore.numbers.integer_search import ceiling

_THEOREMS: Final = ("Theorem 4.2", "Theorem 4.4", "Theorem C.1", "Theorem C.3")
_USERS: Final = 1000
_MANY: Final = 1 << 18

_gaussian = partial(Claim, "LZJ", erratum="3")
_vectors = partial(Claim, "LZJ", erratum="6")
_scalars = partial(Claim, "LZJ", erratum="4")


def rows(*, quick: bool) -> Iterator[LaterRow]:
    r"""Yield functions, each of which compares a claim of this paper with the exact value."""
    texts = [("1", "1e-6"), ("10", "1/4"), ("10", "1e-6")]
    if not quick:
        texts += [("1/10", "1e-6"), ("1/2", "1e-3"), ("2", "1e-6"), ("5", "1/4")]
    targets = [(Fraction(e), Fraction(d)) for e, d in texts]
    for theorem in _THEOREMS:
        for e, d in targets:
            yield _gaussian_ratio(theorem, e, d)
        for e, d in targets[:3]:
            yield _gaussian_delta(theorem, e, d)
    for e, d in targets:
        yield _exact_gaussian(e, d)
    for s, (e, d) in [(1, targets[0]), (20, targets[1])]:
        for theorem in ("Theorem 4.6", "Theorem A.2 (Algorithm 2)"):
            yield _vector(theorem, s, e, d)
        yield _vector_noise(s, e, d)
        yield _vector_bound(s, e, d)
        yield _exact_vector(s, e, d)
    small, half = targets[0][1], Fraction("49/100")
    for n, g, e, d in [(100, 20, Fraction(1), small), (4, 3, Fraction(14), half)]:
        yield _lemma(n, g, e, d)
        yield _lemma_chance(n, g, e, d)
    for n, g, e, d in [(100, 21, Fraction(1), small), (4, 5, Fraction(28), half)]:
        yield _scalar(n, g, e, d)
        yield _exact_scalar(n, g, e, d)


@_gaussian(
    "{theorem}",
    "epsilon = {e}, delta = {d}",
    "delta",
    "sigma/Delta = sqrt(2 ln(1.25/delta))/epsilon = {ratio}, proven for epsilon <= 1",
)
def _gaussian_delta(theorem: str, e: Fraction, d: Fraction) -> Found:
    ratio = lzj_classical_gaussian(e, d)
    return d, along(ratio, lambda end: real_gaussian_delta(end, e)), {"ratio": decimals(ratio)}


@_gaussian(
    "{theorem}",
    "epsilon = {e}, delta = {d}",
    "the least sigma/Delta",
    "calibrated exactly by Balle and Wang (2018)",
)
def _gaussian_ratio(theorem: str, e: Fraction, d: Fraction) -> Found:
    return lzj_classical_gaussian(e, d), real_gaussian_ratio(e, d)


@_gaussian(
    "ours: the least sigma/Delta",
    "epsilon = {e}, delta = {d}, sigma/Delta = {ratio}",
    "delta",
    "calibrated exactly by Balle and Wang (2018)",
)
def _exact_gaussian(e: Fraction, d: Fraction) -> Found:
    ratio = real_gaussian_ratio(e, d)
    return d, real_gaussian_delta(Fraction(ratio.upper), e), {"ratio": decimals(ratio)}


@_vectors(
    "{theorem}",
    "n = 1000, s = {s}, epsilon = {e}, delta = {d}, g = {g}",
    "delta",
    "{bits} noise bits per user and coordinate; every coordinate may change by g",
)
def _vector(theorem: str, s: int, e: Fraction, d: Fraction) -> Found:
    found = lzj_vector(_USERS, s, e, d)
    # More bits are post-processing of fewer, and s coordinates at epsilon/s compose to epsilon. The
    # bound is crude but sufficient for this amount of noise.
    fewer = bits_box(found, found.precision, most=_MANY)
    exact = Bound(
        upper=s * Fraction(fewer.delta(e / s).upper),
        method="basic",
        theorem="epsilons and deltas of the coordinates add; fewer bits reveal more",
    )
    return d, exact, {"g": found.precision, "bits": found.bits}


@_vectors(
    "Algorithm 2, its noise",
    "n = 1000, s = {s}, epsilon = {e}, delta = {d}",
    "the necessary deviation/Delta",
    "compared with exactly calibrated Gaussian noise",
)
def _vector_noise(s: int, e: Fraction, d: Fraction) -> Found:
    # A step is 2 Delta/g, and replacing a vector of norm Delta changes the sum by at most 2 Delta.
    found = lzj_vector(_USERS, s, e, d)

    def deviation(variance: Fraction) -> Enclosure:
        step = Fraction(2, found.precision)
        return narrow(lambda: ball(step) * ball(variance).sqrt(), WIDTH_BITS)

    return along(found.variance, deviation), _twice(real_gaussian_ratio(e, d))


@_vectors(
    "Theorem A.2, its bound on the noise",
    "s = {s}, epsilon = {e}, delta = {d}",
    "the necessary deviation/Delta",
    "the bound enters the confidence width; compared with exactly calibrated Gaussian noise",
)
def _vector_bound(s: int, e: Fraction, d: Fraction) -> Found:
    def stated() -> arb:
        # sqrt(360 ln(4s/delta))/epsilon-hat with epsilon-hat = epsilon/(18 sqrt(ln(2/delta))).
        inner = 360 * ball(4 * s / d).log() * ball(2 / d).log()
        return inner.sqrt() * 18 / ball(e)

    return narrow(stated, WIDTH_BITS), _twice(real_gaussian_ratio(e, d))


@_vectors(
    "ours: the fewest fair bits",
    "s = {s}, g = {g}, epsilon = {e}, delta = {d}, {bits} bits in total",
    "delta",
    "calibrated exactly",
)
def _exact_vector(s: int, e: Fraction, d: Fraction) -> Found:
    g = lzj_vector(_USERS, s, e, d).precision
    least = fewest_bits(epsilon=e, delta=d, bounds=(g,) * s)
    box = BinomialBox(trials=least, bounds=(g,) * s)
    return d, box.delta(e, "1e-4"), {"g": g, "bits": least}


def _twice(value: Enclosure) -> Enclosure:
    return Enclosure(2 * value.lower, 2 * value.upper)


def lzj_scalar(n: int, g: int, epsilon: Fraction, d: Fraction) -> BitNoise:
    r"""The random bits of Li, Zhou and Ji (2022), Algorithm 4, eq. (60), as printed.

    For precision g, each of n users adds b bits, each of which is 1 with probability p. With delta
    = ``d``, b = ceil(180 g^2 ln(2/delta)/((epsilon/2)^2 n)) and p = 90 g^2 ln(2/delta)/(b
    (epsilon/2)^2 n). The caller chooses g >= 2B sqrt n for rewards in [-B, B].
    """
    log, half = log_of(2 / d), epsilon / 2
    return bits_of_cheu(n, g, lambda: log() / ball(half * half))


def lzj_scalar_lemma(n: int, g: int, e: Fraction, d: Fraction) -> BitNoise:
    r"""The random bits that satisfy Lemma C.5 of Li, Zhou and Ji (2022) with equality.

    The lemma is Lemma 3.1 of Cheu et al. (2021). Each of n users adds b bits, each of which is 1
    with probability p. The formula for b contains ln(1/delta) and that for p ln(2/delta), where
    delta = ``d``, so p can exceed 1/2. The lemma states (epsilon (2/g + 1), delta)-DP for epsilon =
    ``e`` < 15 and precision g.
    """
    top, bottom = log_of(2 / d), log_of(1 / d)
    bits = ceiling(lambda: 180 * g * g * bottom() / ball(e * e * n))
    chance = narrow(lambda: 90 * g * g * top() / ball(e * e * n * bits), WIDTH_BITS)
    return BitNoise(users=n, precision=g, bits=bits, probability=chance)


@_scalars(
    "Lemma C.5",
    "n = {n}, B = 1, g = {g}, epsilon-hat = {e}, delta = {d}, b = {bits}",
    "delta({spent})",
    "noise bits with probability {chance}",
)
def _lemma(n: int, g: int, e: Fraction, d: Fraction) -> Found:
    found, spent = lzj_scalar_lemma(n, g, e, d), e * (Fraction(2, g) + 1)
    words = {"bits": found.bits, "spent": spent, "chance": decimals(found.probability)}
    return d, bits_box(found, g).delta(spent), words


@_scalars(
    "Lemma C.5 for Algorithm 4",
    "n = {n}, g = {g}, epsilon-hat = {e}, delta = {d}, b = {bits}",
    "p",
    "the lemma has ln(1/delta) in b and ln(2/delta) in p; Algorithm 4 needs p < 1/2",
)
def _lemma_chance(n: int, g: int, e: Fraction, d: Fraction) -> Found:
    found = lzj_scalar_lemma(n, g, e, d)
    return Fraction(1, 2), found.probability, {"bits": found.bits}


@_scalars(
    "Theorem C.6 (Algorithm 4)",
    "n = {n}, B = 1, g = {g}, epsilon = {e}, delta = {d}",
    "the necessary noise bits per user",
    "fair bits; the parameters differ from those of Lemma C.5",
)
def _scalar(n: int, g: int, e: Fraction, d: Fraction) -> Found:
    return lzj_scalar(n, g, e, d).bits, fewest_bits(epsilon=e, delta=d, bounds=(g,), users=n)


@_scalars(
    "ours: the fewest fair bits",
    "n = {n}, g = {g}, epsilon = {e}, delta = {d}, {bits} bits each",
    "delta",
    "calibrated exactly",
)
def _exact_scalar(n: int, g: int, e: Fraction, d: Fraction) -> Found:
    least = fewest_bits(epsilon=e, delta=d, bounds=(g,), users=n)
    box = BinomialBox(trials=n * least, bounds=(g,))
    return d, box.delta(e), {"bits": least}
