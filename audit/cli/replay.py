r"""``dpcore audit replay``: one tape for both datasets, and every draw at its extremes."""

from __future__ import annotations

from audit.cli.written import leave
from audit.wording.formats import format_of
from dpcore.command.options import AsFormat, AsJson, Format, argument, named, option
from dpcore.command.terminal import page
from dpcore.numbers.parameter import whole_number


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
        from audit.search.pairs import pairs_of
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
