"""What privatizers, policies and settings cannot be made of is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from bandits.combinatorial.streams import StreamPrivatizer
from bandits.policies.elimination import BatchedElimination, DpSe
from bandits.policies.returning import PartedElimination
from bandits.policies.setting import Schedule, Setting
from bandits.policies.shuffle_elimination import ShuffleElimination
from bandits.privatizers.averages import AveragePrivatizer
from bandits.privatizers.privatizer import Unprotected
from bandits.privatizers.protocols import Deployment
from bandits.privatizers.returning import SteadyPrivatizer
from bandits.privatizers.sums import BitPrivatizer, SumPrivatizer
from bandits.radius.radius import ExactRadius
from dpcore.laws.binomial import Binomial
from dpcore.laws.discrete_gaussian import DiscreteGaussian
from dpcore.laws.skellam import Skellam
from tests.support.dpcore.refusals import refused

SUMS = SumPrivatizer(trust="pure", epsilon=1, failure="1e-3")
BITS = BitPrivatizer(epsilon=1, delta="1e-6")
STEADY = SteadyPrivatizer(law=Skellam(variance=4), steps=4, failure="1e-3")

GOOD: Final[dict[Callable[..., object], dict[str, Any]]] = {
    SumPrivatizer: {"trust": "pure", "epsilon": 1, "failure": "1e-6"},
    BitPrivatizer: {"epsilon": 1, "delta": "1e-6"},
    SteadyPrivatizer: {"law": Skellam(variance=4), "steps": 4, "failure": "1e-3"},
    AveragePrivatizer: {"trust": "central"},
    StreamPrivatizer: {"trust": "local", "epsilon": 1, "sent": 1, "horizon": 10},
    Deployment: {},
    BatchedElimination: {"privatizer": Unprotected()},
    DpSe: {"epsilon": 1, "failure": "1e-6"},
    ShuffleElimination: {"privatizer": BITS},
    PartedElimination: {"privatizer": STEADY, "schedule": Schedule(first=40, growth=3), "most": 4},
    Setting: {"epsilon": "1/2", "delta": "1e-6", "horizon": 10**4, "arms": 3},
}
"""What each can be made of."""

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
        "confidence": (0, 1, "-0.1", "0.95", "1/2"),
        "privatizer": (None,),
        "radius": ("paper",),
        "schedule": (2,),
    },
    DpSe: {"epsilon": (0, -1), "failure": (0,), "confidence": (1,), "radius": ("paper",)},
    ShuffleElimination: {
        "privatizer": (Unprotected(),),
        "batch": (0,),
        "radius": ("exact", ExactRadius()),
    },
    PartedElimination: {
        "privatizer": (SUMS,),
        "schedule": (3,),
        "most": (0, "x"),
        "confidence": (0, 1),
    },
    Setting: {
        "epsilon": (0, "-1"),
        "delta": (0, 1),
        "arms": (0,),
        "horizon": (2,),
        "radius": ("best",),
        "schedule": ("cz",),
        "confidence": (1, "0.95"),
    },
}
"""By what is made and by argument: values of it, or it and what else is given."""


@pytest.mark.parametrize(
    ("make", "argument"),
    [(make, argument) for make, wrong in WRONG.items() for argument in wrong],
    ids=lambda each: each if isinstance(each, str) else each.__name__,
)
def test_what_is_wrong_is_refused_by_name(make: Callable[..., object], argument: str) -> None:
    make(**GOOD[make])
    for value in WRONG[make][argument]:
        change = value if isinstance(value, dict) else {argument: value}
        with refused(argument):
            make(**{**GOOD[make], **change})
