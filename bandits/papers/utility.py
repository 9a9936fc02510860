r"""The utility theorems of the papers: tails of noise, and regret bounds with explicit constants.

The statements are Facts 2 and 3, Proposition 1, and Lemmas 1, 2 and 5 of CZ (``chowdhury_zhou``),
Theorems 3.1 and 3.3 of TKMS (``tenenbaum_et_al``), and Theorems 5 and 6 of CSB (``chen_et_al``). A
tail is compared with the exact tail of the law, a regret bound with the
maximum over runs, and a lower bound with the largest information of one private reward, which is
that of randomised response (Kairouz, Oh and Viswanath 2016). Bounds in O and Omega without
constants have no row.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from typing import Final

from flint import arb

from accounting.guarantees.bound import Bound
from accounting.privacy_curves.release_curve import PrivacyCurve
from accounting.protocol_guarantees.paper_parameters import WIDTH_BITS, tkms_bits
from bandits.papers.chen_et_al import least_threshold
from bandits.papers.statement import Claim, Found, LaterRow
from dpcore.laws.discrete_gaussian import DiscreteGaussian
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.laws.polya import PolyaDifference
from dpcore.laws.skellam import Skellam
from dpcore.noise import Noise
from dpcore.numbers.enclosure import Enclosure, ball, narrow
from dpcore.numbers.integer_search import ceiling

_RARE: Final = Fraction(1, 10**6)
_TENTH: Final = Fraction(1, 10)
_C: Final = Fraction(8, 5)
_ARMS: Final = 10
_HORIZON: Final = 10**6
_GAPS: Final = tuple(Fraction(place, 2 * (_ARMS - 1)) for place in range(_ARMS))

_cz = partial(Claim, "CZ")


def rows(*, quick: bool) -> Iterator[LaterRow]:
    r"""Yield the table rows on utility theorems, computed on request."""
    chances = (_RARE,) if quick else (_TENTH, _RARE)
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
    for epsilon in (half,) if quick else (_TENTH, half):
        yield _regret("Theorem 3.1", epsilon)
        yield _regret("Theorem 3.3", epsilon)
        yield _lower("Theorem 5", epsilon, "Delta/B_inf", _TENTH)
        yield _lower("Theorem 6", epsilon, "Delta/(B_1 K)", _TENTH)


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


def beyond(noise: Noise, limit: Enclosure) -> Enclosure:
    r"""Enclose P(\|X\| > t) for all t in the interval ``limit``."""
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


@Claim(
    "TKMS",
    "{theorem}, its regret for any gaps",
    "k = 10, T = 1000000, epsilon = {epsilon}, delta = 1/1000000, means spaced in [1/4, 3/4]",
    "regret",
    "uniform play has regret {uniform:.0f} here",
)
def _regret(theorem: str, epsilon: Fraction) -> Found:
    # sigma^2 of the noise of TKMS Algorithm 3; m is its number of noise bits.
    m = tkms_bits(1, epsilon, _RARE).trials
    squared = Fraction(m, 4)

    def bound() -> arb:
        log, pulls, rest = arb(_HORIZON).log(), _ARMS * _HORIZON, ball(Fraction(4, _HORIZON))
        if theorem == "Theorem 3.1":
            inner = ball((128 + 512 * squared / m) * pulls) * log
            return 2 * inner.sqrt() + m * _ARMS + rest
        noise = 64 * arb(2).sqrt() * _ARMS * ball(squared).sqrt() * log
        return (2048 * pulls * log).sqrt() + noise + rest

    batch = m if theorem == "Theorem 3.1" else None
    lost = sum((gap * _pulled(batch, squared, gap) for gap in _GAPS), Fraction(4, _HORIZON))
    exact = Bound(
        upper=min(lost, max(_GAPS) * _HORIZON),
        method="clean event",
        theorem="an arm is dropped in the first phase in which 4 I is below its gap",
    )
    return narrow(bound, WIDTH_BITS), exact, {"uniform": float(sum(_GAPS) / _ARMS * _HORIZON)}


def _pulled(batch: int | None, squared: Fraction, gap: Fraction) -> int:
    # The number of pulls of an arm up to the end of the first phase with 4 I below its gap.
    pulled, phase = 0, 0
    while gap and pulled < _HORIZON:
        phase += 1
        pulled += (1 << phase) if batch is None else batch
        if bool(ball(gap) > 4 * _interval(phase, pulled, squared)):
            break
    return min(pulled, _HORIZON)


def _interval(phase: int, pulled: int, squared: Fraction) -> arb:
    noise = 2 * (ball(phase * squared)).sqrt() / pulled
    return (noise + 1 / arb(pulled).sqrt()) * (2 * arb(_HORIZON).log()).sqrt()


def information(epsilon: Fraction, gap: Fraction) -> Enclosure:
    r"""The KL divergence of randomised response on bits of mean 1/2 - ``gap`` and on fair bits."""

    def divergence() -> arb:
        up = ball(epsilon).exp()
        # The bit is kept with probability e^epsilon/(1 + e^epsilon) and flipped otherwise.
        moved = ball(gap) * (up - 1) / (up + 1)
        one, other = arb(1) / 2 - moved, arb(1) / 2 + moved
        return one * (2 * one).log() + other * (2 * other).log()

    return narrow(divergence, WIDTH_BITS)


@Claim(
    "CSB",
    "{theorem}, its lower bound",
    "epsilon = {epsilon}, {scaled} = {gap}",
    "the information of one private reward",
    "the bound on regret is too small by this factor compared with randomised response",
)
def _lower(theorem: str, epsilon: Fraction, scaled: str, gap: Fraction) -> Found:
    # Regret/ln T >= (number of others) Delta/information; the paper prints 128 epsilon^2 gap^2.
    return 128 * epsilon**2 * gap**2, information(epsilon, gap)
