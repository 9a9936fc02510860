"""Tests of sparse vector and noisy max: the code enumerated on finite noise, laws by mpmath."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import permutations, product
from typing import Any

import mpmath
import numpy as np
import pytest
from mpmath import mpf

from dpcore import SeededRng, forks
from dpcore.errors import InvalidParameter
from dpcore.selection import (
    AboveThreshold,
    MaxNoise,
    NoisyMax,
    Selection,
    sparse_vector_and_noisy_max,
)
from dpcore.selection.sparse_vector_and_noisy_max import MOST_GAP, _NoisyBar
from tests.dpcore.test_forks import in_child
from tests.support.audit.laws import rows
from tests.support.dpcore.mutants import mutated
from tests.support.dpcore.refusals import refusal
from tests.support.enumerate_random_choices import Forking, unroll

# A noise of three values, so that the code can be enumerated; scale 2 is wider.
SMALL = {-1: Fraction(1, 8), 0: Fraction(1, 2), 1: Fraction(3, 8)}
WIDE = {2 * z: mass for z, mass in SMALL.items()}


class Finite:
    """Replaces discrete Laplace noise: SMALL for scales up to 3, WIDE for larger ones."""

    def __init__(self, *, scale: Fraction) -> None:
        self.law = SMALL if scale <= 3 else WIDE

    def sample(self, size: int | None = None, *, rng: Forking) -> Any:
        values, weights = [*self.law], [*self.law.values()]
        if size is None:
            return values[rng.choose(weights, "noise")]
        return np.array([values[rng.choose(weights, "noise")] for _ in range(size)])


def sparse_listed(answers: Sequence[int], count: int, *, gap: bool = False) -> dict[Any, Fraction]:
    """Sum over every threshold and every noise."""
    found: dict[Any, Fraction] = {}
    noise = SMALL if count == 1 else WIDE  # the scales are 3 and 3, or 3 and 6
    for drawn in product(SMALL, *[noise] * len(answers)):
        mass = SMALL[drawn[0]]
        for z in drawn[1:]:
            mass *= noise[z]
        said: list[Any] = []
        left = count
        for answer, z in zip(answers, drawn[1:], strict=True):
            over = answer + z - (5 + drawn[0])
            if left:
                said.append(over >= 0 if not gap else over if over >= 0 else None)
                left -= over >= 0
        found[tuple(said)] = found.get(tuple(said), Fraction(0)) + mass
    return found


def unrolled(release: Any, *given: Any, open_mass: Fraction = Fraction(0)) -> Any:
    """Return the law of a release; several answers are a tuple."""

    def sampler(rng: Forking) -> Any:
        found = release(*given, rng=rng)
        return tuple(found) if isinstance(found, Iterable) else found

    return unroll(sampler, open_mass=open_mass)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("gap", [False, True])
def test_the_sparse_vector_equals_the_algorithm(
    count: int, gap: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sparse_vector_and_noisy_max, "DiscreteLaplace", Finite)
    above = AboveThreshold(epsilon=1, sensitivity=1, threshold=5, count=count, gap=gap)
    mutants = [("gap >= 0", "gap > 0"), ("if not left", "if left < -9")]
    if gap:  # the gap to the threshold without its noise
        mutants = [("(gap if above", "(gap + bar - self.threshold if above")]
    for answers in ([5, 4, 6], [3, 7], [5]):
        listed = sparse_listed(answers, count, gap=gap)
        assert unrolled(above.release, answers).lower == listed
        for old, new in mutants:
            wrong = mutated(AboveThreshold.stream, old, new, DiscreteLaplace=Finite)
            if old != "if not left" or len(answers) > count:
                assert unrolled(wrong, above, answers).lower != listed


def keeps_epsilon(unit: str, answers: Sequence[int]) -> bool:
    """Whether P <= e^epsilon Q, exactly, for every list and all neighbours of the answers."""
    law = mutated(AboveThreshold.law, "1 / (of_answer", unit)
    above = AboveThreshold(epsilon=1, sensitivity=1, threshold=0, gap=True)
    p = law(above, answers)
    times = next(iter(p.values())).power_of_e(Fraction(1))
    moves = product((-1, 1), repeat=len(answers))
    found = (law(above, [a + b for a, b in zip(answers, move, strict=True)]) for move in moves)
    return all(mass <= times * q[row] for q in found for row, mass in p.items())


def test_gaps_cost_nothing() -> None:
    assert all(keeps_epsilon("1 / (of_answer", answers) for answers in ([0, 0], [-2, 1], [4]))
    # A third of both noises.
    assert not keeps_epsilon("3 / (of_answer", [0, 0])


@pytest.mark.parametrize("monotonic", [False, True])
def test_no_other_integer_ratio_has_less_variance(monotonic: bool) -> None:
    for count in (*range(1, 12), 500, 1 << 20):
        given: dict[str, Any] = {"epsilon": 2, "sensitivity": 3, "threshold": 0}
        bar, answer = AboveThreshold(**given, count=count, monotonic=monotonic).scales
        changes = count if monotonic else 2 * count
        assert Fraction(3) / bar + 3 * changes / answer == 2  # all of epsilon is spent
        for k in range(1, 200):
            scale = (1 + Fraction(changes, k)) * Fraction(3, 2)
            assert bar**2 + answer**2 <= scale**2 * (1 + k * k)


def largest_listed(scores: Sequence[int], law: dict[int, Any]) -> list[Any]:
    """P(index) where each score has noise of this law and ties are broken uniformly."""
    found: list[Any] = [0 * law[0]] * len(scores)
    for drawn in product(law, repeat=len(scores)):
        sums = [u + z for u, z in zip(scores, drawn, strict=True)]
        best = [i for i, each in enumerate(sums) if each == max(sums)]
        mass = law[drawn[0]]
        for z in drawn[1:]:
            mass = mass * law[z]
        for i in best:
            found[i] += mass / len(best)
    return found


@pytest.mark.parametrize("kind", list(MaxNoise))
def test_noisy_max_equals_the_algorithm(kind: MaxNoise, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse_vector_and_noisy_max, "DiscreteLaplace", Finite)
    best = NoisyMax(epsilon=1, sensitivity=1, noise=kind)
    law = dict(SMALL)
    if kind is MaxNoise.EXPONENTIAL:
        kept = 1 - SMALL[-1]
        law = {z: mass / kept for z, mass in SMALL.items() if z >= 0}
    for scores in ([0, 0], [1, 0, 0]):
        found = unrolled(best.release, scores, open_mass=Fraction(1, 10**6))
        for index, mass in enumerate(largest_listed(scores, law)):
            assert mass in found.bounds(index)
    first = mutated(NoisyMax.release, "rng.below(len(best))", "0", DiscreteLaplace=Finite)
    wrong = unrolled(first, best, [0, 0], open_mass=Fraction(1, 10**6))
    assert Fraction(1, 2) not in wrong.bounds(0)


def masses(scale: Fraction, *, one_sided: bool) -> dict[int, Any]:
    """Return the noise within 60 scales, where all but e^-60 of the mass is."""
    shrink = mpmath.exp(-mpf(scale.denominator) / scale.numerator)
    reach = int(60 * scale)
    total = 1 / (1 - shrink) if one_sided else (1 + shrink) / (1 - shrink)
    return {z: shrink ** abs(z) / total for z in range(0 if one_sided else -reach, reach + 1)}


def laws_are(law: Any, listed: Any) -> bool:
    """Whether an exact law contains every mass of another one."""
    with mpmath.workdps(30):
        balls = {key: mass.enclose(100).lower for key, mass in law.items()}
        return all(
            abs(mpf(low.numerator) / low.denominator - listed[key]) < mpf(10) ** -20
            for key, low in balls.items()
        )


TOTALS = {
    "one direction omitted": ("((first - 1, -1), (last + 1, 1))", "((last + 1, 1),)"),
    "a breakpoint omitted": ("max(bends) + 1", "max(bends) - 3"),
}


@pytest.mark.parametrize("name", ["", *TOTALS])
def test_exact_laws_agree_with_plain_sums(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name:
        wrong = mutated(sparse_vector_and_noisy_max._total, *TOTALS[name])
        monkeypatch.setattr(sparse_vector_and_noisy_max, "_total", wrong)
    assert all(agreements()) == (not name)


def agreements() -> Iterator[bool]:
    """Whether each exact law is the plain sum; after the first difference nobody asks."""
    for kind in MaxNoise:
        best = NoisyMax(epsilon="3/2", sensitivity=1, noise=kind)
        with mpmath.workdps(30):
            noise = masses(best.scale, one_sided=kind is MaxNoise.EXPONENTIAL)
            yield laws_are(best.law([3, 0]), largest_listed([3, 0], noise))
    for count in (1, 2):
        above = AboveThreshold(epsilon=2, sensitivity=1, threshold=0, count=count)
        answers = [0, 2, -1]
        with mpmath.workdps(30):
            scales = [mpf(s.numerator) / s.denominator for s in above.scales]
            listed = rows(scales[0], scales[1], count)(answers)
        padded = {
            row: (*(int(said or 0) for said in row), *[-1] * (3 - len(row)))
            for row in above.law(answers)
        }
        yield laws_are(above.law(answers), {row: listed[key] for row, key in padded.items()})
        yield sum(above.law(answers).values()) == 1


def test_three_scores_with_ties_have_their_exact_law() -> None:
    # All draws within 40: the omitted mass is below e^-40.
    best = NoisyMax(epsilon=2, sensitivity=1)
    noise = {z: float(m) for z, m in masses(best.scale, one_sided=True).items() if z <= 30}
    found = [each.enclose(64).upper_float for each in best.law([2, 2, 1]).values()]
    assert np.allclose(found, largest_listed([2, 2, 1], noise), atol=1e-9)
    for scores in ([0, 0], [0, 2, 5], [4, 4, 3, 0]):
        # McKenna and Sheldon's rule is noisy max with exponential noise (Ding et al. 2021).
        flipped = Selection(epsilon=2, sensitivity=1).law(scores)
        assert all(a == b for a, b in zip(best.law(scores).values(), flipped, strict=True))


def lead_listed(scores: Sequence[int], law: dict[int, Any]) -> dict[tuple[int, int], Any]:
    """P(index, lead), over all orders: the first of the largest wins, by the necessary margin."""
    found: dict[tuple[int, int], Any] = {}
    orders = [*permutations(range(len(scores)))]
    for drawn in product(law, repeat=len(scores)):
        mass = Fraction(1, len(orders))
        for z in drawn:
            mass *= law[z]
        sums = [u + z for u, z in zip(scores, drawn, strict=True)]
        for order in orders:
            best = max(order, key=lambda i: (sums[i], -order.index(i)))
            least = max(sums[j] + (order.index(j) < order.index(best)) for j in order if j != best)
            key = best, sums[best] - least
            found[key] = found.get(key, Fraction(0)) + mass
    return found


def test_the_lead_is_relative_to_the_least_winning_score(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse_vector_and_noisy_max, "DiscreteLaplace", Finite)
    leading = NoisyMax(epsilon=1, sensitivity=1, noise=MaxNoise.LAPLACE, gap=True)
    for scores in ([0, 0], [0, 1, 1]):
        found = unrolled(leading.release, scores, open_mass=Fraction(1, 1000))
        listed = lead_listed(scores, SMALL)
        assert set(found.lower) <= set(listed)
        assert all(mass in found.bounds(key) for key, mass in listed.items())
        # The mutant: the difference to the second largest score, which ignores ties.
        plain = mutated(NoisyMax.release, "(lead > 0 and", "(False and", DiscreteLaplace=Finite)
        wrong = unrolled(plain, leading, scores, open_mass=Fraction(1, 1000))
        assert not all(mass in wrong.bounds(key) for key, mass in listed.items())


def test_the_lead_has_its_exact_law_and_costs_nothing() -> None:
    leading = NoisyMax(epsilon=4, sensitivity=1, noise=MaxNoise.LAPLACE, gap=True)
    noise = {z: float(m) for z, m in masses(leading.scale, one_sided=False).items() if abs(z) <= 12}
    listed = lead_listed([0, 1], noise)
    found: dict[Any, Any] = dict(leading.law([0, 1]).items())
    for key in product(range(2), range(MOST_GAP)):
        assert abs(found[key].enclose(64).upper_float - float(listed[key])) < 1e-9
    assert "proven to be free" in refusal(lambda: NoisyMax(epsilon=1, sensitivity=1, gap=True))
    assert "at least 2" in refusal(lambda: leading.release([3]))
    assert sum(leading.law([0, 2, 1]).values()) == 1
    for given, kept in ((leading, True), (replace(leading, epsilon=8), False)):
        p, q = given.law([0, 2, 0]), given.law([1, 1, 1])
        times = p[0, 0].power_of_e(Fraction(4))
        assert times is not None
        assert all(mass <= times * q[key] for key, mass in p.items()) == kept


def test_a_stream_may_be_adaptive_and_bad_answers_are_refused() -> None:
    above = AboveThreshold(epsilon=100, sensitivity=1, threshold=1000, count=2)
    said: list[int | None] = []

    def answers() -> Any:
        while True:
            yield 5000 if len(said) % 3 == 2 else 0

    for each in above.stream(answers(), rng=SeededRng(1)):
        said.append(each)  # noqa: PERF402 - the answers depend on earlier reports
    assert said == [False, False, True] * 2
    assert "value" in refusal(lambda: above.release([0.5]))  # type: ignore[list-item]  # on purpose
    assert "value" in refusal(lambda: NoisyMax(epsilon=1, sensitivity=1).release([]))
    bad: list[dict[str, Any]] = [{"epsilon": 0}, {"sensitivity": 0}, {"count": 0}]
    for wrong in (*bad, {"threshold": "1/2"}):
        with pytest.raises(InvalidParameter):
            AboveThreshold(**{"epsilon": 1, "sensitivity": 1, "threshold": 0} | wrong)
    for none in (None, 3):
        with pytest.raises(InvalidParameter, match="must be a sequence of integers"):
            above.release(none)  # type: ignore[arg-type]  # deliberately of the wrong type


def test_a_stream_that_has_begun_ends_in_a_forked_process() -> None:
    above = AboveThreshold(epsilon=1, sensitivity=1, threshold=0)
    begun, new = above.stream([-(10**9), 10**9]), above.stream([10**9])
    assert next(begun) is False

    def reported() -> list[int]:
        assert "is a fork: start a new" in refusal(lambda: next(begun))
        assert [*begun] == []
        return [next(new) is True]

    assert in_child(reported) == [1]
    assert next(begun) is True


def test_a_stream_that_is_forked_while_its_threshold_is_drawn_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As in the child of a fork by a signal handler: the hooks have already run.
    above = AboveThreshold(epsilon=1, sensitivity=1, threshold=0)

    class Forked:
        def __init__(self, **_scale: Fraction) -> None:
            pass

        def sample(self, *, rng: Any) -> int:
            del rng
            for reference in forks._REGISTERED.copy():
                if isinstance(kept := reference(), _NoisyBar):
                    kept.forget()
            return 0

    monkeypatch.setattr(sparse_vector_and_noisy_max, "DiscreteLaplace", Forked)
    assert "is a fork: start a new" in refusal(lambda: next(above.stream([1])))
