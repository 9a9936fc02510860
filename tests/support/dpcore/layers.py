r"""Layers of the reference samplers that are proven elsewhere, each as one fork of the unroller."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache
from typing import Any

from dpcore import DiscreteLaplace, Enclosure
from dpcore.numbers.enclosure import ball, narrow
from tests.support.exact_law import Forking, coarser, coin, exp_neg


def bernoulli_proven(rng: Forking, probability: Fraction) -> bool:
    return coin(rng, Enclosure.exactly(probability))


def bernoulli_exp_proven(rng: Forking, exponent: Fraction) -> bool:
    return coin(rng, exp_neg(exponent))


def geometric_mass(exponent: Fraction, k: int) -> Enclosure:
    def mass() -> Any:
        ratio = (-ball(exponent)).exp()
        return (1 - ratio) * ratio**k

    return narrow(mass, 160)


def lower_end(mass: Enclosure) -> Fraction:
    return coarser(mass, 160).lower


@cache
def geometric_weights(exponent: Fraction) -> list[Fraction]:
    far = math.ceil(80 / exponent)
    return [lower_end(geometric_mass(exponent, k)) for k in range(far)]


def geometric_exp_proven(rng: Forking, exponent: Fraction) -> int:
    return rng.choose(geometric_weights(exponent), "geometric")


@cache
def proposal_weights(scale: int, reach: int) -> list[Fraction]:
    law = DiscreteLaplace(scale=scale)
    return [lower_end(law.enclose_pmf(k)) for k in range(-reach, reach + 1)]


class ProposalProven:
    r"""A discrete Laplace as one fork, cut where what is left is below 10^-30."""

    far = 72

    def __init__(self, scale: int) -> None:
        self._scale, self._reach = scale, self.far * scale

    def sample_reference(self, rng: Forking) -> int:
        return rng.choose(proposal_weights(self._scale, self._reach), "proposal") - self._reach
