r"""Find the most popular of three pages without showing the server any single answer.

Every batch is one round of secure aggregation, and a tenth of its users drop out during the round.
The noise of the remaining users gives epsilon = 1 at delta = 1e-6, for all three answers that a
user may give.
"""

import numpy as np

from bandits import BatchedElimination, Bernoulli, play
from bandits.elimination_radii import ExactRadius
from bandits.policies.successive_elimination import Schedule
from bandits.privatizers.deployment import Deployment
from bandits.privatizers.returning_users import Pool, steady_for
from dpcore import SeededRng

plan = Deployment(dropouts="1/10", aggregation="masked")
private = steady_for(
    "dist-dp-se", epsilon=1, delta="1e-6", max_visits=3, failure="1e-9", deployment=plan
)
policy = BatchedElimination(
    privatizer=private,
    schedule=Schedule(first=128, growth=2),
    radius=ExactRadius(batches=2),
    most=400,
)
arrivals, world = np.random.default_rng(1), np.random.default_rng(2)
pool = Pool(users=800, max_visits=3, privatizer=private, arrivals=arrivals)
pages = Bernoulli(means=(0.9, 0.2, 0.1))
found = play(policy, pages, horizon=1500, world=world, rng=SeededRng(1), users=pool)

print("best page:  ", found.active)
print("rounds:     ", len(found.releases))
print("most visits:", pool.most_visits)
print("guarantee:  ", pool.guarantee(private, (128, 256)).epsilon("1e-6"))
