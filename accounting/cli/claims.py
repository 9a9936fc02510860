r"""``dpcore claims``: the privacy theorems of four papers, replayed."""

from __future__ import annotations

from typing import Annotated

import typer

from accounting.cli.options import AsJson, progress, show

__all__ = ["claims"]

claims = typer.Typer(
    name="claims",
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    add_completion=False,
)


@claims.command()
def claims_command(
    *,
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer parameters of each theorem; every erratum.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    r"""Replay the privacy theorems of four papers: what is claimed, what is exact, the verdict.

    holds: true. loose: true by a factor of two or more. fails: refuted by a certified bound.
    unproven: true where it was looked at, but the printed argument does not give it.

    Example: dpcore claims --quick
    """
    from accounting.replays.table import lines, replay, rows, to_json

    with progress(len(rows(quick=quick)), "theorems") as advance:
        found = replay(
            quick=quick, progress=None if advance is None else lambda done, _: advance(done)
        )
    show({"schema": "dpcore-claims/1", **to_json(found)} if as_json else list(lines(found)))
