r"""The privacy theorems of CZ beside exact curves: Theorems 1 to 6, Lemmas 3, 4 and 10, Appendix I.

CZ: Chowdhury and Zhou, "Distributed Differential Privacy in Multi-Armed Bandits" (ICLR 2023).
The sum mod m is post-processing of the sum, so the law of the sum decides, except for Theorem 3:
there an aggregation within its definition is exhibited. Theorems 2 and 3 are in error; their
functions take ``form="printed"`` or ``form="corrected"``.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from typing import Final

from flint import arb

from accounting.claims.bound import Bound
from accounting.protocols.paper_parameters import (
    WIDTH_BITS,
    Form,
    SumParameters,
    cz_concentrated,
    cz_pure,
    cz_renyi,
    cz_shuffled,
    epsilon_of,
    log_of,
)
from accounting.release.curve import PrivacyCurve
from accounting.theorems.noise_bounds import gaussian_sum_epsilon, skellam_renyi_bound
from bandits.papers.statement import Judgement, LaterRow, shown
from dpcore.laws.discrete_gaussian import DiscreteGaussian
from dpcore.laws.discrete_gaussian_sum import DiscreteGaussianSum
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.laws.polya_difference import PolyaDifference
from dpcore.laws.skellam import Skellam
from dpcore.mechanism import Sensitivity
from dpcore.numbers.ceilings import ceil_sqrt, ceiling
from dpcore.numbers.enclosure import Enclosure, ball, narrow, precision
from dpcore.numbers.parameter import RationalLike, integer, positive_rational, rational, rational_in
from dpcore.numbers.rounding import up

__all__ = ["cz_local", "cz_renyi_bound", "leaking_aggregation", "rows"]

_FAILURE: Final = Fraction(1, 1000)
_DELTA: Final = Fraction(1, 10**6)
_BITS: Final = 128
_FINE: Final = 256
_ORDERS: Final = (*range(2, 64), *range(64, 512, 8))

_of_cz = partial(Judgement, paper="CZ")


def rows(*, quick: bool) -> Iterator[LaterRow]:
    r"""Every row of this paper, not yet computed."""
    epsilons = [Fraction(1)] if quick else [Fraction(1, 10), Fraction(1), Fraction(5)]
    for e in epsilons:
        for n in (1024,) if quick else (2, 1024, 10**6):
            yield partial(_pure, "Theorem 1", n, e, cz_pure(n, e, _FAILURE))
        yield partial(_pure, "Theorem 5", 1024, e, cz_pure(1024, e, _FAILURE))
        local = cz_local(1024, e, _FAILURE, constant=2)
        yield partial(_pure, "Theorem 6", 1024, e, local)
        yield partial(_shuffled, 1024, e, "printed")
        yield partial(_shuffled, 1024, e, "corrected")
    yield from _renyi_rows(quick=quick)
    yield from _concentrated_rows(quick=quick)
    yield from _returning_rows(quick=quick)


# -- what is printed --------------------------------------------------------------------------


def cz_local(
    users: int, epsilon: RationalLike, failure: RationalLike, *, constant: RationalLike
) -> SumParameters:
    r"""CZ Theorem 6: each message carries discrete Laplace noise of scale g/epsilon, and
    tau = ceil((c g/epsilon) sqrt(2 n ln(2/p))) with a ``constant`` c that the paper leaves open.

    ``noise`` is that of one message.

    >>> cz_local(16, 1, "1/1000", constant=2).threshold
    125
    """
    n, e, p = (
        integer("users", users, at_least=1),
        epsilon_of(epsilon),
        rational_in("failure", failure, "(0, 1)"),
    )
    c = positive_rational("constant", constant, "it multiplies the threshold")
    g, log = ceil_sqrt(e * e * n), log_of(2 / p)
    tau = ceiling(lambda: ball(c * g / e) * (2 * n * log()).sqrt())
    noise = DiscreteLaplace(scale=g / e)
    return SumParameters(users=n, precision=g, threshold=tau, noise=noise, share=noise)


def cz_renyi_bound(
    order: int, epsilon: RationalLike, scaling: RationalLike, *, form: Form
) -> Fraction:
    r"""CZ Theorem 2: D_alpha <= alpha epsilon^2/2 + min{(2 alpha - 1) epsilon^2/(4 s^2) +
    3 epsilon/(2 s^3), x}, where x is printed as 3 epsilon^2/(2s).

    The paper's Lemma 3 with sensitivity g and variance g^2/epsilon^2, g >= s epsilon sqrt n, gives
    x = 3 epsilon/(2s) for every n (``"corrected"``); the printed x follows only when g >= s.

    >>> cz_renyi_bound(32, "0.3", 2, form="printed"), cz_renyi_bound(32, "0.3", 2, form="corrected")
    (Fraction(603, 400), Fraction(333, 200))
    """
    alpha = integer("order", order, at_least=2)
    e, s = epsilon_of(epsilon), rational("scaling", scaling)
    first = (2 * alpha - 1) * e**2 / (4 * s**2) + 3 * e / (2 * s**3)
    second = 3 * e / (2 * s) if form == "corrected" else 3 * e**2 / (2 * s)
    return alpha * e**2 / 2 + min(first, second)


# -- pure noise -------------------------------------------------------------------------------


def _pure(statement: str, users: int, epsilon: Fraction, chosen: SumParameters) -> Judgement:
    curve = PrivacyCurve(noise=chosen.noise, sensitivity=chosen.precision)
    return _of_cz(
        statement=statement,
        parameters=f"n = {users}, epsilon = {epsilon}, g = {chosen.precision}",
        quantity="epsilon",
        claimed=Enclosure.exactly(epsilon),
        exact=curve.epsilon(0),
        note="the largest loss of discrete Laplace noise of scale g/epsilon",
    )


# -- Theorem 3 --------------------------------------------------------------------------------


def _shuffled(users: int, epsilon: Fraction, form: Form) -> Judgement:
    chosen = cz_shuffled(users, epsilon, _FAILURE, form=form)
    alone = PrivacyCurve(noise=chosen.noise, sensitivity=chosen.precision).enclose_epsilon(0)
    proven = Fraction(alone.upper) + epsilon / 2
    found = leaking_aggregation(chosen, epsilon / 4)
    printed = form == "printed"
    return _of_cz(
        statement="Theorem 3" if printed else "ours: Theorem 3 with noise of scale 2g/epsilon",
        erratum="1",
        parameters=f"n = {users}, epsilon = {epsilon}, g = {chosen.precision}",
        quantity="epsilon",
        claimed=Enclosure.exactly(epsilon),
        exact=Bound(
            lower=max(found.lower, Fraction(0)),
            upper=proven,
            method="exhibited",
            theorem="one output of one relaxed aggregation; 2 epsilon-hat + epsilon of the sum",
        ),
        note="twice epsilon-hat = epsilon/4 is spent beside the noise; the lower end is the loss "
        "of one output of a relaxed aggregation that shows a coin about one message",
    )


def leaking_aggregation(chosen: SumParameters, spent: Fraction) -> Enclosure:
    r"""A loss that some (``spent``, 0)-relaxed aggregation shows, with the noise of ``chosen``.

    With u = e^spent and c = 1/(1+u), the aggregation shows the sum mod m, and a coin that is 1 with
    chance cu when the first message is g exactly, else c/u. A simulator that tosses a coin of
    chance c is within ``spent`` of it at every output: of the zeros, (1-cu)/(1-c) = 1/u and
    (1-c/u)/(1-c) <= u. Dropping the coin leaves the sum.

    Compared are x_1 = g and x_1 = 0, all other inputs 0, at the output (3g, 1). Under the first the
    coin is likely where the first user's noise is 0, and that one term is counted; under the second
    everything is.
    """
    g, n, share, m = chosen.precision, chosen.users, chosen.share, chosen.modulus
    if not isinstance(share, PolyaDifference) or n < 2:
        raise TypeError("the aggregation is stated for two users or more with Polya noise")
    others = PolyaDifference(shape=share.shape * (n - 1), scale=share.scale)
    seen = 3 * g
    with precision(_BITS):
        up = ball(spent).exp()
        here = share.pmf_ball(0) * others.pmf_ball(seen - g) * up
        # Whatever wraps around, of any part of the noise, lies beyond m/2 - 3g.
        far = m // 2 - seen
        wrapped = sum((law.tail_ball(far) for law in (chosen.noise, share, others)), arb(0))
        both = share.pmf_ball(g) * others.pmf_ball(seen - g) + wrapped
        there = (chosen.noise.pmf_ball(seen) + wrapped) / up + (up - 1 / up) * both
        return Enclosure.of((here / there).log())


# -- Theorem 2 and Lemma 3 --------------------------------------------------------------------


def _renyi_rows(*, quick: bool) -> Iterator[LaterRow]:
    # (n, epsilon, s, alpha): the last of them are where the printed bound is not what the proof
    # gives, and where it is far from the truth.
    points: list[tuple[int, str, int, int]] = [(2, "0.3", 2, 32), (16, "1", 1, 32)]
    if not quick:
        points += [(16, "1", 1, 2), (64, "1/2", 2, 8), (256, "1", 4, 64), (4, "1/10", 10, 16)]
    for n, e, s, order in points:
        yield partial(_renyi, n, Fraction(e), s, order, "printed")
        yield partial(_renyi, n, Fraction(e), s, order, "corrected")
    for v, d, order in (
        [(16, 4, 32)] if quick else [(16, 4, 32), (400, 1, 2), (50, 7, 8), (4, 4, 3)]
    ):
        yield partial(_skellam, Fraction(v), d, order)


def _renyi(users: int, e: Fraction, scaling: int, order: int, form: Form) -> Judgement:
    chosen = cz_renyi(users, e, _FAILURE, scaling)
    variance = (chosen.precision / e) ** 2
    lemma = skellam_renyi_bound(order, variance, chosen.precision)
    printed = form == "printed"
    last = "3 epsilon^2/(2s)" if printed else "3 epsilon/(2s)"
    return _of_cz(
        statement="Theorem 2" if printed else "ours: Theorem 2 with 3 epsilon/(2s) in the minimum",
        erratum="2",
        parameters=f"n = {users}, epsilon = {e}, s = {scaling}, alpha = {order}, "
        f"g = {chosen.precision}",
        quantity=f"D_{order}",
        claimed=Enclosure.exactly(cz_renyi_bound(order, e, scaling, form=form)),
        exact=PrivacyCurve(noise=chosen.noise, sensitivity=chosen.precision).renyi(order),
        proof=Enclosure.exactly(lemma),
        note=f"Lemma 3 gives {up(lemma, 6)}; the minimum has {last}",
    )


def _skellam(variance: Fraction, shift: int, order: int) -> Judgement:
    return _of_cz(
        statement="Lemma 3",
        parameters=f"variance = {variance}, Delta = {shift}, alpha = {order}",
        quantity=f"D_{order}",
        claimed=Enclosure.exactly(skellam_renyi_bound(order, variance, shift)),
        exact=PrivacyCurve(noise=Skellam(variance=variance), sensitivity=shift).renyi(order),
        note="the Renyi divergence of Skellam noise against its shift",
    )


# -- Theorem 4 and Lemma 4 --------------------------------------------------------------------


def _concentrated_rows(*, quick: bool) -> Iterator[LaterRow]:
    points = [(16, "1/2", 1)] if quick else [(2, "1/2", 1), (16, "1/2", 1), (64, "9/10", 3)]
    for n, e, s in points:
        for order in (2, 32):
            yield partial(_concentrated, n, Fraction(e), s, order)
    for k, v, d in [(16, "1", 4)] if quick else [(2, "1/4", 1), (16, "1", 4), (50, "1/2", 5)]:
        yield partial(_gaussian_sum, k, Fraction(v), d)


def _concentrated(users: int, e: Fraction, scaling: int, order: int) -> Judgement:
    chosen = cz_concentrated(users, e, _FAILURE, scaling)

    def claim() -> arb:
        # xi has T/2 - 1 terms, and a batch of n users needs T/2 >= n: the least claim is at T = 2n.
        rate = -2 * arb.pi() ** 2 * scaling**2
        xi = 10 * sum(((rate * k / (k + 1)).exp() for k in range(1, users)), arb(0))
        return order * (ball(e * e) + xi / 2).min((ball(e) + xi) ** 2) / 2

    # xi may be 1e-38 and the truth as near: the bits tell them apart.
    curve = PrivacyCurve(noise=chosen.noise, sensitivity=chosen.precision)
    return _of_cz(
        statement="Theorem 4",
        parameters=f"n = {users}, epsilon = {e}, s = {scaling}, T = {2 * users}, alpha = {order}",
        quantity=f"D_{order}",
        claimed=narrow(claim, _FINE),
        exact=curve.enclose_renyi(order, _FINE),
        note="the Renyi divergence of the sum of discrete Gaussians, alpha rho claimed",
    )


def _gaussian_sum(count: int, variance: Fraction, shift: int) -> Judgement:
    stated = gaussian_sum_epsilon(count, variance, shift)
    low, high = Fraction(stated.lower), Fraction(stated.upper)
    noise = DiscreteGaussianSum(count=count, sigma_squared=variance)
    return _of_cz(
        statement="Lemma 4",
        parameters=f"n = {count}, sigma^2 = {variance}, Delta = {shift}",
        quantity="rho",
        claimed=Enclosure(low * low / 2, high * high / 2),
        exact=PrivacyCurve(noise=noise, sensitivity=shift).zcdp(),
        note="the zCDP parameter of the sum of discrete Gaussians",
    )


# -- Appendix I: users who return -------------------------------------------------------------


def _returning_rows(*, quick: bool) -> Iterator[LaterRow]:
    for rho in [Fraction(1, 8)] if quick else [Fraction(1, 800), Fraction(1, 8), Fraction(2)]:
        yield partial(_conversion, rho)
    for visits in (16,) if quick else (1, 4, 16, 64, 256, 1024):
        yield partial(_returning, visits)
        yield partial(_returning_renyi, visits)
        yield partial(_advanced, visits, Fraction(1, 2))


def _classic(rho: Fraction, delta: Fraction) -> Enclosure:
    # Lemma 10: epsilon (sqrt(2 ln(1/delta)) + epsilon/2) for rho = epsilon^2/2.
    return narrow(lambda: ball(rho) + 2 * (ball(rho) * ball(1 / delta).log()).sqrt(), WIDTH_BITS)


def _conversion(rho: Fraction) -> Judgement:
    noise = DiscreteGaussian(sigma_squared=1 / (2 * rho))
    return _of_cz(
        statement="Lemma 10",
        parameters=f"rho = {rho}, delta = {_DELTA}",
        quantity="epsilon",
        claimed=_classic(rho, _DELTA),
        exact=PrivacyCurve(noise=noise, sensitivity=1).epsilon(_DELTA),
        note=f"discrete Gaussian noise of variance {noise.sigma_squared} has this rho",
    )


def _returning(visits: int) -> Judgement:
    rho, curve = (
        Fraction(1, 800),
        PrivacyCurve(noise=DiscreteGaussian(sigma_squared=400), sensitivity=1),
    )
    return _of_cz(
        statement="Appendix I, by zCDP",
        parameters=f"B = {visits}, discrete Gaussian of variance 400, delta = {_DELTA}",
        quantity="epsilon",
        claimed=_classic(visits * rho, _DELTA),
        exact=_total(curve, visits),
        note="B visits are B rho concentrated, then Lemma 10",
    )


def _returning_renyi(visits: int) -> Judgement:
    # Lemma 3 at integer orders, B times, then Lemma 10; orders beyond these do not help here.
    def at(order: int) -> Enclosure:
        spent = visits * skellam_renyi_bound(order, 400, 1)
        return narrow(
            lambda: (
                ball(spent)
                + (1 / (order * ball(_DELTA))).log() / (order - 1)
                + (1 - arb(1) / order).log()
            ),
            WIDTH_BITS,
        )

    bounds = [at(order) for order in _ORDERS]
    curve = PrivacyCurve(noise=Skellam(variance=400), sensitivity=1)
    return _of_cz(
        statement="Appendix I, by Renyi",
        parameters=f"B = {visits}, Skellam of variance 400, delta = {_DELTA}",
        quantity="epsilon",
        claimed=Enclosure(min(b.lower for b in bounds), min(b.upper for b in bounds)),
        exact=_total(curve, visits),
        note="Lemma 3 at the best integer order, then Lemma 10",
    )


def _total(curve: PrivacyCurve, visits: int) -> Bound:
    from accounting.totals.compose import compose

    return compose((curve, visits)).epsilon(_DELTA, "1e-6")


def _advanced(visits: int, target: Fraction) -> Judgement:
    # A pure release at epsilon is dominated by randomised response, which is discrete Laplace
    # noise of scale 1/epsilon under a shift of 1.
    each = narrow(
        lambda: ball(target) / (2 * (2 * visits * ball(1 / _DELTA).log()).sqrt()), WIDTH_BITS
    )
    low, high = (
        PrivacyCurve(
            noise=DiscreteLaplace(scale=1 / Fraction(end)),
            sensitivity=Sensitivity.box((1,) * visits),
        ).enclose_epsilon(_DELTA)
        for end in (each.lower, each.upper)
    )
    return _of_cz(
        statement="Theorem 7 (Appendix I, advanced composition)",
        parameters=f"B = {visits}, each pure at epsilon = {shown(each)}, delta = {_DELTA}",
        quantity="epsilon",
        claimed=Enclosure.exactly(target),
        exact=Enclosure(low.lower, high.upper),
        note="the exact loss of B randomised responses, which dominate every pure release",
    )
