"""Golden certificates hold, and a broken formula disagrees with one of them."""

from __future__ import annotations

import importlib
import time
from pathlib import Path
from typing import Any

import mpmath
import pytest

from accounting.checker import rounds
from accounting.checker.laws import losses
from accounting.checker.laws import masses as laws
from accounting.checker.sums import direct, lattice
from accounting.checker.sums import integral as line
from accounting.checker.verdict import verify
from tests.accounting.checker.conftest import clear
from tests.effort import by_day
from tests.support.dpcore.mutants import mutated

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests" / "vectors" / "certificates"


def golden() -> list[Path]:
    return sorted(GOLDEN.glob("*.json"))


@by_day(1)
@pytest.mark.parametrize("path", golden(), ids=lambda path: path.stem)
def test_golden_certificates_hold_in_seconds(path: Path) -> None:
    start = time.process_time()
    found = verify(path.read_text(encoding="utf-8"))
    assert found.holds, str(found)
    assert time.process_time() - start < 10


MUTANTS = [
    (laws, "_skellam", "2 * n * here / v", "2 * n * here / (v * 1.000001)", "thousand_skellams"),
    (laws, "_backwards", "- found[0]", "", "thousand_skellams"),
    (laws, "_gaussian", "- 1", "", "thousand_gaussians"),
    (
        laws,
        "_gaussian",
        "(2 * real(sigma_squared))",
        "(2 * real(sigma_squared) + 1)",
        "one_gaussian",
    ),
    (laws, "_one_sided", "x[0] / (first + k + 1)", "x[0] / (first + k + 2)", "one_poisson"),
    (losses, "_laplace", "offset=-step * rate", "offset=rate - step * rate", "thousand_laplaces"),
    (losses, "_laplace", "beta**x for x", "beta**(x + 1) for x", "thousand_laplaces"),
    (rounds, "_choices", "part.rounds * count", "(part.rounds + 1) * count", "thousand_gaussians"),
    (rounds, "_directions", "range(count + 1)", "range(1)", "one_poisson"),
    (line, "_terms", "(z * (z + 1)) * doubled", "(z * (z + 1)) * 1", "thousand_skellams"),
    (line, "_terms", "(z * (z + 1)) * doubled", "(z * z) * doubled", "thousand_skellams"),
    (direct.Halves, "payoff", "factor * q * there", "q * there", "one_poisson"),
    (direct.Halves, "payoff", "losses[taken] > missing", "losses[taken] > 1", "one_poisson"),
]


@pytest.mark.nightly
@pytest.mark.parametrize(
    "mutant",
    [pytest.param(row, id=f"{row[1]}-{i}") for i, row in enumerate(MUTANTS)],
)
def test_a_broken_formula_disagrees(
    mutant: tuple[Any, str, str, str, str], monkeypatch: Any
) -> None:
    module, name, old, new, file = mutant
    text = (GOLDEN / f"{file}.json").read_text(encoding="utf-8")
    broken = mutated(getattr(module, name), old, new)
    monkeypatch.setattr(module, name, broken)
    if module is laws and name in ("_skellam", "_gaussian"):
        key = {"_skellam": "skellam", "_gaussian": "discrete-gaussian"}[name]
        monkeypatch.setitem(laws._HALVES, key, broken)
    assert not verify(text).holds
    monkeypatch.undo()
    clear()
    assert verify(text).holds


def test_a_broken_lattice_disagrees(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (GOLDEN / "thousand_gaussians.json").read_text(encoding="utf-8")
    kept = lattice.Lattice._delta
    for old, new in (
        ("1 if j == 0 or 2 * j == size else 2", "2"),
        ("/ self.unit) + 1", "/ self.unit) + 2"),
        ("real(at - self.unit * first)", "real(self.unit * first - at)"),
    ):
        clear()
        monkeypatch.setattr(lattice.Lattice, "_delta", mutated(kept, old, new))
        assert not verify(text).holds, old


def test_the_checker_loads_no_engine_of_its_own() -> None:
    for name in (
        "alone",
        "laws.masses",
        "laws.losses",
        "sums.direct",
        "sums.lattice",
        "sums.integral",
        "sums.tilt",
        "verdict",
    ):
        module = importlib.import_module(f"accounting.checker.{name}")
        assert not {"flint", "arb", "acb"} & set(vars(module))


def test_the_precision_of_mpmath_is_not_touched() -> None:
    text = (GOLDEN / "one_gaussian.json").read_text("utf-8")
    before = mpmath.mp.prec
    assert verify(text).holds
    assert mpmath.mp.prec == before
