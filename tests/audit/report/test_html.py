"""Tests of the HTML report: its text, escaping and size, and drawings against the counts."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from markupsafe import Markup

from audit.claims import Claim
from audit.errors import TargetFailed
from audit.formats import result
from audit.formats.shorten import printable
from audit.report import figures
from audit.report.audit_report import AuditReport
from audit.report.figure_data import Bin, Histogram, histogram
from audit.report.figures import curve_figure, histogram_figure, trace_figure
from audit.search.worst_pair_search import SearchResult
from audit.statistical_tests.clopper_pearson_and_other_baselines import BaselineFinding
from audit.statistical_tests.event import Witness
from audit.statistical_tests.sample_outcome import Outcome
from audit.verdict_words_and_exit_codes import VerdictWord
from tests.day_and_nightly import by_day, effort, spread
from tests.support.audit.browser import Visible
from tests.support.audit.html_documents import (
    COMMAND,
    DOCUMENTS,
    NASTY,
    VERDICTS,
    curve,
    exact,
    refuted,
    shown_of,
)
from tests.support.audit.parse_witness import in_event, spans, worded
from tests.support.dpcore.mutants import mutated, rewired

SEEN: dict[str, list[str]] = {
    "refuted": ["Other methods", "bayes", COMMAND, "at least"],
    "not-refuted": ["12 outputs are nan", "This is not a proof"],
    "sequential": ["e-value", "the evidence sufficed at run"],
    "labels": ["array([0, 0, 0, 0, 0, 0], dtype=uint8)"],
    "curve": [
        "discrete-gaussian:sigma_squared=4@1", "at delta = 0.01", "Pair 2",
        "All runs on pair 1.", "[1, 2]",
        "On tape 12 both outputs are <the dataset> itself.", "error, refutes", "integers 0..9",
        "tested: not refuted", "outputs themselves",
        "Does the sampler follow its claimed distribution?",
    ],
    "proven": ["exactly 1 on this pair (proven)", "proven from their exact distributions"],
    "failed": [NASTY, "raised ValueError: <b>no</b> (dataset B, run 97)"],
}  # fmt: skip


@by_day(3)
@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_page_is_self_contained_and_the_verdict_comes_first(name: str) -> None:
    shown = shown_of(name)
    if name == "curve":  # it has every figure: the same report gives the same bytes
        assert DOCUMENTS[name]().to_html(command=COMMAND) == shown
    assert "default-src 'none'" in shown
    assert re.findall(r"""(?:src|href|action)=["'](?!#|data:)""", shown) == []
    assert re.findall(r"@import|url\((?!#)|<script|<iframe|<object", shown) == []
    seen = Visible.of(shown)
    assert len(seen.ids) == len(set(seen.ids)), "an id is used twice"
    assert seen.tags.count("h1") == 1
    for name_of in re.findall(r'aria-labelledby="([^"]*)"', shown):
        assert set(name_of.split()) <= set(seen.ids)
    assert seen.tags.count("svg") == seen.tags.count("desc") == shown.count('role="img"')
    assert seen.words.index(VERDICTS[name]) < seen.words.index("Claim")
    for words in SEEN.get(name, ()):
        assert words in seen.words
    assert shown.count("<svg") == (1 if name in {"proven", "exact-refuted"} else 3)
    names = re.findall(r"<dt>(.*?)</dt>", shown.partition("</dl>")[0])
    assert len(set(names)) == len(names), "a row is shown twice"
    assert re.search(r"\bprivate\b", seen.words, re.IGNORECASE) is None


def test_the_embedded_report_is_the_document() -> None:
    report = replace(exact("1"), target=f"\ud800\x00é{NASTY}")
    found = re.search(r'<pre id="report-json">(.*?)</pre>', report.to_html(), re.DOTALL)
    assert found is not None
    assert json.loads("".join(Visible.of(found[1]).pieces)) == json.loads(report.to_text())


OPTIONAL: dict[str, Any] = {
    "pairs": (), "outcomes": (), "fit": None, "findings": (), "baselines": (), "search": None,
    "histogram": None, "trace": None, "witness": None, "layers": (), "warnings": (),
}  # fmt: skip


def test_missing_parts_are_omitted_from_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("histogram", "trace", "line", "curve"):
        monkeypatch.setattr(figures, f"{name}_figure", lambda *_: Markup("<svg/>"))
    report = replace(curve(), warnings=("something to know",))
    shown = report.to_html()
    assert len(shown) < len(report.to_html(command=COMMAND))
    for key, value in OPTIONAL.items():
        without = replace(report, **{key: value}).to_html()
        assert len(without) < len(shown), key
        assert without.count("<h2>") <= shown.count("<h2>")


