"""Tests of figures: numbers, names and titles are complete and legible; every series is named."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.textpath import text_to_path

from accounting.cli.training import Training, draw, draw_epochs
from accounting.guarantees.bound import Bound
from audit.known_laws.known_laws_report import curve_points, draw_curve
from audit.report.figures import tradeoff_figure
from bandits.regret_plots import Curve, Panel, draw_panels
from benchmarks.figures.dot_panels import Dots
from dpcore.cli import figure_file as module
from tests.day_and_nightly import by_day, spread
from tests.support.audit.figure_table import TABLE

FIGURES = Path(__file__).parents[2] / "docs" / "figures"
LONG = "discrete-gaussian:sigma_squared=WWWWWWWWWWWW@0,1,0 --sensitivity 1 " * 8
NAME = f"P = {'a_long_name_of_a_file' * 9}.json"


def bound(lower: str | None, upper: str) -> Bound:
    low = None if lower is None else Fraction(lower)
    return Bound(lower=low, upper=Fraction(upper), method="contour", theorem="")


def curve(path: Path) -> None:
    points = [(10.0**-k, bound(f"{k + 1}/2", f"{k + 1}")) for k in range(1, 13)]
    draw(path, points, title=LONG)


def short_curve(path: Path) -> None:
    # Less than a factor of ten: intermediate ticks have labels.
    draw(path, [(x, bound("1", "1")) for x in (0.2, 0.3, 0.5)], title="a total")


def exact(path: Path) -> None:
    points = curve_points({"a": "1/2", "b": "1/2"}, {"a": "1/3", "b": "2/3"})
    draw_curve(path, points, title=NAME)


def epochs(path: Path) -> None:
    lines = [
        Training(
            label=f"noise multiplier {z}",
            points=tuple((float(i), bound(f"{i}/{z}", f"{i}/{z}")) for i in range(1, 6)),
            others=dict.fromkeys(("RDP of dp-accounting", "PLD"), ((1.0, 2.0), (5.0, 6.0))),
        )
        for z in (1, 2, 10**60)
    ]
    draw_epochs(path, lines, title=LONG)


def regret(path: Path) -> None:
    names = ("dist-rdp-se s=123456789123456789123456789", "se", "Theorem 9, T to infinity " * 3)
    curves = [
        Curve(label=name, x=(1, 10, 100), y=(1 / (i + 1), 0.1, 0.02), error=(0, 0.01, 0.001))
        for i, name in enumerate(names)
    ]
    rows = {"dist-cdp-se s=10": [(1.5, 0.1), (3.0, 0.2)], "se": [(1.0, 0.0), (1.0, 0.0)]}
    dots = Dots(title="all", marks=("epsilon = 0.1", "epsilon = 1"), rows=rows, x_label="ratio")
    draw_panels(path, [Panel(title="easy, epsilon = 1", curves=curves), dots], title=LONG)


def tradeoff(_: Path) -> None:
    tradeoff_figure([(0, 1), (0.2, 0.3), (1, 0)], [(0, 1), (0.3, 0.4), (1, 0)])


def void(*_: object, **__: object) -> None:
    """Do nothing: the figure is checked when it is saved."""


PICTURES: dict[str, Callable[[Path], None]] = {
    "budget curve": curve,
    "budget curve of few deltas": short_curve,
    "audit exact": exact,
    "budget dpsgd": epochs,
    "bandit plot": regret,
    "trade-off": tradeoff,
    **{name: lambda _, draw=draw: void(draw()) for name, draw in spread(list(TABLE.items()), 8)},  # type: ignore[misc]  # draw is the default
}


@contextmanager
def looked_at(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Collect the faults of every figure that is saved in the block."""
    found: list[str] = []
    saved = Figure.savefig

    def look(figure: Figure, *args: Any, **options: Any) -> None:
        found.extend(faults(figure))
        saved(figure, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Figure, "savefig", look)
        yield found


def faults(figure: Figure) -> list[str]:
    """Find formulas, texts that overlap or leave the figure, unnamed axes and unnamed lines."""
    figure.draw_without_rendering()
    shown = [(text.get_text(), text.get_window_extent()) for text in texts(figure)]
    left, bottom, right, top = figure.bbox.extents
    found = [f"a formula: {text}" for text, _ in shown if "$" in text]
    found += [
        f"outside: {text}"
        for text, box in shown
        if box.x0 < left - 1 or box.x1 > right + 1 or box.y0 < bottom - 1 or box.y1 > top + 1
    ]
    for (one, a), (other, b) in combinations(shown, 2):
        wide, high = min(a.x1, b.x1) - max(a.x0, b.x0), min(a.y1, b.y1) - max(a.y0, b.y0)
        if wide > 1 and high > 1:
            found.append(f"they meet: {one} and {other}")
    found += ["an axis without a name" for axes in figure.axes if not axes.get_xlabel()]
    return [*found, *unnamed(figure)]


