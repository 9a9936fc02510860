"""Targets of every kind; the tests copy this file to targets.py and audit its functions."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

print("imported", flush=True)  # must never reach standard output


def coin(dataset: Any, rng: np.random.Generator) -> Any:
    """Truth with probability 3/4: epsilon = ln 3."""
    return bool(dataset) if rng.random() < 0.75 else not dataset


def laplace(dataset: Any, n: int, rng: np.random.Generator) -> Any:
    return dataset + rng.geometric(0.632, n) - rng.geometric(0.632, n)


def loud(dataset: Any, n: int, rng: np.random.Generator) -> Any:
    print("hello from the target")
    print("and again", file=sys.__stdout__)
    subprocess.run(["echo", "from a child"], check=True)
    os.write(1, b"from the descriptor\n")
    return laplace(dataset, n, rng)


def raises_in_b(dataset: Any, rng: np.random.Generator) -> Any:
    if dataset == 1:
        raise ValueError("no such user:\nBob")
    return int(rng.integers(3))


def raises_at_random(dataset: Any, rng: np.random.Generator) -> Any:
    if rng.random() < 0.1:
        raise ValueError("no such user")
    return int(rng.integers(3))


def dies_in_b(dataset: Any, rng: np.random.Generator) -> Any:
    if dataset == 1:
        os._exit(7)
    return int(rng.integers(3))


def raises_late(dataset: Any, n: int, rng: np.random.Generator) -> Any:
    if n > 2000:
        raise MemoryError("too many")
    return laplace(dataset, n, rng)


def too_deep(dataset: Any) -> Any:
    return too_deep(dataset)


def presses_ctrl_c(dataset: Any, rng: np.random.Generator) -> Any:
    """Raises KeyboardInterrupt although the user did not press Ctrl-C."""
    if rng.random() < 0.01:
        raise KeyboardInterrupt
    return int(rng.integers(3))


def exits_late(dataset: Any, n: int, rng: np.random.Generator) -> Any:
    if n > 100:
        os._exit(7)
    return laplace(dataset, n, rng)


def is_killed_late(dataset: Any, n: int, rng: np.random.Generator) -> Any:
    if n > 100:
        os.kill(os.getpid(), signal.SIGKILL)
    return laplace(dataset, n, rng)


class Pickled:
    def __reduce__(self) -> Any:
        return Path.touch, (Path("unpickled").absolute(),)

    def __repr__(self) -> str:
        return "Pickled()"


def hangs(dataset: Any, n: int, rng: np.random.Generator) -> Any:
    Path("called").touch()
    while True:
        pass


def hangs_and_catches(dataset: Any) -> Any:
    while True:
        with contextlib.suppress(Exception):
            time.sleep(9)


def hangs_for_good(dataset: Any) -> Any:
    Path("called").touch()
    while True:
        with contextlib.suppress(BaseException):
            time.sleep(9)


def tired_and_loud(dataset: Any, n: int, rng: np.random.Generator) -> Any:
    time.sleep(0.01 * n)
    return loud(dataset, n, rng)


def tired(dataset: Any, rng: np.random.Generator) -> Any:
    Path("called").touch()
    time.sleep(0.01)
    return int(rng.integers(2))


def generates(dataset: Any) -> Any:
    yield dataset


async def waits(dataset: Any) -> Any:
    return dataset


async def waits_at_once(dataset: Any, n: int, rng: Any) -> Any:
    return [dataset] * n


def holds_itself(dataset: Any) -> Any:
    outputs: list[Any] = []
    outputs.append(outputs)
    return outputs


class Plain:
    pass


class NoHash(Plain):
    def __hash__(self) -> int:
        raise RuntimeError("no hash")


class NoEqual(Plain):
    __hash__ = Plain.__hash__

    def __eq__(self, other: object) -> bool:
        raise TypeError("no ==")


class ShowsFor(Plain):
    def __repr__(self) -> str:
        while True:
            pass


def map_hangs(output: Any) -> Any:
    while output is not None:
        pass


def map_waits(output: Any) -> Any:
    Path("called").touch()
    time.sleep(600)


def sampler_hangs(n: int, rng: np.random.Generator) -> Any:
    Path("called").touch()
    time.sleep(600)


class Count:
    def __init__(self, value: int) -> None:
        self.value = value


def counts(dataset: Any) -> Any:
    return Count(dataset)


def map_presses_ctrl_c(output: Any) -> Any:
    raise KeyboardInterrupt


class Silent:
    def __repr__(self) -> str:
        raise ValueError("nothing to show")


def forks(dataset: Any, rng: np.random.Generator) -> Any:
    """The child returns too: without a guard it would continue the audit by itself."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
    return int(rng.integers(3))


