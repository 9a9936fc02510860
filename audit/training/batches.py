r"""Are the batches of a training drawn as stated: at the rate, and independently of each other?

Of Poisson sampling every number below has an exact binomial law, over records or over batches that
share nothing. Of batches of a fixed size the overlap of two is hypergeometric, whose tails are
bounded by those of the binomial law with the same mean (Hoeffding 1963).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from audit.training.step_report import Check, CheckVerdict, Stated

Integers = NDArray[np.int64]

_HALF: Final = 0.6745
r"""Half of a normal law lies within so many standard deviations."""

_ROUNDING: Final = 1 + 1e-9


def batch_checks(batches: Sequence[Integers], stated: Stated, level: float) -> Iterator[Check]:
    r"""The checks of sampling, each refuted at ``level``."""
    twice = sum(len(np.unique(batch)) < len(batch) for batch in batches)
    told = f"{twice:,} of {len(batches):,} batches hold a record more than once"
    yield Check(name="no repeats", verdict="fault" if twice else "passed", statement=told)
    found = _fixed if stated.sampling == "fixed" else _poisson
    for name, p_value, statement in found(batches, stated):
        p = min(1.0, p_value * _ROUNDING)
        verdict: CheckVerdict = "refuted" if p <= level else "passed"
        yield Check(name=name, verdict=verdict, statement=statement, p_value=p)


Found = Iterator[tuple[str, float, str]]


def _poisson(batches: Sequence[Integers], stated: Stated) -> Found:
    n, rate, rounds = stated.records, float(stated.rate), len(batches)
    sizes = np.array([len(batch) for batch in batches])
    counts = _counts(batches, n)
    total = int(sizes.sum())
    yield (
        "rate",
        _two_sided(total, n * rounds, rate),
        f"a record is in a batch with frequency {total / (n * rounds):.5g}; stated {rate:.5g}",
    )
    yield "batch sizes", *_spread(sizes, n, rate, "batches have a size")
    yield "record counts", *_spread(counts, rounds, rate, "records have a count")
    yield _each(counts, rounds, rate)
    both, pairs = _overlap(batches), rounds // 2
    p_value = _two_sided(both, n * pairs, rate * rate)
    yield "overlap", p_value, _overlap_told(both, pairs, n * pairs * rate * rate)


def _fixed(batches: Sequence[Integers], stated: Stated) -> Found:
    n, size, rounds = stated.records, int(stated.expected), len(batches)
    other = sum(len(batch) != size for batch in batches)
    yield (
        "batch sizes",
        0.0 if other else 1.0,
        f"{other:,} of {rounds:,} batches have another size than {size:,}",
    )
    yield _each(_counts(batches, n), rounds, size / n)
    both, pairs = _overlap(batches), rounds // 2
    p_value = _chernoff(both, size * pairs, size / n)
    yield "overlap", p_value, _overlap_told(both, pairs, size * pairs * size / n)


def _counts(batches: Sequence[Integers], records: int) -> Integers:
    # In how many batches each record is.
    members = [np.unique(batch) for batch in batches]
    return np.bincount(np.concatenate(members), minlength=records)


def _overlap(batches: Sequence[Integers]) -> int:
    pairs = zip(batches[::2], batches[1::2], strict=False)
    return sum(len(np.intersect1d(one, other)) for one, other in pairs)


def _overlap_told(both: int, pairs: int, expected: float) -> str:
    return (
        f"{both:,} records are in both of two batches in a row ({pairs:,} pairs); "
        f"{expected:,.0f} expected of independent ones"
    )


def _spread(values: Integers, trials: int, rate: float, what: str) -> tuple[float, str]:
    # How many lie near the mean (about half of them), and how many in tails of 1/4 of the law down
    # to one value: each number is exactly binomial where values are independent. The ranges do not
    # depend on the values, so the union bound makes a p-value of the most extreme of them.
    law = stats.binom(trials, rate)
    near = _HALF * math.sqrt(trials * rate * (1 - rate))
    low, high = math.ceil(trials * rate - near), math.floor(trials * rate + near)
    shares = 0.25 * 0.8 ** np.arange(math.log(max(4, len(values)) / 4, 1.25) + 1)
    above, below = np.unique(law.isf(shares)), np.unique(law.ppf(shares))
    inside, middle = (values >= low) & (values <= high), law.cdf(high) - law.cdf(low - 1)
    events = [
        (np.count_nonzero(inside), middle, f"in {low:,}..{high:,}"),
        *((np.count_nonzero(values > cut), law.sf(cut), f"above {cut:,.0f}") for cut in above),
        *((np.count_nonzero(values < cut), law.cdf(cut - 1), f"below {cut:,.0f}") for cut in below),
    ]
    p_values = [_two_sided(int(hits), len(values), chance) for hits, chance, _ in events]
    p_value = min(p_values)
    hits, chance, where = events[p_values.index(p_value)]
    told = f"{hits:,} of {len(values):,} {what} {where}; {len(values) * chance:,.4g} expected"
    return min(1.0, len(events) * p_value), told


def _each(counts: Integers, rounds: int, rate: float) -> tuple[str, float, str]:
    tails = np.minimum(
        stats.binom.cdf(counts, rounds, rate), stats.binom.sf(counts - 1, rounds, rate)
    )
    worst = int(np.argmin(tails))
    told = (
        f"record {worst:,} is in {counts[worst]:,} of {rounds:,} batches; "
        f"{rounds * rate:,.4g} expected, the others are nearer to it"
    )
    return "each record", min(1.0, 2 * len(counts) * float(tails[worst])), told


def _two_sided(hits: int, trials: int, rate: float) -> float:
    low, high = stats.binom.cdf(hits, trials, rate), stats.binom.sf(hits - 1, trials, rate)
    return min(1.0, 2 * float(min(low, high)))


def _chernoff(hits: int, trials: int, rate: float) -> float:
    share = hits / trials if trials else rate
    parts = ((share, rate), (1 - share, 1 - rate))
    divergence = sum(p * math.log(p / q) if p else 0.0 for p, q in parts)
    return min(1.0, 2 * math.exp(-trials * max(divergence, 0.0)))
