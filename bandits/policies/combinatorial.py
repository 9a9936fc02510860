r"""CUCB and its private versions by name, for a setting; ``bandits.rounds`` plays them."""

from __future__ import annotations

from typing import cast

from bandits.combinatorial.cucb import Cucb, CucbName, cucb
from bandits.combinatorial.problem import Problem
from bandits.policies.registry import Algorithm, Setting
from dpcore.errors import InvalidParameter

__all__ = ["cucb_of"]


def cucb_of(algorithm: Algorithm, setting: Setting) -> Cucb:
    r"""The policy of that name for this setting, whose ``model`` is the problem.

    >>> from bandits.combinatorial.decisions import Unions
    >>> from bandits.policies.registry import read_algorithm
    >>> top = Problem(decisions=Unions.subsets(20, 2))
    >>> setting = Setting(epsilon=1, delta="1e-6", horizon=1000, arms=20, model=top)
    >>> cucb_of(read_algorithm("cucb-dp"), setting).privatizer.noise
    DiscreteLaplace(scale=20)

    Raises :class:`InvalidParameter` for an algorithm or a model of another kind, and for a c with
    the exact radius, which has none.
    """
    name = algorithm.entry.name
    if algorithm.entry.world != "combinatorial" or not isinstance(setting.model, Problem):
        reason = "must be cucb or a private version of it, in a combinatorial world"
        raise InvalidParameter("algorithms", name, reason)
    if algorithm.value is not None and setting.radius == "exact":
        reason = "c is of the paper's radius: leave it out, or take --radius paper"
        raise InvalidParameter("algorithms", str(algorithm), reason)
    return cucb(
        cast(CucbName, name),
        setting.model,
        horizon=setting.horizon,
        epsilon=setting.epsilon,
        delta=setting.delta,
        release=setting.release,
        radius=setting.radius,
        c=algorithm.value or algorithm.entry.default or 4,
    )