class Rare(BaseException):
    pass


def raising(error: BaseException) -> Any:
    def raises(dataset: Any) -> Any:
        raise error

    return raises


raises_base_exception = raising(BaseException("of no kind"))
raises_rare = raising(Rare())
out_of_memory = raising(MemoryError())
bulky_error = raising(ValueError("x" * 200_000))
colours = raising(ValueError("\x1b[31mred"))


def returning(output: Any) -> Any:
    def returns(dataset: Any) -> Any:
        return output

    return returns


nothing = returning(None)
huge = returning(10**5000)
huge_within = returning({"count": (10**5000,)})
bulky_constant = returning("x" * 200_000)
has_no_hash = returning([NoHash()])
has_no_equal = returning(NoEqual())
shows_for_ever = returning(ShowsFor())
shows_nothing = returning(Silent())
word = "not callable"


# -- targets and maps of one expression -----------------------------------------------------------


def target(function: Any) -> Any:
    return function


own_entropy = target(lambda dataset, n, rng: laplace(dataset, n, np.random.default_rng()))
no_rng = target(lambda dataset: dataset + random.choice((0, 0, 1, 1)))
locks = target(lambda dataset: threading.Lock())
runs_when_unpickled = target(lambda dataset: Pickled())
leaves = target(lambda dataset, n, rng: sys.exit(7))
masked_in_b = target(
    lambda dataset, n, rng: np.ma.masked_array(
        rng.integers(3, size=n), mask=rng.random(n) < 0.9 * dataset
    )
)
huge_objects = target(lambda dataset, n, rng: np.array([10**5000] * n, dtype=object))
nan_sometimes = target(
    lambda dataset, n, rng: np.where(rng.random(n) < 0.1, np.nan, rng.normal(size=n))
)
nan_in_b = target(lambda dataset, n, rng: np.full(n, np.nan if dataset else 0.0))
wider_in_b = target(lambda dataset, n, rng: rng.normal(size=(n, 2 + dataset)))
text_in_b = target(lambda dataset, n, rng: rng.integers(3, size=n) if dataset == 0 else ["x"] * n)
float_in_b = target(
    lambda dataset, rng: int(rng.integers(3)) if dataset == 0 else float(rng.integers(3))
)
nothing_at_once = target(lambda dataset, n, rng: None)
one_short = target(lambda dataset, n, rng: laplace(dataset, n, rng)[1:])
single = target(lambda dataset, n, rng: 3.0)
constant = target(lambda dataset, n, rng: np.zeros(n))
bulky = target(lambda dataset: "x" * 20_000 + str(dataset))
bulky_dict = target(lambda dataset: {str(i): i for i in range(200)} | {"199": dataset})
unnoised = target(lambda dataset, n, rng: np.full(n, dataset))
coin_of = target(lambda output: 2 * output)
count_of = target(lambda output: output.value)
objects = target(lambda dataset: Plain())
shows_nothing_at_once = target(lambda dataset, n, rng: [Silent() for _ in range(n)])
three = target(lambda a, b, c: a)


def slow(dataset: Any, n: int, rng: np.random.Generator) -> Any:
    time.sleep(0.02)
    return laplace(dataset, n, rng)
