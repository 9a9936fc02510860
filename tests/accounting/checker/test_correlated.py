r"""Correlated noise on the second path: sensitivities by brute force, certificates, their twins."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from math import comb
from typing import Any

import pytest

from accounting.certificates.certificate import certify
from accounting.checker import Status, verify
from accounting.checker.estimate import checked
from accounting.checker.laws.correlated import Correlated
from accounting.checker.laws.law import Unchecked
from accounting.errors import NotDerived
from accounting.matrix.patterns import Participation
from accounting.matrix.strategy import Banded, Dense, Strategy, Toeplitz, Tree
from accounting.mechanism.real_noise import Gaussian
from accounting.release.guarantee import guarantee
from accounting.release.matrix import MatrixMechanism
from accounting.totals.compose import compose
from dpcore import Sensitivity
from tests.accounting.certificates.test_certificate import move, resealed, sealed
from tests.support.dpcore.mutants import mutated


def rows_of(run: Correlated) -> list[list[Fraction]]:
    r"""The matrix C itself, by what each strategy is."""
    count = range(run.rounds)
    if run.strategy == "tree":
        # Each prefix is a sum of blocks, one for every bit of its length; each block is one row.
        blocks = set()
        for end in range(1, run.rounds + 1):
            at = 0
            for bit in reversed(range(end.bit_length())):
                if end >> bit & 1:
                    blocks.add((at, at + (1 << bit)))
                    at += 1 << bit
        return [[Fraction(low <= i < high) for i in count] for low, high in sorted(blocks)]
    column = [*run.coefficients] or [Fraction(comb(2 * k, k), 4**k) for k in range(run.bands)]
    return [
        [column[i - j] if 0 <= i - j < len(column) else Fraction(0) for j in count] for i in count
    ]


def by_all_patterns(run: Correlated) -> Fraction:
    r"""The longest C u, u = 1 in the rounds of a pattern."""
    rows, best = rows_of(run), Fraction(0)
    for size in range(1, run.most + 1):
        for pattern in itertools.combinations(range(run.rounds), size):
            if all(b - a >= run.apart for a, b in itertools.pairwise(pattern)):
                best = max(
                    best,
                    sum(
                        (sum((row[i] for i in pattern), Fraction(0)) ** 2 for row in rows),
                        Fraction(0),
                    ),
                )
    return best


RUNS = [
    *(
        Correlated(strategy="tree", rounds=rounds, most=most, apart=apart)
        for rounds, most, apart in (
            (1, 1, 1),
            (8, 1, 1),
            (11, 3, 2),
            (13, 2, 5),
            (7, 7, 1),
            (5, 2, 3),
        )
    ),
    Correlated(strategy="banded", rounds=9, most=3, apart=2, bands=4),
    Correlated(strategy="banded", rounds=8, most=2, apart=3, bands=8),
    Correlated(
        strategy="toeplitz", rounds=9, most=3, apart=2, coefficients=(Fraction(1), Fraction(1, 2))
    ),
    Correlated(
        strategy="toeplitz",
        rounds=8,
        most=3,
        apart=2,
        coefficients=(Fraction(1, 2), Fraction(0), Fraction(3), Fraction(1)),
    ),
]


@pytest.mark.parametrize("run", RUNS, ids=lambda run: f"{run.strategy}-{run.rounds}-{run.most}")
def test_sensitivities_by_all_patterns_of_the_matrix_itself(run: Correlated) -> None:
    (low, high), truth = run.squared, by_all_patterns(run)
    slack = truth / 10**40  # of the roots in the matrix itself
    assert low - slack <= truth <= high + slack
    assert high - low <= slack


def test_what_is_too_much_is_no_opinion() -> None:
    with pytest.raises(Unchecked, match="too many patterns"):
        _ = Correlated(strategy="tree", rounds=4096, most=20, apart=10).squared
    with pytest.raises(Unchecked, match="too many rounds"):
        _ = Correlated(strategy="banded", rounds=1 << 16, most=100, apart=1, bands=1 << 16).squared
    negative = (Fraction(1), Fraction(-1, 2))
    with pytest.raises(Unchecked, match="below 0"):
        _ = Correlated(
            strategy="toeplitz", rounds=4, most=1, apart=1, coefficients=negative
        ).squared


def mechanism(strategy: Strategy, most: int = 1, apart: int = 1) -> MatrixMechanism:
    return MatrixMechanism(
        strategy=strategy,
        participation=Participation(most=most, apart=apart),
        noise=Gaussian(sigma=4),
        sensitivity=Sensitivity.l2_squared(2),
    )


@pytest.mark.parametrize(
    "run",
    [
        mechanism(Banded(rounds=2052, bands=342), most=6, apart=342),
        mechanism(Tree(rounds=64), most=4, apart=16),
        mechanism(Banded(rounds=100), most=3, apart=20),
        mechanism(Toeplitz(rounds=50, coefficients=["1/2", 1, "1/4"]), most=2, apart=10),
    ],
    ids=lambda run: run.strategy.written,
)
def test_both_paths_agree_on_correlated_noise(run: MatrixMechanism) -> None:
    found = certify(guarantee(run), deltas=["1e-6"], epsilons=[1])
    assert verify(found).holds
    twice = compose((guarantee(run), 2))
    assert verify(certify(twice, deltas=["1e-6"])).holds


@lru_cache(maxsize=1)
def written() -> str:
    return certify(
        guarantee(mechanism(Banded(rounds=24, bands=6), most=3, apart=8)), deltas=["1e-6"]
    ).text()


def document() -> dict[str, Any]:
    found = json.loads(written())
    assert isinstance(found, dict)
    return found


def run_of(changed: dict[str, Any]) -> dict[str, Any]:
    found = changed["parts"][0]["correlated"]
    assert isinstance(found, dict)
    return found


def test_a_certificate_of_a_run_holds_and_no_neighbour_of_it() -> None:
    found = verify(document())
    assert found.holds
    assert "correlated over 24 rounds by banded" in str(found)
    assert "takes part in at most 3 of them, any two at least 8 apart" in written()
    for by in (-1, 1):
        moved = document()
        for end in ("lower", "upper"):
            move(moved["claims"][0], end, by)
        assert not verify(resealed(moved)).holds


TWINS: list[tuple[str, Callable[[dict[str, Any]], Any]]] = [
    ("most", lambda d: run_of(d).update(most=2)),
    ("apart", lambda d: run_of(d).update(apart=4)),
    ("bands", lambda d: run_of(d).update(bands=5)),
    ("rounds", lambda d: run_of(d).update(rounds=20)),
    ("strategy", lambda d: (run_of(d).update(strategy="tree"), run_of(d).pop("bands"))),
    ("sigma", lambda d: d["parts"][0]["noise"].update(sigma="401/100")),
    ("sensitivity", lambda d: d["parts"][0]["sensitivity"].update(norm="absolute")),
    ("not correlated", lambda d: d["parts"][0].pop("correlated")),
    ("twice", lambda d: d["parts"][0].update(rounds=2)),
]


@pytest.mark.parametrize(("what", "change"), TWINS, ids=[what for what, _ in TWINS])
def test_another_run_with_everything_made_to_fit_is_caught(what: str, change: Any) -> None:
    changed = document()
    change(changed)
    assert [each.status for each in verify(sealed(changed)).failures] == [Status.FAILS], what


MALFORMED: list[Callable[[dict[str, Any]], Any]] = [
    lambda d: d["parts"][0].update(correlated=None),
    lambda d: run_of(d).update(strategy="matrix"),
    lambda d: run_of(d).update(strategy=["tree"]),
    lambda d: run_of(d).update(most=0),
    lambda d: run_of(d).update(apart=True),
    lambda d: run_of(d).update(rounds=1 << 17),
    lambda d: run_of(d).update(bands=25),
    lambda d: run_of(d).update(more=1),
    lambda d: run_of(d).pop("apart"),
    lambda d: d["parts"][0].update(sampling={"kind": "poisson", "rate": "1/2"}),
    lambda d: d["parts"][0].update(noise={"law": "laplace", "scale": "4"}),
    lambda d: d["parts"][0]["sensitivity"].update(norm="l1"),
]


@pytest.mark.parametrize("change", MALFORMED, ids=range(len(MALFORMED)))
def test_a_run_that_is_none_is_refused_by_name(change: Any) -> None:
    changed = document()
    change(changed)
    found = verify(resealed(changed))
    assert found.failures[0].status is Status.FAILS
    assert found.failures[0].where.startswith("parts[0]")


def test_no_exact_rho_and_no_orders_are_claimed() -> None:
    r"""They are of the strategy, which has no place in what is compared exactly."""
    changed = document()
    theorem = "rhos of independent rounds add (Bun and Steinke 2016, Lemma 1.7)"
    changed["claims"].append({"quantity": "zcdp", "rho": "1/16", "theorem": theorem})
    assert [each.status for each in verify(resealed(changed)).failures] == [Status.UNCHECKED]
    with pytest.raises(NotDerived):
        certify(guarantee(mechanism(Tree(rounds=8))), deltas=[], orders=[4])


def test_what_the_second_path_does_not_know_is_refused_by_name() -> None:
    for strategy in (Dense(rounds=2, rows=[[1, 0], [1, 1]]), Banded(rounds=8, grid=64)):
        with pytest.raises(NotDerived, match="second path knows"):
            certify(guarantee(mechanism(strategy)), deltas=["1e-6"])


MUTANTS = [
    ("_of_earliest", "self.apart)[: self.most]", "self.apart)[: 1]"),
    ("_column", "2 * k - 1", "2 * k"),
    ("_of_earliest", "row * row", "row"),
]


@pytest.mark.parametrize("row", MUTANTS, ids=lambda row: row[2])
def test_a_broken_sensitivity_disagrees(
    row: tuple[str, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    r"""Later participations forgotten, another root, an l2 length used as l1."""
    name, old, new = row
    good = written()
    monkeypatch.setattr(Correlated, name, mutated(getattr(Correlated, name), old, new))
    checked.cache_clear()
    assert not verify(good).holds
    checked.cache_clear()


def test_a_tree_that_forgets_who_is_together_disagrees(monkeypatch: pytest.MonkeyPatch) -> None:
    good = certify(guarantee(mechanism(Tree(rounds=16), most=2, apart=4)), deltas=["1e-6"]).text()
    broken = mutated(Correlated._longest_pattern, "2 * sum(", "0 * sum(")
    monkeypatch.setattr(Correlated, "_longest_pattern", broken)
    checked.cache_clear()
    assert not verify(good).holds
    checked.cache_clear()
