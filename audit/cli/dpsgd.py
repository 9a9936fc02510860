r"""The command ``dpcore audit dpsgd``: one training step."""

from __future__ import annotations

from typing import Any

from audit.cli.options import SpecOptions, seed_of, spec_of, with_spec
from audit.cli.output import leave_isolated
from audit.formats.junit_and_sarif import format_of
from audit.formats.result import Result
from dpcore.cli.options import (
    AsFormat,
    AsJson,
    Format,
    argument,
    named,
    option,
    with_optional_time_limit,
)
from dpcore.numbers.parameter import whole_number


@with_optional_time_limit
@with_spec("alpha", "seed", "timeout")
def dpsgd_command(
    options: SpecOptions,
    step: str = argument(
        "STEP",
        "module:Class or file.py:Class with two methods: sample(rng) returns the records of "
        "the next batch, update(gradients, rng) the released vector, from per-example "
        "gradients (batch x dimension). Or a library's step: jax-privacy (needs "
        "dpcore\\[bench]), opacus (needs dpcore\\[opacus]).",
    ),
    *,
    records: str = option("N", "Number of records in the data.", default=...),
    rate: str = option("Q", "The stated probability that a record enters a batch.", default=...),
    noise_multiplier: str = option(
        "SIGMA", "The stated standard deviation of the noise, over the clipping norm.", default=...
    ),
    clip: str = option(
        "C", "The stated clipping norm: the largest l2 norm of a gradient.", default=...
    ),
    sampling: str = option(
        "WORD",
        "poisson: each record independently; fixed: exactly rate x records in every batch.",
        default="poisson",
    ),
    dimension: str = option("D", "Number of coordinates of a gradient.", default="500"),
    batches: str = option("N", "Number of batches to draw.", default="400"),
    draws: str = option(
        "N", "Number of coordinates of noise to test.", "-n", "--draws", default="20000"
    ),
    as_json: AsJson = False,
    form: AsFormat = Format.TEXT,
) -> None:
    r"""Audit a training step: does it sample, clip, add noise and divide as stated?

    Example: dpcore audit dpsgd step.py:Step --records 1000 --rate 0.1 --noise-multiplier 1 --clip 1

    Exit code: 0 not refuted, 1 refuted or a fault, 2 usage, 3 the step failed, 4 some checks could
    not be made.
    """
    printed, spec = format_of(form, as_json=as_json), spec_of(options)
    numbers = {
        name: whole_number(f"--{name}", text, at_least=least)
        for name, text, least in (
            ("records", records, 2), ("dimension", dimension, 2), ("batches", batches, 2),
            ("draws", draws, 100),
        )
    }  # fmt: skip
    seed = seed_of(spec)

    def load() -> Any:
        from audit.outputs import call_guard
        from audit.training.dpsgd_step import LIBRARIES

        return step if step in LIBRARIES else call_guard.load(step)

    def audited(made: Any) -> Result:
        from audit.training.dpsgd_step import dpsgd

        return dpsgd(
            made,
            **numbers,
            rate=rate,
            noise_multiplier=noise_multiplier,
            clip=clip,
            sampling=sampling,  # type: ignore[arg-type]  # any other word is refused by name
            alpha=spec.alpha,
            seed=seed,
            timeout=spec.timeout,
            target=step,
        )

    names = ("records", "rate", "clip", "sampling", "alpha", "noise_multiplier")
    naming = named(*names, step="STEP", target="STEP")
    leave_isolated(step, spec, load, audited, printed, naming)
