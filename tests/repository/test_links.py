"""Tests of links: every target exists; the network is not used."""

from __future__ import annotations

import pkgutil
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from tests.repository.proofs import pages
from tests.repository.test_docs import ROOT, every_page

_LINK = re.compile(r"(?<!\\)\]\(<?([^)\s>]+)>?\)")
_FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`[^`\n]*`")
_HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)
_NAMED_PAGE = re.compile(r"\bdocs/[\w/-]+\.md\b")
_NAMED_FILE = re.compile(r"(?<![\w/.:-])(?!kernel\.py)(?:[\w-]+/)*[\w-]+\.(?:md|py)\b(?![\w(])")
_NOT_CODE = re.compile(r"""r?"{3}(?s:.*?)"{3}|#.*""")
_NAMED_TEST = re.compile(r"(?:tests/)?(?:\w+/)*\btest_\w+(?:\.py)?\b(?!/)")
_DOTTED = re.compile(r"`(?:dpcore|accounting|audit|bandits|benchmarks)(?:\.\w+)+\b(?!\.ipynb|[/-])")
_SUFFIXES = (".py", ".md", ".ipynb", ".toml", ".state", ".json", ".html", ".db", ".git", ".csv")
_ENTRY_POINTS = frozenset({"dpcore.commands", "dpcore.targets"})
PACKAGES = ("dpcore", "accounting", "audit", "bandits", "benchmarks", "examples")


def anchors(markdown: str) -> set[str]:
    """Return the anchors of headings on the usual host."""
    headings = _HEADING.findall(_FENCE.sub("", markdown))
    plain = (re.sub(r"[^\w\- ]", "", heading).strip().lower() for heading in headings)
    return {heading.replace(" ", "-") for heading in plain}


def links(page: Path) -> list[str]:
    """Yield the links of a page, outside of code."""
    return _LINK.findall(_INLINE.sub("", _FENCE.sub("", page.read_text(encoding="utf-8"))))


def leads_somewhere(page: Path, target: str) -> bool:
    if re.match(r"[a-z]+:", target):
        return re.match(r"https://[\w.-]+\.\w+|mailto:\S+@\S+", target) is not None
    name, _, anchor = target.partition("#")
    there = (page.parent / name).resolve() if name else page
    return there.exists() and (not anchor or anchor in anchors(there.read_text(encoding="utf-8")))


def dead_links(page: Path) -> list[str]:
    return [target for target in links(page) if not leads_somewhere(page, target)]


@cache
def tails_of_the_tree() -> frozenset[str]:
    """Return every file below this folder, by its whole path and by every suffix of its path."""
    folders = (*PACKAGES, "tests", "docs")
    found = [path.relative_to(ROOT) for name in folders for path in (ROOT / name).rglob("*.*")]
    found += [path.relative_to(ROOT) for path in ROOT.glob("*.*")]
    return frozenset("/".join(path.parts[i:]) for path in found for i in range(len(path.parts)))


def absent_files(text: str) -> list[str]:
    """Return the pages and modules that a text names and that are not in the tree."""
    return [name for name in _NAMED_FILE.findall(text) if name not in tails_of_the_tree()]


def absent_pages(source: str) -> list[str]:
    return [name for name in _NAMED_PAGE.findall(source) if not (ROOT / name).is_file()]


@cache
def named_tests() -> Counter[str]:
    """Count the files, or functions of tests, with each name; a file also by its whole path."""
    found = Counter[str]()
    for path in (ROOT / "tests").rglob("test_*.py"):
        functions = re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
        found.update((path.stem, path.name, path.relative_to(ROOT).as_posix(), *functions))
    return found


def dangling_tests(proof: str) -> list[str]:
    """Return the tests that a proof names and that are missing, or defined twice."""
    return [name for name in _NAMED_TEST.findall(proof) if named_tests()[name] != 1]


@cache
def words_of_the_code() -> frozenset[str]:
    """Return every name in code outside of comments and docstrings, and every part of a path."""
    found = set[str]()
    for folder in (*PACKAGES, "tests"):
        for path in (ROOT / folder).rglob("*.py"):
            found.update((path.stem, *path.relative_to(ROOT).parts))
            found.update(re.findall(r"\w+", _NOT_CODE.sub("", path.read_text(encoding="utf-8"))))
    return frozenset(found)


def absent_names(proof: str) -> list[str]:
    """Return the names that a proof sets as code and that no code has; short ones are formulas."""
    spans = _INLINE.findall(_FENCE.sub("", proof))
    named = (name for span in spans for name in re.findall(r"[A-Za-z_]\w\w\w+", span))
    return [name for name in named if name not in words_of_the_code()]


