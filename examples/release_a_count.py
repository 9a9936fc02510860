r"""Release a count of 42 people and print the cost of the release."""

from accounting import guarantee
from dpcore import DiscreteLaplace, Mechanism

mechanism = Mechanism(noise=DiscreteLaplace(scale=10), sensitivity=1)
print("released:", mechanism.release(42))
print("proven:  ", guarantee(mechanism).pure())
