"""Tests of `audit.statistical_tests.sample_outcome`: coverage, nothing_measured, resolution."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.special import betaincinv

from audit.broken_mechanisms import ENTRIES
from audit.claims import Claim
from audit.errors import TargetFailed
from audit.features.parse_feature import read_feature
from audit.outputs.output_parser import draw_worlds
from audit.outputs.reading import read
from audit.report.audit_report import AuditReport
from audit.run_audit import audit
from audit.runs.draw_plan import Plan
from audit.sample_layer import sample
from audit.statistical_tests import sample_outcome
from audit.statistical_tests.anytime_valid_test import watch
from audit.statistical_tests.event import Tally
from audit.statistical_tests.multiple_testing import View, watch_views, weigh, weigh_views
from audit.statistical_tests.prequential_fixed_runs_test import WEIGHTS, gather, resolution
from audit.statistical_tests.sample_outcome import Coverage, unmeasured_pairs, unseen
from audit.targets.target import Catalogued, Target, Vectorised
from audit.testing.assertions import NothingMeasured, assert_private
from dpcore.errors import InvalidParameter
from tests.alpha_budget import buy_alpha
from tests.audit.statistical_tests.test_prequential_fixed_runs_test import (
    laplace as discrete_laplace,
)
from tests.day_and_nightly import by_day, effort

LETTERS = str.maketrans("0123456789", "ghijklmnop")
LEVEL = Fraction(1, 1000)
PLAN = Plan(claim=Claim(epsilon="0.1"), pair=(0, 1), runs=3000, alpha=LEVEL, seed=7)


def vectors(d: int, n: int, rng: np.random.Generator) -> Any:
    """Laplace noise of scale 1/10 for a shift of 1: far from private; no output occurs twice."""
    return d + rng.laplace(0, 0.1, size=(n, 5))


def tokens(d: int, n: int, rng: np.random.Generator) -> Any:
    """Texts that never repeat and have no order."""
    return ["ab"[d] + f"{x:x}".translate(LETTERS) for x in rng.integers(1 << 60, size=n).tolist()]


def constant(d: int, n: int, rng: np.random.Generator) -> Any:
    return np.full(n, 3)


def one_pair(d: int, n: int, rng: np.random.Generator) -> Any:
    return rng.geometric(0.5, size=n) if d < 2 else np.full(n, 3)


def seldom(d: int, n: int, rng: np.random.Generator) -> Any:
    return [None if u < 0.8 else tuple(rng.random(2)) for u in rng.random(n)]


def laplace(d: int, n: int, rng: np.random.Generator) -> Any:
    return d + rng.laplace(0, 20, size=n)


def of(function: Any) -> Target:
    return Vectorised(spelling=function.__name__, function=function)


def words(report: AuditReport) -> str:
    return " ".join(" ".join(report.statement().lines(100)).split())


@by_day(2)
@pytest.mark.parametrize("sequential", [False, True])
@pytest.mark.parametrize(
    ("function", "hint"),
    [
        (tokens, "with --feature (features in Python): file.py:callable"),
        (constant, "--allow-constant (allow_constant=True in Python) accepts"),
    ],
)
def test_an_audit_that_measures_nothing_has_its_own_verdict(
    function: Any, hint: str, sequential: bool
) -> None:
    report = sample(of(function), replace(PLAN, sequential=sequential))
    assert (report.verdict, report.exit_code) == ("nothing_measured", 4)
    assert report.to_json()["resolution"] is None
    assert any(hint in warning for warning in report.warnings)
    for shown in (words(report), report.to_html()):
        assert "NOTHING MEASURED" in shown
        assert "gone unnoticed" not in shown
    assert hint in words(report)
    # An intended constant is accepted; outputs that never repeat remain unmeasured.
    accepted = sample(of(function), replace(PLAN, sequential=sequential, allow_constant=True))
    assert accepted.exit_code == (0 if function is constant else 4)


def test_the_resolution_accounts_for_unmeasured_runs() -> None:
    both = (read_feature("identity"), read_feature("coordinate:0"))
    report = sample(of(vectors), replace(PLAN, features=both, claim=Claim(epsilon=5), runs=20_000))
    assert [each.measured for each in report.coverage] == [False, True]
    assert "(nothing was measured for 1 of 2 combinations of pair and feature)" in words(report)
    report = sample(of(laplace), PLAN)
    assert (report.verdict, report.exit_code, unseen(report.coverage)) == ("not_refuted", 0, "")
    report = sample(of(seldom), PLAN)
    once = report.coverage[0].once
    assert report.verdict == "not_refuted"
    assert report.resolution >= once / report.runs > 0.1
    assert f"(nothing was measured for {once:,} outputs that occurred only once)" in words(report)
    assert "outputs that occurred only once" in report.to_html()


@by_day(3)
@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_every_correct_mechanism_is_measured(entry: Any) -> None:
    twin = entry.twin
    plan = replace(
        PLAN,
        pair=twin.pair,
        pairs=(),
        claim=Claim(epsilon=twin.epsilon, delta=twin.delta),
        features=tuple(map(read_feature, twin.features)),
        alpha="0.05",
    )
    target = Catalogued(spelling=twin.name, function=twin.run, subject=twin)
    report = sample(target, plan)
    assert report.verdict is not None
    # No number of runs by day refutes a claim like epsilon = 10, whatever the outputs are.
    assert not any(each.blind or each.constant for each in unmeasured_pairs(report.coverage))


@pytest.mark.parametrize("order", [1, -1])
def test_a_pair_without_outputs_fails_in_either_order(order: int) -> None:
    def silent(d: int, rng: np.random.Generator) -> int | None:
        return int(rng.integers(9)) if d < 2 else None

    pairs = [(0, 1), (2, 3)][::order]
    told = f"on pair {pairs.index((2, 3)) + 1} of 2, returned nothing: every output is None"
    with pytest.raises(TargetFailed, match=told):
        audit(silent, "epsilon=1", pairs=pairs, runs=2000, seed=1, allow_constant=True)

    def rare(d: int, rng: np.random.Generator) -> int | None:
        return d if rng.random() < (0.002, 0.005)[d] else None

    report = audit(rare, "epsilon=1,delta=0.005", pair=(0, 1), runs=2000, seed=1)
    assert report.verdict == "not_refuted"


def test_the_required_number_of_runs_is_the_least_that_could_refute() -> None:
    worlds = np.arange(500) % 2 == 0

    def measured(runs: int, level: Fraction) -> bool:
        tally = Tally.empty().add(read(list(range(runs))), worlds[:runs])
        return Coverage.of(tally, level, [Claim(epsilon=1)]).measured

    for level in (Fraction(1, 20), Fraction(1, 10**9)):
        enough = next(n for n in range(500) if math.isfinite(resolution(n, 1, level)))
        found = [measured(n, level) for n in (0, enough - 1, enough)]
        assert found == [False, False, True]


def test_runs_that_could_not_refute_the_claim_measure_nothing() -> None:
    """Outputs that are the dataset are not refuted if e^epsilon is more than the number of runs."""

    def itself(d: int, n: int, rng: np.random.Generator) -> Any:
        return np.full(n, d)

    few = "3,000 runs are too few to refute the claim reliably, for any outputs"
    for sequential in (False, True):
        plan = replace(PLAN, sequential=sequential)
        report = sample(of(itself), replace(plan, claim=Claim(epsilon=9)))
        assert (report.verdict, report.exit_code) == ("nothing_measured", 4)
        assert f"everything: {few}" in words(report)
        (case,) = report.cases()
        assert case.outcome == "error"
        assert case.detail.startswith(f"The runs do not measure epsilon=9: {few}")
        twin = replace(PLAN, claim=Claim(epsilon=9), allow_constant=True)
        assert sample(of(constant), twin).exit_code == 4
        assert sample(of(itself), replace(plan, claim=Claim(epsilon=4))).exit_code == 1
        assert sample(of(constant), replace(twin, claim=Claim(epsilon=4))).exit_code == 0
    with pytest.raises(InvalidParameter, match="runs = 3000: are too few to refute epsilon=9"):
        assert_private(itself, "epsilon=9", pairs=[(0, 1)], runs=3000, alpha="0.001", seed=7)


def named(share: float, *, telling: bool = False) -> Any:
    """Outputs that name the person and never repeat, except for a share of "nothing"."""

    def function(d: int, n: int, rng: np.random.Generator) -> Any:
        odd = tokens(d, n, rng)
        rest = "nothing" if not telling else f"nothing {'ab'[d]}"
        return [rest if u < share else o for u, o in zip(rng.random(n), odd, strict=True)]

    return function


@by_day(3)
@pytest.mark.parametrize("sequential", [False, True])
@pytest.mark.parametrize(
    ("share", "verdict"), [(0.035, "nothing_measured"), (0.45, "nothing_measured"),
                           (0.55, "not_refuted")],
)  # fmt: skip
def test_more_than_half_unmeasured_is_nothing_measured(
    share: float, verdict: str, sequential: bool
) -> None:
    plan = replace(PLAN, sequential=sequential)
    report = sample(of(named(share)), plan)
    assert (report.verdict, report.exit_code) == (verdict, 4 * (verdict == "nothing_measured"))
    assert any("outputs occurred once and have no order" in w for w in report.warnings)
    # Any output of the unmeasured runs may name the person.
    lost = report.coverage[0].missed / report.runs
    assert report.resolution >= lost > 0.4
    # A claim that the measured runs refute is refuted.
    assert sample(of(named(share, telling=True)), plan).exit_code == 1


def record(v: float, n: int, rng: np.random.Generator) -> Any:
    return [{"mean": round(x, 6)} for x in (v + rng.laplace(0, 0.25, n)).tolist()]


def of_tokens(v: float, n: int, rng: np.random.Generator) -> Any:
    return [{"id": token} for token in tokens(v > 0, n, rng)]


def half(v: float, n: int, rng: np.random.Generator) -> Any:
    return [x if i % 5 < 2 else x["mean"] for i, x in enumerate(record(v, n, rng))]


OWN = "own.py:mean"


@by_day(5)
@pytest.mark.parametrize(
    ("function", "epsilon", "features", "code"),
    [
        (record, "1", [], 0),
        (record, "0.5", [], 1),
        (of_tokens, "1", [], 4),
        *((record, "0.5", [feature], 4) for feature in ("sum", "coordinate:0", "round:1")),
        (record, "0.5", [OWN], 1),
        # The feature maps all outputs to "no sum: dict of 1", which repeats but is not the output.
        (record, "3", ["sum"], 4),
        # It suffices that one feature measures enough runs.
        (record, "3", ["sum", "hash:16"], 0),
        (half, "3", ["sign"], 0),
    ],
)
def test_outputs_that_a_feature_cannot_read_are_not_measured(
    function: Any, epsilon: str, features: list[str], code: int, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    (tmp_path / "own.py").write_text("def mean(output): return output['mean']\n")
    monkeypatch.chdir(tmp_path)
    options: Any = {"features": features, "seed": 7, "runs": 2000}
    report = audit(function, f"epsilon={epsilon}", pair=(0.0, 0.25), **options)
    assert report.exit_code == code
    if features:
        assert ("test a part of each output" in words(report)) == (code == 4)
    if code == 4:
        options["allow_constant"] = True
        assert audit(function, f"epsilon={epsilon}", pair=(0.0, 0.25), **options).exit_code == 4
    if function is half:
        assert report.coverage[0].unread > 600
        told = f"for {report.coverage[0].unread:,} outputs that a feature could not read"
        assert told in words(report)


def spread_over_labels(q: float, d: int, n: int, rng: np.random.Generator) -> Any:
    """Counts that leak nothing, with a name in a fraction q of the runs on dataset B only."""
    counts = rng.geometric(0.02, n) - rng.geometric(0.02, n)
    named = d * (rng.random(n) < q)
    return [(int(x), "ada" if u else "none") for x, u in zip(counts, named, strict=True)]


def test_the_resolution_includes_events_of_many_rare_outputs() -> None:
    """Each output with the name is too rare to be noticed, but all of them together are not."""

    def of(q: float, runs: int = 8000, **options: Any) -> AuditReport:
        law = partial(spread_over_labels, q)
        return audit(law, "epsilon=1", pair=(0, 1), seed=1, runs=runs, **options)

    whole: Any = {"features": ["identity"]}
    missed = of(0.1, **whole)
    assert (missed.verdict, missed.resolution > 0.1) == ("not_refuted", True)
    with pytest.MonkeyPatch.context() as patch:  # the mutant counts single outputs only
        patch.setattr(Tally, "rare", lambda _tally, _least: 0.0)
        assert of(0.1, **whole).resolution < 0.1
    # A label that occurs often is noticed: the resolution is that of a single label.
    found = of(0.1, features=["coordinate:1"])
    assert (found.verdict, found.resolution) == ("refuted", resolution(8000, 1, "0.001"))
    # Nothing is stated if all outputs are rare.
    few = of(0.1, runs=2000, **whole)
    assert (few.verdict, few.to_json()["resolution"]) == ("not_refuted", None)
    assert "not known: outputs are rarely repeated: rare outputs" in words(few)


def test_every_pair_must_be_measured() -> None:
    pairs = [(0, 1), (2, 3)]
    for both, sequential in ((pairs, False), (pairs[::-1], True)):
        options: Any = {"seed": 7, "runs": 1000, "sequential": sequential}
        report = audit(one_pair, "epsilon=1", pairs=both, **options)
        place = both.index((2, 3)) + 1
        assert (report.verdict, report.exit_code) == ("nothing_measured", 4)
        assert f"everything on pair {place}: every output was the same" in words(report)
        assert any(w.startswith(f"pair {place}: nothing was measured") for w in report.warnings)
        with pytest.MonkeyPatch.context() as patch:  # the mutant counts all pairs together
            patch.setattr(sample_outcome, "unmeasured_pairs", lambda _: [])
            found = audit(one_pair, "epsilon=1", pairs=both, **options)
            assert found.verdict == "not_refuted"
    with pytest.raises(NothingMeasured, match=r"on the pair \(2, 3\)") as caught:
        assert_private(one_pair, "epsilon=1", pairs=pairs, runs=2000, seed=7)
    assert "allow_constant=True" in str(caught.value)


ALPHA = Fraction(1, 20)
AUDITS = effort(20, 40)


Rest = Callable[[np.ndarray, np.random.Generator], np.ndarray]
RESTS: dict[str, tuple[Rest, Any]] = {
    "nothing else": (lambda worlds, _: np.zeros(len(worlds)), 77),
    "the same noise on both datasets": (lambda w, rng: discrete_laplace(len(w), 5, rng), 77),
    "noise at the claim": (lambda worlds, rng: worlds + discrete_laplace(len(worlds), 1, rng), 77),
    "between the values": (lambda worlds, rng: 2 * discrete_laplace(len(worlds), 5, rng), 3),
    "continuous": (lambda worlds, rng: rng.laplace(0, 5, len(worlds)), 0.25),
    "many values": (lambda worlds, rng: discrete_laplace(len(worlds), 500, rng), 10**6),
}


def revealing(eta: float, rest: str, runs: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Outputs and datasets; one value has probability eta on dataset B and 0 on dataset A."""
    rng = np.random.default_rng(seed)
    worlds = draw_worlds(runs, rng)
    draw, shown = RESTS[rest]
    return np.where(worlds & (rng.random(runs) < eta), shown, draw(worlds, rng)), worlds


