r"""The command ``dpcore papers``, which checks published theorems."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpcore.cli.options import AsJson, command_group, flag
from dpcore.cli.terminal import progress_bar, show

if TYPE_CHECKING:
    from bandits.papers.table import LaterRow

papers = command_group("papers")
claims = command_group("claims")


@papers.command()
@claims.command(hidden=True)
def papers_command(
    *,
    quick: bool = flag("Check fewer parameters per theorem, but every erratum.", "--quick"),
    as_json: AsJson = False,
) -> None:
    r"""Check the privacy theorems of four papers against exact values.

    The papers are Chowdhury and Zhou 2023 (CZ), Li, Zhou and Ji 2022 (LZJ), Tenenbaum and others
    2021 (TKMS), and Chen and others 2020 (CSB).

    The verdicts are "holds"; "loose" (holds with a factor of two or more to spare); "fails" (a
    proven bound contradicts the theorem); and "unproven" (not refuted, but not shown by the printed
    proof).

    Example: dpcore papers --quick
    """
    from bandits.papers.table import lines, replay, to_json

    todo = rows(quick=quick)
    with progress_bar("theorems", len(todo)) as advance:
        found = replay(todo, advance)
    show({"schema": "dpcore-claims/1", **to_json(found)} if as_json else list(lines(found)))


def rows(*, quick: bool = False) -> tuple[LaterRow, ...]:
    r"""All rows of the table, uncomputed; ``quick`` selects fewer parameters per theorem.

    >>> len(rows(quick=True)) < len(rows())
    True
    """
    from bandits.papers import (
        chen_et_al,
        chowdhury_zhou,
        li_zhou_ji,
        released_code,
        tenenbaum_et_al,
    )

    papers = (chowdhury_zhou, li_zhou_ji, tenenbaum_et_al, chen_et_al, released_code)
    return tuple(row for paper in papers for row in paper.rows(quick=quick))
