r"""An accountant for Opacus that reports a proven epsilon: ``PrivacyEngine(accountant="dpcore")``.

pip install 'dpcore[opacus]'

>>> import opacus_accountant  # registers the accountant
>>> engine = PrivacyEngine(accountant="dpcore")
>>> engine.get_epsilon(delta=1e-5)  # the proven upper bound

The epsilon is valid for independent Poisson batches (``poisson_sampling=True``) and neighbours that
differ by adding or removing one example. It assumes ideal Gaussian noise; ``bounds`` lists this
assumption.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import groupby
from typing import Any

from opacus.accountants import IAccountant, register_accountant

from accounting import Bound, Description, Gaussian, compose
from accounting.descriptions.sampling_schemes import EVERYONE, Poisson
from dpcore.mechanism import Relation


class ProvenAccountant(IAccountant):  # type: ignore[misc]  # Opacus has no types
    r"""An accountant with a lower and an upper bound on the composition of all steps."""

    def __init__(self) -> None:
        self.history: list[tuple[float, float, int]] = []

    def step(self, *, noise_multiplier: float, sample_rate: float) -> None:
        r"""Add a step; consecutive equal steps are stored with their number."""
        steps = [*self.history, (noise_multiplier, sample_rate, 1)]
        self.history = [
            (*kind, sum(count for *_, count in group))
            for kind, group in groupby(steps, key=lambda each: each[:2])
        ]

    def bounds(self, delta: float) -> Bound:
        r"""The lower and upper bounds on epsilon at ``delta``, with their assumptions."""
        rounds = []
        for noise, rate, count in self.history:
            share = min(Fraction(rate), Fraction(1))
            scheme = EVERYONE if share == 1 else Poisson(rate=share)
            step = Description(
                noise=Gaussian(sigma=noise),
                sensitivity=1,
                scheme=scheme,
                relation=Relation.ADD_REMOVE,
            )
            rounds.append((step, count))
        return compose(*rounds).epsilon(delta)

    def get_epsilon(self, delta: float, **_: Any) -> float:
        r"""The proven upper bound on epsilon at ``delta``."""
        if not self.history:
            return 0.0
        return self.bounds(delta).upper_float

    def __len__(self) -> int:
        return sum(count for *_, count in self.history)

    @classmethod
    def mechanism(cls) -> str:
        r"""The name for ``PrivacyEngine(accountant=...)``."""
        return "dpcore"


register_accountant("dpcore", ProvenAccountant)
