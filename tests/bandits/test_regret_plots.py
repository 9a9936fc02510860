"""Tests of regret plots: complete files, the same bytes for the same data, legible labels."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from bandits import regret_plots
from bandits.regret_plots import LOOKS, Curve, Panel, draw_panels, looks_of
from dpcore.errors import InvalidParameter
from tests.day_and_nightly import by_day

ROUNDS = [100 * 2**i for i in range(14)]


def line(label: str, level: float = 0.2) -> Curve:
    y = [level * (100 / t) ** 0.5 for t in ROUNDS]
    return Curve(label=label, x=ROUNDS, y=y, error=[value / 10 for value in y])


def draw(path: Path, curves: list[Curve], *, title: str) -> None:
    draw_panels(path, [Panel(title=title, curves=curves)], title="")


def two() -> list[Curve]:
    return [line("dist-dp-se"), line("se", 0.1)]


def test_a_figure_has_titles_labels_and_a_note_on_its_bands(tmp_path: Path) -> None:
    def text_of(*curves: Curve, **given: str) -> str:
        panel = Panel(title="easy, epsilon = 0.5 & more", curves=list(curves))
        draw_panels(tmp_path / "regret.svg", [panel], **{"title": "", **given})
        assert [*tmp_path.iterdir()] == [tmp_path / "regret.svg"]
        return (tmp_path / "regret.svg").read_text(encoding="utf-8")

    text = text_of(*two(), title="Regret")
    for word in (
        *(">0.00221 dist-dp-se<", ">0.0011 se<", "round t", "regret per round, Reg(t)/t"),
        *("0.5 &amp; more", "1e4", f">{regret_plots.ERROR_NOTE}<", ">at the end<"),
    ):
        assert word in text
    assert "mathdefault" not in text
    bound = Curve(label="se", x=(1, 2), y=(2.1, 2.2541), error=(0, 0), last="2.255")
    note = f"{regret_plots.ERROR_NOTE} over 20 instances"
    text = text_of(bound, note=note)
    assert ">2.255 se<" in text
    assert f">{note}<" in text


def test_curves_of_few_points_have_margins_and_are_drawn_side_by_side() -> None:
    few = [Curve(label=name, x=(1, 2), y=(y, y), error=(0, 0)) for name, y in (("a", 2), ("b", 1))]
    for curves, low, high in ((few, 1 / 1.15, 2.3), ([few[0], line("c")], 1, ROUNDS[-1])):
        axes = Figure().subplots()
        Panel(title="", curves=curves).draw(axes, looks_of("abc"))
        assert axes.get_xlim() == pytest.approx((low, high))
        if curves is few:
            first, second = (np.log(each.get_xdata()) for each in axes.lines)
            assert second - first == pytest.approx(0.012 * np.log(high / low))


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


def test_each_algorithm_has_one_distinct_style_in_all_figures() -> None:
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


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        ({"x": ()}, "at least one x"),
        ({"y": (1.0,)}, "one y and one error"),
        ({"y": (1.0, float("nan"))}, "finite"),
        ({"x": (10, 10)}, "x must be increasing"),
        ({"error": (0.0, -1.0)}, "errors must be >= 0"),
    ],
)
def test_invalid_curves_are_refused(edit: dict[str, Any], reason: str) -> None:
    good: dict[str, Any] = {"label": "se", "x": (1, 2), "y": (0.1, 0.2), "error": (0.0, 0.0)}
    with pytest.raises(InvalidParameter, match=reason):
        Curve(**good | edit)


def test_figures_without_curves_or_matplotlib_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidParameter, match="curves"):
        Panel(title="", curves=())
    with pytest.raises(InvalidParameter, match="panels"):
        draw_panels(tmp_path / "a.svg", (), title="")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InvalidParameter, match=r"dpcore\[plot\]"):
        draw(tmp_path / "a.svg", two(), title="")
