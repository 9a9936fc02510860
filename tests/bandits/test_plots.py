"""Pictures of regret: written whole, the same bytes for the same data, readable by themselves."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from bandits import plots
from bandits.plots import LOOKS, SPARE, Curve, Panel, draw_panels, looks_of
from benchmarks.figures import dots
from benchmarks.figures.dots import Dots, draw_dots
from dpcore.command.picture import check_picture
from dpcore.errors import InvalidParameter
from tests.effort import by_day
from tests.support.dpcore.mutants import mutated

ROUNDS = [100 * 2**i for i in range(14)]


def line(label: str, level: float = 0.2) -> Curve:
    y = [level * (100 / t) ** 0.5 for t in ROUNDS]
    return Curve(label=label, x=ROUNDS, y=y, error=[value / 10 for value in y])


def draw(path: Path, curves: list[Curve], *, title: str) -> None:
    draw_panels(path, [Panel(title=title, curves=curves)], title="")


def two() -> list[Curve]:
    return [line("dist-dp-se"), line("se", 0.1)]


def test_a_picture_says_what_it_shows(tmp_path: Path) -> None:
    path = tmp_path / "regret.svg"
    draw(path, two(), title="easy, epsilon = 0.5 & more")
    text = path.read_text(encoding="utf-8")
    for word in (
        ">0.00221 dist-dp-se<",
        ">0.0011 se<",
        "round t",
        "regret per round, Reg(t)/t",
        "0.5 &amp; more",
    ):
        assert word in text
    assert "1e4" in text
    assert "mathdefault" not in text
    assert [*tmp_path.iterdir()] == [path]


@by_day(1)
@pytest.mark.parametrize("ending", ["svg", "png", "pdf"])
def test_the_same_data_give_the_same_bytes(tmp_path: Path, ending: str) -> None:
    found = []
    for name in ("one", "two"):
        path = tmp_path / f"{name}.{ending}"
        draw(path, two(), title="the same")
        found.append(path.read_bytes())
    assert found[0] == found[1]
    draw(tmp_path / f"three.{ending}", [line("se")], title="the same")
    assert found[0] != (tmp_path / f"three.{ending}").read_bytes()


def test_a_picture_without_a_salt_is_not_the_same_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plots, "_STYLE", {**plots._STYLE, "svg.hashsalt": None})
    for name in ("one", "two"):
        draw(tmp_path / f"{name}.svg", two(), title="the same")
    assert (tmp_path / "one.svg").read_bytes() != (tmp_path / "two.svg").read_bytes()


def test_an_algorithm_looks_the_same_in_every_picture_and_like_no_other() -> None:
    names = ["se", "dist-dp-se", "dist-rdp-se s=100", "dist-rdp-se s=10", "mine", "dp-se, paper"]
    looks = looks_of([*names, *reversed(names)])
    assert len({repr(look) for look in looks.values()}) == len(names)
    for name, known in (
        ("dist-dp-se", "dist-dp-se"),
        ("dp-se, paper", "dp-se"),
        ("dist-rdp-se s=10", "dist-rdp-se"),
        ("dist-rdp-se s=100", "dist-rdp-se:s=100"),
    ):
        assert looks[name] == LOOKS[known]
    assert looks_of(["dist-rdp-se:s=100"]) == {"dist-rdp-se:s=100": LOOKS["dist-rdp-se:s=100"]}
    assert looks_of(["dist-dp-se:new"]) == {"dist-dp-se:new": LOOKS["dist-dp-se"]}


def test_no_other_name_looks_like_an_algorithm_that_is_not_there() -> None:
    variants = [f"dp-se, version {i}" for i in range(1 + len(SPARE))]
    others = [look for name, look in looks_of(variants).items() if name != variants[0]]
    assert not [look for look in others if look in LOOKS.values()]
    assert len({repr(look) for look in others}) == len(SPARE)
    # In the place of a spare look it was that of the first algorithm without a line.
    careless = mutated(looks_of, "SPARE[i % len(SPARE)]", "[*LOOKS.values()][i % len(LOOKS)]")
    assert any(look in LOOKS.values() for look in list(careless(variants).values())[1:])


def test_a_picture_says_what_its_bands_are_and_where_its_lines_end(tmp_path: Path) -> None:
    draw_panels(tmp_path / "a.svg", [Panel(title="", curves=two())], title="Regret")
    text = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert f">{plots.ERROR_NOTE}<" in text
    assert ">at the end<" in text
    bound = Curve(label="se", x=(1, 2), y=(2.1, 2.2541), error=(0, 0), last="2.255")
    draw(tmp_path / "c.svg", [bound], title="")
    assert ">2.255 se<" in (tmp_path / "c.svg").read_text(encoding="utf-8")
    note = f"{plots.ERROR_NOTE} over 20 instances"
    draw_panels(tmp_path / "b.svg", [Panel(title="", curves=two())], title="", note=note)
    assert f">{note}<" in (tmp_path / "b.svg").read_text(encoding="utf-8")


def test_two_powers_of_ten_have_ticks_between_them(tmp_path: Path) -> None:
    curve = Curve(label="se", x=(1, 1e6), y=(0.2, 0.003), error=(0.0, 0.0))
    draw(tmp_path / "a.svg", [curve], title="")
    text = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert all(f">{tick}<" in text for tick in ("0.005", "0.01", "0.02", "0.05"))


def test_bars_at_the_same_x_stand_beside_each_other() -> None:
    from matplotlib.figure import Figure

    axes = Figure().add_subplot()
    axes.set_xscale("log")
    axes.set_xlim(0.1, 1)
    curve = Curve(label="se", x=(0.1, 0.5, 1), y=(1, 1, 1), error=(0, 0, 0))
    places = [plots._moved(axes, curve, beside) for beside in (-1, 0, 1)]
    assert [*places[1]] == [*curve.x]
    assert all(a < b < c for a, b, c in zip(*places, strict=True))
    many = line("se")
    assert plots._moved(axes, many, 1) == many.x


def test_more_names_than_looks_are_drawn_all_the_same(tmp_path: Path) -> None:
    curves = [line(f"name {i}", 0.1 + i / 100) for i in range(14)]
    draw(tmp_path / "many.svg", curves, title="")
    text = (tmp_path / "many.svg").read_text(encoding="utf-8")
    assert all(f" name {i}<" in text for i in range(14))


def test_a_band_that_reaches_zero_is_cut(tmp_path: Path) -> None:
    wide = Curve(label="se", x=(10, 100, 1000), y=(0.1, 0.01, 0.0), error=(0.2, 0.2, 0.0))
    draw(tmp_path / "cut.svg", [wide], title="")
    assert "nan" not in (tmp_path / "cut.svg").read_text(encoding="utf-8")
    flat = Curve(label="se", x=(10,), y=(0.0,), error=(0.0,))
    with pytest.raises(InvalidParameter, match="logarithmic"):
        draw(tmp_path / "flat.svg", [flat], title="")
    assert not (tmp_path / "flat.svg").exists()


def test_few_points_have_ticks_of_their_own(tmp_path: Path) -> None:
    curve = Curve(label="dist-dp-se", x=(0.1, 0.5, 1), y=(0.3, 0.4, 0.5), error=(0.1, 0.0, 0.1))
    panel = Panel(
        title="", curves=[curve], x_label="epsilon", y_label="ratio", y_scale="linear",
        ticks=(0.1, 0.5, 1),
    )  # fmt: skip
    draw_panels(tmp_path / "few.svg", [panel, panel], title="saved")
    text = (tmp_path / "few.svg").read_text(encoding="utf-8")
    assert len(re.findall(r">0\.5</text>", text)) >= 2


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        ({"x": ()}, "one x or more"),
        ({"y": (1.0,)}, "one y and one error"),
        ({"y": (1.0, float("nan"))}, "finite"),
        ({"x": (10, 10)}, "increasing"),
        ({"error": (0.0, -1.0)}, "errors >= 0"),
    ],
)
def test_bad_curves(edit: dict[str, Any], reason: str) -> None:
    good: dict[str, Any] = {"label": "se", "x": (1, 2), "y": (0.1, 0.2), "error": (0.0, 0.0)}
    with pytest.raises(InvalidParameter, match=reason):
        Curve(**good | edit)


def test_bad_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path, reason in (
        (tmp_path / "a.gif", "must end in"),
        (tmp_path / "absent" / "a.svg", "no folder"),
    ):
        with pytest.raises(InvalidParameter, match=reason):
            check_picture("--output", path)
    (tmp_path / "folder.svg").mkdir()
    with pytest.raises(InvalidParameter, match="not a path"):
        check_picture("--output", tmp_path / "folder.svg")
    with pytest.raises(InvalidParameter, match="curves"):
        Panel(title="", curves=())
    with pytest.raises(InvalidParameter, match="panels"):
        draw_panels(tmp_path / "a.svg", (), title="")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InvalidParameter, match=r"dpcore\[plot\]"):
        draw(tmp_path / "a.svg", two(), title="")


def test_a_picture_that_cannot_be_moved_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(InvalidParameter, match="No space left"):
        draw(tmp_path / "a.svg", two(), title="")
    assert [*tmp_path.iterdir()] == []


# Rows of marks: every value is drawn at its place, in shapes that grey does not hide.

MARKS = ("epsilon = 0.1", "epsilon = 1")
ROWS = {"ldp-se": [(40.0, 2.0), (9.0, 1.0)], "dist-dp-se": [(1.7, 0.1), (1.03, 0.04)]}
GOOD: dict[str, Any] = {"title": "easy", "marks": MARKS, "rows": ROWS, "x_label": "to se"}


def test_a_picture_names_its_rows_and_marks(tmp_path: Path) -> None:
    panels = [Dots(**GOOD, x_scale="log"), Dots(**GOOD)]
    draw_panels(tmp_path / "a.svg", panels, title="What privacy costs")
    text = (tmp_path / "a.svg").read_text(encoding="utf-8")
    for word in (*MARKS, *ROWS, "to se", "What privacy costs", plots.ERROR_NOTE):
        assert f">{word}<" in text


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
    assert len({shape for shape, _ in dots._SHAPES}) == len(dots._SHAPES)
    assert [text.get_text() for text in axes.get_yticklabels()] == [*ROWS]


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
