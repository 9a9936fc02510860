r"""Rates of refuted correct mechanisms, and of methods that over-claim as negative controls."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from audit.broken_mechanisms import ENTRIES, Subject
from audit.statistical_tests.anytime_valid_test import watch
from audit.statistical_tests.clopper_pearson_and_other_baselines import BASELINES
from audit.statistical_tests.prequential_fixed_runs_test import BERGER_BOOS_SHARE, gather
from benchmarks.auditing.harness import ALPHA, BOUNDARY, LAPLACE, Effort, Row, drawn, share
from benchmarks.auditing.peers import (
    JAX_PRIVACY,
    Question,
    gdp_by_magnitude,
    int_of_rates,
    world_swap,
)

__all__ = ["TWINS", "anytime", "boundary", "controls", "default_level", "twins"]

TWINS: Final = (
    "count",
    "clamped-sum",
    "wrapped-sum",
    "sparse-vector",
    "sparse-vector-two",
    "noisy-max",
    "two-days",
    "four-answers",
    "exponential",
    "prefix-sums",
    "rounded",
    "polya-shares",
)
r"""The names in the catalogue of twelve correct mechanisms."""

_SEED: Final = 2
_RUNS: Final = 1000
_AT_BOUNDARY: Final = 0.056
_OF_TWINS: Final = 0.065
_DEFAULT_LEVEL: Final = "0.001"
_AT_DEFAULT: Final = 0.0015
_LEVEL: Final = str(ALPHA)
_SPEND: Final = Fraction(_LEVEL) / BERGER_BOOS_SHARE

Judge: TypeAlias = Callable[[NDArray[Any], NDArray[np.bool_], Subject, int], dict[str, bool]]
r"""A function from outputs, datasets and a seed of coins to the methods that raise an alarm."""


def _fixed(
    outputs: NDArray[Any], worlds: NDArray[np.bool_], subject: Subject, seed: int
) -> dict[str, bool]:
    evidence = gather(outputs, worlds, seed=seed)
    epsilon, delta = subject.epsilon, subject.delta
    return {
        "p_value": evidence.p_value(epsilon, delta, spend=_SPEND) <= ALPHA,
        "epsilon_lower": evidence.epsilon_lower(_LEVEL, delta) > epsilon,
    }


def _watched(
    outputs: NDArray[Any], worlds: NDArray[np.bool_], subject: Subject, seed: int
) -> dict[str, bool]:
    del seed  # the anytime-valid test has no random coins
    process = watch(subject.epsilon, subject.delta).update(outputs, worlds)
    return {
        "at_any_run": process.rejected_at(_LEVEL) is not None,
        "epsilon_lower": process.epsilon_lower(_LEVEL, subject.delta) > subject.epsilon,
    }


def _alarms(subject: Subject, judge: Judge, runs: int, repeat: int) -> dict[str, bool]:
    # Each mechanism has its own seed, so that the rates are independent.
    rng = np.random.default_rng([_SEED, runs, repeat, *subject.name.encode()])
    outputs, worlds = drawn(subject, runs, rng)
    return judge(np.asarray(outputs), worlds, subject, repeat)


def _shares(
    effort: Effort, subject: Subject, judge: Judge, repeats: int, runs: int = _RUNS
) -> dict[str, Any]:
    found = effort.repeat(partial(_alarms, subject, judge, runs), repeats)
    return {name: share(sum(row[name] for row in found), repeats) for name in found[0]}


def _kept(
    effort: Effort, subject: Subject, judge: Judge, repeats: int, *, limit: float, kind: str
) -> Row:
    value = _shares(effort, subject, judge, repeats)
    return Row(
        what=f"{subject.name}: false alarms, {kind}, {_RUNS:,} runs",
        value=value,
        to_reach=f"upper 95% bound of each rate <= {limit}",
        reached=effort.verdict(all(alarms["at_most"] <= limit for alarms in value.values())),
        repeats=repeats,
        seed=_SEED,
    )


def _twins() -> list[Subject]:
    known = {entry.twin.name: entry.twin for entry in ENTRIES}
    return [known[name] for name in TWINS]


def boundary(effort: Effort) -> Iterator[Row]:
    r"""False alarms at fixed n for mechanisms exactly at the boundary of their claims."""
    for subject in BOUNDARY:
        repeats = effort.count(100, 6000)
        yield _kept(effort, subject, _fixed, repeats, limit=_AT_BOUNDARY, kind="fixed n")


def _at_default(
    outputs: NDArray[Any], worlds: NDArray[np.bool_], subject: Subject, seed: int
) -> dict[str, bool]:
    level = Fraction(_DEFAULT_LEVEL)
    evidence, spend = gather(outputs, worlds, seed=seed), level / BERGER_BOOS_SHARE
    p_value = evidence.p_value(subject.epsilon, subject.delta, spend=spend)
    return {"p_value": p_value <= level}


def default_level(effort: Effort) -> Iterator[Row]:
    r"""False alarms at fixed n and the default level of the command, for a fast law."""
    repeats = effort.count(500, 20_000)
    yield _kept(effort, LAPLACE, _at_default, repeats, limit=_AT_DEFAULT,
                kind=f"fixed n at alpha = {_DEFAULT_LEVEL}")  # fmt: skip


def twins(effort: Effort) -> Iterator[Row]:
    r"""False alarms at fixed n for the correct twins."""
    for subject in _twins():
        repeats = effort.count(40, 1000)
        yield _kept(effort, subject, _fixed, repeats, limit=_OF_TWINS, kind="fixed n")


def anytime(effort: Effort) -> Iterator[Row]:
    r"""False alarms of all mechanisms if the test looks after every run."""
    kind = "a look after every run"
    for subject in BOUNDARY:
        repeats = effort.count(30, 6000)
        yield _kept(effort, subject, _watched, repeats, limit=_AT_BOUNDARY, kind=kind)
    for subject in _twins():
        repeats = effort.count(10, 1000)
        yield _kept(effort, subject, _watched, repeats, limit=_OF_TWINS, kind=kind)


# -- negative controls ----------------------------------------------------------------------------


def _noise_alone(value: int, n: int, rng: np.random.Generator) -> NDArray[np.float64]:
    del value
    return rng.standard_normal(n).round(2)


def _coin(value: int, n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    del value
    return rng.integers(0, 2, n)


_SNIPER_EPSILON: Final = Fraction("3.9")
_SNIPER_RUNS: Final = 196


def _rare(value: int, n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    return np.where(rng.random(n) < 1 / (1 + math.exp(-3.9)), value, 1 - value)


_NORMAL: Final = Subject(
    name="identical datasets, normal noise", run=_noise_alone, pair=(0, 1), epsilon=Fraction(0)
)
_IDENTICAL: Final = Subject(
    name="identical datasets, a fair coin", run=_coin, pair=(0, 1), epsilon=Fraction(0)
)
_RESPONSE: Final = Subject(
    name="randomised response, epsilon 3.9", run=_rare, pair=(0, 1), epsilon=_SNIPER_EPSILON
)


def _plug_in(
    outputs: NDArray[Any], worlds: NDArray[np.bool_], subject: Subject, seed: int
) -> dict[str, bool]:
    found = BASELINES["plug-in"].lower(outputs, worlds, seed=seed) > subject.epsilon
    return {"with_the_slip": found, **_fixed(outputs, worlds, subject, seed)}


def _statdp(
    outputs: NDArray[Any], worlds: NDArray[np.bool_], subject: Subject, seed: int
) -> dict[str, bool]:
    del subject, seed
    hits = int(outputs[~worlds].sum()), int(outputs[worlds].sum())
    runs = int((~worlds).sum()), int(worlds.sum())
    return {
        "with_the_slip": world_swap(hits, runs, swapped=True) <= ALPHA,
        "without": world_swap(hits, runs, swapped=False) <= ALPHA,
    }


def _dp_sniper(
    outputs: NDArray[Any], worlds: NDArray[np.bool_], subject: Subject, seed: int
) -> dict[str, bool]:
    del seed
    a, b = (int(outputs[worlds == world][:_SNIPER_RUNS].sum()) for world in (False, True))
    bounds = {
        name: int_of_rates((a, b), _SNIPER_RUNS, rebuilt=name == "with_the_slip")
        for name in ("with_the_slip", "without")
    }
    return {name: bound > subject.epsilon for name, bound in bounds.items()}


# By name: the method, the mechanism, the runs, and the repeats (with --quick and in full).
_CONTROLS: Final[Mapping[str, tuple[Judge, Subject, int, int, int]]] = {
    "plug-in ratios of frequencies": (_plug_in, LAPLACE, _RUNS, 100, 1000),
    "StatDP, the order of the datasets chosen on the data that is tested (re-derived)": (
        _statdp,
        _IDENTICAL,
        10_000,
        2000,
        6000,
    ),
    "DP-Sniper, counts rebuilt from rates as int(rate * n) (re-derived)": (
        _dp_sniper,
        _RESPONSE,
        600,
        2000,
        6000,
    ),
}


def controls(effort: Effort) -> Iterator[Row]:
    r"""Negative controls: methods that over-claim, which the harness must detect.

    The lower bound on the rate of each shows that it over-claims; each has a twin without the
    error.
    """
    yield _gaussian_dp(effort)
    for name, (judge, subject, runs, few, many) in _CONTROLS.items():
        repeats = effort.count(few, many)
        value = _shares(effort, subject, judge, repeats, runs)
        yield Row(
            what=f"negative control: {name}, on {subject.name}, {runs:,} runs",
            value=value,
            to_reach="shown to over-claim: lower 95% bound of its rate > 0.05",
            reached=value["with_the_slip"]["at_least"] > ALPHA,
            repeats=repeats,
            seed=_SEED,
        )


_GDP_RUNS: Final = 20_000
_GDP_DELTA: Final = 1e-6


def _gdp(python: str | None, repeats: range) -> list[float]:
    data = []
    for repeat in repeats:
        rng = np.random.default_rng([_SEED, _GDP_RUNS, repeat])
        data.append(drawn(_NORMAL, _GDP_RUNS, rng))
    if python is None:
        return [gdp_by_magnitude(np.asarray(x), worlds, _GDP_DELTA) for x, worlds in data]
    asked = [Question.of_worlds(np.asarray(x), w, ask="gdp", delta=_GDP_DELTA) for x, w in data]
    return [answer["gdp"] for answer in JAX_PRIVACY.ask(python, asked)["answers"]]


def _gaussian_dp(effort: Effort) -> Row:
    python = effort.peer_python
    known = JAX_PRIVACY.version(python)
    repeats = effort.count(40, 400)
    found = effort.batches(partial(_gdp, None if known is None else python), repeats)
    above = share(sum(epsilon > 0 for epsilon in found), repeats)
    peer = "re-derived" if known is None else f"jax_privacy {known}"
    return Row(
        what=f"negative control: epsilon_from_gdp of jax_privacy, on {_NORMAL.name}, "
        f"{_GDP_RUNS:,} runs",
        value={
            "peer": peer,
            "delta": _GDP_DELTA,
            "with_the_slip": above,
            "median_epsilon": round(float(np.median(found)), 3),
            "largest_epsilon": round(max(found), 3),
        },
        to_reach="shown to over-claim: lower 95% bound of its rate > 0.05",
        reached=above["at_least"] > ALPHA,
        repeats=repeats,
        seed=_SEED,
    )
