"""Tests of two further verifiers, one Python file and one C file: the verdicts are equal."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from copy import deepcopy
from decimal import Decimal
from fractions import Fraction
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import pytest

from accounting import verify
from accounting.certificates.canonical_text import digest_of
from accounting.certificates.certify import certify
from accounting.certificates.single_file import single_file
from accounting.composition.compose import compose
from accounting.derive_guarantee import guarantee
from dpcore import DiscreteGaussian, Mechanism
from tests.day_and_nightly import effort
from tests.support.accounting.handwritten_certificates import certificate, enclosed, noise

ROOT = Path(__file__).parents[3]
VECTORS = ROOT / "tests" / "vectors" / "certificates"
EVIDENCE = sorted(VECTORS.glob("evidence_*.json"), key=lambda path: path.stem)
UNSUPPORTED = {"evidence_skellam"}
SLOW = {"evidence_mixed", "evidence_samples"}
PROVEN, REFUSED, NO_CERTIFICATE, NOT_SUPPORTED = range(4)

Kernel = Callable[[str], int]


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Kernel:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("cc is not installed")
    folder = tmp_path_factory.mktemp("second")
    probe = [compiler, "-E", "-x", "c", "-"]
    if subprocess.run(
        probe, input=b"#include <gmp.h>", capture_output=True, check=False
    ).returncode:
        pytest.skip("gmp.h is not installed")
    source = ROOT / "examples" / "kernel" / "kernel.c"
    strict = ["-Wall", "-Wextra", "-Werror", "-O2"]
    subprocess.run([compiler, *strict, "-o", folder / "kernel", source, "-lgmp", "-lm"], check=True)

    def run(text: str) -> int:
        file = folder / "certificate.json"
        file.write_text(text, encoding="utf-8")
        found = subprocess.run(
            [folder / "kernel", file], capture_output=True, text=True, check=False, timeout=120
        )
        words = {0: "proven:", 1: "refused:", 2: "not a certificate:", 3: "unsupported:"}
        assert found.stdout.startswith(words[found.returncode])
        return found.returncode

    return run


def text_of(document: dict[str, Any]) -> str:
    return json.dumps(document | {"digest": digest_of(document)})


def cases(slow: set[str]) -> list[Any]:
    return [
        pytest.param(path.stem, marks=[pytest.mark.nightly] if path.stem in slow else [])
        for path in EVIDENCE
    ]


@pytest.mark.parametrize("name", cases(SLOW))
def test_both_verifiers_prove_every_certificate_with_evidence(kernel: Kernel, name: str) -> None:
    text = (VECTORS / f"{name}.json").read_text(encoding="utf-8")
    found = verify(text)
    assert found.holds
    assert found.proof == "kernel"
    assert kernel(text) == (NOT_SUPPORTED if name in UNSUPPORTED else PROVEN)


def changed_values(key: str, value: object) -> list[object]:
    """Change the last digit by one unit either way; change rationals by a thousandth."""
    if isinstance(value, int):
        return [value + 1, value - 1] if key in {"rounds", "amount"} and value > 1 else []
    if not isinstance(value, str) or not value[0].isdigit():
        return []
    if key in {"lower", "upper"}:
        unit = Decimal(1).scaleb(-len(value.partition(".")[2]))
        return [f"{Decimal(value) + move:f}" for move in (unit, -unit)]
    return [str(Fraction(value) * Fraction(factor, 1000)) for factor in (999, 1001)]


def changes(document: Any) -> list[tuple[str, dict[str, Any]]]:
    """Yield the document with one number of its claims and parts changed, each in turn."""
    found = []
    places: list[list[Any]] = [["claims"], ["parts"]]
    for where in places:
        node = reduce(getitem, where, document)
        if isinstance(node, dict | list):
            keys = node if isinstance(node, dict) else range(len(node))
            places += [[*where, key] for key in keys]
            continue
        for value in changed_values(str(where[-1]), node):
            copied = deepcopy(document)
            reduce(getitem, where[:-1], copied)[where[-1]] = value
            found.append((f"{where}: {value}", copied))
    return found


@pytest.mark.parametrize("name", cases({*SLOW, "evidence_gaussians"}))
def test_both_verifiers_refuse_every_false_change(kernel: Kernel, name: str) -> None:
    document: dict[str, Any] = json.loads((VECTORS / f"{name}.json").read_text(encoding="utf-8"))
    if name in UNSUPPORTED:
        assert {kernel(text_of(each)) for _, each in changes(document)} <= {
            NO_CERTIFICATE,
            NOT_SUPPORTED,
        }
        return
    refused = 0
    for what, changed in changes(document):
        expected = verify(changed | {"digest": digest_of(changed)})
        ours = all("missing" in str(each) for each in expected.failures)  # assumptions
        assert (kernel(text_of(changed)) == PROVEN) == ours, what
        refused += not ours
    assert refused >= 6  # a claim of three digits allows some changes that are true


def test_files_without_a_certificate_or_without_evidence_are_reported(kernel: Kernel) -> None:
    text = (VECTORS / "evidence_laplaces.json").read_text(encoding="utf-8")
    assert kernel(text.replace("1.7124025", "1.7124026")) == REFUSED
    for broken in (
        "",
        "{}",
        "[]",
        text[:-9],
        text + "x",
        text + "\0",
        text.replace('"digits": 7', '"digits": 7.0'),
    ):
        assert kernel(broken) == NO_CERTIFICATE
    assert kernel((VECTORS / "one_gaussian.json").read_text(encoding="utf-8")) == NOT_SUPPORTED


def test_both_verifiers_refuse_values_and_arguments_outside_the_format(kernel: Kernel) -> None:
    document = json.loads((VECTORS / "evidence_laplaces.json").read_text(encoding="utf-8"))
    evidence = document["evidence"]
    for changed in (
        {"scope": {"unit": "nobody", "relation": "add-remove"}},
        {"scope": {"unit": "user", "relation": "poisson"}},
        {"evidence": {key: value for key, value in evidence.items() if key != "cut"}},
        {"evidence": evidence | {"step": "2"}},
        {"evidence": evidence | {"digits": 401}},
    ):
        text = text_of(document | changed)
        assert (verify(text).holds, kernel(text)) == (False, NO_CERTIFICATE)
    for claim, wide, code in (
        (enclosed("renyi", "2", "1.0", "1.0"), "1", PROVEN),
        (enclosed("renyi", "1/2", "0.2", "0.3"), "1", NO_CERTIFICATE),
        (enclosed("epsilon", "2", "0.0", "1.0"), "1", NO_CERTIFICATE),
        (enclosed("delta", "0", "0.1", "1.0"), str(10**100), NOT_SUPPORTED),
    ):
        document = json.loads(certificate([noise("gaussian", 1, sigma=wide)], [claim]))
        text = text_of(document | {"evidence": evidence})
        assert (verify(text).holds, kernel(text)) == (code == PROVEN, code)


def test_a_changed_character_is_refused_by_both_verifiers(kernel: Kernel) -> None:
    text = (VECTORS / "evidence_laplaces.json").read_text(encoding="utf-8")
    original, chosen = json.loads(text), random.Random(5)
    for _ in range(effort(30, 100)):
        i, new = chosen.randrange(len(text)), chosen.choice('07x"{},: -')
        changed = text[:i] + new + text[i + 1 :]
        try:
            same = json.loads(changed) == original
        except ValueError:
            same = False
        assert (kernel(changed) == PROVEN) == same, (i, new)


Alone = Callable[[bytes], tuple[int, str, str]]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Alone:
    """Run the verifier of one Python file without any installed package."""
    folder = tmp_path_factory.mktemp("kernel")
    (folder / "kernel.py").write_text(single_file(), encoding="utf-8")

    def run(text: bytes) -> tuple[int, str, str]:
        (folder / "c.json").write_bytes(text)
        command = [sys.executable, "-I", "-S", "kernel.py", "c.json"]
        found = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
        return found.returncode, found.stdout, found.stderr

    return run


def test_both_verifiers_give_the_same_verdict(alone: Alone) -> None:
    one = guarantee(Mechanism(noise=DiscreteGaussian(sigma_squared=9), sensitivity=1))
    certified = certify(compose((one, 20)), deltas=["1e-6"], evidence=True)
    proven = f"{verify(certified)}\nevery claim is proven\n"
    assert alone(certified.text().encode()) == (0, proven, "")
    document = certified.to_json()
    document["claims"][0]["upper"] = document["claims"][0]["lower"]
    text = text_of(document)
    code, out, _ = alone(text.encode())
    assert (code, out) == (1, f"{verify(text)}\nREFUSED\n")
    assert out.startswith("claims[0] (epsilon): fails")


def test_an_estimated_claim_is_refused_by_the_second_kernel(alone: Alone) -> None:
    code, out, _ = alone((VECTORS / "one_gaussian.json").read_bytes())
    assert (code, out.splitlines()[-1]) == (0, "every claim is proven")
    code, out, _ = alone((VECTORS / "thousand_skellams.json").read_bytes())
    assert (code, out.splitlines()[-1]) == (1, "REFUSED")
    assert "unchecked: the upper bound is not proven" in out


def test_a_file_that_is_not_a_certificate_is_reported_in_one_short_line(alone: Alone) -> None:
    assert alone(b"")[0] == alone(b'{"schema": "other/1"}')[0] == 2
    code, out, error = alone(b'{"schema": "' + b"x" * 5000 + b'\xe9"}')
    assert (code, out) == (2, "")
    assert error.startswith("not a certificate: UnicodeDecodeError")
    assert len(error) < 200
