"""The second path: alone, right by brute force, its methods agreeing, and able to say no."""

from __future__ import annotations

import ast
import importlib
import itertools
import math
import random
import sys
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import mpmath
import pytest

from accounting.checker import direct, lattice, laws, line, losses, rounds, tilt, verdict
from accounting.checker.alone import _listing
from accounting.checker.clock import deadline
from accounting.checker.exact import exact_value
from accounting.checker.laws import REAL, Law, Unchecked, masses, reach, real
from accounting.checker.losses import Losses, losses_of, randomised_response, renyi_of
from accounting.checker.tilt import best_tilt, scan, tilted
from accounting.checker.totals import deltas
from accounting.checker.value import Wanted
from accounting.checker.verdict import verify
from dpcore.enclosure import Enclosure
from dpcore.spelling import read_noise
from tests.dpcore.mutants import mutated

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "vectors" / "certificates"
ALLOWED = {"mpmath", "accounting.checker"} | set(sys.stdlib_module_names)

NOISES = (
    "discrete-laplace:scale=20",
    "discrete-gaussian:sigma_squared=400",
    "discrete-gaussian:sigma_squared=1/10",
    "discrete-gaussian-sum:count=16,sigma_squared=4",
    "discrete-gaussian-sum:count=3,sigma_squared=1/5",
    "skellam:variance=400",
    "skellam:variance=1/3",
    "polya-difference:shape=9/10,scale=20",
    "polya-difference:shape=3,scale=5",
    "polya:shape=5/2,scale=10",
    "polya:shape=1/10,scale=10",
    "poisson:mean=50",
    "binomial:trials=268,probability=1/2",
    "binomial:trials=1000,probability=1/7",
)


def law_of(text: str) -> Law:
    noise = read_noise(text)
    return Law(noise.name, tuple(Fraction(str(value)) for value in noise.parameters.values()))


# -- alone -------------------------------------------------------------------------------------


def imports(source: str) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or ".")
    return found


def foreign(source: str) -> set[str]:
    return {
        name
        for name in imports(source)
        if not any(name == known or name.startswith(f"{known}.") for known in ALLOWED)
    }


def test_the_checker_shares_no_code_with_the_engines() -> None:
    files = sorted((ROOT / "accounting" / "checker").glob("*.py"))
    assert len(files) > 5
    for path in files:
        assert foreign(path.read_text(encoding="utf-8")) == set(), path.name


@pytest.mark.parametrize(
    "source",
    ["import flint", "from accounting.pair import Pair", "def f():\n    import dpcore.enclosure"],
)
def test_a_shared_import_is_noticed(source: str) -> None:
    assert foreign(source) != set()


