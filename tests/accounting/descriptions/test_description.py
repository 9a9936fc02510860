"""Tests of `accounting.descriptions.description`: text and JSON (also old) round trips, schemes."""

from __future__ import annotations

import json
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from fractions import Fraction
from shlex import split
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting import (
    Approx,
    ApproxFilter,
    NotDerived,
    ZCdp,
    certify,
    compose,
    filter_for,
    guarantee,
    verify,
)
from accounting.cli.composition_options import Releases
from accounting.composition.guarantee_from_json import guarantee_from_json
from accounting.descriptions.description import Description, description_from_json
from accounting.descriptions.real_noise import REAL_LAWS, Gaussian, Laplace
from accounting.descriptions.sampling_schemes import (
    EVERYONE,
    SCHEMES,
    Allocation,
    FixedSize,
    Poisson,
    Scheme,
    Shifts,
    Shuffled,
    TruncatedPoisson,
    read_scheme,
)
from accounting.group_privacy import for_user
from accounting.ledger.charge_request import cost
from accounting.privacy_curves.matrix_mechanism import MatrixMechanism
from accounting.privacy_curves.real_noise_curve import RealCurve
from accounting.privacy_curves.release_curve import PrivacyCurve, described
from accounting.strategy_matrices import Banded, Dense, Participation, Strategy, Toeplitz, Tree
from dpcore import DiscreteGaussian, InvalidParameter, Relation, Scope, Sensitivity, Unit
from dpcore.errors import DpcoreError
from dpcore.local import (
    FAMILIES,
    Encoding,
    LocalReport,
    RandomisedResponse,
    ShuffledReports,
    UnaryEncoding,
)
from dpcore.parse_noise import noise_from_json, read_noise
from tests.day_and_nightly import by_day
from tests.support.accounting import subsampled_releases
from tests.support.dpcore.mutants import mutated
from tests.support.dpcore.refusals import refusal, refused

REPLACE, ADDED, UNIT = Relation.REPLACE, Relation.ADD_REMOVE, Unit.CONTRIBUTION
NORMAL = Gaussian(sigma=2)
TRUNCATED = TruncatedPoisson(rate="1/100", examples=1000, most=12)
ALL = [
    Description(noise=DiscreteGaussian(sigma_squared=4)),
    Description(noise=Laplace(scale=2), sensitivity=Sensitivity.l1(3), relation=ADDED),
    Description(noise=NORMAL, sensitivity=Sensitivity.box((1, 2)), unit=Unit.USER),
    Description(noise=DiscreteGaussian(sigma_squared=4), scheme=Poisson(rate="1/100")),
    Description(noise=NORMAL, scheme=Poisson(rate="1/100"), relation=REPLACE),
    Description(noise=NORMAL, scheme=Poisson(rate="1/100"), group=3, unit=Unit.USER),
    Description(noise=NORMAL, scheme=FixedSize(sample=10, population=1000), sensitivity=2),
    Description(noise=NORMAL, scheme=Allocation(rounds=100, picks=2)),
    Description(noise=NORMAL, scheme=TRUNCATED),
    Description(noise=NORMAL, scheme=TRUNCATED, relation=REPLACE),
    Description(noise=NORMAL, scheme=Shifts(weights=["81/100", "18/100", "1/100"])),
    Description(noise=RandomisedResponse(epsilon=1, values=4), scheme=Shuffled(users=1000)),
    Description(
        noise=UnaryEncoding(epsilon=1, values=4, encoding=Encoding.SYMMETRIC),
        scheme=Shuffled(users=50),
        unit=Unit.USER,
    ),
]
REPORT = Description(noise=RandomisedResponse(epsilon=1, values=4))


def reads_back(asked: Description, read: Any = description_from_json) -> bool:
    return bool(read(json.loads(json.dumps(asked.to_json()))) == asked)


