"""Tests of `dpcore audit exact`, `fit` and `replay`: verdicts, exit codes, output and errors."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from audit.claims import Claim
from audit.known_laws.compare_two_laws import (
    decide,
    epsilon_point,
    hockey_stick,
    renyi_point,
)
from audit.targets.target import Law, Shifted
from dpcore.errors import InvalidParameter, PrecisionExhausted
from dpcore.laws.poisson_and_binomial import Binomial
from dpcore.numbers.enclosure import Enclosure
from tests.alpha_budget import buy_alpha
from tests.day_and_nightly import by_day
from tests.support.accounting.brute_force import binomial
from tests.support.audit.command import ROOT, Shell

ONE, TWO = "discrete-laplace:scale=1@0", "discrete-laplace:scale=1@1"
TINY = Fraction(1, 10**3000)


@pytest.fixture
def shell(command: Callable[..., Shell], monkeypatch: pytest.MonkeyPatch) -> Shell:
    Path("p.json").write_text('{"yes": "3/4", "no": "1/4"}')
    Path("q.csv").write_text("output,mass\nyes,0.25\nno,0.75\n")
    Path("off.csv").write_text("yes,0.2500000000000001\nno,0.75\n")
    Path("other.csv").write_text("Yes,1\n")
    monkeypatch.setenv("COLUMNS", "100")
    return command("exact")


# -- printed output ------------------------------------------------------------------------------


def test_without_options_a_table_is_printed(shell: Shell) -> None:
    answer = shell(ONE, TWO)
    assert (answer.code, answer.err) == (0, "")
    lines = answer.out.splitlines()
    assert lines[0].split() == ["P", ONE]
    assert "  delta    exactly 0 at epsilon = 1" in lines
    assert "  epsilon  exactly 1 at delta = 0" in lines
    assert "  Renyi    exactly 1 of order infinity" in lines
    assert [line.split()[0] for line in lines[2:]] == [
        *["delta"] * 4, *["epsilon"] * 2, *["Renyi"] * 2,
    ]  # fmt: skip
    assert lines[2] == "  delta    between 0.46211715726 and 0.4621171572601 at epsilon = 0"
    assert 0.46211715726 < math.tanh(0.5) < 0.4621171572601  # (1 - 1/e)/(1 + 1/e)


def test_an_underivable_quantity_is_omitted_from_the_table_and_refused_on_request(
    shell: Shell,
) -> None:
    words = ("poisson:mean=4@0", "poisson:mean=4@1")
    answer = shell(*words)
    assert answer.code == 0
    assert "note     cannot derive the Renyi divergence of order 2 of this noise" in answer.out
    assert "infinite at delta = 0" in answer.out
    refused = shell(*words, "--order", 2)
    assert (refused.code, refused.out) == (2, "")
    assert "cannot derive" in refused.err
    assert shell("skellam:variance=4@0,0", "skellam:variance=4@1,1", "--epsilon", 1).code == 0
    assert shell("poisson:mean=9@0,0", "poisson:mean=9@1,1").code == 2


def test_a_claim_is_proven_or_refuted_with_its_event(shell: Shell) -> None:
    proven = shell(ONE, TWO, "--claim", "epsilon=1")
    assert proven.code == 0
    assert proven.out.startswith("PROVEN  P and Q satisfy epsilon=1\n")
    refuted = shell("p.json", "q.csv", "--claim", "epsilon=1")
    assert refuted.code == 1
    assert refuted.out.startswith("REFUTED  P and Q violate epsilon=1\n")
    words = "witness  output in {'yes'}: probability exactly 0.75 under P, exactly 0.25 under Q"
    assert words in refuted.out
    back = shell("q.csv", "p.json", "--claim", "epsilon=1")
    assert "output in {'no'}: probability exactly 0.75 under P" in back.out


def test_json_is_one_document(shell: Shell) -> None:
    answer = shell(
        "poisson:mean=4@0", "poisson:mean=4@1", "--claim", "epsilon=1,delta=1/100",
        "--epsilon", "1/2", "--epsilon", 3, "--delta", "1e-6", "--order", "inf", "--json",
    )  # fmt: skip
    assert answer.code == 1
    found = answer.json
    assert found["p"] == {"law": "poisson:mean=4@0", "outputs": None, "divided_by": None}
    assert [row["epsilon"] for row in found["delta"]] == ["1/2", "3"]
    for row in found["delta"]:
        ways = row["p_against_q"], row["q_against_p"]
        assert row["worse"] == max(ways)
        assert ways[0] != ways[1]
    assert found["epsilon"][0]["worse"] == ["inf", "inf"]
    (renyi,) = found["renyi"]
    assert (renyi["order"], renyi["q_against_p"]) == ("inf", ["inf", "inf"])
    assert found["points"][0]["claim"] == {"epsilon": "1", "delta": "1/100"}
    assert found["points"][0]["verdict"] == found["verdict"] == "refuted"
    witness = found["witness"]
    assert (witness["direction"], witness["event"]) == ("p_against_q", "output <= 1")
    assert witness["probability_p"][0] > math.e * witness["probability_q"][1] + 0.01
    # One direction of this noise is not computed; it is never the larger one.
    half = shell("polya:shape=1/2,scale=3@0", "polya:shape=1/2,scale=3@1", "--epsilon", 1, "--json")
    row = half.json["delta"][0]
    assert row["q_against_p"] is None
    assert row["worse"] == row["p_against_q"]


def test_a_claimed_curve_is_refuted_at_a_point_and_never_proven_by_points(shell: Shell) -> None:
    words = ("discrete-gaussian:sigma_squared=4@0", "discrete-gaussian:sigma_squared=4@1")
    kept = shell(*words, "--claim", "rho=1/8")
    assert kept.code == 0
    assert kept.out.startswith("NOT REFUTED  rho=0.125: the claimed points are proven")
    broken = shell(*words, "--claim", "rho=1/16", "--json")
    assert broken.code == 1
    verdicts = [point["verdict"] for point in broken.json["points"]]
    assert "refuted" in verdicts
    assert broken.json["witness"]["claim"] != broken.json["claim"]
    assert "of epsilon=" in shell(*words, "--claim", "rho=1/16").out


def test_float_masses_are_refused_or_normalised_with_a_note(shell: Shell) -> None:
    refused = shell("off.csv", "p.json")
    assert refused.code == 2
    assert "P = off.csv: its probabilities sum to 1.0000000000000001" in refused.err
    assert "--normalise" in refused.err
    answer = shell("off.csv", "p.json", "--normalise", "--epsilon", 0)
    assert answer.code == 0
    assert "note   the probabilities of P are divided by their sum, which is about 1 + 1e-16" in (
        answer.out
    )
    found = shell("off.csv", "p.json", "--normalise", "--json").json
    assert Fraction(found["p"]["divided_by"]) == 1 + Fraction(1, 10**16)
    assert found["q"]["divided_by"] is None
    assert shell(ONE, TWO, "--normalise").code == 2


def test_files_that_share_no_output_are_noted(shell: Shell) -> None:
    answer = shell("p.json", "other.csv", "--claim", "epsilon=1")
    assert answer.code == 1
    assert "no output has mass in both files" in answer.out
    assert "no output" not in shell("p.json", "q.csv").out


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ((ONE, "p.json"), "Q = p.json: must be noise or a file of probabilities, like P ="),
        ((ONE, "discrete-laplace:scale=2@1"), "scale=2@1: must be a shift of the same noise"),
        ((ONE, ONE + ",1"), "must have a shift with as many coordinates"),
        ((ONE, TWO, "--epsilon", "-1"), "--epsilon = -1: must be >= 0"),
        ((ONE, TWO, "--delta", "1"), "--delta = 1: must lie in [0, 1)"),
        ((ONE, TWO, "--order", "1"), "--order = 1: must be > 1, or inf"),
        ((ONE, TWO, "--plot", "c.txt"), "--plot = c.txt"),
        ((ONE, ONE, "--plot", "c.svg"), "nothing to plot"),
    ],
)
def test_wrong_usage_gives_exit_code_2(
    shell: Shell, words: tuple[object, ...], reason: str
) -> None:
    answer = shell(*words)
    assert (answer.code, answer.out) == (2, "")
    assert reason in answer.err


def test_a_plot_shows_both_directions(shell: Shell, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    words = ("poisson:mean=4@0", "poisson:mean=4@1")
    assert shell(*words, "--plot", "curve.svg").code == 0
    text = (tmp_path / "curve.svg").read_text()
    assert "</svg>" in text
    for label in ("P against Q", "Q against P", "dots are proven", "P = poisson:mean=4@0"):
        assert f">{label}" in text
    assert not list(tmp_path.glob(".curve*"))


def test_the_order_infinity_is_the_largest_loss() -> None:
    p: Law = {0: "1/3", 1: "2/3"}
    q: Law = {0: "1/2", 1: "1/2"}
    largest = renyi_point(p, q, math.inf)
    assert largest.p_against_q == epsilon_point(p, q, Fraction()).p_against_q
    assert largest.worse.lower_float == pytest.approx(math.log(3 / 2))
    assert renyi_point(p, q, Fraction(10**4)).worse.upper < largest.worse.lower
    with pytest.raises(InvalidParameter, match="order"):
        renyi_point(p, q, 1.5)


# -- claims at the exact boundary ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("p", "q", "epsilon", "boundary"),
    [
        # delta(0) is a sum of masses of 1/3, which no binary ball contains exactly.
        ({"a": "2/3", "b": "1/3"}, {"a": "1/3", "b": "2/3"}, 0, Fraction(1, 3)),
        # Q never gives outcome a, so delta equals P(a) at every epsilon that is large enough.
        ({"a": "1/3", "b": "2/3"}, {"b": 1}, 5, Fraction(1, 3)),
        ({"b": 1}, {"a": "1/3", "b": "2/3"}, 5, Fraction(1, 3)),
    ],
)
def test_a_claim_of_pmfs_exactly_at_the_boundary_is_decided(
    p: Law, q: Law, epsilon: int, boundary: Fraction
) -> None:
    assert decide(p, q, Claim(epsilon=epsilon, delta=boundary)).verdict == "proven"
    below = decide(p, q, Claim(epsilon=epsilon, delta=boundary - TINY))
    assert below.verdict == "refuted"
    assert below.event is not None
    # The mutant: an enclosure of 1/3 cannot distinguish 1/3 from a nearby number.
    one, other = (p, q) if below.direction == "p_against_q" else (q, p)
    if epsilon:
        found = hockey_stick(one, other, epsilon, bits=4096)
        assert found.lower < boundary < found.upper


def test_an_irrational_boundary_is_distinguished_from_every_rational() -> None:
    p: Law = {"a": "3/4", "b": "1/4"}
    q: Law = {"a": "1/4", "b": "3/4"}
    fine = hockey_stick(p, q, 1, bits=13_000)
    near = Fraction(round(fine.lower * 10**3900), 10**3900)
    for delta in (near - Fraction(1, 10**3900), near + Fraction(1, 10**3900)):
        expected = "proven" if delta > fine.upper else "refuted"
        assert decide(p, q, Claim(epsilon=1, delta=delta)).verdict == expected


@pytest.mark.parametrize("probability", ["1/2", "1/3"])
@pytest.mark.parametrize("epsilon", [0, 60])
def test_binomial_noise_at_the_boundary_is_decided_by_its_masses(
    probability: str, epsilon: int
) -> None:
    noise = Binomial(trials=12, probability=probability)
    p, q = Shifted(noise, 0), Shifted(noise, 1)
    masses = binomial(12, Fraction(probability))
    if epsilon:  # only outcomes that are impossible on the other dataset
        boundary = max(masses[0], masses[12])
    else:
        moved = (masses.get(k, Fraction()) - masses.get(k - 1, Fraction()) for k in range(14))
        boundary = sum((max(mass, Fraction()) for mass in moved), Fraction())
    assert decide(p, q, Claim(epsilon=epsilon, delta=boundary)).verdict == "proven"
    found = decide(p, q, Claim(epsilon=epsilon, delta=boundary - TINY))
    assert found.verdict == "refuted"
    assert found.epsilon is not None


def test_a_claim_that_no_precision_decides_is_undecided(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No law of dpcore is known to reach this case, so a wide enclosure is substituted.
    laws, claim = "audit.known_laws.compare_two_laws", ("--claim", "epsilon=1,delta=1/4")
    wide = Enclosure(Fraction(0), Fraction(1, 2))
    monkeypatch.setattr(f"{laws}.hockey_stick", lambda *_, **__: wide)
    answer = shell(ONE, TWO, *claim, "--json")
    assert (answer.code, answer.json["verdict"]) == (4, "undecided")
    assert answer.json["points"][0]["delta"]["worse"] == [0.0, 0.5]
    assert shell(ONE, TWO, *claim).out.startswith("UNDECIDED")

    def tired(*_: object, **__: object) -> Any:
        raise PrecisionExhausted("no more bits")

    monkeypatch.setattr(f"{laws}.epsilon_at", tired)
    answer = shell(ONE, TWO, *claim)
    assert (answer.code, "is discontinuous" in answer.out) == (4, True)


ALPHA = buy_alpha("the fit command keeps true laws", "1e-9") / 10


SAMPLERS = """
def good(n, rng):
    print("a word of the target")
    return rng.geometric(0.5, n) - rng.geometric(0.5, n)

