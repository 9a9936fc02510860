"""What no run can be made of is refused by name, before anything is played or left behind."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from tests.support.bandits.command import Bandit

REFUSED: dict[str, str] = {
    "cz/easy --arms 0": "--arms = 0: must be >= 1",
    "cz/easy -T 5": "--horizon = 5: must be >= arms = 10",
    "cz/easy -T 0": "--horizon = 0: must be >= 1",
    "cz/easy -T 1.5": "--horizon = 1.5: must be a whole number",
    "cz/easy --epsilon 0": "--epsilon = 0: must lie in [1e-6, 1000]",
    "cz/easy --epsilon -1": "--epsilon = -1: must lie in [1e-6, 1000]",
    "cz/easy --epsilon x": "--epsilon = x: must be a finite number",
    "cz/easy --delta 0": "--delta = 0: must lie in (0, 1)",
    "cz/easy --algorithms cpd-se": "--algorithms = cpd-se: did you mean cdp-se? it must be one of",
    "cz/easy --algorithms se,se": "--algorithms = se, se: names one twice",
    "cz/easy --algorithms ,": "--algorithms: must name one or more",
    "cz/esay": "PRESET = cz/esay: did you mean cz/easy? it must be one of",
    "cz/easy --instances 0": "--instances = 0: must be >= 1",
    "cz/easy --jobs 0": "--jobs = 0: must be a whole number in [1, 1024], or -1",
    "cz/easy --seed -1": "--seed = -1: must be >= 0",
    "cz/easy --radius best": "--radius = best: must be 'exact' or 'paper'",
    "cz/easy --schedule best": "--schedule = best: must be one of",
    "cz/easy --data x": "--data = x: cz/easy is simulated",
    "cz/mslr": "PRESET = cz/mslr: needs --data FILE",
    "obd --data none.csv": "--data = none.csv: No such file",
    "cz/easy --algorithms se --output here": "--output = here: is not a folder",
    "cz/easy --algorithms se --output none/below": "--output = none/below: No such file",
    "cz/easy --algorithms se --resume .": "--resume = .: is not a plain file",
    "cz/easy --algorithms se --resume here": "--resume = here: is not of schema dpcore-bandit-",
    "cz/easy --algorithms se,dist-dp-se --epsilon=1e20": "--epsilon = 1e20: must lie in",
    "cz/easy --algorithms se,dist-dp-se --epsilon=1e400": "--epsilon = 1e400: must lie in",
    "cz/easy --algorithms se --epsilon=1e-400": "--epsilon = 1e-400: must lie in [1e-6, 1000]",
    "cz/easy --algorithms se,sdp-ae --epsilon=1e-5": "--epsilon = 1e-5: must be >= 0.01 for sdp-ae",
    "cz/easy --algorithms vb-sdp-ae --delta=1e-31": "--delta = 1e-31: must be >= 1e-30 for vb",
    "cz/easy --algorithms dist-rdp-se:s=1e12": "--epsilon (for dist-rdp-se:s=1000000000000) = ",
    "cz/easy --algorithms se --jobs 1e3000": "--jobs = 1e3000: must be a whole number in [1,",
    "cz/easy --algorithms se --schedule=": "--schedule = : must be one of",
    "cz/easy --algorithms dpe": "--algorithms = dpe: is played in worlds with linear rewards",
    "cz/easy --algorithms se --alpha=0.5": "--alpha = 0.5: has no effect in cz/easy: leave it out",
    "cz/easy --algorithms se --users=50": "--users = 50: has no effect in cz/easy: leave it out",
    "cz/easy --algorithms se --calibration=paper": "--calibration = paper: has no effect in",
    "cz/easy --algorithms dp-se --schedule paper": "--schedule = paper: has no effect on dp-se",
    "cz/easy --algorithms se --output out --resume .": "--resume = .: is not a plain file",
    "cz/easy --algorithms se --output ''": "--output = '': must name a place",
    "cz/easy --algorithms se --resume ''": "--resume = '': must name a place",
    "cz/easy --algorithms se --data ' '": "--data = ' ': must name a place",
    "cz/easy --algorithms se --output q --resume st": "--output = q/regret.csv: is a directory",
    "cz/easy --algorithms se --output pipe --resume st": "--output = pipe: is not a folder",
    "cz/easy --algorithms se --output out --resume pipe": "--resume = pipe: is not a plain file",
    "cz/easy --algorithms se --output out --resume /dev/full": "--resume = /dev/full: is not a",
    "cz/easy --algorithms se --output out --resume zeros": "--resume = zeros: is not the state",
    "cz/easy --algorithms dist-rdp-se --radius paper --renyi-tail new": "--renyi-tail = new: must",
    "cz/easy --renyi-tail printed": "--renyi-tail = printed: is of dist-rdp-se with",
    "cz/easy --algorithms dist-rdp-se --radius paper --confidence 0": "--confidence = 0",
    "cz/easy --algorithms dist-rdp-se --radius paper --confidence 0.5": "--confidence = 0.5",
    "cz/easy --algorithms dist-rdp-se --radius paper --confidence nan": "--confidence = nan",
    "cz/easy --algorithms dist-rdp-se --radius paper --confidence 2/T": "--confidence = 2/T",
    "tkms/binary -T 3000 --algorithms sdp-ae --confidence 0.2": "--confidence = 0.2: has no effect",
    "cz/easy --visits 0": "--visits = 0",
    "cz/easy --visits many": "--visits = many",
    "cz/easy --visits 1e12": "--visits",
    "cz/easy --visits 2 --users 0": "--users = 0",
    "cz/easy --users 9": "--users = 9",
    "cz/easy --honest 0": "--honest = 0",
    "cz/easy --honest nan": "--honest = nan",
    "cz/easy --dropouts 100%": "--dropouts = 1",
    "cz/easy --dropouts -1%": "--dropouts = -1%",
    "cz/easy --dropouts 60% --honest 50%": "--dropouts = 3/5",
    "cz/easy --aggregation secret": "--aggregation = secret",
    "cz/easy --aggregation masked --dropouts 50%": "--dropouts = 1/2",
    "cz/easy --aggregation masked --algorithms cdp-se": "--algorithms = cdp-se",
    "cz/easy --visits 2 --algorithms ldp-se": "--algorithms = ldp-se",
    "cz/easy --dropouts 5% --algorithms dp-se": "--algorithms = dp-se",
    "cz/easy --visits 2 --radius paper": "--radius = paper",
    "cz/easy --honest 90% --radius paper": "--radius = paper",
    "csb/topk --super-arm 0": "--super-arm = 0: must be >= 1",
    "csb/topk --super-arm 21": "--super-arm = 21: must be <= arms = 20",
    "csb/topk --arms 63": "--arms = 63: must be <= 62",
    "csb/topk -T 19": "--horizon = 19: must be >= arms = 20",
    "csb/topk --release blocks": "--release = blocks: must be one of tree, doubling",
    "csb/topk --algorithms cucb --release tree": "--release = tree: has no effect on cucb",
    "csb/topk --algorithms se": "--algorithms = se: is played in worlds with independent",
    "cz/easy --algorithms cucb-dp": "--algorithms = cucb-dp: is played in worlds with super",
    "cz/easy --super-arm 3": "--super-arm = 3: cz/easy has none: leave it out",
    "csb/path --arms 25": "--arms = 25: must be 2 n (n - 1)",
    "csb/coverage --super-arm 3": "--super-arm = 3: must be a multiple of 2",
    "csb/topk --schedule exact": "--schedule = exact: has no effect on",
    "csb/topk --users 5": "--users = 5: has no effect in csb/topk",
    "csb/topk --algorithms cucb-ldp1:c=1": "cucb-ldp1:c = 1: must be a number in [2",
    "csb/topk --algorithms cucb-ldp1:c=8": "--algorithms = cucb-ldp1:c=8: c is of the paper",
    "csb/topk --data x.csv": "--data = x.csv: csb/topk is simulated",
    "csb/topk --epsilon 0": "--epsilon = 0",
    "csb/topk --visits 2": "--algorithms = cucb: has no noise that visits share",
    "csb/topk --dropouts 5%": "--algorithms = cucb: does not plan for users who vanish",
    "lzj/fig2 --algorithms dpe --users 88000 -T 1e6": "--users = 88000: are too few: 1000000",
    "lzj/fig2 --algorithms dpe -T 1e7": "--users = 100000: are too few: 10000000 rounds of dpe",
    "lzj/fig2 --algorithms dpe --users 0": "--users = 0: must be >= 1",
    "lzj/fig2 --algorithms dpe --alpha 1": "--alpha = 1: must lie in (0, 1)",
    "lzj/fig2 --algorithms dpe --alpha nan": "--alpha = nan",
    "lzj/fig2 --algorithms dpe --calibration exactly": "--calibration = exactly: must be",
    "lzj/fig2 --calibration pure --radius paper --algorithms cdp-dpe": "--radius = paper: must be",
    "lzj/fig2 --calibration pure --algorithms sdp-dpe": "--calibration = pure: must be exact or",
    "lzj/fig2 --algorithms pe": "--users = 100000: are too few: 1000000 rounds of pe need 1000000",
    "lzj/fig2 --algorithms se": "--algorithms = se: is played in worlds with independent arms",
    "lzj/fig2 --algorithms dpe --schedule exact": "--schedule = exact: has no effect on dpe",
    "lzj/fig2 --algorithms dpe --arms 0": "--arms = 0",
    "lzj/fig2 --algorithms dpe -T 999": "--horizon = 999: must be >= arms = 1000",
    "lzj/fig2 --algorithms dpe --delta 0": "--delta = 0: must lie in (0, 1)",
}


@pytest.mark.parametrize("line", REFUSED)
def test_a_run_that_cannot_be_made_is_refused_by_name_and_leaves_nothing(
    bandit: Bandit, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    def never(*args: object) -> None:
        raise AssertionError

    monkeypatch.setattr("bandits.experiments.playing.play_task", never)
    Path("q/regret.csv").mkdir(parents=True)
    os.mkfifo("pipe")
    Path("zeros").write_bytes(bytes(100_000))
    Path("here").write_text("mine\n")
    before = sorted(Path().rglob("*"))
    words = shlex.split(line)
    places = ("--output", "out", "--resume", "state")
    kept = () if {*places} & {*words} else places
    answer = bandit("run", *words, *kept)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith(f"error: {REFUSED[line]}"), answer.err
    assert answer.err.count("\n") == 1
    assert "defect" not in answer.err
    assert sorted(Path().rglob("*")) == before
    assert Path("here").read_text() == "mine\n"
    assert Path("zeros").read_bytes() == bytes(100_000)
