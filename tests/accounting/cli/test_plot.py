r"""A picture is whole or not there, and shows what is proven."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

import accounting.cli.plot as module
from accounting.claims.bound import Bound
from accounting.cli.plot import draw
from dpcore import InvalidParameter
from dpcore.command.picture import check_picture
from tests.effort import by_day
from tests.support.dpcore.mutants import mutated


def bound(lower: float | None, upper: float) -> Bound:
    ends = {"lower": lower if lower in (None, math.inf) else Fraction(lower), "upper": upper}
    if upper < math.inf:
        ends["upper"] = Fraction(upper)
    return Bound(**ends, method="line", theorem="")  # type: ignore[arg-type]  # as the ends are


WIDE = [(0.5, bound(0.5, 1.0)), (1e-3, bound(1.0, 2.0)), (1e-6, bound(2.0, 3.0))]
NARROW = [(0.5, bound(1.0, 1.00001)), (1e-6, bound(2.0, 2.00001))]
ABOVE_ONLY = [(0.5, bound(None, 1.0)), (1e-6, bound(None, 2.0))]


@by_day(1)
@pytest.mark.parametrize(
    ("ending", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF"), ("SVG", b"<?")]
)
def test_each_ending_is_what_it_says(tmp_path: Path, ending: str, start: bytes) -> None:
    path = tmp_path / f"curve.{ending}"
    check_picture("--plot", path)
    draw(path, WIDE, title="a total")
    assert path.read_bytes().startswith(start)
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
    if ending == "svg":
        ET.fromstring(path.read_text(encoding="utf-8"))  # noqa: S314  # our own file


def words(tmp_path: Path, points: Any, title: str = "a total") -> str:
    path = tmp_path / "curve.svg"
    draw(path, points, title=title)
    return path.read_text(encoding="utf-8")


def test_the_legend_says_what_is_proven(tmp_path: Path) -> None:
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


def test_a_wide_gap_is_never_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert "proven lower bound" in words(tmp_path, WIDE)
    monkeypatch.setattr(module, "_is_one_line", mutated(module._is_one_line, "<=", ">="))
    assert "proven lower bound" not in words(tmp_path, WIDE)


def test_infinite_points_are_left_out(tmp_path: Path) -> None:
    never = bound(math.inf, math.inf)
    assert "proven upper bound" in words(tmp_path, [*WIDE, (1e-9, never)])
    with pytest.raises(InvalidParameter, match="nothing to draw"):
        draw(tmp_path / "never.svg", [(1e-9, never)], title="a total")
    assert not (tmp_path / "never.svg").exists()


def test_long_titles_are_folded(tmp_path: Path) -> None:
    text = words(tmp_path, WIDE, title=" + ".join(["1000 x skellam:variance=400"] * 40))
    assert "[...]" in text


def test_a_failure_leaves_the_old_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "curve.svg"
    draw(path, WIDE, title="a total")
    before = path.read_bytes()

    def full(self: Any, target: Path, **_: Any) -> None:
        Path(target).write_text("half a pic", encoding="utf-8")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", full)
    with pytest.raises(InvalidParameter, match="No space left"):
        draw(path, NARROW, title="a total")
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
    # The twin writes in place, and the old picture is gone.
    monkeypatch.setattr("dpcore.command.picture.whole_picture", in_its_place)
    with pytest.raises(InvalidParameter):
        draw(path, NARROW, title="a total")
    assert not path.exists() or path.read_bytes() != before


@contextmanager
def in_its_place(argument: str, path: Path) -> Iterator[Path]:
    try:
        yield path
    except OSError as error:
        raise InvalidParameter(argument, str(path), str(error)) from error


def test_places_are_checked_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "folder.png").mkdir()
    for name, said in (
        ("curve.txt", "must end in"),
        ("curve", "must end in"),
        ("nowhere/curve.png", "there is no folder"),
        ("folder.png", "no place"),
    ):
        with pytest.raises(InvalidParameter, match=said):
            check_picture("--plot", tmp_path / name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InvalidParameter, match=r"dpcore\[plot\]"):
        check_picture("--plot", tmp_path / "curve.png")
