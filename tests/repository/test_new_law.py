"""Tests that each law is in every place CONTRIBUTING names: proofs, README, public names."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import dpcore
from dpcore.noise import Noise
from dpcore.parse_noise import LAWS
from tests.support.accounting.unregistered_law import Triangle

ROOT = Path(__file__).parents[2]


def homeless(laws: Iterable[type[Noise]]) -> dict[str, list[str]]:
    """Return the places that lack each law."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    pages = " ".join(p.read_text(encoding="utf-8") for p in (ROOT / "docs" / "proofs").glob("*.md"))
    found = {}
    for law in laws:
        here = {
            "a page of proofs": f"  - {law.__module__}:{law.__name__}." in pages,
            "the README's table": f"| `{law.__name__}` | `{law.name}:" in readme,
            "the public names": law.__name__ in dpcore.__all__,
        }
        found[law.name] = [place for place, there in here.items() if not there]
    return {name: places for name, places in found.items() if places}


def test_every_law_is_in_every_required_place() -> None:
    assert homeless(LAWS.values()) == {}


def test_a_law_missing_from_a_place_is_detected() -> None:
    assert len(homeless([Triangle])["triangle"]) == 3
