"""Tests of presets: their worlds, and the data files that two of them read."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from bandits.policies.registry import read_algorithm
from bandits.worlds import PRESETS, preset_of
from bandits.worlds.arm_environments import ClippedNormal, Reordered, Table, cz_instance
from bandits.worlds.arm_presets import FEATURES, letor_arms, obd_arms
from dpcore.errors import InvalidParameter
from tests.support.run_command import typed


def test_the_presets_are_known_by_name_and_name_known_algorithms() -> None:
    names = [preset.name for preset in PRESETS]
    arms = ["cz/easy", "cz/hard", "cz/mslr", "tkms/binary", "obd"]
    linear = ["lzj/fig2", "lzj/ball", "lzj/box", "lzj/table2", "lzj/clients"]
    csb = [name for name in names if name.startswith("csb/")]
    assert names == [*arms, *linear, *csb, "own"]
    assert {"csb/topk", "csb/coverage", "csb/path"} < {*csb}
    for preset in PRESETS:
        assert preset_of(preset.name) is preset
        assert [str(read_algorithm(name)) for name in preset.algorithms] == [*preset.algorithms]


CZ = ("cdp-se", "ldp-se", "dist-dp-se", "dist-rdp-se", "dist-cdp-se", "dp-se", "se")
BITS = ("sdp-ae", "vb-sdp-ae", "dist-dp-se", "se")
SETTINGS = {
    "cz/easy": (CZ, ("0.1", "0.5", "1"), 10**6, "released"),
    "cz/hard": (CZ, ("0.1", "0.5", "1"), 10**7, "released"),
    "cz/mslr": (CZ, ("1", "5", "10"), 10**6, "released"),
    "tkms/binary": (BITS, ("0.1", "0.5", "1"), 10**6, "paper"),
    "obd": (BITS, ("0.5", "1", "5"), 10**6, "paper"),
}
"""What runs, for which epsilons, how long and by which schedule."""


@pytest.mark.parametrize("name", SETTINGS)
def test_presets_have_the_settings_of_their_papers(name: str) -> None:
    preset = preset_of(name)
    found = (preset.algorithms, preset.epsilons, preset.horizon, preset.schedule)
    assert found == SETTINGS[name]
    assert preset.delta == "1e-6"


@pytest.mark.parametrize(("name", "gap"), [("cz/easy", "0.5"), ("cz/hard", "0.1")])
def test_instances_of_cz_agree_with_its_code(name: str, gap: str) -> None:
    preset = preset_of(name)
    assert (preset.arms, preset.instances, preset.schedule) == (10, 20, "released")
    worlds = preset.worlds(3)
    assert worlds.environments == tuple(cz_instance(gap, i) for i in range(3))
    assert (worlds.arms, worlds.data) == (10, None)
    # numpy's legacy generator, as in the published code.
    u = np.random.RandomState(2).uniform(size=10)
    third = worlds.environments[2]
    assert isinstance(third, ClippedNormal)
    assert third.centers == pytest.approx(float(gap) * u + (1 - float(gap)) / 2)
    few = preset.worlds(1, arms=4).environments[0]
    assert few.arms == 4


def letor_line(relevance: object, query: int, features: np.ndarray) -> str:
    pairs = " ".join(f"{i}:{value:g}" for i, value in enumerate(features, start=1))
    return f"{relevance} qid:{query} {pairs} \n"


def letor_text(clusters: int, each: int = 12) -> str:
    """Pairs around ``clusters`` far centres; those at centre c have relevance c % 5, except one
    (0).
    """
    rng = np.random.default_rng(7)
    lines = []
    for c in range(clusters):
        centre = rng.normal(size=FEATURES) * 100
        for k in range(each):
            near = centre + rng.normal(size=FEATURES)
            lines.append(letor_line(c % 5 if k else 0, 10 + k, near))
    return "".join(rng.permutation(lines))


def test_clusters_of_pairs_become_arms(tmp_path: Path) -> None:
    path = tmp_path / "train.txt"
    path.write_text(letor_text(5), encoding="ascii")
    found = letor_arms(path, 5)
    assert isinstance(found, Table)
    wanted = sorted(11 * c / 12 / 4 for c in range(5))
    assert found.means == pytest.approx(wanted)
    assert found.counts[-1] == (1, 11)
    assert (letor_arms(path, 5).means, letor_arms(path, 5).counts) == (found.means, found.counts)
    worlds = preset_of("cz/mslr").worlds(2, arms=5, data=path)
    assert worlds.arms == 5
    assert worlds.data is not None
    assert len(worlds.data) == 64


def test_the_command_takes_several_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = [tmp_path / "train.txt", tmp_path / "vali.txt"]
    for part in parts:
        part.write_text(letor_text(5), encoding="ascii")
    words = ["--arms", 5, "-T", 2000, "--instances", 1, "--algorithms", "se", "--json"]
    both = [word for part in parts for word in ("--data", part)]
    answer = typed(capsys, "bandit", "run", "cz/mslr", *both, *words)
    assert (answer.code, answer.err) == (0, "")
    assert answer.json["data"] == preset_of("cz/mslr").worlds(1, arms=5, data=parts).data
    none = typed(capsys, "bandit", "run", "cz/mslr", *both, "--data", tmp_path / "none", *words)
    assert (none.code, "none: No such file" in none.err) == (2, True)
    twice = typed(capsys, "bandit", "run", "cz/mslr", *both[:2], *both[:2], *words)
    assert (twice.code, "must not contain a file twice" in twice.err) == (2, True)
    with pytest.raises(InvalidParameter, match="must be one file for obd"):
        preset_of("obd").worlds(1, data=parts)


ZERO = np.zeros(FEATURES)
MANY = letor_line(1, 1, ZERO) * 60
BROKEN = {
    "root:x:0:0:root\n": "is not LETOR text with 136 features",
    letor_line(2, 1, np.zeros(FEATURES + 1)) * 60: "is not LETOR text with 136 features",
    "2 qid:1 1:x 2:3\n": "is not LETOR text with 136 features",
    letor_line(5, 1, ZERO) * 60: "line 1: a relevance of 5: it must be 0, 1, 2, 3 or 4",
    letor_line(0.5, 1, ZERO) * 60: "line 1: a relevance of 0.5",
    letor_line(-1, 1, ZERO) * 60: "line 1: a relevance of -1",
    MANY + "1 qid:1 5:nan\n": "line 61: feature 5 is nan",
    MANY + "1 qid:1 5:inf\n": "line 61: feature 5 is inf",
    MANY + "1 qid:1 5:1e39\n": "line 61: feature 5 is 1e39",
    MANY + "1 qid:1 5:a\n": "line 61: feature 5 is a",
    MANY + "1 qid:1 5:1 4:2\n": "line 61: features must increase .* but feature 4 does not",
    MANY + "1 qid:1 0:1\n": "line 61: features must increase from 1 to 136, but feature 0 does not",
    MANY + "1 1:2\n": "line 61: no qid:NUMBER",
    "1 1:2\n" * 60: "line 1: no qid:NUMBER after the relevance",
    letor_line(1, 1, ZERO) * 3: "contains 3 pairs, too few for 50 clusters",
    MANY: "fewer than 50 distinct pairs",
    "": "contains 0 pairs, too few for 50 clusters",
}


@pytest.mark.parametrize("which", range(len(BROKEN)))
def test_invalid_letor_text_is_refused_by_name(tmp_path: Path, which: int) -> None:
    text, words = [*BROKEN.items()][which]
    path = tmp_path / "train.txt"
    path.write_text(text, encoding="ascii")
    with pytest.raises(InvalidParameter, match=f"^data = .*{words}"):
        letor_arms(path)


HEADER = ",timestamp,item_id,position,click,propensity_score,user_feature_0,user-item_affinity_0"

CLICKS = "item_id,click\n1,0\n1,1\n2,0\n"


def obd_text(*rows: tuple[object, object]) -> str:
    stamp = "2019-11-24 00:00:24.666749+00:00"
    lines = [
        f"{i},{stamp},{item},3,{click},0.0125,81ce123cbb5bd8ce818f60fb3586bba5,0.0"
        for i, (item, click) in enumerate(rows)
    ]
    return "\n".join([HEADER, *lines, ""])


def test_click_rates_by_item_are_means(tmp_path: Path) -> None:
    path = tmp_path / "all.csv"
    rows = [(10, 0), (2, 1), (10, 1), (2, 0), (2, 0), (7, 0), (2, 0)]
    path.write_text(obd_text(*rows), encoding="utf-8")
    assert obd_arms(path).means == (0.25, 0.0, 0.5)
    worlds = preset_of("obd").worlds(3, data=path)
    # Each instance has the same arms in another order, so that curves do not reveal the log's
    # order.
    orders = [world.order for world in worlds.environments if isinstance(world, Reordered)]
    assert [tuple(np.random.RandomState(i).permutation(3)) for i in range(3)] == orders
    assert len(set(orders)) > 1
    assert all(sorted(world.means) == [0.0, 0.25, 0.5] for world in worlds.environments)
    with pytest.raises(InvalidParameter, match="takes the number of arms from its data"):
        preset_of("obd").worlds(1, arms=3, data=path)
    for arms in (2, 4):
        with pytest.raises(InvalidParameter, match="must be 3, the number of items"):
            obd_arms(path, arms)


def test_a_data_file_is_identified_by_its_digest(tmp_path: Path) -> None:
    path = tmp_path / "all.csv"
    path.write_text(obd_text((1, "1.0"), (1, "0.0"), (2, "0.0"), (2, 0)), encoding="utf-8")
    assert obd_arms(path).means == (0.5, 0.0)
    found = preset_of("obd").worlds(1, data=path).data
    assert found == hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no column item_id"),
        ("item_id,position\n1,2\n", "no column click"),
        (HEADER + "\n", "contains no rows"),
        (obd_text((1, 0), (2, 2)), "line 3 must contain an item number and a click"),
        (obd_text((1, 0), (2, "")), "line 3 must contain an item number and a click"),
        (obd_text((-1, 0)), "line 2 must contain an item number and a click"),
        (obd_text(("x", 0)), "line 2 must contain an item number and a click"),
        (CLICKS + '"1,0\n', "is not valid CSV"),
        (HEADER + "\n1\n", "line 2 must contain an item number and a click"),
        (HEADER + "\n\xff", "is not valid CSV"),
    ],
)
def test_an_invalid_log_is_refused_by_name(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "all.csv"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(InvalidParameter, match=words):
        obd_arms(path)
