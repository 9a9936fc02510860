"""Tests of `dpcore papers`: verdicts of all errata, numbers recomputed independently, mutants."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import mpmath
import pytest

from accounting.guarantees.bound import Bound
from accounting.protocol_guarantees.paper_parameters import cz_shuffled, tkms_bits
from bandits.cli.papers import rows
from bandits.papers import chen_et_al, chowdhury_zhou, released_code, tenenbaum_et_al
from bandits.papers.table import LOOSE, Judgement, answer, decimals, lines, replay, to_json
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.laws.polya import PolyaDifference
from dpcore.laws.skellam import Skellam
from dpcore.numbers.enclosure import Enclosure
from tests.support.accounting.brute_force import (
    binomial,
    close,
    mass_of,
    normal_delta,
    real,
    renyi,
    shifted,
    worse,
)
from tests.support.dpcore.mutants import mutated

mpf = mpmath.mpf


@pytest.mark.nightly
def test_erratum_1_an_aggregation_with_a_loss_of_one_and_a_half_epsilon() -> None:
    row = next(r for r in quick() if r.statement == "Theorem 3")
    assert row.parameters == "n = 1024, epsilon = 1, g = 16"
    assert row.exact.upper == Fraction(3, 2)
    n, g, spent, scale = 1024, 16, mpf(1) / 4, 16
    shapes = (Fraction(1, n), Fraction(n - 1, n))
    with mpmath.workdps(40):
        first, others = (mass_of(PolyaDifference(shape=r, scale=scale)) for r in shapes)
        up, seen = mpmath.exp(spent), 3 * g
        one, rest = first(0), others(seen - g)
        beta = mpmath.exp(-1 / mpf(scale))
        whole = (1 - beta) / (1 + beta) * beta**seen
        moved = first(g) * rest
        # The first user's coin, in both directions, for every value of that user's noise but g.
        loss = mpmath.log(one * rest * up / ((whole - moved) / up + moved * up))
        assert abs(real(Fraction(row.exact.lower or 0)) - loss) < mpf(10) ** -9
        assert loss > mpf("1.49")
        # Relaxed simulation: both faces of the coin are within e^spent of a simulator that knows
        # the sum.
        c = 1 / (1 + up)
        for chance in (c * up, c / up):
            for shown_face, simulated in ((chance, c), (1 - chance, 1 - c)):
                assert abs(mpmath.log(shown_face / simulated)) <= spent * (1 + mpf(10) ** -30)
    assert find("ours: Theorem 3", "epsilon = 1,").exact.upper == 1
    chosen = cz_shuffled(1024, 1, "1/1000", form="printed")
    kind = mutated(chowdhury_zhou.leaking_aggregation, "here / there", "there / here")
    assert kind(chosen, Fraction(1, 4)).upper < 0
    lazy = mutated(chowdhury_zhou.leaking_aggregation, "up = ball(spent).exp()", "up = arb(1)")
    assert lazy(chosen, Fraction(1, 4)).upper < Fraction("1.01")


def skellam_renyi(variance: int | Fraction, shift: int, order: int) -> Any:
    with mpmath.workdps(60):
        mass = mass_of(Skellam(variance=variance))
        return renyi([(mass(k), mass(k - shift)) for k in range(-150, 151)], order)


@pytest.mark.nightly
def test_erratum_2_the_printed_minimum_is_unproven() -> None:
    row = find("Theorem 2", "epsilon = 3/10")
    assert row.verdict == "unproven"
    assert row.claimed == Enclosure.exactly(Fraction("1.5075"))
    assert row.proof == Enclosure.exactly(Fraction("1.575"))
    assert Fraction("1.575") / Fraction("1.5075") > Fraction("1.044")
    assert close(row.exact, skellam_renyi(Fraction(100, 9), 1, 32))  # type: ignore[arg-type]  # an enclosure
    loose = find("Lemma 3", "variance = 16")
    assert loose.claimed == Enclosure.exactly(Fraction("16.375"))
    assert abs(skellam_renyi(16, 4, 32) - mpf("5.826")) < mpf("0.0005")
    assert close(loose.exact, skellam_renyi(16, 4, 32))  # type: ignore[arg-type]  # an enclosure
    # A mutant that turns "unproven" into "holds": each row looks fine, but the list is rejected.
    quiet = [replace(r, proof=None) if r.verdict == "unproven" else r for r in quick()]
    assert not as_design_states(quiet)


def gaussian_delta(ratio: Any, epsilon: Any) -> Any:
    return normal_delta(1 / ratio**2, epsilon)


def test_erratum_3_the_gaussian_mechanism_fails_beyond_epsilon_one() -> None:
    with mpmath.workdps(40):
        ratio = mpmath.sqrt(2 * mpmath.log(5)) / 10
        assert abs(ratio - mpf("0.179412")) < mpf("5e-7")
        assert abs(gaussian_delta(ratio, 10) - mpf("0.788621")) < mpf("5e-7")
        least = mpmath.findroot(lambda r: gaussian_delta(r, 10) - mpf(1) / 4, mpf("0.247"))
        assert abs(least - mpf("0.247174")) < mpf("5e-7")
        small = mpmath.sqrt(2 * mpmath.log(mpf("1.25e6"))) / 10
        assert abs(gaussian_delta(small, 10) - mpf("1.90e-6")) < mpf("5e-9")
    for theorem in ("Theorem 4.2", "Theorem 4.4", "Theorem C.1", "Theorem C.3"):
        row = find(theorem, "epsilon = 10, delta = 1/4, delta")
        assert row.verdict == "fails"
        assert close(row.exact, gaussian_delta(ratio, 10), relative="1e-12")  # type: ignore[arg-type]  # an enclosure
        needed = find(theorem, "epsilon = 10, delta = 1/4, the least")
        assert close(needed.claimed, ratio, relative="1e-12")
        assert Fraction(needed.exact.lower or 0) <= Fraction(str(least)) * (1 + Fraction(1, 10**11))
        assert find(theorem, "epsilon = 10, delta = 1/1000000, delta").verdict == "fails"
        assert find(theorem, "epsilon = 1, delta = 1/1000000, the least").verdict == "holds"
    assert find("ours: the least", "epsilon = 10, delta = 1/4").verdict == "holds"


def binomial_delta(trials: int, p: Any, shift: int, epsilon: Any) -> Any:
    with mpmath.workdps(60):
        return worse(shifted(binomial(trials, mpf(p)), shift), epsilon)


def test_erratum_4_lemma_c5_as_printed_is_false() -> None:
    row = find("Lemma C.5", "n = 4", "b = 2", "delta(")
    assert row.verdict == "fails"
    with mpmath.workdps(40):
        least = 180 * 9 * mpmath.log(mpf(100) / 49) / (14**2 * 4)
        assert int(mpmath.floor(least)) + 1 == 2
        chance = 90 * 9 * mpmath.log(mpf(200) / 49) / (2 * 14**2 * 4)
        assert chance > mpf(1) / 2
    spent = Fraction(14) * Fraction(5, 3)
    truth = binomial_delta(8, chance, 3, spent)
    assert truth > mpf("0.49")
    assert close(row.exact, truth, relative="1e-15")  # type: ignore[arg-type]  # an enclosure
    assert find("Theorem C.6", "n = 100").verdict == "loose"
    assert find("ours: the fewest fair bits", "g = 21").verdict == "holds"


@pytest.mark.parametrize(
    ("epsilon", "used", "needed"), [("1/2", 5572, 268), ("1/10", 139284, 5279)]
)
def test_erratum_5_algorithm_3_uses_more_bits_than_necessary(
    epsilon: str, used: int, needed: int
) -> None:
    row = find("Algorithm 3, tau", f"epsilon = {epsilon}")
    assert (row.claimed, row.exact) == (Enclosure.exactly(used), Enclosure.exactly(needed))
    with mpmath.workdps(40):
        assert int(mpmath.ceil(96 * mpmath.log(mpf(2) * 10**6) / real(epsilon) ** 2)) == used
    if needed < 1000:
        delta = mpf(10) ** -6
        assert binomial_delta(needed, "0.5", 1, epsilon) <= delta
        assert binomial_delta(needed - 1, "0.5", 1, epsilon) > delta
    same = find("Algorithm 3, encoder", f"epsilon = {epsilon}")
    assert (same.verdict, same.exact) == ("holds", Enclosure.exactly(0))


@pytest.mark.parametrize(
    ("s", "epsilon", "delta", "noise", "bound"),
    [(1, "1", "1/1000000", "424", "600"), (20, "10", "1/4", "169", "239.27")],
)
def test_erratum_6_algorithm_2_adds_more_noise_than_necessary(
    s: int, epsilon: str, delta: str, noise: str, bound: str
) -> None:
    with mpmath.workdps(40):
        e, d = real(epsilon), real(delta)
        start = mpf("4.22") if s == 1 else mpf("0.247")
        gaussian = 2 * mpmath.findroot(lambda r: gaussian_delta(r, e) - d, start)
        hat = e / (18 * mpmath.sqrt(mpmath.log(2 / d)))
        inside = mpmath.log(4 * s / d)
        stated = mpmath.sqrt(360 * inside) / hat
        bits = int(mpmath.ceil(180 * 100 * inside / (hat**2 * 1000)))
        p = 90 * 100 * inside / (bits * hat**2 * 1000)
        added = mpmath.sqrt(1000 * bits * p * (1 - p)) * 2 / 10
        ratios = [added / gaussian, stated / gaussian]
    assert mpmath.nstr(mpmath.floor(ratios[0]), 3).startswith(noise)
    assert abs(ratios[1] - mpf(bound)) < mpf("0.5")
    for what, ratio, value in (
        ("Algorithm 2, its noise", 0, added),
        ("Theorem A.2, its", 1, stated),
    ):
        row = find(what, f"s = {s}")
        assert row.verdict == "loose"
        assert close(row.claimed, value, relative="1e-12")
        found = Fraction(row.claimed.lower) / Fraction(row.exact.upper)
        assert abs(real(found) - ratios[ratio]) < mpf("1e-6")
    assert find("ours: the fewest fair bits", f"s = {s},").verdict == "holds"


def log_tail(trials: int, chance: Any, least: int) -> tuple[Any, Any]:
    """Bounds on ln P(B >= least) for binomial B: its first mass, and a geometric series."""
    logs = mpmath.loggamma(trials + 1) - mpmath.loggamma(least + 1)
    logs -= mpmath.loggamma(trials - least + 1)
    first = logs + least * mpmath.log(chance) + (trials - least) * mpmath.log1p(-chance)
    falls = (trials - least) * chance / ((least + 1) * (1 - chance))
    assert falls < 1
    return first, first - mpmath.log1p(-falls)


def test_erratum_5_the_tail_is_heavier_than_the_proof_allows() -> None:
    users = 10**6
    with mpmath.workdps(40):
        small = log_tail(12, mpf("0.1"), 5)
        exact = sum(mpmath.binomial(12, k) * 0.1**k * 0.9 ** (12 - k) for k in range(5, 13))
        assert small[0] < mpmath.log(exact) < small[1]
        lower = tkms_bits(users, "0.5", "1e-6").probability.lower
        chance = real(Fraction(lower))
        mean = users * chance
        least = int(mpmath.ceil(3 * mean))
        low, high = log_tail(users, chance, least)
        claimed = -((2 * mean) ** 2) / (3 * mean)
        assert round(float(low)) == -3631
        assert round(float(claimed)) == -3714
        assert claimed < low <= high
        # Where Chernoff's bound applies, t <= E[B], the claim holds too: the check can distinguish.
        near = log_tail(users, chance, int(mpmath.ceil(2 * mean)))
        assert near[1] < -(mean**2) / (3 * mean)
    row = tenenbaum_et_al._tail(users, Fraction(1, 2))()
    assert row.verdict == "fails"
    assert float(low) == pytest.approx(float(row.exact.lower or 0), rel=1e-12)
    assert float(high) == pytest.approx(float(row.exact.upper), rel=1e-12)
    assert float(claimed) == pytest.approx(float(row.claimed.upper), rel=1e-12)
    text = (Path(__file__).parents[3] / "docs" / "errata.md").read_text(encoding="utf-8")
    assert "ln P <= **-3714**" in text
    assert ">= **-3631**" in text


def nodes_of(horizon: int, datum: int) -> int:
    """The number of nodes of the prefix sums 1..T that contain a datum."""
    used: set[tuple[int, int]] = set()
    for end in range(1, horizon + 1):
        left = end
        while left:
            size = left & -left
            used.add((left - size + 1, left))
            left -= size
    return sum(first <= datum <= last for first, last in used)


@pytest.mark.parametrize("horizon", [1, 2, 3, 4, 5, 7, 8, 64, 100])
def test_erratum_7_a_tree_has_one_more_level_than_counted(horizon: int) -> None:
    most = max(nodes_of(horizon, datum) for datum in range(1, horizon + 1))
    assert chen_et_al.csb_tree_levels(horizon) == most
    if horizon > 1:
        row = chen_et_al._tree("Lemma 1", horizon, Fraction(1), 1)()
        with mpmath.workdps(40):
            assert close(row.exact, most / mpmath.log(horizon, 2), relative="1e-15")  # type: ignore[arg-type]  # an enclosure
        assert row.verdict == "fails"


def test_erratum_7_one_and_a_half_epsilon_and_the_bonus() -> None:
    row = find("Lemma 1", "T = 4,")
    assert (row.verdict, row.exact) == ("fails", Enclosure.exactly(Fraction(3, 2)))
    assert find("Theorem 7 (Algorithm 3)", "T = 4,").exact == Enclosure.exactly(Fraction(3, 4))
    assert find("ours: scale K levels", "T = 4,").exact == Enclosure.exactly(1)
    fewer = mutated(chen_et_al.csb_tree_levels, ".bit_length()", ".bit_length() - 1")
    assert fewer(4) != nodes_of(4, 1)
    for constant, label in ((mpf(4), "4"), (4 * mpmath.sqrt(2), "4 sqrt 2")):
        name = f"Algorithm 2, its bonus with c = {label}"
        bonus = next(r for r in quick() if r.statement == name)
        assert bonus.verdict == "fails"
        assert close(bonus.claimed, constant / 10, relative="1e-15")
    with mpmath.workdps(60):
        half = [mpmath.binomial(1000, k) / mpf(2) ** 1000 for k in range(1001)]
        tail, at = mpf(0), 1000
        while tail + half[at] <= mpf(10) ** -20:
            tail += half[at]
            at -= 1
        needed = (mpf(at) / 1000 - mpf(1) / 2) / mpmath.sqrt(mpmath.log(10**5) / 1000)
    assert abs(real(Fraction(bonus.exact.lower or 0)) - needed) < mpf(10) ** -12
    assert round(float(needed), 1) == round(float(bonus.exact.upper), 1) == 1.4


def test_erratum_8_a_bounded_noise_is_never_pure() -> None:
    assert find("footnote 6", "n = 1024").exact == Enclosure.infinite()
    ours = [r for r in quick() if r.statement == "ours: the sum of exact Polya shares"]
    assert [(r.exact.lower, r.exact.upper) for r in ours] == [(Fraction(1, 2), Fraction(1, 2))] * 2


def test_erratum_9a_the_rate_of_the_released_code_is_inverted() -> None:
    with mpmath.workdps(40):
        beta = mpmath.exp(-mpf(1) / 32)
        rate = (1 - beta) / beta
        # A Poisson variable with a Gamma(r, rate) mean is Polya with beta' = rate/(1 + rate).
        wrong = rate / (1 + rate)
        variance = 2 * wrong / (1 - wrong) ** 2
        # The law of a share by numerical integration: a Gamma mixture of Poisson laws, at k = 0 and
        # 1.
        shape = mpf(1) / 2
        for k in (0, 1):
            mixed = mpmath.quad(
                lambda x, k=k: (
                    x ** (shape - 1)
                    * mpmath.exp(-x / rate)
                    / (mpmath.gamma(shape) * rate**shape)
                    * mpmath.exp(-x)
                    * x**k
                    / mpmath.factorial(k)
                ),
                [0, rate, 10 * rate, 100 * rate],
            )
            mass = (shape * wrong) ** k * (1 - wrong) ** shape
            assert abs(mixed - mass) < mpf("1e-4")
        zero = (1 - wrong) / (1 + wrong)
        epsilon = -16 * mpmath.log(wrong)
        right = 2 * beta / (1 - beta) ** 2
    assert abs(variance - mpf("0.065")) < mpf("0.001")
    assert int(right + mpf(1) / 2) == 2048
    assert int(100 * zero) == 94
    row = find("released code, Polya", "variance")
    assert row.verdict == "fails"
    assert close(row.claimed, variance, relative="1e-15")
    assert close(row.exact, right, relative="1e-15")  # type: ignore[arg-type]  # an enclosure
    assert close(find("released code, Polya", "has noise 0").exact, zero, relative="1e-15")  # type: ignore[arg-type]  # an enclosure
    lost = next(
        r for r in quick() if r.statement.startswith("released") and r.quantity == "epsilon"
    )
    assert close(lost.exact, epsilon, relative="1e-15")  # type: ignore[arg-type]  # an enclosure
    # With the formula corrected, the scale is right and no row fails.
    corrected = mutated(
        released_code.swapped_scale, "(-(-1 / ball(scale)).expm1())", "(-1 / ball(scale)).exp()"
    )
    assert 32 in corrected(Fraction(32))
    assert 32 not in released_code.swapped_scale(Fraction(32))


def test_erratum_9b_one_draw_for_all_arms_reveals_the_dataset() -> None:
    noise, half = DiscreteLaplace(scale=2), Fraction(1, 2)
    row = find("released code, DP-SE", "(1, 0)")
    assert (row.verdict, row.exact) == ("fails", Enclosure.exactly(1))
    # By brute force: outputs on the two datasets are disjoint, so a test never errs.
    here = {(z + 1, z) for z in range(-50, 51)}
    there = {(z, z) for z in range(-50, 51)}
    assert not here & there
    assert released_code.shared_draw_delta((2, 2), noise, half).lower > 0
    assert released_code.shared_draw_delta((0, 0), noise, half) == Enclosure.exactly(0)
    blind = mutated(released_code.shared_draw_delta, "len(set(moves)) > 1", "False")
    assert blind((1, 0), noise, half) != row.exact
    assert find("ours: one draw for each arm", "").verdict == "holds"


def test_thresholds_are_the_least_ones() -> None:
    noise = PolyaDifference(shape=3, scale=5)
    for failure in (Fraction(1, 10), Fraction(1, 10**6), Fraction(1, 10**20)):
        t = chowdhury_zhou.least_threshold(noise, failure)
        assert noise.enclose_sf(t).upper <= failure < noise.enclose_sf(t - 1).lower


# The required verdict of each printed claim; our own rows must hold.
EXPECTED = {
    **{key: {"fails"} for key in ("1", "3", "4", "7", "8", "9a", "9b")},
    "2": {"unproven", "loose"},
    "5": {"loose", "fails"},
    "6": {"loose"},
}


PROGRESS: list[int] = []


@cache
def quick() -> tuple[Judgement, ...]:
    return replay(rows(quick=True), PROGRESS.append)


def find(statement: str, *parameters: str, rows: Iterable[Judgement] | None = None) -> Judgement:
    (found,) = [
        row
        for row in (quick() if rows is None else rows)
        if row.statement.startswith(statement)
        and all(each in f"{row.parameters}, {row.quantity}" for each in parameters)
    ]
    return found


def as_design_states(rows: Iterable[Judgement]) -> bool:
    """Whether each erratum has a row of its designed verdict, our rows hold and no other fails."""
    listed = tuple(rows)
    for erratum, wanted in EXPECTED.items():
        printed = {r.verdict for r in listed if r.erratum == erratum and not r.ours}
        if not wanted <= printed:
            return False
    if any(row.verdict not in ("holds", "loose") for row in listed if row.ours):
        return False
    return all(row.verdict in ("holds", "loose") for row in listed if row.erratum is None)


def test_the_quick_replay_has_the_expected_verdicts() -> None:
    start = time.process_time()
    assert as_design_states(quick())
    assert time.process_time() - start < 30
    assert [*range(1, len(quick()) + 1)] == PROGRESS
    for erratum in EXPECTED:
        assert any(row.ours for row in quick() if row.erratum == erratum), erratum


@pytest.mark.nightly
def test_the_complete_replay_has_the_expected_verdicts() -> None:
    start = time.process_time()
    found = replay(rows())
    assert time.process_time() - start < 60
    assert as_design_states(found)
    statements = " ".join(row.statement for row in found)
    for each in (
        *(f"Theorem {number}" for number in (1, 2, 3, 4, 5, 6, 7)),
        *("Lemma 3", "Lemma 4", "Lemma 10", "Appendix I, by zCDP", "Appendix I, by Renyi"),
        *("Theorem 4.2", "Theorem 4.4", "Theorem C.1", "Theorem C.3", "Theorem 4.6"),
        *("Theorem A.2", "Algorithm 2", "Lemma C.5", "Algorithm 4", "Algorithm 3", "Lemma 1"),
    ):
        assert each in statements, each
    assert {row.paper for row in found} == {"CZ", "LZJ", "TKMS", "CSB"}


def test_a_flipped_verdict_is_detected() -> None:
    # Swapping the claim and the truth of a row must invert its verdict.
    for erratum in EXPECTED:
        at = next(i for i, r in enumerate(quick()) if r.erratum == erratum and r.ours)
        none, one = Enclosure.exactly(0), Enclosure.exactly(1)
        flipped = replace(quick()[at], claimed=none, exact=one)
        assert not as_design_states((*quick()[:at], flipped, *quick()[at + 1 :]))
        kept = tuple(r for r in quick() if r.erratum != erratum)
        assert not as_design_states(kept)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('return "fails"', 'return "holds"'),
        ("exact.lower > claimed.upper", "exact.lower < claimed.upper"),
        ("exact.upper > claimed.lower", "exact.upper < claimed.lower"),
        ('claimed.lower >= LOOSE * exact.upper > 0 else "holds"', 'False else "holds"'),
        ("proof.lower > claimed.upper", "False"),
    ],
)
def test_a_broken_verdict_function_is_detected(old: str, new: str) -> None:
    judge: Callable[..., Any] = mutated(answer, old, new)
    right = [answer(row.claimed, row.exact, row.proof) for row in quick()]
    wrong = [judge(row.claimed, row.exact, row.proof) for row in quick()]
    assert [row.verdict for row in quick()] == right != wrong


def test_the_verdict_follows_from_the_enclosures() -> None:
    one, two = Enclosure.exactly(1), Enclosure.exactly(LOOSE)
    wide = Enclosure(Fraction(1, 2), Fraction(3, 2))
    assert answer(one, wide) == "unproven"
    # Two numbers in the same enclosure need not be equal.
    assert answer(wide, wide) == "unproven"
    assert answer(one, Bound(upper=one.upper, method="m", theorem="t")) == "holds"
    assert answer(two, Bound(upper=one.upper, method="m", theorem="t")) == "loose"
    assert answer(two, one, proof=Enclosure.exactly(3)) == "unproven"
    assert answer(two, Enclosure.exactly(3), proof=one) == "fails"
    assert answer(Enclosure.exactly(0), Enclosure.exactly(0)) == "holds"
    assert answer(one, Enclosure.infinite()) == "fails"


def test_the_replay_as_text_and_as_json_agree() -> None:
    text = list(lines(quick()))
    assert text[0] == "CZ"
    assert "fails     Theorem 3 [erratum 1]" in "\n".join(text)
    data = to_json(quick())
    assert json.loads(json.dumps(data, allow_nan=False))["counts"] == data["counts"]
    assert sum(data["counts"].values()) == len(data["rows"]) == len(quick())
    assert text[-1] == ", ".join(f"{n} {verdict}" for verdict, n in data["counts"].items())
    for row in data["rows"]:
        assert row["explanation"].count("\n") == 0
    assert decimals(Enclosure(Fraction(1, 3), Fraction(2, 3))) == "[0.333333, 0.666667]"


def test_printed_bounds_enclose_the_exact_value() -> None:
    tight = Enclosure(Fraction("0.12345649"), Fraction("0.123456491"))
    assert decimals(tight) == "[0.123456, 0.123457]"
    nearest = Fraction(f"{float(tight.lower):.6g}")
    assert nearest not in tight  # a bound printed by an earlier version
    for row in quick():
        for value in (row.claimed, row.exact):
            low, _, high = decimals(value).removeprefix("at most ").strip("[]").partition(", ")
            ends = [math.inf if end == "infinity" else Fraction(end) for end in (low, high or low)]
            assert ends[1] >= value.upper
            assert value.lower is None or ends[0] <= value.lower
