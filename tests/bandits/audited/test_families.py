"""The server's view of linear and combinatorial runs: kept promises and twins that break them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bandits.audited.combinatorial_view import PAIR, combinatorial_view_of
from bandits.audited.linear_view import MODEL, linear_view_of
from bandits.audited.server_view import ABSENT
from bandits.audited.target import audit_view
from bandits.combinatorial import totals
from bandits.combinatorial.cucb import cucb
from bandits.combinatorial.streams import StreamPrivatizer
from bandits.policies.phased_elimination import PhasedElimination
from bandits.privatizers.averages import AveragePrivatizer
from bandits.worlds.linear import sphere_instance
from dpcore.errors import InvalidParameter
from dpcore.numbers.arrays import Integers
from dpcore.sampling.rng import Rng, SeededRng
from tests.support.bandits.audited import PURE, audited, viewed
from tests.support.dpcore.mutants import mutated

ALPHA = 1e-3

_DRAW = StreamPrivatizer.draw


@pytest.mark.parametrize(
    ("name", "level"),  # of the least pulled arm two outcomes come in four rounds: two levels
    [("cucb-dp", 0), ("cucb-dp", 1), ("cucb-dp", 2), ("cucb-dp2", 0), ("cucb-dp2", 1)],
)
def test_a_tree_with_a_level_without_noise_is_refuted(
    name: str, level: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    gap = f"+ np.where(level == {level}, 0, drawn)"
    mutant = mutated(totals._Tree._release, "+ drawn", gap)
    monkeypatch.setattr(totals._Tree, "_release", mutant)
    assert audited(f"{name},epsilon=1", runs=300, alpha=ALPHA).verdict == "refuted"


@pytest.mark.nightly
def test_ldp2_that_sends_two_base_arms_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both outcomes with the noise for one: twice the epsilon."""

    def for_one(held: StreamPrivatizer, shape: tuple[int, ...], rng: Rng) -> Integers:
        return _DRAW(replace(held, sent=1), shape, rng)

    monkeypatch.setattr(StreamPrivatizer, "draw", for_one)
    assert audited("cucb-ldp1,epsilon=1", runs=4000, alpha=ALPHA).verdict == "refuted"
    # Of one outcome that noise is enough.
    assert audited("cucb-ldp2,epsilon=1", runs=4000, alpha=1e-9).verdict == "not_refuted"


def test_a_view_is_four_rounds_of_two_base_arms() -> None:
    one, other = (
        viewed("cucb-ldp1,epsilon=200").run(r, 3, np.random.default_rng(1)) for r in (0, 1)
    )
    assert one.tolist() == [[1, 0] * 4] * 3
    assert other.tolist() == [[0, 1] * 4] * 3
    least = viewed("cucb-ldp2,epsilon=200").run(0, 2, np.random.default_rng(1))
    assert (least == ABSENT).sum() == 2  # of one base arm nothing was sent in the first round
    assert viewed("cucb-dp,epsilon=1").epsilon == 1
    assert viewed("cucb-dp,epsilon=1,delta=1/100").epsilon < 1


def test_a_policy_of_any_size_is_audited_in_the_small() -> None:
    policy = cucb("cucb-dp", PAIR, horizon=1000, epsilon="1/2", release="doubling")
    view = combinatorial_view_of(policy)
    assert view.policy.privatizer.horizon == 4
    assert audit_view(policy).epsilon == 0.5
    with pytest.raises(InvalidParameter, match="privatizer"):
        audit_view(cucb("cucb", PAIR, horizon=1000))


@pytest.mark.parametrize("name", PURE)
def test_discrete_laplace_noise_is_claimed_pure(name: str) -> None:
    found = viewed(name)
    assert found.epsilon == 1
    assert found.delta == 0


def test_the_papers_gaussian_is_claimed_with_what_it_keeps() -> None:
    exact, paper = (
        viewed(f"cdp-dpe,epsilon=10,delta=1/4,calibration={word}") for word in ("exact", "paper")
    )
    assert exact.epsilon <= 10
    assert paper.epsilon > 15


def test_a_view_is_two_phases_and_the_actions_that_are_left() -> None:
    rows = viewed("cdp-dpe,epsilon=1").run(0, 3, np.random.default_rng(1))
    assert rows.shape == (3, 5)
    assert (rows[:, :4] > ABSENT).all()
    low, high = (
        viewed("cdp-dpe,epsilon=20").run(reward, 40, np.random.default_rng(1))[:, :2].mean(axis=0)
        for reward in (0, 1)
    )
    assert (high - low).tolist() == pytest.approx([64, -64], abs=20)  # the range of one client


def test_only_the_model_of_the_view_and_a_promise_have_one() -> None:
    plain = AveragePrivatizer(trust="none", bound=1)
    with pytest.raises(InvalidParameter, match="privatizer"):
        audit_view(PhasedElimination(model=MODEL, privatizer=plain))
    model = sphere_instance(1, 2, dimension=2).model
    other = PhasedElimination(model=model, privatizer=AveragePrivatizer(trust="central"))
    with pytest.raises(InvalidParameter, match="model"):
        linear_view_of(other)


def test_in_the_local_model_a_client_is_alone() -> None:
    for name in ("ldp-dpe", "ldp-pe"):
        rows = viewed(f"{name},epsilon=1").run(1, 2, np.random.default_rng(1))
        assert rows.shape == (2, 5)
    local = AveragePrivatizer(trust="local", bound=1)
    view = linear_view_of(PhasedElimination(model=MODEL, privatizer=local))
    assert view.size.users == 1
    assert view.views(0, 1, SeededRng(1)).shape == (1, 5)
