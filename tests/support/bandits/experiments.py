"""A small experiment, and the cells of experiments, played once."""

from __future__ import annotations

from functools import cache

from bandits.experiments.experiment import Cell, Experiment
from bandits.experiments.runner import run_cells

SMALL = Experiment(
    preset="tkms/binary",
    algorithms=("cdp-se", "se"),
    epsilons=(1,),
    horizon=500,
    instances=3,
    arms=3,
    checkpoints=(100, 500),
)


@cache
def cells_of(experiment: Experiment) -> list[Cell]:
    return run_cells(experiment, experiment.worlds())
