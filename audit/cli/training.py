r"""Trainings: ``dpcore audit canaries`` (one run) and ``dpcore audit dpsgd`` (one step)."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from audit.cli.written import leave
from audit.wording.formats import format_of
from dpcore.command.options import AsFormat, AsJson, Format, argument, named, option
from dpcore.command.terminal import page, say
from dpcore.command.time_limit import with_optional_time_limit, with_time_limit


@with_time_limit
def canaries_command(
    scores: str = argument(
        "SCORES",
        "A CSV file with the columns score and included (1 or 0), one canary a line; an .npz "
        "file of numpy with arrays of these names; - is standard input (CSV).",
    ),
    *,
    claim: str = option(
        "CLAIM",
        "epsilon=8,delta=1e-5; or a whole curve: gdp=1, rho=0.1, or NOISE@SENSITIVITY.",
        default=...,
    ),
    relation: str = option(
        "WORD",
        "What happened to a canary that was not included: left out (add-remove), or replaced "
        "by something fixed (replace).",
        default="add-remove",
    ),
    guesses: str | None = option(
        "N",
        "How many canaries to guess; fix it before you see scores and coins together. "
        "(default: a sixteenth of them, more where the claim needs it, a quarter and all of them, "
        "which share the level)",
    ),
    guess: str = option(
        "WORD",
        "Guess the highest scores as included, the lowest as excluded, or half of each (both).",
        default="both",
    ),
    alpha: str = option("P", "The chance of a false alarm.", default="0.001"),
    seed: str = option("N", "The seed that puts equal scores in order.", default="0"),
    html: Path | None = option("FILE", "Also write the report as a web page."),
    as_json: AsJson = False,
    form: AsFormat = Format.TEXT,
) -> None:
    r"""Audit one training run by its canaries: does it keep the claim?

    A canary is an example that a fair coin put into the training data or not; its score is larger
    where the model seems to have seen it.

    Example: dpcore audit canaries scores.csv --claim epsilon=8,delta=1e-5

    Exit code: 0 not refuted, 1 refuted, 2 usage, 4 nothing measured.
    """
    printed = format_of(form, as_json=as_json)
    from audit.claims.verdicts import level
    from audit.cli.options import read_seed
    from audit.training.canaries import canaries, read_scores
    from dpcore.command.output_file import check_writable, write_whole
    from dpcore.errors import InvalidParameter
    from dpcore.numbers.parameter import whole_number

    exact = level("--alpha", alpha)
    number = None if guesses is None else whole_number("--guesses", guesses, at_least=1)
    check_writable("--html", html)
    if html is not None and html.resolve() == Path(scores).resolve():
        raise InvalidParameter("--html", str(html), "is the file of SCORES")
    values, included = read_scores(scores)
    options = named(
        claim="--claim", epsilon="--claim: epsilon", delta="--claim: delta",
        relation="--relation", guesses="--guesses", guess="--guess",
    )  # fmt: skip
    with options:
        report = canaries(
            values,
            included,
            claim,
            relation=relation,
            guesses=number,
            guess=guess,  # type: ignore[arg-type]  # refused by name where it is another word
            confidence=1 - exact,
            seed=read_seed(seed),
        )
    if html is not None:
        command = shlex.join(["dpcore", *sys.argv[1:]])
        write_whole("--html", html, report.to_html(command=command))
    say((f"warning: {warning}" for warning in report.warnings), sys.stderr)
    leave(report.to_format(printed, text=page(report.told().lines())), report.exit_code)


@with_optional_time_limit
def dpsgd_command(
    step: str = argument(
        "STEP",
        "module:Class or file.py:Class with two methods: sample(rng) returns the records of "
        "the next batch, update(gradients, rng) the released vector, from per-example "
        "gradients (batch x dimension). Or a library's step: jax-privacy (needs "
        "dpcore\\[bench]), opacus (needs dpcore\\[opacus]).",
    ),
    *,
    records: str = option("N", "How many records the data has.", default=...),
    rate: str = option("Q", "The stated chance that a record enters a batch.", default=...),
    noise_multiplier: str = option(
        "SIGMA", "The stated standard deviation of the noise, over the clipping norm.", default=...
    ),
    clip: str = option(
        "C", "The stated clipping norm: the largest l2 norm of a gradient.", default=...
    ),
    sampling: str = option(
        "WORD", "poisson: a coin for each record; fixed: exactly rate x records.", default="poisson"
    ),
    dimension: str = option("D", "How many coordinates a gradient has.", default="500"),
    batches: str = option("N", "How many batches to draw.", default="400"),
    draws: str = option(
        "N", "How many coordinates of noise to test.", "-n", "--draws", default="20000"
    ),
    alpha: str = option("P", "The chance of a false alarm.", default="0.001"),
    seed: str | None = option("N", "Repeat an audit exactly: the seed that its report shows."),
    timeout: str = option("SECONDS", "The most time one call may take.", default="60"),
    as_json: AsJson = False,
    form: AsFormat = Format.TEXT,
) -> None:
    r"""Audit a training step: does it sample, clip, add noise and divide as stated?

    Example: dpcore audit dpsgd step.py:Step --records 1000 --rate 0.1 --noise-multiplier 1 --clip 1

    Exit code: 0 not refuted, 1 refuted or a fault, 2 usage, 3 the step failed, 4 not all measured.
    """
    printed = format_of(form, as_json=as_json)
    from audit.cli.options import read_seed
    from audit.sandbox.sandbox import importing, run_isolated
    from audit.spec import read_seconds
    from dpcore.numbers.parameter import whole_number

    first, seconds = read_seed(seed), read_seconds("--timeout", timeout)
    numbers = {
        name: whole_number(f"--{name}", text, at_least=least)
        for name, text, least in (
            ("records", records, 2), ("dimension", dimension, 2), ("batches", batches, 2),
            ("draws", draws, 100),
        )
    }  # fmt: skip

    def there() -> tuple[str, int]:
        from audit.outputs.loading import load
        from audit.training.dpsgd import LIBRARIES, dpsgd

        with importing(seconds):
            made = step if step in LIBRARIES else load(step)
        report = dpsgd(
            made,
            **numbers,
            rate=rate,
            noise_multiplier=noise_multiplier,
            clip=clip,
            sampling=sampling,  # type: ignore[arg-type]  # refused by name where it is another word
            alpha=alpha,
            seed=first,
            timeout=seconds,
            target=step,
        )
        return report.to_format(printed, text=page(report.told().lines())), report.exit_code

    names = ("records", "rate", "clip", "sampling", "alpha")
    options = {name: f"--{name}" for name in names} | {"step": "STEP", "target": "STEP"}
    with named(noise_multiplier="--noise-multiplier", **options):
        text, code = run_isolated(step, there, timeout=seconds)
    leave(text, code)
