r"""``dpcore audit dpsgd``: a step of a training, looked at from the inside."""

from __future__ import annotations

from audit.cli.written import leave
from audit.wording.formats import format_of
from dpcore.command.options import AsFormat, AsJson, Format, argument, named, option
from dpcore.command.patience import endlessly
from dpcore.command.terminal import page

__all__ = ["dpsgd_command"]


@endlessly
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
