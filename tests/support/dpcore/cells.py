r"""Exact binomial tests of the cells and half-lines of a finite law on the integers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import accumulate

from scipy.stats import binomtest


def least_p(drawn: Iterable[int], law: Mapping[int, float]) -> float:
    r"""Return the least p-value of all events, times their number (Bonferroni); 0 off the law."""
    seen, values = Counter(drawn), sorted(law)
    if not set(seen) <= set(law):
        return 0.0
    counts, masses = [seen[k] for k in values], [law[k] for k in values]
    events = [*zip(counts, masses, strict=True)]
    events += zip(accumulate(counts), accumulate(masses), strict=True)
    tests = (binomtest(count, seen.total(), min(p, 1.0)) for count, p in events)
    return len(events) * min(float(test.pvalue) for test in tests)
