"""Tests of the Coq proofs: they compile and assume only the axioms of the reals.

A copy of a proof with a false step or claim does not compile.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from accounting.certificates.certificate_format import parsed, read
from accounting.proof_kernel.cells import listing
from accounting.proof_kernel.delta_bounds import Curve, lattice
from accounting.proof_kernel.worst_case_neighbours import scenarios

ROOT = Path(__file__).parents[3]
AXIOMS = {
    "ClassicalDedekindReals.sig_not_dec",
    "ClassicalDedekindReals.sig_forall_dec",
    "FunctionalExtensionality.functional_extensionality_dep",
    "Classical_Prop.classic",
}
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
NAMES = MAKEFILE.partition("\nPROOFS := ")[2].partition("\n")[0].split()

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(shutil.which("coqc") is None, reason="coqc is not installed"),
]


def compile_proof(folder: Path, name: str) -> subprocess.CompletedProcess[str]:
    command = ["coqc", "-q", "-Q", ".", "dpcore", f"{name}.v"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("proofs")
    for file in (ROOT / "proofs").glob("*.v"):
        shutil.copy(file, folder)
    printed = ""
    for name in NAMES:
        found = compile_proof(folder, name)
        assert found.returncode == 0, found.stderr
        printed += found.stdout
    return folder, printed


def test_every_coq_file_compiles_and_admits_nothing() -> None:
    sources = list((ROOT / "proofs").glob("*.v"))
    assert {file.stem for file in sources} == set(NAMES)
    for file in sources:
        text = file.read_text(encoding="utf-8")
        assert not re.search(r"\b(Admitted|admit|Axiom|Parameter|Conjecture)\b", text)


def test_coq_assumes_only_the_axioms_of_the_reals(compiled: tuple[Path, str]) -> None:
    assert (
        set(re.findall(r"^([\w.]+)(?=\s*\n?\s*:)", compiled[1], re.MULTILINE)) - {"Axioms"}
        == AXIOMS
    )


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("Pairs", "sum snd l) <= delta x l", "sum snd l) >= delta x l"),
        ("Pairs", "p' <= p -> q' <= q ->\n", "p' <= p -> q' >= q ->\n"),
        (
            "Partitions",
            "[(low lo hi (masses (fst c)), low lo hi (masses (fst c)) / lo);",
            "[(low lo hi (masses (fst c)), low lo hi (masses (fst c)) / hi);",
        ),
        ("Exponential", "Z.max 0 (F - ceiling (n * F) pieces)", "Z.max 0 (F - n * F / pieces)"),
        ("Kernel", "map (fun v => v / U)%Z w.", "map (fun v => v / U + 1)%Z w."),
        ("Kernel", "(carried + a)%Z :: t |", "(carried + a + 1)%Z :: t |"),
        ("Kernel", "* horner e w / F\n", "* horner e w / F + 1\n"),
        ("DiscreteLaplace", "then a * (F + upper) <=? U * F\n", "then a * F <=? U * F\n"),
        ("Run", "(IZR (20 * 17124025) / IZR D)", "(IZR (20 * 17124024) / IZR D)"),
    ],
)
def test_coq_rejects_a_false_step_or_claim(
    compiled: tuple[Path, str], tmp_path: Path, name: str, old: str, new: str
) -> None:
    folder = shutil.copytree(compiled[0], tmp_path / "twin")
    text = (folder / f"{name}.v").read_text(encoding="utf-8")
    assert text.count(old) == 1
    (folder / f"{name}.v").write_text(text.replace(old, new), encoding="utf-8")
    assert compile_proof(folder, name).returncode != 0


AGREEMENT = """
Require Import List ZArith.
From dpcore Require Import Kernel DiscreteLaplace Run.
Import ListNotations.
Open Scope Z_scope.
Definition one := {one}.
Example the_round_is_sound : checks D u U F K 1 (countdown 1) one = true.
Proof. vm_cast_no_check (eq_refl true). Qed.
Definition all := copies (2 * u) U (window {cut}) {rounds} (Listing (- u) one 1).
Example the_sum_is_the_same : (start all, weights all) = ({first} * u, {weights}).
Proof. vm_cast_no_check (eq_refl (start all, weights all)). Qed.
"""


@pytest.mark.parametrize("wrong", [0, 1])
def test_coq_computes_the_integers_of_the_kernel(
    compiled: tuple[Path, str], tmp_path: Path, wrong: int
) -> None:
    # From the certificate that Run.v proves: the masses of one round, and of all rounds.
    text = ROOT / "tests" / "vectors" / "certificates" / "evidence_laplaces.json"
    found = read(parsed(text.read_text(encoding="utf-8")))
    rows = scenarios(found.parts, above=True)
    ((each, rounds),) = rows[0]
    grid = lattice(each)
    assert grid is not None
    assert found.plan is not None
    curve = Curve(rows, rows, found.plan)
    one = listing(curve._table([(each, 1)], grid), *grid, found.plan.digits, above=True)
    total = curve._total(rows[0], above=True)
    # The start is rounds/20 plus a slack; places are 2/20 apart, and 1/20 is u in Coq.
    first = rounds + 2 * total.first
    weights = [total.weights[0] + wrong, *total.weights[1:]]
    folder = shutil.copytree(compiled[0], tmp_path / "twin")
    source = AGREEMENT.format(
        one=_coq(one.weights), cut=found.plan.cut, rounds=rounds, first=first, weights=_coq(weights)
    )
    (folder / "Agreement.v").write_text(source, encoding="utf-8")
    assert (compile_proof(folder, "Agreement").returncode == 0) == (not wrong)


def _coq(weights: list[int]) -> str:
    return f"[{'; '.join(map(str, weights))}]"
