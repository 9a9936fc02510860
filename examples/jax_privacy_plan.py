r"""Check the epsilon of a JAX Privacy execution plan: the bounds that dpcore proves for its event.

pip install 'dpcore[bench,interop]'

>>> plan = BandMFExecutionPlanConfig.default(num_bands=1, iterations=1000, ...).plan
>>> check(plan, delta=1e-5, epsilon=3)  # raises AssertionError where it is too small

A plan carries an event of dp-accounting, which says what is released and how batches are drawn;
neither the sampler nor the noise that the plan runs is looked at.
``dpcore audit dpsgd`` tests a step that runs.
"""

from __future__ import annotations

from typing import Any

from accounting import Bound, compose
from accounting.interop.read_events import from_dp_event
from dpcore.mechanism import Relation, Scope


def bounds(plan: Any, delta: float, relation: Relation = Relation.ADD_REMOVE) -> Bound:
    r"""epsilon of the plan's event at ``delta``: both ends, and what is assumed."""
    return compose(from_dp_event(plan.dp_event, Scope(relation=relation))).epsilon(delta)


def check(plan: Any, *, delta: float, epsilon: float) -> Bound:
    r"""The bounds, if ``epsilon`` is a proven upper bound; else :class:`AssertionError`."""
    found = bounds(plan, delta)
    if found.upper > epsilon:
        raise AssertionError(f"epsilon = {epsilon} at delta = {delta} is not proven: {found!r}")
    return found
