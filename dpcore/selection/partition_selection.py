r"""Release keys from an unknown domain whose noisy counts reach a threshold.

The guarantee has a delta, because a key of only one user reaches the threshold with a small
probability; ``accounting.composition.partition_selection_guarantee`` bounds this probability.
Proofs: docs/proofs/selection.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from dpcore.errors import InvalidParameter
from dpcore.mechanism import Mechanism, Scope, Sensitivity
from dpcore.numbers.parameter import Of, Whole, check_fields, integer
from dpcore.sampling.rng import SYSTEM, Rng


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisyThreshold:
    r"""Release each key whose noisy count is at least ``threshold``, with the noisy count.

    ``mechanism`` contains the noise and the sensitivity of the vector of counts. ``rows_per_user``
    bounds the number of rows, and therefore of keys, of one user. A user with r rows changes the
    counts by at most r in l1 norm if added or removed, and by at most 2 r if replaced.

    >>> from dpcore import DiscreteLaplace, Scope, SeededRng, Sensitivity
    >>> noisy = Mechanism(
    ...     noise=DiscreteLaplace(scale=1),
    ...     sensitivity=Sensitivity.l1(1),
    ...     scope=Scope(relation="add-remove"),
    ... )
    >>> release = NoisyThreshold(mechanism=noisy, threshold=20)
    >>> release.release({"paris": 1000, "rome": 1}, rng=SeededRng(1))
    {'paris': 1000}
    """

    mechanism: Of[Mechanism] = Of(Mechanism, "must be a Mechanism")
    threshold: Whole = Whole()
    rows_per_user: Whole = Whole(1, at_most=1 << 10)

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def scope(self) -> Scope:
        return self.mechanism.scope

    def release(self, value: Mapping[str, int], *, rng: Rng = SYSTEM) -> dict[str, int]:
        r"""Return the keys that reach the threshold, sorted, with their noisy counts.

        Raises :class:`InvalidParameter` if keys cannot be sorted, or if a count is not an integer
        >= 1: omit keys without users.
        """
        if not isinstance(value, Mapping):
            raise InvalidParameter("value", value, "must map keys to counts")
        try:
            keys = sorted(value)
            # A partial order, or nan, would keep the order of the rows, which reveals them.
            ordered = all(one < other for one, other in pairwise(keys))
        except TypeError:
            ordered = False
        if not ordered:
            must = "must have keys that can be sorted, such as strings"
            raise InvalidParameter("value", "(not shown)", must)
        counts = [integer("value", value[key], at_least=1) for key in keys]
        if not keys:
            return {}
        noisy = self.mechanism.release(np.array(counts, dtype=np.int64), rng=rng).tolist()
        return {k: n for k, n in zip(keys, noisy, strict=True) if n >= self.threshold}

    def to_json(self) -> dict[str, Any]:
        return {
            "mechanism": "noisy-threshold",
            "noise": self.mechanism.noise.to_json(),
            "sensitivity": Sensitivity.of(self.mechanism.sensitivity).to_json(),
            "threshold": self.threshold,
            "rows_per_user": self.rows_per_user,
        }
