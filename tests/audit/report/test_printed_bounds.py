"""Tests that every bound printed as text or HTML is rounded to the safe side."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any, Literal

import pytest
from markupsafe import Markup

from audit import claims as levels
from audit.claims import Claim
from audit.fit import fit as fit_report
from audit.fit.fit import FitReport
from audit.replay.sensitivity import root
from audit.report import audit_report as model
from audit.report import figures
from audit.report.audit_record import ExactFinding
from audit.report.audit_report import AuditReport
from audit.statistical_tests.clopper_pearson_and_other_baselines import BaselineFinding
from audit.statistical_tests.event import Witness
from audit.statistical_tests.sample_outcome import Outcome
from audit.statistical_tests.trace import Trace
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.numbers.enclosure import Enclosure
from tests.support.dpcore.mutants import mutated, rewired

Side = Literal["up", "down"]
Printed = tuple[str, float, Side]
View = Callable[[AuditReport], str]

NUMBER = r"(-?[\d.,]+(?:e-?\d+)?|infinity)"


def report_of(seed: int) -> AuditReport:
    """A report whose numbers have full precision, so that four digits never equal them."""
    rng = random.Random(seed)
    claim = Claim(epsilon="1/2", delta="1/1000")
    low, delta = rng.uniform(0.5, 3), rng.uniform(0, 0.1)
    return AuditReport(
        target="f", claim=claim, pair=(0, 1), verdict="refuted", epsilon_lower=low,
        at_delta=claim.exact[1], alpha="1/30", runs_by_world=(7001, 6997), stopped="as planned",
        p_value=rng.uniform(0, 0.03) * 10 ** -rng.randint(0, 9), resolution=rng.uniform(0, 0.1),
        outcomes=tuple(
            Outcome(
                claim=Claim(epsilon=epsilon), refuted=True, epsilon_lower=rng.uniform(0.5, 3),
                p_value=rng.uniform(0, 0.01),
            )
            for epsilon in ("0.1", "0.2")
        ),
        baselines=tuple(
            BaselineFinding(name=name, epsilon_lower=bound, says="", valid=True)
            for name, bound in (("dkw", 1.23456), ("bayes", rng.uniform(0, 9)), ("other", math.inf))
        ),
        witness=Witness(
            event="output >= 1", world="B", inside_a=1, runs_a=9, inside_b=8, runs_b=9
        ),
        exact=ExactFinding(
            delta=Enclosure(Fraction(delta), Fraction(delta + 1e-12)),
            epsilon=Enclosure(Fraction(low), Fraction(low + 1e-11)),
        ),
        trace=Trace(
            claim=claim, alpha="1/30", holds="each",
            points=tuple((n, rng.uniform(0, 3)) for n in (64, 1000, 13998)),
        ),
    )  # fmt: skip


def found(pattern: str, text: str) -> list[str]:
    return re.findall(pattern.replace("NUMBER", NUMBER), text)


def printed_in(document: dict[str, Any], text: str) -> Iterator[Printed]:
    """Numbers printed on the page or in the text, each with its value in the JSON document."""
    alpha = document["alpha"]
    places: list[tuple[str, float, Side]] = [
        (r"(?i:sampled)(?:</dt><dd>| +)at least NUMBER at", document["epsilon_lower"], "down"),
        (r"p-value NUMBER;", document["p_value"], "up"),
        (r"NUMBER% confidence", 100 * (1 - alpha), "down"),
    ]
    for row in document["baselines"]:
        bound = float(row["epsilon_lower"])
        places.append((rf"{row['name']}(?:</th><td>|: )NUMBER(?:</td>| \()", bound, "down"))
    for point in document["trace"]["points"]:
        bound = point["epsilon_lower"]
        places.append((rf">{point['runs']:,}</th><td>NUMBER</td>", bound, "down"))
    for pattern, value, side in places:
        for shown in found(pattern, text):
            yield shown, value, side
    yield from cases(text, r"fewer than NUMBER of NUMBER runs", document["resolution"])
    yield from cases(text, r"If it did, at most NUMBER of NUMBER such audits", alpha)
    tests = found(r"<td>0</td><td>NUMBER</td><td>NUMBER</td>", text)
    for row, cells in zip(document["outcomes"], tests, strict=False):
        yield cells[0], row["p_value"], "up"
        yield cells[1], row["epsilon_lower"], "down"
    for name in ("epsilon", "delta"):
        pattern = rf"(?i:{name})(?:</dt><dd>| +)between NUMBER and NUMBER"
        for cells in found(pattern, text):
            yield cells[0], document["exact"][name][0], "down"
            yield cells[1], document["exact"][name][1], "up"


def cases(text: str, pattern: str, value: float) -> Iterator[Printed]:
    """Probabilities printed as "k of n runs", rounded up."""
    for cells in found(pattern, text):
        some, of = cells[0], cells[1]
        yield str(Fraction(some) / int(of.replace(",", ""))), value, "up"


def wrong(printed: Iterator[Printed], least: int = 0) -> list[Printed]:
    """The printed numbers that are on the unsafe side of their value."""
    everything = list(printed)
    assert len(everything) >= least, "a bound that is printed was not found"
    return [
        (shown, value, side)
        for shown, value, side in everything
        if not (read(shown) >= exact(value) if side == "up" else read(shown) <= exact(value))
    ]


def read(shown: str) -> Fraction | float:
    return math.inf if shown == "infinity" else Fraction(shown.replace(",", ""))


def exact(value: float) -> Fraction | float:
    return value if math.isinf(value) else Fraction(value)


@pytest.fixture(autouse=True)
def _no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("trace", "line", "curve"):
        monkeypatch.setattr(figures, f"{name}_figure", lambda *_: Markup("<svg/>"))


def text_of(report: AuditReport) -> str:
    return "\n".join(report.statement().lines(1000))


@pytest.mark.parametrize(
    ("view", "least", "places"),
    [
        (AuditReport.to_html, 20, ((model, "down"),)),
        (text_of, 11, ((levels, "down"), (levels, "up"), (model, "down"))),
    ],
    ids=["page", "text"],
)
def test_a_bound_is_printed_on_its_safe_side(
    view: View, least: int, places: tuple[tuple[Any, str], ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    reports = [report_of(seed) for seed in range(10)]
    for report in reports:
        assert wrong(printed_in(report.to_json(), view(report)), least) == []
    for place, name in places:
        monkeypatch.setattr(place, name, nearest)  # the mutant rounds to nearest
    assert any(wrong(printed_in(report.to_json(), view(report))) for report in reports)


def nearest(value: Any, digits: int = 4) -> str:
    return f"{float(value):.{digits}g}"


def fit_of(p_value: float, resolution: float) -> FitReport:
    return FitReport(
        target="f", law=DiscreteLaplace(scale=1), verdict="not_refuted", alpha="1/30", runs=5,
        p_value=p_value, resolution=resolution,
    )  # fmt: skip


def fit_printed(report: FitReport, text: str) -> Iterator[Printed]:
    for shown in found(r"p-value NUMBER;", text):
        yield shown, report.p_value or 0.0, "up"
    for shown in found(r"wrong by less than NUMBER%", text):
        yield shown, 100 * report.resolution, "up"
    yield from cases(text, r"at most NUMBER of NUMBER such fits", report.to_json()["alpha"])


def test_the_p_value_of_a_fit_is_printed_rounded_up() -> None:
    reports = [fit_of(p / 9973, p / 19973) for p in range(1, 40)]
    for report in reports:
        assert wrong(fit_printed(report, "\n".join(report.statement().lines(1000))), 3) == []
    evidence = rewired(levels.evidence, format_p_value=lambda value: f"{value:.3g}")
    rows = rewired(fit_report._rows, evidence=evidence)
    told = rewired(FitReport.statement, _rows=rows)
    assert any(wrong(fit_printed(r, "\n".join(told(r).lines(1000)))) for r in reports)


def test_a_level_that_is_not_a_float_is_rounded_up() -> None:
    for alpha in ("1/3", "1/30", "2/7", "1e-6", "0.3"):
        level = replace(report_of(1), alpha=alpha, trace=None).to_json()["alpha"]
        assert Fraction(repr(level)) >= Fraction(alpha)


def test_a_square_root_has_both_bounds() -> None:
    for square in (Fraction(2), Fraction(9, 4), Fraction(1, 3), Fraction(10**40 + 1), Fraction(0)):
        low, high = root(square)
        assert low * low <= square <= high * high
        assert high - low <= Fraction(1, 2**64)
    nearest = mutated(root, "below + (not exact)", "below")
    assert nearest(Fraction(2))[1] ** 2 < 2
