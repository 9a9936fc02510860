"""The server's view of linear and combinatorial runs: kept promises and twins that break them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

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
from bandits.privatizers.averages import AveragePrivatizer, Averages
from bandits.worlds.linear import sphere_instance
from dpcore.errors import InvalidParameter
from dpcore.laws.binomial import Binomial
from dpcore.noise import Noise
from dpcore.numbers.arrays import Integers
from dpcore.sampling.rng import Rng, SeededRng
from tests.effort import by_day
from tests.purse import purse
from tests.support.bandits.audited import COMBINATORIAL, LINEAR, audited, viewed

ALPHA = 1e-3

_DRAW = StreamPrivatizer.draw


def drawing(patch: pytest.MonkeyPatch, how: Any) -> None:
    """Every stream draws its noise by ``how``, and still promises the same."""
    patch.setattr(StreamPrivatizer, "draw", how)


@by_day(3)
@pytest.mark.parametrize("name", COMBINATORIAL)
def test_the_derived_guarantee_is_not_refuted(name: str) -> None:
    alpha = purse.buy(f"bandits audit of a combinatorial run: {name}", "1e-9")
    report = audited(name, runs=1000, alpha=alpha)
    assert report.error is None, report.error
    assert report.verdict == "not_refuted"


@pytest.mark.parametrize("name", COMBINATORIAL)
def test_a_release_without_noise_is_refuted(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def bare(held: StreamPrivatizer, shape: tuple[int, ...], rng: Rng) -> Integers:
        del held, rng
        return np.zeros(shape, dtype=np.int64)

    drawing(monkeypatch, bare)
    assert audited(name, runs=100, alpha=ALPHA).verdict == "refuted"


@pytest.mark.parametrize(
    ("name", "level"),  # of the least pulled arm two outcomes come in four rounds: two levels
    [("cucb-dp", 0), ("cucb-dp", 1), ("cucb-dp", 2), ("cucb-dp2", 0), ("cucb-dp2", 1)],
)
def test_a_tree_with_a_level_without_noise_is_refuted(
    name: str, level: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gap(held: object, levels: Integers, drawn: Integers) -> Integers:
        del held
        return np.where(levels == level, 0, drawn)

    monkeypatch.setattr(totals._Tree, "drawn", gap)
    assert audited(f"{name},epsilon=1", runs=300, alpha=ALPHA).verdict == "refuted"


@pytest.mark.nightly
def test_ldp2_that_sends_two_base_arms_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both outcomes with the noise for one: twice the epsilon."""

    def for_one(held: StreamPrivatizer, shape: tuple[int, ...], rng: Rng) -> Integers:
        return _DRAW(replace(held, sent=1), shape, rng)

    drawing(monkeypatch, for_one)
    assert audited("cucb-ldp1,epsilon=1", runs=4000, alpha=ALPHA).verdict == "refuted"
    # Of one outcome that noise is enough.
    assert audited("cucb-ldp2,epsilon=1", runs=4000, alpha=1e-9).verdict == "not_refuted"


