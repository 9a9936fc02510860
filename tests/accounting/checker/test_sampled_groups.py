r"""Groups of units in samples on the second path: moments, one round, certificates of them."""

from __future__ import annotations

import cmath
import json
import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any

import mpmath
import pytest

from accounting.certificates.certificate import certify
from accounting.checker import Status, verify
from accounting.checker.closed import delta_of
from accounting.checker.estimate import checked
from accounting.checker.laws.density import Density
from accounting.errors import NotDerived
from accounting.mechanism.real_noise import Gaussian
from accounting.release.group import GroupSampled
from accounting.release.real_curve import RealCurve
from accounting.release.subsampling import PoissonSampled
from accounting.totals.compose import compose
from dpcore import Relation, Scope
from tests.accounting.certificates.test_certificate import move, resealed, sealed
from tests.effort import by_day
from tests.support.dpcore.mutants import mutated

ADD_REMOVE = Scope(relation=Relation.ADD_REMOVE)


def group(size: str, rate: str, members: int, way: str) -> Density:
    return Density(
        law="gaussian", size=Fraction(size), rate=Fraction(rate), way=way, members=members
    )


def densities(one: Density) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    r"""Of the two datasets: every subset of the members moves the noise by its size."""
    sigma, rate = mpmath.sqrt(mpmath.mpf(float(one.size))), mpmath.mpf(float(one.rate))
    chances = [0] * (one.members + 1)
    for subset in range(1 << one.members):
        there = subset.bit_count()
        chances[there] += rate**there * (1 - rate) ** (one.members - there)

    def mixed(x: Any) -> Any:
        return sum(w * mpmath.npdf(x, j, sigma) for j, w in enumerate(chances))

    def alone(x: Any) -> Any:
        return mpmath.npdf(x, 0, sigma)

    return (mixed, alone) if one.way == "present" else (alone, mixed)


ROWS = [
    ("1", "1/8", 3, "present"),
    ("4", "1/4", 3, "absent"),
    ("1/4", "1/16", 2, "present"),
    ("4", "1/2", 6, "present"),
]


@by_day(2)
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_moments_are_those_of_all_subsets(row: tuple[str, str, int, str]) -> None:
    one = group(*row)
    z = complex(1.5, 6)
    p, q = densities(one)
    wide = 14 * math.sqrt(one.size)
    ends = [-wide - 3 * one.members, *range(-6, 25, 3), wide + 3 * one.members]
    truth = complex(mpmath.quad(lambda x: p(x) * mpmath.exp(z * mpmath.log(p(x) / q(x))), ends))
    nodes = one.nodes(z.real, 8.0)
    pairs = zip(nodes.powers, nodes.losses, strict=True)
    found = sum(cmath.exp(power + 1j * z.imag * loss) for power, loss in pairs)
    size = math.exp(nodes.log_moment)
    assert abs(found - truth) < 1e-11 * size
    for y in (3.0, z.imag):
        assert abs(truth) <= one.far(z.real, y, nodes.log_moment) * size * (1 + 1e-12)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_one_round_is_the_integral_of_its_positive_part(row: tuple[str, str, int, str]) -> None:
    one = group(*row)
    p, q = densities(one)
    for epsilon in ("0", "1/5"):
        factor = mpmath.exp(mpmath.mpf(float(Fraction(epsilon))))
        edge = mpmath.findroot(lambda x, f=factor: mpmath.log(p(x) / q(x) / f), 0.6)
        ends = [edge, edge + 4, 60] if one.way == "present" else [-60, edge - 4, edge]
        truth = mpmath.quad(lambda x, f=factor: p(x) - f * q(x), ends)
        assert float(delta_of(one, Fraction(epsilon)).value) == pytest.approx(
            float(truth), rel=1e-12
        )
    # Of the group gone no loss exceeds that of nobody being sampled.
    if one.way == "absent":
        assert delta_of(one, Fraction(one.most)).value == 0
        assert delta_of(one, Fraction(one.most) - Fraction(1, 1000)).value > 0


@lru_cache(maxsize=1)
def written() -> str:
    curve = RealCurve(noise=Gaussian(sigma=2), sensitivity=1, scope=ADD_REMOVE)
    step = GroupSampled(curve=curve, rate="1/50", members=3)
    return certify(compose((step, 400)), deltas=["1e-5"], digits=6).text()


