r"""What a notebook shows of guarantees: cards, and curves whose points are the proven ends."""

from __future__ import annotations

from fractions import Fraction
from html.parser import HTMLParser

import pytest

import accounting
from accounting.claims.bound import Bound
from dpcore import DiscreteLaplace, Mechanism
from dpcore.command.terminal import html_table
from dpcore.errors import InvalidParameter


def cells(markup: str) -> list[str]:
    found: list[str] = []

    class Reader(HTMLParser):
        def handle_data(self, data: str) -> None:
            found.append(data)

    Reader().feed(markup)
    return found


def test_cards_say_what_their_objects_hold() -> None:
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


def test_the_curve_of_a_guarantee() -> None:
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
    with pytest.raises(InvalidParameter, match="least_delta"):
        total.plot(axes, least_delta=1)
