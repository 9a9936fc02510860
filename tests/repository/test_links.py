"""Tests of links: every target exists; the network is not used."""

from __future__ import annotations

import pkgutil
import re
from collections import Counter
from collections.abc import Callable
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
_MOVED = "| was | is |\n|---|---|\n"
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


def absent_dotted(text: str) -> list[str]:
    """Return the missing names, such as ``audit.declare``, of a text's code outside of blocks."""
    found = {name.strip("`") for name in _DOTTED.findall(_FENCE.sub("", text))}
    named = {name for name in found - _ENTRY_POINTS if not name.endswith(_SUFFIXES)}
    return [name for name in sorted(named) if not is_importable(name)]


def is_importable(name: str) -> bool:
    """Whether a module, or an attribute of a module or class, has this dotted name."""
    if {f"{name.replace('.', '/')}{end}" for end in (".py", "/__init__.py")} & tails_of_the_tree():
        return True
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True


def new_paths(changelog: str) -> str:
    """Return the column "is" of the table of moved modules: other names are former ones."""
    rows = changelog.partition(_MOVED)[2].partition("\n\n")[0].splitlines()
    assert len(rows) > 100
    return " ".join(row.split("|")[2] for row in rows)


@pytest.mark.parametrize("page", every_page(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_and_dotted_name_of_a_page_exists(page: Path) -> None:
    assert dead_links(page) == []
    text = page.read_text(encoding="utf-8")
    assert absent_dotted(new_paths(text) if page.name == "CHANGELOG.md" else text) == []


def test_every_page_that_the_code_names_exists() -> None:
    for path in (path for name in PACKAGES for path in (ROOT / name).rglob("*.py")):
        assert absent_pages(path.read_text(encoding="utf-8")) == [], path


@pytest.mark.parametrize("page", [ROOT / "CONTRIBUTING.md", *pages()], ids=lambda page: page.stem)
def test_every_file_test_and_code_name_of_a_page_for_contributors_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert absent_files(text) == []
    if page.name != "CONTRIBUTING.md":
        assert dangling_tests(text) == []
        assert absent_names(text) == []


ABSENT = "_nowhere" * 2


@pytest.mark.parametrize(
    ("check", "there", "missing"),
    [
        (
            absent_files,
            "bandits/privatizers/continual_sums_per_arm.py deployment.py curve.md",
            ["totals.py", "docs/proofs/absent.md"],
        ),
        (absent_pages, "docs/index.md", ["docs/proofs/absent.md"]),
        (absent_dotted, "audit.declare(1) audit.state", ["audit.nothing"]),
        (absent_names, "absent_names(page) b_j", [ABSENT]),
        (
            dangling_tests,
            "test_links.py tests/repository/test_links.py test_a_dead_link_is_detected",
            [
                *("test_absent.py", "tests/dpcore/test_links.py", "test_that_nobody_wrote"),
                "test_layers.py",  # two files have this name
            ],
        ),
    ],
    ids=["files", "pages", "dotted names", "code names", "tests"],
)
def test_a_missing_name_is_detected(
    check: Callable[[str], list[str]], there: str, missing: list[str]
) -> None:
    assert check(", ".join(f"`{name}`" for name in [*there.split(), *missing])) == missing


def test_a_new_path_that_moved_again_is_detected() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    row = "| `audit.verdict` | `audit.statistical_tests.sample_verdict` |\n"
    moved = new_paths(changelog.replace(_MOVED, _MOVED + row, 1))
    assert absent_dotted(moved) == ["audit.statistical_tests.sample_verdict"]


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


def test_a_dead_link_is_detected(tmp_path: Path) -> None:
    (tmp_path / "there.md").write_text("# A: `b`, c\n")
    dead = ["absent.md", "there.md#absent", "#absent", "http://example.org"]
    there = ["there.md", "there.md#a-b-c", "#here", "https://arxiv.org/abs/2004.00010"]
    page = tmp_path / "page.md"
    page.write_text("# Here\n`[a](absent.md)`\n" + "\n".join(f"[a]({to})" for to in there + dead))
    assert dead_links(page) == dead