def told_by(report: AuditReport, text: str) -> AuditReport:
    """The report with ``text`` in every place that a target or a command can fill."""
    assert report.histogram is not None
    assert isinstance(report.witness, Witness)
    first, *rest = report.histogram.bins
    odd = replace(first, label=text, low=None, high=None)
    error = TargetFailed(text, "", dataset="A", run=1)
    error.reason = text
    return replace(
        report,
        target=text, pair=(text, text), pairs=((text, text),), warnings=(text,), stopped=text,
        search=SearchResult(space=text, pair=(text, text), runs=5, tried=()), versions={text: text},
        baselines=(BaselineFinding(name=text, epsilon_lower=1, says=text, valid=False),),
        layers=tuple(replace(layer, method=text, proves=text) for layer in report.layers),
        witness=replace(report.witness, event=text),
        outcomes=tuple(replace(row, feature=text) for row in report.outcomes),
        findings=tuple(
            replace(found, statement=text, kind=text, witness={text: text})
            for found in report.findings
        ),
        histogram=replace(report.histogram, bins=(odd, *rest)), error=error,
    )  # fmt: skip


def test_text_from_a_target_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("trace", "line", "curve")[: effort(3, 4) % 4]:  # by day only labels are drawn
        monkeypatch.setattr(figures, f"{name}_figure", lambda *_: Markup("<svg/>"))
    nasty = f"\x00\ud800{NASTY}"
    report = told_by(curve(), nasty)
    verdicts: tuple[VerdictWord | None, ...] = ("refuted", None)
    for verdict in verdicts:
        shown = replace(report, verdict=verdict).to_html(command=nasty)
        shown.encode("utf-8")
        assert "\x00" not in shown
        assert "<script" not in shown
        assert "script" not in Visible.of(shown).tags
    monkeypatch.setattr(result, "code", Markup)  # the mutant escapes nothing
    assert "script" in Visible.of(replace(refuted(), target=NASTY).to_html()).tags


def bulky(sign: str) -> AuditReport:
    """A report in which every text from a target or a command is long, and every list too."""
    long, many = sign * 10**4, 300
    report = told_by(curve(), long)
    assert report.histogram is not None
    cell = report.histogram.bins[0]
    names = tuple(replace(cell, label=sign * 40 + str(i)) for i in range(27))
    finding = replace(report.findings[0], witness={"output_a": [long] * 3})
    return replace(
        report,
        pair=([long], {long: long}), pairs=(([long], {long: long}),) * many,
        warnings=(long,) * many, outcomes=(report.outcomes[-1],) * many,
        versions={f"{i}{long[:9999]}": long[:9999] for i in range(many)},
        findings=(finding,) * many, layers=report.layers * 4, baselines=report.baselines * 7,
        histogram=replace(report.histogram, bins=names, feature=long),
    )  # fmt: skip


@by_day(1)
@pytest.mark.parametrize("sign", ["x", "'", "\ud800", "漢"])
def test_a_page_is_small_and_states_what_was_cut(
    sign: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "histogram_figure", lambda *_: Markup("<svg/>"))
    shown = bulky(sign).to_html(command=sign * 10**4)
    assert len(shown.encode()) < 2_000_000
    digest = hashlib.sha256((sign * 10**4).encode("utf-8", "surrogatepass")).hexdigest()[:12]
    assert shown.count(f"... (10,000 characters, SHA-256 {digest})") > 100
    assert "and 260 more" in shown
    assert "Too long for a page" in shown


class Shy(str):
    __slots__ = ()

    def __iter__(self) -> Iterator[str]:
        return iter("")


HIDDEN = "\u202e\u2066\u200b\u200f\ufeff\u2028\u00ad\U000e0041\x1b\x9b\x7f\ufffe\ud83d"


def test_invisible_and_reordering_characters_are_replaced() -> None:
    for sign in HIDDEN:
        assert printable(f"a{sign}b") == "a\ufffdb", hex(ord(sign))
    kept = "naïve 漢字 שלום 👩\u200d🔬 e\u0301 \u200c\n\t"
    assert printable(kept) == kept
    assert printable(Shy("a\u202eb")) == "a\ufffdb"
    report = replace(refuted(), target=f"user{HIDDEN}.py", pair=(HIDDEN, f"{HIDDEN}x"))
    assert not set(HIDDEN) & set(report.to_html())


def drawn(label: str) -> str:
    odd = Bin(label=label, count_a=1, count_b=0)
    return str(histogram_figure(Histogram(bins=(odd,), runs_a=1, runs_b=0)))


def test_labels_are_drawn_as_text_and_cannot_imitate_a_drawing() -> None:
    for label in ("'#000001'", 'id=\'x\' id="y" url(#a) href="#b"', "</text></svg>"):
        assert label in "".join(Visible.of(drawn(label)).pieces)
    for label, text in (
        ("'$\\frac{1}{2}$ & <b>'", "'$\\frac{1}{2}$ &amp; &lt;b&gt;'"),
        ("漢字 🔥", "漢字 🔥"),
        ("\ud800\x00\n", "\ufffd\ufffd"),
    ):
        assert text in drawn(label)


