r"""Tests of kernel sensitivities of correlated noise: brute force over participation patterns."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from accounting.proof_kernel import worst_case_neighbours
from accounting.proof_kernel.law_tables import Refused
from accounting.proof_kernel.worst_case_neighbours import Correlated
from tests.accounting.test_strategy_matrices import Matrix, banded, worst


def rows_of(run: Correlated) -> Matrix:
    r"""Return the matrix C, from the definition of each strategy."""
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
    if run.bands:
        return banded(run.rounds, run.bands)
    column = [*run.coefficients, *[Fraction(0)] * run.rounds]
    return [[column[i - j] if i >= j else Fraction(0) for j in count] for i in count]


TOEPLITZ: dict[str, Any] = {"strategy": "toeplitz", "most": 3, "apart": 2}
RUNS = [
    *(
        Correlated(strategy="tree", rounds=rounds, most=most, apart=apart)
        for rounds, most, apart in ((8, 1, 1), (11, 3, 2), (13, 2, 5), (7, 7, 1))
    ),
    Correlated(strategy="banded", rounds=9, most=3, apart=2, bands=4),
    Correlated(strategy="banded", rounds=8, most=2, apart=3, bands=8),
    Correlated(rounds=9, coefficients=(Fraction(1), Fraction(1, 2)), **TOEPLITZ),
    Correlated(rounds=8, coefficients=tuple(map(Fraction, ("1/2", "0", "3", "1"))), **TOEPLITZ),
]


@pytest.mark.parametrize("run", RUNS, ids=lambda run: f"{run.strategy}-{run.rounds}-{run.most}")
def test_kernel_sensitivities_agree_with_all_patterns_of_the_matrix(run: Correlated) -> None:
    (low, high), truth = run.squared, worst(rows_of(run), run.most, run.apart)
    slack = truth / 10**40  # roots in the matrix are rounded
    assert low - slack <= truth <= high + slack
    assert high - low <= slack


def test_too_many_patterns_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worst_case_neighbours, "_MOST_WORK", 1 << 12)
    with pytest.raises(Refused, match="too many participation patterns"):
        _ = Correlated(strategy="tree", rounds=4096, most=20, apart=10).squared
    with pytest.raises(Refused, match="too many rounds"):
        _ = Correlated(strategy="banded", rounds=1 << 16, most=100, apart=1, bands=1 << 16).squared