def dotted_names(text: str) -> set[str]:
    """Return the names such as ``audit.declare`` that a text sets as code, except in blocks."""
    found = {name.strip("`") for name in _DOTTED.findall(_FENCE.sub("", text))}
    return {name for name in found - _ENTRY_POINTS if not name.endswith(_SUFFIXES)}


def is_importable(name: str) -> bool:
    """Whether a module, or an attribute of a module or class, has this dotted name."""
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True


@pytest.mark.parametrize("page", every_page(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_has_a_target(page: Path) -> None:
    assert dead_links(page) == []


def test_every_page_that_the_code_names_exists() -> None:
    sources = [path for name in PACKAGES for path in sorted((ROOT / name).rglob("*.py"))]
    absent = {
        str(path.relative_to(ROOT)): absent_pages(path.read_text(encoding="utf-8"))
        for path in sources
    }
    assert {name: pages for name, pages in absent.items() if pages} == {}


@pytest.mark.parametrize("page", [ROOT / "CONTRIBUTING.md", *pages()], ids=lambda page: page.stem)
def test_every_file_that_a_page_for_contributors_names_exists(page: Path) -> None:
    assert absent_files(page.read_text(encoding="utf-8")) == []


def test_a_missing_named_file_is_detected() -> None:
    there = "`bandits/privatizers/continual_sums_per_arm.py`, `deployment.py`, curve.md"
    assert absent_files(f"{there}, `totals.py` or `docs/proofs/absent.md`") == [
        "totals.py",
        "docs/proofs/absent.md",
    ]


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_every_test_that_a_proof_names_exists(page: Path) -> None:
    assert dangling_tests(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_every_code_name_in_a_proof_exists(page: Path) -> None:
    assert absent_names(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("page", every_page(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_dotted_name_in_a_page_exists(page: Path) -> None:
    if page.name == "CHANGELOG.md":
        pytest.skip("it lists former names")
    names = dotted_names(page.read_text(encoding="utf-8"))
    assert [name for name in sorted(names) if not is_importable(name)] == []


def test_a_missing_dotted_name_is_detected() -> None:
    names = dotted_names("`audit.declare(1)`, `audit.nothing` and `audit.state`")
    assert {name: is_importable(name) for name in names} == {
        "audit.declare": True,
        "audit.nothing": False,
    }


def test_a_missing_code_name_is_detected() -> None:
    absent = "_nowhere" * 2
    assert absent_names(f"`absent_names(page)` and `b_j`, but not `{absent}()`") == [absent]


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("test_links.py", True),
        ("tests/repository/test_links.py", True),
        ("test_a_dead_link_is_detected", True),
        ("test_absent.py", False),
        ("tests/dpcore/test_links.py", False),
        ("test_returning.py", False),
        ("test_that_nobody_wrote", False),
    ],
)
def test_a_missing_named_test_is_detected(name: str, found: bool) -> None:
    assert (dangling_tests(f"`{name}`: mutants") == []) is found


def test_every_page_of_the_docs_can_be_reached_from_its_index() -> None:
    reached: set[Path] = set()
    waiting = [ROOT / "docs/index.md"]
    while waiting:
        page = waiting.pop()
        if page in reached:
            continue
        reached.add(page)
        targets = (t.partition("#")[0] for t in links(page) if ":" not in t)
        found = ((page.parent / target).resolve() for target in targets if target)
        waiting += [p for p in found if p.suffix == ".md" and p.is_file()]
    assert sorted(str(p) for p in set((ROOT / "docs").rglob("*.md")) - reached) == []


@pytest.mark.parametrize(
    ("link", "alive"),
    [
        ("[a](there.md)", True),
        ("[a](there.md#a-b-c)", True),
        ("[a](#here)", True),
        ("[a](https://arxiv.org/abs/2004.00010)", True),
        ("`[a](absent.md)`", True),
        ("[a](absent.md)", False),
        ("[a](there.md#absent)", False),
        ("[a](#absent)", False),
        ("[a](http://example.org)", False),
    ],
)
def test_a_dead_link_is_detected(tmp_path: Path, link: str, alive: bool) -> None:
    (tmp_path / "there.md").write_text("# A: `b`, c\n")
    page = tmp_path / "page.md"
    page.write_text(f"# Here\n{link}\n")
    assert (dead_links(page) == []) is alive


def test_a_missing_named_page_is_detected() -> None:
    assert absent_pages("Proof: docs/proofs/absent.md; docs/index.md") == ["docs/proofs/absent.md"]