def histogram_of(report: AuditReport) -> Histogram:
    assert report.histogram is not None
    return report.histogram


def heights(picture: str, world: str, part: str = "bar") -> dict[int, float]:
    """The height of each bar, from its path."""
    found = {}
    for i, path in re.findall(
        rf'id="histogram-{part}-{world}-(\d+)">\s*<path d="([^"]*)"', picture
    ):
        ys = [float(y) for _, y in re.findall(r"([\d.]+) ([\d.]+)", path)]
        found[int(i)] = max(ys) - min(ys)
    return found


def agree(picture: str, found: Histogram) -> bool:
    """Whether the heights of the bars are proportional to the counts."""
    tallest = max(max(cell.count_a, cell.count_b) for cell in found.bins)
    drawn = [heights(picture, world) for world in "ab"]
    unit = max(max(side.values()) for side in drawn) / tallest
    counts = [
        {i: cell.count_a for i, cell in enumerate(found.bins) if cell.count_a},
        {i: cell.count_b for i, cell in enumerate(found.bins) if cell.count_b},
    ]
    return all(
        side.keys() == expected.keys()
        and all(abs(side[i] - unit * count) < 0.01 for i, count in expected.items())
        for side, expected in zip(drawn, counts, strict=True)
    )


def test_bar_heights_are_proportional_to_the_counts() -> None:
    found = histogram_of(refuted())
    assert agree(histogram_figure(found), found)
    inside = heights(histogram_figure(found), "a", "inside")
    assert inside.keys() == {i for i, cell in enumerate(found.bins) if cell.inside_a}
    swapped = mutated(figures._cells, "-0.5, cell.count_a", "-0.5, cell.count_b")
    assert not agree(rewired(histogram_figure, _cells=swapped)(found), found)


def test_the_shading_ends_where_the_event_ends() -> None:
    worlds = np.arange(4000) % 2 == 0
    for outputs, event, share in (
        (np.arange(4000), "output <= 1039", 0.2),  # 40 of the integers 1000 to 1199
        (np.arange(4000) + 0.5, "output < 1040.5", 0.2025),
    ):
        covered = [cell.covered for cell in worded(outputs, worlds, event).bins]
        assert covered[:5] == [((0.0, 1.0),)] * 5
        assert np.allclose(covered[5], [(0.0, share)])
        assert covered[6:] == [()] * len(covered[6:])
    mutant = rewired(histogram, _covered=lambda cell, _: ((0.0, 1.0),) * bool(cell.inside_a))
    inside, told = in_event(event, outputs), spans(event, whole=False)
    careless = mutant(outputs, worlds, event, inside, told, pair=0, feature=None)
    assert careless.bins[5].covered == ((0.0, 1.0),)


def test_a_rare_witness_is_drawn_on_a_labelled_logarithmic_axis() -> None:
    common = Bin(label="0", low=0.0, high=0.0, count_a=9000, count_b=9100)
    rare = Bin(label="1", low=1.0, high=1.0, count_a=0, count_b=9, inside_b=9)
    found = Histogram(bins=(common, rare), runs_a=9000, runs_b=9109, event="output in {1}")
    picture = histogram_figure(found)
    assert "runs (logarithmic axis)" in picture
    assert heights(picture, "b", "inside")[1] > heights(picture, "b")[0] / 10
    assert "logarithmic" not in histogram_figure(histogram_of(refuted()))


def test_figures_have_axis_labels_and_legends() -> None:
    found, trace = histogram_of(refuted()), refuted().trace
    assert trace is not None
    point = Outcome(claim=Claim(epsilon=1, delta="0.01"), epsilon_lower=1.5, refuted=True)
    a = f"A: {found.runs_a:,} runs"
    for picture, words in (
        (histogram_figure(found), ("output, read through identity", "runs", "witness", a)),
        (trace_figure(trace), ("epsilon", "claimed: 1")),
        (
            curve_figure([(0.0, 0.2), (1.0, 0.01)], [point]),
            ("epsilon", "delta (logarithmic axis)", "claimed curve", "tested: refuted"),
        ),
    ):
        assert [word for word in words if f">{word}<" not in picture] == []
    assert "runs, both datasets together (logarithmic axis)" in trace_figure(trace)


def test_degenerate_figures_are_drawn_and_no_state_of_matplotlib_is_touched() -> None:
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    cases: list[tuple[Any, Claim, float]] = [
        ([], Claim(epsilon=0), 0.0),
        ([(0.0, 0.0)], Claim(epsilon=0), 0.0),
        ([(0.0, 1e-300)], Claim(epsilon=1, delta="1e-300"), 9.0),
    ]
    for line, claim, bound in spread(cases, 2):
        for points in ([Outcome(claim=claim, epsilon_lower=bound, refuted=bound > 0)], []):
            assert curve_figure(line, points).startswith("<svg")
    assert "<svg" in histogram_figure(Histogram(bins=(), runs_a=0, runs_b=0))
    assert dict(mpl.rcParams) == before
