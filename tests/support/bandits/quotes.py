r"""The numbers in bold on the page Bandits, one by one: where each is among the committed results.

``renewed`` writes them again; whoever regenerates the figures reads the sentences again as well::

    python -m tests.support.bandits.quotes
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from bandits.experiments.curves import label
from benchmarks.figures.page import _cell
from tests.support.bandits.committed import FIGURES, ROOT, figures_of, results_of, row_of, rows_of

PAGE: Final = ROOT / "docs" / "bandits.md"
BOLD: Final = re.compile(r"\*\*([\d.]+(?: ± [\d.e-]+)?)\*\*")

_BASE, _RDP, _CDP = "dist-dp-se", label("dist-rdp-se"), label("dist-cdp-se")
_EASY: Final = "easy, T = 1e6"
_FAR: Final = "ldp-se is far worst: any other has at most a third of its regret"
_FALLS: Final = f"the regret of {_BASE}, in units of that of se, falls as epsilon grows"
_CENTRAL: Final = f"{_BASE} has the regret of cdp-se, within a tenth"
_BASELINE: Final = f"{_BASE} has the regret of dp-se, within a tenth"
_PRICE: Final = f"{_BASE} has less than 1.1 times the regret of se, exact"
_OWN: Final = f"{_BASE}, exact: within 5% of dp-se, paper, or below it"
_PRICES: Final = (
    "the price of privacy of cdp-dpe, its regret over that of dpe, falls as alpha grows"
)
_GIVEN: Final = f"{_BASE}, exact: within 5% of dp-se, exact radius, or below it"


def quotes(results: Any) -> Iterator[str]:
    """What the page should show in bold, in its order."""

    def cz(column: str, algorithm: str, epsilon: str) -> str:
        return _cz(results, column, algorithm, epsilon)

    def verdicts(statement: str, wanted: Callable[[str], bool] = lambda verdict: True) -> str:
        checks = [c for c in results["sections"]["cz"]["checks"] if c["statement"] == statement]
        return str(sum(wanted(check["verdict"]) for check in checks))

    def extreme(section: str, statement: str, which: Callable[..., str]) -> str:
        checks = results["sections"][section]["checks"]
        found = [c["figures"] for c in checks if c["statement"] == statement]
        return which(found, key=lambda figures: float(figures.split()[0]))

    # The order of Figure 4, and of Figures 1 to 3.
    yield figures_of(results, "cz", _FAR, "easy, 0.1")
    yield verdicts(_CENTRAL, "holds".__eq__)
    yield verdicts(_CENTRAL)
    yield figures_of(results, "cz", f"{_RDP} has less regret than {_BASE}", "easy, 0.5")
    yield figures_of(results, "cz", f"{_CDP} has less regret than {_RDP}", "easy, 0.5")
    falls = figures_of(results, "cz", _FALLS, "easy, epsilon 0.1, 0.5, 1").split(", ")
    yield falls[0]
    yield falls[-1]
    yield verdicts(_BASELINE, "does not hold".__eq__)
    yield verdicts(_BASELINE)
    yield verdicts(_BASELINE, "holds".__eq__)
    # The exact radius, and what privacy costs with it.
    for epsilon in ("0.1", "0.5", "1"):
        yield cz("exact/paper", _BASE, epsilon)
    yield cz("exact/paper", "se", "0.5")
    for epsilon in ("0.1", "0.5", "1"):
        yield cz("exact/se", _BASE, epsilon)
    yield verdicts(_PRICE, "holds".__eq__)
    yield verdicts(_PRICE)
    # The central baseline.
    for section, statement in (("cz", _BASELINE), ("schedule", _OWN), ("schedule", _GIVEN)):
        yield extreme(section, statement, min)
        yield extreme(section, statement, max)
    # s and bits.
    few, many = (
        row_of(results, "bits", epsilon="0.1", algorithm="dist-rdp-se", s=s) for s in ("1", "300")
    )
    less = "dist-rdp-se has less regret at s = 300 than at s = 1"
    yield figures_of(results, "bits", less, "epsilon 0.1, paper")
    yield many["mean bits"].split(", ")[0]
    yield few["mean bits"].split(", ")[0]
    yield _cell(many["exact"])
    yield _cell(few["exact"])
    # Users who return.
    for route in ("exact", "renyi", "advanced"):
        row = row_of(results, "returning", algorithm="dist-rdp-se", B=64, route=route)
        yield _cell(row["sigma"])
    yield from _linear(results)
    yield from _promises(results)
    yield from _without_best(results)


def _cz(results: Any, column: str, algorithm: str, epsilon: str) -> str:
    row = row_of(results, "cz", world=_EASY, algorithm=algorithm, epsilon=epsilon)
    return _cell(row[column])


def _promises(results: Any) -> Iterator[str]:
    # The parameter is not the promise.
    yield _cz(results, "epsilon at 1e-6", _RDP, "0.5")
    for name in (_RDP, _CDP):
        for epsilon in ("0.1", "0.5", "1"):
            where = f"({epsilon}, 1e-6)"
            yield figures_of(results, "promise", f"{name} has less regret than {_BASE}", where)
    # Shuffled bits against Polya shares.
    for epsilon in ("0.1", "0.5"):
        for name in ("shuffled-se", _BASE):
            yield _cz(results, "exact", name, epsilon)


def _without_best(results: Any) -> Iterator[str]:
    # Runs without their best arm: by the paper's numbers, exact radius, exact.
    rows = rows_of(results, "cz")
    wrong = [[int(count) for count in row["wrong arm"].split(", ")] for row in rows]
    runs = len(rows) * results["instances"]
    yield str(2 * runs)
    yield str(sum(radius + exact for _, radius, exact in wrong))
    yield str(sum(paper for paper, _, _ in wrong))
    yield str(runs)


def _linear(results: Any) -> Iterator[str]:
    # Linear bandits: pure epsilon, one client a round, covers.
    clients, figure = "lzj/clients, (1, 1e-6)", "lzj/fig2, (10, 0.25)"
    for name in ("cdp-pe", "ldp-pe"):
        less = f"{name} has less regret with Laplace noise than with Gaussian noise"
        yield figures_of(results, "remarks", less, clients)
    less = "cdp-dpe has less regret with Gaussian noise than with Laplace noise"
    yield figures_of(results, "remarks", less, figure)
    yield figures_of(results, "remarks", "dpe has less regret than pe", clients)
    yield figures_of(results, "remarks", "cdp-dpe has less regret than cdp-pe", clients)
    where = f"{clients}, alpha 1/2, 2/3, 4/5"
    yield from figures_of(results, "remarks", _PRICES, where).split(", ")
    yield figures_of(results, "remarks", "cdp-pe has the regret of pe, within a tenth", clients)
    for actions, shape in ((1912, "ball"), (512, "box")):
        world = f"lzj/{shape}"
        row = row_of(results, "remarks", world=world, actions=actions, algorithm="cdp-dpe")
        yield _cell(row["regret"])
    for shape in ("ball", "box"):
        less = "cdp-dpe has less regret by a cover of radius 1/8 than of 1/4"
        yield figures_of(results, "remarks", less, f"lzj/{shape}")


def stale(text: str, results: Any) -> list[str]:
    """Each number in bold that is not the committed one, with what it should be."""
    shown, wanted = BOLD.findall(text), [*quotes(results)]
    if len(shown) != len(wanted):
        return [f"{len(shown)} numbers in bold, of which {len(wanted)} are known"]
    pairs = zip(BOLD.finditer(text), wanted, strict=True)
    return [
        f"line {text.count(chr(10), 0, found.start()) + 1}: {found[1]} should be {new}"
        for found, new in pairs
        if found[1] != new
    ]


def renewed(text: str, results: Any) -> str:
    """The page with the committed numbers in bold."""
    wanted = quotes(results)
    return BOLD.sub(lambda _: f"**{next(wanted)}**", text)


def main() -> None:
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(renewed(text, results_of(FIGURES)), encoding="utf-8")


if __name__ == "__main__":
    main()
