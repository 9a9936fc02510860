r"""The privacy theorems of LZJ beside exact curves: Theorems 4.2, 4.4, C.1, C.3, 4.6, A.2, C.6 and
Lemma C.5.

LZJ: Li, Zhou and Ji, "Differentially Private Linear Bandits with Partial Distributed Feedback"
(WiOpt 2022). Every client takes part in one phase, so one release decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Final

from flint import arb

from accounting.claims.bound import Bound
from accounting.protocols.paper_parameters import (
    WIDTH_BITS,
    BitNoise,
    bits_of_cheu,
    epsilon_of,
    log_of,
    lzj_vector,
)
from accounting.protocols.shuffled_bits import fewest_bits
from accounting.theorems.real_gaussian import real_gaussian_delta, real_gaussian_ratio
from bandits.papers.statement import Judgement, LaterRow, shown
from bandits.papers.tkms import bits_box
from dpcore.numbers.ceilings import ceiling
from dpcore.numbers.enclosure import Enclosure, ball, narrow
from dpcore.numbers.parameter import RationalLike, integer, rational_in

__all__ = ["lzj_classical_gaussian", "lzj_scalar", "lzj_scalar_lemma", "rows"]

_THEOREMS: Final = ("Theorem 4.2", "Theorem 4.4", "Theorem C.1", "Theorem C.3")
_USERS: Final = 1000
_MANY: Final = 1 << 18

_gaussian = partial(Judgement, paper="LZJ", erratum="3")
_vectors = partial(Judgement, paper="LZJ", erratum="6")
_scalars = partial(Judgement, paper="LZJ", erratum="4")


def rows(*, quick: bool) -> Iterator[LaterRow]:
    r"""Every row of this paper, not yet computed."""
    targets = [("1", "1e-6"), ("10", "1/4"), ("10", "1e-6")]
    if not quick:
        targets += [("1/10", "1e-6"), ("1/2", "1e-3"), ("2", "1e-6"), ("5", "1/4")]
    for theorem in _THEOREMS:
        for e, d in targets:
            yield partial(_gaussian_ratio, theorem, Fraction(e), Fraction(d))
        for e, d in targets[:3]:
            yield partial(_gaussian_delta, theorem, Fraction(e), Fraction(d))
    for e, d in targets:
        yield partial(_exact_gaussian, Fraction(e), Fraction(d))
    for s, e, d in [(1, "1", "1e-6"), (20, "10", "1/4")]:
        for theorem in ("Theorem 4.6", "Theorem A.2 (Algorithm 2)"):
            yield partial(_vector, theorem, s, Fraction(e), Fraction(d))
        yield partial(_vector_noise, s, Fraction(e), Fraction(d))
        yield partial(_vector_bound, s, Fraction(e), Fraction(d))
        yield partial(_exact_vector, s, Fraction(e), Fraction(d))
    for n, g, e, d in [(100, 20, "1", "1e-6"), (4, 3, "14", "49/100")]:
        yield partial(_lemma, n, g, Fraction(e), Fraction(d))
        yield partial(_lemma_chance, n, g, Fraction(e), Fraction(d))
    for n, g, e, d in [(100, 21, "1", "1e-6"), (4, 5, "28", "49/100")]:
        yield partial(_scalar, n, g, Fraction(e), Fraction(d))
        yield partial(_exact_scalar, n, g, Fraction(e), Fraction(d))


# -- what is printed --------------------------------------------------------------------------


def lzj_scalar(users: int, precision: int, epsilon: RationalLike, delta: RationalLike) -> BitNoise:
    r"""LZJ Algorithm 4, eq. (60), as printed: g >= 2B sqrt n is the caller's,
    b = ceil(180 g^2 ln(2/delta)/((epsilon/2)^2 n)), p = 90 g^2 ln(2/delta)/(b (epsilon/2)^2 n).

    It does not match the lemma it cites (:func:`lzj_scalar_lemma`); neither is needed, for the
    exact number of bits is known (``shuffle.fewest_bits``).

    >>> lzj_scalar(100, 20, 1, "1e-6").bits
    41785
    """
    n, e, d = (
        integer("users", users, at_least=1),
        epsilon_of(epsilon) / 2,
        rational_in("delta", delta, "(0, 1)"),
    )
    g, log = integer("precision", precision, at_least=1), log_of(2 / d)
    return bits_of_cheu(n, g, lambda: log() / ball(e * e))


def lzj_scalar_lemma(
    users: int, precision: int, epsilon: RationalLike, delta: RationalLike
) -> BitNoise:
    r"""LZJ Lemma C.5 (Cheu et al. 2021, Lemma 3.1), at equality: ln(1/delta) in b, ln(2/delta) in
    p, for (epsilon (2/g + 1), delta) with ``epsilon`` < 15; so p can exceed 1/2.

    >>> lzj_scalar_lemma(100, 20, 1, "1e-6").bits
    9948
    """
    n, e, d = (
        integer("users", users, at_least=1),
        epsilon_of(epsilon),
        rational_in("delta", delta, "(0, 1)"),
    )
    top, bottom = log_of(2 / d), log_of(1 / d)
    g = integer("precision", precision, at_least=1)
    bits = ceiling(lambda: 180 * g * g * bottom() / ball(e * e * n))
    chance = narrow(lambda: 90 * g * g * top() / ball(e * e * n * bits), WIDTH_BITS)
    return BitNoise(users=n, precision=g, bits=bits, probability=chance)


def lzj_classical_gaussian(epsilon: RationalLike, delta: RationalLike) -> Enclosure:
    r"""LZJ Theorems 4.2, 4.4, C.1 and C.3: sigma/Delta = sqrt(2 ln(1.25/delta))/epsilon.

    Proven for epsilon <= 1 only (Dwork and Roth 2014, Theorem A.1); ``real_gaussian`` has the
    exact one, and what this one truly gives.

    >>> lzj_classical_gaussian(10, "0.25")
    Enclosure([0.17941225779941014, 0.17941225779941015])
    """
    e, log = epsilon_of(epsilon), log_of(Fraction(5, 4) / rational_in("delta", delta, "(0, 1)"))
    return narrow(lambda: (2 * log()).sqrt() / ball(e), WIDTH_BITS)


# -- the Gaussian mechanism -------------------------------------------------------------------


def _gaussian_delta(theorem: str, e: Fraction, d: Fraction) -> Judgement:
    ratio = lzj_classical_gaussian(e, d)
    # delta falls in the ratio.
    low = real_gaussian_delta(Fraction(ratio.upper), e).lower
    high = real_gaussian_delta(Fraction(ratio.lower), e).upper
    return _gaussian(
        statement=theorem,
        parameters=f"epsilon = {e}, delta = {d}",
        quantity="delta",
        claimed=Enclosure.exactly(d),
        exact=Enclosure(low, high),
        note=f"sigma/Delta = sqrt(2 ln(1.25/delta))/epsilon = {shown(ratio)}, "
        "proven for epsilon <= 1",
    )


def _gaussian_ratio(theorem: str, e: Fraction, d: Fraction) -> Judgement:
    return _gaussian(
        statement=theorem,
        parameters=f"epsilon = {e}, delta = {d}",
        quantity="the least sigma/Delta",
        claimed=lzj_classical_gaussian(e, d),
        exact=real_gaussian_ratio(e, d),
        note="calibrated exactly by Balle and Wang (2018)",
    )


def _exact_gaussian(e: Fraction, d: Fraction) -> Judgement:
    ratio = real_gaussian_ratio(e, d)
    return _gaussian(
        statement="ours: the least sigma/Delta",
        parameters=f"epsilon = {e}, delta = {d}, sigma/Delta = {shown(ratio)}",
        quantity="delta",
        claimed=Enclosure.exactly(d),
        exact=real_gaussian_delta(Fraction(ratio.upper), e),
        note="calibrated exactly by Balle and Wang (2018)",
    )


# -- the vector sum of Algorithm 2 ------------------------------------------------------------


def _vector(theorem: str, coordinates: int, e: Fraction, d: Fraction) -> Judgement:
    found = lzj_vector(_USERS, coordinates, e, d)
    # More bits are post-processing of fewer, and s coordinates at epsilon/s make one at epsilon:
    # crude, and enough for noise of this size.
    fewer = replace(bits_box(found, found.precision), trials=min(found.trials, _MANY))
    return _vectors(
        statement=theorem,
        parameters=f"n = {_USERS}, s = {coordinates}, epsilon = {e}, delta = {d}, "
        f"g = {found.precision}",
        quantity="delta",
        claimed=Enclosure.exactly(d),
        exact=Bound(
            upper=coordinates * Fraction(fewer.delta(e / coordinates).upper),
            method="basic",
            theorem="epsilons and deltas of the coordinates add; fewer bits show more",
        ),
        note=f"{found.bits} noise bits of each user and coordinate; every coordinate may move by g",
    )


def _vector_noise(coordinates: int, e: Fraction, d: Fraction) -> Judgement:
    # A step is 2 Delta/g, and replacing a vector of norm Delta moves the sum by 2 Delta at most.
    found = lzj_vector(_USERS, coordinates, e, d)
    low, high = found.variance.lower, found.variance.upper
    step = Fraction(2, found.precision)
    return _vectors(
        statement="Algorithm 2, its noise",
        parameters=f"n = {_USERS}, s = {coordinates}, epsilon = {e}, delta = {d}",
        quantity="the deviation/Delta that is needed",
        claimed=Enclosure(
            narrow(lambda: ball(step) * ball(Fraction(low)).sqrt(), WIDTH_BITS).lower,
            narrow(lambda: ball(step) * ball(Fraction(high)).sqrt(), WIDTH_BITS).upper,
        ),
        exact=_twice(real_gaussian_ratio(e, d)),
        note="beside Gaussian noise that is calibrated exactly",
    )


def _vector_bound(coordinates: int, e: Fraction, d: Fraction) -> Judgement:
    def stated() -> arb:
        # sqrt(360 ln(4s/delta))/epsilon-hat, epsilon-hat = epsilon/(18 sqrt(ln(2/delta))).
        inner = 360 * ball(4 * coordinates / d).log() * ball(2 / d).log()
        return inner.sqrt() * 18 / ball(e)

    return _vectors(
        statement="Theorem A.2, its bound on the noise",
        parameters=f"s = {coordinates}, epsilon = {e}, delta = {d}",
        quantity="the deviation/Delta that is needed",
        claimed=narrow(stated, WIDTH_BITS),
        exact=_twice(real_gaussian_ratio(e, d)),
        note="the bound enters the confidence width; beside exact Gaussian noise",
    )


def _exact_vector(coordinates: int, e: Fraction, d: Fraction) -> Judgement:
    g = lzj_vector(_USERS, coordinates, e, d).precision
    least = fewest_bits(epsilon=e, delta=d, bounds=(g,) * coordinates)
    return _vectors(
        statement="ours: the fewest fair bits",
        parameters=f"s = {coordinates}, g = {g}, epsilon = {e}, delta = {d}, "
        f"{least.bits} bits in all",
        quantity="delta",
        claimed=Enclosure.exactly(d),
        exact=least.enough.delta(e, "1e-4"),
        note="calibrated exactly",
    )


def _twice(value: Enclosure) -> Enclosure:
    return Enclosure(2 * value.lower, 2 * value.upper)


# -- the scalar sum of Algorithm 4 ------------------------------------------------------------


def _lemma(users: int, precision: int, e: Fraction, d: Fraction) -> Judgement:
    found = lzj_scalar_lemma(users, precision, e, d)
    spent = e * (Fraction(2, precision) + 1)
    return _scalars(
        statement="Lemma C.5",
        parameters=f"n = {users}, B = 1, g = {precision}, epsilon-hat = {e}, delta = {d}, "
        f"b = {found.bits}",
        quantity=f"delta({spent})",
        claimed=Enclosure.exactly(d),
        exact=bits_box(found, precision).delta(spent),
        note=f"noise bits of chance {shown(found.probability)}",
    )


def _lemma_chance(users: int, precision: int, e: Fraction, d: Fraction) -> Judgement:
    found = lzj_scalar_lemma(users, precision, e, d)
    return _scalars(
        statement="Lemma C.5 for Algorithm 4",
        parameters=f"n = {users}, g = {precision}, epsilon-hat = {e}, delta = {d}, "
        f"b = {found.bits}",
        quantity="p",
        claimed=Enclosure.exactly(Fraction(1, 2)),
        exact=found.probability,
        note="the lemma has ln(1/delta) in b and ln(2/delta) in p; Algorithm 4 takes p < 1/2",
    )


def _scalar(users: int, precision: int, e: Fraction, d: Fraction) -> Judgement:
    found = lzj_scalar(users, precision, e, d)
    return _scalars(
        statement="Theorem C.6 (Algorithm 4)",
        parameters=f"n = {users}, B = 1, g = {precision}, epsilon = {e}, delta = {d}",
        quantity="noise bits of a user needed",
        claimed=Enclosure.exactly(found.bits),
        exact=Enclosure.exactly(
            fewest_bits(epsilon=e, delta=d, bounds=(precision,), users=users).bits
        ),
        note="fair bits; its parameters are not those of Lemma C.5",
    )


def _exact_scalar(users: int, precision: int, e: Fraction, d: Fraction) -> Judgement:
    least = fewest_bits(epsilon=e, delta=d, bounds=(precision,), users=users)
    return _scalars(
        statement="ours: the fewest fair bits",
        parameters=f"n = {users}, g = {precision}, epsilon = {e}, delta = {d}, "
        f"{least.bits} bits each",
        quantity="delta",
        claimed=Enclosure.exactly(d),
        exact=least.enough.delta(e),
        note="calibrated exactly",
    )
