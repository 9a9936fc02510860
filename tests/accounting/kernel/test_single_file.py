r"""kernel.py alone, with no package installed, gives the verdict of ``verify``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from accounting import verify
from accounting.certificates.canonical import digest_of
from accounting.certificates.certificate import certify
from accounting.certificates.single_file import single_file
from accounting.composition.compose import compose
from accounting.release.derive_guarantee import guarantee
from dpcore import DiscreteGaussian, Mechanism

GOLDEN = Path(__file__).parents[2] / "vectors" / "certificates"


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("kernel") / "kernel.py"
    file.write_text(single_file(), encoding="utf-8")
    return file


def run(alone: Path, text: str) -> tuple[int, str]:
    certificate = alone.parent / "c.json"
    certificate.write_text(text, encoding="utf-8")
    command = [sys.executable, "-I", "-S", str(alone), str(certificate)]
    found = subprocess.run(command, capture_output=True, text=True, check=False, cwd=alone.parent)
    return found.returncode, found.stdout


def test_the_verdict_is_the_same(alone: Path) -> None:
    total = compose(
        (guarantee(Mechanism(noise=DiscreteGaussian(sigma_squared=9), sensitivity=1)), 20)
    )
    certificate = certify(total, deltas=["1e-6"], evidence=True)
    code, out = run(alone, certificate.text())
    assert (code, out) == (0, f"{verify(certificate)}\nevery claim is proven\n")
    document = certificate.to_json()
    document["claims"][0]["upper"] = document["claims"][0]["lower"]
    document["digest"] = digest_of(document)
    code, out = run(alone, json.dumps(document))
    assert (code, out) == (1, f"{verify(document)}\nREFUSED\n")
    assert out.startswith("claims[0] (epsilon): fails")


def test_what_is_only_estimated_is_refused(alone: Path) -> None:
    code, out = run(alone, (GOLDEN / "one_gaussian.json").read_text("utf-8"))
    assert (code, out.splitlines()[-1]) == (0, "every claim is proven")
    code, out = run(alone, (GOLDEN / "thousand_skellams.json").read_text("utf-8"))
    assert (code, out.splitlines()[-1]) == (1, "REFUSED")
    assert "unchecked: the upper bound is not proven" in out


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"schema": "other/1"}'])
def test_what_is_no_certificate_ends_with_2(alone: Path, text: str) -> None:
    assert run(alone, text)[0] == 2
