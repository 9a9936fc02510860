"""The committed figures of linear bandits: what they state, and that the code gives their rows."""

from __future__ import annotations

from typing import Any

import pytest

from bandits.experiments.experiment import Experiment
from benchmarks.figures.__main__ import WHOLE
from benchmarks.figures.section import regret_of
from benchmarks.figures.sweep import of_experiment
from tests.support.bandits.committed import FIGURES, results_of, row_of, rows_of

RESULTS = results_of(FIGURES)


def regret(algorithm: str, **where: str) -> float:
    given = {"numbers": "exact", "epsilon": "10", "T": "1e6", "alpha": "4/5", **where}
    value = row_of(RESULTS, "linear", algorithm=algorithm, **given)["regret"]["value"]
    return float(value)


def test_the_figures_have_the_shape_of_an_independent_simulation() -> None:
    dpe, cdp, sdp, ldp = map(regret, ("dpe", "cdp-dpe", "sdp-dpe", "ldp-dpe"))
    assert dpe < cdp < 3 * dpe
    assert sdp < 1.5 * cdp
    assert 50 * cdp < ldp < 0.65
    # With the paper's numbers local and shuffled noise leave uniform play.
    for name in ("ldp-dpe", "sdp-dpe"):
        assert regret(name, numbers="paper") == pytest.approx(0.65, abs=0.05)


def test_the_best_action_is_never_lost() -> None:
    assert {row["best lost"] for row in rows_of(RESULTS, "linear")} == {0}


def test_more_privacy_costs_more() -> None:
    for name in ("cdp-dpe", "sdp-dpe"):
        ordered = [regret(name, epsilon=epsilon) for epsilon in WHOLE.linear_epsilons]
        assert ordered[0] > ordered[-1]


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["dpe", "cdp-dpe"])
def test_rows_are_what_the_code_gives(name: str) -> None:
    experiment = Experiment(
        preset="lzj/fig2",
        algorithms=("dpe", "cdp-dpe", "sdp-dpe", "ldp-dpe", "dpe-fixedu"),
        epsilons=("10",),
        delta="0.25",
        horizon=10**6,
        instances=WHOLE.instances,
        seed=RESULTS["seed"],
    )
    found = of_experiment(experiment, jobs=2)[name, "10"]
    assert regret_of(found)["value"] == regret(name)


# -- the remarks -----------------------------------------------------------------------------------


def remark(world: str, algorithm: str, **where: object) -> dict[str, Any]:
    row = row_of(RESULTS, "remarks", world=world, algorithm=algorithm, **where)
    return dict(row)


def test_users_against_the_cost_of_privacy() -> None:
    """LZJ, Section 8: T^alpha clients in place of T, and privacy is dearer the fewer they are."""
    prices = []
    for alpha, users in (("1/2", 2_475), ("2/3", 17_576), ("4/5", 88_437)):
        floor, private = (remark("lzj/clients", name, alpha=alpha) for name in ("dpe", "cdp-dpe"))
        assert floor["users"] == private["users"] == users
        prices.append(private["regret"]["value"] / floor["regret"]["value"])
    assert prices == sorted(prices, reverse=True)
    alone = remark("lzj/clients", "pe")
    assert alone["users"] == 10**6
    private = remark("lzj/clients", "cdp-pe", noise="Gaussian, or none")
    assert private["regret"]["value"] / alone["regret"]["value"] < prices[-1] / 10


def test_a_cover_costs_no_more_than_its_radius() -> None:
    for shape, sizes in (("ball", {64: 2, 311: 4, 1912: 8}), ("box", {64: 4, 512: 8})):
        for actions, parts in sizes.items():
            for name in ("dpe", "cdp-dpe"):
                found = remark(f"lzj/{shape}", name, actions=actions)["regret"]
                assert found["value"] < 1 / parts
                assert actions <= (3 * parts) ** 3


@pytest.mark.nightly
def test_a_remark_is_what_the_code_gives() -> None:
    experiment = Experiment(
        preset="lzj/box",
        algorithms=("dpe", "cdp-dpe"),
        epsilons=("10",),
        delta="0.25",
        horizon=10**6,
        instances=WHOLE.instances,
        seed=RESULTS["seed"],
        arms=64,
    )
    found = of_experiment(experiment, jobs=2)["cdp-dpe", "10"]
    assert regret_of(found) == remark("lzj/box", "cdp-dpe", actions=64)["regret"]