def texts(figure: Figure) -> Iterator[Text]:
    """Yield the drawn texts, without ticks beyond the limits of an axis."""
    hidden: list[Text] = []
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        low, high = sorted(axis.get_view_interval())
        for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
            if not low <= tick.get_loc() <= high:
                hidden += [tick.label1, tick.label2]
    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        if text.get_visible() and text.get_text().strip() and text not in hidden:
            yield text


def unnamed(figure: Figure) -> Iterator[str]:
    """Yield lines missing from every legend: by label, or by colour if they have no label."""
    legends = [*figure.legends, *(axes.get_legend() for axes in figure.axes)]
    listed = [words(text) for legend in legends if legend for text in legend.texts]
    handles = [handle for legend in legends if legend for handle in legend.legend_handles]
    colours = {
        to_hex(handle.get_color() if isinstance(handle, Line2D) else handle.get_edgecolor())  # type: ignore[union-attr]  # a patch
        for handle in handles
    }
    for line in (line for axes in figure.axes for line in axes.lines):
        label = str(line.get_label())
        if not label.startswith("_"):
            if not any(words(label).startswith(entry) for entry in listed):
                yield f"not in the legend: {label}"
        elif figure.legends and to_hex(line.get_color()) not in colours:
            yield "a line in a colour that the legend does not name"


def words(text: object) -> str:
    """Return a text without line breaks, or its start if it was cut."""
    shown = text.get_text() if isinstance(text, Text) else str(text)
    return " ".join(shown.split()).removesuffix(" [...]")


@by_day(2)
@pytest.mark.parametrize("name", list(PICTURES))
def test_a_legible_figure_passes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with looked_at(monkeypatch) as found:
        PICTURES[name](tmp_path / "a.svg")
    assert found == []
    for path in tmp_path.iterdir():
        assert "mathdefault" not in path.read_text(encoding="utf-8")


def wide(figure: Figure, place: Any, **options: Any) -> None:
    figure.legend(loc=place, ncols=9, **options)


@by_day(2)
@pytest.mark.parametrize(
    ("drawn", "name", "stand_in", "fault"),
    [
        (exact, "number_log_axes", void, "a formula: $"),
        (exact, "fold", void, "outside: P = a_long"),
        (epochs, "outside_legend", wide, "outside: noise multiplier"),
        (epochs, "outside_legend", void, "not in the legend: noise multiplier 2"),
    ],
)
def test_an_illegible_figure_is_detected(
    drawn: Callable[[Path], None],
    name: str,
    stand_in: Callable[..., None],
    fault: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, name, stand_in)
    with looked_at(monkeypatch) as found:
        drawn(tmp_path / "a.svg")
    assert [one for one in found if one.startswith(fault)]


def test_overlapping_texts_and_unnamed_axes_are_detected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        looked_at(monkeypatch) as found,
        module.picture("--plot", tmp_path / "a.svg", size=(3, 3)) as figure,
    ):
        axes = figure.add_subplot()
        axes.plot([1, 2], [1, 2], color="red", label="one")
        axes.plot([1, 2], [1, 3], color="blue")
        figure.legend()
        figure.text(0.5, 0.5, "this")
        figure.text(0.51, 0.5, "that")
    assert found == [
        "they meet: this and that",
        "an axis without a name",
        "a line in a colour that the legend does not name",
    ]


def beyond(svg: str) -> list[str]:
    """Return the texts of a written figure that leave it or are formulas."""
    root = ET.fromstring(svg)  # noqa: S314  # our own file
    right, bottom = map(float, root.attrib["viewBox"].split()[2:])
    found = []
    for text in root.iter("{http://www.w3.org/2000/svg}text"):
        style, shown = text.attrib["style"], "".join(text.itertext())
        size = float(re.search(r"font(?:-size)?:(?: \S+)*? ([\d.]+)px", style)[1])  # type: ignore[index]  # each has one
        x, y = float(text.attrib["x"]), float(text.attrib["y"])
        font = FontProperties(size=size)
        wide = text_to_path.get_text_width_height_descent(shown, font, ismath=False)[0]
        share = 0.5 if "middle" in style else 1.0 if "anchor: end" in style else 0.0
        upright = "rotate(-90" in text.attrib["transform"]
        start, most = (bottom - y, bottom) if upright else (x, right)
        start -= share * wide
        if start < -1 or start + wide > most + 1 or "$" in shown:
            found.append(shown)
    return found


@by_day(8)
@pytest.mark.parametrize("path", sorted(FIGURES.glob("*.svg")), ids=lambda path: path.stem)
def test_every_committed_figure_is_legible(path: Path) -> None:
    svg = path.read_text(encoding="utf-8")
    assert beyond(svg) == []
    first = re.search(r">([^<>]*)</text>", svg)
    assert first is not None
    for broken in ("W" * 120, "$\\mathdefault{10^{-2}}$"):
        assert beyond(svg.replace(f">{first[1]}</text>", f">{broken}</text>", 1)) == [broken]