@pytest.mark.parametrize("asked", ALL, ids=lambda asked: asked.text)
def test_text_json_and_guarantee_survive_a_round_trip(asked: Description) -> None:
    assert reads_back(asked)
    assert read_scheme("--scheme", asked.scheme.text) == asked.scheme
    noise: Any = read_noise(asked.text.split()[0], {**REAL_LAWS, **FAMILIES})
    if isinstance(asked.noise, LocalReport):
        assert replace(noise, scope=asked.scope) == asked.noise
    else:
        assert noise_from_json(asked.noise.to_json(), REAL_LAWS) == noise == asked.noise
    words = split(f"--noise {asked.text}")
    options: Any = {name[2:]: [value] for name, value in zip(words[::2], words[1::2], strict=True)}
    whole = {name: options.pop(name)[0] for name in ("relation", "group") if name in options}
    if "relation" in whole:
        whole["relation"] = Relation(whole["relation"])
    assert Releases(**options, **whole).described() == [(replace(asked, unit=UNIT), 1)]
    derived = guarantee(asked)
    assert (described(derived), derived.to_json()) == (asked, asked.to_json())
    assert derived.scope == asked.scope
    total = compose((derived, 3))
    assert guarantee_from_json(json.loads(json.dumps(total.to_json()))) == total


STRATEGIES = [
    Tree(rounds=8),
    Banded(rounds=8, bands=3),
    Toeplitz(rounds=8, coefficients=(1, "1/2")),
    Dense(rounds=2, rows=[[1, 0], ["1/2", 1]]),
]


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: strategy.written)
def test_correlated_noise_survives_a_round_trip(strategy: Strategy) -> None:
    taken = Participation(most=2, apart=1)
    matrix = MatrixMechanism(strategy=strategy, noise=NORMAL, participation=taken)
    total = compose((guarantee(matrix), 2))
    data = json.loads(json.dumps(total.to_json()))
    assert guarantee_from_json(data) == total
    for name, argument in (("strategy", "strategy"), ("participation", "part"), ("noise", "law")):
        with pytest.raises(InvalidParameter, match=argument):
            guarantee_from_json({**data[0]["part"], name: {"strategy": 3, "rounds": 8}})


def test_every_scheme_is_tested_and_a_lost_relation_is_detected() -> None:
    assert {type(asked.scheme) for asked in ALL} == {*SCHEMES}
    forgetful = mutated(description_from_json, "relation=between", "relation=None")
    with pytest.raises(InvalidParameter, match="relation"):
        assert all(reads_back(asked, forgetful) for asked in ALL)


SCOPE = {"unit": "contribution", "relation": "add-remove"}
CURVE = {
    "claim": "real-curve",
    "noise": {"law": "gaussian", "sigma": "2"},
    "sensitivity": {"norm": "absolute", "amount": 1},
    "scope": SCOPE,
}
NARROW = RealCurve(noise=NORMAL, sensitivity=1, scope=Scope(relation=ADDED))
OLD: list[tuple[dict[str, Any], Any]] = [
    (
        {"claim": "group-sampled", "members": 3, "rate": "1/100", "curve": CURVE},
        subsampled_releases.poisson(curve=NARROW, rate="1/100", members=3),
    ),
    (
        {"claim": "shift-sampled", "weights": ["1/2", "1/2"], "curve": CURVE},
        subsampled_releases.shifted(curve=NARROW, weights=["1/2", "1/2"]),
    ),
    (CURVE, NARROW),
    (
        {**CURVE, "claim": "curve", "noise": {"law": "discrete-gaussian", "sigma_squared": "4"}},
        PrivacyCurve(
            noise=DiscreteGaussian(sigma_squared=4), sensitivity=1, scope=Scope(relation=ADDED)
        ),
    ),
]


@pytest.mark.parametrize(("data", "made"), OLD)
def test_json_of_earlier_versions_is_read(data: dict[str, Any], made: Any) -> None:
    assert guarantee_from_json(data) == made
    assert made.to_json() == data
    whole = [{"part": data, "rounds": 2}]
    user = {"unit": "user", "relation": "add-remove"}
    charge = {"claim": "composition", "parts": whole, "scope": user, "reason": "as recorded"}
    found: Any = guarantee_from_json(charge)
    written: Any = found.to_json()
    assert (written["parts"], written["scope"], found.scope.unit) == (whole, user, Unit.USER)
    assert "as recorded" in written["reason"]
    again: Any = guarantee_from_json(written)
    assert (again.parts, again.scope) == (found.parts, found.scope)


