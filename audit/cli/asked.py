r"""The options of ``dpcore audit TARGET``, and the plan that they ask for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dpcore.command.options import named

if TYPE_CHECKING:
    from audit.apart.room import Room
    from audit.layers import Wanted
    from audit.runs.plan import Plan
    from audit.targets.target import Target

__all__ = ["Asked", "planned"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    r"""The options of ``dpcore audit TARGET`` as they were written."""

    target: str
    claim: str | None
    pair: tuple[str, str] | None
    pairs: Path | None
    search: str | None
    relation: str | None
    feature: list[str] | None
    runs: str | None
    sequential: bool
    max_runs: str | None
    alpha: str
    layers: str | None
    baseline: list[str] | None
    seed: str | None
    timeout: str
    deadline: str | None
    jobs: str | None
    scheduler: str | None
    resume: Path | None
    resolution: str | None
    allow_constant: bool
    html: Path | None
    output: Path | None

    @property
    def bound_to_layers(self) -> dict[str, object]:
        r"""Options that only some layers read, None where they were not given."""
        return {
            "--search": self.search, "--feature": self.feature, "--baseline": self.baseline,
            "--resume": self.resume, "-n": self.runs, "--max-n": self.max_runs,
            "--sequential": self.sequential or None, "--resolution": self.resolution,
            "--deadline": self.deadline,
        }  # fmt: skip


def planned(asked: Asked, subject: Target, *, room: Room, seconds: float) -> tuple[Plan, Wanted]:
    r"""What to draw and which layers to run; errors name the option."""
    from audit.api import baselines_of, features_of
    from audit.cli import options as read
    from audit.layers import Wanted
    from audit.runs.plan import Plan
    from audit.search.spelling import read_space

    features = features_of(subject, asked.feature or (), room.feature)
    claim = read.read_claim(subject, asked.claim, asked.relation)
    searched = asked.search is not None
    pairs = read.read_pairs(
        subject, asked.pair, asked.pairs, searched=searched, relation=claim.relation
    )
    with named(baseline="--baseline"):
        baselines = baselines_of(asked.baseline or ())
    plan = Plan(
        claim=claim,
        pair=pairs[0] if pairs else (None, None),
        others=pairs[1:],
        features=features,
        runs=read.read_runs(asked.runs, asked.max_runs, sequential=asked.sequential),
        sequential=asked.sequential,
        alpha=asked.alpha,
        seed=read.read_seed(asked.seed, asked.resume),
        jobs=read.read_jobs(asked.jobs, asked.scheduler),
        timeout=seconds,
        deadline=None
        if asked.deadline is None
        else read.read_seconds("--deadline", asked.deadline),
        allow_constant=asked.allow_constant,
    )
    wanted = Wanted(
        layers=read.read_layers(subject, asked.layers, asked.bound_to_layers),
        baselines=baselines,
        space=None if asked.search is None else read_space(asked.search, claim.relation),
        state=asked.resume,
        figures=asked.html is not None,
    )
    return plan, wanted
