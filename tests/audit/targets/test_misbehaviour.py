"""Tests of targets that raise, hang, print or fork: the error is named and drawn runs are kept."""

from __future__ import annotations

import itertools
import json
import re
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from audit import audit as audited
from audit.outputs.output_parser import OutputParser, oddities
from tests.day_and_nightly import by_day
from tests.support.audit.command import (
    HEARS_CTRL_C,
    IGNORES_CTRL_C,
    Shell,
    at,
    process,
    started,
)
from tests.support.run_command import Answer


def failed(answer: Answer) -> dict[str, Any]:
    """The error in a JSON document, after checks of exit code 3 and the last line on stderr."""
    assert answer.code == 3
    error: dict[str, Any] = answer.json["error"]
    assert answer.json["verdict"] is None
    assert error["reason"] in answer.err.splitlines()[-1]
    assert "Traceback" not in answer.err
    return error


FAILS = r"""read request
case $request in *'"dataset": 1'*) exit 5;; esac
seq $(echo "$request" | sed 's/.*"n": \([0-9]*\).*/\1/')
"""
REVEALS = "dataset . failed in 4 of 4 more runs, dataset . in none: the error itself reveals the"


@by_day(2)
@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("raises_in_b", ()),
        ("raises_in_b", ("--jobs", 2)),
        ("raises_in_b", ("--pairs", "pairs.json")),
        ("raises_in_b", ("--search", "integer:low=0,high=1", "-n", 4000)),
        ("dies_in_b", ()),
        ("a program", ()),
    ],
)
def test_an_error_on_one_dataset_reveals_it(
    audit: Shell, here: Path, name: str, more: tuple[Any, ...]
) -> None:
    (here / "pairs.json").write_text("[[0, -1], [0, 1]]", encoding="utf-8")
    words = at(name)
    if name == "a program":
        (here / "fails.sh").write_text(FAILS, encoding="utf-8")
        words[0] = "exec:sh fails.sh"
    if more[:1] in {("--pairs",), ("--search",)}:
        del words[words.index("--pair") : words.index("--pair") + 3]
    answer = audit(*words, *more, "--json")
    assert re.search(REVEALS, answer.err.splitlines()[-1])
    if "--search" in more:
        assert answer.code == 3
        return
    error = failed(answer)
    assert error["reveals_dataset"] is True
    if name == "raises_in_b" and not more:
        assert re.match(r"raised ValueError: .* at targets\.py:\d+", error["reason"])
        assert (error["dataset"], error["run"]) == ("B", 2)


@pytest.mark.parametrize("name", ["raises_at_random", "hangs"])
def test_an_error_on_both_datasets_reveals_neither(audit: Shell, name: str) -> None:
    answer = audit(*at(name), "--timeout", 0.3, "--json")
    assert failed(answer)["reveals_dataset"] is False
    assert "reveals" not in answer.err


@by_day(4)
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("nothing", "returned nothing: every output is None"),
        ("nothing_at_once", "returned nothing: f(dataset, n, rng) must return n = "),
        ("one_short", r"returned \d+ outputs: f\(dataset, n, rng\) must return n = "),
        ("single", "returned float instead of an array: "),
        ("generates", r"returned a generator: return plain values instead, such as its list()"),
        (
            "waits",
            r"returned a coroutine: return plain values instead, such as the result of async",
        ),
        ("waits_at_once", "returned a coroutine: return plain values instead"),
        ("holds_itself", "returned a list nested deeper than 50"),
        ("shows_nothing", "returned a Silent whose repr raises ValueError"),
        ("shows_nothing_at_once", "returned a Silent whose repr raises ValueError"),
        ("has_no_hash", "returned a NoHash whose hash raises RuntimeError"),
        ("has_no_equal", "returned a NoEqual whose == raises TypeError"),
        ("huge", "returned an integer of more than 14,000 bits"),
        ("huge_within", "returned an integer of more than 14,000 bits"),
        ("huge_objects", "returned an integer of more than 14,000 bits"),
        ("out_of_memory", "raised MemoryError at targets.py:"),
        ("too_deep", "raised RecursionError: maximum recursion depth exceeded"),
        ("colours", r"raised ValueError: \x1b[31mred at targets.py:"),
        ("raises_base_exception", "raised BaseException: of no kind at targets.py:"),
        ("raises_rare", "raised audited_targets.Rare at targets.py:"),
    ],
)
def test_a_target_without_outputs_has_failed(audit: Shell, name: str, reason: str) -> None:
    error = failed(audit(*at(name), "--json"))
    assert re.match(reason if r"\d" in reason else re.escape(reason), error["reason"])


