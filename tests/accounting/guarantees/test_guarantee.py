"""Tests of the `Guarantee` interface: every guarantee returns a bound or states why it has none."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from html.parser import HTMLParser
from typing import Any

import pytest

import accounting
from accounting import (
    Approx,
    Assumed,
    BinomialBox,
    Bound,
    Description,
    FixedSizeSampled,
    Gaussian,
    Guarantee,
    NotDerived,
    PoissonSampled,
    PrivacyCurve,
    Pure,
    Rdp,
    ZCdp,
    compose,
    guarantee,
)
from accounting.guarantees.tradeoff_function import approx_tradeoff
from dpcore import DiscreteGaussian, DiscreteLaplace, InvalidParameter, Mechanism, Sensitivity
from dpcore.cli.terminal import html_table
from dpcore.laws.poisson_and_binomial import Binomial
from dpcore.mechanism import Relation, Scope
from dpcore.protocols.shuffled_bits import BinaryShuffle, VectorShuffle
from tests.support.accounting.bound_ends import ends
from tests.support.accounting.brute_force import Brute, close
from tests.support.dpcore.mutants import mutated
from tests.support.dpcore.refusals import refusal, refused

GAUSSIAN = PrivacyCurve(noise=DiscreteGaussian(sigma_squared=25), sensitivity=1)
LAPLACE = PrivacyCurve(noise=DiscreteLaplace(scale=2), sensitivity=1)
ADDED = PrivacyCurve(
    noise=DiscreteLaplace(scale=2), sensitivity=1, scope=Scope(relation=Relation.ADD_REMOVE)
)
ALL: dict[str, Guarantee] = {
    "pure": Pure("1/2"),
    "zcdp": ZCdp("1/50"),
    "rdp": Rdp({2: "1/25", 8: "4/25", 32: "16/25"}),
    "approx": Approx("1/2", "1e-3"),
    "assumed": Assumed(Pure("1/2"), "the vendor said so"),
    "gaussian": GAUSSIAN,
    "laplace": LAPLACE,
    "poisson": PoissonSampled(curve=ADDED, rate="1/10"),
    "fixed": FixedSizeSampled(curve=LAPLACE, sample=1, population=10),
    "composed": compose((LAPLACE, 2), Pure("1/10")),
    "normal": guarantee(Description(noise=Gaussian(sigma=5))),
    "one claim": compose(Pure("1/2")),
    "renyi terms": compose((ZCdp("1/50"), 2)),
    "box": BinomialBox(trials=20, bounds=(1, 1)),
}
ASKED: dict[str, tuple[Any, ...]] = {
    "epsilon": ("1/100",),
    "delta": ("1/4",),
    "renyi": (2,),
    "zcdp": (),
    "pure": (),
    "tradeoff": ("1/10",),
}
REFUSED = {
    ("zcdp", "pure"), ("rdp", "zcdp"), ("rdp", "pure"), ("approx", "renyi"), ("approx", "zcdp"),
    ("approx", "pure"), ("fixed", "renyi"),
}  # fmt: skip


@pytest.mark.parametrize("question", ASKED)
@pytest.mark.parametrize("name", ALL)
def test_every_method_of_a_guarantee_returns_a_bound_or_a_reason(name: str, question: str) -> None:
    promise = ALL[name]
    assert isinstance(promise, Guarantee)
    assert promise.scope.unit.value == "contribution"
    ask: Callable[..., Bound] = getattr(promise, question)
    if (name, question) in REFUSED:
        with pytest.raises(NotDerived, match=r"cannot derive .*(ask|use|derive|theorem)"):
            ask(*ASKED[question])
        return
    for found in (ask(*ASKED[question]), ask(*ASKED[question], relative="1e-2")):
        assert isinstance(found, Bound)
        assert found.safe == ("lower" if question == "tradeoff" else "upper")
        assert found.method
        assert found.theorem
    if name == "assumed":
        assert found.assumptions == ("Pure('1/2'): the vendor said so",)


@pytest.mark.parametrize(
    ("question", "given", "argument"),
    [
        ("epsilon", (-1,), "delta"),
        ("epsilon", ("1.5",), "delta"),
        ("delta", (-1,), "epsilon"),
        ("delta", ("nan",), "epsilon"),
        ("renyi", (1,), "order"),
        ("tradeoff", (2,), "alpha"),
        ("tradeoff", ("x",), "alpha"),
        # A width outside 0 to 1, also where a formula needs none.
        *((each, (*at, bad), "relative") for each, at in ASKED.items() for bad in (0, 2)),
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ALL)
def test_every_guarantee_names_a_bad_argument_in_the_same_way(
    name: str, question: str, given: tuple[Any, ...], argument: str
) -> None:
    with refused(argument):
        getattr(ALL[name], question)(*given)


def agrees(promise: Guarantee, exact: PrivacyCurve, slack: float) -> bool:
    """Whether the lines of the curve give its trade-off, never more and hardly less."""
    for alpha in ("0", "1/1000", "1/10", "1/2", "9/10", "1"):
        line, truth = ends(Guarantee.tradeoff(promise, alpha)), ends(exact.tradeoff(alpha))
        if not truth.upper - slack <= line.lower <= truth.upper:
            return False
    return True


def test_the_tradeoff_function_of_a_curve_is_tight() -> None:
    # The exact trade-off of a curve is computed independently, from cells of the law.
    assert agrees(GAUSSIAN, GAUSSIAN, 1e-3)
    assert agrees(LAPLACE, LAPLACE, 1e-3)
    assert agrees(compose(GAUSSIAN), GAUSSIAN, 1e-3)
    # Mutants: a claim of less privacy gives a lower trade-off, and one of more privacy is detected.
    assert not agrees(compose((GAUSSIAN, 2)), GAUSSIAN, 1e-3)
    assert not agrees(Pure("1/4"), LAPLACE, 1e-3)


def test_the_tradeoff_bound_of_one_point_is_attained() -> None:
    # Randomised response at epsilon = 1 attains the bound: both errors of its test are 1/(1 + e).
    q = 1 / (1 + math.e)
    found = Pure(1).tradeoff(Fraction(q))
    assert abs(q - float(found)) < 1e-9
    wrong = mutated(approx_tradeoff, "factor * ball(alpha)", "ball(alpha) / factor")
    at = (Fraction(1), Fraction(0), Fraction(q))
    assert wrong(*at) > approx_tradeoff(*at) + Fraction(1, 10)


def test_boxes_of_bits_have_every_method_of_a_guarantee() -> None:
    vector = VectorShuffle(users=50, noise_bits=8, probability="1/2", precision=2, coordinates=3)
    found = guarantee(vector.mechanism(50))
    assert found == BinomialBox(trials=400, bounds=(2, 2, 2))
    assert found.epsilon("1e-2") < 8
    single = BinaryShuffle(users=50, noise_bits=8, probability="1/2").mechanism(50)
    assert guarantee(single) == BinomialBox(trials=400, bounds=(1,))
    assert ends(compose(found).delta("1/10")).overlaps(ends(found.delta("1/10")))
    bits = Binomial(trials=2, probability="1/2")
    for amount, shifts in (
        (Sensitivity.l1(3), ((3,), (2, 1), (1, 1, 1))),
        (Sensitivity.l2_squared(4), ((2,), (1, 1, 1, 1))),
    ):
        curve = guarantee(Mechanism(noise=bits, sensitivity=amount))
        truth = Brute(noise=bits, shifts=shifts, reach=5).delta("1/2")
        assert close(ends(curve.delta("1/2")), truth, relative="1e-6")
        refusal(curve.pure, NotDerived)
    with pytest.raises(InvalidParameter, match=r"protocol\.mechanism"):
        guarantee(vector)  # type: ignore[arg-type]  # on purpose
    # delta = 0 is never enough, even where 2^-trials is below every precision.
    for trials in (3, 100_000):
        box = BinomialBox(trials=trials, bounds=(1,))
        for infinite in (box.epsilon(0), box.pure(), box.zcdp(), box.renyi(2)):
            assert infinite.lower == math.inf


def cells(markup: str) -> list[str]:
    found: list[str] = []

    class Reader(HTMLParser):
        def handle_data(self, data: str) -> None:
            found.append(data)

    Reader().feed(markup)
    return found


def test_notebook_cards_show_the_values_of_their_objects() -> None:
    mechanism = Mechanism(noise=DiscreteLaplace(scale=10), sensitivity=1)
    total = accounting.compose((mechanism, 3), accounting.Assumed(accounting.Pure(1), "<b>"))
    shown = cells(total._repr_html_())
    assert shown[0] == "Composition of 4 releases"
    assert any("<b>" in each for each in shown)  # escaped: it is read back as text
    bound = Bound(
        upper=Fraction(5, 2), method="basic", theorem="epsilons add", assumptions=("a&b",)
    )
    assert cells(bound._repr_html_())[1:] == [
        "upper", "2.5", "method", "basic", "theorem", "epsilons add", "assumes", "a&b",
    ]  # fmt: skip
    found = cells(accounting.calibrate(noise="discrete-laplace", epsilon=2)._repr_html_())
    assert found[1:3] == ["noise", "discrete-laplace:scale=0.5"]
    certificate = accounting.certify(mechanism, deltas=["1e-6"])
    assert {"epsilon", "pure"} <= set(cells(certificate._repr_html_()))
    assert cells(html_table("<script>", []))[0] == "<script>"


def test_the_curve_of_a_guarantee_can_be_plotted() -> None:
    pytest.importorskip("matplotlib", reason="the extra 'plot' is not installed")
    from matplotlib.figure import Figure

    total = accounting.compose((Mechanism(noise=DiscreteLaplace(scale=10), sensitivity=1), 3))
    axes = Figure().add_subplot()
    assert total.plot(axes, least_delta="1e-4", points=3) is axes
    (line,) = axes.get_lines()
    for epsilon, delta in line.get_xydata().tolist():  # type: ignore[union-attr]  # an array
        assert epsilon == total.epsilon(delta).upper_float
    assert (axes.get_xlabel(), axes.get_ylabel(), axes.get_yscale()) == ("epsilon", "delta", "log")
    above = accounting.Rdp({2: 1})
    both = above.plot(Figure().add_subplot(), least_delta="1e-4", points=3)
    assert [each.get_label() for each in both.get_lines()] == ["proven upper bound"]
    assert "least_delta" in refusal(lambda: total.plot(axes, least_delta=1))
    assert "points = 1" in refusal(lambda: total.plot(axes, points=1))
