r"""Theorems of Chowdhury and Zhou (2023, "CZ" in the table) compared with exact values.

The paper is "Distributed Differential Privacy in Multi-Armed Bandits" (ICLR 2023). The privacy
statements are Theorems 1 to 6, Lemmas 3, 4 and 10, and Appendix I. The sum mod m is post-processing
of the sum, so the law of the sum determines the privacy loss, except in Theorem 3. This theorem is
tested with an aggregation that satisfies its definition. Theorems 2 and 3 are wrong; their
functions take ``form="printed"`` or ``form="corrected"``.

The utility statements are Facts 2 and 3, Proposition 1, and Lemmas 1, 2 and 5. A tail bound is
compared with the exact tail of the law. Bounds in O and Omega without constants are omitted.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from typing import Final

from flint import arb

from accounting.guarantees.bound import Bound
from accounting.privacy_curves.release_curve import PrivacyCurve
from accounting.protocol_guarantees.paper_parameters import (
    WIDTH_BITS,
    Form,
    cz_concentrated,
    cz_pure,
    cz_renyi,
    cz_shuffled,
    log_of,
)
from accounting.published_noise_bounds import gaussian_sum_epsilon, skellam_renyi_bound
from bandits.papers.table import Claim, Found, LaterRow, along, decimals
from dpcore.laws.discrete_gaussian import DiscreteGaussian, DiscreteGaussianSum
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.laws.polya import PolyaDifference
from dpcore.laws.skellam import Skellam
from dpcore.mechanism import Sensitivity
from dpcore.noise import Noise
from dpcore.numbers.enclosure import Enclosure, ball, narrow, precision
from dpcore.numbers.integer_search import ceil_sqrt, ceiling, least
from dpcore.numbers.rounding import up
from dpcore.protocols.noisy_sums import AggregatedSum, LocalSum, ShuffledPure

_FAILURE: Final = Fraction(1, 1000)
_TENTH: Final = Fraction(1, 10)
_C: Final = Fraction(8, 5)
_DELTA: Final = Fraction(1, 10**6)
_BITS: Final = 128
_FINE: Final = 256
_ORDERS: Final = (*range(2, 64), *range(64, 512, 8))

_cz = partial(Claim, "CZ")


def rows(*, quick: bool) -> Iterator[LaterRow]:
    r"""Yield functions, each of which compares a claim of this paper with the exact value."""
    epsilons = [Fraction(1)] if quick else [Fraction(1, 10), Fraction(1), Fraction(5)]
    for e in epsilons:
        for n in (1024,) if quick else (2, 1024, 10**6):
            yield _pure("Theorem 1", n, e, cz_pure(n, e, _FAILURE))
        yield _pure("Theorem 5", 1024, e, cz_pure(1024, e, _FAILURE))
        yield _pure("Theorem 6", 1024, e, cz_local(1024, e, _FAILURE, constant=2))
        yield _shuffled("Theorem 3", 1024, e, "printed")
        yield _shuffled("ours: Theorem 3 with noise of scale 2g/epsilon", 1024, e, "corrected")
    # (n, epsilon, s, alpha): at the last points the printed bound differs from that of the proof,
    # and is far from the true value.
    points: list[tuple[int, str, int, int]] = [(2, "0.3", 2, 32), (16, "1", 1, 32)]
    if not quick:
        points += [(16, "1", 1, 2), (64, "1/2", 2, 8), (256, "1", 4, 64), (4, "1/10", 10, 16)]
    for n, text, s, order in points:
        yield _renyi("Theorem 2", n, Fraction(text), s, order, "printed")
        ours = "ours: Theorem 2 with 3 epsilon/(2s) in the minimum"
        yield _renyi(ours, n, Fraction(text), s, order, "corrected")
    for v, d, order in [(16, 4, 32), (400, 1, 2), (50, 7, 8), (4, 4, 3)][: 1 if quick else None]:
        yield _skellam(Fraction(v), d, order)
    yield from _concentrated_rows(quick=quick)
    yield from utility_rows(quick=quick)


def _concentrated_rows(*, quick: bool) -> Iterator[LaterRow]:
    points = [(2, "1/2", 1), (16, "1/2", 1), (64, "9/10", 3)]
    for n, text, s in points[1:2] if quick else points:
        for order in (2, 32):
            yield _concentrated(n, Fraction(text), s, order)
    for k, text, d in [(16, "1", 4)] if quick else [(2, "1/4", 1), (16, "1", 4), (50, "1/2", 5)]:
        yield _gaussian_sum(k, Fraction(text), d)
    for rho in [Fraction(1, 8)] if quick else [Fraction(1, 800), Fraction(1, 8), Fraction(2)]:
        yield _conversion(rho)
    for visits in (16,) if quick else (1, 4, 16, 64, 256, 1024):
        yield _returning(visits)
        yield _returning_renyi(visits)
        yield _advanced(visits, Fraction(1, 2))


def _curve(noise: Noise, moved: int) -> PrivacyCurve:
    return PrivacyCurve(noise=noise, sensitivity=moved)


def cz_local(n: int, e: Fraction, p: Fraction, *, constant: int) -> LocalSum:
    r"""The protocol of Chowdhury and Zhou (2023), Theorem 6, for n users.

    The precision is g = ceil(epsilon sqrt n) for epsilon = ``e``. Each message has discrete Laplace
    noise of scale g/epsilon. The threshold for the failure probability p is tau = ceil((c
    g/epsilon) sqrt(2 n ln(2/p))). The paper does not specify the ``constant`` c.
    """
    g, log = ceil_sqrt(e * e * n), log_of(2 / p)
    tau = ceiling(lambda: ball(constant * g / e) * (2 * n * log()).sqrt())
    return LocalSum(users=n, precision=g, threshold=tau, noise=DiscreteLaplace(scale=g / e))


@_cz(
    "{theorem}",
    "n = {n}, epsilon = {e}, g = {chosen.precision}",
    "epsilon",
    "the largest loss of discrete Laplace noise of scale g/epsilon",
)
def _pure(theorem: str, n: int, e: Fraction, chosen: AggregatedSum | LocalSum) -> Found:
    return e, _curve(chosen.observed_noise(n), chosen.precision).epsilon(0)


@_cz(
    "{theorem}",
    "n = {n}, epsilon = {e}, g = {g}",
    "epsilon",
    "the aggregation adds 2 epsilon-hat = epsilon/2 to the loss of the noise; one output of a "
    "relaxed aggregation that reveals a random bit about one message attains the lower bound",
    erratum="1",
)
def _shuffled(theorem: str, n: int, e: Fraction, form: Form) -> Found:
    chosen = cz_shuffled(n, e, _FAILURE, form=form)
    alone = _curve(chosen.planned_noise, chosen.precision).enclose_epsilon(0)
    exact = Bound(
        lower=max(leaking_aggregation(chosen, e / 4).lower, Fraction(0)),
        upper=Fraction(alone.upper) + e / 2,
        method="exhibited",
        theorem="one output of one relaxed aggregation; 2 epsilon-hat + epsilon of the sum",
    )
    return e, exact, {"g": chosen.precision}


def leaking_aggregation(chosen: ShuffledPure, spent: Fraction) -> Enclosure:
    r"""Enclose a lower bound on the loss of ``chosen`` over a (``spent``, 0)-relaxed aggregation.

    Let g be the precision and m the modulus of ``chosen``, u = e^spent and c = 1/(1+u). The
    aggregation reveals the sum mod m and a bit that is 1 with probability cu if the first message
    is exactly g, otherwise c/u. A simulator that knows only the sum and whose bit is 1 with
    probability c differs from the aggregation by a factor of at most e^spent at every output: for
    bit 0, (1-cu)/(1-c) = 1/u and (1-c/u)/(1-c) <= u. The aggregation is therefore relaxed as
    stated.

    The loss is that of the inputs x_1 = g and x_1 = 0, with all other inputs 0, at the output (3g,
    1). For the first input only the term with noise 0 of the first user, where the bit is likely,
    is counted; for the second input all terms are counted. So the true loss is at least this large.
    """
    g, n, share, m = chosen.precision, chosen.users, chosen.share, chosen.modulus
    if not isinstance(share, PolyaDifference) or n < 2:
        raise TypeError("the aggregation is defined for at least two users with Polya noise")
    others = PolyaDifference(shape=share.shape * (n - 1), scale=share.scale)
    total, seen = chosen.planned_noise, 3 * g
    with precision(_BITS):
        up = ball(spent).exp()
        here = share.pmf_ball(0) * others.pmf_ball(seen - g) * up
        # For a wraparound, some part of the noise must exceed m/2 - 3g.
        far = m // 2 - seen
        wrapped = sum((law.tail_ball(far) for law in (total, share, others)), arb(0))
        both = share.pmf_ball(g) * others.pmf_ball(seen - g) + wrapped
        there = (total.pmf_ball(seen) + wrapped) / up + (up - 1 / up) * both
        return Enclosure.of((here / there).log())


def cz_renyi_bound(order: int, e: Fraction, s: Fraction, *, form: Form) -> Fraction:
    r"""The bound of Chowdhury and Zhou (2023), Theorem 2, on a Renyi divergence.

    For alpha = ``order``, epsilon = ``e`` and the scaling s, D_alpha <= alpha epsilon^2/2 + min{(2
    alpha - 1) epsilon^2/(4 s^2) + 3 epsilon/(2 s^3), x}. The paper prints x as 3 epsilon^2/(2s)
    (``"printed"``), which follows only if g >= s, where g is the precision. The paper's Lemma 3
    with sensitivity g >= s epsilon sqrt n and variance g^2/epsilon^2 gives x = 3 epsilon/(2s) for
    every number n of users (``"corrected"``).
    """
    first = (2 * order - 1) * e**2 / (4 * s**2) + 3 * e / (2 * s**3)
    second = 3 * e / (2 * s) if form == "corrected" else 3 * e**2 / (2 * s)
    return order * e**2 / 2 + min(first, second)


@_cz(
    "{theorem}",
    "n = {n}, epsilon = {e}, s = {s}, alpha = {order}, g = {g}",
    "D_{order}",
    "Lemma 3 gives {lemma}; the minimum has {last}",
    erratum="2",
)
def _renyi(theorem: str, n: int, e: Fraction, s: int, order: int, form: Form) -> Found:
    chosen = cz_renyi(n, e, _FAILURE, s)
    lemma = skellam_renyi_bound(order, (chosen.precision / e) ** 2, chosen.precision)
    return (
        cz_renyi_bound(order, e, Fraction(s), form=form),
        _curve(chosen.planned_noise, chosen.precision).renyi(order),
        {
            "g": chosen.precision,
            "lemma": up(lemma, 6),
            "last": "3 epsilon^2/(2s)" if form == "printed" else "3 epsilon/(2s)",
            "proof": lemma,
        },
    )


@_cz(
    "Lemma 3",
    "variance = {variance}, Delta = {shift}, alpha = {order}",
    "D_{order}",
    "the Renyi divergence between Skellam noise and its shift",
)
def _skellam(variance: Fraction, shift: int, order: int) -> Found:
    exact = _curve(Skellam(variance=variance), shift).renyi(order)
    return skellam_renyi_bound(order, variance, shift), exact


@_cz(
    "Theorem 4",
    "n = {n}, epsilon = {e}, s = {s}, T = {T}, alpha = {order}",
    "D_{order}",
    "the Renyi divergence of the sum of discrete Gaussians; the claim is alpha rho",
)
def _concentrated(n: int, e: Fraction, s: int, order: int) -> Found:
    chosen = cz_concentrated(n, e, _FAILURE, s)

    def claimed() -> arb:
        # xi has T/2 - 1 terms, and a batch of n users needs T/2 >= n: T = 2n gives the least claim.
        rate = -2 * arb.pi() ** 2 * s**2
        xi = 10 * sum(((rate * k / (k + 1)).exp() for k in range(1, n)), arb(0))
        return order * (ball(e * e) + xi / 2).min((ball(e) + xi) ** 2) / 2

    # xi and the distance to the true value may be 1e-38, so high precision is needed.
    exact = _curve(chosen.planned_noise, chosen.precision).enclose_renyi(order, _FINE)
    return narrow(claimed, _FINE), exact, {"T": 2 * n}


@_cz(
    "Lemma 4",
    "n = {n}, sigma^2 = {v}, Delta = {shift}",
    "rho",
    "the zCDP parameter of the sum of discrete Gaussians",
)
def _gaussian_sum(n: int, v: Fraction, shift: int) -> Found:
    stated = along(gaussian_sum_epsilon(n, v, shift), lambda end: end * end / 2)
    return stated, _curve(DiscreteGaussianSum(count=n, sigma_squared=v), shift).zcdp()


def _classic(rho: Fraction, delta: Fraction) -> Enclosure:
    # Lemma 10 states epsilon (sqrt(2 ln(1/delta)) + epsilon/2) for rho = epsilon^2/2.
    return narrow(lambda: ball(rho) + 2 * (ball(rho) * ball(1 / delta).log()).sqrt(), WIDTH_BITS)


@_cz(
    "Lemma 10",
    "rho = {rho}, delta = 1/1000000",
    "epsilon",
    "discrete Gaussian noise of variance {v} has this rho",
)
def _conversion(rho: Fraction) -> Found:
    noise = DiscreteGaussian(sigma_squared=1 / (2 * rho))
    return _classic(rho, _DELTA), _curve(noise, 1).epsilon(_DELTA), {"v": noise.sigma_squared}


@_cz(
    "Appendix I, by zCDP",
    "B = {visits}, discrete Gaussian of variance 400, delta = 1/1000000",
    "epsilon",
    "B visits are (B rho)-zCDP, converted by Lemma 10",
)
def _returning(visits: int) -> Found:
    exact = _total(DiscreteGaussian(sigma_squared=400), visits)
    return _classic(visits * Fraction(1, 800), _DELTA), exact


@_cz(
    "Appendix I, by Renyi",
    "B = {visits}, Skellam of variance 400, delta = 1/1000000",
    "epsilon",
    "Lemma 3 at the best integer order, converted by Lemma 10",
)
def _returning_renyi(visits: int) -> Found:
    # B times Lemma 3 at integer orders, converted by Lemma 10; larger orders do not help here.
    def at(order: int) -> Enclosure:
        spent = visits * skellam_renyi_bound(order, 400, 1)

        def converted() -> arb:
            lost = (1 / (order * ball(_DELTA))).log() / (order - 1)
            return ball(spent) + lost + (1 - arb(1) / order).log()

        return narrow(converted, WIDTH_BITS)

    bounds = [at(order) for order in _ORDERS]
    best = Enclosure(min(b.lower for b in bounds), min(b.upper for b in bounds))
    return best, _total(Skellam(variance=400), visits)


def _total(noise: Noise, visits: int) -> Bound:
    from accounting.composition.compose import compose

    return compose((_curve(noise, 1), visits)).epsilon(_DELTA, "1e-6")


@_cz(
    "Theorem 7 (Appendix I, advanced composition)",
    "B = {visits}, each pure at epsilon = {each}, delta = 1/1000000",
    "epsilon",
    "the exact loss of B randomised responses, which dominate every pure release",
)
def _advanced(visits: int, target: Fraction) -> Found:
    # A pure release at epsilon is dominated by randomised response, which is discrete Laplace
    # noise of scale 1/epsilon under a shift of 1.
    def release() -> arb:
        return ball(target) / (2 * (2 * visits * ball(1 / _DELTA).log()).sqrt())

    def spent(epsilon: Fraction) -> Enclosure:
        moved, noise = Sensitivity.box((1,) * visits), DiscreteLaplace(scale=1 / epsilon)
        return PrivacyCurve(noise=noise, sensitivity=moved).enclose_epsilon(_DELTA)

    each = narrow(release, WIDTH_BITS)
    return target, along(each, spent), {"each": decimals(each)}


def utility_rows(*, quick: bool) -> Iterator[LaterRow]:
    r"""Yield functions, each of which compares a utility statement with the exact value."""
    chances = (_DELTA,) if quick else (_TENTH, _DELTA)
    half = Fraction(1, 2)
    yield from _tails(chances, quick=quick)
    for epsilon in (half,) if quick else (_TENTH, half, Fraction(1)):
        yield _laplace_moment(epsilon)
        for chance in chances:
            yield _assumption(epsilon, chance)
            for users in (16,) if quick else (16, 256):
                yield _laplace_sum(epsilon, users, chance)
    yield _intervals()
    for last in (1, 10):
        yield _pulls(last)


def _tails(chances: tuple[Fraction, ...], *, quick: bool) -> Iterator[LaterRow]:
    for chance in chances:
        for scale in ("8",) if quick else ("8", "1/2", "1000"):
            yield _laplace_tail(Fraction(scale), chance)
        for variance in (16,) if quick else (1, 16, 400):
            yield _skellam_tail(Fraction(variance), chance)
    for squared, t in [("4", 6)] if quick else [("1/4", 1), ("4", 6), ("400", 100)]:
        yield _gaussian_tail(Fraction(squared), t)
        yield _gaussian_rho(Fraction(squared))
    for variance in (16,) if quick else (1, 16, 400):
        yield _skellam_moment(Fraction(variance))


def least_threshold(noise: Noise, failure: Fraction) -> int:
    r"""The smallest t with P(X > t) <= ``failure`` for a draw X of ``noise``."""
    start = int(noise.quantile(1 - max(failure, Fraction(1, 10**12))))
    return least(lambda t: noise.enclose_sf(t).upper <= failure, start)


def beyond(noise: Noise, limit: Enclosure) -> Enclosure:
    r"""Enclose P(\|X\| > t) for a draw X of ``noise`` and all t in the interval ``limit``."""
    low, high = (int(Fraction(end) // 1) for end in (limit.lower, limit.upper))
    return Enclosure(noise.enclose_tail(high).lower, noise.enclose_tail(low).upper)


@_cz(
    "Fact 2, its tail",
    "Delta/epsilon = {scale}, p = {chance}",
    "the smallest m with P(|Y| > m) <= p",
    "the printed tail is an identity, so it gives the same m",
)
def _laplace_tail(scale: Fraction, chance: Fraction) -> Found:
    # 2 e^(-m/s)/(e^(1/s) + 1) <= p, solved for m.
    printed = ceiling(
        lambda: ball(scale) * (2 / (ball(chance) * (ball(1 / scale).exp() + 1))).log()
    )
    return printed, least_threshold(DiscreteLaplace(scale=scale), chance / 2)


@_cz(
    "Fact 3, its tail",
    "Delta^2/epsilon^2 = {squared}, t = {t}",
    "P(|Y| >= {t})",
    "the discrete Gaussian is sub-Gaussian with parameter sigma^2",
)
def _gaussian_tail(squared: Fraction, t: int) -> Found:
    printed = narrow(lambda: 2 * (-ball(t * t / (2 * squared))).exp(), WIDTH_BITS)
    return printed, DiscreteGaussian(sigma_squared=squared).enclose_tail(t - 1)


@_cz(
    "Fact 3, its privacy",
    "Delta^2/epsilon^2 = {squared}, Delta = 1",
    "rho",
    "epsilon^2/2-concentrated",
)
def _gaussian_rho(squared: Fraction) -> Found:
    noise = DiscreteGaussian(sigma_squared=squared)
    return 1 / (2 * squared), PrivacyCurve(noise=noise, sensitivity=1).zcdp()


@_cz(
    "Proposition 1, its moments",
    "variance = {variance}, lambda = sqrt 2",
    "ln E e^(lambda X)",
    "sub-exponential: at most sigma^2 lambda^2, up to lambda = sqrt 2",
)
def _skellam_moment(variance: Fraction) -> Found:
    # K(a)/a^2 = variance (cosh a - 1)/a^2 increases with a, so the largest a is the worst.
    exact = narrow(lambda: ball(variance) * (arb(2).sqrt().cosh() - 1), WIDTH_BITS)
    return 2 * variance, exact


@_cz(
    "Proposition 1, its tail",
    "variance = {variance}, p = {chance}",
    "P(|X| > 2 sigma sqrt(ln(2/p)) + sqrt(2) ln(2/p))",
    "the threshold tau of Theorem 2",
)
def _skellam_tail(variance: Fraction, chance: Fraction) -> Found:
    def limit() -> arb:
        log = ball(2 / chance).log()
        return 2 * (ball(variance) * log).sqrt() + arb(2).sqrt() * log

    return chance, beyond(Skellam(variance=variance), narrow(limit, WIDTH_BITS))


@_cz(
    "Lemma 5, with c = 8/5",
    "epsilon = {epsilon}, lambda = epsilon/c",
    "ln E e^(lambda X)",
    "the paper leaves c open; for small epsilon the least c is 1.5942, (1 - e^(-1/2))^(-1/2)",
)
def _laplace_moment(epsilon: Fraction) -> Found:
    # For a symmetric infinitely divisible law K(a)/a^2 increases: the largest a is the worst.
    def most() -> arb:
        beta, a = (-ball(epsilon)).exp(), ball(epsilon / _C)
        return 2 * (1 - beta).log() - (1 - beta * a.exp()).log() - (1 - beta * (-a).exp()).log()

    return Fraction(1, 2), narrow(most, WIDTH_BITS)


@_cz(
    "Lemma 5, its tail with c = 8/5",
    "n = {users}, epsilon = {epsilon}, p = {chance}",
    "P(|sum of X_i| > v)",
    "the threshold of the local model, Theorem 6",
)
def _laplace_sum(epsilon: Fraction, users: int, chance: Fraction) -> Found:
    def limit() -> arb:
        log, c = ball(2 / chance).log(), ball(_C / epsilon)
        wide, far = c * (2 * users * log).sqrt(), 2 * c * log
        return wide if bool(wide > far) else far

    noise = PolyaDifference(shape=users, scale=1 / epsilon)
    return chance, beyond(noise, narrow(limit, WIDTH_BITS))


@_cz(
    "Lemma 1, its assumption for discrete Laplace noise",
    "sigma = sqrt(2)/epsilon, h = 1/epsilon, epsilon = {epsilon}, p = {chance}",
    "P(|n_a(b)| > sigma sqrt(ln(2/p)) + h ln(2/p))",
    "the tail of the noise; rounding is sub-Gaussian and contributes to sigma",
)
def _assumption(epsilon: Fraction, chance: Fraction) -> Found:
    def limit() -> arb:
        log = ball(2 / chance).log()
        return ((2 * log).sqrt() + log) / ball(epsilon)

    return chance, beyond(DiscreteLaplace(scale=1 / epsilon), narrow(limit, WIDTH_BITS))


@_cz(
    "Lemma 2, all intervals",
    "equation 2, all batches",
    "the probability that an interval misses, divided by p",
    "pi^2/12 for rewards and pi^2/6 for noise",
)
def _intervals() -> Found:
    # Batch b fails with p/(2 b^2) for the rewards and p/b^2 for the noise, over all arms.
    total = Fraction(narrow(lambda: arb.pi() ** 2 / 4, WIDTH_BITS).upper)
    return 3, Bound(upper=total, method="union bound", theorem="the sum of 3/(2 b^2)")


@_cz(
    "Lemma 2, pulls of an arm",
    "batches of 2^b, last survived b = {last}",
    "N_a/l(b), including the batch that drops the arm",
    "2 + 4 + ... + 2^(b+1); it is 16/3 with the batches 4^b of the released code",
)
def _pulls(last: int) -> Found:
    return 4, Fraction(sum(1 << b for b in range(1, last + 2)), 1 << last)
