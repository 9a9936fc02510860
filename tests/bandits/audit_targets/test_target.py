"""Audits of the server's view: not refuted at the derived epsilon in any trust model, refuted for
faults that occur in published code, for your own policies, returning users and dropouts.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import audit
from accounting.composition.composition_theorems import per_user
from accounting.privacy_curves.release_curve import PrivacyCurve
from bandits.audit_targets.server_view import _Fixed, view_of
from bandits.audit_targets.target import AuditTarget, audit_view, both, target
from bandits.batch import Released, ReleasedSum
from bandits.play import _Sent
from bandits.policies.successive_elimination import BatchedElimination, EliminationState
from bandits.privatizers.batch_sums_by_trust_model import SumPrivatizer
from bandits.privatizers.deployment import Deployment, SumProtocol
from bandits.privatizers.returning_users import steady_for
from dpcore.errors import InvalidParameter
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.laws.poisson_and_binomial import Binomial
from dpcore.laws.polya import PolyaDifference
from dpcore.laws.skellam import Skellam
from dpcore.noise import Noise
from dpcore.sampling.rng import Rng, SeededRng
from tests.alpha_budget import buy_alpha
from tests.day_and_nightly import by_day, effort
from tests.support.bandits.audit_targets import (
    COMBINATORIAL,
    EVERY,
    LINEAR,
    PURE,
    SUMS,
    audited,
    erring,
)
from tests.support.dpcore.mutants import mutated

FAILING = """
from bandits import BatchedElimination, SumPrivatizer
from dpcore import DiscreteLaplace
class Fails(BatchedElimination):
    def choose(self, state):
        return 1 // self.wrong()
    def wrong(self):
        return 0
class Refuses(Fails):
    def wrong(self):
        return DiscreteLaplace(scale=0)
def made(kind):
    return lambda: kind(privatizer=SumPrivatizer(trust="central", epsilon=1, failure="1e-3"))
