"""Tests of every file of the tree: size, name, and no path of a particular machine."""

from __future__ import annotations

import ast
import io
import re
import tokenize
import tomllib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from tests.day_and_nightly import effort

ROOT = Path(__file__).parents[2]
PACKAGES = ("dpcore", "accounting", "audit", "bandits")
CODE = (*PACKAGES, "tests", "benchmarks", "examples")
MOST_LINES = 700  # so that a file can be read in one go; most files have 100 to 600
LONGEST_FUNCTION = 60  # lines without the docstring; most functions have less than 30
LONG_FUNCTIONS = {
    "audit/sample_layer.py:run_baselines",  # one loop over the parts of a report
    "audit/features/fit_score_model.py:learn_parts",  # from counts to weights
}
BANNED = {"utils", "util", "misc", "helpers", "helper", "common", "manager"}

# A path of a particular machine. The class in front excludes fractions and relative paths.
_MACHINE_PATH = re.compile(r"(?<![\w.~)\]}>/-])/(?:home|root|Users|work|tmp|mnt|opt|srv)/\w")
_DEF = re.compile(r"^( *)(?:async )?def ", re.MULTILINE)
_IGNORE = re.compile(r"#\s*(?:noqa:\s*[A-Z]+\d+(?:,\s*[A-Z]+\d+)*|type:\s*ignore\[[\w,\s-]+\])")


