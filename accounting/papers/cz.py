r"""CZ: Chowdhury and Zhou, "Distributed Differential Privacy in Multi-Armed Bandits" (ICLR 2023).

The parameters of Theorems 1 to 6 and the bounds of Lemmas 3 and 4. Theorems 2 and 3 are in error;
their functions take ``form="printed"`` or ``form="corrected"``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal, TypeAlias

from flint import arb

from accounting.papers.arguments import (
    WIDTH_BITS,
    ceil_sqrt,
    ceiling,
    epsilon_of,
    failure_of,
    log_of,
    scaling_of,
    users_of,
)
from dpcore.errors import InvalidParameter
from dpcore.laws.discrete_gaussian import DiscreteGaussian
from dpcore.laws.discrete_gaussian_sum import DiscreteGaussianSum
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.laws.skellam import Skellam
from dpcore.noise import Noise
from dpcore.numbers.enclosure import Enclosure, ball, narrow
from dpcore.numbers.parameter import RationalLike, integer, positive_rational

__all__ = [
    "SumParameters",
    "cz_central",
    "cz_concentrated",
    "cz_local",
    "cz_pure",
    "cz_renyi",
    "cz_renyi_bound",
    "cz_shuffled",
    "gaussian_sum_epsilon",
    "skellam_renyi_bound",
]

Form: TypeAlias = Literal["printed", "corrected"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SumParameters:
    r"""What a theorem of CZ chooses for n users: g, tau, and the law of the whole noise, in steps.

    ``share`` is the law of one user's part; for central noise there is none, for local noise it is
    the whole noise of one message.
    """

    users: int
    precision: int
    threshold: int
    noise: Noise
    share: Noise | None

    @property
    def modulus(self) -> int:
        r"""m = n g + 2 tau + 1."""
        return self.users * self.precision + 2 * self.threshold + 1


def cz_pure(users: int, epsilon: RationalLike, failure: RationalLike) -> SumParameters:
    r"""CZ Theorem 1: g = ceil(epsilon sqrt n), tau = ceil((g/epsilon) ln(2/p)).

    The noise is discrete Laplace of scale g/epsilon, a difference of two Polya(1/n) of each user.

    >>> found = cz_pure(1024, 1, "1/1000")
    >>> found.precision, found.threshold, found.modulus, found.noise
    (32, 244, 33257, DiscreteLaplace(scale=32))
    """
    n, e = users_of(users), epsilon_of(epsilon)
    g = ceil_sqrt(e * e * n)
    noise = DiscreteLaplace(scale=g / e)
    return _sum(n, g, _tail(g / e, failure), noise)


def cz_renyi(
    users: int, epsilon: RationalLike, failure: RationalLike, scaling: RationalLike = 1
) -> SumParameters:
    r"""CZ Theorem 2: g = ceil(s epsilon sqrt n), Skellam noise of variance g^2/epsilon^2,
    tau = ceil((2g/epsilon) sqrt(ln(2/p)) + sqrt(2) ln(2/p)).

    >>> found = cz_renyi(16, 1, "1/1000")
    >>> found.precision, found.threshold, found.noise
    (4, 33, Skellam(variance=16))
    """
    n, e, s, p = users_of(users), epsilon_of(epsilon), scaling_of(scaling), failure_of(failure)
    g = ceil_sqrt((s * e) ** 2 * n)
    log = log_of(2 / p)
    tau = ceiling(lambda: 2 * ball(g / e) * log().sqrt() + arb(2).sqrt() * log())
    return _sum(n, g, tau, Skellam(variance=(g / e) ** 2))


def cz_concentrated(
    users: int, epsilon: RationalLike, failure: RationalLike, scaling: RationalLike = 1
) -> SumParameters:
    r"""CZ Theorem 4: g = ceil(s epsilon sqrt n), tau = ceil((g/epsilon) sqrt(2 ln(2/p))), and each
    user adds a discrete Gaussian of sigma^2 = g^2/(n epsilon^2).

    >>> found = cz_concentrated(16, 1, "1/1000")
    >>> found.precision, found.threshold, found.noise
    (4, 16, DiscreteGaussianSum(count=16, sigma_squared=1))
    """
    n, e, s, p = users_of(users), epsilon_of(epsilon), scaling_of(scaling), failure_of(failure)
    g = ceil_sqrt((s * e) ** 2 * n)
    log = log_of(2 / p)
    tau = ceiling(lambda: ball(g / e) * (2 * log()).sqrt())
    each = (g / e) ** 2 / n
    return SumParameters(
        users=n,
        precision=g,
        threshold=tau,
        noise=DiscreteGaussianSum(count=n, sigma_squared=each),
        share=DiscreteGaussian(sigma_squared=each),
    )


def cz_central(users: int, epsilon: RationalLike, failure: RationalLike) -> SumParameters:
    r"""CZ Theorem 5: as Theorem 1, the analyzer adding the noise.

    >>> cz_central(1024, 1, "1/1000").share is None
    True
    """
    return replace(cz_pure(users, epsilon, failure), share=None)


def cz_local(
    users: int, epsilon: RationalLike, failure: RationalLike, *, constant: RationalLike
) -> SumParameters:
    r"""CZ Theorem 6: each message carries discrete Laplace noise of scale g/epsilon, and
    tau = ceil((c g/epsilon) sqrt(2 n ln(2/p))) with a ``constant`` c that the paper leaves open.

    ``noise`` is that of one message.

    >>> cz_local(16, 1, "1/1000", constant=2).threshold
    125
    """
    n, e, p = users_of(users), epsilon_of(epsilon), failure_of(failure)
    c = positive_rational("constant", constant, "it multiplies the threshold")
    g, log = ceil_sqrt(e * e * n), log_of(2 / p)
    tau = ceiling(lambda: ball(c * g / e) * (2 * n * log()).sqrt())
    noise = DiscreteLaplace(scale=g / e)
    return SumParameters(users=n, precision=g, threshold=tau, noise=noise, share=noise)


def cz_shuffled(
    users: int, epsilon: RationalLike, failure: RationalLike, *, form: Form
) -> SumParameters:
    r"""CZ Theorem 3, over an (epsilon/4, q)-relaxed aggregation: epsilon' = epsilon/2 in g and tau.

    ``form="printed"`` has the noise of scale g/epsilon, for which the proof gives 1.5 epsilon;
    ``form="corrected"`` the scale g/epsilon' = 2g/epsilon that the proof needs for epsilon.

    >>> cz_shuffled(1024, 1, "1/1000", form="printed").noise
    DiscreteLaplace(scale=16)
    >>> cz_shuffled(1024, 1, "1/1000", form="corrected").noise
    DiscreteLaplace(scale=32)
    """
    n, half = users_of(users), epsilon_of(epsilon) / 2
    g = ceil_sqrt(half * half * n)
    scale = g / half if _form(form) == "corrected" else g / (2 * half)
    return _sum(n, g, _tail(g / half, failure), DiscreteLaplace(scale=scale))


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
    e, s = epsilon_of(epsilon), scaling_of(scaling)
    first = (2 * alpha - 1) * e**2 / (4 * s**2) + 3 * e / (2 * s**3)
    second = 3 * e / (2 * s) if _form(form) == "corrected" else 3 * e**2 / (2 * s)
    return alpha * e**2 / 2 + min(first, second)


def skellam_renyi_bound(order: int, variance: RationalLike, sensitivity: int) -> Fraction:
    r"""CZ Lemma 3 (Agarwal, Kairouz and Liu 2021, Theorem 3.5), for integer orders:
    D_alpha <= alpha d^2/2v + min{((2 alpha - 1) d^2 + 6d)/(4 v^2), 3d/(2v)}.

    >>> skellam_renyi_bound(32, 16, 4)
    Fraction(131, 8)
    """
    alpha = integer("order", order, at_least=2)
    d = integer("sensitivity", sensitivity, at_least=1)
    v = positive_rational("variance", variance, "variance 0 adds no noise")
    return alpha * d**2 / (2 * v) + min(
        ((2 * alpha - 1) * d**2 + 6 * d) / (4 * v**2), 3 * d / (2 * v)
    )


def gaussian_sum_epsilon(count: int, sigma_squared: RationalLike, sensitivity: int) -> Enclosure:
    r"""CZ Lemma 4 (Kairouz, Liu and Steinke 2021, Proposition 13): a sum of n discrete Gaussians
    is (epsilon^2/2)-concentrated for epsilon = min{sqrt(d^2/(n v) + xi/2), d/sqrt(n v) + xi},
    xi = 10 sum_{k<n} e^(-2 pi^2 v k/(k+1)), v = sigma^2 >= 1/4.

    >>> gaussian_sum_epsilon(16, 1, 4)
    Enclosure([1.0001360525238399, 1.0001360525238400])
    """
    n, d = integer("count", count, at_least=1), integer("sensitivity", sensitivity, at_least=1)
    v = positive_rational("sigma_squared", sigma_squared, "variance 0 adds no noise")
    if v < Fraction(1, 4):
        raise InvalidParameter("sigma_squared", sigma_squared, "must be >= 1/4: Proposition 13")

    def bound() -> arb:
        rate = -2 * arb.pi() ** 2 * ball(v)
        xi = 10 * sum(((rate * k / (k + 1)).exp() for k in range(1, n)), arb(0))
        squared = ball(Fraction(d * d) / (n * v))
        return (squared + xi / 2).sqrt().min(squared.sqrt() + xi)

    return narrow(bound, WIDTH_BITS)


def _tail(scale: Fraction, failure: RationalLike) -> int:
    log = log_of(2 / failure_of(failure))
    return ceiling(lambda: ball(scale) * log())


def _sum(n: int, g: int, tau: int, noise: DiscreteLaplace | Skellam) -> SumParameters:
    share = noise.share(n)
    return SumParameters(users=n, precision=g, threshold=tau, noise=noise, share=share)


def _form(form: Form) -> Form:
    if form not in ("printed", "corrected"):
        raise InvalidParameter("form", form, "must be 'printed' or 'corrected'")
    return form
