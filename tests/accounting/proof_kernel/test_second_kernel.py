"""Tests of two further verifiers, one Python file and one C file: the verdicts are equal."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
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


def changes(document: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Yield the document with one number of its claims and parts changed, each in turn."""
    found = []
    places: list[list[Any]] = [["claims"], ["parts"]]
    for where in places:
        node: Any = document
        for key in where:
            node = node[key]
        if isinstance(node, dict | list):
            places += [
                [*where, key] for key in (node if isinstance(node, dict) else range(len(node)))
            ]
            continue
        for value in changed_values(str(where[-1]), node):
            copy = json.loads(json.dumps(document))
            inner = copy
            for key in where[:-1]:
                inner = inner[key]
            inner[where[-1]] = value
            found.append((f"{where}: {value}", copy))
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


OUTSIDE: list[tuple[str, dict[str, Any]]] = [
    ("scope", {"unit": "nobody", "relation": "add-remove"}),
    ("scope", {"unit": "user", "relation": "poisson"}),
    ("evidence", {"step": "1/100", "digits": 40, "slots": 1000}),
    ("evidence", {"step": "2", "digits": 40, "slots": 1000, "cut": 0}),
    ("evidence", {"step": "1/100", "digits": 401, "slots": 1000, "cut": 0}),
]


@pytest.mark.parametrize(("field", "value"), OUTSIDE)
def test_both_verifiers_refuse_values_outside_the_format(
    kernel: Kernel, field: str, value: dict[str, Any]
) -> None:
    document = json.loads((VECTORS / "evidence_laplaces.json").read_text(encoding="utf-8"))
    text = text_of(document | {field: value})
    assert (verify(text).holds, kernel(text)) == (False, NO_CERTIFICATE)


def test_both_verifiers_refuse_arguments_outside_the_format(kernel: Kernel) -> None:
    evidence = json.loads((VECTORS / "evidence_laplaces.json").read_text("utf-8"))["evidence"]
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
    for _ in range(100):
        i, new = chosen.randrange(len(text)), chosen.choice('07x"{},: -')
        changed = text[:i] + new + text[i + 1 :]
        try:
            same = json.loads(changed) == original
        except ValueError:
            same = False
        assert (kernel(changed) == PROVEN) == same, (i, new)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("kernel") / "kernel.py"
    file.write_text(single_file(), encoding="utf-8")
    return file


def run_alone(alone: Path, text: str) -> tuple[int, str]:
    file = alone.parent / "c.json"
    file.write_text(text, encoding="utf-8")
    command = [sys.executable, "-I", "-S", str(alone), str(file)]
    found = subprocess.run(command, capture_output=True, text=True, check=False, cwd=alone.parent)
    return found.returncode, found.stdout


def test_both_verifiers_give_the_same_verdict(alone: Path) -> None:
    total = compose(
        (guarantee(Mechanism(noise=DiscreteGaussian(sigma_squared=9), sensitivity=1)), 20)
    )
    certified = certify(total, deltas=["1e-6"], evidence=True)
    code, out = run_alone(alone, certified.text())
    assert (code, out) == (0, f"{verify(certified)}\nevery claim is proven\n")
    document = certified.to_json()
    document["claims"][0]["upper"] = document["claims"][0]["lower"]
    document["digest"] = digest_of(document)
    code, out = run_alone(alone, json.dumps(document))
    assert (code, out) == (1, f"{verify(document)}\nREFUSED\n")
    assert out.startswith("claims[0] (epsilon): fails")


def test_an_estimated_claim_is_refused_by_the_second_kernel(alone: Path) -> None:
    code, out = run_alone(alone, (VECTORS / "one_gaussian.json").read_text("utf-8"))
    assert (code, out.splitlines()[-1]) == (0, "every claim is proven")
    code, out = run_alone(alone, (VECTORS / "thousand_skellams.json").read_text("utf-8"))
    assert (code, out.splitlines()[-1]) == (1, "REFUSED")
    assert "unchecked: the upper bound is not proven" in out


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"schema": "other/1"}'])
def test_a_file_that_is_not_a_certificate_gives_exit_code_2(alone: Path, text: str) -> None:
    assert run_alone(alone, text)[0] == 2


def test_a_file_of_another_encoding_is_reported_in_one_short_line(alone: Path) -> None:
    file = alone.parent / "latin.json"
    file.write_bytes(b'{"schema": "' + b"x" * 5000 + b'\xe9"}')
    command = [sys.executable, "-I", "-S", str(alone), str(file)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout) == (2, "")
    assert found.stderr.startswith("not a certificate: UnicodeDecodeError")
    assert len(found.stderr) < 200
