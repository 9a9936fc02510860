"""Who comes to a pool: everyone equally likely, and the spent are turned away."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from accounting.ledger import Ledger
from bandits.batch import Pulls
from bandits.privatizers.returning import Pool, SteadyPrivatizer
from bandits.privatizers.visits import LedgerBook, visits_budget
from dpcore.errors import InvalidParameter
from dpcore.laws.discrete_laplace import DiscreteLaplace
from tests.purse import purse
from tests.support.dpcore.mutants import mutated

LAPLACE = SteadyPrivatizer(law=DiscreteLaplace(scale=64), steps=8, failure="1e-3")
ARRIVALS = 400


def who_came(kind: type[Pool]) -> tuple[npt.NDArray[np.int64], float]:
    """20 of 40 are spent and 10 are wanted: how often each took part, and the mean turned away."""
    times, away = np.zeros(40, dtype=np.int64), 0
    for seed in range(ARRIVALS):
        arrivals = np.random.default_rng([5, seed])
        pool = kind(users=40, max_visits=1, privatizer=LAPLACE, arrivals=arrivals)
        pool.visited[::2] = 1
        assert pool.admit(Pulls((10,)), "b")
        times += pool.visited
        away += pool.turned_away
    return times - ARRIVALS * (np.arange(40) % 2 == 0), away / ARRIVALS


def test_arrivals_are_equally_likely_and_the_spent_are_turned_away() -> None:
    class Ordered(Pool):
        _filled = mutated(Pool._filled, "self.arrivals.permutation(self.users)", "np.arange(40)")

    # Hoeffding: each of the 20 comes with chance 1/2; of 20 spent, 10 20/21 come before the tenth.
    odds = math.log(2 * 21 / purse.buy("arrivals at a pool", "1e-9"))
    off = math.sqrt(odds / (2 * ARRIVALS))
    times, away = who_came(Pool)
    assert times[::2].sum() == 0
    assert abs(times[1::2] / ARRIVALS - 0.5).max() <= off
    assert abs(away - 200 / 21) <= 20 * off
    times, _ = who_came(Ordered)
    assert abs(times[1::2] / ARRIVALS - 0.5).max() > off


@pytest.mark.parametrize("called", ["p" * 190, "my\tpolicy"])
def test_a_release_that_is_no_name_of_the_ledger_is_not_taken_for_a_second_run(
    called: str, tmp_path: Path
) -> None:
    curve = LAPLACE.curve
    with Ledger.create(str(tmp_path / "l.db"), budget=visits_budget(curve, 1)) as ledger:
        book = LedgerBook(ledger=ledger, curve=curve, run="fresh")
        with pytest.raises(InvalidParameter, match="release = "):
            book.pay(np.array([0]), f"{called}/batch 1/arm 0")
        assert ledger.charges() == 0
