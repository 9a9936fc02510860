"""Figures that docs/bandits.md states in its text, computed anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from bandits.experiments.experiment import Cell, Experiment
from bandits.experiments.playing import run_cells
from bandits.policies.setting import ScheduleName
from bandits.policies.shuffle_elimination import JointRadius, ShuffleElimination, TkmsRadius
from bandits.privatizers.sums import BitPrivatizer

PAGE = " ".join((Path(__file__).parents[3] / "docs" / "bandits.md").read_text().split())
HORIZON = 10**6


# -- batches that double -------------------------------------------------------------------------


def decided(policy: ShuffleElimination, gap: float) -> int:
    """The pulls of an arm by the first phase in which the gap itself would drop it: 2 I below."""
    phase = 1
    while 2 * policy.width(phase, HORIZON) >= gap:
        phase += 1
    return policy.pulled(phase)


def both(epsilon: str, gap: float, *, paper: bool) -> tuple[int, int]:
    """SDP-AE, with batches as long as there are noise bits of one user, and VB-SDP-AE."""
    bits = BitPrivatizer(epsilon=epsilon, delta="1e-6", parameters="paper" if paper else "exact")
    radius = TkmsRadius() if paper else JointRadius()
    batch = int(bits.protocol(1).planned_noise.trials)
    steady = ShuffleElimination(privatizer=bits, batch=batch, radius=radius)
    return decided(steady, gap), decided(ShuffleElimination(privatizer=bits, radius=radius), gap)


@pytest.mark.parametrize(("gap", "first"), [(0.1, True), (0.02, False), (0.01, False)])
def test_where_doubling_batches_win_with_the_papers_numbers(
    gap: float, first: bool
) -> None:  # a case
    constant, doubling = both("0.5", gap, paper=True)
    assert (constant < doubling) is first
    assert f"{constant:,}" in PAGE
    assert f"{doubling:,}" in PAGE


def test_where_doubling_batches_win_with_exact_noise() -> None:
    constant, doubling = both("1", 0.1, paper=False)
    assert doubling < constant
    assert f"(gap 0.1: {doubling:,} against {constant:,})" in PAGE


# -- batches of 2^b and 4^b ----------------------------------------------------------------------


def regrets(schedule: ScheduleName) -> dict[tuple[str, str], float]:
    """The mean regret of each algorithm and epsilon on easy instances, with the paper's radius."""
    experiment = Experiment(
        preset="cz/easy",
        algorithms=("dist-dp-se", "cdp-se", "dist-rdp-se", "dist-cdp-se", "ldp-se", "se"),
        epsilons=("0.1", "0.5", "1"),
        horizon=HORIZON,
        instances=20,
        radius="paper",
        schedule=schedule,
    )
    found: dict[tuple[str, str], list[float]] = {}
    cells: list[Cell] = run_cells(experiment, experiment.worlds(), jobs=2)
    for cell in cells:
        found.setdefault((cell.algorithm, cell.epsilon), []).append(cell.regret[-1])
    return {kind: sum(each) / len(each) for kind, each in found.items()}


@pytest.mark.nightly  # 720 runs of a million rounds
def test_batches_of_the_paper_cost_more_than_those_of_its_code() -> None:
    own, released = regrets("paper"), regrets("released")
    more = {kind: round(100 * (own[kind] / released[kind] - 1)) for kind in own}
    first = [more["dist-dp-se", epsilon] for epsilon in ("1/10", "1/2", "1")]
    others = [each for (name, _), each in more.items() if name != "dist-dp-se"]
    said = "{}, {} and {} percent more regret".format(*first)
    assert said in PAGE, (first, sorted(others))
    assert f"the other algorithms between {min(others)} and {max(others)} percent" in PAGE, sorted(
        others
    )
