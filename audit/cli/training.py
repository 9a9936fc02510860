r"""The commands that audit training: ``dpcore audit canaries`` and ``dpcore audit dpsgd``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from audit.audit_spec import read_seed
from audit.cli.options_and_output import (
    SpecOptions,
    leave_isolated,
    leave_with,
    seed_of,
    spec_of,
    with_spec,
)
from audit.formats.junit_and_sarif import format_of
from audit.formats.result import Result
from dpcore.cli.files import check_writable
from dpcore.cli.options import (
    AsFormat,
    AsJson,
    Format,
    argument,
    named,
    option,
    with_optional_time_limit,
    with_time_limit,
)
from dpcore.errors import InvalidParameter
from dpcore.numbers.parameter import whole_number


@with_time_limit
def canaries_command(
    scores: str = argument(
        "SCORES",
        "A CSV file with the columns score and included (1 or 0), one canary per line; an .npz "
        "file of numpy with arrays of these names; - is standard input (CSV).",
    ),
    *,
    claim: str = option(
        "CLAIM",
        "The claim to test: epsilon=8,delta=1e-5; or a whole curve: gdp=1, rho=0.1, or "
        "NOISE@SENSITIVITY.",
        default=...,
    ),
    relation: str = option(
        "WORD",
        "How a canary is excluded: left out (add-remove), or replaced by a fixed record (replace).",
        default="add-remove",
    ),
    guesses: str | None = option(
        "N",
        "Number of canaries to guess; choose it before you see the inclusions. (default: "
        "three tests that share alpha, with guesses for a sixteenth of the canaries, or more if "
        "the claim needs it, for a quarter, and for all)",
    ),
    guess: str = option(
        "WORD",
        "Guess the highest scores as included, the lowest as excluded, or half of each (both).",
        default="both",
    ),
    alpha: str = option("P", "The probability of a false alarm.", default="0.001"),
    seed: str = option("N", "Seed that breaks ties between equal scores.", default="0"),
    html: Path | None = option("FILE", "Also write the report as a web page."),
    as_json: AsJson = False,
    form: AsFormat = Format.TEXT,
) -> None:
    r"""Audit one training run by its canaries: does it satisfy the claim?

    A canary is an example that is included in the training data with probability 1/2; a larger
    score means that the model seems to have seen it.

    Example: dpcore audit canaries scores.csv --claim epsilon=8,delta=1e-5

    Exit code: 0 not refuted, 1 refuted, 2 usage, 4 nothing measured.
    """
    printed = format_of(form, as_json=as_json)
    from audit.claims import level
    from audit.training.canary_audit import canaries, read_scores

    exact = level("--alpha", alpha)
    number = None if guesses is None else whole_number("--guesses", guesses, at_least=1)
    check_writable("--html", html)
    if html is not None and html.resolve() == Path(scores).resolve():
        raise InvalidParameter(
            "--html", str(html), "would overwrite the file of SCORES: choose another path"
        )
    values, included = read_scores(scores)
    names = ("claim", "relation", "guesses", "guess")
    with named(*names, epsilon="--claim: epsilon", delta="--claim: delta"):
        report = canaries(
            values,
            included,
            claim,
            relation=relation,
            guesses=number,
            guess=guess,  # type: ignore[arg-type]  # any other word is refused by name
            confidence=1 - exact,
            seed=read_seed("--seed", seed),
        )
    leave_with(report, printed, html=html)


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
        from audit.outputs import time_limit
        from audit.training.check_dpsgd_step import LIBRARIES

        return step if step in LIBRARIES else time_limit.load(step)

    def audited(made: Any) -> Result:
        from audit.training.check_dpsgd_step import dpsgd

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