SAMPLE = {"claim": "poisson-sampled", "rate": "1/2", "curve": CURVE}
EMPTY: list[Any] = [None, "", 0, []]
CUT_SAMPLE = {"claim": "poisson-truncated", "rate": "1/2", "examples": 9, "most": 3, "curve": CURVE}


@pytest.mark.parametrize(
    ("data", "argument"),
    [
        (3, "part"),
        ({}, "claim"),
        ({**CURVE, "claim": "perfect"}, "claim"),
        ({**CURVE, "noise": 3}, "noise"),
        ({**CURVE, "noise": {"law": "gaussian"}}, "noise"),
        ({**CURVE, "noise": {"law": "gaussian", "sigma": "0"}}, "sigma"),
        ({**CURVE, "sensitivity": 1}, "sensitivity"),
        ({**CURVE, "sensitivity": {"norm": "l7", "amount": 1}}, "norm"),
        ({**CURVE, "sensitivity": {"norm": "l1", "amount": 0}}, "sensitivity"),
        ({**CURVE, "scope": "user"}, "scope"),
        ({**CURVE, "more": 1}, "curve"),
        ({**SAMPLE, "curve": 3}, "curve"),
        ({**SAMPLE, "curve": {**CURVE, "claim": "pure"}}, "curve"),
        ({**SAMPLE, "curve": {**CURVE, "scope": {**SCOPE, "relation": "replace"}}}, "scope"),
        ({**SAMPLE, "rate": "2"}, "rate"),
        ({**SAMPLE, "members": 2}, "claim"),
        ({**SAMPLE, "claim": "group-sampled"}, "claim"),
        ({"claim": "random-allocation", "rounds": 0, "picks": 1, "curve": CURVE}, "rounds"),
        *(({**CUT_SAMPLE, "relation": each}, "relation") for each in EMPTY),
        ([{"part": CURVE}], "parts"),
        ([], "parts"),
        ({"claim": "composition", "parts": []}, "composition"),
    ],
    ids=str,
)
def test_invalid_json_of_a_description_is_refused_by_name(data: Any, argument: str) -> None:
    with refused(argument):
        guarantee_from_json(data)


JUNK = st.sampled_from([None, True, -1, 3, "", "x", "1/2", [], [1], {}, {"a": 1}, "replace"])


@given(st.sampled_from(ALL), st.lists(st.tuples(st.integers(0, 30), JUNK), min_size=1, max_size=3))
def test_damaged_json_is_read_or_refused(
    asked: Description, damages: list[tuple[int, Any]]
) -> None:
    data: Any = [{"part": asked.to_json(), "rounds": 2}]
    for place, junk in damages:
        inside = [each for each in nodes(data) if each]
        node = inside[place % len(inside)]
        key = [*(node if isinstance(node, dict) else range(len(node)))][place % len(node)]
        node[key] = deepcopy(junk)
    with suppress(DpcoreError):
        guarantee_from_json(data)


def nodes(data: Any) -> list[Any]:
    """Yield the objects and lists of a document, the outermost first."""
    if not isinstance(data, (dict, list)):
        return []
    inside = data.values() if isinstance(data, dict) else data
    return [data, *(node for each in inside for node in nodes(each))]


@pytest.mark.parametrize(
    "text",
    ["", "bernoulli:rate=1", "poisson", "poisson:rate=0", "poisson:rate=x", "poisson:chance=1/2",
     "everyone:rate=1", "fixed-size:sample=2,population=1", "shifts:weights=x",
     "fixed-size:sample=1.5,population=9", "allocated:rounds=2,picks=3", "poisson:rate=3/2",
     "truncated:rate=1/2,examples=9,most=0", "truncated:rate=1/2,examples=0,most=9"],
)  # fmt: skip
def test_an_invalid_scheme_names_the_option(text: str) -> None:
    with refused("--scheme"):
        read_scheme("--scheme", text)


HALF = Poisson(rate="1/2")


