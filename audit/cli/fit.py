r"""``dpcore audit fit``: test whether a sampler draws from the law it claims."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import typer

from audit.wording.formats import format_of
from dpcore.command.options import AsFormat, AsJson, Format, argument, named, option
from dpcore.command.terminal import page, say

if TYPE_CHECKING:
    from audit.fit.report import FitReport


def fit(
    target: str = argument(
        "TARGET",
        "module:callable or file.py:callable, called f(n, rng), f(rng) or f(); a noise such as "
        "discrete-laplace:scale=1; 'exec:./program args'; a name of the catalogue.",
    ),
    *,
    law: str = option("NOISE", "The claimed law, e.g. discrete-laplace:scale=1.", default=...),
    runs: str | None = option(
        "N",
        "How many draws; with --sequential the most of them. (default: 1e5, with --sequential 1e6)",
        "-n",
        "--runs",
        "--max-n",
    ),
    sequential: bool = option(
        "", "Stop as soon as there is enough evidence.", "--sequential", default=False
    ),
    alpha: str = option("P", "The chance of a false alarm.", default="0.001"),
    seed: str | None = option("N", "Repeat a test exactly: the seed that its report shows."),
    timeout: str = option("SECONDS", "The most time one call may take.", default="60"),
    as_json: AsJson = False,
    form: AsFormat = Format.TEXT,
) -> None:
    r"""Test a sampler: does TARGET draw from the law?

    Example: dpcore audit fit noise.py:draw --law discrete-gaussian:sigma_squared=4

    Exit code: 0 not refuted, 1 refuted, 2 usage, 3 the target failed.
    """
    printed = format_of(form, as_json=as_json)
    from audit.cli.options import read_seed
    from audit.errors import TargetFailed
    from audit.sandbox.sandbox import importing, run_isolated
    from audit.spec import read_runs, read_seconds
    from dpcore.command.options import read_law

    noise = read_law("--law", law)
    drawn = read_runs("-n", runs or ("1e6" if sequential else "1e5"))
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
        return report.warnings, _written(report, printed), report.exit_code, error

    with named(target="TARGET", sampler="TARGET"):
        warnings, text, code, error = run_isolated(target, there, timeout=seconds)
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


def _written(report: FitReport, form: str) -> str:
    drawn = report.error is None or report.runs
    return report.to_format(form, text=page(report.told().lines()) if drawn else "")
