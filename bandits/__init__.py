r"""Private bandit algorithms: their regret, their epsilon, and certificates of their runs.

The public functions run an algorithm, compare several algorithms and certify a run. To write your
own policy, privatizer or simulated world, import the base classes from their modules. Experiments
and certificates are imported lazily, at first use.
"""

from typing import TYPE_CHECKING

from bandits.play import play, run_guarantee
from bandits.policies.policy import Policy
from bandits.policies.successive_elimination import BatchedElimination, ShuffleElimination
from bandits.privatizers.batch_sums_by_trust_model import BitPrivatizer, SumPrivatizer
from bandits.privatizers.privatizer import Privatizer
from bandits.worlds.arm_environments import Bernoulli, Environment, cz_instance
from dpcore.lazy_import import lazy_names

if TYPE_CHECKING:
    from bandits.audit_targets.target import audit_view
    from bandits.certificates.certify_run import certificate_of
    from bandits.certificates.recheck import recheck
    from bandits.experiments.experiment import Experiment
    from bandits.experiments.runner import run_cells
    from bandits.policies.registry import Setting, read_algorithm

__all__ = [
    "BatchedElimination",
    "Bernoulli",
    "BitPrivatizer",
    "Environment",
    "Experiment",
    "Policy",
    "Privatizer",
    "Setting",
    "ShuffleElimination",
    "SumPrivatizer",
    "audit_view",
    "certificate_of",
    "cz_instance",
    "play",
    "read_algorithm",
    "recheck",
    "run_cells",
    "run_guarantee",
]

__getattr__ = lazy_names(__name__)