@pytest.mark.parametrize("name", ["hangs_and_catches", "shows_for_ever"])
def test_a_hanging_target_is_stopped(audit: Shell, name: str) -> None:
    begun = time.monotonic()
    error = failed(audit(*at(name), "--timeout", 0.3, "--json"))
    assert error["reason"] == "no answer within 0.3 s; set a longer limit with --timeout"
    assert time.monotonic() - begun < 5


@pytest.mark.nightly
@pytest.mark.parametrize("where", ["target", "feature"])
def test_a_raised_keyboard_interrupt_is_a_failure_even_if_sigint_is_ignored(
    here: Path, where: str
) -> None:
    words = at("presses_ctrl_c", n=500)
    if where == "feature":
        words = [*at("coin", n=500), "--feature", "targets.py:map_presses_ctrl_c"]
    heard, ignored = (
        started(*words, "--json", cwd=here, ctrl_c=ctrl_c)
        for ctrl_c in (HEARS_CTRL_C, IGNORES_CTRL_C)
    )
    assert failed(ignored)["reason"].startswith("raised KeyboardInterrupt at targets.py:")
    assert (ignored.code, ignored.out) == (heard.code, heard.out)


def test_a_feature_has_the_same_time_limits(audit: Shell) -> None:
    hung = audit(*at("coin"), "--feature", "targets.py:map_hangs", "--timeout", 0.3, "--json")
    assert failed(hung)["reason"].startswith("no answer within 0.3 s")
    assert "error: feature targets.py:map_hangs: no answer" in hung.err
    pressed = audit(*at("coin"), "--feature", "targets.py:map_presses_ctrl_c", "--json")
    assert failed(pressed)["reason"].startswith("raised KeyboardInterrupt at targets.py:")


def test_nan_is_an_output(audit: Shell) -> None:
    answer = audit(*at("nan_sometimes", n=1000), "--json")
    assert answer.code == 0
    (warning,) = answer.json["warnings"]  # no two outputs are equal, but these are numbers
    assert "outputs are nan (" in warning
    assert warning in answer.err
    assert audit(*at("nan_in_b", n=500), "--json").code == 1


@by_day(1)
@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("wider_in_b", ("float64 array of shape (2,)", "float64 array of shape (3,)")),
        ("text_in_b", ("int64", "str")),
        ("float_in_b", ("int", "float")),
    ],
)
def test_another_type_or_shape_distinguishes_the_datasets(
    audit: Shell, name: str, kinds: tuple[str, str]
) -> None:
    answer = audit(*at(name), "--json")
    assert answer.code == 1
    (warning,) = answer.json["warnings"]
    assert warning.startswith(f"dataset A gave {kinds[0]}, dataset B {kinds[1]}: the type alone")
    assert answer.json["witness"]["event"] in {f"output in {{{kind!r}}}" for kind in kinds}


