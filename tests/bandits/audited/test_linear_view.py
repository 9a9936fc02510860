"""Linear algorithms under audit: not refuted as derived, refuted where noise lacks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from bandits.audited.linear_view import MODEL, linear_view_of
from bandits.audited.server_view import ABSENT
from bandits.policies.phased_elimination import PhasedElimination
from bandits.privatizers.averages import AveragePrivatizer, Averages
from bandits.worlds.linear import sphere_instance
from dpcore.errors import InvalidParameter
from dpcore.laws.binomial import Binomial
from dpcore.noise import Noise
from dpcore.sampling.rng import Rng, SeededRng
from tests.effort import by_day
from tests.purse import purse
from tests.support.bandits.audited import LINEAR, audited, viewed

ALPHA = 1e-3

PURE = [f"{name},epsilon=1,calibration=pure" for name in LINEAR if not name.startswith("sdp")]

_DRAWN = AveragePrivatizer._drawn


@contextmanager
def drawing(how: object) -> Iterator[None]:
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
def test_the_derived_guarantee_is_not_refuted(name: str) -> None:
    alpha = purse.buy(f"bandits audit of a linear run: {name}", "1e-9")
    report = audited(name, runs=150, alpha=alpha)
    assert report.error is None, report.error
    assert report.verdict == "not_refuted"


@by_day(3)
@pytest.mark.parametrize("name", [*(f"{name},epsilon=1" for name in LINEAR), *PURE])
def test_a_release_without_noise_is_refuted(name: str) -> None:
    with drawing(bare):
        assert audited(name, runs=100, alpha=ALPHA).verdict == "refuted"


@pytest.mark.nightly
@pytest.mark.parametrize("name", [*(f"{name},epsilon=1" for name in LINEAR), *PURE])
def test_a_release_with_half_the_noise_is_refuted(name: str) -> None:
    with drawing(halved):
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

    with drawing(shared):
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
def test_what_cannot_be_audited_is_refused_by_name(rest: str, reason: str) -> None:
    with pytest.raises(InvalidParameter, match=reason):
        viewed(rest)


def test_only_the_model_of_the_view_and_a_promise_have_one() -> None:
    plain = AveragePrivatizer(trust="none", bound=1)
    with pytest.raises(InvalidParameter, match="privatizer"):
        linear_view_of(PhasedElimination(model=MODEL, privatizer=plain))
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
