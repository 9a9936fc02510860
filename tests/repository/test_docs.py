"""Tests of the documentation: every example gives the output that its page shows."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from dpcore import Scope
from tests.day_and_nightly import by_day, effort
from tests.repository.pages import Block, PageError, blocks, run_alone, run_page
from tests.support import forked_commands

ROOT = Path(__file__).parents[2]
TOP = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")


def every_page() -> list[Path]:
    return [p for p in (ROOT / name for name in TOP) if p.exists()] + sorted(
        (ROOT / "docs").rglob("*.md")
    )


def every_run() -> list[ParameterSet]:
    """Every page; ``make test`` runs those that a newcomer reads first, ``make docs`` all."""
    start = (*TOP, "docs/start.md", "docs/user_guide.md")
    names = {str(page.relative_to(ROOT)): page for page in every_page()}
    return [
        pytest.param(page, id=name, marks=() if name in start else pytest.mark.nightly)
        for name, page in names.items()
    ]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A reader's folder: the examples and nothing else of the tree."""
    if (ROOT / "examples").is_dir():
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=ignored)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", every_run())
def test_the_page_runs_as_printed(page: Path, folder: Path) -> None:
    by_day = effort(1, 2) == 1  # in nightly runs every command is a process of its own
    text = page.read_text(encoding="utf-8")
    run_page(str(page.relative_to(ROOT)), text, folder, forked_commands.run if by_day else None)


def test_pages_for_newcomers_state_the_default_relation_and_the_terms_of_a_report() -> None:
    start, guide = ((ROOT / "docs" / f"{n}.md").read_text("utf-8") for n in ("start", "user_guide"))
    assert f"The default is `{Scope().relation.value}`" in start
    assert all(f"`{word}" in guide for word in ("precision(output)", "learned(output)", "leader"))


def first_examples() -> list[Block]:
    """Return the first block of each page that a reader can run, tests before other code."""
    found = []
    for page in sorted((ROOT / "docs").rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        code = [
            block
            for block in blocks(str(page.relative_to(ROOT)), text)
            if block.language in {"python", "console"}
        ]
        found += code[:1]
    return sorted(found, key=lambda block: "def test_" not in block.text)


@by_day(2)
@pytest.mark.parametrize("block", first_examples(), ids=lambda block: block.page)
def test_the_first_example_of_a_page_runs_in_an_empty_project(block: Block, tmp_path: Path) -> None:
    run_alone(block, tmp_path)


SLOW = """>>> import time
>>> from hypothesis import given, strategies
>>> @given(strategies.booleans())
... def test_import_late(flag):
...     time.sleep(0.5)
>>> test_import_late()
"""


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (SLOW, "DeadlineExceeded"),
        (">>> from tests.alpha_budget import buy_alpha\n", "No module named 'tests"),
        ("raise SystemExit(3)\n", "exited with 3, not 0"),
    ],
)
def test_a_first_example_that_needs_other_files_is_detected(
    tmp_path: Path, text: str, complaint: str
) -> None:
    with pytest.raises(PageError, match=complaint):
        run_alone(Block(page="false.md", line=1, language="python", text=text), tmp_path)


TRUE = """# A page
```python
x = 6
```
```python
>>> x * 7
42
```
- In a list:
  ```console
  $ python -c 'print("runs 512\\nREFUTED")'
  runs ...
  REFUTED
  $ python -c \\
      'import sys; sys.exit("no")'   # exit 1
  no
  $ python -c 'print("not compared")'
  $ make test
  anything
  ```
```text
1 / 0
```
"""


def test_a_correct_page_passes(folder: Path) -> None:
    # Two python blocks and four commands, one of which is shown only.
    assert run_page("true.md", TRUE, folder) == 6


@pytest.mark.parametrize(
    ("block", "complaint"),
    [
        ("```python\n>>> 6 * 7\n41\n```\n", r"(?s)Expected:.*41.*Got:.*42"),
        ("```python\n>>> absent\n```\n", "NameError"),
        ("```console\n$ python -c 'print(1)'\n2\n```\n", r"(?s)printed\n1\n.*shows\n2"),
        ("```console\n$ python -c 'print(1)'\n1\n2\n```\n", "where the page shows"),
        ("```console\n$ python -c 'print(1)'   # exit 1\n```\n", "exited with 0, not 1"),
        ("```console\n$ python -c 'raise SystemExit(2)'\n```\n", "exited with 2, not 0"),
        ("```console\n$ wget page\n```\n", "wget is neither run nor shown only"),
        ("```console\n$ python -c 'print(1)' | head -n 1\n```\n", "a cut pipe is a race"),
        ("```console\ndpcore audit\n```\n", "begins with '\\$ '"),
        ("```bash\nls\n```\n", "'bash' is none of"),
        ("```\nls\n```\n", "'' is none of"),
    ],
)
def test_a_wrong_page_is_detected(folder: Path, block: str, complaint: str) -> None:
    with pytest.raises(PageError, match=complaint):
        run_page("false.md", "# A page\n\n" + block, folder)


def test_a_failing_block_names_its_line_and_two_pages_share_no_variables(folder: Path) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        run_page("false.md", "# A page\n\n```python\nx = 1\nx / 0\n```\n", folder)
    assert caught.traceback[-1].lineno == 4  # counted from 0
    assert str(caught.traceback[-1].path).endswith("false.md")
    with pytest.raises(NameError):
        run_page("two.md", "```python\nx\n```\n", folder)