def one(rng):
    return int(rng.integers(0, 2))

def floats(n, rng):
    return rng.normal(size=n)

def of_a_dataset(dataset, n, rng):
    return rng.integers(0, 2, n)
"""
LAPLACE = "discrete-laplace:scale=1"


@pytest.fixture
def fit_shell(command: Callable[..., Shell]) -> Shell:
    Path("samplers.py").write_text(SAMPLERS)
    return command("fit")


def test_a_wrong_law_is_refuted_with_a_witness_and_a_correct_one_is_not(fit_shell: Shell) -> None:
    words = ("samplers.py:good", "--law", LAPLACE, "-n", "1e4", "--seed", 7)
    answer = fit_shell(*words)
    assert answer.code == 1
    assert answer.out.startswith("REFUTED  samplers.py:good does not follow")
    assert "of 10,000 draws" in answer.out
    assert "a word of the target" not in answer.out
    found = fit_shell(*words, "--sequential", "--json").json
    assert (found["schema"], found["law"]) == ("dpcore-fit/1", LAPLACE)
    assert found["runs"] < 10**4
    law = "binomial:trials=1,probability=1/2"
    answer = fit_shell("samplers.py:one", "--law", law, "-n", 2000, "--seed", 7, "--alpha", ALPHA)
    assert answer.code == 0
    assert answer.out.startswith("NOT REFUTED AT THIS RESOLUTION")
    assert "--seed 7" in answer.out


def test_a_noise_and_a_program_are_targets_and_a_failing_one_gives_exit_code_3(
    fit_shell: Shell,
) -> None:
    answer = fit_shell(LAPLACE, "--law", LAPLACE, "--seed", 7, "--alpha", ALPHA, "-n", 3000)
    assert answer.code == 0
    program = Path("zeros")
    program.write_text("#!/bin/sh\nyes 0 | head -n 500\n")
    program.chmod(0o700)
    assert fit_shell("exec:./zeros", "--law", LAPLACE, "-n", 500).code == 1
    program.write_text("#!/bin/sh\nyes zero | head -n 500\n")
    for target, told in (
        ("exec:./zeros", "wrote 'zero': one integer per line is required"),
        ("samplers.py:floats", "returned float64 values"),
    ):
        answer = fit_shell(target, "--law", LAPLACE, "-n", 500)
        assert (answer.code, answer.out) == (3, "")
        assert f"error: {target}: {told}" in answer.err
        assert "warning" not in answer.err


def test_wrong_usage_of_a_fit_gives_exit_code_2(fit_shell: Shell) -> None:
    for words, reason in (
        (("samplers.py:good", "--law", "laplace:scale=1"), "must start with one of"),
        (("samplers.py:of_a_dataset", "--law", LAPLACE), "must be a callable f(n, rng)"),
        (("samplers.py:good", "--law", LAPLACE, "-n", "0.5"), "-n = 0.5: "),
    ):
        answer = fit_shell(*words)
        assert answer.code == 2
        assert reason in answer.err


@by_day(4)
@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (
            ("clipped-to-two", "--sensitivity", 1, "--seed", 7, "--changes", 20, "--tapes", 8),
            1,
            "REFUTED  the declared sensitivity of clipped-to-two on A = 0, B = 2",
        ),
        (("raw-in-a-hundred", "--changes", 100, "--tapes", 8), 1, "FAULTS FOUND"),
        (
            ("clipped-to-one", "--sensitivity", 1, "--strict", "--changes", 20, "--json"),
            0,
            "{\n",
        ),
        (("exec:cat", "--pair", 0, 1), 3, "CANNOT BE REPLAYED"),
        (("operator:neg", "--pair", "[]", "[1]"), 3, "error: operator:neg: raised TypeError"),
        # The target runs in another process, so the missing pair is detected there.
        ((f"{ROOT}/examples/broken_counter.py:visitors",), 2, "error: --pair: must be given"),
    ],
)
def test_the_exit_code_of_a_replay_follows_its_findings(
    command: Callable[..., Shell], words: tuple[object, ...], code: int, said: str
) -> None:
    answer = command("replay")(*words)
    assert answer.code == code
    assert (answer.out or answer.err).startswith(said)
