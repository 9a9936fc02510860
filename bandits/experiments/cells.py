r"""The cells of an experiment: a run each, to come or played."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from bandits.play import Run

__all__ = ["Cell", "Task", "cell_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    r"""One cell to come; ``epsilon`` as it is written, exact."""

    algorithm: str
    epsilon: str
    instance: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    r"""What one run gave: the fields are those of :class:`bandits.play.Run`."""

    algorithm: str
    epsilon: str
    instance: int
    regret: tuple[float, ...]
    pulls: tuple[int, ...]
    active: tuple[int, ...]
    batches: int
    bits_per_user: int
    mean_bits_per_user: float
    numbers: int = 0
    bits_sent: int = 0
    out_of_users: int = 0

    @property
    def task(self) -> Task:
        return Task(algorithm=self.algorithm, epsilon=self.epsilon, instance=self.instance)

    def to_json(self) -> dict[str, Any]:
        r"""The fields by name, in order; floats are read back as they were."""
        return {name: getattr(self, name) for name in self.__slots__}


def cell_of(task: Task, run: Run) -> Cell:
    r"""What ``run`` gave to ``task``."""
    shared = (field.name for field in fields(Run) if field.name in Cell.__slots__)
    return Cell(**asdict(task), **{name: getattr(run, name) for name in shared})
