r"""Tests of ``dpcore budget dpsgd`` and ``check``, of plots, and of calibration with sampling."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from fractions import Fraction
from io import BytesIO, TextIOWrapper
from itertools import product
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree as ET

import pytest

import accounting
from accounting import TrainingRun
from accounting.cli.training import Training, draw, draw_epochs, over_epochs
from accounting.composition.training_run import Sampling
from accounting.guarantees.bound import Bound
from accounting.interop.from_dp_accounting import event_from_json, event_to_json
from dpcore.errors import InvalidParameter
from tests.day_and_nightly import by_day
from tests.support.run_command import Command

RUN = ["--noise-multiplier", "1.1", "--batch-size", 256, "--examples", 60000, "--delta", "1e-5"]
EVENT = {
    "class_name": "SelfComposedDpEvent",
    "count": 1000,
    "event": {
        "class_name": "PoissonSampledDpEvent",
        "sampling_probability": 0.01,
        "event": {"class_name": "GaussianDpEvent", "noise_multiplier": 1.0},
    },
}


def test_the_training_run_of_the_documentation_has_its_epsilon(command: Command) -> None:
    r"""dp-accounting's upper bound at a grid of 1e-5 is 2.381598; RDP gives 2.597."""
    found = command("dpsgd", *RUN, "--epochs", 60, "--json").json
    assert 2.3815 < found["epsilon"]["lower"] <= found["epsilon"]["upper"] < 2.381598
    assert (found["rounds"], found["derived"]["rate"]) == (14062, "8/1875")
    assert "floating-point" in found["assumptions"][0]
    # The printed command gives the same numbers.
    words = found["command"].split()
    assert words[:3] == ["dpcore", "budget", "epsilon"]
    again = command(*words[2:], "--json").json
    assert again["epsilon"] == found["epsilon"]


def test_truncated_batches_have_their_cost(command: Command) -> None:
    words = ["--noise-multiplier", 1, "--batch-size", 100, "--examples", 10_000, "--delta", "1e-6"]
    plain = command("dpsgd", *words, "--epochs", 1, "--json").json["epsilon"]
    near = ["--epochs", 1, "--relative", "1e-4"]
    cut = command("dpsgd", *words, *near, "--truncate", 170, "--json").json
    # scipy.stats.binom.sf(170, 10000, .01) = 5.4836e-11, a hundred times.
    assert cut["derived"]["cut_at_all"] == pytest.approx(5.48363e-9, rel=1e-5)
    assert cut["epsilon"]["lower"] < plain["lower"] < plain["upper"] < cut["epsilon"]["upper"]
    assert "truncated    to 300" in command("dpsgd", *words, *near, "--truncate", 300).out
    # The probability that a batch of 400 is filled is below all floats.
    few = ["--noise-multiplier", 1, "--batch-size", 3, "--examples", 60_000, "--delta", "1e-6"]
    rare = command("dpsgd", *few, *near, "--relation", "replace", "--truncate", 400, "--json").json
    whole = command("dpsgd", *few, *near, "--relation", "replace", "--json").json
    assert rare["epsilon"] == whole["epsilon"]
    # Nearly every batch is truncated here: only the theorem of random truncation gives a bound.
    often = command("dpsgd", *words, *near, "--truncate", 110, "--json").json
    assert often["derived"]["cut_at_all"] > 0.999
    assert plain["upper"] * 1.1 < often["epsilon"]["upper"] < 10
    assert 0.9 * plain["lower"] < often["epsilon"]["lower"] < plain["lower"]


def test_other_sampling_schemes_have_their_cost(command: Command) -> None:
    words = ["--noise-multiplier", 4, "--batch-size", 10, "--examples", 1000, "--delta", "1e-5"]
    poisson, fixed, shuffled = (
        command("dpsgd", *words, "--epochs", 2, "--sampling", each, "--json").json
        for each in ("poisson", "fixed", "shuffled")
    )
    assert poisson["epsilon"]["lower"] is not None
    # Replacing an example moves the sum twice as far.
    assert shuffled["epsilon"]["lower"] is None
    assert fixed["epsilon"]["lower"] > poisson["epsilon"]["upper"]
    for each in (fixed, shuffled):
        assert each["epsilon"]["upper"] > poisson["epsilon"]["upper"]
        again = command(*each["command"].split()[2:], "--json").json
        assert again["epsilon"]["upper"] == each["epsilon"]["upper"]
    replaced = command("dpsgd", *words, "--epochs", 2, "--relation", "replace", "--json").json
    assert replaced["epsilon"]["lower"] > poisson["epsilon"]["upper"]
    assert "opposite" in replaced["derived"]["means"]
    # Two epochs of Gaussian noise with shift 2/4 have the curve of one with shift 2 sqrt(2)/4.
    moved = ["--noise", "gaussian:sigma=4", "--sensitivity", "l2-squared=8"]
    once = command("epsilon", *moved, "--delta", "1e-5", "--json").json["epsilon"]
    assert shuffled["epsilon"]["upper"] == pytest.approx(once["upper"], rel=2e-6)


