# ruff: noqa: NPY002 - the legacy interface of numpy is one of those under test
"""Tests of the tape and the RNG hooks: the bits each source gets, and the restored state."""

from __future__ import annotations

import os
import random
import secrets
import threading
from collections.abc import Callable
from random import random as imported_random
from typing import Any

import numpy as np
import pytest
from numpy.random import default_rng as imported_default_rng

import audit.replay.rng_hooks
import dpcore.noise
from audit.replay.rng_hooks import current, hooked_rngs
from audit.replay.tape import EXTREMES, Draw, Stream, Tape
from dpcore import DiscreteLaplace
from dpcore.errors import InvalidParameter
from dpcore.sampling.rng import SYSTEM, SeededRng, SystemRng
from tests.support.dpcore.mutants import mutated

STREAM = Stream("a source")
NOISE = DiscreteLaplace(scale=100)


def deals_from_imported_names() -> Any:
    return imported_random(), imported_default_rng().normal()


# Each draws at least 20 bits, from one source.
SOURCES: dict[str, Callable[[], Any]] = {
    "SystemRng": lambda: (SystemRng().bits(64), SYSTEM.below(10**9), SYSTEM.words(2).tolist()),
    "noise": lambda: (NOISE.sample(), NOISE.sample(), NOISE.sample(3).tolist()),
    "SeededRng": lambda: SeededRng(SYSTEM.bits(64)).bits(40),
    "random": lambda: (random.random(), random.gauss(0, 1), random.getrandbits(70)),
    "random.randbytes": lambda: random.randbytes(5),
    "random.sample": lambda: random.sample(range(1000), 5),
    "Random": lambda: random.Random().uniform(0, 1),
    "SystemRandom": lambda: random.SystemRandom().random(),
    "secrets": lambda: (secrets.token_hex(5), secrets.randbelow(10**9), secrets.randbits(40)),
    "os.urandom": lambda: os.urandom(12),
    "numpy.random": lambda: (np.random.normal(), np.random.rand(2).tolist()),
    "default_rng": lambda: np.random.default_rng().normal(size=2).tolist(),
    "spawned": lambda: [rng.random() for rng in np.random.default_rng().spawn(2)],
    "PCG64": lambda: int(np.random.Generator(np.random.PCG64()).integers(1 << 60)),
    "MT19937": lambda: np.random.Generator(np.random.MT19937()).random(),
    "RandomState": lambda: np.random.RandomState().laplace(),
    "seeded default_rng": lambda: np.random.default_rng(secrets.randbits(64)).random(),
    "imported names": deals_from_imported_names,
}


def test_a_tape_is_a_function_of_its_seed_and_its_source() -> None:
    one, other, third = (
        [tape.bits(STREAM, width) for width in (1, 64, 7, 200)]
        for tape in (Tape(7), Tape(7), Tape(8))
    )
    assert one == other != third
    tape = Tape(7)
    copies = [tape.bits(Stream("a source", copy), 64) for copy in range(2)]
    assert copies[0] == copies[1] != tape.bits(Stream("another"), 64)


def test_draws_of_any_width_and_many_at_once_read_the_same_numbers() -> None:
    wide, narrow, single, words = Tape(7), Tape(7), Tape(7), Tape(7)
    for word in words.words(STREAM, 1000).tolist():
        real = wide.bits(STREAM, 300)
        assert real >> 236 == word == single.bits(STREAM, 64)
        assert narrow.bits(STREAM, 5) == real >> 295
    assert single.log == words.log == [Draw("a source", 0, 1000, 64)]


