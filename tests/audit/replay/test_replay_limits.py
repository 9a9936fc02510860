r"""Tests of the limits of replay: no false proofs, no disturbed randomness, no endless runs."""

from __future__ import annotations

import random
import secrets
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from audit.errors import TargetFailed
from audit.replay.declared import declare
from audit.replay.replay_both import replay
from audit.replay.run_once_on_tape import MOST_HANGS
from dpcore import DiscreteLaplace
from tests.effort import effort
from tests.support.replay_targets import faulty

_KEPT: dict[int, int] = {}


def remembered(dataset: int) -> int:
    """A permanent answer: noise is drawn once for each dataset and stored."""
    if dataset not in _KEPT:
        _KEPT[dataset] = dataset + secrets.randbelow(1000) - 500
    return _KEPT[dataset]


def test_an_answer_that_is_kept_is_not_refuted() -> None:
    assert replay(remembered, (0, 1)).verdict != "refuted"


def test_single_precision_is_no_query_that_moves_too_far() -> None:
    def noisy(dataset: list[float], rng: np.random.Generator) -> Any:
        noise = 100 * rng.standard_normal(3, dtype=np.float32)
        return (np.array(dataset, dtype=np.float32) + noise).tolist()

    report = replay(noisy, ([0, 0, 0], [0.6, 0.8, 0]), sensitivity=1, norm="l2")
    assert report.verdict != "refuted"
    assert replay(noisy, ([0, 0, 0], [1.2, 1.6, 0]), sensitivity=1, norm="l2").verdict == "refuted"


def test_integers_that_no_float_holds_are_compared_exactly() -> None:
    huge = 10**400

    def moves_by_one(dataset: int, rng: np.random.Generator) -> int:
        declare(huge + dataset, "total", sensitivity=1)
        return huge + dataset + int(rng.integers(5))

    def moves_far(dataset: int, rng: np.random.Generator) -> int:
        declare(huge * dataset, "total", sensitivity=1)
        return huge * dataset + int(rng.integers(5))

    few: Any = {"sensitivity": 1, "changes": 20, "tapes": 8}
    assert replay(moves_by_one, (0, 1), **few).exit_code == 0
    refuted = {f.kind: f for f in replay(moves_far, (0, 1), **few).findings if f.refutes}
    assert refuted.keys() == {"sensitivity-exceeded", "declared-sensitivity"}
    assert refuted["declared-sensitivity"].statement.startswith("total changes by 1e+400 (l1)")


def test_the_random_numbers_of_other_threads_go_on() -> None:
    seen: list[int] = []
    stop = threading.Event()

    def draw() -> None:
        while not stop.is_set():
            seen.append(random.getrandbits(64))

    thread = threading.Thread(target=draw)
    thread.start()
    try:
        replay(lambda dataset: dataset + random.gauss(0, 1), (0, 1), changes=10)
    finally:
        stop.set()
        thread.join()
    assert len(set(seen)) == len(seen)


def test_a_release_that_is_withheld_where_nobody_is_is_worth_a_look_only() -> None:
    def withheld(count: int) -> int | None:
        released = count and count + DiscreteLaplace(scale=1).sample()
        return released if released >= 4 else None

    (found,) = (f for f in replay(withheld, (0, 1)).findings if f.kind == "no-noise")
    assert found.severity == "warning"
    assert (
        "dataset A draws nothing, so its output is certain; the other dataset gave this output on"
        in found.statement
    )


# Native code in an endless loop cannot be interrupted in-process, so a separate process runs it.
DEALS = """
import random, sys
import numpy as np
from audit.replay.rng_hooks import hooked_rngs
from audit.replay.replay_both import _NEAR
from audit.replay.tape import EXTREMES, Tape

steps = int(sys.argv[1])
calls = [("geometric", (p,)) for p in [1 - np.exp(-0.5), *np.linspace(0.3, 1, steps)]]
for mean in (0.5, 9.5, 50.0, 1e9):
    calls += [("poisson", (mean,)), ("gamma", (mean / 50,)), ("vonmises", (0, mean))]
    calls += [("negative_binomial", (mean, 0.1)), ("binomial", (int(mean) + 1, 0.4))]
    calls += [("beta", (mean / 50, 0.01)), ("logseries", (1 / (1 + mean),))]
    calls += [("zipf", (1 + min(mean, 99.0),))]
    calls += [("hypergeometric", (10, 1 + min(int(mean), 10**8), 5)), ("normal", ())]
plain = [("gammavariate", (0.1, 1)), ("vonmisesvariate", (0, 1)), ("sample", (range(99), 9))]
plain += [("betavariate", (0.1, 0.1)), ("gauss", (0, 1)), ("randrange", (10**30,))]
with hooked_rngs() as session:
    for source, owner, named in [
        ("rng", session.given, calls), ("numpy.random", lambda: np.random, calls),
        ("random", lambda: random, plain),
    ]:
        for name, arguments in named:
            for place in range(3):
                for value in (*EXTREMES, *_NEAR.values()):
                    tape = Tape(7, {(source, place): value})
                    session.play(tape, lambda: getattr(owner(), name)(*arguments))
"""


def test_no_distribution_of_numpy_or_python_is_without_an_end_on_a_changed_tape() -> None:
    # numpy's geometric(1 - exp(-1/2)) did not terminate at 1 - 2^-53.
    words = [sys.executable, "-c", DEALS, str(effort(20, 2000))]
    subprocess.run(words, check=True, timeout=300, cwd=Path(__file__).parents[3])


def searches(value: int) -> int:
    u, total, found = random.random(), 0.0, value
    while total < u:  # endless at u = 1 - 2^-40: the sum ends at 1 - 2^-30
        found += 1
        total = 1 - max(2.0**-found, 2.0**-30)
    return found


def test_tapes_on_which_neither_dataset_ends_are_skipped_and_reported() -> None:
    for target in (searches, faulty.hangs_rarely):
        report = replay(target, (0, 1), timeout=0.3, changes=20)
        (found,) = (each for each in report.findings if each.kind == "skipped-tapes")
        assert found.severity == "warning"
        assert "no answer within 0.3 s" in found.statement
        assert not any(each.kind == "hangs" for each in report.findings)
        assert report.changed < 20


def test_a_hang_on_one_dataset_alone_is_a_fault_and_many_end_the_replay() -> None:
    def hangs(value: int) -> int:
        if random.random() < 2**-20 and value:
            while True:
                pass
        return random.getrandbits(4)

    findings = replay(hangs, (0, 1), timeout=0.3, changes=3).findings
    assert [each.severity for each in findings if each.kind == "hangs"] == ["error"]
    calls = []

    def seldom(value: int) -> int:
        calls.append(value)
        while value and len(calls) > 2:
            pass
        return random.getrandbits(4)

    with pytest.raises(TargetFailed, match="no answer within"):
        replay(seldom, (0, 1), timeout=0.05)
    assert calls.count(1) <= MOST_HANGS + 1
