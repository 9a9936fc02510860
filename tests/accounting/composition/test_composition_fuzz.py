r"""Property tests of composition: random lists, every engine against the others and enumeration.

Rounds are expanded into outcomes (P, Q) from formulas of their laws; the total is the product, its
curve a plain sum, maximised over the directions that a round may have. The reference shares no
engine, listing or dominating pair with the package. Seeds are fixed: the lists are always the same.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from importlib import import_module
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from accounting import Approx, PrivacyCurve, Pure
from accounting.derive_guarantee import PoissonSampled
from accounting.guarantees.bound import Bound
from accounting.law_pairs.registry import pair_of
from accounting.pld import finite_pld
from accounting.pld.finite_pld import Listing
from accounting.pld_composition.cell_refinement import ListedLoss
from accounting.pld_composition.enumerate_outcomes import Enumeration
from accounting.privacy_curves import dominating_pairs as ways
from accounting.privacy_curves.dominating_pairs import ComposedLoss, loss_of
from dpcore import (
    Binomial,
    DiscreteGaussian,
    DiscreteGaussianSum,
    DiscreteLaplace,
    Poisson,
    PolyaDifference,
    Skellam,
)
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Relation, Scope
from dpcore.noise import Noise
from dpcore.numbers.enclosure import Enclosure
from tests.day_and_nightly import by_day, effort
from tests.support.accounting.bound_ends import ends
from tests.support.accounting.brute_force import World, hockey_stick, mass_of, real
from tests.support.accounting.small_laws import delta as exact_delta
from tests.support.accounting.small_laws import listed as law_of
from tests.support.dpcore.mutants import mutated

DIGITS = 50
# Outcomes below e^-100 are omitted: their mass is far below this.
ROOM = Fraction(1, 10**25)
MOST_OUTCOMES = 4000
ADDED = Scope(relation=Relation.ADD_REMOVE)
# The name `compose` of the package is the function.
compose = import_module("accounting.composition.compose").compose


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """A guarantee with its possible rounds: ``turns`` if the pair of datasets may change per round.

    Otherwise each direction has one pair of datasets, the same in all rounds.
    """

    part: Any
    worlds: tuple[World, ...]
    turns: bool = False


def shifted(noise: Noise, shift: int, reach: Iterable[int]) -> World:
    with mpmath.workdps(DIGITS):
        mass = mass_of(noise)
        found = [(mass(k), mass(k + shift)) for k in reach]
        return [(p, q) for p, q in found if max(p, q) > mpmath.exp(-100)]


def curve_of(noise: Noise, shift: int) -> PrivacyCurve:
    return PrivacyCurve(noise=noise, sensitivity=shift, scope=ADDED)


def claim(epsilon: Fraction, delta: Fraction) -> Round:
    with mpmath.workdps(DIGITS):
        e, d = mpmath.exp(real(epsilon)), real(delta)
        yes, no = (1 - d) * e / (1 + e), (1 - d) / (1 + e)
        world = [(yes, no), (no, yes)]
        if delta:
            world += [(d, mpmath.mpf(0)), (mpmath.mpf(0), d)]
    part = Approx(epsilon, delta, scope=ADDED) if delta else Pure(epsilon, scope=ADDED)
    return Round(part=part, worlds=(world,))


def laplace_world(scale: Fraction, shift: int) -> World:
    # All outcomes beyond the shift have the same loss: they form one outcome.
    with mpmath.workdps(DIGITS):
        mass, beta = mass_of(DiscreteLaplace(scale=scale)), mpmath.exp(-1 / real(scale))
        far = 1 / (1 + beta), beta**shift / (1 + beta)
        inner = [(mass(k), mass(k + shift)) for k in range(1 - shift, 0)]
        return [far, *inner, far[::-1]]


def laplaces(scale: Fraction, shift: int) -> Round:
    world = laplace_world(scale, shift)
    return Round(part=curve_of(DiscreteLaplace(scale=scale), shift), worlds=(world,))


def sampled(scale: Fraction, shift: int, rate: Fraction) -> Round:
    base = laplace_world(scale, shift)
    with mpmath.workdps(DIGITS):
        share = real(rate)
        present = [((1 - share) * q + share * p, q) for p, q in base]
        absent = [(p, (1 - share) * p + share * q) for p, q in base]
    part = PoissonSampled(curve=curve_of(DiscreteLaplace(scale=scale), shift), rate=rate)
    return Round(part=part, worlds=(present, absent))


def thin(noise: Noise, shift: int) -> Round:
    return Round(part=curve_of(noise, shift), worlds=(shifted(noise, shift, range(-60, 60)),))


def turning(noise: Noise, shift: int) -> Round:
    there = shifted(noise, shift, range(-shift, 80))
    worlds = there, [(q, p) for p, q in there]
    return Round(part=curve_of(noise, shift), worlds=worlds, turns=True)


SCALES = st.sampled_from([Fraction(1, 3), Fraction(1), Fraction(5, 2), Fraction(40)])
SHIFTS = st.integers(1, 3)
SMALL = st.sampled_from([Fraction(1, 20), Fraction(1, 7), Fraction(2, 5)])
CLAIMED = st.sampled_from([Fraction(0), Fraction(1, 1000), Fraction(1, 4), Fraction(6)])
LOST = st.sampled_from([Fraction(0), Fraction(1, 10**9), Fraction(1, 50)])
RATES = st.sampled_from([Fraction(1, 10**6), Fraction(1, 20), Fraction(9, 10)])
ROUNDS = st.one_of(
    st.builds(claim, CLAIMED, LOST),
    st.builds(laplaces, SCALES, SHIFTS),
    st.builds(sampled, SCALES, SHIFTS, RATES),
    st.builds(thin, st.builds(DiscreteGaussian, sigma_squared=SMALL), SHIFTS),
    st.builds(thin, st.builds(Skellam, variance=SMALL), SHIFTS),
    st.builds(turning, st.builds(Poisson, mean=SMALL), SHIFTS),
    st.builds(turning, st.builds(Binomial, trials=st.integers(1, 4), probability=SMALL), SHIFTS),
)
LISTS = st.lists(st.tuples(ROUNDS, st.integers(1, 3)), min_size=1, max_size=3)
EPSILONS = st.sampled_from([Fraction(0), Fraction(1, 9), Fraction(1), Fraction(3), Fraction(11)])
DELTAS = st.sampled_from(
    [Fraction(1, 10**12), Fraction(1, 10**6), Fraction(1, 50), Fraction(2, 5), Fraction(9, 10)]
)


def totals(listed: Sequence[tuple[Round, int]]) -> Iterator[World]:
    """Return the products for fixed neighbours: every direction, every turn."""
    for direction in range(max(len(one.worlds) for one, _ in listed)):
        choices = []
        for one, count in listed:
            if one.turns:
                mixed = itertools.combinations_with_replacement(one.worlds, count)
                choices.append([list(worlds) for worlds in mixed])
            else:
                choices.append([[one.worlds[min(direction, len(one.worlds) - 1)]] * count])
        for chosen in itertools.product(*choices):
            yield product(itertools.chain(*chosen))


def product(worlds: Iterable[World]) -> World:
    total: World = [(mpmath.mpf(1), mpmath.mpf(1))]
    for world in worlds:
        total = gathered((p * r, q * s) for p, q in total for r, s in world)
    return total


def gathered(world: Iterable[tuple[Any, Any]]) -> World:
    # Outcomes with equal losses, to 40 digits, are merged.
    found: dict[Any, tuple[Any, Any]] = {}
    for p, q in world:
        if max(p, q) < mpmath.exp(-100):
            continue
        key = mpmath.nstr(p / q, 40) if p and q else bool(p)
        a, b = found.get(key, (0, 0))
        found[key] = a + p, b + q
    return list(found.values())


def size(listed: Sequence[tuple[Round, int]]) -> int:
    return math.prod(
        math.comb(len(one.worlds[0]) + count - 1, count) * (count + 1 if one.turns else 1)
        for one, count in listed
    )


def holds(found: Bound | Enclosure, truth: Any) -> bool:
    """Whether both bounds hold, for a reference accurate to ROOM."""
    room = real(ROOM)
    low = found.lower is None or real(Fraction(found.lower)) <= truth + room
    return bool(low and truth - room <= real(Fraction(found.upper)))


def inverts(found: Bound, curve: Callable[[Fraction], Any], delta: Fraction) -> bool:
    """Whether the curve is at most delta at the upper end, and at least delta at the lower one."""
    room = real(ROOM)
    if isinstance(found.upper, Fraction) and curve(found.upper) > real(delta) + room:
        return False
    if found.lower is None or found.lower == 0:
        return True
    # Far out the curve is P(L = oo): an infinite lower end states that this exceeds delta.
    lower = found.lower if isinstance(found.lower, Fraction) else Fraction(10**4)
    return bool(curve(lower) >= real(delta) - room)


NARROW, WIDE = DiscreteGaussian(sigma_squared=1), DiscreteGaussian(sigma_squared=2)
LAPLACE, SKELLAM = laplaces(Fraction(2), 1), thin(Skellam(variance=2), 1)
FIXED: dict[str, list[tuple[Round, int]]] = {
    "three laws": [(thin(NARROW, 1), 1), (LAPLACE, 1), (SKELLAM, 1)],
    "polya x2": [(thin(PolyaDifference(shape="1/2", scale=1), 1), 2)],
    "sum x2": [(thin(DiscreteGaussianSum(count=2, sigma_squared="1/2"), 1), 2)],
    "two scales": [(LAPLACE, 1), (laplaces(Fraction(1), 1), 2)],
}


@by_day(2)
@pytest.mark.parametrize("name", FIXED)
def test_a_fixed_list_agrees_with_enumeration(name: str) -> None:
    total = compose(*((one.part, count) for one, count in FIXED[name]))
    with mpmath.workdps(DIGITS):
        (world,) = totals(FIXED[name])
        for epsilon in map(Fraction, ("0", "1/2", "1", "3")):
            found = ends(total.delta(epsilon))
            assert holds(found, hockey_stick(world, epsilon))
            assert found.upper - found.lower <= found.upper / 10**7


@seed(20)
@settings(
    max_examples=effort(15, 60), deadline=None, suppress_health_check=[HealthCheck.filter_too_much]
)
@given(LISTS.filter(lambda listed: size(listed) < MOST_OUTCOMES), EPSILONS, DELTAS)
def test_random_lists_agree_with_enumeration(
    listed: list[tuple[Round, int]], epsilon: Fraction, delta: Fraction
) -> None:
    total = compose(*((one.part, count) for one, count in listed))
    with mpmath.workdps(DIGITS):
        worlds = list(totals(listed))
        assert holds(total.delta(epsilon), max(hockey_stick(w, epsilon) for w in worlds))
        found = total.epsilon(delta)
        assert inverts(found, lambda at: max(hockey_stick(w, at) for w in worlds), delta)


ROUGH = Fraction(1, 10**4)


def test_a_mutant_without_hidden_mass_is_detected() -> None:
    one = turning(Poisson(mean=Fraction(2, 5)), 2)
    pair = pair_of(Poisson(mean=Fraction(2, 5)), 2)
    parts = ((loss_of(pair, above=True), 2),)
    broken = mutated(Listing._either, "hidden = self.hidden + other.hidden", "hidden = 0")
    with mpmath.workdps(DIGITS), pytest.MonkeyPatch.context() as patch:
        truth = hockey_stick(product([one.worlds[1]] * 2), Fraction(1))
        found = Enumeration(parts=parts).delta(Fraction(1), ROUGH)
        assert found is not None
        assert truth <= real(Fraction(found.upper))
        patch.setattr(Listing, "_either", broken)
        found = Enumeration(parts=parts).delta(Fraction(1), ROUGH)
        assert found is None or not truth <= real(Fraction(found.upper))


def test_losses_beside_an_even_grid_are_covered() -> None:
    # Three losses, the middle one a little above its place on an even grid.
    law = law_of(("1/4", "-1"), ("1/2", "1/100"), ("1/4", "1"))
    parts = ((ListedLoss(listing=law.atoms, above=True), 6),)
    truth = float(exact_delta([(law, 6)], Fraction(1)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finite_pld, "_EVEN", 0.1)
        broken = mutated(Listing.convolved, "apart + 16", "16")
        for convolved, sound in ((Listing.convolved, True), (broken, False)):
            patch.setattr(Listing, "convolved", convolved)
            found = Enumeration(parts=parts).delta(Fraction(1), ROUGH)
            assert found is not None
            assert (found.upper >= truth * (1 - 1e-9)) is sound


def test_a_mutant_without_one_direction_is_detected() -> None:
    noise = Binomial(trials=3, probability="1/7")
    one = turning(noise, 1)
    broken = mutated(
        ways._of_shift,
        "above.append((TabledLoss.of(either, above=True), count))",
        "above.append((mirror, count))",
    )
    at = Fraction(2)
    with mpmath.workdps(DIGITS):
        truth = max(hockey_stick(world, at) for world in totals([(one, 2)]))
        for coordinates, sound in ((ways._of_shift, True), (broken, False)):
            total = ComposedLoss.of((law, 2) for law, _ in coordinates(noise, ((1, 1),)).above[0])
            assert (real(Fraction(total.delta(at).upper)) >= truth - real(ROOM)) is sound


def test_rounds_that_reveal_almost_surely_have_no_merged_outcomes() -> None:
    listing = Listing(np.geomspace(1, 2, 40), np.full(40, 1e-20), 1.0)
    parts = ((ListedLoss(listing=listing, above=True), 6),)
    assert Enumeration(parts=parts, most=1 << 8, coarse=True).delta(Fraction(1), ROUGH) is None


def test_merged_outcomes_bound_the_total_and_mutants_do_not() -> None:
    # Six rounds of seven losses, the outcomes of which are merged into 16.
    masses = ("3/10", "1/20", "1/5", "3/20", "1/10", "3/20", "1/20")
    losses = ("-1.7", "-0.9", "-0.31", "0.12", "0.55", "1.04", "2.3")
    law = law_of(*zip(masses, losses, strict=True))
    parts = ((ListedLoss(listing=law.atoms, above=True), 6),)
    truth = cache(lambda at: exact_delta([(law, 6)], Fraction(at)))

    def sound() -> bool:
        merged, good = Enumeration(parts=parts, most=1 << 8, coarse=True), True
        try:
            for at in map(Fraction, ("0", "1/2", "3", "8")):
                found = merged.delta(at, ROUGH)
                assert found is not None
                assert 0 < found.width <= found.upper / 2
                good &= real(found.lower) <= truth(at) <= real(found.upper)
            epsilon = merged.epsilon(Fraction("1e-3"), ROUGH)
        except InvalidParameter:  # ends in the wrong order
            return False
        assert epsilon is not None
        return good and truth(epsilon.upper) <= real("1e-3") <= truth(epsilon.lower)

    assert Enumeration(parts=parts, most=1 << 8).delta(Fraction(1), ROUGH) is None
    assert sound()
    for old, new in (
        ("np.log(np.maximum(whole, _TINY) / there)", "self.losses[np.append(kept[1:] - 1, -1)]"),
        ("self.masses * fall", "self.masses * fall * fall"),
        ("self.masses - up", "0 * up"),
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Listing, "coarser", mutated(Listing.coarser, old, new))
            assert not sound(), old