def seen(eta: float, rest: str, runs: int, claim: Claim, *, anytime: bool = False) -> int:
    """The number of audits that refute."""
    count = 0
    for seed in range(AUDITS):
        outputs, worlds = revealing(eta, rest, runs, seed)
        if anytime:
            state = watch(*claim.exact).update(outputs, worlds)
            count += state.rejected_at(ALPHA) is not None
        else:
            evidence = gather(outputs, worlds, seed=seed)
            count += evidence.p_value(*claim.exact, spend=ALPHA / 50) <= ALPHA
    return count


def by_luck_alone(runs: int) -> float:
    """A mutant: only the length of a perfect score counts, learning needs no runs (epsilon = 1)."""
    least = math.ceil(math.log(1 / (WEIGHTS[-1] * 0.05)) / math.log1p(math.exp(-1)))
    return float(betaincinv(least, runs // 2 - least + 1, 0.95))


@pytest.mark.nightly
@by_day(1)
@pytest.mark.parametrize("rest", RESTS)
def test_an_output_of_the_stated_resolution_is_refuted(rest: str) -> None:
    alpha = buy_alpha(f"resolution is true: {rest}", "1e-9")
    claim = Claim(epsilon=1)
    outputs, worlds = revealing(0.1, rest, 1500, 0)
    eta = weigh_views([View(outputs=outputs, worlds=worlds)], claim, ALPHA, seed=0).resolution
    watched = watch_views(claim).update(0, [outputs], worlds)
    anytime_eta = weigh(watched, ALPHA).resolution
    for anytime, mass in ((False, eta), (True, anytime_eta)):
        hits = seen(mass, rest, 1500, claim, anytime=anytime)
        assert stats.binom.cdf(hits, AUDITS, 0.95) > alpha / 2
    mutant = seen(by_luck_alone(1500), rest, 1500, claim)
    assert stats.binom.cdf(mutant, AUDITS, 0.95) < alpha / 2


def test_the_resolution_exceeds_the_mass_that_delta_allows() -> None:
    alpha = buy_alpha("resolution is true: delta", "1e-9")
    claim = Claim(epsilon=1, delta="1/100")
    eta = resolution(1500, 1, ALPHA, "1/100")
    hits = seen(eta, "nothing else", 1500, claim)
    assert stats.binom.cdf(hits, AUDITS, 0.95) > alpha
    # The mutant ignores delta, so its resolution is below the mass that delta allows.
    mutant = seen(resolution(1500, 1), "nothing else", 1500, Claim(epsilon=1, delta="1/10"))
    assert stats.binom.cdf(mutant, AUDITS, 0.95) < alpha
    assert resolution(10**7, 1, ALPHA, "1/100") > 0.01


def test_the_resolution_follows_its_formula_without_delta() -> None:
    for runs, epsilon in ((2000, 1.0), (20_000, 3.0), (10**6, 0.1)):
        q = 1 / (1 + math.exp(-epsilon))
        learned = next(k for k in range(1, 10**4) if 0.003 ** (1 / k) > q)
        bar = stats.norm.isf(WEIGHTS[3] * 0.05) / math.sqrt(5 / 9)
        enough = next(k for k in range(1, 10**4) if stats.norm.isf(q**k) >= bar)
        early = 4 * runs // 9
        eta = resolution(runs, repr(epsilon))
        sure = (
            stats.binom.sf(learned - 1, early, eta / 2),
            stats.binom.sf(enough - 1, runs - early, eta / 2),
        )
        assert min(sure) == pytest.approx(0.975)


def test_outputs_among_many_numbers_must_be_learned_first() -> None:
    assert resolution(20_000, 1, crowd=200) > 2 * resolution(20_000, 1)
    outputs = np.arange(5000.0)
    many, few = (Tally.empty().add(read(each), outputs % 2 == 0) for each in (outputs, outputs % 7))
    assert (many.crowd, few.crowd) == (-(-5000 // (8 + math.isqrt(80_000))), 1)


@pytest.mark.parametrize("epsilon", [0, 1, 3])
def test_too_few_runs_have_no_resolution(epsilon: Any) -> None:
    claim = Claim(epsilon=epsilon)
    found = [resolution(runs, epsilon) for runs in range(20, 400)]
    assert found[0] == math.inf
    assert found == sorted(found, reverse=True)
    always = 20 + found.index(1.0)
    assert seen(1.0, "nothing else", always, claim) >= 0.95 * AUDITS
    assert resolution(10**6, 1, Fraction(1, 10**400)) == math.inf
    assert resolution(365, "4.24") == math.inf  # the leader guesses in 317 runs, not in 333
