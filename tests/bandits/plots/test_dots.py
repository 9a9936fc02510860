"""Rows of marks: every value is drawn at its place, in shapes that grey does not hide."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bandits.plots import plots
from bandits.plots.plots import ERROR_NOTE, Dots, draw_dots, draw_panels
from dpcore.errors import InvalidParameter

MARKS = ("epsilon = 0.1", "epsilon = 1")
ROWS = {"ldp-se": [(40.0, 2.0), (9.0, 1.0)], "dist-dp-se": [(1.7, 0.1), (1.03, 0.04)]}
GOOD: dict[str, Any] = {"title": "easy", "marks": MARKS, "rows": ROWS, "x_label": "to se"}


def test_a_picture_names_its_rows_and_marks(tmp_path: Path) -> None:
    for name in ("one", "two"):
        panels = [Dots(**GOOD, x_scale="log"), Dots(**GOOD)]
        draw_panels(tmp_path / f"{name}.svg", panels, title="What privacy costs")
    text = (tmp_path / "one.svg").read_text(encoding="utf-8")
    for word in (*MARKS, *ROWS, "to se", "What privacy costs", ERROR_NOTE):
        assert f">{word}<" in text
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


@pytest.mark.parametrize("x_scale", ["linear", "log"])
def test_marks_stand_at_their_values(x_scale: Any) -> None:
    from matplotlib.figure import Figure

    axes = Figure().add_subplot()
    draw_dots(axes, Dots(**GOOD, x_scale=x_scale))
    drawn: dict[str, Any] = {str(line.get_label()): line for line in axes.lines}
    for k, mark in enumerate(MARKS):
        assert [*drawn[mark].get_xdata()] == [pair[k][0] for pair in ROWS.values()]
    heights = [height for mark in MARKS for height in drawn[mark].get_ydata()]
    assert len(set(heights)) == len(heights)
    low, high = axes.get_xlim()
    assert low < 1
    assert high > 42
    looks = {(drawn[mark].get_marker(), drawn[mark].get_markerfacecolor()) for mark in MARKS}
    assert len(looks) == len(MARKS)
    assert [text.get_text() for text in axes.get_yticklabels()] == [*ROWS]


def test_no_two_marks_share_shape_and_fill() -> None:
    assert len({shape for shape, _ in plots._SHAPES}) == len(plots._SHAPES)


def test_a_bar_below_zero_ends_at_the_edge_of_a_logarithmic_axis() -> None:
    from matplotlib.figure import Figure

    axes = Figure().add_subplot()
    wide = {"se": [(1.0, 3.0), (0.5, 0.1)]}
    draw_dots(axes, Dots(**GOOD | {"rows": wide}, x_scale="log"))
    assert 0 < axes.get_xlim()[0] < 0.4


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        ({"rows": {}}, "one row or more"),
        ({"marks": ()}, "one to 4"),
        ({"marks": ("a",) * 5}, "one to 4"),
        ({"rows": {"se": [(1.0, 0.0)]}}, "for every mark"),
        ({"rows": {"se": [(1.0, 0.0), (float("nan"), 0.0)]}}, "finite"),
        ({"rows": {"se": [(1.0, 0.0), (1.0, -0.1)]}}, "errors >= 0"),
        ({"rows": {"se": [(1.0, 0.0), (0.0, 0.1)]}, "x_scale": "log"}, "must be > 0"),
    ],
)
def test_bad_rows(edit: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidParameter, match=reason):
        Dots(**GOOD | edit)
