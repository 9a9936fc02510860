r"""Masses and tails of Polya laws and of differences of Polya draws, as contour integrals.

With beta = e^(-1/s), the difference X of independent Polya(a, s) and Polya(b, s) draws has

    M(z) = E[e^(zX)] = ((1-beta)/(1-beta e^z))^a ((1-beta)/(1-beta e^-z))^b,

which is analytic for |Im z| <= pi except on the cuts [1/s, oo) and, if b > 0, (-oo, -1/s]. For an
integer k and c between the cuts,

    P(X = k)  = (1/pi) Im int M(z) e^(-kz) dz                     from c to c + pi (d + i),
    P(X >= k) = (1/pi) Im int M(z) e^(-kz)/(1 - e^(-z)) dz        for c > 0,
    P(X <= k) = (1/pi) Im int M(z) e^(-kz)/(1 - e^z) dz           for c < 0,

for every d >= 0. The reason is that the path and its mirror image pass the cuts and the pole at 0
on the same side as the vertical line through c, and that the horizontal edges at Im z = +-pi
cancel. FLINT integrates analytic functions with rigorous error bounds (Johansson 2018). The path is
divided into intervals of doubling length; the first is about as long as the peak of the integrand
is wide. Floating-point code chooses c near the saddle point of the integrand, where there is no
cancellation. Results are balls (:mod:`dpcore.numbers.enclosure`) at the current precision. Proofs:
docs/proofs/polya.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, TypeAlias

from flint import acb, arb, ctx

from dpcore.numbers.enclosure import ball

Integrand: TypeAlias = Callable[[acb, bool], acb]
"""f(z, analytic) returns a ball around f on the ball z; if ``analytic`` is true, the result is not
finite unless f is analytic on z."""


def integral(f: Integrand, start: arb, end: arb, *, rel_tol: arb, abs_tol: arb) -> acb:
    r"""Return a ball around the integral of ``f`` from ``start`` to ``end``.

    Exceptions of ``f``, or of a signal handler that runs meanwhile, are raised here; FLINT would
    leave a ``BaseException`` pending, and every later call would fail with a SystemError.
    """
    raised: list[BaseException] = []

    def guarded(z: acb, analytic: bool) -> acb:  # noqa: FBT001 - FLINT's own signature
        # After an exception nothing more is computed: zeros end the integration immediately.
        if raised:
            return acb(0)
        try:
            return f(z, analytic)
        except BaseException as error:  # noqa: BLE001  # raised again below
            raised.append(error)
            return acb(0)

    try:
        found = acb.integral(guarded, start, end, rel_tol=rel_tol, abs_tol=abs_tol)
    except BaseException as error:  # noqa: BLE001  # raised again below
        raised.append(error)
    if raised:
        raise _first(raised[0])
    return found


def _first(error: BaseException) -> BaseException:
    # If a signal handler raises before the guard is entered, its exception is the cause of the
    # SystemError of the next call.
    while isinstance(error, SystemError) and error.__cause__ is not None:
        error = error.__cause__
    return error


_STRAIGHT_SHAPE: Final = 8
_FAR: Final = 1e200
_END: Final = Fraction(3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    r"""The law of X - Y for independent Polya draws X and Y.

    X has the shape ``right`` > 0 and Y the shape ``left`` >= 0, where a draw of shape 0 is 0. Both
    have the scale ``scale`` > 0. All parameters are exact.
    """

    right: Fraction
    left: Fraction
    scale: Fraction


def mass(law: Branch, k: int) -> arb:
    r"""Return P(X = k) for k >= 0 and X with the law ``law``, as a ball of small relative width."""
    gap = _saddle(law, k)
    return _integral(law, k, gap, lambda _: acb(1))


def upper_tail(law: Branch, least: int) -> arb:
    r"""Return P(X >= ``least``) for ``least`` >= 1 and X with the law ``law``, as a ball.

    The ball is tight if ``least`` is above the mean.
    """
    # The gap to the cut at 1/s is made smaller than 1/s, so that c > 0.
    gap = min(_saddle(law, least), 1 / law.scale)
    gap -= min(gap / 2, _width(law, gap) / 2)
    return _integral(law, least, gap, lambda z: 1 / -(-z).expm1())


def lower_tail(law: Branch, most: int) -> arb:
    r"""Return P(X <= ``most``) for ``most`` >= 0 and X with the law ``law``, as a ball.

    ``law.left`` must be 0. The ball is tight if ``most`` is below the mean.
    """
    # The gap to the cut at 1/s is made larger than 1/s, so that c < 0.
    gap = max(_saddle(law, most), 1 / law.scale)
    gap += _width(law, gap) / 2
    return _integral(law, most, gap, lambda z: 1 / -z.expm1())


def _integral(law: Branch, k: int, gap: Fraction, factor: Callable[[acb], acb]) -> arb:
    # z = c + u, u = t (d + i), 0 <= t <= pi, c = 1/s - gap; e^(-ck) (1-beta)^(a+b) is factored out.
    centre = 1 / law.scale - gap
    near, far, base = ball(gap), ball(1 / law.scale + centre), ball(centre)
    right, left = ball(law.right), ball(law.left)
    straight = law.right > _STRAIGHT_SHAPE
    direction = acb(0, 1) if straight else acb(1, 1)

    def integrand(t: acb, analytic: bool) -> acb:  # noqa: FBT001 - FLINT's own signature
        # 1 - beta e^z = 1 - e^(u - gap) meets the branch cut of the logarithm only on the cut of M;
        # with `analytic` the result is not finite if a ball meets it.
        u = t * direction
        log = right * (-(u - near).expm1()).log(analytic=analytic)
        if law.left:
            log += left * (-(-u - far).expm1()).log(analytic=analytic)
        return (-log - k * u).exp() * factor(u + base)

    # The tolerance is relative to the size of the result, which is about height times width.
    first = min(_width(law, gap), _END)
    height = abs(integrand(acb(0), analytic=False)) * ball(first)
    goal = (height * arb(2) ** (-ctx.prec)).mid()
    fine = arb(2) ** (-ctx.prec)
    total, start, end = acb(0), Fraction(0), first
    while end < _END:
        total += integral(integrand, ball(start), ball(end), rel_tol=fine, abs_tol=goal)
        start, end = end, 2 * end
    total += integral(integrand, ball(start), arb.pi(), rel_tol=fine, abs_tol=goal)
    whole = (total * direction).imag / arb.pi()
    peak = -(-1 / ball(law.scale)).expm1()
    # The integer part of ck is split off exactly: rounding a long exponent would lose digits.
    steps, rest = divmod(centre * k, 1)
    decay = (-ball(steps)).exp() * (-ball(rest)).exp()
    return whole * decay * peak ** ball(law.right + law.left)


def _saddle(law: Branch, k: int) -> Fraction:
    # Approximates g = 1/s - c with K'(c) = k, that is a/(e^g - 1) - b/(e^(2/s - g) - 1) = k. Shapes
    # below 1 count as 1, so that g does not shrink with them. Bounds hold for any g > 0.
    right = max(float(min(law.right, Fraction(_FAR))), 1.0)
    if not law.left:
        ratio = Fraction(right) / max(Fraction(k), Fraction(1, 2))
        return ratio if ratio < 1 / _FAR else Fraction(math.log1p(min(ratio, Fraction(_FAR))))
    # In units of 1/s, where g lies in (0, 1) for every scale.
    rate, slope = max(float(1 / law.scale), 1 / _FAR), float(min(k / law.scale, Fraction(_FAR)))

    def pull(x: float) -> float:
        return right * rate / math.expm1(min(x * rate, 500.0))

    low, high = 1e-205, 1.0
    for _ in range(64):
        middle = math.sqrt(low) * math.sqrt(high)
        low, high = (middle, high) if pull(middle) - pull(2 - middle) > slope else (low, middle)
    return Fraction(high) / law.scale


def _width(law: Branch, gap: Fraction) -> Fraction:
    # About 1/sqrt(K''(c)), the width of the saddle; the right cut contributes a/(4 sinh^2(g/2)).
    root = math.sqrt(max(float(min(law.right, Fraction(_FAR))), 1.0))
    if gap < 1:
        return gap * Fraction(1 / root)
    return Fraction(2 * math.sinh(float(min(gap, Fraction(8))) / 2) / root)
