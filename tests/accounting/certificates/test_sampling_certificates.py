r"""Certificates of samples, groups and correlated noise: false claims, malformed texts, mutants."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pytest

from accounting import NotDerived, Status, certify, verify
from accounting.composition.compose import compose
from accounting.derive_guarantee import PoissonSampled, guarantee
from accounting.descriptions.real_noise import Gaussian, Laplace
from accounting.privacy_curves.matrix_mechanism import MatrixMechanism
from accounting.privacy_curves.real_noise_curve import RealCurve
from accounting.proof_kernel import worst_case_neighbours
from accounting.proof_kernel.worst_case_neighbours import Correlated
from accounting.strategy_matrices import Banded, Dense, Participation, Strategy, Tree
from dpcore import Relation, Scope, Sensitivity
from tests.accounting.certificates.conftest import clear
from tests.accounting.certificates.test_certify import move, resealed, sealed
from tests.day_and_nightly import by_day
from tests.support.accounting import subsampled_releases
from tests.support.dpcore.mutants import mutated

pytestmark = pytest.mark.usefixtures("coarse")

ADD_REMOVE = Scope(relation=Relation.ADD_REMOVE)


def real(sigma: int, sensitivity: int = 1) -> RealCurve:
    return RealCurve(noise=Gaussian(sigma=sigma), sensitivity=sensitivity, scope=ADD_REMOVE)


def mechanism(strategy: Strategy, most: int = 1, apart: int = 1) -> MatrixMechanism:
    return MatrixMechanism(
        strategy=strategy,
        participation=Participation(most=most, apart=apart),
        noise=Gaussian(sigma=4),
        sensitivity=Sensitivity.l2_squared(2),
    )


@lru_cache(maxsize=4)
def written(kind: str) -> str:
    match kind:
        case "sample":
            total = compose((PoissonSampled(curve=real(6, 3), rate="1/50"), 400))
        case "group":
            step = subsampled_releases.poisson(curve=real(2), rate="1/50", members=3)
            total = compose((step, 400))
        case _:
            total = compose(guarantee(mechanism(Banded(rounds=24, bands=6), most=3, apart=8)))
    return certify(total, deltas=["1e-6"], digits=6).text()


def document(kind: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(written(kind))
    return found


def of(document: dict[str, Any], key: str) -> dict[str, Any]:
    found: dict[str, Any] = document["parts"][0] if key == "part" else document["parts"][0][key]
    return found


WORDS = {"sample": "rate 1/50", "group": "groups of 3", "run": "24 rounds with strategy banded"}


@by_day(1)
@pytest.mark.parametrize("kind", WORDS)
def test_a_certificate_holds_and_slightly_changed_claims_fail(kind: str) -> None:
    found = verify(document(kind))
    assert found.holds, str(found)
    assert found.proof == ("kernel" if kind == "run" else "estimate")
    assert WORDS[kind] in str(found)
    for by in (-1, 1):
        moved = document(kind)
        for end in ("lower", "upper"):
            move(moved["claims"][0], end, by)
        assert not verify(resealed(moved)).holds


TREE = {"strategy": "tree", "rounds": 24}
TWINS: list[tuple[str, Callable[[dict[str, Any]], Any]]] = [
    ("sample", lambda d: of(d, "noise").update(sigma="601/100")),
    ("sample", lambda d: of(d, "sampling").update(rate="51/2500")),
    ("sample", lambda d: of(d, "part").update(rounds=401)),
    ("sample", lambda d: of(d, "sensitivity").update(amount=2)),
    (
        "sample",
        lambda d: (
            of(d, "sampling").update(kind="poisson-replaced"),
            d["scope"].update(relation="replace"),
        ),
    ),
    ("group", lambda d: of(d, "sampling").update(members=2)),
    ("run", lambda d: of(d, "correlated").update(most=2)),
    ("run", lambda d: of(d, "correlated").update(apart=4)),
    ("run", lambda d: of(d, "correlated").update(bands=5)),
    ("run", lambda d: of(d, "part").update(correlated={**TREE, "most": 3, "apart": 8})),
    ("run", lambda d: of(d, "sensitivity").update(norm="absolute")),
    ("run", lambda d: of(d, "part").update(rounds=2)),
]  # fmt: skip


@by_day(1)
@pytest.mark.parametrize(("kind", "change"), TWINS, ids=range(len(TWINS)))
def test_a_changed_parameter_is_rejected_even_if_all_other_fields_match(
    kind: str, change: Any
) -> None:
    changed = document(kind)
    change(changed)
    assert [each.status for each in verify(sealed(changed)).failures] == [Status.FAILS]


GROUP = {"kind": "poisson-group", "rate": "1/50"}
SAMPLINGS: tuple[Any, ...] = (
    None,
    {"kind": "poisson"},
    {"kind": "poisson", "rate": "0"},
    {"kind": "poisson", "rate": 0.5},
    {"kind": "fixed", "rate": "1/2"},
    {"kind": "poisson-replaced", "rate": "1/2"},
    {"kind": "poisson", "rate": "1/50", "members": 3},
    GROUP,
    {"kind": ["poisson"], "rate": "1/2"},
    *({**GROUP, "members": members} for members in (1, 65, True)),
)
MALFORMED: list[tuple[str, str, Any]] = [
    *(("sample", "sampling", value) for value in SAMPLINGS),
    ("group", "noise", {"law": "laplace", "scale": "2"}),
    ("run", "correlated", None),
    ("run", "sampling", {"kind": "poisson", "rate": "1/2"}),
    ("run", "noise", {"law": "laplace", "scale": "4"}),
    ("run", "sensitivity", {"norm": "l1", "amount": 2}),
]
RUN = {"strategy": "banded", "bands": 6, "rounds": 24, "most": 3, "apart": 8}
MALFORMED += [
    ("run", "correlated", {**RUN, **change})
    for change in (
        {"strategy": "matrix"},
        {"strategy": ["tree"]},
        {"apart": True},
        {"most": 0},
        {"rounds": 1 << 17},
        {"bands": 25},
        {"more": 1},
    )
]


@pytest.mark.parametrize(("kind", "key", "value"), MALFORMED, ids=str)
def test_a_malformed_field_is_refused_by_name(kind: str, key: str, value: Any) -> None:
    changed = document(kind)
    changed["parts"][0][key] = value
    found = verify(resealed(changed)).failures[0]
    assert found.status is Status.FAILS
    assert found.where.startswith("parts[0]")


def test_a_sample_needs_its_relation_assumptions_and_number_of_members() -> None:
    changed = document("sample")
    changed["scope"]["relation"] = "replace"
    assert verify(resealed(changed)).failures[0].where == "parts[0].sampling"
    for word in ("samples: ", "groups"):
        whole = document("group")
        left = [each for each in whole["assumptions"] if not each.startswith(word)]
        found = verify(resealed({**whole, "assumptions": left}))
        assert [each.where for each in found.failures] == ["assumptions"]
    changed = document("group")
    single = copy.deepcopy(changed["parts"][0])
    changed["parts"].append({**single, "sampling": {"kind": "poisson", "rate": "1/50"}})
    assert verify(sealed(changed)).failures[0].where == "parts"


def test_a_release_without_a_certificate_is_refused_with_the_reason() -> None:
    changed = document("run")
    theorem = "rhos of independent rounds add (Bun and Steinke 2016, Lemma 1.7)"
    changed["claims"].append({"quantity": "zcdp", "rho": "1/16", "theorem": theorem})
    assert [each.status for each in verify(resealed(changed)).failures] == [Status.UNCHECKED]
    with pytest.raises(NotDerived):
        certify(guarantee(mechanism(Tree(rounds=8))), deltas=[], orders=[4])
    for strategy in (Dense(rounds=2, rows=[[1, 0], [1, 1]]), Banded(rounds=8, grid=64)):
        with pytest.raises(NotDerived, match="verify supports only the strategies tree"):
            certify(guarantee(mechanism(strategy)), deltas=["1e-6"])
    laplace = RealCurve(noise=Laplace(scale=3), sensitivity=1, scope=ADD_REMOVE)
    replaced = subsampled_releases.replaced(curve=laplace, rate="1/10")
    with pytest.raises(NotDerived, match="not covered by a theorem for laplace"):
        certify(compose((replaced, 100)), deltas=["1e-6"])


MUTANTS = [
    ("run", Correlated, "_scaled", "2 * k - 1", "2 * k"),
    ("run", worst_case_neighbours, "_squared", "squared *=", "squared +="),
    ("sample", worst_case_neighbours, "_squared", "step**2", "step"),
    ("sample", worst_case_neighbours, "scenarios", "(False, True) if", "(True,) if"),
    ("group", worst_case_neighbours, "_choices", "math.comb(n, j)", "1"),
]


@by_day(1)
@pytest.mark.parametrize(("kind", "owner", "name", "old", "new"), MUTANTS, ids=str)
def test_a_broken_formula_disagrees(
    kind: str, owner: Any, name: str, old: str, new: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = written(kind)
    broken = mutated(getattr(owner, name), old, new)
    monkeypatch.setattr(owner, name, broken)
    for place in ("check_claim_with_kernel", "estimate"):
        if name == "scenarios":
            monkeypatch.setattr(f"accounting.certificates.{place}.scenarios", broken)
    clear()
    assert not verify(good).holds
