r"""Vectors of floats and flags: DP-Sniper's battery, false alarms, and goals for detection.

A battery row is an audit with only the claim and the pair, and 10^6 runs over both datasets. It
also has DP-Sniper's published bound, for which its code draws 200 million runs of each dataset for
the final event alone (two bounds of 95% each, 90% together), and the bound of the best event, known
beforehand, on our runs (``benchmarks.auditing.oracle``). Mechanisms with numpy's Laplace noise
violate the claim by the precision of their floats; ``by_value`` is the bound without this leak.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from audit.claims import Claim, read_claim
from audit.features.parse_feature import read_feature
from audit.runs.draw_plan import Plan
from audit.sample_layer import sample
from audit.targets.target import Vectorised
from audit.targets.target_syntax import as_target
from benchmarks.auditing.battery import BATTERY, EPSILON, Case
from benchmarks.auditing.harness import ALPHA, Effort, Row, share
from benchmarks.auditing.oracle import oracle

__all__ = ["battery", "battery_long", "family_alarms", "time_alarms", "vectors"]

_SEED: Final = 1
_AIM: Final = 0.9
_GRIDS: Final = ("grid", "precision", "modulo")


def _audited(case: Case, runs: int, seed: int) -> dict[str, Any]:
    begun = time.process_time()
    claim = Claim(epsilon=str(EPSILON))
    plan = Plan(claim=claim, pair=case.pair, runs=runs, seed=seed, timeout=None, alpha=str(ALPHA))
    report = sample(Vectorised(spelling=case.name, function=case.run), plan)
    bounds = {str(each.feature): each.epsilon_lower for each in report.outcomes}
    by_value = [bound for name, bound in bounds.items() if name.partition(":")[0] not in _GRIDS]
    return {
        "epsilon_lower": report.epsilon_lower,
        "by_value": max(by_value, default=report.epsilon_lower),
        "by": bounds,
        "refuted": report.refuted,
        "cpu_seconds": time.process_time() - begun,
    }


def _medians(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    # Medians over audits with separate seeds, and all bounds by value. A feature that some of
    # these audits did not choose has no median.
    def median(values: Iterable[float], digits: int = 4) -> float:
        return round(float(np.median(list(values))), digits)

    return {
        "epsilon_lower": median(each["epsilon_lower"] for each in found),
        "by_value": median(each["by_value"] for each in found),
        "by": {
            name: median(each["by"][name] for each in found)
            for name in found[0]["by"]
            if all(name in each["by"] for each in found)
        },
        "all_by_value": [round(each["by_value"], 4) for each in found],
        "refuted": sum(each["refuted"] for each in found),
        "cpu_seconds": median((each["cpu_seconds"] for each in found), 1),
    }


def _battery(effort: Effort, runs: int, repeats: int) -> Iterator[Row]:
    for case in BATTERY:
        if effort.only and case.name not in effort.only:
            continue
        work = partial(_audited, case, effort.count(20_000, runs))
        value = _medians(effort.repeat(work, repeats, start=_SEED))
        best = oracle(case, runs)
        goal = _AIM * min(case.published, best)
        reaches = {name: value[name] >= goal for name in ("epsilon_lower", "by_value")}
        broken = not case.keeps
        yield Row(
            what=f"{case.name}, {runs:,} runs",
            value={
                "dp_sniper": case.published,
                "oracle": best,
                "goal": round(goal, 4),
                "goal_reached": reaches,
                **value,
            },
            to_reach=f"{_AIM:.0%} of DP-Sniper's bound or of the oracle's (medians)"
            + (", and always refuted" if broken else ""),
            reached=effort.verdict(
                reaches["by_value"] and (value["refuted"] == repeats or not broken)
            ),
            repeats=repeats,
            seed=_SEED,
        )


def battery(effort: Effort) -> Iterator[Row]:
    r"""All twenty mechanisms at 10^6 runs, with medians of five audits."""
    yield from _battery(effort, 1_000_000, effort.count(1, 5))


def battery_long(effort: Effort) -> Iterator[Row]:
    r"""All twenty mechanisms at 10^7 runs; this needs an idle machine with 16 GB."""
    yield from _battery(effort, 10_000_000, 1)


# -- false alarms ---------------------------------------------------------------------------------


def _response(value: int, shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = (rng.random(shape) < 1 / (1 + math.exp(-1))) == bool(value)
    return found


def one_of_ten(value: int, n: int, rng: np.random.Generator) -> NDArray[np.float64]:
    r"""Randomised response at exactly epsilon = 1, and nine floats independent of the dataset."""
    found = rng.integers(0, 1 << 20, (n, 10)) / (1 << 20)
    found[:, 3] = _response(value, (n,), rng)
    return found


def four_bits(value: int, n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    r"""Randomised response at exactly epsilon = 1 and three fair coins: outputs that repeat."""
    found = rng.integers(0, 2, (n, 4))
    found[:, 2] = _response(value, (n,), rng)
    return found


def a_float(value: int, n: int, rng: np.random.Generator) -> NDArray[np.float64]:
    r"""A uniform float whose sign is randomised response at exactly epsilon = 1."""
    return np.where(_response(value, (n,), rng), 1.0, -1.0) * rng.random(n)


def a_last_bit(value: int, n: int, rng: np.random.Generator) -> NDArray[np.float64]:
    r"""A uniform float whose last bit is randomised response at exactly epsilon = 1."""
    halves = rng.integers(1 << 51, 1 << 52, n)
    whole = 2 * halves + _response(value, (n,), rng)
    found: NDArray[np.float64] = whole.astype(np.float64) * 2.0**-53
    return found


def in_steps(value: int, n: int, rng: np.random.Generator) -> NDArray[np.float64]:
    r"""Multiples of 0.3, shifted by 1/7 according to randomised response at exactly epsilon = 1."""
    steps = rng.integers(0, 1 << 16, n).astype(np.float64)
    return 0.3 * steps + _response(value, (n,), rng) / 7


_AT_BOUNDARY: Final[tuple[Callable[..., Any], ...]] = (
    one_of_ten,
    four_bits,
    a_float,
    a_last_bit,
    in_steps,
)


def _alarm(law: Callable[..., Any], runs: int, repeat: int, *, sequential: bool = False) -> bool:
    plan = Plan(
        claim=Claim(epsilon=1),
        pair=(0, 1),
        runs=runs,
        seed=repeat,
        timeout=None,
        alpha=str(ALPHA),
        sequential=sequential,
    )
    return sample(Vectorised(spelling=law.__name__, function=law), plan).refuted


def _alarms(law: Callable[..., Any], runs: int, sequential: bool, repeats: range) -> list[bool]:  # noqa: FBT001 - a value, and no switch
    return [_alarm(law, runs, repeat, sequential=sequential) for repeat in repeats]


def family_alarms(effort: Effort) -> Iterator[Row]:
    r"""The rates at which the default features refute mechanisms exactly at the boundary."""
    for sequential in (False, True):
        for law in _AT_BOUNDARY:
            if effort.only and law.__name__ not in effort.only:
                continue
            count, runs = effort.count(60, 6000), 1000
            work = partial(_alarms, law, runs, sequential)
            found = share(sum(effort.batches(work, count)), count)
            yield Row(
                what=f"false alarms of the default family: {law.__name__}, {runs:,} runs"
                + (", watched" if sequential else ""),
                value=found,
                to_reach="upper 95% bound <= 5.6%",
                reached=effort.verdict(found["at_most"] <= 0.056),
                repeats=count,
            )


def even_time(value: int, rng: np.random.Generator) -> bool:
    r"""A coin whose time does not depend on the data: (0, 0)-DP, including the time."""
    del value
    return bool(rng.random() < 0.5)


def _late(sequential: bool, repeats: range) -> list[bool]:  # noqa: FBT001 - a value, and no switch
    target = as_target("even_time", even_time)
    features = (read_feature("identity"), read_feature("time"))
    plan = Plan(
        claim=Claim(epsilon=0),
        pair=(0, 1),
        runs=1000,
        features=features,
        timeout=None,
        alpha=str(ALPHA),
        sequential=sequential,
    )
    return [sample(target, replace(plan, seed=repeat)).refuted for repeat in repeats]


def time_alarms(effort: Effort) -> Iterator[Row]:
    r"""The rate at which ``--feature time`` refutes a call whose time is independent of the data.

    The claim is (0, 0)-DP; the clock is that of this machine at its current load.
    """
    for sequential in (False, True):
        count = effort.count(60, 400)
        found = share(sum(effort.batches(partial(_late, sequential), count)), count)
        yield Row(
            what="false alarms of --feature time, 1,000 runs" + (", watched" if sequential else ""),
            value=found,
            to_reach="lower 95% bound <= 5%",
            reached=effort.verdict(found["at_least"] <= 0.05),
            repeats=count,
        )


# -- goals ----------------------------------------------------------------------------------------


def small_sigma(value: int, n: int, rng: np.random.Generator) -> NDArray[np.float64]:
    r"""100 coordinates that together change by 1 in l2, with sigma 0.9 instead of the claimed 1."""
    found: NDArray[np.float64] = rng.normal(0.0, 0.9, (n, 100)) + value / 10
    return found


def unclipped(value: int, n: int, rng: np.random.Generator) -> NDArray[np.float64]:
    r"""100 coordinates, clipped to l2 norm 1 except for one coordinate, which changes by 1.5."""
    found = rng.normal(0.0, 1.0, (n, 100)) + value / 20
    found[:, 61] += value * 1.5
    return found


_GOALS: Final = ((small_sigma, 20_000), (unclipped, 100_000))


def _goal(law: Callable[..., Any], runs: int, repeats: range) -> list[tuple[bool, float]]:
    found = []
    for repeat in repeats:
        begun = time.process_time()
        plan = Plan(
            claim=read_claim("gdp=1"),
            pair=(0, 1),
            runs=runs,
            seed=repeat,
            timeout=None,
            alpha=str(ALPHA),
        )
        refuted = sample(Vectorised(spelling=law.__name__, function=law), plan).refuted
        found.append((refuted, time.process_time() - begun))
    return found


def vectors(effort: Effort) -> Iterator[Row]:
    r"""100 coordinates of Gaussian noise: sigma is 10% too small, or a coordinate is unclipped."""
    for law, runs in _GOALS:
        count = effort.count(2, 20)
        found = effort.batches(partial(_goal, law, runs), count)
        caught = share(sum(refuted for refuted, _ in found), count)
        seconds = float(np.median([each for _, each in found]))
        each = seconds / runs * 10_000
        yield Row(
            what=f"{law.__name__}, claim gdp=1, {runs:,} runs",
            value={**caught, "cpu_seconds": round(seconds, 2), "a_10000_runs": round(each, 2)},
            to_reach="refuted in at least 9 of 10 audits, <= 2 s of one core for 10,000 runs",
            reached=effort.verdict(caught["rate"] >= 0.9 and each <= 2.0),
            repeats=count,
        )
