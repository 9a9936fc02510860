r"""Learning through certified mechanisms: what the noise costs a bandit, and what it protects.

The public names of bandits; each is documented where it is defined.
"""

from bandits.dp_se import DpSe
from bandits.elimination import BatchedElimination
from bandits.environment import Bernoulli, ClippedNormal, Environment, Reordered, Table, cz_instance
from bandits.play import NEW_USERS, Run, RunGuarantee, Users, play, run_guarantee
from bandits.policy import Commit, Policy, Pulls, Released
from bandits.privatizer import Privatizer, Unprotected
from bandits.privatizer_bits import BitPrivatizer
from bandits.privatizer_sum import SumPrivatizer
from bandits.radius import ExactRadius, PaperRadius, Radius
from bandits.schedule import Schedule, exact_schedule
from bandits.shuffle_elimination import ShuffleElimination

__all__ = [
    "NEW_USERS",
    "BatchedElimination",
    "Bernoulli",
    "BitPrivatizer",
    "ClippedNormal",
    "Commit",
    "DpSe",
    "Environment",
    "ExactRadius",
    "PaperRadius",
    "Policy",
    "Privatizer",
    "Pulls",
    "Radius",
    "Released",
    "Reordered",
    "Run",
    "RunGuarantee",
    "Schedule",
    "ShuffleElimination",
    "SumPrivatizer",
    "Table",
    "Unprotected",
    "Users",
    "cz_instance",
    "exact_schedule",
    "play",
    "run_guarantee",
]
