r"""Pairs from a file: both formats, and every refusal with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from audit.search.pairs import read_pairs_file
from dpcore.errors import InvalidParameter

TOML = """
[[pair]]
a = [0, 0.5, "x"]
b = {age = [3, true]}

[[pair]]
a = 3
b = 4
"""


def written(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file


def test_toml(tmp_path: Path) -> None:
    pairs = read_pairs_file(written(tmp_path, "pairs.toml", TOML))
    assert pairs == (([0, 0.5, "x"], {"age": [3, True]}), (3, 4))


def test_json_can_also_say_null(tmp_path: Path) -> None:
    pairs = read_pairs_file(written(tmp_path, "pairs.JSON", "[[[[0, 1], null], [null, null]]]"))
    assert pairs == (([[0, 1], None], [None, None]),)


@pytest.mark.parametrize(
    ("name", "text", "place"),
    [
        ("pairs.txt", "", "must be a file that ends in .toml or .json"),
        ("pairs.toml", "", "holds no pair"),
        ("pairs.json", "[]", "holds no pair"),
        ("pairs.toml", "[[pair]]\na = 1\nb = \n", "is not TOML: Invalid value (at line 3"),
        ("pairs.json", "[[1, 2],]", "is not JSON: "),
        ("pairs.json", "[" * 100_000, "is not JSON: "),
        ("pairs.toml", "[[pairs]]\na = 1\nb = 2\n", "must hold [[pair]] tables"),
        ("pairs.toml", "pair = 3\n", "must hold [[pair]] tables"),
        ("pairs.toml", "pair = [3]\n", "pair 1: the file must hold"),
        ("pairs.toml", "[[pair]]\na = 1\nb = 2\n[[pair]]\na = 1\n", "pair 2: the file must hold"),
        ("pairs.toml", "[[pair]]\na = 1\nb = 2\nc = 3\n", "pair 1: the file must hold"),
        ("pairs.toml", "[[pair]]\na = 1\nb = [0, {x = nan}]\n", "pair 1: b[1].x = nan is no value"),
        ("pairs.toml", "[[pair]]\na = 1e999\nb = 2\n", "pair 1: a = inf is no value"),
        ("pairs.toml", "[[pair]]\na = [2020-01-01]\nb = 2\n", "pair 1: a[0] = 2020-01-01 is no"),
        ("pairs.json", "[[1, 2], [NaN, 1]]", "pair 2: a = nan is no value"),
        ("pairs.json", "[[1, -1e999]]", "pair 1: b = -inf is no value"),
        ("pairs.json", "[[1, 2, 3]]", "pair 1: the file must hold a list of pairs [a, b]"),
        ("pairs.json", '{"a": 1, "b": 2}', "the file must hold a list of pairs [a, b]"),
    ],
)
def test_refusals(tmp_path: Path, name: str, text: str, place: str) -> None:
    with pytest.raises(InvalidParameter) as caught:
        read_pairs_file(written(tmp_path, name, text))
    assert str(caught.value).startswith("--pairs = ")
    assert place in caught.value.reason


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InvalidParameter, match="No such file"):
        read_pairs_file(tmp_path / "none.toml")
    (tmp_path / "latin.json").write_bytes(b'["\xe4"]')
    with pytest.raises(InvalidParameter, match="not text in UTF-8"):
        read_pairs_file(str(tmp_path / "latin.json"))


def test_a_key_of_very_many_parts_is_refused_at_once(tmp_path: Path) -> None:
    file = tmp_path / "deep.toml"
    for text in (".".join("a" * 50_000) + " = 1\n", "[" + " . ".join("a" * 50_000) + "]\n"):
        file.write_text(text)
        with pytest.raises(InvalidParameter, match=r"toml: has a key of more than 64 parts$"):
            read_pairs_file(file)
    file.write_text(f"[[pair]]\na = [{', '.join(['0.5'] * 1000)}]\nb = 'a.b'\n")
    assert read_pairs_file(file)[0][1] == "a.b"
