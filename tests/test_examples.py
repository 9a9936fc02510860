"""Tests of the examples: real processes, real libraries, the exit code."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import Any

import mpmath
import pytest
from mpmath import mp, mpf

from dpcore import DiscreteGaussian, PolyaDifference
from tests.alpha_budget import buy_alpha
from tests.day_and_nightly import by_day
from tests.support.accounting.brute_force import Worlds, mass_of
from tests.support.run_command import ROOT, python

EXAMPLES = ROOT / "examples"
PEERS = "examples/peers.py"
AWK = "exec:awk -f examples/audit_a_program/noisy_count.awk"


@dataclass(frozen=True, slots=True, kw_only=True)
class Audited:
    """A target with its true claim, and the claim or the target that is one step too good."""

    target: str
    kept: str = "epsilon=1"
    broken: str = "epsilon=0.8"
    broken_target: str = ""
    pair: tuple[str, str] = ("0", "1")
    options: tuple[str, ...] = ("-n", "20000", "--seed", "1")


AUDITS: dict[str, Audited] = {
    "a counter": Audited(
        target="examples/broken_counter.py:visitors_protected",
        broken="epsilon=1",
        broken_target="examples/broken_counter.py:visitors",
        pair=("[]", '["ada"]'),
        options=("-n", "2000", "--relation", "add-remove"),
    ),
    "opendp laplace": Audited(target=f"{PEERS}:opendp_laplace"),
    # More runs than the others: at delta > 0 the bound on the guess rate uses part of alpha too.
    "opendp gaussian": Audited(
        target=f"{PEERS}:opendp_gaussian",
        kept="epsilon=1.5,delta=0.0381",
        broken="epsilon=1.2,delta=0.0381",
        options=("-n", "40000"),
    ),
    "diffprivlib geometric": Audited(target=f"{PEERS}:diffprivlib_geometric"),
    "a program in awk": Audited(target=AWK, broken="epsilon=1", broken_target=f"{AWK} scale=0.5"),
}


def dpcore(*arguments: str, path: object = ROOT) -> subprocess.CompletedProcess[str]:
    return python("-m", "dpcore.cli.app", *arguments, path=path)


def audit(case: Audited, target: str, claim: str, alpha: float) -> tuple[int, dict[str, Any]]:
    asked = [target, "--claim", claim, "--pair", *case.pair, *case.options]
    run = dpcore("audit", *asked, "--alpha", f"{alpha:.3g}", "--json")
    assert run.stdout, run.stderr
    return run.returncode, json.loads(run.stdout)


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@by_day(1)
@pytest.mark.parametrize("name", AUDITS)
def test_true_claims_are_not_refuted_and_false_claims_are(name: str) -> None:
    # Peers draw from the system's entropy: this alpha is a true probability of a failed run.
    alpha = buy_alpha(f"examples: {name}", "1e-8")
    case = AUDITS[name]
    code, report = audit(case, case.target, case.kept, alpha)
    assert (code, report["verdict"]) == (0, "not_refuted"), report
    code, report = audit(case, case.broken_target or case.target, case.broken, alpha)
    assert (code, report["verdict"]) == (1, "refuted"), report
    assert report["witness"]["event"]


def test_the_claims_of_the_examples_are_those_of_the_library_and_of_a_sum() -> None:
    peers = load("peers")
    assert peers.laplace_measurement().map(1) == 1.0
    assert peers.gaussian_measurement().map(1.0) == 0.5
    brute = Worlds(noise=DiscreteGaussian(sigma_squared=1), most=1, low=-60, high=60)
    assert mpf("0.0380") < brute.delta("1.5") <= mpf("0.0381")
    assert brute.delta("1.2") > mpf("0.1")


@by_day(1)
@pytest.mark.parametrize(
    ("function", "library"),
    [("opendp_laplace", "opendp"), ("diffprivlib_geometric", "diffprivlib")],
)
def test_a_missing_library_names_the_extra(tmp_path: Path, function: str, library: str) -> None:
    # Found before the installed library, and without the names that the example needs.
    (tmp_path / f"{library}.py").touch()
    claim = ["--claim", "epsilon=1", "--pair", "0", "1", "-n", "1000"]
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    run = dpcore("audit", f"{PEERS}:{function}", *claim, path=path)
    assert run.returncode == 3, run.stdout + run.stderr
    assert "pip install 'dpcore[peers]'" in run.stdout + run.stderr
    assert "Traceback" not in run.stderr


def test_a_program_refuses_an_invalid_request() -> None:
    command = ["awk", "-f", "examples/audit_a_program/noisy_count.awk"]
    run = subprocess.run(
        command, cwd=ROOT, input='{"dataset": 0}\n', capture_output=True, text=True, check=False
    )
    assert run.returncode == 1
    assert run.stdout == ""
    assert "no integer seed" in run.stderr


def printed(name: str) -> dict[str, str]:
    """Return the output of an example: ``label: text`` lines, by label."""
    run = python(f"examples/{name}")
    assert run.returncode == 0, run.stderr
    lines = (line.partition(":") for line in run.stdout.splitlines())
    return {label: text.strip() for label, _, text in lines}


def test_a_count_is_released_with_its_cost() -> None:
    lines = printed("release_a_count.py")
    assert abs(int(lines["released"]) - 42) < 1000  # beyond 1000 with probability e^-100
    assert lines["proven"] == "Bound([0.1, 0.1], 'exact')"


def test_a_sum_with_dropouts_has_the_guarantee_of_the_remaining_users() -> None:
    lines = printed("sum_with_dropouts.py")
    # Users who drop out before the input are not in the sum; kim drops out later, so hers is.
    assert lines["stayed"] == "ada, cyd, dan, eve, fay, hal, ida, joe, kim, lea"
    assert lines["noise"] == "PolyaDifference(shape='10/9', scale=8)"
    # The ten amounts add up to 4.625. The noise of this sum exceeds 15 once in a million, and even
    # then the sum is decoded within 24.
    assert abs(Fraction(lines["released"]) - Fraction("4.625")) < 24
    assert Fraction(lines["released"]) * 8 % 1 == 0
    assert Fraction(lines["epsilon"].split("[")[1].split(",")[0]) == 1
    six = Fraction(lines["of six"].split(",")[1].strip(" ])"))
    mp.dps = 30
    assert abs(mpf(six.numerator) / six.denominator - loss_of_six()) < mpf("1e-12")


@pytest.mark.nightly  # masks of some hundred users take seconds
def test_a_bandit_runs_over_masked_aggregation() -> None:
    lines = printed("bandit_over_masks.py")
    assert lines["best page"] == "(0,)"
    assert int(lines["rounds"]) >= 3
    assert int(lines["most visits"]) <= 3
    # Three releases of discrete Laplace noise have epsilon 1 at 1e-6, and at least 0.9.
    assert 0.9 < float(lines["guarantee"].split("most ")[1].split(",")[0]) <= 1


def loss_of_six() -> mpf:
    """log P(X = 0)/P(X = 8) for the difference of two Polya laws of shape 6/9 and scale 8."""
    mass = mass_of(PolyaDifference(shape="2/3", scale=8))
    return mpmath.log(mass(0) / mass(8))


def test_every_example_is_run_by_a_test_or_page() -> None:
    run_here = {"peers.py", "broken_counter.py", "noisy_count.awk"}
    run_here |= {"release_a_count.py", "sum_with_dropouts.py", "bandit_over_masks.py"}
    run_elsewhere = {"demo.py", "test_our_query.py", "test_opendp.py", "test_diffprivlib.py"}
    run_elsewhere |= {"published_bandits.py", "telling_time.py", "noisy_counts.py", "halving.py"}
    run_elsewhere |= {"opacus_accountant.py", "opendp_ledger.py"}  # tests/test_integrations.py
    run_elsewhere |= {"jax_privacy_plan.py", "flower_ledger.py"}
    found = {path.name for path in EXAMPLES.rglob("*") if path.suffix in {".py", ".awk"}}
    assert found - run_elsewhere == run_here
