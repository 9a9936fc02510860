r"""Twelve people add up their expenses without revealing any single amount; three drop out.

Each person adds a share of the noise, masks hide every message, and the server reads only the sum.
A person who drops out adds no noise, so the shares are planned for nine: any nine honest people who
stay give epsilon = 1. The proven guarantee is computed from the people who stayed; the last line
shows the guarantee for six.
"""

from accounting import guarantee
from dpcore import AggregatedSum, DiscreteLaplace, MaskedAggregation, run, size_protocol
from dpcore.laws.sum_of_shares import summed
from dpcore.secure_aggregation.masked_aggregation import Step

NAMES = ("ada", "bob", "cyd", "dan", "eve", "fay", "gus", "hal", "ida", "joe", "kim", "lea")
PARTS = ("1/4", 1, "1/3", 0, "1/2", "3/4", 1, "1/2", "2/3", "1/8", 1, "1/2")  # amounts from 0 to 1
VANISH = {"bob": Step.KEYS, "gus": Step.INPUT, "kim": Step.UNMASK}  # kim's amount is in the sum

users, steps = len(NAMES), 8  # steps of 1/8: one person moves the sum by at most 8
share = DiscreteLaplace(scale=steps).share(9)
size = size_protocol(users=users, precision=steps, noise=summed(share, users), failure="1e-6")
protocol = AggregatedSum(users=users, precision=steps, threshold=size.threshold, share=share)
secure = MaskedAggregation(users=users, dropouts=3, coordinates=1, modulus=protocol.modulus)
spent = dict(zip(NAMES, PARTS, strict=True))
outcome = run(protocol, spent, secure, batch="november", vanish=VANISH)

print("share:   ", share)
print("stayed:  ", ", ".join(outcome.participants))
print("released:", outcome.estimate)
print("noise:   ", outcome.release.mechanism.noise)
print("epsilon: ", guarantee(outcome.release.mechanism).epsilon(0))
print("of six:  ", guarantee(protocol.mechanism(6)).epsilon(0))
