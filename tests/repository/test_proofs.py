"""Tests of `tests.repository.proofs`: pages bind the code they prove; changes are detected."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.repository import proofs

CODE = '''
"""A module."""
from typing import overload

LIMIT = 2**62
UNUSED = 1

def bounded(value: UNUSED) -> int:
    return min(value, LIMIT)

class Base:
    def size(self, rng):
        return bounded(rng.size())

    def other(self):
        return 0

class Law(Base):
    """A law."""

    half: int = 1

    def sample(self, rng):
        """Draw."""
        # the sign, then the size
        sign = rng.flip()
        return sign * self.size(rng)

    @property
    def scale(self):
        return 1

    @scale.setter
    def scale(self, value):
        raise ValueError
'''
PAGE = "---\nproves:\n  - law:Law.sample\n---\n# A law\nIt is so.\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "law.py").write_text(CODE)
    (tmp_path / "docs/proofs").mkdir(parents=True)
    page = tmp_path / "docs/proofs/law.md"
    page.write_text(PAGE)
    assert proofs.update(page, tmp_path) != []
    return tmp_path


def complaints(tree: Path) -> list[str]:
    return [line for page in proofs.pages(tree) for line in proofs.complaints(page, tree)]


def edit(tree: Path, old: str, new: str, file: str = "law.py") -> None:
    text = (tree / file).read_text()
    assert old in text
    (tree / file).write_text(text.replace(old, new))


@pytest.mark.parametrize("page", proofs.pages(), ids=lambda page: page.stem)
def test_every_page_binds_the_current_code(page: Path) -> None:
    assert proofs.complaints(page) == []


def test_every_object_that_needs_a_proof_is_bound_by_a_page() -> None:
    assert proofs.unproven() == []


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ('"""Draw."""', '"""Draw one, exactly."""', False),
        ("# the sign, then the size", "# sign first", False),
        ("sign = rng.flip()", "sign = ( rng.flip() )", False),
        ("        return 1\n", "        return 2\n", False),  # another member
        ("UNUSED = 1", "UNUSED = 2", False),
        ("half: int = 1", "half: int = 2", False),
        ("rng.flip()", "rng.flop()", True),
        ("sign * self", "sign + self", True),
        ("(self, rng)", "(self, rng, fast=True)", True),
        ('        """Draw."""\n', '        """Draw."""\n        "not a docstring"\n', True),
        ("    def sample", "    @cache\n    def sample", True),
        ("rng.size()", "rng.other()", True),  # a dependency, in the base
        ("min(value", "max(value", True),
        ("2**62", "2**63", True),
    ],
)
def test_a_change_of_the_code_or_of_what_it_uses_is_detected(
    tree: Path, old: str, new: str, changed: bool
) -> None:
    page = tree / "docs/proofs/law.md"
    assert complaints(tree) == []
    assert page.read_text().endswith("---\n# A law\nIt is so.\n")
    edit(tree, old, new)
    assert ["was read with" in line for line in complaints(tree)] == [True] * changed
    assert len(proofs.update(page, tree)) == changed
    assert complaints(tree) == []


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("law:LIMIT", "2**62", "2**63"),
        ("law:Law", "half: int = 1", "half: int = 2"),
        ("law:Law.half", "half: int = 1", "half: int = None"),
        ("law:Law.scale", "raise ValueError", "raise TypeError"),
    ],
)
def test_every_kind_of_object_can_be_named(tree: Path, name: str, old: str, new: str) -> None:
    before = proofs.code_hash(name, tree)
    edit(tree, old, new)
    assert proofs.code_hash(name, tree) != before


def block(line: str) -> str:
    return f"---\nproves:\n  - {line}\n---\n"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (block("law:Law.simple 0123"), "defines no Law.simple"),
        (block("law:Law.sample.inner 0123"), "defines no Law.sample.inner"),
        (block("lore:Law.sample 0123"), "lore: no such module"),
        (block("law:Law.sample"), "was read with None"),
        (block("law:Law.sample 0123456789abcdef"), "was read with 0123456789abcdef"),
        (block("law, sample"), "not 'package.module:object hash'"),
        (block("law 0123456789abcdef"), "not 'package.module:object hash'"),
        ("# A law\n", "must open with"),
        ("---\nproves:\n---\n", "must open with"),
        ("---\nproves:\n  - law:Law 00\n", "must open with"),
    ],
)
def test_a_page_with_a_missing_object_wrong_hash_or_no_block_is_refused(
    tree: Path, text: str, complaint: str
) -> None:
    (tree / "docs/proofs/law.md").write_text(text)
    (found,) = complaints(tree)
    assert complaint in found


def test_an_unbound_object_is_detected(tree: Path) -> None:
    assert proofs.unproven(tree, needed=("law:Law.sample", "law:bounded")) == ["law:bounded"]
    edit(tree, "law:Law.sample", "lore:Law.sample", file="docs/proofs/law.md")
    assert proofs.unproven(tree, needed=("law:Law.sample",)) == ["law:Law.sample"]


def test_the_tool_refuses_a_page_that_does_not_exist(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert proofs.main(["--update", str(tmp_path / "absent.md")]) == 2
    assert capsys.readouterr().err.startswith("error: ")
