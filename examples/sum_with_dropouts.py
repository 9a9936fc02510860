r"""Twelve people add up what they spent, show nobody a single amount, and three of them vanish.

Each adds a share of the noise, masks hide every message, and the server reads one sum. Who vanishes
takes a share along, so the shares are those of nine: any nine honest people who stay keep
epsilon = 1. What is proven in the end is computed from those who stayed; the last line says what
six would have kept.
"""

from accounting import guarantee
from dpcore import AggregatedSum, DiscreteLaplace, MaskedAggregation, run, size_protocol
from dpcore.laws.law_of_sum import summed
from dpcore.secure_aggregation.aggregation import Step

NAMES = ("ada", "bob", "cyd", "dan", "eve", "fay", "gus", "hal", "ida", "joe", "kim", "lea")
PARTS = ("1/4", 1, "1/3", 0, "1/2", "3/4", 1, "1/2", "2/3", "1/8", 1, "1/2")  # of a budget
VANISH = {"bob": Step.KEYS, "gus": Step.INPUT, "kim": Step.UNMASK}  # kim's amount is in by then

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
