r"""Tests of ``verify`` against lower bounds from neighbours: every law, norm and scheme.

The claims are near the exact value, or near the value that results from an overlooked norm,
direction, coordinate or member. A claim that verifies must not lie below the result of ``shown``.
The checker refuses every law, norm, scheme and relation that the engine refuses.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from random import Random
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting import Status, deadline, verify
from accounting.certificates import certificate_format
from accounting.composition.compose import compose
from accounting.derive_guarantee import PoissonSampled
from accounting.descriptions.real_noise import REAL_LAWS
from accounting.errors import NotDerived
from accounting.privacy_curves.matrix_mechanism import MatrixCurve, MatrixMechanism
from accounting.privacy_curves.real_noise_curve import RealCurve
from accounting.privacy_curves.release_curve import PrivacyCurve
from accounting.proof_kernel.worst_case_neighbours import NORMS
from accounting.strategy_matrices import Participation, Toeplitz
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Norm, Relation, Scope, Sensitivity
from dpcore.parse_noise import noise_from_json, read_noise
from tests.day_and_nightly import by_day
from tests.support.accounting import subsampled_releases
from tests.support.accounting.handwritten_certificates import (
    cell,
    certificate,
    exactly,
    noise,
    stated,
)
from tests.support.accounting.neighbour_lower_bounds import Shown

pytestmark = pytest.mark.usefixtures("coarse")

SMALL: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "discrete-laplace": {"scale": ("1", "3", "10")},
    "staircase": {"epsilon": ("1/3", "2"), "sensitivity": ("2", "3"), "plateau": ("1", "2")},
    "discrete-gaussian": {"sigma_squared": ("1", "4", "7/3")},
    "discrete-gaussian-sum": {"count": ("1", "2"), "sigma_squared": ("1/2", "2")},
    "skellam": {"variance": ("1/2", "2", "5")},
    "poisson": {"mean": ("1/2", "2", "5")},
    "polya": {"shape": ("1/2", "3/2"), "scale": ("1/3", "1", "3")},
    "polya-difference": {"shape": ("1/2", "1", "3/2"), "scale": ("1", "3")},
    # Near one half and for few trials the worst shift often has mixed signs.
    "binomial": {"trials": ("1", "3", "4", "9"), "probability": ("1/2", "2/5", "11/25", "6/13")},
    "gaussian": {"sigma": ("1", "5/2")},
    "laplace": {"scale": ("1", "3", "10")},
}
SCHEMES: Final = (None, "poisson", "poisson-replaced", "poisson-group", "correlated")
RELATIONS: Final = ("replace", "add-remove")
SLACK: Final = 1e-8
ENCLOSED: Final = 2
L2_FOR_AN_AMOUNT: Final = noise("laplace", ("l2-squared", 4), 3, scale="10")


@st.composite
def rounds(draw: st.DrawFn) -> dict[str, Any]:
    if draw(st.integers(0, 9)) == 0:
        return draw(
            st.sampled_from(
                [stated("pure", epsilon="1/2"), stated("approx", epsilon="1", delta="1/50")]
            )
        )
    law = draw(st.sampled_from([*SMALL, "gaussian", "laplace", "gaussian", "laplace"]))
    kind = draw(st.sampled_from(NORMS))
    amount: Any = draw(st.integers(1, 4))
    if kind == "box":
        amount = draw(st.lists(st.integers(1, 2), min_size=1, max_size=2))
    values = {key: draw(st.sampled_from(some)) for key, some in SMALL[law].items()}
    part = noise(law, (kind, amount), draw(st.integers(1, 3)), **values)
    part["honest"] = draw(st.sampled_from(["1", "1/2"]))
    scheme = draw(st.sampled_from((None, *SCHEMES)))
    return part | extra(scheme, draw(st.sampled_from(["1/10", "1/2", "4/5"])))


def extra(scheme: str | None, rate: str = "1/2") -> dict[str, Any]:
    if scheme is None:
        return {}
    if scheme == "correlated":
        run = {"strategy": "toeplitz", "rounds": 4, "most": 2, "apart": 2}
        return {"correlated": {**run, "coefficients": ["1", "1/2", "1/4"]}}
    more = {"members": 2} if scheme == "poisson-group" else {}
    return {"sampling": {"kind": scheme, "rate": rate, **more}}


def claims(shown: Shown, parts: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], float]]:
    """Return claims just below, around and above the lower bounds, each with its lower bound."""
    asked = [
        *(("delta", at, shown.delta(float(Fraction(at)))) for at in ("0", "1/2", "2")),
        *(("epsilon", at, shown.epsilon(float(Fraction(at)))) for at in ("1/1000", "1/5")),
        *(("renyi", at, shown.renyi(float(Fraction(at)))) for at in ("3/2", "4")),
    ]
    for quantity, at, value in asked:
        for digits, off in itertools.product((2, 4), (-2, -1, 0, 1)):
            place = math.floor(value * 10**digits) + off
            if place >= 0:
                yield cell(quantity, at, place, digits), value
    most, rho = shown.pure(), shown.zcdp()
    for exact in sorted({Fraction(most).limit_denominator(60), *naive(parts, 1)}):
        yield exactly("pure", exact), most
    for exact in sorted({Fraction(rho).limit_denominator(60), *naive(parts, 2)}):
        yield exactly("zcdp", exact), rho


def naive(parts: list[dict[str, Any]], power: int) -> Iterator[Fraction]:
    """Return amounts over scales, or their squares over twice the variance, for any norm."""
    for squared in (False, True):
        total = Fraction(0)
        for part in parts:
            if "claim" in part:
                total += part["rounds"] * Fraction(part["epsilon"]) ** power / power
                continue
            moved = part["sensitivity"]["amount"]
            several = moved if isinstance(moved, list) else [moved]
            size = Fraction(sum(each ** (2 if squared else 1) for each in several))
            values = part["noise"]
            if power == 1:
                wide = Fraction(values.get("scale", "1"))
            else:
                sigma = Fraction(values.get("sigma", "1")) ** 2
                wide = 2 * Fraction(values.get("sigma_squared", sigma))
            total += part["rounds"] * size / wide
        yield total


def too_small(claim: dict[str, Any], value: float) -> bool:
    """Whether the lower bound exceeds the claim by more than the rounding error of floats."""
    key = {"pure": "epsilon", "zcdp": "rho"}.get(claim["quantity"], "upper")
    most = float(Fraction(claim[key]))
    return value > most * (1 + SLACK) + SLACK


def judged(
    parts: list[dict[str, Any]], scope: tuple[str, str], seen: Counter[str | Status], draws: Random
) -> list[str]:
    """Return the claims that verify and are too small; count verdicts and certificates tried."""
    with deadline(600):
        form = verify(certificate(parts, [exactly("pure", Fraction(1))], scope))
        if form.findings[0].where.startswith("parts"):
            seen["refused"] += 1
            return []
        found = {str(one): (one, value) for one, value in claims(Shown.of(parts), parts)}
        exact = [one for one in found.values() if one[0]["quantity"] in ("pure", "zcdp")]
        enclosed = [one for one in found.values() if one not in exact]
        bad = []
        for claim, value in [*exact, *draws.sample(enclosed, min(len(enclosed), ENCLOSED))]:
            (finding,) = verify(certificate(parts, [claim], scope)).findings
            seen[finding.status] += 1
            seen["tried"] += 1
            seen["too small"] += too_small(claim, value)
            if finding.status is Status.HOLDS and too_small(claim, value):
                bad.append(f"{parts} {scope}: {claim}: at least {value}")
    return bad


def tried(examples: int) -> Counter[str | Status]:
    seen = Counter[str | Status]()
    scopes = st.tuples(st.sampled_from(["contribution", "user"]), st.sampled_from(RELATIONS))

    @settings(max_examples=examples, deadline=None, derandomize=True, database=None)
    @given(st.lists(rounds(), min_size=1, max_size=2), scopes, st.randoms(use_true_random=False))
    def no_claim_is_too_small(
        parts: list[dict[str, Any]], scope: tuple[str, str], draws: Random
    ) -> None:
        assert judged(parts, scope, seen, draws) == []

    no_claim_is_too_small()
    return seen


def test_no_verified_claim_is_below_a_lower_bound() -> None:
    seen = tried(6)
    assert seen[Status.HOLDS] > 0
    assert seen["too small"] > 5
    assert seen["refused"] > 0


@pytest.mark.nightly
def test_no_verified_claim_is_below_a_lower_bound_in_many_examples() -> None:
    seen = tried(1500)
    assert seen[Status.HOLDS] > 300


def test_an_l2_norm_is_not_read_as_the_shift_of_one_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine coordinates move by 2/3 each: 6 in l1, so three rounds lose 1.8 and not 1.2."""
    claim, scope = exactly("pure", Fraction(6, 5)), ("contribution", "replace")
    found = verify(certificate([L2_FOR_AN_AMOUNT], [claim], scope))
    assert str(found) == (
        "parts[0].sensitivity.norm: fails: must be absolute or l1: no certificate covers laplace "
        "noise under l2-squared"
    )
    shown = Shown.of([L2_FOR_AN_AMOUNT])
    assert math.isclose(shown.pure(), 1.8)
    # Without the table the claim verifies, and the property test finds that it is too small.
    assert (claim, shown.pure()) in claims(shown, [L2_FOR_AN_AMOUNT])
    monkeypatch.setattr(certificate_format, "norms_of", lambda *_: NORMS)
    assert verify(certificate([L2_FOR_AN_AMOUNT], [claim], scope)).holds
    assert too_small(claim, shown.pure())


