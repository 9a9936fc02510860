r"""Learning through certified mechanisms: what the noise costs a bandit, and what it protects.

The public names of bandits; each is documented where it is defined. Those of experiments,
certificates and returning users are imported when they are first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from bandits.dp_se import DpSe
from bandits.elimination import BatchedElimination
from bandits.environment import Bernoulli, ClippedNormal, Environment, Reordered, Table, cz_instance
from bandits.play import Run, play
from bandits.policy import Choice, Commit, Policy, Pulls, Released, ReleasedSum
from bandits.privatizer import Privatizer, Unprotected
from bandits.privatizer_bits import BitPrivatizer
from bandits.privatizer_sum import SumPrivatizer
from bandits.promise import NEW_USERS, RunGuarantee, Users, run_guarantee
from bandits.radius import DpSeRadius, ExactRadius, PaperRadius, Radius
from bandits.schedule import PAPER, RELEASED, Schedule, exact_schedule
from bandits.shuffle_elimination import JointRadius, PooledRadius, ShuffleElimination, TkmsRadius

if TYPE_CHECKING:
    from bandits.book import LedgerBook, MemoryBook
    from bandits.certificate import RunCertificate, certificate_of, recheck
    from bandits.experiment import Experiment, run_cells
    from bandits.registry import Setting, read_algorithm
    from bandits.returning import Pool, SteadyPrivatizer

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
    "Experiment": "experiment",
    "LedgerBook": "book",
    "MemoryBook": "book",
    "Pool": "returning",
    "RunCertificate": "certificate",
    "Setting": "registry",
    "SteadyPrivatizer": "returning",
    "certificate_of": "certificate",
    "read_algorithm": "registry",
    "recheck": "certificate",
    "run_cells": "experiment",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'bandits' has no attribute {name!r}")
    found = getattr(import_module(f"bandits.{_LATER[name]}"), name)
    # Bound here, so that the next look finds it.
    globals()[name] = found
    return found
