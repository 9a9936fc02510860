r"""``dpcore audit fit``: test whether a sampler draws from the law it claims."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpcore.command.terminal import page, say

if TYPE_CHECKING:
    from audit.fit.report import FitReport

__all__ = ["fit"]


def fit(
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="module:callable or file.py:callable, called f(n, rng), f(rng) or f(); a noise "
            "such as discrete-laplace:scale=1; 'exec:./program args'; a name of the catalogue.",
        ),
    ],
    *,
    law: Annotated[
        str, typer.Option(metavar="NOISE", help="The claimed law, e.g. discrete-laplace:scale=1.")
    ],
    runs: Annotated[
        str | None, typer.Option("-n", "--runs", help="Draws; of --sequential the most. (1e5)")
    ] = None,
    sequential: Annotated[
        bool, typer.Option("--sequential", help="Stop as soon as the evidence suffices.")
    ] = False,
    max_runs: Annotated[
        str | None, typer.Option("--max-n", help="The most draws of --sequential. (1e6)")
    ] = None,
    alpha: Annotated[
        str, typer.Option(help="How often a fit of a true law may say REFUTED.")
    ] = "0.05",
    seed: Annotated[
        str | None, typer.Option(help="Repeat a fit with the same random numbers.")
    ] = None,
    timeout: Annotated[
        str, typer.Option(help="The most seconds one call of the target may take.")
    ] = "60",
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON document on standard output.")
    ] = False,
) -> None:
    r"""Fit TARGET: does the sampler draw from the law?

    Example: dpcore audit fit noise.py:draw --law discrete-gaussian:sigma_squared=4

    Exit code: 0 not refuted, 1 refuted, 2 usage, 3 the target failed.
    """
    from audit.apart.room import done_apart, importing
    from audit.cli.options import read_runs, read_seconds, read_seed
    from audit.errors import TargetFailed
    from dpcore.spelling import read_noise

    noise = read_noise(law)
    if sequential and max_runs is None:
        runs, max_runs = None, runs
    drawn = read_runs(runs, max_runs, sequential=sequential)
    first, seconds = read_seed(seed), read_seconds("--timeout", timeout)

    def there() -> tuple[tuple[str, ...], str, int, tuple[str, int | None] | None]:
        from audit.fit.fit import fit as fitted

        with importing(seconds):
            sampler = _sampler(target)
        report = fitted(
            sampler,
            noise,
            runs=drawn,
            alpha=alpha,
            seed=first,
            sequential=sequential,
            timeout=seconds,
        )
        error = None if report.error is None else (report.error.reason, report.error.run)
        if error is not None:
            report = replace(report, error=TargetFailed(target, error[0], run=error[1]))
        report = replace(report, target=target)
        return report.warnings, _written(report, as_json=as_json), report.exit_code, error

    warnings, text, code, error = done_apart(target, there, timeout=seconds)
    say((f"warning: {warning}" for warning in warnings), sys.stderr)
    sys.stdout.write(text)
    sys.stdout.flush()
    if error is not None:
        raise TargetFailed(target, error[0], run=error[1])
    raise typer.Exit(code)


def _sampler(spelling: str) -> Any:
    from audit.outputs.loading import load
    from audit.targets.spelling import read_target
    from dpcore.spelling import LAWS

    path, _, attribute = spelling.rpartition(":")
    if not (path and attribute) or spelling.partition(":")[0] in {"exec", "protocol", *LAWS}:
        return read_target(spelling)
    # A callable is taken as it is: a sampler is not called as a mechanism is.
    return load(spelling)


def _written(report: FitReport, *, as_json: bool) -> str:
    if as_json:
        return report.to_text()
    if report.error is None or report.runs:
        return page(report.told().lines())
    return ""
