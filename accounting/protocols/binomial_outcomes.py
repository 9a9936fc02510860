r"""The outcomes of one binomial coordinate and of its shifted copy, by falling loss.

X is Binomial(N, p), P the law of X and Q that of X + d. The loss log p(x)/p(x-d) falls in x, and is
infinite for x < d. The other direction, X + d against X, is the same for N - X: p becomes 1 - p.
Masses follow from the one at the mode by the ratio p(x+1)/p(x) = (N-x) p/((x+1)(1-p)).
Proofs: docs/proofs/shuffle.md.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Final

from flint import arb, fmpz

from accounting.protocols.product import Outcomes
from dpcore.numbers.enclosure import ball

__all__ = ["binomial_outcomes"]

_DIRECT: Final = 4096


def binomial_outcomes(trials: int, probability: Fraction, shift: int, bits: int) -> Outcomes:
    r"""X against X + ``shift``, complete but for tails of mass about 2^-``bits``.

    >>> found = binomial_outcomes(2, Fraction(1, 2), 1, 64)
    >>> [float(a) for a in found.here], [float(b) for b in found.there], float(found.hidden)
    ([0.5, 0.25], [0.25, 0.5], 0.25)
    """
    first, masses, lower, upper = _window(trials, probability, shift, bits)
    zero = arb(0)
    if first == 0:
        least, left_out, hidden = min(shift, len(masses)), zero, zero
    else:
        # Q is known from x = first + shift on; below, everything counts as left out.
        least, left_out, hidden = shift, zero.union(lower.upper()), zero
    early = sum(masses[:least], arb(0))
    if first == 0:
        hidden = early
    else:
        left_out += zero.union(early.upper())
    return Outcomes(
        here=tuple(masses[least:]),
        there=tuple(masses[: len(masses) - least]),
        hidden=hidden,
        above=left_out,
        below=zero.union(upper.upper()),
    )


def _window(trials: int, p: Fraction, shift: int, bits: int) -> tuple[int, list[arb], arb, arb]:
    # (first, masses from first on, bounds of the mass below and above). The window reaches `shift`
    # further down than its tails need, so that Q is known wherever P matters.
    mode = min(math.floor((trials + 1) * p), trials)
    peak = _mass(trials, p, mode)
    odds, enough = ball(p / (1 - p)), arb(2) ** -bits
    rising, term, x = [peak], peak, mode
    while x < trials:
        ratio = odds * (trials - x) / (x + 1)
        if term * ratio < enough * (1 - ratio):
            break
        # In this order a mass that is a short dyadic number stays exact.
        term, x = term * odds * (trials - x) / (x + 1), x + 1
        rising.append(term)
    upper = _geometric(term, odds * (trials - x) / (x + 1)) if x < trials else arb(0)
    falling: list[arb] = []
    term, x, spare = peak, mode, shift
    while x > 0:
        ratio = arb(x) / (odds * (trials - x + 1))
        if term * ratio < enough * (1 - ratio):
            spare -= 1
            if spare < 0:
                break
        term, x = term * x / (odds * (trials - x + 1)), x - 1
        falling.append(term)
    lower = _geometric(term, arb(x) / (odds * (trials - x + 1))) if x > 0 else arb(0)
    return x, falling[::-1] + rising, lower, upper


def _geometric(term: arb, ratio: arb) -> arb:
    # The ratios fall further out, so what is beyond `term` is at most term (r + r^2 + ...).
    return term * ratio / (1 - ratio) if ratio < 1 else arb("inf")


def _mass(trials: int, p: Fraction, x: int) -> arb:
    if trials <= _DIRECT:
        return arb(fmpz.bin_uiui(trials, x)) * ball(p) ** x * ball(1 - p) ** (trials - x)
    logs = [(arb(n) + 1).lgamma() for n in (trials, x, trials - x)]
    chance = ball(p).log() * x + ball(1 - p).log() * (trials - x)
    return (logs[0] - logs[1] - logs[2] + chance).exp()
