r"""One test of an audit: a claimed point, on one pair of datasets, read through one feature.

An audit of one point on one pair has one; a claimed curve, several pairs and several features have
one for each combination, and share the false-alarm level among them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from audit.claims.claim import Claim
from audit.wording.as_json import json_number

__all__ = ["Outcome"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    r"""The test of one claimed point (``claim``) on one pair, through one feature.

    ``pair`` is the place of the pair in the audit's list, ``feature`` the name of the feature that
    outputs were read through, None for the outputs themselves. ``p_value`` or ``e_value`` is that
    of this test alone; ``epsilon_lower`` a bound at this point's delta. All bounds of an audit
    hold together with its confidence. ``refuted`` says whether this point is among those refuted at
    the level of the whole audit.

    >>> Outcome(claim=Claim(epsilon=1), epsilon_lower=0.5, refuted=False, p_value=0.3).to_json()
    {'pair': 0, 'feature': None, 'epsilon': '1', 'delta': '0', 'p_value': 0.3, ...}
    """

    claim: Claim
    epsilon_lower: float
    refuted: bool
    pair: int = 0
    feature: str | None = None
    p_value: float | None = None
    e_value: float | None = None

    def to_json(self) -> dict[str, Any]:
        r"""The fields by name; epsilon and delta exact, as text."""
        stated = self.claim.to_json()
        return {
            "pair": self.pair,
            "feature": self.feature,
            "epsilon": stated["epsilon"],
            "delta": stated["delta"],
            "p_value": self.p_value,
            "e_value": self.e_value,
            "epsilon_lower": json_number(self.epsilon_lower),
            "refuted": self.refuted,
        }
