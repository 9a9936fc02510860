r"""Release a count of 42 people, and say what the release costs."""

from accounting import guarantee
from dpcore import DiscreteLaplace, Mechanism

mechanism = Mechanism(noise=DiscreteLaplace(scale=10), sensitivity=1)
print("released:", mechanism.release(42))
print("proven:  ", guarantee(mechanism).pure())
