"""Tests of the public names of `bandits`, and that each part refuses invalid values by name."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any, Final

import numpy as np
import pytest

import bandits
from bandits.actions import Actions, LinearModel
from bandits.batch import Ask, Commit, Encoding, Plays, Pulls, Released, ReleasedSum
from bandits.combinatorial_rewards_and_oracles import (
    AtLeastOne,
    Coverage,
    Exhaustive,
    Failing,
    GreedyCoverage,
    Influence,
    LargestSum,
    Linear,
    Problem,
)
from bandits.elimination_radii import ExactRadius, PaperRadius, certified_gap, certified_width
from bandits.play import play
from bandits.policies.combinatorial_ucb import cucb, laplace_quantile
from bandits.policies.linear_phased_elimination import PhasedElimination
from bandits.policies.registry import Setting
from bandits.policies.successive_elimination import BatchedElimination, DpSe, ShuffleElimination
from bandits.privatizers.batch_sums_by_trust_model import (
    BitPrivatizer,
    PureShufflePrivatizer,
    SumPrivatizer,
)
from bandits.privatizers.continual_sums_per_arm import StreamPrivatizer
from bandits.privatizers.deployment import Deployment
from bandits.privatizers.privatizer import Unprotected
from bandits.privatizers.returning_users import Book, Pool, SteadyPrivatizer, visits_budget
from bandits.privatizers.vector_averages import AveragePrivatizer
from bandits.super_arms import Listed, Paths, SpanningTrees, Unions
from bandits.worlds.arm_environments import Bernoulli
from bandits.worlds.combinatorial import BitWorld, coverage, path, top_k, tree
from bandits.worlds.linear import LinearWorld
from dpcore.laws.discrete_gaussian import DiscreteGaussian
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.laws.poisson_and_binomial import Binomial, Poisson
from dpcore.laws.skellam import Skellam
from dpcore.sampling.rng import SeededRng
from tests.support.bandits.worlds import Script
from tests.support.dpcore.refusals import refused


def test_every_public_name_exists_and_is_documented() -> None:
    for name in bandits.__all__:
        assert getattr(bandits, name).__doc__
    assert sorted(bandits.__all__) == bandits.__all__
    assert len(bandits.__all__) < 20
    with pytest.raises(AttributeError, match="no attribute 'Bandit'"):
        _ = bandits.Bandit


LOOK = """
import sys, bandits
print([each for each in ("sqlalchemy", "joblib", "scipy.stats", "typer") if each in sys.modules])
import bandits.cli.run
from bandits import Experiment, read_algorithm, run_cells
print([each for each in ("sqlalchemy", "scipy.stats") if each in sys.modules])
"""


def test_a_run_of_new_users_does_not_import_the_ledger() -> None:
    words = [sys.executable, "-W", "error", "-c", LOOK]
    run = subprocess.run(words, capture_output=True, text=True, check=True)
    assert (run.stdout, run.stderr) == ("[]\n[]\n", "")


BITS = BitPrivatizer(epsilon=1, delta="1e-6")
STEADY = SteadyPrivatizer(law=Skellam(variance=4), steps=4, failure="1e-3")
MODEL = LinearModel(actions=Actions(np.eye(2)), deviation="0.1")
OTHER = SteadyPrivatizer(law=Skellam(variance=400), steps=4, failure="1e-3")
TOP = Problem(decisions=Unions.subsets(4, 2))
PAIRS = Unions(((0, 1), (2, 3), (4, 5)), 2)
COVERAGE = Coverage((0, 1, 1, 2, 0, 2))
ARMS = Bernoulli(means=(0.25, 0.75, 0.5))
ONCE: Any = Script(batches=(Pulls((1, 1, 1)), Commit(0)))
ANY = Problem(decisions=Unions.subsets(4, 2), reward=AtLeastOne())

COINS = np.random.default_rng(1)
LAPLACE = {"noise": DiscreteLaplace(scale=4), "precision": 2, "pulls": 9, "failure": "0.1"}

GOOD: Final[dict[Callable[..., object], dict[str, Any]]] = {
    SumPrivatizer: {"trust": "pure", "epsilon": 1, "failure": "1e-6"},
    BitPrivatizer: {"epsilon": 1, "delta": "1e-6"},
    PureShufflePrivatizer: {"epsilon": 1, "failure": "1e-3"},
    SteadyPrivatizer: {"law": Skellam(variance=4), "steps": 4, "failure": "1e-3"},
    AveragePrivatizer: {"trust": "central"},
    StreamPrivatizer: {"trust": "local", "epsilon": 1, "sent": 1, "horizon": 10}, Deployment: {},
    BatchedElimination: {"privatizer": Unprotected()}, DpSe: {"epsilon": 1, "failure": "1e-6"},
    ShuffleElimination: {"privatizer": BITS},
    Setting: {"epsilon": "1/2", "delta": "1e-6", "horizon": 10**4, "arms": 3},
    Actions: {"points": np.eye(2)}, LinearModel: {"actions": MODEL.actions, "deviation": "0.1"},
    PhasedElimination: {"model": MODEL, "privatizer": AveragePrivatizer(trust="none", bound=2)},
    LinearWorld: {"of": MODEL, "theta": (0.6, 0.0)}, BitWorld: {"of": TOP, "chances": (0.5,) * 4},
    Ask: {"users": 1, "actions": (0, 1)}, Plays: {"arms": 2, "asks": (Ask(1, (0,)),)},
    Encoding: {"precision": 1}, Pulls: {"counts": (1, 0)},
    Released: {"sums": (ReleasedSum(Fraction(1, 2)), None)},
    cucb: {"name": "cucb-dp", "problem": TOP, "horizon": 1000},
    Pool: {"users": 10, "max_visits": 1, "privatizer": STEADY, "arrivals": COINS},
    Book: {"curve": STEADY.curve}, visits_budget: {"curve": STEADY.curve, "max_visits": 1},
    play: {"policy": ONCE, "environment": ARMS, "horizon": 100, "world": COINS},
    certified_width: LAPLACE, certified_gap: LAPLACE,
    laplace_quantile: {"draws": np.array([1]), "scale": 1.0, "rare": 1.0},
    Problem: {"decisions": PAIRS}, Linear: {}, Coverage: {"targets": (0, 1)},
    GreedyCoverage: {"decisions": PAIRS, "reward": COVERAGE},
    Influence: {"edges": ((0, 1), (1, 2))}, Failing: {"of": LargestSum(PAIRS), "chance": "1/2"},
    Unions: {"groups": ((0,), (1,)), "chosen": 1}, Unions.subsets: {"arms": 3, "size": 1},
    Listed: {"count": 3, "sets": ((0, 1),)}, Paths: {"edges": ((0, 1), (1, 2))},
    SpanningTrees: {"edges": ((0, 1), (1, 2))}, top_k: {"seed": 0, "arms": 5, "size": 2},
    coverage: {"seed": 0, "arms": 12, "size": 4}, path: {"seed": 0, "arms": 24, "size": 6},
    tree: {"seed": 0, "arms": 15, "size": 5},
}  # fmt: skip
"""What each can be made of."""

NO_ACTIONS: Final = (
    *(np.array([[each, 0.0]]) for each in (math.nan, math.inf)),
    *(np.ones((1, 2)), np.zeros((0, 3)), np.zeros((3, 0)), np.zeros(3)),
    *(np.array([["a"]]), [[1.0]]),
)

WRONG: Final[dict[Callable[..., object], dict[str, tuple[object, ...]]]] = {
    SumPrivatizer: {
        "trust": ("blind",),
        "epsilon": (0, -1, float("nan")),
        "failure": (0, 1),
        "scaling": (0, {"scaling": 2, "parameters": "paper"}, {"scaling": "1/2", "trust": "renyi"}),
        "delta": (
            "1e-6",
            {"delta": "1e-6", "trust": "renyi", "parameters": "paper"},
            {"delta": 1, "trust": "renyi"},
        ),
        "parameters": ("best",),
    },
    BitPrivatizer: {"epsilon": (0,), "delta": (0, 1), "parameters": ("best",)},
    PureShufflePrivatizer: {"epsilon": (0,), "failure": (0, 1), "deployment": (3,)},
    SteadyPrivatizer: {
        "law": (
            "skellam",
            DiscreteGaussian(sigma_squared=4),
            {"law": Binomial(trials=9, probability="1/3"), "steps": 1},
        ),
        "steps": ({"law": Binomial(trials=9, probability="1/2"), "steps": 2},),
        "deployment": ("everyone",),
    },
    AveragePrivatizer: {
        "trust": ("nobody",),
        "epsilon": (0, "nan"),
        "delta": (0, 1),
        "bound": (0,),
        "calibration": ("guess", {"trust": "shuffle", "calibration": "pure"}),
    },
    StreamPrivatizer: {
        "trust": ("server",),
        "release": ("blocks",),
        "epsilon": (0, float("nan")),
        "delta": (1,),
        "sent": (0,),
        "horizon": (0, 10**8 + 1),
    },
    Deployment: {
        "honest": (0, "nan", 2),
        "dropouts": (1, "-1/9", {"dropouts": "1/2", "aggregation": "masked"}),
        "aggregation": ("paper",),
    },
    BatchedElimination: {
        "failure_probability": (0, 1, "-0.1", "0.95", "1/2"),
        "privatizer": (None, {"most": 4}),
        "radius": ("paper", {"most": 4, "privatizer": STEADY, "radius": PaperRadius()}),
        "schedule": (2,),
        "most": (0, "x"),
    },
    DpSe: {"epsilon": (0, -1), "failure": (0,), "failure_probability": (1,), "radius": ("paper",)},
    ShuffleElimination: {
        "privatizer": (Unprotected(),),
        "batch": (0,),
        "radius": ("best", ExactRadius()),
    },
    Setting: {
        "epsilon": (0, "-1"),
        "delta": (0, 1),
        "arms": (0,),
        "horizon": (2,),
        "radius": ("best",),
        "schedule": ("cz",),
        "failure_probability": (1, "0.95"),
    },
    Actions: {"actions": tuple({"points": each} for each in NO_ACTIONS)},
    LinearModel: {"bound": ("1/2",), "deviation": (2, "nan")},
    PhasedElimination: {
        "alpha": (0, 1),
        "clients": ("some",),
        "each": (5, {"clients": "fixed", "each": 0}),
        "users": ({"population": 0},),
        "model": (None,),
        "radius": ("best", None),
        "privatizer": (AveragePrivatizer(trust="none", bound=3),),
    },
    LinearWorld: {"theta": ((1.0,), (math.nan, 0.0), (math.inf, 0.0), (1.0, 1.0))},
    Ask: {
        "users": (0,),
        "actions": ((), (1, 1), (-1,)),
        "times": ((2,), {"actions": (0,), "times": (0,)}),
    },
    Plays: {"asks": ((), (Ask(1, (2,)),), (Ask(1, (0,)), Ask(1, (0,))))},
    Encoding: {"precision": (0,), "high": ({"low": 1, "high": 1},)},
    Pulls: {"counts": ((), (0, 0), (-1, 2), (1.0, 2), [1, 2], (True, 1))},
    Released: {"sums": ((0.5,), (1,), [ReleasedSum(Fraction(1))], None)},
    BitWorld: {
        "chances": ((0.5, 0.5), (0.5, 0.5, 1.5, 0), (0.5, 0.5, float("nan"), 0)),
        "together": ((0, 0), (0, 0, 0, 4), {"together": (0, 0, 1, 2), "of": ANY}),
    },
    cucb: {
        "name": ("ucb",),
        "problem": (3,),
        "horizon": (3,),
        "epsilon": (0,),
        "c": (1, "nan"),
        "radius": ("narrow",),
        "release": ("blocks",),
        "delta": (0,),
    },
    Pool: {
        "users": (0, 1 << 40),
        "max_visits": (0, 1 << 30, {"max_visits": 1 << 30, "book": Book(curve=STEADY.curve)}),
        "privatizer": (SumPrivatizer(trust="pure", epsilon=1, failure="1e-3"),),
        "arrivals": (3,),
        "book": ("abc", "", 0, Book(curve=OTHER.curve)),
    },
    Book: {"curve": ("x",)},
    visits_budget: {"curve": ("x",), "max_visits": (0, "4")},
    play: {
        "horizon": (2, 0, 1e6),
        "checkpoints": ((0, 5), (5, 5), (6, 5), (101,), (50, 101)),
        "world": (SeededRng(1), 1),
        "rng": (COINS,),
        "users": (None,),
        "environment": ((0.5, 0.6),),
        "policy": (
            *("cdp-se", replace(ONCE, privatizer=None), replace(ONCE, privatizer="none")),
            *(replace(ONCE, batches=(each,)) for each in (Pulls((1, 1)), (1, 1, 1), Commit(3))),
        ),
    },
    certified_width: {
        "pulls": (0,),
        "precision": (0,),
        "failure": (0, 1),
        "threshold": (-1, {"noise": Poisson(mean=3), "threshold": 9}),
        "noise": (3,),
    },
    certified_gap: {"noise": (Poisson(mean=3),)},
    laplace_quantile: {"scale": (0.0,)},
    Problem: {
        "decisions": (3,),
        "reward": ("linear",),
        "oracle": (
            *(LargestSum(Unions.subsets(6, 4)), LargestSum(PAIRS, -1), Exhaustive(PAIRS, COVERAGE)),
            *({"reward": COVERAGE}, {"reward": AtLeastOne()}),
        ),
    },
    Linear: {"scale": (0,)},
    Coverage: {"targets": ((), (0, -1))},
    GreedyCoverage: {"targets": ({"reward": Coverage((0,))},)},
    Influence: {"edges": ((), ((0, 1), (1, 0)), tuple((0, i) for i in range(1, 14)))},
    Failing: {"chance": (1,)},
    Unions: {"groups": ((), ((0, 1), (1,)), ((0,), ())), "chosen": (0, 3)},
    Unions.subsets: {"arms": ({"arms": 0}, {"arms": 63}), "super_arm": ({"size": 4}, {"size": 0})},
    Listed: {"sets": ((), ((0, 1), (1, 0)), ((0, 3),), ((0, 0),), ((),))},
    Paths: {
        "edges": (
            *((), ((0, 1), (0, 1)), ((1, 0),), ((0, 1), (0, 2), (1, 3))),
            *(((0, 2), (1, 2)), ((0, -1),)),
        ),
    },
    SpanningTrees: {"edges": (((1, 0),), ((0, 1), (2, 3)))},
    top_k: {"super_arm": ({"size": 6},)},
    coverage: {"arms": (13,), "super_arm": ({"size": 3},)},
    path: {"arms": (20,), "super_arm": ({"size": 5},)},
    tree: {"arms": (14,), "super_arm": ({"arms": 15, "size": 4},)},
}
"""By what is made and by argument: values of it, or it and what else is given."""


@pytest.mark.parametrize(
    ("make", "argument"),
    [(make, argument) for make, wrong in WRONG.items() for argument in wrong],
    ids=lambda each: each if isinstance(each, str) else each.__name__,
)
def test_invalid_parts_are_refused_by_name(make: Callable[..., object], argument: str) -> None:
    make(**GOOD[make])
    for value in WRONG[make][argument]:
        change = value if isinstance(value, dict) else {argument: value}
        with refused(argument):
            make(**{**GOOD[make], **change})
