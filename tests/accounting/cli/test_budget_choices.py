r"""``dpcore budget calibrate`` and ``returning`` as a user types them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction

import pytest

import accounting.cli.budget as commands
from accounting.claims.bound import Bound
from accounting.cli import calibrate
from accounting.cli import releases as arguments
from dpcore import InvalidParameter
from dpcore.spelling import noise_from_json, read_noise
from tests.support.dpcore.mutants import mutated
from tests.support.typed import Command

SKELLAM = ["--noise", "skellam:variance=400", "--sensitivity", "1"]
GAUSSIAN = ["--noise", "discrete-gaussian:sigma_squared=400"]
LAPLACE = ["--noise", "discrete-laplace:scale=20"]


# -- calibration -------------------------------------------------------------------------------


def test_calibrate(command: Command) -> None:
    words = ["--rounds", 50, "--epsilon", 2, "--delta", "1e-6"]
    answer = command(
        "calibrate", "--noise", "discrete-gaussian", "--sensitivity", 1, *words, "--json"
    )
    assert (answer.code, answer.err) == (0, "")
    found = answer.json
    assert {"epsilon", "delta", "rounds", "method"} <= set(found)
    assert (found["delta"], found["rounds"], found["least"]) == (1e-6, 50, True)
    assert 1.99 < found["epsilon"]["lower"] <= found["epsilon"]["upper"] <= 2
    # What is printed keeps the promise, and one step less does not, asked again.
    for noise, keeps in ((found["noise"], True), (found["one_step_less"]["noise"], False)):
        spelled = f"discrete-gaussian:sigma_squared={noise['sigma_squared']}"
        again = command("delta", "--noise", spelled, "--rounds", 50, "--epsilon", 2, "--json").json
        assert (again["delta"]["upper"] <= 1e-6) is keeps
    text = command("calibrate", "--noise", "discrete-gaussian", *words).out
    assert "breaks it" in text


def test_calibrate_pure_and_honest(command: Command) -> None:
    words = ["--noise", "discrete-laplace", "--epsilon", 2, "--rounds", 50]
    found = command("calibrate", *words, "--json").json
    assert noise_from_json(found["noise"]) == read_noise("discrete-laplace:scale=25")
    assert (found["delta"], found["epsilon"]) == (0.0, {"lower": 2.0, "upper": 2.0})
    less = command("calibrate", *words, "--honest", "90%", "--json").json
    assert less["honest_fraction"] == "9/10"
    assert Fraction(less["noise"]["scale"]) > 25


def test_calibrate_one_trial(command: Command) -> None:
    words = ["--noise", "binomial:probability=1/2", "--epsilon", 1, "--delta", "0.6"]
    assert "less" not in command("calibrate", *words).out


# -- returning users ---------------------------------------------------------------------------


def test_returning(command: Command) -> None:
    words = ["returning", "--noise", "discrete-gaussian:sigma_squared=400", "--delta", "1e-6"]
    lines = command(*words, "--visits", "1,2,4,…,1024").out.splitlines()
    assert lines[2].split()[:3] == ["visits", "exact", "renyi"]
    rows = [line.split() for line in lines[3:14]]
    assert [int(row[0]) for row in rows] == [1 << power for power in range(11)]
    for row in rows:
        assert row[1].endswith("*")
        assert sum(cell.endswith("*") for cell in row) == 1
    assert any(line.startswith("paper: ") for line in lines)
    found = command(*words, "--visits", "1,16", "--json").json
    assert [row["visits"] for row in found["returning"]] == [1, 16]
    assert [row["tightest"] for row in found["returning"]] == ["exact", "exact"]
    methods = [route["method"] for route in found["returning"][0]["routes"]]
    assert methods == ["exact", "renyi", "paper", "zcdp", "optimal", "advanced", "basic"]


def test_returning_of_sampled_visits(command: Command) -> None:
    found = command(
        "returning", "--noise", "discrete-gaussian:sigma_squared=4", "--visits", 1, "--poisson",
        "1%", "--json",
    ).json  # fmt: skip
    assert found["visit"]["rate"] == "1/100"


def test_the_star_stands_on_the_least() -> None:
    from accounting.budget.returning_users import Route

    def route(method: str, upper: int | None) -> Route:
        bound = None if upper is None else Bound(upper=Fraction(upper), method="", theorem="")
        return Route(method=method, bound=bound)

    found = [route("exact", 3), route("renyi", 2), route("zcdp", None), route("basic", 2)]
    assert commands._tightest(found) == "renyi"
    assert commands._tightest([route("exact", None)]) is None
    assert mutated(commands._tightest, "min(", "max(")(found) != "renyi"
    lines = commands._table([(1, found)], "title")
    assert lines[3].split() == ["1", "3", "2*", "-", "2"]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("1", [1]),
        ("3, 1, 3", [3, 1, 3]),
        ("1,2,4,...,16", [1, 2, 4, 8, 16]),
        ("10,20,30,…,50", [10, 20, 30, 40, 50]),
        ("1,2,3,...,5,9", [1, 2, 3, 4, 5, 9]),
    ],
)
def test_counts(text: str, wanted: list[int]) -> None:
    assert arguments.counts("--visits", text) == wanted


@pytest.mark.parametrize(
    "text",
    ["", "1,,2", "0", "1,2,...,8", "1,2,4,...,9", "1,2,4,...", "1,2,4,...,...,8", "1,2,5,...,9",
     "4,2,1,...,8", "1,2,3,...,1e12", "x", "1.5"],
)  # fmt: skip
def test_counts_that_are_none(text: str) -> None:
    with pytest.raises(InvalidParameter, match="--visits"):
        arguments.counts("--visits", text)


# -- what a calibration tries --------------------------------------------------------------------


def test_a_calibration_shows_what_it_tries(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    @contextmanager
    def bar(label: str, total: int | None) -> Iterator[Callable[[int], None]]:
        assert (label, total) == ("sizes of the noise tried", None)
        yield seen.append

    monkeypatch.setattr(calibrate, "progress_bar", bar)
    samples = ["--poisson", "256/60000", "--rounds", "14062", "--delta", "1e-5"]
    answer = command("calibrate", "--noise", "discrete-gaussian", *samples, "--epsilon", "0.1")
    assert answer.code == 0
    assert seen == list(range(1, len(seen) + 1))
    assert len(seen) >= 2


def test_a_calibration_ends_within_the_time_allowed(command: Command) -> None:
    """Two rounds on samples at a wide sigma take far longer."""
    samples = ["--poisson", "1%", "--rounds", "2", "--delta", "1e-6", "--epsilon", "0.0005"]
    answer = command("calibrate", "--noise", "discrete-gaussian", *samples, "--within", "1")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("error: no answer within 1 seconds of computing: --within allows")
