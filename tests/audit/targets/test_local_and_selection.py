"""Local reports and selection mechanisms: proven on known laws, broken versions refuted."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from accounting import guarantee
from audit import audit
from audit.broken_mechanisms.randomised_response import SubsetAsTwoAnswers
from audit.errors import TargetFailed
from audit.targets.local_and_selection import (
    local_target,
    read_local,
    select_target,
    shuffled_target,
)
from audit.targets.target import Known
from audit.targets.target_syntax import read_target
from dpcore.errors import InvalidParameter
from dpcore.local import (
    FAMILIES,
    HadamardResponse,
    LocalHashing,
    LocalReport,
    RandomisedResponse,
    ShuffledReports,
    UnaryEncoding,
    report_from_json,
)
from dpcore.local.local_report import Reports
from dpcore.numbers.enclosure import Enclosure
from dpcore.parse_noise import read_noise
from dpcore.sampling.rng import SYSTEM, Rng
from dpcore.selection import AboveThreshold, MaxNoise, NoisyMax, Rule, Selection
from tests.audit.targets.test_mechanisms_by_text import LOCAL
from tests.day_and_nightly import by_day, effort


def broken(kind: Any, part: str, wrong: Callable[[Any], Any], **given: Any) -> Any:
    """The mechanism with a property that has a wrong value."""
    return type(kind.__name__, (kind,), {part: property(wrong)})(epsilon=1, **given)


def own(factor: int) -> Callable[[Any], Fraction]:
    """The probability of a true answer, as if there were two values."""
    return lambda it: RandomisedResponse(epsilon=factor * it.epsilon, values=2).own


BROKEN: tuple[LocalReport, ...] = (
    broken(RandomisedResponse, "own", own(1), values=4),
    # Spends epsilon on each of the two bits in which values differ.
    broken(UnaryEncoding, "own", own(1), values=4, encoding="symmetric"),
    SubsetAsTwoAnswers(epsilon=1, values=9),
    broken(LocalHashing, "own", own(1), values=20),  # the hash has three values
    # Twice epsilon, as if the sign were +-1 instead of 0 or 1.
    broken(HadamardResponse, "own", own(2), values=20),
)


def test_shuffled_reports_are_proven_at_their_delta_and_refuted_below() -> None:
    target = "local:randomised-response,values=3,epsilon=1,users=4"
    votes = ShuffledReports(report=RandomisedResponse(epsilon=1, values=3), users=4)
    found = guarantee(votes).delta("1/2")
    assert found.lower is not None
    assert audit(target, claim=f"epsilon=1/2,delta={found.upper}").verdict == "proven"
    assert audit(target, claim=f"epsilon=1/2,delta={found.lower}").verdict == "refuted"
    assert audit(target, layers=("sample",), runs=2000, seed=2).verdict == "not_refuted"


class InOrder(ShuffledReports):
    """Broken: releases the reports in the order of the users, without a shuffle."""

    def release(self, value: Any, *, rng: Rng = SYSTEM) -> Reports:
        return self.report.report(value, rng=rng)


def test_unshuffled_reports_have_only_their_local_epsilon() -> None:
    broken = InOrder(report=RandomisedResponse(epsilon=3, values=3), users=30)
    target = shuffled_target(broken, spelling="local:in-order")
    shuffled = ShuffledReports(report=broken.report, users=30)
    claim = f"epsilon=1,delta={guarantee(shuffled).delta(1).upper}"
    found = audit(target, claim=claim, layers=("sample",), runs=1500, seed=1)
    assert found.verdict == "refuted"


def test_proofs_are_about_one_report_or_release() -> None:
    for words, about in (
        ("local:randomised-response,values=4", "one report"),
        ("select:noisy-max", "one release"),
        ("select:above-threshold,gap=yes", "one release with gaps above 8 replaced by 8"),
    ):
        report = audit(f"{words},epsilon=1")
        assert report.layers[0].proves == f"for every event, on this pair, of {about}"
    report = audit("local:randomised-response,values=4,epsilon=1", pairs=[(0, 1), (3, 2)])
    assert report.verdict == "proven"


def test_a_ratio_of_exactly_e_to_epsilon_is_proven() -> None:
    # The gap of the first candidate grows by 2, so its probability falls by e^-1 exactly.
    pair = ([0, 1], [-1, 2])
    for words in ("permute-and-flip", "noisy-max", "noisy-max,noise=laplace,sensitivity=2"):
        report = audit(f"select:{words},epsilon=1", pair=pair)
        assert report.verdict == "proven"
        if words != "noisy-max,noise=laplace,sensitivity=2":
            assert report.exact is not None
            assert report.exact.epsilon == Enclosure.exactly(1)
            below = audit(f"select:{words},epsilon=1", pair=pair, claim="epsilon=999999/1000000")
            assert below.verdict == "refuted"


def for_one_answer(it: Any) -> tuple[Fraction, Fraction]:
    return AboveThreshold(epsilon=it.epsilon, **sparse).scales


sparse: Any = {"sensitivity": 1, "threshold": 0}
FAR = ([0, 8, 8], [8, 0, 0])  # scores move by 8, but the declared sensitivity is 1
WRONG: tuple[tuple[Any, Any], ...] = (
    *((local_target(report, spelling="local:broken"), None) for report in BROKEN),
    *(
        (select_target(mechanism, spelling="select:broken"), pair)
        for mechanism, pair in (
            (NoisyMax(epsilon=1, sensitivity=1, noise=MaxNoise.LAPLACE), FAR),
            (NoisyMax(epsilon=1, sensitivity=1), FAR),
            (Selection(epsilon=1, sensitivity=1, rule=Rule.PERMUTE_AND_FLIP), FAR),
            (AboveThreshold(epsilon=1, **sparse), FAR),
            # Scores may move in opposite directions, but the noise is for one direction.
            (broken(NoisyMax, "scale", lambda it: 1 / it.epsilon, sensitivity=1), None),
            # e^(-epsilon gap), which gives epsilon for monotone scores and 2 epsilon otherwise.
            (broken(Selection, "unit", lambda it: it.epsilon, sensitivity=1), None),
            (
                # Noise for one answer above the threshold, used for two.
                broken(AboveThreshold, "scales", for_one_answer, **sparse, count=2),
                ([0] * 3 + [1, 1], [1] * 3 + [0, 0]),
            ),
        )
    ),
)


@by_day(6)
@pytest.mark.parametrize(("target", "pair"), WRONG, ids=map(str, range(len(WRONG))))
def test_a_wrong_probability_or_sensitivity_is_refuted_by_proof(target: Any, pair: Any) -> None:
    report = audit(target, pair=pair)
    assert report.verdict == "refuted"
    assert report.witness is not None


@by_day(2)
@pytest.mark.parametrize(("target", "pair"), WRONG[:9], ids=map(str, range(9)))
def test_a_wrong_probability_or_sensitivity_is_refuted_by_sampling(target: Any, pair: Any) -> None:
    found = audit(target, pair=pair, layers=("sample",), runs=effort(1000, 2000), seed=1)
    assert found.verdict == "refuted"


def test_the_right_sensitivity_is_proven() -> None:
    right = select_target(NoisyMax(epsilon=1, sensitivity=8), spelling="select:right")
    assert audit(right, pair=FAR).verdict == "proven"


def test_large_datasets_are_sampled_on_request() -> None:
    pair = ([0] * 70, [1] * 70)
    for name in ("noisy-max", "above-threshold"):
        with pytest.raises(InvalidParameter, match="use only the sample layer"):
            audit(f"select:{name},epsilon=1", pair=pair)
    sampled: Any = {"layers": ("sample",), "runs": 300, "seed": 1}
    assert audit("select:noisy-max,epsilon=1", pair=pair, **sampled).verdict == "not_refuted"


@pytest.mark.parametrize("words", LOCAL)
def test_a_mechanism_is_a_target_by_its_text(words: str) -> None:
    report: LocalReport = read_noise(f"{words.replace(',', ':', 1)},epsilon=1", FAMILIES)  # type: ignore[assignment]  # by name
    assert report_from_json(report.to_json()) == report
    name, _, keys = report.text.partition(":")
    for text in (report.text, f"local:{report.text}", f"local:{name},{keys}"):
        found: Any = read_target(text)
        assert (found.spelling, found.subject.epsilon) == (text, 1)
    shuffled: Any = read_target(f"{report.text},users=3")
    assert len(shuffled.function(1, 1, np.random.default_rng(1))[0]) == 3
    for damaged in (f"{report.text},values=3", f"{report.text},chance=1", f"local:x{report.text}"):
        with pytest.raises(InvalidParameter, match="target"):
            read_target(damaged)
    wrong = report.to_json() | {"own": "1/3"}
    with pytest.raises(InvalidParameter, match="report"):
        report_from_json(wrong)


def test_long_laws_are_sampled_and_bad_datasets_are_named() -> None:
    long = read_local("local:long", "unary-encoding,values=40,epsilon=1")
    assert not isinstance(long, Known)
    assert long.function(0, 3, np.random.default_rng(1)).shape == (3, 40)
    for target, pair in (
        ("local:randomised-response,values=2", (0, 2)),
        ("select:noisy-max", (0, 1)),
    ):
        with pytest.raises((InvalidParameter, TargetFailed), match="dataset"):
            audit(f"{target},epsilon=1", pair=pair, runs=100)
    with pytest.raises(InvalidParameter, match="fit"):
        audit("local:randomised-response,values=2,epsilon=1", layers=("fit",))
