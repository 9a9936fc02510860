r"""Check the epsilon of a JAX Privacy execution plan against the bounds that dpcore proves.

pip install 'dpcore[bench,interop]'

>>> plan = BandMFExecutionPlanConfig.default(num_bands=1, iterations=1000, ...).plan
>>> check(plan, delta=1e-5, epsilon=3)  # raises AssertionError if epsilon is not proven

A plan has an event of dp-accounting, which describes the releases and the sampling of batches.
The sampler and the noise that the plan runs are not checked; ``dpcore audit dpsgd`` tests them.
"""

from __future__ import annotations

from typing import Any

from accounting import Bound, compose
from accounting.interop import from_dp_event
from dpcore.mechanism import Relation, Scope


def bounds(plan: Any, delta: float, relation: Relation = Relation.ADD_REMOVE) -> Bound:
    r"""The lower and upper bounds on epsilon of the plan's event at ``delta``."""
    return compose(from_dp_event(plan.dp_event, Scope(relation=relation))).epsilon(delta)


def check(plan: Any, *, delta: float, epsilon: float) -> Bound:
    r"""Return the bounds if ``epsilon`` is a proven upper bound; else raise `AssertionError`."""
    found = bounds(plan, delta)
    if found.upper > epsilon:
        raise AssertionError(f"epsilon = {epsilon} at delta = {delta} is not proven: {found!r}")
    return found
