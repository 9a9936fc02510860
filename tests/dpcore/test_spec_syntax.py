"""Tests of the parser of ``name:key=value,...``: every reader gives the same errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from accounting.calibration.calibrate_noise_rounds_or_rate import read_noise_family
from accounting.guarantees.stated_guarantees import read_claim
from audit.claims import Claim
from audit.search.neighbour_spaces import read_space
from audit.targets.target_syntax import read_target
from bandits.policies.registry import read_algorithm
from dpcore import Scope
from dpcore.errors import InvalidParameter
from dpcore.parse_noise import LAWS, read_noise, read_sensitivity, write_sensitivity
from dpcore.spec_syntax import did_you_mean, find_name, read_keys

# Each reader with the name of its input, a valid spec, and a new value of its last key.
READERS: dict[str, tuple[Callable[[str], Any], str, str, str]] = {
    "noise": (read_noise, "noise", "polya:shape=1,scale=2", "scale=2"),
    "noise family": (read_noise_family, "noise", "polya:shape=1", "shape=1"),
    "space": (read_space, "--search", "integer:low=0,high=3", "high=3"),
    "protocol": (read_target, "target", "protocol:pure,users=4,epsilon=1", "epsilon=1"),
    "bandit": (read_target, "target", "bandit:dist-dp-se,epsilon=1", "epsilon=1"),
    "algorithm": (read_algorithm, "algorithm", "dist-rdp-se:s=3", "s=3"),
    "claim": (Claim.read, "claim", "epsilon=1,delta=1e-6", "delta=1e-6"),
    "budget": (
        lambda text: read_claim("--budget", text, Scope()),
        "--budget",
        "epsilon=1,delta=1e-6",
        "delta=1e-6",
    ),
}


def refusal(read: Callable[[str], Any], text: str) -> InvalidParameter:
    with pytest.raises(InvalidParameter) as caught:
        read(text)
    return caught.value


@pytest.mark.parametrize("kind", READERS)
def test_every_parser_gives_the_same_error_for_the_same_mistake(kind: str) -> None:
    read, argument, spec, last = READERS[kind]
    key, _, value = last.partition("=")
    read(spec)
    for slip, says in (
        (f"{spec},{last}", f"{key} is given twice"),
        (f"{spec.removesuffix(value)}", f"{key} has no value: write {key}=..."),
    ):
        error = refusal(read, slip)
        assert (error.argument, error.value) == (argument, slip)
        assert says in error.reason


@pytest.mark.parametrize("kind", ["noise", "space", "protocol", "bandit"])
def test_a_missing_or_unknown_key_is_named(kind: str) -> None:
    read, argument, spec, last = READERS[kind]
    key = last.partition("=")[0]
    missing = refusal(read, spec.removesuffix(last).rstrip(","))
    assert missing.argument == argument
    assert f"{key} is missing: write {key}=..." in missing.reason
    unknown = refusal(read, spec.replace(last, f"x{last}"))
    assert unknown.argument == argument
    assert "did you mean" in unknown.reason
    assert f"'x{last}':" in unknown.reason


def test_a_close_name_is_suggested() -> None:
    known = {"sign": 1, "length": 2}
    assert find_name("feature", "sign", known) == 1
    assert did_you_mean("sing", known) == "did you mean sign? "
    assert did_you_mean("colour", known) == ""
    near = refusal(lambda text: find_name("feature", text, known), "sing")
    assert near.reason == "did you mean sign? it must be one of sign, length"
    far = refusal(lambda text: find_name("feature", text, known), "colour")
    assert far.reason == "must be one of sign, length"
    whole = refusal(lambda text: find_name("feature", text, known, name="colour"), "colour:3")
    assert str(whole) == "feature = colour:3: 'colour' must be one of sign, length"
    bare = refusal(lambda text: read_keys("--strategy", text, "4", (), owner="tree"), "tree:4")
    assert bare.reason == "'4': tree has no parameters"


def test_a_sensitivity_is_read_and_a_misspelt_one_is_refused() -> None:
    for text in ("3", "l1=3", "l2-squared=4", "box=1x2x2"):
        assert write_sensitivity(read_sensitivity("--sensitivity", text)) == text
    form = "must be written like 3, l1=3, l2-squared=4 or box=1x2x2"
    for text, says in (
        *((wrong, form) for wrong in ("l2=3", "", "box=1x", "l1=1,l1=2")),
        ("l2-sqared=3", "did you mean l2-squared? it must be written like 3, l1=3"),
        *((wrong, "from 1 to 2^62") for wrong in ("0", "box=1x0")),
    ):
        error = refusal(lambda typed: read_sensitivity("--sensitivity", typed), text)
        assert error.argument == "--sensitivity"
        assert says in error.reason


MEANT = {
    "gaussian:scale=1/3": "discrete-gaussian:sigma_squared=1/9",
    "normal:variance=0.3": "discrete-gaussian:sigma_squared=0.3",
    "Laplace:Scale=1e-9": "discrete-laplace:scale=1e-9",
    "discrete_laplace:scale=3": "discrete-laplace:scale=3",
    "discrete-laplace:10": "discrete-laplace:scale=10",
    "laplace": "discrete-laplace:scale=...",
    "skellam:sigma=1e-3": "skellam:variance=1e-6",
    "poisson:lambda=3": "poisson:mean=3",
    "binomial:n=5,p=1/3": "binomial:trials=5,probability=1/3",
    "polya-diference:shape=1,scale=2": "polya-difference:shape=1,scale=2",
    "discrete-gaussian-sum:n=16,sigma=2": "discrete-gaussian-sum:count=16,sigma_squared=4",
}


@pytest.mark.parametrize(("typed", "meant"), MEANT.items())
def test_the_intended_noise_is_suggested(typed: str, meant: str) -> None:
    with pytest.raises(InvalidParameter) as refused:
        read_noise(typed)
    assert str(refused.value).endswith(f"; did you mean {meant}?")
    if "..." not in meant:
        assert read_noise(meant).name in LAWS
