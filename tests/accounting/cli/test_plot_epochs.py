r"""Epsilon against epochs: what is drawn is what was computed, and others' numbers beside it."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from accounting.budget.training import Sampling, TrainingRun
from accounting.claims.bound import Bound
from accounting.cli import plot
from accounting.cli.plot import Training, draw_epochs, over_epochs
from dpcore import InvalidParameter
from tests.support.typed import Command

FIGURE = Path(__file__).parents[3] / "docs" / "figures" / "dpsgd.svg"
RUN = TrainingRun(
    multiplier=Fraction(2),
    batch=20,
    examples=1000,
    rounds=500,
    epochs=Fraction(10),
)


def bound(lower: float | None, upper: float) -> Bound:
    low = None if lower is None else Fraction(lower)
    high = math.inf if upper == math.inf else Fraction(upper)
    return Bound(lower=low, upper=high, method="line", theorem="")


def drawn(path: Path, lines: list[Training]) -> str:
    draw_epochs(path, lines, title="a run")
    return path.read_text(encoding="utf-8")


def test_the_legend_says_what_is_proven(tmp_path: Path) -> None:
    both = Training(label="z 1", points=((1.0, bound(1.0, 1.1)), (2.0, bound(2.0, 2.1))), others={})
    above = Training(
        label="z 2", points=((1.0, bound(None, 1.1)), (2.0, bound(2.0, 2.1))), others={}
    )
    text = drawn(tmp_path / "a.svg", [both, above])
    assert "z 1: both proven ends" in text
    assert "z 2: proven upper end" in text
    assert "RDP" not in text
    other = Training(label="z 1", points=both.points, others={"RDP": ((1.0, 3.0), (2.0, 4.0))})
    assert "z 1: RDP" in drawn(tmp_path / "b.svg", [other])
    infinite = Training(label="z", points=((1.0, bound(1.0, math.inf)),), others={})
    with pytest.raises(InvalidParameter, match="nothing to draw"):
        draw_epochs(tmp_path / "c.svg", [infinite], title="")
    assert not (tmp_path / "c.svg").exists()


@pytest.mark.nightly
def test_what_is_drawn_of_a_run() -> None:
    r"""RDP is above our upper end at every epoch, PLD too, by its grid; epsilon rises."""
    pytest.importorskip("dp_accounting", reason="the extra 'interop' is not installed")
    line = over_epochs(RUN, Sampling.POISSON, Fraction("1e-5"))
    epochs = [x for x, _ in line.points]
    assert epochs == [float(i) for i in range(1, 11)]
    uppers = [b.upper_float for _, b in line.points]
    assert uppers == sorted(uppers)
    rdp, pld = line.others.values()
    for (x, found), (at, loose), (there, fine) in zip(line.points, rdp, pld, strict=True):
        assert x == at == there
        assert found.lower is not None
        assert loose > found.upper_float
        assert found.lower - Fraction(1, 10**6) < fine < found.upper + Fraction(1, 1000)


def test_without_the_library_only_ours_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plot, "find_spec", lambda name: None)
    short = TrainingRun(multiplier=Fraction(4), batch=1, examples=2, rounds=2, epochs=Fraction(1))
    line = over_epochs(short, Sampling.SHUFFLED, Fraction("1e-5"))
    assert (line.others, len(line.points)) == ({}, 2)


def test_the_option(command: Command, tmp_path: Path) -> None:
    words = ["dpsgd", "--noise-multiplier", 4, "--batch-size", 500, "--examples", 1000]
    words += ["--delta", "1e-5", "--epochs", 2, "--sampling", "shuffled", "--plot"]
    answer = command(*words, tmp_path / "run.png")
    assert answer.code == 0
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")
    refused = command(*words, tmp_path / "run.gif")
    assert (refused.code, "--plot" in refused.err) == (2, True)
    assert [each.name for each in tmp_path.iterdir()] == ["run.png"]


def test_the_committed_figure_is_of_three_runs() -> None:
    text = FIGURE.read_text(encoding="utf-8")
    ET.fromstring(text)  # noqa: S314  # our own file
    for multiplier in ("0.8", "1.1", "2"):
        for what in ("both proven ends", "RDP of dp-accounting", "PLD of dp-accounting"):
            assert len(re.findall(f"noise multiplier {multiplier}: {what}", text)) == 1