@pytest.mark.parametrize("width", [1, 2, 53, 64, 65, 100])
def test_extremes_exist_at_every_width(width: int) -> None:
    found = {}
    for name in EXTREMES:
        tape, plain = Tape(7, {("a source", 300): name}), Tape(7)
        drawn, usual = ([each.bits(STREAM, width) for _ in range(302)] for each in (tape, plain))
        found[name] = drawn.pop(300)
        usual.pop(300)
        assert drawn == usual
    top = 2**width - 1
    assert (found["lowest"], found["highest"], found["middle"]) == (0, top, 2 ** (width - 1))
    assert found["low"] == (1 << width) >> 30
    assert found["high"] == min(2**width - ((1 << width) >> 30), top)
    for wrong in ("lower", -1, 1 << 64):
        with pytest.raises(InvalidParameter, match="changes"):
            Tape(7, {("a source", 0): wrong})


def test_the_log_of_draws_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("audit.replay.tape._MOST_LOGGED", 99)
    tape = Tape(7)
    for i in range(100):
        tape.bits(STREAM, 1 + i % 2)
    assert tape.cut
    assert tape.draws["a source"] == 100


@pytest.mark.parametrize("name", SOURCES)
def test_every_source_reads_the_tape(name: str) -> None:
    call = SOURCES[name]
    with hooked_rngs(deals_from_imported_names) as session:
        one, other, third = (session.play(Tape(seed), call) for seed in (7, 7, 8))
    assert one == other != third
    assert one != call()


def test_extremes_reach_every_kind_of_float() -> None:
    for name, value in (("lowest", 0.0), ("highest", 1 - 2**-40), ("middle", 0.5)):
        changes = {(source, 0): name for source in ("random", "numpy.random", "rng")}
        with hooked_rngs() as session:
            for owner in (lambda: random, lambda: np.random, session.given):
                found = session.play(Tape(7, changes), lambda owner=owner: owner().random())  # type: ignore[misc]  # mypy infers no default of a lambda
                assert found == value


def hooked_objects() -> list[Any]:
    """The objects behind every RNG hook, compared by identity."""
    classes = [vars(cls) for cls in (SystemRng, SeededRng, random.Random)]
    modules = [vars(module) for module in (random, secrets, os, np.random, dpcore.noise)]
    own = [np.random.mtrand.get_bit_generator()]
    return [dict(held) for held in (*classes, *modules)] + own


def test_all_generators_are_restored_on_every_exit() -> None:
    random.seed(5)
    np.random.seed(5)
    random.gauss(0, 1)
    np.random.normal()
    before, own, legacy = hooked_objects(), random.getstate(), np.random.get_state(legacy=False)

    def breaks() -> None:
        random.seed(1)
        np.random.seed(1)
        np.random.normal()
        random.gauss(0, 1)
        raise KeyboardInterrupt

    with hooked_rngs(deals_from_imported_names) as session:
        assert hooked_objects() != before
        session.play(Tape(7), lambda: np.random.seed(3))
        with pytest.raises(KeyboardInterrupt):
            session.play(Tape(7), breaks)
    with pytest.raises(ZeroDivisionError), hooked_rngs():
        raise ZeroDivisionError
    assert hooked_objects() == before
    assert random.getstate() == own
    assert str(np.random.get_state(legacy=False)) == str(legacy)
    assert globals()["imported_random"] is random.random
    assert current() is None


def test_draws_made_between_plays_are_not_repeated() -> None:
    np.random.seed(5)
    with hooked_rngs() as session:
        session.play(Tape(7), np.random.normal)
        drawn = np.random.get_state(legacy=False)["state"]["pos"], np.random.random_sample(9)
        session.play(Tape(7), np.random.normal)
    assert np.random.get_state(legacy=False)["state"]["pos"] != drawn[0]
    assert not {*drawn[1]} & {*np.random.random_sample(9)}


def test_only_one_replay_session_can_be_open() -> None:
    with (
        hooked_rngs(),
        pytest.raises(RuntimeError, match="one replay can run at a time"),
        hooked_rngs(),
    ):
        pass
    with hooked_rngs():
        pass


def test_buffered_noise_is_neither_used_nor_drawn_during_a_replay() -> None:
    noise = DiscreteLaplace(scale=1000)
    noise.sample()  # fills the buffer of noise drawn ahead
    with hooked_rngs() as session:
        taped = [session.play(Tape(7), lambda: [noise.sample() for _ in range(50)]) for _ in "ab"]
    assert taped[0] == taped[1]
    later = [noise.sample() for _ in range(5000)]
    assert not any(taped[0] == later[i : i + 50] for i in range(len(later)))


