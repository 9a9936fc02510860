"""The second path: alone, right by brute force, its methods agreeing, and able to say no."""

from __future__ import annotations

import ast
import itertools
import math
import random
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from accounting.checker import rounds
from accounting.checker.laws.law import Law, Unchecked
from accounting.checker.laws.losses import Losses, losses_of, randomised_response, renyi_of
from accounting.checker.laws.masses import REAL, masses, reach, real
from accounting.checker.laws.value import Wanted
from accounting.checker.sums import direct, lattice, tilt
from accounting.checker.sums import integral as line
from accounting.checker.sums.tilt import best_tilt, scan, tilted
from accounting.checker.sums.totals import deltas
from dpcore.numbers.enclosure import Enclosure
from dpcore.spelling import read_noise

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests" / "vectors" / "certificates"
ALLOWED = frozenset({"mpmath", "accounting.checker", *sys.stdlib_module_names})
READS_EVIDENCE = ("proof", "reading")

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


def foreign(source: str, allowed: frozenset[str] = ALLOWED) -> set[str]:
    return {
        name
        for name in imports(source)
        if not any(name == known or name.startswith(f"{known}.") for known in allowed)
    }


def test_the_checker_shares_no_code_with_the_engines() -> None:
    files = sorted((ROOT / "accounting" / "checker").rglob("*.py"))
    assert len(files) > 5
    for path in files:
        known = ALLOWED | {"accounting.kernel"} if path.stem in READS_EVIDENCE else ALLOWED
        assert foreign(path.read_text(encoding="utf-8"), known) == set(), path.name


def test_the_kernel_needs_the_standard_library_only() -> None:
    files = sorted((ROOT / "accounting" / "kernel").rglob("*.py"))
    assert len(files) > 5
    for path in files:
        found = imports(path.read_text(encoding="utf-8"))
        others = {name for name in found if name.partition(".")[0] not in sys.stdlib_module_names}
        assert {name for name in others if not name.startswith("accounting.kernel.")} == set()


@pytest.mark.parametrize(
    "source",
    [
        "import flint",
        "from accounting.pairs.pair import Pair",
        "def f():\n    import dpcore.numbers.enclosure",
    ],
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


@pytest.mark.nightly
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
