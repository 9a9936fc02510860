r"""Tests of the plots of ``dpcore budget``: figure files are complete or absent."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from accounting.cli.training import Training, draw, draw_epochs, over_epochs
from accounting.composition.training_run import TrainingRun
from accounting.guarantees.bound import Bound
from dpcore import InvalidParameter
from dpcore.cli.figure_file import check_picture
from tests.support.dpcore.refusals import refusal
from tests.support.run_command import Command


def bound(lower: float | None, upper: float) -> Bound:
    ends = {"lower": lower if lower in (None, math.inf) else Fraction(lower), "upper": upper}
    if upper < math.inf:
        ends["upper"] = Fraction(upper)
    return Bound(**ends, method="contour", theorem="")  # type: ignore[arg-type]  # as the ends are


WIDE = [(0.5, bound(0.5, 1.0)), (1e-3, bound(1.0, 2.0)), (1e-6, bound(2.0, 3.0))]
NARROW = [(0.5, bound(1.0, 1.00001)), (1e-6, bound(2.0, 2.00001))]
ABOVE_ONLY = [(0.5, bound(None, 1.0)), (1e-6, bound(None, 2.0))]


@pytest.mark.parametrize(("ending", "start"), [("png", b"\x89PNG"), ("SVG", b"<?xml")])
def test_each_file_ending_gives_its_format(tmp_path: Path, ending: str, start: bytes) -> None:
    path = tmp_path / f"curve.{ending}"
    check_picture("--plot", path)
    draw(path, WIDE, title="a total")
    assert path.read_bytes().startswith(start)
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
    if ending == "SVG":
        ET.fromstring(path.read_text(encoding="utf-8"))  # noqa: S314  # our own file


def words(tmp_path: Path, points: Any, title: str = "a total") -> str:
    path = tmp_path / "curve.svg"
    draw(path, points, title=title)
    return path.read_text(encoding="utf-8")


def test_the_legend_names_the_proven_bounds(tmp_path: Path) -> None:
    wide = words(tmp_path, WIDE)
    assert "proven upper bound" in wide
    assert "proven lower bound" in wide
    assert "dots are proven" in wide
    narrow = words(tmp_path, NARROW)
    assert "both bounds lie within this line" in narrow
    assert "proven lower bound" not in narrow
    above = words(tmp_path, ABOVE_ONLY)
    assert "proven upper bound" in above
    assert "lower" not in above


def test_a_failed_plot_leaves_the_old_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "curve.svg"
    draw(path, WIDE, title="a total")
    before = path.read_bytes()

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    assert "No space left" in refusal(lambda: draw(path, NARROW, title="a total"))
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
    # The mutant writes in place, and the old figure is lost.
    monkeypatch.setattr("dpcore.cli.figure_file.write_whole", in_its_place)
    draw(path, NARROW, title="a total")
    assert path.read_bytes() != before


def in_its_place(argument: str, path: Path, content: bytes) -> None:
    path.write_bytes(content[:100])


RUN = TrainingRun(noise_multiplier=2, batch_size=20, examples=1000, epochs=10)


def drawn(path: Path, lines: list[Training]) -> str:
    draw_epochs(path, lines, title="a run")
    return path.read_text(encoding="utf-8")


def test_the_legend_of_a_training_run_names_the_proven_bounds(tmp_path: Path) -> None:
    both = Training(label="z 1", points=((1.0, bound(1.0, 1.1)), (2.0, bound(2.0, 2.1))), others={})
    above = Training(
        label="z 2", points=((1.0, bound(None, 1.1)), (2.0, bound(2.0, 2.1))), others={}
    )
    text = drawn(tmp_path / "a.svg", [both, above])
    assert "z 1: both proven bounds" in text
    assert "z 2: proven upper bound" in text
    assert "RDP" not in text
    other = Training(label="z 1", points=both.points, others={"RDP": ((1.0, 3.0), (2.0, 4.0))})
    assert "z 1: RDP" in drawn(tmp_path / "b.svg", [other])
    infinite = Training(label="z", points=((1.0, bound(1.0, math.inf)),), others={})
    with pytest.raises(InvalidParameter, match="nothing to plot"):
        draw_epochs(tmp_path / "c.svg", [infinite], title="")
    assert not (tmp_path / "c.svg").exists()


@pytest.mark.nightly
def test_the_plot_of_a_training_run_shows_the_accountants_in_order() -> None:
    r"""RDP is above the upper bound at every epoch, and so is PLD, by its grid; epsilon rises."""
    pytest.importorskip("dp_accounting", reason="the extra 'interop' is not installed")
    line = over_epochs(RUN, Fraction("1e-5"))
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


def test_the_option_plot_writes_a_figure(command: Command, tmp_path: Path) -> None:
    words = ["dpsgd", "--noise-multiplier", 4, "--batch-size", 500, "--examples", 1000]
    words += ["--delta", "1e-5", "--epochs", 2, "--sampling", "shuffled", "--plot"]
    answer = command(*words, tmp_path / "run.png")
    assert answer.code == 0
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")
    refused = command(*words, tmp_path / "run.gif")
    assert (refused.code, "--plot" in refused.err) == (2, True)
    assert [each.name for each in tmp_path.iterdir()] == ["run.png"]
