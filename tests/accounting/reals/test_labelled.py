r"""A round of one of several kinds: its moment is the mixture of theirs; other chances fail."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from flint import arb

from accounting.reals.labelled import LabelledLoss
from accounting.reals.mixture import Direction, SmoothLoss
from accounting.reals.sampled_gaussian import SampledGaussian
from accounting.reals.sampled_laplace import SampledLaplace
from dpcore.numbers.enclosure import precision
from tests.accounting.reals.test_sampled_gaussian import moment, summed

RARE = Fraction(1, 1 << 150)


def gaussian(sigma: str, rate: str, *, present: bool = True) -> SampledGaussian:
    direction = Direction(rate=Fraction(rate), present=present)
    return SampledGaussian(variance=Fraction(sigma) ** 2, direction=direction)


@pytest.mark.parametrize("present", [True, False])
def test_the_mixture(present: bool) -> None:
    c, y, chances = 3.0, 17.0, (Fraction(9, 10) - RARE, Fraction(1, 10), RARE)
    given = (("1", "1/10"), ("1/2", "1/20"), ("1/2", "1/10"))
    laws = [gaussian(*each, present=present) for each in given]
    law = LabelledLoss(kinds=tuple(zip(chances, laws, strict=True)))
    with precision(128):
        truths = [moment(*each, c, y, present=present) for each in given]
        truth = sum(
            (t * arb(w.numerator) / w.denominator for w, t in zip(chances, truths, strict=True)),
            arb(0),
        )
        nodes, faded = law.nodes(Fraction(c), y, 40.0, 1 << 13), law.fading(Fraction(c), 40.0, 4096)
        assert faded is not None
        for found in (nodes, faded):
            assert abs(summed(found, y) - truth) <= found.rest
            assert found.rest < float(abs(truth)) * 1e-9
            # The mutant: as likely the one as the other.
            swapped = (truths[0] + truths[1]) / 2
            assert abs(summed(found, y) - swapped) > 1000 * found.rest
        scale = math.exp(law.cumulants(c)[0])
        assert law.far(Fraction(c), np.array([y]))[0] >= float(abs(truth)) / scale
        assert scale == pytest.approx(float(abs(sum(nodes.weights, arb(0)))), rel=1e-9)


def test_the_largest_loss_of_any_kind() -> None:
    half = Fraction(1, 2)
    here, gone = (gaussian("1", "1/4", present=side) for side in (True, False))
    small: SmoothLoss = SampledLaplace(spread=Fraction(1), direction=here.direction)

    def of(*laws: SmoothLoss) -> LabelledLoss:
        return LabelledLoss(kinds=tuple((half, law) for law in laws))

    assert of(small, here).largest_loss().upper == math.inf
    assert of(gone, gone).largest_loss().upper_float == pytest.approx(math.log(4 / 3))
    assert of(gone, small).fading(Fraction(1), 40.0, 1 << 13) is None
