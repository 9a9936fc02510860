"""Tests of the HTML report in a browser: rendering, and no network requests."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.audit.browser import Visible, needs_browser, show
from tests.support.audit.html_documents import (
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


@pytest.mark.nightly
@needs_browser
@pytest.mark.parametrize("name", LOOKS)
def test_a_browser_renders_the_page_without_network_requests(name: str, tmp_path: Path) -> None:
    from matplotlib.image import imread

    page = shown_of(name)
    seen = show(page, tmp_path, name, **LOOKS[name])
    assert seen.requests == ()
    assert seen.complaints == ()
    assert VERDICTS[name] in Visible.of(seen.dom).words
    assert {*Visible.of(seen.dom).ids} >= {*Visible.of(page).ids}
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
