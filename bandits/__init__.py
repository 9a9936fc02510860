r"""Learning through certified mechanisms: what the noise costs a bandit, and what it protects.

The public names of bandits; each is documented where it is defined. Those of experiments,
certificates and returning users are imported when they are first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from bandits.batch import Commit, Pulls, Released, ReleasedSum
from bandits.play import Run, play, run_guarantee
from bandits.policies.dp_se import DpSe
from bandits.policies.elimination import BatchedElimination
from bandits.policies.policy import Choice, Policy
from bandits.policies.schedule import PAPER, RELEASED, Schedule, exact_schedule
from bandits.policies.shuffle_elimination import (
    JointRadius,
    PooledRadius,
    ShuffleElimination,
    TkmsRadius,
)
from bandits.privatizers.bits import BitPrivatizer
from bandits.privatizers.privatizer import Privatizer, Unprotected
from bandits.privatizers.promise import NEW_USERS, RunGuarantee, Users
from bandits.privatizers.sums import SumPrivatizer
from bandits.radius.radius import DpSeRadius, ExactRadius, PaperRadius, Radius
from bandits.worlds.environment import (
    Bernoulli,
    ClippedNormal,
    Environment,
    Reordered,
    Table,
    cz_instance,
)

if TYPE_CHECKING:
    from bandits.certificates.certificate import RunCertificate, certificate_of, recheck
    from bandits.experiments.experiment import Experiment, run_cells
    from bandits.policies.registry import Setting, read_algorithm
    from bandits.privatizers.returning import Pool, SteadyPrivatizer
    from bandits.privatizers.visits import LedgerBook, MemoryBook

__all__ = [
    "NEW_USERS",
    "PAPER",
    "RELEASED",
    "BatchedElimination",
    "Bernoulli",
    "BitPrivatizer",
    "Choice",
    "ClippedNormal",
    "Commit",
    "DpSe",
    "DpSeRadius",
    "Environment",
    "ExactRadius",
    "Experiment",
    "JointRadius",
    "LedgerBook",
    "MemoryBook",
    "PaperRadius",
    "Policy",
    "Pool",
    "PooledRadius",
    "Privatizer",
    "Pulls",
    "Radius",
    "Released",
    "ReleasedSum",
    "Reordered",
    "Run",
    "RunCertificate",
    "RunGuarantee",
    "Schedule",
    "Setting",
    "ShuffleElimination",
    "SteadyPrivatizer",
    "SumPrivatizer",
    "Table",
    "TkmsRadius",
    "Unprotected",
    "Users",
    "certificate_of",
    "cz_instance",
    "exact_schedule",
    "play",
    "read_algorithm",
    "recheck",
    "run_cells",
    "run_guarantee",
]

_LATER = {
    "Experiment": "experiments.experiment",
    "LedgerBook": "privatizers.visits",
    "MemoryBook": "privatizers.visits",
    "Pool": "privatizers.returning",
    "RunCertificate": "certificates.certificate",
    "Setting": "policies.registry",
    "SteadyPrivatizer": "privatizers.returning",
    "certificate_of": "certificates.certificate",
    "read_algorithm": "policies.registry",
    "recheck": "certificates.certificate",
    "run_cells": "experiments.experiment",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'bandits' has no attribute {name!r}")
    found = getattr(import_module(f"bandits.{_LATER[name]}"), name)
    # Bound here, so that the next look finds it.
    globals()[name] = found
    return found
