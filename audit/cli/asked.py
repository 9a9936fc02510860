r"""The options of ``dpcore audit TARGET``, and the plan that they ask for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from dpcore.command.options import FORMAT_HELP, Format, argument, named, option

if TYPE_CHECKING:
    from audit.apart.room import Room
    from audit.layers import Wanted
    from audit.runs.plan import Plan
    from audit.targets.target import Target

__all__ = ["Asked", "planned"]


# Options by the panel of the help that they are in.
_what = partial(option, rich_help_panel="What is tested")
_how = partial(option, rich_help_panel="How it is tested")
_where = partial(option, rich_help_panel="Where, and for how long")
_result = partial(option, rich_help_panel="The report")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    r"""The options of ``dpcore audit TARGET`` as they were written."""

    target: str = argument(
        "TARGET",
        "module:callable, file.py:callable, 'exec:./program args', a noise such as "
        "discrete-laplace:scale=1, a protocol such as protocol:pure,users=64,epsilon=1, a "
        "bandit such as bandit:dist-dp-se,epsilon=1 (further keys: delta, scaling, radius, "
        "path) or bandit:file.py:Policy, running sums such as "
        "continual:tree,horizon=64,epsilon=1, or a name that dpcore audit catalogue lists.",
    )
    claim: str | None = _what(
        "CLAIM",
        "The promise to test: epsilon=1 or epsilon=1,delta=1e-6; or a whole curve: rho=0.1, "
        "gdp=1, or NOISE@SENSITIVITY such as discrete-gaussian:sigma_squared=4@1.",
    )
    pair: tuple[str, str] | None = _what(
        "A B", "Two neighbouring datasets, as JSON: 0 1, or '[]' '[\"ada\"]'."
    )
    pairs: Path | None = _what(
        "FILE",
        "Several pairs: a .toml file of tables \\[\\[pair]], each with a = and b =, or a .json "
        "file with a list of pairs.",
    )
    search: str | None = _what(
        "SPACE",
        "Search for the worst pair: a quarter of the runs searches a space such as "
        "vector:dimension=10,low=0,high=1; the others test the pair that was found.",
    )
    relation: str | None = _what(
        "WORD",
        "How neighbouring datasets differ: one record replaced (replace), or added or removed "
        "(add-remove). (default: replace)",
    )
    feature: list[str] | None = _what(
        "NAME",
        "Test a feature instead of the output: lowest-bit, sign, length, time (of the call), "
        "file.py:callable, ...; repeatable; identity is the output itself.",
    )
    runs: str | None = _how(
        "N", "How many runs, on both datasets together. (default: 1e5)", "-n", "--runs"
    )
    sequential: bool = _how(
        "", "Stop as soon as there is enough evidence.", "--sequential", default=False
    )
    max_runs: str | None = _how("N", "The most runs with --sequential. (default: 1e6)", "--max-n")
    alpha: str = _how(
        "P", "The chance of a false alarm: REFUTED although the claim is true.", default="0.05"
    )
    layers: str | None = _how(
        "NAMES",
        "Which tests run, separated by commas: exact (proof from a known law), fit (are draws of "
        "this law?), replay (the same random draws on both datasets), sample (count the outputs "
        "of many runs). (default: exact where the law is known, else sample)",
    )
    baseline: list[str] | None = _how(
        "NAME",
        "Also show another method's bound, for comparison: clopper-pearson-split, dkw, "
        "bonferroni-thresholds, one-run, bayes, gaussian-dp, plug-in or all.",
    )
    seed: str | None = _how("N", "Repeat an audit exactly: the seed that its report shows.")
    timeout: str = _where("SECONDS", "The most time one call of the target may take.", default="60")
    deadline: str | None = _where("SECONDS", "Stop drawing runs after this time, and report.")
    jobs: str | None = _where(
        "N",
        "How many processes draw runs; -1: one per core. The report is the same. (default: 1)",
        "-j",
        "--jobs",
    )
    scheduler: str | None = _where(
        "ADDRESS", "Draw on a Dask cluster, such as tcp://host:8786 (needs dpcore\\[cluster])."
    )
    resume: Path | None = _where(
        "FILE", "Store the runs in this file, and continue from it after an interruption."
    )
    resolution: str | None = _result(
        "P",
        "Exit with 4 if the runs could miss an output that gives the data away with this "
        "probability, such as 1e-3 (the blind spot).",
    )
    allow_constant: bool = _result(
        "", "Accept a target whose every output is the same.", "--allow-constant", default=False
    )
    html: Path | None = _result(
        "FILE", "Write the report as a web page with figures, in one file (needs dpcore\\[plot])."
    )
    output: Path | None = _result("FILE", "Also write the JSON report to a file.", "-o", "--output")
    as_json: bool = _result("", "Print one JSON document instead of text.", "--json", default=False)
    form: Format = _result("FORMAT", FORMAT_HELP, "--format", default=Format.TEXT)

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