def test_rounds_of_batches_in_passes_omit_the_incomplete_batch_of_each_pass() -> None:
    runs = ((10, 6, 10), (10, 3, 10), (10, 5, 4), (7, 7, 3), (60, 25, 9))
    for sampling, shape in product((Sampling.SHUFFLED, Sampling.ALLOCATED), runs):
        examples, batch, rounds = shape
        # A loader drops the last incomplete batch of each pass: count example 0, at most.
        order = [first // batch for first in range(0, examples - batch + 1, batch)]
        passes = -(-rounds // len(order))
        run: dict[str, Any] = {"noise_multiplier": 1, "batch_size": batch, "examples": examples}
        of_rounds = TrainingRun(**run, rounds=rounds, sampling=sampling)
        of_epochs = TrainingRun(**run, epochs=passes, sampling=sampling)
        assert of_epochs.release() == of_rounds.release()
        assert of_rounds.release()[1] == passes
        assert of_epochs.rounds == passes * len(order) >= rounds
        assert of_rounds.first(1).release()[1] == 1


def test_a_pass_that_ends_early_has_no_lower_bound() -> None:
    # One of two batches: the example is in it with probability 1/2, as in one Poisson sample.
    half: dict[str, Any] = {"noise_multiplier": 1, "batch_size": 6, "examples": 12, "rounds": 1}
    truth = accounting.dpsgd(**half, delta="1e-3")
    found = accounting.dpsgd(**half, delta="1e-3", sampling="allocated")
    assert (found.lower, found.upper > truth.upper) == (None, True)
    run = TrainingRun(**half, sampling=Sampling.ALLOCATED)
    whole = replace(run, rounds=2, epochs=0)
    assert accounting.dpsgd(**{**half, "rounds": 2}, delta="1e-3", sampling="allocated").lower
    # A fraction of an epoch without a complete batch adds no pass.
    assert replace(run, rounds=0, epochs="1.01").release() == whole.release()


def _event(path: Path, document: Any) -> Path:
    file = path / "event.json"
    file.write_text(document if isinstance(document, str) else json.dumps(document))
    return file


def test_check_judges_the_epsilon_of_another_tool(command: Command, tmp_path: Path) -> None:
    dp = pytest.importorskip("dp_accounting", reason="the extra 'interop' is not installed")
    file = _event(tmp_path, EVENT)
    inner = dp.PoissonSampledDpEvent(0.01, dp.GaussianDpEvent(1.0))
    event = dp.SelfComposedDpEvent(inner, 1000)
    assert event_to_json(event) == event_to_json(event_from_json(json.dumps(EVENT))) == EVENT
    theirs = dp.pld.PLDAccountant().compose(event).get_epsilon(1e-6)
    words = ["check", "--event", file, "--delta", "1e-6", "--says"]
    above = command(*words, theirs, "--json")
    assert (above.code, above.json["verdict"]) == (0, "an upper bound, proven")
    exact = above.json["epsilon"]
    # The command reads the shortest decimal form; the JSON has a float at or above the exact bound.
    upper = Fraction(math.nextafter(exact["upper"], 0))
    assert Fraction(above.json["by_at_least"]) <= Fraction(repr(theirs)) - upper
    # Typical mistakes: the rate or the direction is omitted in a conversion, a digit is lost.
    below = command(*words, exact["lower"] * 0.999)
    assert (below.code, "below the truth" in below.out) == (1, True)
    between = (exact["lower"] + exact["upper"]) / 2
    assert command(*words, repr(between)).code == 4
    assert command(*words, "inf").code == 2
    assert command(*words, "-1").code == 2
    beyond_floats = command(*words, "1e309", "--delta", 0)
    assert (beyond_floats.code, "which is infinite" in beyond_floats.out) == (1, True)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("{", "JSON"),
        ("[]", "parts"),
        ('{"claim": "perfect"}', "must be one of curve"),
        ('{"claim": "assumed", "reason": "x", "guarantee": ' * 5000, "too deeply"),
        ('{"class_name": "GaussianDpEvent", "noise_multiplier": {"a": 1}}', "must contain the key"),
        ('{"class_name": "GaussianDpEvent"}', "requires noise_multiplier"),
        ('{"class_name": "GaussianDpEvent", "sigma": 1}', "takes noise_multiplier"),
        ('{"class_name": "DpEvent"}', "name of an event"),
        ('{"class_name": "GaussianDpEvent", "noise_multiplier": -1}', "noise_multiplier"),
        ('{"class_name": "UnsupportedDpEvent"}', "cannot derive"),
        ("[" * 100000, "nested too deeply"),
        ('{"name": "Gaussian", "noise_multiplier": 1, "noise_multiplier": 9}', "given twice"),
    ],
)
def test_a_file_without_an_event_is_refused(
    command: Command, tmp_path: Path, text: str, what: str
) -> None:
    file = _event(tmp_path, text)
    answer = command("check", "--event", file, "--delta", "1e-6", "--says", 1)
    assert (answer.code, what in answer.err) == (2, True)
    assert len(answer.err.strip().splitlines()) == 1
    # The error names the option and the file, and does not repeat the text of the file.
    assert f"--event = {file}: " in answer.err
    assert len(answer.err) < 800


