r"""Tests of notebooks: the HTML card of a report, and the progress bar."""

from __future__ import annotations

import html
import re
import sys
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace
from typing import Any, cast

import pytest

import audit
from audit.statistical_tests.event import Witness
from dpcore.cli.terminal import in_notebook, notebook_bar
from tests.support.audit.browser import Visible
from tests.support.audit.html_documents import NASTY


def _noisy(value: Any, n: int, rng: Any) -> Any:
    return value + rng.laplace(scale=0.25, size=n)


def test_the_card_shows_the_verdict_and_loads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("matplotlib")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # its import fails: the extra is missing
    report = audit.audit(_noisy, "epsilon=1", pair=(0, 1), runs=4000, seed=7)
    report = replace(report, target=f"</iframe>{NASTY}")
    framed = re.fullmatch(
        r'<iframe sandbox [^<>]*srcdoc="([^"<>]*)"></iframe>', report._repr_html_()
    )
    assert framed is not None
    document = html.unescape(framed[1])
    assert "<strong>REFUTED</strong>" in document
    assert "default-src 'none'" in document
    witness = report.witness
    assert isinstance(witness, Witness)
    for counted in (witness.inside_a, witness.runs_a, witness.inside_b, witness.runs_b):
        assert f"<td>{counted:,}</td>" in document
    assert not {*Visible.of(document).tags} & {"script", "img", "iframe", "object", "svg"}
    assert re.findall(r"""(?:src|href)=["'](?!data:)""", document) == []


class _Display:
    def __init__(self) -> None:
        self.shown: list[str] = []

    def HTML(self, text: str) -> str:
        return text

    def display(self, html: str, *, display_id: bool) -> _Display:
        assert display_id
        self.shown.append(html)
        return self

    def update(self, html: str) -> None:
        self.shown.append(html)


def _notebook(monkeypatch: pytest.MonkeyPatch, shell: Any) -> _Display:
    display = _Display()
    fake = SimpleNamespace(get_ipython=lambda: shell, display=display)
    monkeypatch.setitem(sys.modules, "IPython", fake)
    return display


def test_a_progress_bar_is_shown_only_in_a_notebook_and_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    display = _notebook(monkeypatch, SimpleNamespace(kernel=object()))
    audit.audit(_noisy, "epsilon=1", pair=(0, 1), runs=4000, seed=7)
    assert any("4,000 of 4,000 runs" in html for html in display.shown)
    assert display.shown[-1] == ""
    with pytest.raises(ZeroDivisionError), notebook_bar("runs", 10):
        raise ZeroDivisionError
    assert display.shown[-1] == ""
    for shell in (None, SimpleNamespace()):
        display = _notebook(monkeypatch, shell)
        assert not in_notebook()
        with notebook_bar("runs", 10) as progress:
            progress(10)
        assert display.shown == []


def test_a_plot_has_the_claimed_and_the_measured_epsilon_of_each_point() -> None:
    pytest.importorskip("matplotlib", reason="the extra 'plot' is not installed")
    from matplotlib.figure import Figure

    for claim in ("epsilon=1", "gdp=2"):
        axes = cast("Any", Figure().add_subplot())
        report = audit.audit(_noisy, claim, pair=(0, 1), runs=4000, seed=7)
        assert (report.plot(axes) is axes) is True
        claimed = [line.get_xdata()[0] for line in axes.lines]
        measured = [bar.get_width() for bar in axes.patches]
        rows = report.to_json()["outcomes"]
        points = {(Fraction(row["epsilon"]), Fraction(row["delta"])) for row in rows}
        assert (len(points) > 1) is (claim == "gdp=2")
        assert claimed == [float(epsilon) for epsilon, _ in sorted(points)]
        if claim == "epsilon=1":
            assert measured == [report.epsilon_lower]
        else:
            assert max(measured) == max(row["epsilon_lower"] for row in rows)
        assert "ruled out" in axes.get_legend_handles_labels()[1][-1]
