"""Tests of the HTML report in a browser: rendering, and no network requests."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.audit.browser import needs_browser, show
from tests.support.audit.html_documents import (
    COMMAND,
    DOCUMENTS,
    NASTY,
    VERDICTS,
    refuted,
    shown_of,
)

LOOKS: dict[str, dict[str, Any]] = {
    "refuted": {},
    "not-refuted": {"dark": True},
    "sequential": {"width": 400, "height": 3000},
    "labels": {"width": 700, "dark": True},
    "curve": {"height": 3200},
    "proven": {"width": 700, "height": 1100},
    "failed": {"width": 700},
}
SEEN: dict[str, list[str]] = {
    "refuted": ["Other methods", "bayes", COMMAND, "For comparison only", "at least"],
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


@pytest.mark.nightly
@needs_browser
@pytest.mark.parametrize("name", LOOKS)
def test_a_browser_renders_the_page_without_network_requests(name: str, tmp_path: Path) -> None:
    from matplotlib.image import imread

    document = DOCUMENTS[name]().to_json()
    seen = show(shown_of(name), tmp_path, name, **LOOKS[name])
    assert seen.requests == ()
    assert seen.complaints == ()
    for words in (VERDICTS[name], *SEEN[name]):
        assert words in seen.text
    witness = document["witness"]
    if witness is not None and "inside_a" in witness:
        assert (
            f"{witness['inside_a']} of {witness['runs_a']} runs on dataset A, "
            f"{witness['inside_b']} of {witness['runs_b']} on dataset B"
        ) in seen.text
    assert seen.dom.count("<svg") == (1 if name == "proven" else 3)
    if document.get("histogram"):
        cells = document["histogram"]["bins"]
        bars = [found for found in seen.ids if found.startswith("histogram-bar-")]
        assert len(bars) == sum((c["count_a"] > 0) + (c["count_b"] > 0) for c in cells)
        marked = any(found.startswith("histogram-witness-") for found in seen.ids)
        assert marked == any(c["in_witness"] != "none" for c in cells)
    picture = np.asarray(imread(seen.picture))[..., :3]
    assert picture.shape[:2] == (seen.height, seen.width)
    assert len(np.unique(picture @ [1.0, 2.0, 4.0])) > 20, "next to nothing is drawn"
    assert bool(picture[0, 0].mean() < 0.2) is LOOKS[name].get("dark", False)


@pytest.mark.nightly
@needs_browser
def test_a_network_request_is_detected_and_the_policy_blocks_it(tmp_path: Path) -> None:
    wanted = '<img src="http://127.0.0.1:9/a.png"><script>document.title = "ran"</script></main>'
    asking = refuted().to_html().replace("</main>", wanted)
    stopped = show(asking, tmp_path, "stopped")
    assert stopped.requests == ()
    assert stopped.complaints != ()
    assert "<title>ran" not in stopped.dom
    open_to_all = re.sub(r"<meta http-equiv[^>]*>", "", asking)
    let_through = show(open_to_all, tmp_path, "let-through")
    assert let_through.requests == ("http://127.0.0.1:9/a.png",)
    assert "<title>ran" in let_through.dom