def document() -> dict[str, Any]:
    found = json.loads(written())
    assert isinstance(found, dict)
    return found


def test_a_certificate_of_a_group_holds_and_no_neighbour_of_it() -> None:
    assert "groups: 3 contributions differ at most" in written()
    found = verify(document())
    assert found.holds, str(found)
    assert "groups of 3" in str(found)
    for by in (-1, 1):
        moved = document()
        for end in ("lower", "upper"):
            move(moved["claims"][0], end, by)
        assert not verify(resealed(moved)).holds


TAMPERED: list[tuple[str, Callable[[dict[str, Any]], Any]]] = [
    ("fewer", lambda d: d["parts"][0]["sampling"].update(members=2)),
    ("more", lambda d: d["parts"][0]["sampling"].update(members=4)),
    ("one", lambda d: d["parts"][0].update(sampling={"kind": "poisson", "rate": "1/50"})),
    (
        "one as large",
        lambda d: (
            d["parts"][0].update(sampling={"kind": "poisson", "rate": "1/50"}),
            d["parts"][0]["sensitivity"].update(amount=3),
        ),
    ),
    ("rate", lambda d: d["parts"][0]["sampling"].update(rate="3/50")),
    ("sigma", lambda d: d["parts"][0]["noise"].update(sigma="201/100")),
]


@by_day(2)
@pytest.mark.parametrize(("what", "change"), TAMPERED, ids=[what for what, _ in TAMPERED])
def test_another_group_with_everything_made_to_fit_is_caught(what: str, change: Any) -> None:
    changed = document()
    change(changed)
    assert [each.status for each in verify(sealed(changed)).failures] == [Status.FAILS], what


@pytest.mark.parametrize(
    "sampling",
    [
        {"kind": "poisson-group", "rate": "1/50"},
        {"kind": "poisson-group", "rate": "1/50", "members": 1},
        {"kind": "poisson-group", "rate": "1/50", "members": 65},
        {"kind": "poisson-group", "rate": "1/50", "members": True},
        {"kind": "poisson-group", "rate": "1/50", "members": "3"},
        {"kind": "poisson", "rate": "1/50", "members": 3},
        {"kind": "poisson-replaced", "rate": "1/50", "members": 3},
    ],
    ids=str,
)
def test_a_group_that_is_none_is_refused_by_name(sampling: Any) -> None:
    changed = document()
    changed["parts"][0]["sampling"] = sampling
    assert verify(resealed(changed)).failures[0].where.startswith("parts[0]")


def test_groups_need_gaussian_noise_and_one_number_of_members() -> None:
    changed = document()
    changed["parts"][0]["noise"] = {"law": "laplace", "scale": "2"}
    assert verify(resealed(changed)).failures[0].where == "parts[0].sampling.kind"
    changed = document()
    single = {**changed["parts"][0], "sampling": {"kind": "poisson", "rate": "1/50"}}
    changed["parts"].append(single)
    assert verify(sealed(changed)).failures[0].where == "parts"
    left = [each for each in document()["assumptions"] if not each.startswith("groups")]
    found = verify(resealed({**document(), "assumptions": left}))
    assert [each.where for each in found.failures] == ["assumptions"]
    curve = RealCurve(noise=Gaussian(sigma=2), sensitivity=1, scope=ADD_REMOVE)
    both = compose(
        (GroupSampled(curve=curve, rate="1/50", members=2), 50),
        (PoissonSampled(curve=curve, rate="1/50"), 50),
    )
    with pytest.raises(NotDerived, match="one number of members"):
        certify(both, deltas=["1e-5"])


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("_exponents", "j * (j - 1)", "j"),
        (
            "_exponents",
            "_chances(self.members, self.rate)",
            "_chances(self.members, 1 - self.rate)",
        ),
    ],
)
def test_a_broken_formula_disagrees(
    name: str, old: str, new: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    r"""Shifts that forget their squares, q and 1 - q swapped."""
    good = written()
    monkeypatch.setattr(Density, name, mutated(getattr(Density, name), old, new))
    checked.cache_clear()
    assert not verify(good).holds
    checked.cache_clear()
