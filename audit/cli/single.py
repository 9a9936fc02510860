r"""Layers by themselves: ``dpcore audit replay`` and ``dpcore audit fit``."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import typer

from audit.cli.written import leave
from audit.wording.formats import format_of
from dpcore.command.options import AsFormat, AsJson, Format, argument, named, option
from dpcore.command.terminal import page, say
from dpcore.numbers.parameter import whole_number

if TYPE_CHECKING:
    from audit.fit.fit import FitReport


def replay_command(
    target: str = argument(
        "TARGET",
        "module:callable, file.py:callable, a noise, a protocol, or a name that dpcore audit "
        "catalogue lists.",
    ),
    *,
    pair: tuple[str, str] | None = option("A B", "Two neighbouring datasets, as JSON."),
    sensitivity: str | None = option(
        "D", "State that output = query + noise, and a person changes the query by at most D."
    ),
    norm: str = option("WORD", "The norm of --sensitivity: l1, l2 or linf.", default="l1"),
    strict: bool = option(
        "", "State that draws and output shape do not depend on data.", "--strict", default=False
    ),
    tapes: str = option(
        "N", "How many tapes (recorded random draws), each replayed on both datasets.", default="32"
    ),
    changes: str = option(
        "N", "The most tapes on which one draw is set to an extreme.", default="500"
    ),
    seed: str | None = option("N", "Repeat a replay exactly: the seed that its report shows."),
    timeout: str = option("SECONDS", "The most time one call may take.", default="60"),
    deadline: str | None = option("SECONDS", "Start no new tape after this time."),
    allow_constant: bool = option(
        "", "Accept a target that draws nothing, on purpose.", "--allow-constant", default=False
    ),
    as_json: AsJson = False,
    form: AsFormat = Format.TEXT,
) -> None:
    r"""Replay TARGET on both datasets with the same random draws, and with draws at their extremes.

    Example: dpcore audit replay clipped-to-two --sensitivity 1

    Exit code: 0 no error found, 1 refuted or a fault found, 2 usage, 3 the target failed or cannot
    be replayed, 4 nothing is drawn and both datasets give the same.
    """
    printed = format_of(form, as_json=as_json)
    from audit.cli.options import read_pair, read_seed
    from audit.sandbox.sandbox import importing, run_isolated
    from audit.spec import read_seconds

    tried = whole_number("--tapes", tapes, at_least=2)
    changed = whole_number("--changes", changes, at_least=0)
    first, seconds = read_seed(seed), read_seconds("--timeout", timeout)
    until = None if deadline is None else read_seconds("--deadline", deadline)

    def there() -> tuple[str, int]:
        from audit.replay.replay import replay
        from audit.targets.neighbours import pairs_of
        from audit.targets.spelling import read_target

        with importing(seconds):
            subject = read_target(target, seeded=True)
        report = replay(
            subject,
            pairs_of(subject, None if pair is None else read_pair(pair))[0],
            sensitivity=sensitivity,
            norm=norm,  # type: ignore[arg-type]  # refused by name where it is another word
            strict=strict,
            tapes=tried,
            changes=changed,
            seed=first,
            timeout=seconds,
            deadline=until,
            allow_constant=allow_constant,
        )
        text = report.to_format(printed, text=page(report.lines()))
        return text, report.exit_code

    with named(target="TARGET", pair="--pair", sensitivity="--sensitivity", norm="--norm"):
        text, code = run_isolated(target, there, timeout=seconds)
    leave(text, code)


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