def engine_refuses(part: dict[str, Any], scheme: str | None, relation: str) -> bool:
    values, moved = dict(part["noise"]), part["sensitivity"]
    amount = tuple(moved["amount"]) if moved["norm"] == "box" else moved["amount"]
    scope = Scope(relation=Relation(relation))
    sampled = Scope(relation=Relation.ADD_REMOVE)
    try:
        sensitivity = Sensitivity(amount, Norm(moved["norm"]))
        if scheme == "correlated":
            strategy = Toeplitz(rounds=4, coefficients=("1", "1/2", "1/4"))
            source: Any = MatrixCurve(
                mechanism=MatrixMechanism(
                    noise=noise_from_json(values, REAL_LAWS),  # type: ignore[arg-type]  # refused by value
                    sensitivity=sensitivity,
                    strategy=strategy,
                    participation=Participation(most=2, apart=2),
                    scope=scope,
                )
            )
        elif values["law"] in REAL_LAWS:
            inner = sampled if scheme == "poisson-replaced" else scope
            noise: Any = noise_from_json(values, REAL_LAWS)
            source = RealCurve(noise=noise, sensitivity=sensitivity, scope=inner)
        else:
            name = values.pop("law")
            law = read_noise(f"{name}:{','.join(f'{k}={v}' for k, v in values.items())}")
            source = PrivacyCurve(noise=law, sensitivity=sensitivity, scope=scope)
        match scheme:
            case "poisson":
                source = PoissonSampled(curve=source, rate="1/2")
            case "poisson-replaced":
                source = subsampled_releases.replaced(curve=source, rate="1/2")
            case "poisson-group":
                source = subsampled_releases.poisson(curve=source, rate="1/2", members=2)
        total = compose((source, 1))
        if total.scope != scope:
            return True
        total.delta("1/3", relative="1/2")
    except (NotDerived, InvalidParameter, KeyError):
        return True
    return False


@by_day(2)
@pytest.mark.parametrize("law", SMALL)
def test_the_checker_refuses_whatever_the_engine_refuses(law: str) -> None:
    """Both also refuse some releases, and admit some, of every law."""
    ends = Counter[bool]()
    values = {key: some[0] for key, some in SMALL[law].items()}
    for kind, amount, scheme, relation in itertools.product(NORMS, (1, 2), SCHEMES, RELATIONS):
        moved = [amount, 2] if kind == "box" else amount
        part = noise(law, (kind, moved), 1, **values) | extra(scheme)
        refused = engine_refuses(part, scheme, relation)
        ends[refused] += 1
        if not refused:
            continue
        some = [cell("delta", "1/3", place, 1) for place in range(10)]
        some += [cell("delta", "1/3", place, 0, 0) for place in range(2)]
        some += [exactly(each, Fraction(1)) for each in ("pure", "zcdp")]
        found = verify(certificate([part], some, ("contribution", relation)))
        assert all(each.status is Status.FAILS for each in found.findings), (part, str(found))
        assert found.findings[0].where.startswith("parts[0]."), (part, str(found))
    assert ends[True] > 0 < ends[False]