@pytest.mark.parametrize("kept", [1, 300])
def test_noise_that_repeats_for_a_while_is_reported(kept: int) -> None:
    calls = itertools.count()

    def noisy(value: int) -> int:
        rng = np.random.default_rng([7, next(calls) // kept])
        return value + int(rng.geometric(0.5) - rng.geometric(0.5))

    warnings = audited(noisy, "epsilon=1", pair=(0, 1), runs=4_000, seed=1).warnings
    told = [each for each in warnings if each.startswith("the runs are not independent")]
    assert bool(told) == (kept > 1)


def test_both_datasets_share_the_level_of_that_warning() -> None:
    for equal, told in ((30, False), (31, True)):
        # If 30 of 2,000 pairs are equal, all are neighbours with probability 0.75e-9.
        outputs = np.arange(4_000)
        outputs[1 : 4 * equal : 4] = outputs[: 4 * equal : 4]
        worlds = np.zeros(4_000, dtype=bool)
        found = oddities(outputs, worlds, OutputParser.learn(outputs, worlds, lines=False))
        assert any(each.startswith("the runs are not independent") for each in found) == told


def test_constant_outputs_and_objects_without_equality_give_a_warning(audit: Shell) -> None:
    answer = audit(*at("constant"), "--json")
    assert answer.code == 4
    assert answer.json["verdict"] == "nothing_measured"
    first, second = answer.json["warnings"]
    assert first == "every output was 0.0, on both datasets"
    assert second.startswith("nothing was measured: every output was the same; --allow-constant")
    meant = audit(*at("constant"), "--allow-constant", "--json")
    assert (meant.code, meant.json["verdict"]) == (0, "not_refuted")
    assert meant.json["warnings"] == [first]
    answer = audit(*at("objects", n=200), "--json")
    assert answer.code == 4
    assert "no two outputs of type Plain are equal: return plain values" in answer.json["warnings"]


@by_day(1)
@pytest.mark.parametrize("name", ["bulky", "bulky_constant", "bulky_dict", "bulky_error"])
def test_long_outputs_are_compared_completely_and_printed_shortened(
    audit: Shell, here: Path, name: str
) -> None:
    answer = audit(*at(name, n=150), "--html", "page.html", "--json")
    refuted = name in {"bulky", "bulky_dict"}  # the outputs differ only in the last character
    code = {"bulky_error": 3, "bulky_constant": 4}.get(name, int(refuted))
    assert answer.code == code, answer.err
    if name == "bulky_dict":  # read by its keys, of which one differs
        assert "199" in str(answer.json["witness"])
    else:
        assert "characters, SHA-256 " in answer.out
    assert len(answer.out) < 20_000
    assert len(answer.err) < 20_000
    assert (here / "page.html").stat().st_size < 200_000


def test_a_target_that_ignores_its_generator_is_reported(audit: Shell) -> None:
    answer = audit(*at("own_entropy"), "--json")
    assert answer.json["warnings"][0].startswith("the target ignores the randomness it is given")
    assert not answer.json["repeatable"]
    unseeded = audit(*at("no_rng"))
    assert "(repeats the draws of the audit, but not those of the target)" in unseeded.out


def test_text_printed_by_a_target_is_never_mixed_with_results(audit: Shell) -> None:
    answer = audit(*at("loud", n=500))
    assert answer.code == 0
    assert answer.out.startswith("NOT REFUTED")
    for printed in ("imported", "hello from the target", "and again", "from a child",
                    "from the descriptor"):  # fmt: skip
        assert printed in answer.err
        assert printed not in answer.out


def test_ctrl_c_keeps_the_drawn_runs(here: Path) -> None:
    running = process(*at("tired", n=100_000), "--json", "-o", "kept.json", cwd=here)
    end = time.monotonic() + 30
    while not (here / "called").exists() and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(1.0)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=20)
    found = json.loads(out)
    assert running.returncode == 130
    assert found["verdict"] in {"not_refuted", "nothing_measured"}  # depends on few runs
    assert found["stopped"] == "interrupted"
    assert 0 < found["runs"] < 5000
    assert "ended before its planned runs" in err
    assert json.loads((here / "kept.json").read_text()) == found


def test_a_deadline_ends_the_drawing(audit: Shell) -> None:
    answer = audit(*at("tired", n=100_000), "--deadline", 0.5, "--json")
    assert answer.code == 4
    assert answer.json["warnings"][-1].endswith(
        "too few to refute the claim reliably, for any outputs; draw more with -n (runs in Python)"
    )
    assert answer.json["stopped"] == "the deadline was reached"
    assert 0 < answer.json["runs"] < 60