def python_files(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def text_files() -> list[Path]:
    found = [path for folder in (*CODE, "docs", ".ci") for path in (ROOT / folder).rglob("*")]
    found += ROOT.glob("*.*")
    found.append(ROOT / "Makefile")
    kept = {".py", ".md", ".toml", ".json", ".txt", ".html", ""}
    return sorted(
        p for p in found if p.is_file() and p.suffix in kept and "__pycache__" not in p.parts
    )


def banned_words(name: str) -> set[str]:
    return BANNED & set(re.split(r"[^a-z]+", name.lower()))


def machine_paths(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if _MACHINE_PATH.search(line)]


def outgrown(source: str) -> bool:
    return len(source.splitlines()) > MOST_LINES


def long_functions(source: str) -> list[str]:
    if effort(1, 2) == 1 and not far_apart(source):
        return []  # by day, without the time to parse every file
    found, waiting = [], [ast.parse(source).body]
    while waiting:
        for node in waiting.pop():
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                body = node.body[ast.get_docstring(node) is not None :]
                if body and (body[-1].end_lineno or 0) - body[0].lineno >= LONGEST_FUNCTION:
                    found.append(node.name)
            waiting.append(getattr(node, "body", []))
    return found


def far_apart(source: str) -> bool:
    """Whether a function may be long: the next one that is not within it is far below."""
    found = [(source.count("\n", 0, at.start()), len(at[1])) for at in _DEF.finditer(source)]
    ends = [*found, (source.count("\n") + 1, 0)]
    return any(
        next(end for end, other in ends[i + 1 :] if other <= indent) - line > LONGEST_FUNCTION
        for i, (line, indent) in enumerate(found)
    )


def comments(source: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def unexplained_ignores(source: str) -> list[str]:
    """Return comments that silence a tool without stating rule and reason."""
    rests = [source[at.start() :].partition("\n")[0] for at in _IGNORE.finditer(source)]
    if not any(map(unexplained, rests)):
        return []  # without the time to find every comment
    return [f"{line}: {comment}" for line, comment in comments(source) if unexplained(comment)]


def unexplained(comment: str) -> bool:
    reason = _IGNORE.sub("", comment).strip(" #:-")
    return _IGNORE.search(comment) is not None and len(reason.split()) < 2


def unexplained_entries(configuration: str) -> list[str]:
    """Return lines of an ``ignore`` list in pyproject.toml without a comment."""
    inside, found = False, []
    for line in configuration.splitlines():
        if inside and line.startswith("]"):
            inside = False
        elif inside and "#" not in line:
            found.append(line.strip())
        inside = inside or line.rstrip().endswith("ignore = [")
    return found


def test_every_package_is_typed_and_in_the_wheel() -> None:
    assert all((ROOT / package / "py.typed").is_file() for package in PACKAGES)
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert settings["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == list(PACKAGES)
    assert settings["tool"]["importlinter"]["root_packages"] == list(PACKAGES)


def faulty(check: Callable[[str], list[str]], files: Iterable[Path]) -> dict[str, list[str]]:
    """Return what a check finds in each file in which it finds something."""
    texts = ((path, path.read_text(encoding="utf-8")) for path in files)
    found = {str(path.relative_to(ROOT)): check(text) for path, text in texts}
    return {name: lines for name, lines in found.items() if lines}


def test_no_file_is_too_long() -> None:
    files = python_files(*CODE)
    assert [p.name for p in files if outgrown(p.read_text(encoding="utf-8"))] == []
    assert outgrown("x\n" * (MOST_LINES + 1))
    assert not outgrown("x\n" * MOST_LINES)


def test_no_function_is_too_long() -> None:
    found = faulty(long_functions, python_files(*CODE))
    assert {f"{file}:{name}" for file, names in found.items() for name in names} == LONG_FUNCTIONS
    most = "    x()\n" * LONGEST_FUNCTION
    assert long_functions(f'def kept():\n    """Docs."""\n{most}') == []
    assert long_functions(f"class Law:\n  def grown():\n{most}    return\n") == ["grown"]


def untested(root: Path) -> list[str]:
    """Return folders of the packages without a folder of tests."""
    return [
        f"{package}/{folder.name}"
        for package in PACKAGES
        for folder in sorted((root / package).iterdir())
        if (folder / "__init__.py").is_file()
        and not any((root / "tests" / package / folder.name).rglob("test_*.py"))
    ]


def test_tests_mirror_the_folders(tmp_path: Path) -> None:
    assert untested(ROOT) == []
    for package in PACKAGES:
        (tmp_path / package).mkdir()
    (tmp_path / "audit" / "attic").mkdir()
    (tmp_path / "audit" / "attic" / "__init__.py").touch()
    assert untested(tmp_path) == ["audit/attic"]


def test_no_file_has_a_generic_name() -> None:
    names = [str(path.relative_to(ROOT)) for path in python_files(*CODE)]
    assert [name for name in names if banned_words(name)] == []
    assert banned_words("dpcore/noise_utils.py") == {"utils"}
    assert banned_words("audit/common.py") == {"common"}
    assert banned_words("audit/commonplace.py") == set()


def test_no_file_contains_a_path_of_a_particular_machine() -> None:
    assert faulty(machine_paths, text_files()) == {}
    for folder in ("home", "root", "Users", "work", "tmp"):
        assert machine_paths(f"open('/{folder}/me/x')") != []
        assert machine_paths(f"see `/{folder}/me`") != []
        assert machine_paths(f"a/{folder}/x, ../{folder}/x, {folder}/x, k/{folder}") == []


def test_every_ignore_comment_states_its_reason() -> None:
    assert faulty(unexplained_ignores, python_files(*CODE)) == {}
    for comment, explained in (
        ("# noqa: E501", False),
        ("# type: ignore[arg-type]", False),
        ("# type: ignore[arg-type]  # the twin passes what the type forbids", True),
        ("# noqa: S311 - a world, not noise", True),
        ("# what a type: ignore would hide", True),
    ):
        assert (unexplained_ignores(f"x = 1  {comment}\n") == []) is explained


def test_every_ignored_rule_in_the_settings_has_a_reason() -> None:
    settings = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert "ignore = [\n" in settings
    assert unexplained_entries(settings) == []
    assert unexplained_entries('ignore = [\n  "D1",\n  "E5",  # why\n]\n') == ['"D1",']
