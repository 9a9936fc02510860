r"""What replay must not call a proof, and must not disturb."""

from __future__ import annotations

import random
import secrets
import threading
from typing import Any

import numpy as np

from audit.replay.declared import declare
from audit.replay.replay import replay
from dpcore import DiscreteLaplace

_KEPT: dict[int, int] = {}


def remembered(dataset: int) -> int:
    """A permanent answer: noise drawn once for each dataset, and kept."""
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

    assert replay(moves_by_one, (0, 1), sensitivity=1).exit_code == 0
    refuted = {f.kind: f for f in replay(moves_far, (0, 1), sensitivity=1).findings if f.refutes}
    assert refuted.keys() == {"sensitivity-exceeded", "declared-sensitivity"}
    assert refuted["declared-sensitivity"].statement.startswith("total moves by 1e+400 (l1)")


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
    assert "dataset A draws nothing: its output is certain; the other gave it on" in found.statement