# -- laws --------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", NOISES)
def test_masses_lie_in_the_enclosures_of_the_law(text: str) -> None:
    noise, law = read_noise(text), law_of(text)
    low, high = reach(law, 80.0)
    found = masses(law, low, high)
    assert 1 - REAL.fsum(found) < REAL.mpf(10) ** -30
    for k in {low, low // 2, -1, 0, 3, high // 3, high}:
        if low <= k <= high:
            assert near(found[k - low], noise.enclose_pmf(k)), (text, k)


def near(found: Any, enclosure: Enclosure) -> bool:
    low, high = (real(Fraction(end)) for end in (enclosure.lower, enclosure.upper))
    slack = abs(found) * REAL.mpf(10) ** -30
    return bool(low - slack <= found <= high + slack)


@pytest.mark.parametrize("text", NOISES)
def test_reach_leaves_out_no_more_than_it_says(text: str) -> None:
    law = law_of(text)
    for surprise in (5.0, 20.0, 50.0):
        low, high = reach(law, surprise)
        inside = REAL.fsum(masses(law, low, high))
        assert 1 - inside <= 2 * math.exp(-surprise) + 1e-40
        assert high - low <= 2 * max(-reach(law, 80.0)[0], reach(law, 80.0)[1]) + 2


def test_too_wide_a_law_is_left_unchecked() -> None:
    for text in (
        "skellam:variance=1e12",
        "discrete-gaussian:sigma_squared=1e300",
        "poisson:mean=1e14",
    ):
        with pytest.raises(Unchecked):
            reach(law_of(text), 50.0)


# -- totals against enumeration ------------------------------------------------------------------


def enumerated(listed: list[tuple[Losses, int]], epsilon: Fraction) -> Any:
    """The product of all rounds, outcome by outcome."""
    each = [one for one, count in listed for _ in range(count)]
    atoms = [[*zip(one.here, one.there, strict=True)] for one in each]
    factor = REAL.exp(real(epsilon))
    finite = REAL.fsum(
        max(REAL.fprod(p for p, _ in point) - factor * REAL.fprod(q for _, q in point), 0)
        for point in itertools.product(*atoms)
    )
    return finite + 1 - REAL.fprod(1 - one.hidden for one in each)


SMALL = [
    [("discrete-laplace:scale=2", 3, 3), ("discrete-laplace:scale=3", 2, 2)],
    [("binomial:trials=6,probability=1/2", 1, 3)],
    [("binomial:trials=4,probability=1/2", 1, 2), ("discrete-laplace:scale=1", 1, 3)],
    [("discrete-gaussian:sigma_squared=1/2", 1, 3)],
]


def listing(case: list[tuple[str, int, int]], surprise: float = 12.0) -> list[tuple[Losses, int]]:
    return [(losses_of(law_of(text), step, surprise), count) for text, step, count in case]


@pytest.mark.parametrize("case", SMALL, ids=str)
@pytest.mark.parametrize("epsilon", ["0", "1/3", "1", "5/2"])
def test_totals_equal_enumeration(case: list[tuple[str, int, int]], epsilon: str) -> None:
    listed, at = listing(case), Fraction(epsilon)
    truth = enumerated(listed, at)
    (found,) = deltas(listed, [at], Wanted(relative=1e-9), REAL.zero)
    assert abs(found.value - truth) <= truth * REAL.mpf(10) ** -30


@pytest.mark.parametrize("epsilon", ["1/7", "1", "2"])
def test_the_lattice_equals_the_plain_sum(epsilon: str) -> None:
    listed = [*listing(SMALL[3], 60.0), (randomised_response(Fraction(2), Fraction(1, 100)), 4)]
    at = Fraction(epsilon)
    grid = lattice.Lattice.of(listed, at)
    assert grid is not None
    split = direct.halves(listed)
    assert split is not None
    truth = split.payoff(real(at)).value
    (found,) = grid.deltas([at])
    assert abs(found.value - truth) <= found.error <= truth * REAL.mpf(10) ** -20


# Each law has its echoes at another spacing, and after 41 of one both have a whole one at once.
BEATING = [
    ("discrete-gaussian:sigma_squared=400", 1, 500),
    ("discrete-gaussian:sigma_squared=410", 1, 500),
]


@pytest.mark.parametrize(
    ("case", "epsilon", "relative"),
    [
        ([("discrete-gaussian:sigma_squared=400", 1, 1000)], "83/10", 1e-4),
        ([("discrete-laplace:scale=200", 10, 1000)], "83/10", 1e-4),
        (BEATING, "83/10", 1e-8),
        (
            [("discrete-gaussian:sigma_squared=99", 1, 40), ("discrete-laplace:scale=9", 7, 5)],
            "4",
            1e-4,
        ),
    ],
)
def test_the_line_equals_the_lattice(
    case: list[tuple[str, int, int]], epsilon: str, relative: float
) -> None:
    listed, at = listing(case, 70.0), Fraction(epsilon)
    grid = lattice.Lattice.of(listed, at)
    assert grid is not None
    (truth,) = grid.deltas([at])
    (found,) = line.integral(listed, [at], Wanted(relative=relative))
    assert abs(found.value - truth.value) <= found.error + truth.error


def test_an_estimate_that_forgets_whole_echoes_is_too_small(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listed, at = listing(BEATING, 70.0), Fraction(83, 10)
    grid = lattice.Lattice.of(listed, at)
    assert grid is not None
    (truth,) = grid.deltas([at])
    monkeypatch.setattr(line, "_FEW", 0)
    (found,) = line.integral(listed, [at], Wanted(relative=1e-9))
    assert abs(found.value - truth.value) > found.error + truth.error


def test_the_line_equals_the_plain_sum() -> None:
    listed, at = listing([("skellam:variance=9", 2, 4)], 30.0), Fraction(3)
    split = direct.halves(listed)
    assert split is not None
    truth = split.payoff(real(at)).value
    (found,) = line.integral(listed, [at], Wanted(relative=1e-5))
    assert abs(found.value - truth) <= found.error


def test_every_frequency_that_matters_is_kept() -> None:
    listed = listing([("skellam:variance=100", 1, 10)], 40.0)
    c = best_tilt(listed, 2.0)
    laws_of = tilted(listed, c)
    eta, small, weight = 0.5, 1e-8, c * (c + 1)
    points = scan(laws_of, eta, 4000, small, weight)
    kept = {point.j: point.product for point in points if point.matters}
    assert len(kept) < 1000
    for j in range(4001):
        value = 1 + 0j
        for one in laws_of:
            value *= one.phi(j * eta) ** one.count
        if abs(value) * min(1.0, weight / max(j * eta, 1e-9) ** 2) > 2 * small:
            assert abs(kept[j] - value) < 1e-12
    assert max(kept) > 2 * math.pi * 100 / eta  # the first echo is among them


def test_what_is_skipped_between_echoes_is_small() -> None:
    draws = random.Random(7)
    (one,) = tilted(listing([("skellam:variance=4000", 3, 500)], 40.0), 3.0)
    spacing = tilt._Spacing.of(one, 1e-3)
    assert spacing is not None
    skipped = 0
    for _ in range(300):
        y = draws.uniform(0, 30000)
        end = spacing.free_until(y, math.log(1e-10))
        for at in (y, (y + end) / 2, end) if end > y else ():
            skipped += 1
            assert abs(one.phi(at)) ** 500 <= 1.01e-10
    assert skipped > 300


@pytest.mark.parametrize("text", ["skellam:variance=16", "discrete-laplace:scale=3"])
def test_renyi_is_the_plain_sum(text: str) -> None:
    law, order = law_of(text), Fraction(5, 2)
    around = masses(law, -140, 140)
    truth = REAL.fsum(
        p ** real(order) * q ** (1 - real(order)) for p, q in itertools.pairwise(around)
    )
    assert abs(REAL.exp(renyi_of(law, 1, order).value * 1.5) / truth - 1) < REAL.mpf(10) ** -15
    assert renyi_of(law_of("poisson:mean=5"), 1, order).value == REAL.inf


def test_known_totals() -> None:
    cases = [
        ("discrete-gaussian:sigma_squared=400", 1000, "8.306226"),
        ("discrete-gaussian:sigma_squared=400", 100, "2.254087"),
        ("discrete-laplace:scale=20", 1000, "8.28357334602"),
        ("discrete-laplace:scale=20", 100, "2.20753270093"),
    ]
    for text, count, epsilon in cases:
        at = Fraction(epsilon)
        (found,) = deltas(listing([(text, 1, count)], 70.0), [at], Wanted(relative=1e-9), REAL.zero)
        assert abs(found.value * 10**6 - 1) < 1e-5


def test_shifts_of_a_norm() -> None:
    assert list(rounds._partitions(4, 4, 2)) == [{1: 4}, {2: 1}]
    assert len(list(rounds._partitions(5, 5, 1))) == 7


# -- whole certificates --------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """Nothing is remembered between tests: mutants would hide behind it."""
    clear()
    # A crowded machine must not decide what these tests are about.
    with deadline(600):
        yield
    clear()


def clear() -> None:
    losses.losses_of.cache_clear()
    _listing.cache_clear()
    verdict._checked.cache_clear()
    exact_value.cache_clear()


def golden() -> list[Path]:
    return sorted(GOLDEN.glob("*.json"))


@pytest.mark.parametrize("path", golden(), ids=lambda path: path.stem)
def test_golden_certificates_hold_in_seconds(path: Path) -> None:
    start = time.process_time()
    found = verify(path.read_text(encoding="utf-8"))
    assert found.holds, str(found)
    assert time.process_time() - start < 10


MUTANTS = [
    (laws, "_skellam", "2 * n * here / v", "2 * n * here / (v * 1.000001)", "thousand_skellams"),
    (laws, "_skellam", "- found[0]", "", "thousand_skellams"),
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


@pytest.mark.parametrize(
    "mutant", MUTANTS, ids=[f"{name}-{i}" for i, (_, name, *_) in enumerate(MUTANTS)]
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
    for name in ("alone", "laws", "losses", "direct", "lattice", "line", "tilt", "verdict"):
        module = importlib.import_module(f"accounting.checker.{name}")
        assert not {"flint", "arb", "acb"} & set(vars(module))


def test_the_precision_of_mpmath_is_not_touched() -> None:
    text = (GOLDEN / "one_gaussian.json").read_text("utf-8")
    before = mpmath.mp.prec
    assert verify(text).holds
    assert mpmath.mp.prec == before