@pytest.mark.parametrize("name", ["cucb-ldp1", "cucb-dp"])
def test_one_draw_for_both_base_arms_is_refuted(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It cancels in their difference."""

    def shared(held: StreamPrivatizer, shape: tuple[int, ...], rng: Rng) -> Integers:
        drawn = _DRAW(held, shape, rng)
        drawn[..., 1:] = drawn[..., :1]
        return drawn

    drawing(monkeypatch, shared)
    assert audited(f"{name},epsilon=1", runs=300, alpha=ALPHA).verdict == "refuted"


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


@pytest.mark.parametrize(
    ("rest", "reason"),
    [
        ("cucb,epsilon=1", "protects nobody"),
        ("cucb-dp", "epsilon"),
        ("cucb-dp,epsilon=1,path=devices", "path"),
        ("cucb-dp,epsilon=1,scaling=2", "scaling"),
        ("cucb-dp,epsilon=1,calibration=exact", "calibration"),
        ("cucb-dp,epsilon=1,radius=paper", "radius"),
        ("cucb-dp,epsilon=1,release=some", "release"),
        ("cucb-dp,epsilon=1,visits=2", "visits"),
        ("cucb-ldp1,epsilon=1,honest=90%", "honest"),
        ("cucb-dp,epsilon=1,release=factorisation,delta=0", "delta"),
        ("cucb-ldp1,epsilon=1,release=tree", "release"),
        ("cdp-se,epsilon=1,release=tree", "release"),
    ],
)
def test_what_cannot_be_audited_is_refused_by_name(rest: str, reason: str) -> None:
    with pytest.raises(InvalidParameter, match=reason):
        viewed(rest)


PURE = [f"{name},epsilon=1,calibration=pure" for name in LINEAR if not name.startswith("sdp")]

_DRAWN = AveragePrivatizer._drawn


@contextmanager
def drawing_of_a_linear_run(how: object) -> Iterator[None]:
    """Every privatizer of averages draws its noise by ``how``, and still promises the same."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AveragePrivatizer, "_drawn", how)
        yield


def centre_of(noise: Noise) -> int:
    return int(noise.mean) if isinstance(noise, Binomial) else 0


def bare(_: AveragePrivatizer, noise: Noise, size: Averages, rng: Rng) -> list[int]:
    return [centre_of(noise)] * size.coordinates


def halved(held: AveragePrivatizer, noise: Noise, size: Averages, rng: Rng) -> list[int]:
    centre = centre_of(noise)
    return [centre + (each - centre) // 2 for each in _DRAWN(held, noise, size, rng)]


@by_day(2)
@pytest.mark.parametrize("name", [*(f"{name},epsilon=1" for name in LINEAR), *PURE])
def test_the_derived_guarantee_is_not_refuted_of_a_linear_run(name: str) -> None:
    alpha = purse.buy(f"bandits audit of a linear run: {name}", "1e-9")
    report = audited(name, runs=150, alpha=alpha)
    assert report.error is None, report.error
    assert report.verdict == "not_refuted"


@by_day(3)
@pytest.mark.parametrize("name", [*(f"{name},epsilon=1" for name in LINEAR), *PURE])
def test_a_release_without_noise_is_refuted_of_a_linear_run(name: str) -> None:
    with drawing_of_a_linear_run(bare):
        assert audited(name, runs=100, alpha=ALPHA).verdict == "refuted"


@pytest.mark.nightly
@pytest.mark.parametrize("name", [*(f"{name},epsilon=1" for name in LINEAR), *PURE])
def test_a_release_with_half_the_noise_is_refuted(name: str) -> None:
    with drawing_of_a_linear_run(halved):
        assert audited(name, runs=3000, alpha=ALPHA).verdict == "refuted"


@pytest.mark.parametrize("name", PURE)
def test_discrete_laplace_noise_is_claimed_pure(name: str) -> None:
    found = viewed(name)
    assert found.epsilon == 1
    assert found.delta == 0


@pytest.mark.parametrize("rest", ["cdp-dpe,epsilon=1", "cdp-dpe,epsilon=1,calibration=pure"])
def test_one_draw_for_all_coordinates_is_refuted(rest: str) -> None:
    """It cancels in the difference of two actions."""

    def shared(held: AveragePrivatizer, noise: Noise, size: Averages, rng: Rng) -> list[int]:
        return _DRAWN(held, noise, size, rng)[:1] * size.coordinates

    with drawing_of_a_linear_run(shared):
        assert audited(rest, runs=150, alpha=ALPHA).verdict == "refuted"


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


@pytest.mark.parametrize(
    ("rest", "reason"),
    [
        ("dpe,epsilon=1", "protects nobody"),
        ("pe,epsilon=1", "protects nobody"),
        ("cdp-dpe", "epsilon"),
        ("cdp-dpe,epsilon=1,path=devices", "path"),
        ("cdp-dpe,epsilon=1,scaling=2", "scaling"),
        ("cdp-dpe,epsilon=1,delta=0", "delta"),
        ("cdp-dpe,epsilon=1,calibration=some", "calibration"),
        ("sdp-dpe,epsilon=1,calibration=pure", "binomial noise has no pure epsilon"),
        ("cdp-dpe,epsilon=1,calibration=pure,radius=paper", "no width for Laplace noise"),
        ("cdp-se,epsilon=1,calibration=exact", "calibration"),
    ],
)
def test_what_cannot_be_audited_is_refused_by_name_of_a_linear_run(rest: str, reason: str) -> None:
    with pytest.raises(InvalidParameter, match=reason):
        viewed(rest)


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
