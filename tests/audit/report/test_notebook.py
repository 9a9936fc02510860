r"""In a notebook: the card of a report, and the bar."""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from types import SimpleNamespace
from typing import Any

import pytest

import audit
from audit.evidence.event import Witness
from dpcore.command.progress import in_notebook, notebook_bar


class Frame(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def _frame(html: str) -> Frame:
    frame = Frame()
    frame.feed(html)
    return frame


def _noisy(value: Any, n: int, rng: Any) -> Any:
    return value + rng.laplace(scale=0.25, size=n)


def test_the_card_shows_the_verdict_and_loads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("matplotlib")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # its import fails: the extra is missing
    report = audit.audit(_noisy, "epsilon=1", pair=(0, 1), runs=4000, seed=7)
    ((tag, frame),) = _frame(report._repr_html_()).tags
    assert tag == "iframe"
    assert "sandbox" in frame
    assert "src" not in frame
    document = frame["srcdoc"]
    assert document is not None
    assert "<strong>REFUTED</strong>" in document
    witness = report.witness
    assert isinstance(witness, Witness)
    for counted in (witness.inside_a, witness.runs_a, witness.inside_b, witness.runs_b):
        assert f"<td>{counted:,}</td>" in document
    inside = _frame(document).tags
    assert not {name for name, _ in inside} & {"script", "img", "iframe", "object"}
    assert not [own for _, own in inside if "src" in own or own.get("href", "data:,") != "data:,"]
    assert "default-src &#x27;none&#x27;" in document or "default-src 'none'" in document


def test_what_a_target_gives_is_text_in_the_card() -> None:
    def hostile(value: int) -> str:
        return '</iframe><script>alert("1")</script>' * value

    report = audit.audit(hostile, "epsilon=1", pair=(1, 2), runs=400, seed=7)
    assert [tag for tag, _ in _frame(report._repr_html_()).tags] == ["iframe"]
    document = _frame(report._repr_html_()).tags[0][1]["srcdoc"] or ""
    assert "script" not in {tag for tag, _ in _frame(document).tags}


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


def test_an_audit_shows_a_bar_in_a_notebook_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    display = _notebook(monkeypatch, SimpleNamespace(kernel=object()))
    audit.audit(_noisy, "epsilon=1", pair=(0, 1), runs=4000, seed=7)
    assert any("4,000 of 4,000 runs" in html for html in display.shown)
    assert display.shown[-1] == ""


@pytest.mark.parametrize("shell", [None, SimpleNamespace()])
def test_elsewhere_there_is_none(monkeypatch: pytest.MonkeyPatch, shell: Any) -> None:
    display = _notebook(monkeypatch, shell)
    assert not in_notebook()
    with notebook_bar("runs", 10) as progress:
        progress(10)
    assert display.shown == []


def test_an_error_takes_the_bar_away(monkeypatch: pytest.MonkeyPatch) -> None:
    display = _notebook(monkeypatch, SimpleNamespace(kernel=object()))
    with pytest.raises(ZeroDivisionError), notebook_bar("runs", 10):
        raise ZeroDivisionError
    assert display.shown[-1] == ""