@pytest.mark.parametrize(
    ("given", "argument"),
    [
        ({"noise": 3}, "noise"),
        ({"scheme": "poisson"}, "scheme"),
        ({"group": 0}, "group"),
        ({"relation": "both"}, "relation"),
        ({"scheme": FixedSize(sample=1, population=2), "relation": ADDED}, "relation"),
        ({"scheme": Allocation(rounds=2), "relation": REPLACE}, "relation"),
        ({"scheme": Shifts(weights=[0, 1]), "relation": REPLACE}, "relation"),
        ({"scheme": HALF, "relation": REPLACE, "noise": ALL[0].noise}, "relation"),
        ({"scheme": Allocation(rounds=2), "group": 2}, "group"),
        ({"scheme": HALF, "relation": REPLACE, "group": 2}, "group"),
        *(
            ({"noise": noise, "scheme": scheme, "group": group}, argument)
            for noise in (Laplace(scale=1), ALL[0].noise)
            for scheme, group, argument in (
                (HALF, 2, "group"),
                (TRUNCATED, 1, "noise"),
                (Allocation(rounds=2), 1, "noise"),
                (Shifts(weights=[0, 1]), 1, "noise"),
            )
        ),
        ({"scheme": Shuffled(users=1000)}, "scheme"),
        *(
            ({"noise": REPORT.noise, **changed}, argument)
            for changed, argument in (
                ({"scheme": HALF}, "scheme"),
                ({"scheme": FixedSize(sample=1, population=2)}, "scheme"),
                ({"sensitivity": 2}, "sensitivity"),
                ({"group": 2}, "group"),
                ({"relation": ADDED}, "relation"),
            )
        ),
    ],
    ids=str,
)
def test_a_combination_without_a_proof_is_refused_by_name(given: Any, argument: str) -> None:
    with refused(argument):
        Description(**{"noise": NORMAL, **given})


def test_a_scheme_states_its_rounds_and_needs_an_engine() -> None:
    class Twice(Scheme):
        name = "twice"
        words = {ADDED: "twice"}  # noqa: RUF012  # a class attribute of a test
        participations = 2

    for scheme in (Twice(), Allocation(rounds=5, picks=2)):
        asked = Description(noise=NORMAL, sensitivity=3, scheme=scheme).unsampled
        assert (asked.sensitivity, asked.scheme) == (Sensitivity.l2_squared(18), EVERYONE)
    assert "scheme" in refusal(lambda: guarantee(Description(noise=NORMAL, scheme=Twice())))
    assert "at most 64" in refusal(
        lambda: guarantee(Description(noise=NORMAL, scheme=HALF, group=65))
    )


BOX, L2 = Sensitivity.box, Sensitivity.l2_squared


@pytest.mark.parametrize(
    ("scheme", "relation", "group", "sensitivity", "moves"),
    [
        (Poisson(rate=1), ADDED, 3, Sensitivity(1), Sensitivity(3)),
        (EVERYONE, REPLACE, 3, Sensitivity(1), Sensitivity(3)),
        (EVERYONE, ADDED, 3, BOX((1, 2)), BOX((3, 6))),
        (EVERYONE, ADDED, 3, Sensitivity.l1(2), Sensitivity.l1(6)),
        (EVERYONE, ADDED, 3, L2(2), L2(18)),
        (FixedSize(sample=9, population=9), REPLACE, 1, Sensitivity(1), Sensitivity(1)),
        # Beside a replaced unit, the sensitivity is that of an added one: it counts twice.
        (Poisson(rate=1), REPLACE, 1, Sensitivity(1), Sensitivity(2)),
        (Poisson(rate=1), REPLACE, 1, L2(3), L2(12)),
        (Poisson(rate=1), REPLACE, 1, BOX((1, 2)), BOX((2, 4))),
    ],
    ids=str,
)
def test_sampling_everybody_equals_no_sampling(
    scheme: Scheme, relation: Relation, group: int, sensitivity: Sensitivity, moves: Sensitivity
) -> None:
    asked = Description(
        noise=NORMAL, sensitivity=sensitivity, scheme=scheme, relation=relation, group=group
    )
    scope = Scope(relation=relation, group=group)
    assert guarantee(asked) == RealCurve(noise=NORMAL, sensitivity=moves, scope=scope)


