r"""The mean positive part E[(W_1 + ... + W_n)+] of a sum of independent copies of a variable W.

The contour integral encloses E[(1 - e^-L)+] for a total loss L. Let S = W_1 + ... + W_n, and apply
it to L = k S for a small k > 0. Then

    E[(1 - e^(-kS))+]/k <= E[S+] <= E[(e^(kS) - 1)+]/k = M(k)^n E'[(1 - e^(-kS))+]/k,

where M(k) = E[e^(kW)], and E' is the mean under the law that gives each value w of W the mass
e^(kw) P(W = w)/M(k). Proofs: docs/proofs/local.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Final

import numpy as np
from flint import arb

from accounting.pld.finite_pld import Listing
from accounting.pld_composition.cell_refinement import ListedLoss
from accounting.pld_composition.delta_of_total_loss import ContourIntegral
from accounting.pld_composition.saddle_point import saddle_at_epsilon
from dpcore.numbers.enclosure import Enclosure, End, ball, precision, round_down, round_up

_BITS: Final = 128
_TILT: Final = 24
"""k is about 2^-24 times the saddle point: both bounds differ by about 2^-23 of the result."""


def mean_positive_part(
    values: Sequence[tuple[arb, arb]], count: int, relative: Fraction, *, above: bool
) -> End:
    r"""A bound on E[(W_1 + ... + W_n)+] for n = ``count`` independent copies of a variable W.

    It is an upper bound if ``above`` is true, else a lower bound. ``values`` lists each value of W
    with its probability; the probabilities sum to 1. ``relative`` is the approximate relative width
    of the contour integral.
    """
    with precision(_BITS):
        ends = [Enclosure.of(w).upper if above else Enclosure.of(w).lower for w, _ in values]
        at = np.array([round_up(end) if above else round_down(end) for end in ends])
        if not at.max() > 0:
            return Fraction(0)
        unit = float(at.max())
        near = Listing(at / unit, np.array([float(m) for _, m in values]), 0.0)
        saddle = saddle_at_epsilon(0.0, ((ListedLoss(listing=near, above=above), count),))
        scale = math.ldexp(1.0, math.floor(math.log2(saddle.tilt / unit)) - _TILT)
        moment = arb(1)
        if above:
            grown = [m * (scale * w).exp() for w, m in values]
            moment = sum(grown, arb(0))
            highs = [round_up(Enclosure.of(m / moment).upper) for m in grown]
            listing = Listing.above(at * scale, np.array(highs), 0.0)
        else:
            masses = [Enclosure.of(m) for _, m in values]
            least = np.array([round_down(m.lower) for m in masses])
            most = np.array([round_up(m.upper) for m in masses])
            listing = Listing.below(at * scale, least, most)
        total = ContourIntegral(parts=((ListedLoss(listing=listing, above=above), count),))
        found = total.delta(0, relative)
        end = Enclosure.of(
            ball(Fraction(found.upper if above else found.lower))
            * moment**count
            / ball(Fraction(scale))
        )
        return end.upper if above else end.lower
