r"""What dp-accounting prints of a run of Poisson samples: its numbers, beside our two ends."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from accounting.interop.distributions import library

__all__ = ["accountants_of_dp_accounting"]


def accountants_of_dp_accounting(
    sigma: Fraction, rate: Fraction, rounds: Sequence[int], delta: Fraction
) -> dict[str, tuple[float, ...]]:
    r"""Epsilon of sampled Gaussian noise after each of so many ``rounds``, add-remove, by tool.

    Those of its RDP accountant and of its PLD accountant at the default grid, as they come.

    Raises :class:`InvalidParameter` naming the extra where dp-accounting is missing.
    """
    dp = library("dp_accounting")
    event = dp.PoissonSampledDpEvent(float(rate), dp.GaussianDpEvent(float(sigma)))
    kinds = {
        "RDP of dp-accounting": library("dp_accounting.rdp").RdpAccountant,
        "PLD of dp-accounting": library("dp_accounting.pld").PLDAccountant,
    }
    return {
        tool: tuple(
            float(made().compose(event, count).get_epsilon(float(delta))) for count in rounds
        )
        for tool, made in kinds.items()
    }