@by_day(7)
@pytest.mark.parametrize("asked", ALL, ids=lambda asked: asked.text)
def test_certificates_and_ledgers_accept_a_scheme_or_refuse_it_with_a_reason(
    asked: Description,
) -> None:
    total = compose(guarantee(asked))
    if asked.scheme.name in {"everyone", "poisson"}:
        assert verify(certify(total, deltas=["1e-7"]).text()).holds
    else:
        assert "certificate" in refusal(lambda: certify(total, deltas=["1e-7"]), NotDerived)
    if asked.unit is Unit.USER:
        return
    user = Scope(unit=Unit.USER, relation=asked.scope.relation)
    keeper = ApproxFilter(budget=Approx(9, "1e-5", scope=user), slack="1e-6", charge_delta="1e-9")
    assert cost(keeper, asked, 1) == cost(keeper, guarantee(asked), 1)
    assert for_user(total, 1).scope == user
    real = asked.real and not asked.replaced
    if asked.scheme == EVERYONE or (asked.scheme.name == "poisson" and real):
        grouped = compose(guarantee(replace(asked, group=2)))
        assert for_user(total, 2) == replace(grouped, scope=user)
    else:
        assert "rows" in refusal(lambda: for_user(total, 2), NotDerived)


def test_a_rho_budget_charges_a_sample_as_without_sampling() -> None:
    keeper = filter_for(ZCdp(1, scope=Scope(unit=Unit.USER)))
    shuffled = replace(REPORT, scheme=Shuffled(users=1000))
    (price, _), rho = cost(keeper, shuffled, 1), Fraction(guarantee(REPORT).zcdp().upper)
    assert price.costs == (rho,)
    assert "follow the protocol" in price.assumptions[0]
    assert cost(keeper, compose((guarantee(shuffled), 3)), 1)[0].costs == (3 * rho,)
    sampled, whole = (
        Description(noise=NORMAL, scheme=scheme, relation=REPLACE)
        for scheme in (FixedSize(sample=1, population=9), EVERYONE)
    )
    assert cost(keeper, sampled, 1)[0].costs == cost(keeper, whole, 1)[0].costs


@by_day(1)
@pytest.mark.parametrize(("epsilon", "users", "amplified"), [(1, 1000, True), ("1/50", 2, False)])
def test_an_approximate_budget_charges_the_cheaper_price(
    epsilon: Any, users: int, *, amplified: bool
) -> None:
    """A shuffle costs its epsilon at a delta, or the rho of a report if that uses less."""
    keeper = ApproxFilter(budget=Approx(4, "1e-6", scope=Scope(unit=Unit.USER)))
    noise = RandomisedResponse(epsilon=epsilon, values=4)
    shuffle = guarantee(Description(noise=noise, scheme=Shuffled(users=users)))
    rho, delta = Fraction(shuffle.zcdp().upper), Fraction(keeper.charge_delta or 0)
    converted = Fraction(shuffle.epsilon(delta).upper) ** 2 / 2
    price, _ = cost(keeper, shuffle, 1)
    assert price.costs == ((converted, delta) if amplified else (rho, 0))
    assert (converted < rho / 2) is amplified
    gauss = guarantee(Description(noise=DiscreteGaussian(sigma_squared=400)))
    mixed, _ = cost(keeper, compose(gauss, shuffle), 1)
    assert mixed.costs == (price.costs[0] + Fraction(1, 800), price.costs[1])


def test_a_report_and_its_shuffle_are_one_kind_of_description() -> None:
    assert reads_back(REPORT)
    assert guarantee(REPORT) == guarantee_from_json(REPORT.to_json()) == guarantee(REPORT.noise)  # type: ignore[arg-type]  # a report
    user = Scope(unit=Unit.USER)
    report = RandomisedResponse(epsilon=1, values=4, scope=user)
    shuffled = replace(REPORT, scheme=Shuffled(users=1000), unit=Unit.USER)
    assert guarantee(ShuffledReports(report=report, users=1000)) == guarantee(shuffled)
    assert guarantee(shuffled).scope == user
    other = replace(report, scope=Scope(relation=ADDED))
    for scheme in (EVERYONE, Shuffled(users=9)):
        written = replace(REPORT, scheme=scheme).to_json() | {"report": other.to_json()}
        for act in (
            lambda s=scheme: Description(noise=other, scheme=s),
            lambda s=scheme: Description(noise=other, scheme=s, relation=REPLACE),
            lambda data=written: description_from_json(data),
            lambda: guarantee(ShuffledReports(report=other, users=1000)),
        ):
            with refused("relation"):
                act()
    with refused("users"):
        Shuffled(users=0)
