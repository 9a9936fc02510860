r"""Combinatorial bandits: seconds, LDP1 against LDP2, the tree against doubling, and exponents.

``python -m benchmarks.combinatorial [--quick] [--part NAME]``: speed, ratios, exponents, gaps or
reasons, each kept in one file of results. Worlds are ``csb/topk``; regret is a mean over instances.

*speed*: 20 runs of 10^5 rounds together, m = 20, K = 8, compared with only drawing their outcomes,
ties and noise, with numba if it is installed. *ratios*: at epsilon = 2, LDP1 over LDP2 with the
paper's bonuses (c = 4), and the tree over doubling with exact bonuses. *exponents*: the slope of ln
regret in ln K, ln m or ln 1/epsilon, with twice its standard error over instances. *gaps*: the
slope in ln 1/gap, also for ten times the rounds. *reasons*: the exponent of 1/epsilon without
clipping the upper confidence bounds, after subtracting the regret without privacy in the same
worlds, and for ten times the rounds. The paper has no experiments.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np

from bandits.experiments.experiment import Experiment
from bandits.experiments.runner import run_cells
from bandits.play_combinatorial import Coins, cucb_of, play_together
from bandits.policies.registry import read_algorithm
from bandits.worlds.combinatorial import BitWorld
from benchmarks.machine import write
from dpcore.numbers.arrays import Floats
from dpcore.sampling.rng import SeededRng

__all__ = ["PARTS", "measure", "slope"]

_TIMES_BARE: Final = 3
_RESULTS: Final = Path(__file__).parent / "results" / "combinatorial.json"
_SIZES: Final = (2, 4, 8)
_GAPS: Final = (0.8, 0.4, 0.2)
_NO_CLIP: Final = 10**9
_KINDS: Final = (
    ("cucb", "tree"),
    ("cucb-ldp1", "tree"),
    ("cucb-ldp2", "tree"),
    ("cucb-dp", "tree"),
    ("cucb-dp", "doubling"),
    ("cucb-dp", "factorisation"),
)
_SWEPT: Final = (("cucb-ldp1", "tree"), ("cucb-ldp2", "tree"), ("cucb-dp", "doubling"))


def experiment(name: str, release: str, *, horizon: int, runs: int, **more: Any) -> Experiment:
    r"""An experiment with one algorithm in csb/topk; ``more`` are further fields."""
    fields = {"epsilons": ("2",), "super_arm": 8, **more}
    return Experiment(
        preset="csb/topk",
        algorithms=(name,),
        horizon=horizon,
        instances=runs,
        release=release,  # type: ignore[arg-type]  # one of its words
        **fields,
    )


def regrets(wanted: Experiment) -> Floats:
    r"""Reg(T)/T of each instance."""
    cells = run_cells(wanted, wanted.worlds())
    return np.array([cell.regret[-1] for cell in cells]) / wanted.horizon


def speed(horizon: int, runs: int) -> dict[str, Any]:
    r"""Processor seconds of all runs together, and of only drawing their random numbers."""
    rows = []
    # Imports and compilation happen once and are not part of the measured time.
    for name, release in _KINDS:
        regrets(experiment(name, release, horizon=1 << 14, runs=20))
    for name, release in _KINDS:
        wanted = experiment(name, release, horizon=horizon, runs=runs)
        worlds = wanted.worlds().environments
        setting = wanted.setting("2", 20, worlds[0].model)
        policy = cucb_of(read_algorithm(name), setting)
        policy.bonuses()
        start = time.process_time()
        regrets(wanted)
        seconds = time.process_time() - start
        start = time.process_time()
        for i in range(runs):
            coins = np.random.default_rng(i)
            for _ in range(0, horizon, 512):
                coins.random((512, 2 * 20 + 1))
                if policy.privatizer.kind in ("each", "tree"):
                    policy.privatizer.draw((512, policy.privatizer.sent), SeededRng(i))
            if policy.privatizer.kind == "factorisation":  # all noise is drawn at the start
                policy.privatizer.draw((20, policy.privatizer.items), SeededRng(i))
        bare = time.process_time() - start
        row = {"algorithm": name, "release": release, "seconds": seconds, "bare_seconds": bare}
        rows.append({**row, "times_bare": seconds / bare, "holds": seconds < _TIMES_BARE * bare})
    return {"rounds": horizon, "runs": runs, "wanted_times_bare": _TIMES_BARE, "rows": rows}


def ratios(horizon: int, runs: int) -> dict[str, Any]:
    r"""Regret of LDP1 over LDP2 (the paper's bonuses) and of tree over doubling (exact bonuses)."""
    rows = []
    for size in _SIZES:
        own = {"horizon": horizon, "runs": runs, "super_arm": size}
        first, second = (
            regrets(experiment(f"cucb-ldp{i}", "tree", radius="paper", **own)) for i in (1, 2)
        )
        tree, blocks, root = (
            regrets(experiment("cucb-dp", word, **own))
            for word in ("tree", "doubling", "factorisation")
        )
        rows.append(
            {
                "super_arm": size,
                "ldp1": first.mean(),
                "ldp2": second.mean(),
                "ldp1_over_ldp2": first.mean() / second.mean(),
                "tree": tree.mean(),
                "doubling": blocks.mean(),
                "factorisation": root.mean(),
                "tree_over_doubling": tree.mean() / blocks.mean(),
                "uniform": 0.4 * (size - size**2 / 20),
            }
        )
    return {"rounds": horizon, "runs": runs, "epsilon": 2, "rows": rows}


def exponents(horizon: int, runs: int) -> dict[str, Any]:
    r"""Exponents of the regret in K, m and 1/epsilon with exact bonuses."""
    sweeps: dict[str, list[dict[str, Any]]] = {
        "K": [{"super_arm": size, "at": size} for size in _SIZES],
        "m": [{"super_arm": 4, "arms": m, "at": m} for m in (10, 20, 40)],
        "1/epsilon": [
            {"super_arm": 4, "epsilons": (e,), "at": 1 / float(e)} for e in ("8", "4", "2")
        ],
    }
    rows = []
    for variable, settings in sweeps.items():
        for name, release in _SWEPT:
            points = []
            for setting in settings:
                fields = {key: value for key, value in setting.items() if key != "at"}
                found = regrets(experiment(name, release, horizon=horizon, runs=runs, **fields))
                points.append((float(setting["at"]), found))
            exponent, error = slope(points)
            row = {"variable": variable, "algorithm": name, "release": release}
            regret = [float(each.mean()) for _, each in points]
            at = [x for x, _ in points]
            rows.append(
                {**row, "at": at, "regret": regret, "exponent": exponent, "two_se": 2 * error}
            )
    return {"rounds": horizon, "runs": runs, "rows": rows}


def gaps(horizon: int, runs: int) -> dict[str, Any]:
    r"""Exponents of the regret in 1/gap for means 1/2 ± gap/2, K = 4, epsilon = 2."""
    rows = []
    for (name, release), rounds in product(_SWEPT, (horizon, 10 * horizon)):
        points = []
        for gap in _GAPS:
            wanted = experiment(name, release, horizon=rounds, runs=runs, super_arm=4)
            worlds = [
                replace(
                    world, chances=tuple(0.5 + math.copysign(gap / 2, p - 0.5) for p in world.means)
                )
                for world in wanted.worlds().environments
                if isinstance(world, BitWorld)
            ]
            policy = cucb_of(read_algorithm(name), wanted.setting("2", 20, worlds[0].model))
            coins = [Coins(world=np.random.default_rng(i), rng=SeededRng(i)) for i in range(runs)]
            found = play_together(policy, worlds, coins)
            points.append((1 / gap, np.array([run.regret[-1] for run in found]) / rounds))
        exponent, error = slope(points)
        regret = [float(each.mean()) for _, each in points]
        row = {"algorithm": name, "release": release, "rounds": rounds, "gaps": [*_GAPS]}
        rows.append({**row, "regret": regret, "exponent": exponent, "two_se": 2 * error})
    return {"rounds": horizon, "runs": runs, "rows": rows}


def reasons(horizon: int, runs: int) -> dict[str, Any]:
    r"""Test why exponents in 1/epsilon are below the theorems': K = 4, epsilon = 8, 4, 2."""
    rows = []
    for name, release, rounds in (
        ("cucb-ldp2", "tree", horizon),
        ("cucb-dp", "doubling", horizon),
        ("cucb-ldp2", "tree", 10 * horizon),
    ):
        floor = _alone("cucb", "tree", "8", rounds, runs, clip=1)
        points: dict[str, list[tuple[float, Floats]]] = {}
        for epsilon in ("8", "4", "2"):
            at = 1 / float(epsilon)
            clipped = _alone(name, release, epsilon, rounds, runs, clip=1)
            points.setdefault("clipped", []).append((at, clipped))
            points.setdefault("less that without privacy", []).append((at, clipped - floor))
            if rounds == horizon:
                free = _alone(name, release, epsilon, rounds, runs, clip=_NO_CLIP)
                points.setdefault("not clipped", []).append((at, free))
        for what, found in points.items():
            exponent, error = slope(found)
            regret = [float(each.mean()) for _, each in found]
            row = {"algorithm": name, "release": release, "rounds": rounds, "what": what}
            rows.append({**row, "regret": regret, "exponent": exponent, "two_se": 2 * error})
    return {"rounds": horizon, "runs": runs, "rows": rows}


def _alone(name: str, release: str, epsilon: str, rounds: int, runs: int, *, clip: int) -> Floats:
    # Reg(T)/T of each instance; worlds and coins depend on the instance, not on the algorithm.
    wanted = experiment(name, release, horizon=rounds, runs=runs, super_arm=4, epsilons=(epsilon,))
    worlds = [world for world in wanted.worlds().environments if isinstance(world, BitWorld)]
    setting = wanted.setting(epsilon, 20, worlds[0].model)
    policy = replace(cucb_of(read_algorithm(name), setting), clip=clip)
    coins = [Coins(world=np.random.default_rng(i), rng=SeededRng(i)) for i in range(runs)]
    found = play_together(policy, worlds, coins)
    return np.array([run.regret[-1] for run in found]) / rounds


def slope(points: Sequence[tuple[float, Floats]]) -> tuple[float, float]:
    r"""The slope of the logarithm of mean regret in ln x, with its standard error.

    >>> exponent, error = slope([(x, np.array([3 * x**2] * 4)) for x in (1.0, 2.0, 4.0)])
    >>> round(exponent, 6), round(error, 6)
    (2.0, 0.0)
    """
    x = np.log([at for at, _ in points])
    weights = (x - x.mean()) / ((x - x.mean()) ** 2).sum()
    means = np.array([found.mean() for _, found in points])
    errors = np.array([found.std(ddof=1) / math.sqrt(len(found)) for _, found in points]) / means
    return float(weights @ np.log(means)), float(np.sqrt((weights**2 * errors**2).sum()))


PARTS: Final[dict[str, Callable[[int, int], dict[str, Any]]]] = {
    "speed": speed,
    "ratios": ratios,
    "exponents": exponents,
    "gaps": gaps,
    "reasons": reasons,
}


def measure(part: str, *, quick: bool) -> dict[str, Any]:
    r"""Measure one part of the figures."""
    runs = 20 if part == "speed" else 10
    horizon = 50_000 if part in ("exponents", "gaps", "reasons") else 10**5
    return PARTS[part](2_000 if quick else horizon, 3 if quick else runs)


def main() -> None:
    r"""Measure, print and write the results; parts that are not measured stay unchanged."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--part", choices=[*PARTS], action="append")
    asked = parser.parse_args()
    found: dict[str, Any] = {}
    if _RESULTS.exists() and not asked.quick:
        kept = json.loads(_RESULTS.read_text(encoding="utf-8"))
        found = {part: kept[part] for part in PARTS if part in kept}
    for part in asked.part or PARTS:
        found[part] = measure(part, quick=asked.quick)
        print(json.dumps(found[part], indent=1))
    if not asked.quick:
        write("combinatorial", found)


if __name__ == "__main__":
    main()
