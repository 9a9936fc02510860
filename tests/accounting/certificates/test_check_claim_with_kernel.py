r"""Tests of `check_claim_with_kernel`: kernel laws, false claims, hostile plans."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest

from accounting import Status, deadline, verify
from accounting.certificates import check_claim_with_kernel
from accounting.certificates.canonical_text import digest_of
from accounting.certificates.certificate_format import Malformed, read
from accounting.certificates.certify import certify
from accounting.certificates.check_claim_with_kernel import ends_of, proven
from accounting.certificates.estimate import estimated
from accounting.composition.compose import compose
from accounting.derive_guarantee import guarantee
from accounting.descriptions.description import Description
from accounting.descriptions.real_noise import Laplace
from accounting.descriptions.sampling_schemes import Poisson
from accounting.errors import NotDerived
from accounting.guarantees.stated_guarantees import Approx, ZCdp
from accounting.proof_kernel import law_tables
from accounting.proof_kernel.law_tables import Refused
from dpcore import DiscreteGaussian, DiscreteLaplace, Mechanism
from tests.day_and_nightly import by_day
from tests.support.dpcore.refusals import refusal
from tests.support.run_command import typed

KINDS: Final = {
    "one Gaussian": "gaussian:sigma=2",
    "Laplace": "laplace:scale=3 --rounds 40",
    "discrete Gaussian": "discrete-gaussian:sigma_squared=40 --rounds 12",
    "discrete Laplace": "discrete-laplace:scale=9 --rounds 20",
    "staircase": "staircase:epsilon=1/8,sensitivity=3,plateau=1 --sensitivity 4 --rounds 9",
    "Skellam": "skellam:variance=30 --rounds 3",
    "Polya difference": "polya-difference:shape=1/2,scale=4",
    "Poisson": "poisson:mean=40",
    "binomial": "binomial:trials=60,probability=1/3",
    "a sample": "gaussian:sigma=1 --poisson 1/50 --rounds 60",
    "a sample of integers": "discrete-gaussian:sigma_squared=5 --poisson 1/20 --rounds 2",
    "replaced": "gaussian:sigma=1 --poisson 1/50 --relation replace --rounds 60",
    "a group": "gaussian:sigma=2 --poisson 1/50 --group 2 --rounds 60",
}
MADE: Final[dict[str, dict[str, Any]]] = {}
"""Certificates by kind, made once."""

DELTA: Final = "1/10000"


Certified: TypeAlias = Callable[[str], dict[str, Any]]


@pytest.fixture(autouse=True)
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    # Coarse, for speed; the grid affects only the width of the bounds.
    for place, name, value in (
        (check_claim_with_kernel, "_SLOTS", 1 << 9),
        (check_claim_with_kernel, "_WIDTH", 0.01),
        (law_tables, "_FINE", 64),
    ):
        monkeypatch.setattr(place, name, value)


@pytest.fixture
def certified(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Certified:
    def made(kind: str) -> dict[str, Any]:
        if kind not in MADE:
            file = tmp_path / "c.json"
            words = f"certify --noise {KINDS.get(kind, kind)} --delta {DELTA} --evidence -o {file}"
            answer = typed(capsys, *words.split())
            assert (answer.code, answer.err) == (0, "")
            assert answer.out == f"{file}: {file.stat().st_size} bytes\n"
            MADE[kind] = json.loads(file.read_text("utf-8"))
        return copy.deepcopy(MADE[kind])

    return made


def test_a_group_without_sampling_has_the_sensitivity_of_its_units(certified: Certified) -> None:
    noise = "discrete-laplace:scale=9 --rounds 20"
    group, one = (certified(f"{noise} {more} 3") for more in ("--group", "--sensitivity"))
    for key in ("scope", "parts", "claims"):
        assert group[key] == one[key]
    (more,) = set(group["assumptions"]) - set(one["assumptions"])
    assert more.startswith("groups: at most 3 contributions differ")
    verdict = verify(group)
    assert (verdict.holds, verdict.proof) == (True, "kernel")
    least = Fraction(group["claims"][0]["lower"])
    assert not verify(moved(group, "upper", least * Fraction(99, 100))).holds


def moved(document: dict[str, Any], end: str, to: Fraction) -> dict[str, Any]:
    """Return the certificate with one end of its first claim changed, otherwise consistent."""
    digits = document["claims"][0]["digits"]
    text = str(round(to * 10**digits)).rjust(digits + 1, "0")
    claim = {**document["claims"][0], end: f"{text[:-digits]}.{text[-digits:]}"}
    changed = {**document, "claims": [claim, *document["claims"][1:]]}
    return {**changed, "digest": digest_of(changed)}


@by_day(3)
@pytest.mark.parametrize("kind", KINDS)
def test_the_kernel_proves_estimated_claims_and_no_false_end(
    kind: str, certified: Certified
) -> None:
    document = certified(kind)
    verdict = verify(document)
    assert (verdict.holds, verdict.proof) == (True, "kernel")
    claim = read(document).claims[0]
    assert claim.upper - claim.lower <= claim.upper / 10
    # The estimate without a grid: its epsilon lies between these ends.
    width = claim.upper - claim.lower
    if width > claim.upper / 10**6:
        assert estimated(read(document).parts, replace(claim, unit=width / 8))[0]
    for end, to in (("upper", claim.lower - width), ("lower", claim.upper + width)):
        other = {"upper": "lower", "lower": "upper"}[end]
        far = to - 9 * width if end == "upper" else to + 9 * width
        changed = moved(moved(document, end, to), other, far)
        (failure,) = verify(changed).failures
        assert failure.where == "claims[0] (epsilon)"
        assert failure.status is Status.FAILS, failure
        assert f"{end} end" in failure.reason


def test_no_plan_makes_a_false_claim_hold(certified: Certified) -> None:
    document = certified("a sample")
    claim = read(document).claims[0]
    width = claim.upper - claim.lower
    false = moved(document, "upper", claim.upper - 2 * width)
    false = moved(false, "lower", claim.lower - 9 * width)
    for field, value in {"step": "1", "digits": 8, "slots": 64, "cut": 10**20}.items():
        changed = {**false, "evidence": {**document["evidence"], field: value}}
        changed["digest"] = digest_of(changed)
        assert verify(changed).failures


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("step", "1/10000000000"),
        ("step", "2"),
        ("digits", 401),
        ("slots", 63),
        ("cut", -1),
        ("digits", 7),
        ("slots", 1 << 18),
        ("cut", 10**21),
        ("more", 1),
    ],
)
def test_hostile_plans_are_refused_by_name(field: str, value: Any, certified: Certified) -> None:
    document = certified("one Gaussian")
    document["evidence"][field] = value
    with pytest.raises(Malformed, match="evidence"):
        read(document)
    document["evidence"] |= {"digits": 400, "slots": 1 << 17}
    assert not verify(document).holds


HOSTILE: Final = [
    {"law": "discrete-gaussian", "sigma_squared": str(10**30)},
    {"law": "discrete-gaussian-sum", "count": "1000000", "sigma_squared": "400"},
    {"law": "polya-difference", "shape": "1/2", "scale": str(10**20)},
    {"law": "skellam", "variance": str(10**300)},
    {"law": "binomial", "trials": str(10**400), "probability": "1/2"},
]


def of_noise(document: dict[str, Any], noise: dict[str, Any], **plan: Any) -> dict[str, Any]:
    """Return the certificate of another law, otherwise consistent, with its first claim."""
    part = {**document["parts"][0], "noise": noise}
    changed = {**document, "parts": [part], "claims": document["claims"][:1]}
    changed["evidence"] = {**document["evidence"], **plan}
    return {**changed, "digest": digest_of(changed)}


@pytest.mark.parametrize("noise", HOSTILE, ids=lambda noise: noise["law"])
def test_hostile_sizes_end_at_once(noise: dict[str, Any], certified: Certified) -> None:
    changed = of_noise(certified("discrete Gaussian"), noise)
    start = time.process_time()
    failures = verify(changed).failures
    assert "claims[0] (epsilon)" in {each.where for each in failures}
    assert time.process_time() - start < 2


def test_a_grid_of_too_many_points_is_refused_before_it_is_built(certified: Certified) -> None:
    noise = {"law": "skellam", "variance": "4"}
    changed = of_noise(certified("discrete Gaussian"), noise, step=f"1/{10**9}")
    expected = "grid points at step 1/1000000000 exceed the limit of 2^22"
    assert expected in str(verify(changed).failures)


SLOW: Final = [
    ("discrete Gaussian", {"noise": {"law": "skellam", "variance": str(10**5)}}),
    ("a sample", {"noise": {"law": "gaussian", "sigma": "1/20"}}),
    ("a group", {"sampling": {"kind": "poisson-group", "rate": "1/50", "members": 64}}),
    ("a sample", {"rounds": 10**7}),
]


@pytest.mark.parametrize(("kind", "part"), SLOW, ids=range(len(SLOW)))
def test_a_long_computation_of_the_kernel_stops_at_its_deadline(
    kind: str, part: dict[str, Any], certified: Certified
) -> None:
    document = certified(kind)
    changed = {**document, "parts": [{**document["parts"][0], **part}]}
    changed["evidence"] = {"step": "1/100000", "digits": 128, "slots": 1 << 15, "cut": 0}
    changed["digest"] = digest_of(changed)
    start = time.process_time()
    with deadline(0.2):
        failures = verify(changed).failures
    assert failures[-1].status in (Status.UNDECIDED, Status.UNCHECKED)
    assert time.process_time() - start < 5


def test_a_claim_has_evidence_unless_it_is_beyond_the_kernel() -> None:
    total = compose((Mechanism(noise=DiscreteLaplace(scale=10), sensitivity=1), 10))
    found = certify(total, deltas=["1e-6"], epsilons=[1], evidence=True)
    assert (found.claims[1]["lower"], found.claims[1]["upper"]) == ("0.00000000", "0.00000000")
    assert verify(found).proof == "kernel"
    mechanism = Mechanism(noise=DiscreteGaussian(sigma_squared=9), sensitivity=1)
    for asked in ({"deltas": (), "orders": ["5/2"]}, {"orders": ["5/2"]}):
        with pytest.raises(NotDerived, match="only rational Renyi divergences"):
            certify(mechanism, evidence=True, **asked)
    sample = Description(noise=Laplace(scale=2), scheme=Poisson(rate="1/10"))
    with pytest.raises(NotDerived, match="only a rational largest loss"):
        certify(compose(guarantee(sample)), deltas=[0], evidence=True)
    assert "zCDP" in refusal(lambda: certify(compose(ZCdp("1/2")), evidence=True), NotDerived)


def test_no_lower_bound_on_epsilon_exceeds_the_largest_finite_loss() -> None:
    # delta stays 2^-10 there, however large epsilon is.
    certificate = certify(compose(Approx("1", "1/1024")), deltas=["1/512"], evidence=True)
    document = read(certificate.to_json())
    assert document.plan is not None
    claim = document.claims[0]
    at, ends = Fraction(1, 1024), (Fraction(3, 2), Fraction(2))
    false = replace(claim, at=at, lower=ends[0], upper=ends[1])
    with pytest.raises(Refused, match="bound is not proven"):
        proven(document, false, lambda *_: None)
    with pytest.raises(Refused, match="no bound on epsilon up to"):
        ends_of((replace(document.parts[0], rounds=2),), replace(claim, at=at / 2), document.plan)


def test_the_command_states_whether_the_kernel_decided(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run = partial(typed, capsys)
    file = tmp_path / "run.json"
    words = "budget dpsgd --noise-multiplier 2 --batch-size 512 --examples 25600 --rounds 90"
    answer = run(*words.split(), "--delta", "1e-4", "--certificate", str(file), "--evidence")
    assert answer.code == 0, answer.err
    assert f"{file}: {file.stat().st_size} bytes" in answer.out.replace("\n", " ")
    shown = run("verify", str(file))
    assert shown.code == 0
    assert shown.out.splitlines()[-2:] == ["decided by the integer kernel", "every claim holds"]
    assert "proven: delta is at most" in shown.out
    assert json.loads(run("verify", str(file), "--json").out)["proof"] == "kernel"
    alone = run(*words.split(), "--delta", "1e-4", "--evidence")
    assert (alone.code, "--certificate" in alone.err) == (2, True)
