"""Headless Chromium: the rendered text, the picture and the network requests of a page."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
PATIENCE = 90.0
# No traffic leaves the machine: no host name resolves, for the page or for the browser itself.
QUIET = (
    "--headless=new",
    "--no-sandbox",  # root without user namespaces cannot start the browser otherwise
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--virtual-time-budget=2000",
    "--enable-logging=stderr",
)


def browser() -> str | None:
    """The path of the browser, None if it is not installed."""
    return next(filter(None, map(shutil.which, NAMES)), None)


needs_browser = pytest.mark.skipif(
    browser() is None, reason="needs Chromium: apt-get install chromium"
)


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A rendered page: its document, its requests, its console messages and its picture."""

    dom: str
    requests: tuple[str, ...]
    complaints: tuple[str, ...]
    picture: Path
    width: int
    height: int


@dataclass
class Visible(HTMLParser):
    """The visible words of a page, without closed details, and the ids of all elements."""

    ids: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)
    hidden: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    @classmethod
    def of(cls, page: str) -> Visible:
        seen = cls()
        seen.feed(page)
        return seen

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.pieces).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.ids += [value for name, value in attrs if name == "id" and value]
        closed = tag == "details" and not any(name == "open" for name, _ in attrs)
        if tag in {"style", "title", "desc"} or closed:
            self.hidden.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self.hidden and self.hidden[-1] == tag:
            self.hidden.pop()

    def handle_data(self, data: str) -> None:
        if not self.hidden:
            self.pieces.append(data)


def show(
    page: str, folder: Path, name: str, *, width: int = 900, height: int = 2400, dark: bool = False
) -> Shown:
    """Open a page in a new browser; the picture is also stored in the folder DPCORE_PICTURES."""
    executable = browser()
    assert executable is not None
    file, log, picture = (folder / f"{name}{end}" for end in (".html", ".net.json", ".png"))
    file.write_text(page, encoding="utf-8")
    profile = folder / f"{name}.profile"
    look = ("--blink-settings=preferredColorScheme=0",) if dark else ()
    done = subprocess.run(
        [
            executable, *QUIET, *look, f"--user-data-dir={profile}", f"--log-net-log={log}",
            f"--window-size={width},{height}", f"--screenshot={picture}", "--dump-dom",
            file.as_uri(),
        ],
        capture_output=True,
        encoding="utf-8",
        timeout=PATIENCE,
        check=True,
    )  # fmt: skip
    shutil.rmtree(profile, ignore_errors=True)
    if keep := os.environ.get("DPCORE_PICTURES"):
        Path(keep).mkdir(parents=True, exist_ok=True)
        shutil.copy(picture, Path(keep) / picture.name)
    return Shown(
        dom=done.stdout,
        requests=requested(log),
        complaints=tuple(line for line in done.stderr.splitlines() if "CONSOLE" in line),
        picture=picture,
        width=width,
        height=height,
    )


def requested(log: Path) -> tuple[str, ...]:
    """The requests of the page; requests of the browser itself have no origin and are left out."""
    found = json.loads(log.read_text(encoding="utf-8"))
    start = found["constants"]["logEventTypes"]["URL_REQUEST_START_JOB"]
    asked = [event.get("params", {}) for event in found["events"] if event["type"] == start]
    return tuple(p["url"] for p in asked if p.get("initiator", "not an origin") != "not an origin")