def test_check_reads_what_json_prints(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without dp-accounting: an event, a document of --json, and its list of parts."""
    monkeypatch.setitem(sys.modules, "dp_accounting.dp_event", None)
    noise = ["--noise", "gaussian:sigma=1", "--rounds", 3, "--delta", "1e-6", "--scheme"]
    answer = command("epsilon", *noise, "poisson:rate=1/9", "--json").json
    at = ["--delta", "1e-6", "--says", repr(answer["epsilon"]["upper"])]
    for document in (answer, answer["parts"]):
        again = command("check", "--event", _event(tmp_path, document), *at, "--json").json
        assert (again["epsilon"], again["parts"]) == (answer["epsilon"], answer["parts"])
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(json.dumps(answer).encode())))
    assert command("check", "--event", "-", *at, "--relation", "add-remove").code == 0
    refused = command("check", "--event", tmp_path / "event.json", *at, "--relation", "replace")
    assert (refused.code, "--relation = replace" in refused.err) == (2, True)
    event = _event(tmp_path, {"event": "Gaussian", "noise_multiplier": 20})
    assert command("check", "--event", event, "--delta", "1e-6", "--says", 1).code == 0


@pytest.mark.parametrize("sampling", ["shuffled", "allocated", "truncated"])
def test_check_needs_the_bounds_of_the_run_and_not_of_its_parts(
    command: Command, tmp_path: Path, sampling: str
) -> None:
    """A secret shuffle, or a pass that ends early, may give more privacy than its parts prove."""
    script = ["--noise-multiplier", 2, "--batch-size", 5, "--examples", 10, "--rounds", 1]
    script += ["--truncate", 8] if sampling == "truncated" else ["--sampling", sampling]
    run = command("dpsgd", *script, "--delta", "1e-6", "--json").json
    words = ["--event", _event(tmp_path, run), "--delta", "1e-6", "--says"]
    found = command("check", *words, "0.1", "--json")
    if sampling == "truncated":
        assert (found.code, "the cost of truncation" in found.err) == (2, True)
        return
    assert (found.code, found.json["verdict"]) == (4, "undecided")
    assert found.json["epsilon"]["lower"] is run["epsilon"]["lower"] is None
    assert sampling == "allocated" or command("check", *words, run["epsilon"]["upper"]).code == 0


def test_calibration_accepts_batch_size_examples_and_epochs(command: Command) -> None:
    r"""Batch size, examples and epochs give a rate and rounds; a replaced example moves twice."""
    promise = ["--epsilon", 4, "--delta", "1e-5", "--json"]
    sampled = ["--noise", "discrete-laplace", *promise]
    target = ["--noise", "gaussian", *promise]
    script = ["--batch-size", 10, "--examples", 100]
    found, plain = (
        command("calibrate", *sampled, *words).json["noise"]["scale"]
        for words in ([*script, "--epochs", "1/2"], ["--poisson", "10%", "--rounds", 5])
    )
    assert found == plain
    one, two = (
        Fraction(command("calibrate", *target, "--group", size).json["noise"]["sigma"])
        for size in (1, 2)
    )
    assert abs(two / one - 2) < Fraction(4, 10**6)


def test_one_call_in_python_gives_the_same_epsilon(command: Command) -> None:
    script: dict[str, Any] = {"noise_multiplier": "1.1", "batch_size": 10, "examples": 1000}
    script["epochs"] = 2
    words = [f"--{key.replace('_', '-')}={value}" for key, value in script.items()]
    found = accounting.dpsgd(**script, delta=1e-5, sampling="shuffled")
    asked = command("dpsgd", *words, "--delta", "1e-5", "--sampling", "shuffled", "--json").json
    assert found.to_json() == asked["epsilon"]
    for name, value in {"noise_multiplier": 0, "rounds": 7, "batch_size": "10"}.items():
        with pytest.raises(InvalidParameter, match="epochs" if name == "rounds" else name):
            accounting.dpsgd(**{**script, name: value}, delta=1e-5)


@pytest.mark.parametrize(
    "words",
    [
        ["epsilon", "--delta", "1e-6"],
        ["delta", "--epsilon", 1],
        ["curve", "--points", 2],
        ["returning", "--visits", "1,2"],
    ],
    ids=lambda words: words[0],
)
def test_every_result_lists_its_assumptions(command: Command, words: list[object]) -> None:
    listed = {"gaussian:sigma=2": True, "discrete-gaussian:sigma_squared=4": False}
    for noise, assumed in listed.items():
        for form in ([], ["--json"]):
            answer = command(*words, "--noise", noise, *form)
            assert answer.code == 0
            assert ("floating-point code" in answer.out) is assumed


def test_the_noise_multiplier_for_an_epsilon_is_found(command: Command) -> None:
    words = ["--batch-size", 60, "--examples", 600, "--rounds", 10, "--delta", "1e-5"]
    found = command("dpsgd", "--epsilon", 2, *words, "--json").json
    size = found["derived"]["noise_multiplier"]
    assert size["least"]
    again = command("dpsgd", "--noise-multiplier", size["value"], *words, "--json").json
    assert again["epsilon"] == found["epsilon"]
    assert 1.999 < again["epsilon"]["lower"] < again["epsilon"]["upper"] <= 2
    text = command("dpsgd", "--epsilon", 2, *words).out
    assert f"the least noise multiplier is {float(Fraction(size['value']))}" in text
    shuffled = command("dpsgd", "--epsilon", 2, *words, "--sampling", "shuffled").out
    assert "least" not in shuffled.splitlines()[0]
    assert "is not proven to satisfy the target" in shuffled
    assert "\nif poisson   between " in shuffled


@pytest.mark.parametrize(
    ("words", "most", "more"),
    [
        (["--noise", "discrete-laplace:scale=10", "--epsilon", 2, "--rounds", "most"], 20, 21),
        (["--noise", "discrete-laplace:scale=1", "--epsilon", 1, "--poisson", "most"], 1, None),
    ],
)
def test_the_most_rounds_and_the_largest_rate_of_pure_noise_need_no_delta(
    command: Command, words: list[object], most: int, more: int | None
) -> None:
    found = command("calibrate", *words, "--json").json
    assert found["value"] == str(most)
    assert found["epsilon_at_zero"]["upper"] <= found["target"]["epsilon"]
    assert more is None or found["one_step_more"]["value"] == str(more)
    assert "epsilon(0) is exactly" in command("calibrate", *words).out
    unbounded = ["--noise", "skellam:variance=4", "--epsilon", 1, "--rounds", "most"]
    assert "use a delta > 0" in command("calibrate", *unbounded).err


PICKED: Final = "gaussian:sigma=1 --scheme allocated:rounds=3,picks=2"
REPORTS: Final = "randomised-response:epsilon=2,values=5 --scheme shuffled:users=100"


@by_day(1)
@pytest.mark.parametrize(
    ("noise", "epsilon", "said"),
    [
        ("gaussian:sigma=10", "2", "at most 25 satisfy epsilon"),
        ("gaussian:sigma=10", "2/5", "at most 1 satisfies epsilon"),
        ("gaussian:sigma=1", "1/10", "1, the safest value, does not satisfy it"),
        ("gaussian:sigma=1e9", "1", "the riskiest value of the search, satisfies it"),
        (PICKED, "7.5", "1 is proven to satisfy epsilon"),
        (PICKED, "6", "1, the safest value, is not proven to satisfy it"),
        (REPORTS, "2", "3 are proven to satisfy epsilon"),
    ],
)
def test_the_largest_number_of_rounds_states_what_is_proven(
    command: Command, noise: str, epsilon: str, said: str
) -> None:
    words = ["--noise", *noise.split(), "--epsilon", epsilon, "--delta", "1e-5"]
    answer = command("calibrate", *words, "--rounds", "most")
    assert said in answer.out + answer.err
    assert ("fails" in answer.out) is said.startswith("at most")
    if said.startswith("at most"):
        found = command("calibrate", *words, "--rounds", "most", "--json").json
        assert (found["most"], found["value"]) == (True, said.split()[2])


# -- plots ------------------------------------------------------------------------------------


def bound(lower: float | None, upper: float) -> Bound:
    ends = {"lower": lower if lower in (None, math.inf) else Fraction(lower), "upper": upper}
    if upper < math.inf:
        ends["upper"] = Fraction(upper)
    return Bound(**ends, method="contour", theorem="")  # type: ignore[arg-type]  # as the ends are


WIDE = ((0.5, bound(0.5, 1.0)), (1e-3, bound(1.0, 2.0)), (1e-6, bound(2.0, 3.0)))
NARROW = ((0.5, bound(1.0, 1.00001)), (1e-6, bound(2.0, 2.00001)))
ABOVE_ONLY = ((0.5, bound(None, 1.0)), (1e-6, bound(None, 2.0)))


def test_the_curve_names_the_proven_bounds(tmp_path: Path) -> None:
    def curve(points: tuple[tuple[float, Bound], ...]) -> str:
        draw(tmp_path / "curve.svg", points, title="a total")
        assert [each.name for each in tmp_path.iterdir()] == ["curve.svg"]
        return (tmp_path / "curve.svg").read_text(encoding="utf-8")

    wide, narrow, above_only = map(curve, (WIDE, NARROW, ABOVE_ONLY))
    ET.fromstring(wide)  # noqa: S314  # our own file
    for word in ("proven upper bound", "proven lower bound", "dots are proven"):
        assert word in wide
    assert "both bounds lie within this line" in narrow
    assert "proven lower bound" not in narrow
    assert "proven upper bound" in above_only
    assert "lower" not in above_only


def test_the_legend_of_a_training_run_names_the_proven_bounds(tmp_path: Path) -> None:
    both = Training(label="z 1", points=((1.0, bound(1.0, 1.1)), (2.0, bound(2.0, 2.1))), others={})
    above = replace(both, label="z 2", points=((1.0, bound(None, 1.1)), both.points[1]))
    other = replace(both, label="z 3", others={"RDP": ((1.0, 3.0), (2.0, 4.0))})
    draw_epochs(tmp_path / "a.svg", [both, above, other], title="a run")
    text = (tmp_path / "a.svg").read_text(encoding="utf-8")
    for label in ("z 1: both proven bounds", "z 2: proven upper bound", "z 3: RDP"):
        assert label in text
    assert text.count("RDP") == 1
    infinite = replace(both, points=((1.0, bound(1.0, math.inf)),))
    with pytest.raises(InvalidParameter, match="nothing to plot"):
        draw_epochs(tmp_path / "c.svg", [infinite], title="")
    assert not (tmp_path / "c.svg").exists()


@pytest.mark.nightly
def test_the_plot_of_a_training_run_shows_the_accountants_in_order() -> None:
    r"""RDP is above the upper bound at every epoch, and so is PLD, by its grid; epsilon rises."""
    pytest.importorskip("dp_accounting", reason="the extra 'interop' is not installed")
    run = TrainingRun(noise_multiplier=2, batch_size=20, examples=1000, epochs=10)
    line = over_epochs(run, Fraction("1e-5"))
    epochs = [x for x, _ in line.points]
    assert epochs == [float(i) for i in range(1, 11)]
    uppers = [b.upper_float for _, b in line.points]
    assert uppers == sorted(uppers)
    rdp, pld = line.others.values()
    for (x, found), (at, loose), (there, fine) in zip(line.points, rdp, pld, strict=True):
        assert x == at == there
        assert found.lower is not None
        assert loose > found.upper_float
        assert found.lower - Fraction(1, 10**6) < fine < found.upper + Fraction(1, 1000)


def test_the_option_plot_writes_a_figure(command: Command, tmp_path: Path) -> None:
    words = ["dpsgd", "--noise-multiplier", 4, "--batch-size", 500, "--examples", 1000]
    words += ["--delta", "1e-5", "--epochs", 2, "--sampling", "shuffled", "--plot"]
    answer = command(*words, tmp_path / "run.png")
    assert answer.code == 0
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")
    refused = command(*words, tmp_path / "run.gif")
    assert (refused.code, "--plot" in refused.err) == (2, True)
    assert [each.name for each in tmp_path.iterdir()] == ["run.png"]