def test_another_thread_keeps_its_own_randomness() -> None:
    found: list[Any] = []

    def elsewhere() -> None:
        rng = np.random.default_rng()
        found.append((SYSTEM.bits(64), random.getrandbits(64), os.urandom(8), rng.random()))
        found.append((np.random.random() + random.random(), random.Random(3).random()))

    def call() -> None:
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()

    tapes = [Tape(7), Tape(7)]
    with hooked_rngs() as session:
        for tape in tapes:
            session.play(tape, call)
    assert found[0] != found[2]
    assert found[1][0] != found[3][0]
    assert found[1][1] == found[3][1] == random.Random(3).random()
    assert [tape.log for tape in tapes] == [[], []]


def test_a_generator_that_outlives_its_session_is_not_predictable() -> None:
    with hooked_rngs() as session:
        kept = [session.play(Tape(7), np.random.default_rng) for _ in range(2)]
        seeded = session.play(Tape(7), lambda: SeededRng(3))
    assert kept[0].random() != kept[1].random()
    assert seeded.bits(64) == SeededRng(3).bits(64)


def test_constant_seeds_give_their_usual_draws_while_learning() -> None:
    def call() -> Any:
        np.random.seed(3)
        return (
            random.Random(3).random(),
            np.random.default_rng(3).random(),
            np.random.random(),
            np.random.RandomState(3).random(),
            SeededRng(3).bits(64),
        )

    usual = call()
    with hooked_rngs() as session:
        session.learning = True
        tape = Tape(7)
        assert session.play(tape, call) == usual
        session.learning = False
        session.constants = frozenset(tape.seeds)
        assert session.play(Tape(8), call) == usual
        session.constants = frozenset()
        assert not set(session.play(Tape(8), call)) & set(usual)
    assert tape.log == []
    assert len(tape.seeds) == 5


def test_hooked_generators_are_of_their_classes_and_equal_seeds_give_equal_draws() -> None:
    real = np.random.PCG64
    with hooked_rngs() as session:
        assert session.play(
            Tape(7), lambda: isinstance(np.random.RandomState(), np.random.RandomState)
        )
        assert session.play(Tape(7), lambda: issubclass(real, np.random.PCG64))
        one, other = session.play(
            Tape(7), lambda: [SeededRng(3).words(5).tolist() for _ in range(2)]
        )
    assert one == other


def test_an_error_in_native_code_is_raised_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    with hooked_rngs() as session:
        tape = Tape(7)

        def interrupts(*_: object) -> int:
            raise KeyboardInterrupt

        monkeypatch.setattr(tape, "bits", interrupts)
        with pytest.raises(KeyboardInterrupt):
            session.play(tape, lambda: session.given().random())


@pytest.mark.parametrize(
    ("line", "source"),
    [
        ('    exchange(os, "urandom", _urandom)\n', "os.urandom"),
        ('    _set(undo, random, "_urandom", _urandom)\n', "secrets"),
        ('    _set(undo, random.Random, "random", _random_random)\n', "Random"),
        ('    _set(undo, SystemRng, "bits", _system_bits)\n', "SystemRng"),
        ('    _set(undo, dpcore.noise, "SystemRng", type("NoSystemRng", (), {}))\n', "noise"),
    ],
)
def test_a_missing_rng_hook_is_detected(
    monkeypatch: pytest.MonkeyPatch, line: str, source: str
) -> None:
    mutant = mutated(audit.replay.rng_hooks._exchange, line, "")
    monkeypatch.setattr(audit.replay.rng_hooks, "_exchange", mutant)
    if source == "noise":
        NOISE.sample()
    with hooked_rngs() as session:
        assert session.play(Tape(7), SOURCES[source]) != session.play(Tape(7), SOURCES[source])
