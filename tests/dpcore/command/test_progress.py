r"""The bar of long work: on a terminal, with or without a known end."""

from __future__ import annotations

import io
import sys

import pytest

from dpcore.command.progress import progress_bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("total", "shown"), [(8, "50%"), (None, "sizes: 4")])
def test_what_is_done_is_shown(
    total: int | None, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    with progress_bar("sizes", total) as advance:
        for done in (1, 2, 3, 4):
            advance(done)
    assert shown in screen.getvalue()


@pytest.mark.parametrize("total", [8, None])
def test_nobody_looks_and_nothing_is_shown(
    total: int | None, capsys: pytest.CaptureFixture[str]
) -> None:
    with progress_bar("sizes", total) as advance:
        advance(4)
    assert capsys.readouterr() == ("", "")