fails, refuses = made(Fails), made(Refuses)
"""
ALPHA = 1e-3
ACROSS = "bandits.audit_targets.target:across"
SECOND = "bandits.audit_targets.target:second"
LEADER = "leader"
BY_DEVICES = ("dist-dp-se", "shuffled-se", "dist-rdp-se", "ldp-se", "bit-se")

PLAIN = tuple(f"{name},epsilon=1" for name in EVERY)
MORE = (*(f"{name},epsilon=1" for name in LINEAR), *PURE)


def refuted(rest: str, *, runs: int) -> bool:
    report = audited(rest, runs=runs, alpha=ALPHA)
    assert report.error is None, report.error
    return report.verdict == "refuted"


KEPT = {
    **dict.fromkeys(PLAIN, 800),
    **{f"{name},epsilon=1,path=devices": 800 for name in BY_DEVICES},
    **{f"{name},epsilon=1,radius=paper": 800 for name in ("dist-rdp-se:s=10", "sdp-ae:m=8")},
    **dict.fromkeys(MORE, 800),
    **dict.fromkeys(COMBINATORIAL, 1500),
}


@by_day(2)
@pytest.mark.parametrize("rest", KEPT)
def test_the_derived_guarantee_is_not_refuted(rest: str) -> None:
    alpha = buy_alpha(f"bandits audit: {rest}", "1e-9")
    report = audited(rest, runs=effort(KEPT[rest] // 4, KEPT[rest]), alpha=alpha)
    assert report.error is None, report.error
    assert report.verdict == "not_refuted"


@by_day(3)
@pytest.mark.parametrize("rest", [*PLAIN, *MORE, *COMBINATORIAL])
def test_a_release_without_noise_is_refuted(rest: str) -> None:
    with erring("bare"):
        assert refuted(rest, runs=150)


HALVED = {
    **dict.fromkeys(SUMS, 600),
    **dict.fromkeys(("dist-rdp-se", "dist-cdp-se"), 1200),
    "shuffled-se": 1600,
    "sdp-ae": 2000,
    **dict.fromkeys((rest.replace(",epsilon=1", "") for rest in MORE), 3000),
}


@by_day(1)
@pytest.mark.parametrize("name", HALVED)
def test_a_release_with_half_the_noise_is_refuted(name: str) -> None:
    with erring("halved"):
        assert refuted(f"{name},epsilon=1", runs=effort(2 * HALVED[name] // 3, HALVED[name]))


SHARED = (*PLAIN, MORE[0], PURE[0], "cucb-ldp1,epsilon=1", "cucb-dp,epsilon=1")


@by_day(1)
@pytest.mark.parametrize("rest", SHARED)
def test_one_draw_for_all_arms_is_refuted(rest: str) -> None:
    """As in the code released with the paper: the noise cancels when two arms are compared."""
    with erring("shared"):
        assert refuted(rest, runs=effort(150, 300))


@by_day(1)
@pytest.mark.parametrize(
    ("name", "runs"), [("dist-dp-se", 250), ("dist-rdp-se", 600), ("vb-sdp-ae", 250)]
)
def test_random_bits_reused_in_every_batch_are_refuted(
    name: str, runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each batch alone is correct, but the noise cancels in the difference of two batches."""
    coins: list[int] = []

    def again(sent: Any, rng: Rng) -> Rng:
        if sent.batches == 1:
            coins[:] = [rng.bits(62)]
        return SeededRng(coins[0])

    wrong = mutated(
        _Sent.batch, "self.batches += 1", "self.batches += 1\n    rng = again(self, rng)",
        again=again,
    )  # fmt: skip
    monkeypatch.setattr(_Sent, "batch", wrong)
    report = audited(f"{name},epsilon=1", runs=effort(4 * runs // 5, runs), alpha=ALPHA)
    assert [outcome.feature for outcome in report.outcomes if outcome.refuted] == [ACROSS, LEADER]


@by_day(1)
@pytest.mark.parametrize(("name", "runs"), [("dist-dp-se", 400), ("dist-cdp-se", 1000)])
def test_a_raw_sum_released_one_batch_later_is_refuted(
    name: str, runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(sent: Any, world: Any, sums: list[ReleasedSum]) -> list[ReleasedSum]:
        if sent.batches == 1:
            return sums
        raw = world.ones[1][0] + world.ones[0][0] - 1 + world.reward
        return [ReleasedSum(Fraction(raw)), *sums[1:]]

    wrong = mutated(_Sent.batch, "tuple(sums)", "tuple(late(self, environment, sums))", late=late)
    monkeypatch.setattr(_Sent, "batch", wrong)
    report = audited(f"{name},epsilon=1", runs=effort(4 * runs // 5, runs), alpha=ALPHA)
    assert [outcome.feature for outcome in report.outcomes if outcome.refuted] == [SECOND, LEADER]


@pytest.mark.nightly
def test_a_user_counted_in_both_batches_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = mutated(_Fixed._encoded_sum, "if batch < self.visits and arm == 0:", "if arm == 0:")
    monkeypatch.setattr(_Fixed, "_encoded_sum", wrong)
    assert refuted("dist-dp-se,epsilon=1", runs=3000)


def test_a_policy_that_reads_raw_rewards_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The released sums are correct, but the set of remaining arms reveals the reward."""
    seen: list[int] = []
    honest_world, honest_rule = _Fixed._encoded_sum, BatchedElimination.observe

    def leaky(world: Any, *asked: Any) -> int:
        seen.append(world.reward)
        return honest_world(world, *asked)

    def peeking(
        policy: BatchedElimination, state: EliminationState, released: Released
    ) -> EliminationState:
        after = honest_rule(policy, state, released)
        if not seen or state.batch == 1:
            return after
        return replace(after, active=(0, 1) if seen[-1] else (0,))

    monkeypatch.setattr(_Fixed, "_encoded_sum", leaky)
    monkeypatch.setattr(BatchedElimination, "observe", peeking)
    report = audited("dist-dp-se,epsilon=1", runs=300, alpha=ALPHA)
    assert [outcome.refuted for outcome in report.outcomes] == [False] * 4 + [True, True]


def nothing(_: Noise, size: Any = None, *, rng: Rng) -> Any:  # ignores the noise law
    """Return 0 in place of a draw."""
    return 0 if size is None else np.zeros(size, dtype=np.int64)


@by_day(2)
@pytest.mark.parametrize(
    ("name", "law"),
    [
        *((name, PolyaDifference) for name in ("dist-dp-se", "shuffled-se")),
        *(("dist-rdp-se", Skellam), ("ldp-se", DiscreteLaplace), ("bit-se", Binomial)),
    ],
)
def test_devices_with_shares_of_zero_are_refuted(
    name: str, law: type[Noise], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in the code released with the paper, where shares were almost always 0."""
    monkeypatch.setattr(law, "sample", nothing)
    runs = effort(80, 150)
    assert refuted(f"{name},epsilon=1,path=devices", runs=runs)
    if law is PolyaDifference:  # a run itself draws the shares of a shuffle, but not of a sum
        assert refuted(f"{name},epsilon=1", runs=runs) == (name == "shuffled-se")


MINE = """
from bandits import BatchedElimination, SumPrivatizer

def policy():
    return BatchedElimination(privatizer=SumPrivatizer(trust="pure", epsilon="1/2", failure="1e-3"))
"""


@by_day(1)
@pytest.mark.parametrize("rest", ["mine.py:policy", "my_module:policy"])
def test_a_policy_is_named_by_file_or_module(
    rest: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("mine.py", "my_module.py"):
        (tmp_path / name).write_text(MINE)
    viewed = target(f"bandit:{rest}", rest, True)
    assert (viewed.epsilon, viewed.pair) == (Fraction(1, 2), (0, 1))
    with_keys = f"{rest},delta=1e-3,path=devices"
    assert target(f"bandit:{with_keys}", with_keys, True).delta == Fraction(1, 1000)
    report = audit.audit(f"bandit:{rest}", runs=effort(100, 400), seed=7)
    assert (report.verdict, report.claim.to_json()["epsilon"]) == ("not_refuted", "1/2")
    for wrong in (f"{rest},epsilon=1", "builtins:dict"):
        with pytest.raises(InvalidParameter, match=r"epsilon|must be a bandits\.Policy"):
            target(f"bandit:{wrong}", wrong, True)


RUNS = 600


def own_refuted(viewed: AuditTarget, runs: int) -> bool:
    return audit.audit(viewed, runs=runs, seed=7, alpha="0.05").verdict == "refuted"


def policy_of(privatizer: Any) -> BatchedElimination:
    return BatchedElimination(privatizer=privatizer)


def steady(visits: int) -> Any:
    return steady_for("dist-dp-se", epsilon="3/2", delta="1e-2", max_visits=visits, failure="1e-6")


def test_the_claim_of_two_visits_covers_both() -> None:
    viewed = audit_view(policy_of(steady(2)), delta="1e-2", visits=2)
    total = per_user(PrivacyCurve(noise=steady(2).law, sensitivity=16), max_visits=2)
    assert total.epsilon("1e-2").upper <= viewed.epsilon <= Fraction(1501, 1000)
    assert "bandits.audit_targets.target:both" in viewed.features


def test_the_watched_user_is_in_both_batches() -> None:
    quiet = replace(steady(2), law=type(steady(2).law)(scale="1/1000"))
    view = view_of(policy_of(quiet), visits=2)
    one, none = (view.views(reward, 1, SeededRng(3)) for reward in (1, 0))
    moved = (one - none)[0]
    assert moved.tolist()[:4] == [16, 0, 16, 0]
    assert both(one[0]) - both(none[0]) == 4


GONE = Deployment(dropouts="3/4")
PLAIN_SUMS = SumPrivatizer(trust="renyi", epsilon="1/2", failure="1e-6")


class ForEveryone(SumPrivatizer):
    """Broken: shares for all users, although three quarters drop out with their noise."""

    def protocol(self, pulls: int) -> SumProtocol:
        return PLAIN_SUMS.protocol(pulls)


def private(kind: type[SumPrivatizer]) -> SumPrivatizer:
    return kind(trust="renyi", epsilon="1/2", failure="1e-6", deployment=GONE)


@by_day(1)
@pytest.mark.parametrize(
    ("right", "wrong", "given", "runs"),
    [
        (steady(2), steady(1), {"visits": 2}, RUNS),
        # 16 devices give less evidence.
        (private(SumPrivatizer), private(ForEveryone), {"path": "devices"}, 10 * RUNS),
        (private(SumPrivatizer), private(ForEveryone), {}, RUNS),
    ],
    ids=["one visit", "devices of everyone", "everyone"],
)
def test_noise_for_one_visit_or_for_all_users_is_refuted(
    right: Any, wrong: Any, given: dict[str, Any], runs: int
) -> None:
    claim, seen = (audit_view(policy_of(each), delta="1e-2", **given) for each in (right, wrong))
    assert seen.epsilon > claim.epsilon * Fraction(3, 2)
    wrongly = replace(seen, epsilon=claim.epsilon, delta=claim.delta)
    assert own_refuted(wrongly, effort(3 * runs // 4, runs))
    assert not own_refuted(claim, effort(runs // 6, runs))


def test_an_error_of_your_own_policy_names_its_file_and_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("broken.py").write_text(FAILING, encoding="utf-8")
    for name, said in (("fails", "raised ZeroDivisionError"), ("refuses", "scale = 0: must be")):
        with pytest.raises(InvalidParameter, match=rf"{name}: {said}.* at broken\.py:\d+$"):
            target(f"bandit:broken.py:{name}", f"broken.py:{name}", True)
