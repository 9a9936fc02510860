r"""Convert guarantees to privacy loss distributions of dp-accounting that dominate them.

dp-accounting is an extra, imported at first use. This module also runs its accountants.

Proofs: docs/proofs/composition.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from importlib import import_module
from typing import Any, Final

from flint import arb

from accounting.composition.compose import Composition, compose, dominating_pairs
from accounting.errors import NotDerived
from accounting.guarantees.guarantee import Guarantee
from accounting.guarantees.stated_guarantees import Assumed
from accounting.numerical_composition.cell_refinement import AllocatedLoss, TabledLoss
from accounting.pld.discretised_pld import Listing
from accounting.privacy_curves.connect_the_dots import UNSEEN
from accounting.privacy_curves.dominating_pairs import Law, loss_of
from dpcore.errors import DpcoreError, InvalidParameter
from dpcore.numbers.enclosure import Enclosure, ball, integer_below, precision, round_up
from dpcore.numbers.parameter import RationalLike, positive_rational

_BITS: Final = 128
_SPARE: Final = 64
_MOST_NODES: Final = 1 << 20
_PADDING: Final = Fraction(1, 1 << 32)
_NEAR: Final = 2.0**-64


@dataclass(eq=False, repr=False)
class MissingExtra(DpcoreError):
    r"""A package of an optional extra is missing; the message names the extra to install."""

    package: str
    extra: str

    def __str__(self) -> str:
        return f"{self.package} is not installed: pip install 'dpcore[{self.extra}]'"


def library(name: str = "dp_accounting") -> Any:
    r"""The dp-accounting module, imported on first use."""
    try:
        return import_module(name)
    except ImportError as missing:
        raise MissingExtra("dp_accounting", "interop") from missing


def assumes(source: Guarantee) -> bool:
    r"""Whether the guarantee has assumptions beyond the claims among its parts."""
    if isinstance(source, Composition):
        return source.assumptions != compose(*source.parts).assumptions
    return isinstance(source, Assumed)


def to_pld(source: Guarantee, *, interval: RationalLike = "1e-4") -> Any:
    r"""A ``PrivacyLossDistribution`` of dp-accounting that dominates ``source``.

    Its losses are multiples of ``interval``, which dp-accounting needs to compose. Each loss is
    split between the two adjacent nodes so that both laws keep their masses (merging them again is
    post-processing), and every mass is rounded up. So delta of one round is at least the exact one
    at every epsilon, even after the rounding of its sums; several rounds are composed by
    dp-accounting, whose transform has an error of about 1e-16 in either direction.
    """
    kind = library("dp_accounting.pld.privacy_loss_distribution").PrivacyLossDistribution
    step = float(positive_rational("interval", interval, "the losses lie on multiples of it"))
    if assumes(source):
        reason = "a PLD cannot record the assumptions"
        raise NotDerived(f"a dp-accounting PLD of {source!r}", reason)
    parts = source.parts if isinstance(source, Composition) else ((source, 1),)
    return _composed([(_round(kind, one, step), rounds) for one, rounds in parts])


def _composed(listed: list[tuple[Any, int]]) -> Any:
    many = (one if rounds == 1 else one.self_compose(rounds) for one, rounds in listed)
    return reduce(lambda left, right: left.compose(right), many)


def _round(kind: Any, source: Guarantee, step: float) -> Any:
    stood = dominating_pairs(source)
    made = []
    if stood.lost or not stood.above[0]:
        # A mass of 1 at loss 0 in addition to the infinite loss: the total mass exceeds 1 by delta.
        lost = kind.create_from_rounded_probability({0: 1.0}, round_up(stood.lost), step)
        made.append((lost, 1))
    # One list of laws per direction, of equal length; delta is that of the worse direction.
    for laws in zip(*stood.above, strict=True):
        listed = [_nodes_of(law, step) for law, _ in laws]
        counts = {count for _, count in laws}
        if len(counts) > 1 or len(listed) > 2:
            reason = "its two directions have different shapes"
            raise NotDerived(f"a distribution of {source!r}", reason)
        other: dict[str, Any] = {}
        if len(listed) > 1:
            masses, infinite = listed[1]
            other = {"rounded_probability_mass_function_add": masses}
            other |= {"infinity_mass_add": infinite, "symmetric": False}
        one = kind.create_from_rounded_probability(*listed[0], step, **other)
        made.append((one, counts.pop()))
    return _composed(made)


def _nodes_of(law: Law, step: float) -> tuple[dict[int, float], float]:
    match loss_of(law, above=True):
        case TabledLoss() as part:
            listing = part.cut(float(UNSEEN)).listing()
        case AllocatedLoss() as part:
            listing = part.atoms
        case _:
            raise NotDerived(f"a distribution of {law!r}", "it has a closed form")
    with precision(_BITS + _SPARE):
        return nodes(listing, step)


def nodes(listed: Listing, step: float) -> tuple[dict[int, float], float]:
    r"""Dominating masses on the losses j ``step``, by key j, and the mass at infinity.

    An outcome of loss l with P-mass a and Q-mass b = a e^-l goes to the nodes u <= l <= v: to v
    with a (1 - e^(u-l))/(1 - e^(u-v)), to u with the remainder; then P and Q keep a and b. A node
    is the float that dp-accounting computes for it. A loss within 2^-64 of a node is moved there;
    the mass that this may lose is counted as infinite loss, like hidden mass.
    """
    found: dict[int, arb] = {}
    seen = moved = arb(0)
    for mass, loss in zip(map(arb, listed.masses), map(arb, listed.losses), strict=True):
        seen += mass
        low = integer_below(loss / ball(Fraction(step)))
        near = next((k for k in (low, low + 1) if abs(_node(k, step) - loss) < _NEAR), None)
        if near is not None:
            found[near] = found.get(near, arb(0)) + mass
            moved += mass * abs(_node(near, step) - loss)
            continue
        while not _node(low, step) <= loss:
            low -= 1
        high = low + 1
        while not _node(high, step) >= loss:
            high += 1
        u, v = _node(low, step), _node(high, step)
        share = ((u - loss).expm1() / (u - v).expm1()).max(arb(0)).min(arb(1))
        found[high] = found.get(high, arb(0)) + mass * share
        found[low] = found.get(low, arb(0)) + mass * (1 - share)
    if found and max(found) - min(found) > _MOST_NODES:
        reason = "is too small: the losses need more than 2^20 grid points"
        raise InvalidParameter("interval", step, reason)
    hidden = (1 - seen).max(arb(listed.hidden))
    return {key: _padded(mass) for key, mass in found.items()}, _padded(hidden + moved)


def _node(key: int, step: float) -> arb:
    return ball(Fraction(key * step))


def _padded(mass: arb) -> float:
    # 2^20 float additions lose less than 2^-32 of a sum of non-negative terms.
    upper = max(Fraction(Enclosure.of(mass).upper), Fraction(0))
    return round_up(upper * (1 + _PADDING))


def accountants_of_dp_accounting(
    sigma: Fraction, rate: Fraction, rounds: Sequence[int], delta: Fraction
) -> dict[str, tuple[float, ...]]:
    r"""Epsilon of sampled Gaussian noise after each number of ``rounds`` by accountant, add-remove.

    These are the results of dp-accounting's RDP accountant and PLD accountant at the default grid.
    """
    dp = library("dp_accounting")
    event = dp.PoissonSampledDpEvent(float(rate), dp.GaussianDpEvent(float(sigma)))
    kinds = {
        "RDP of dp-accounting": library("dp_accounting.rdp").RdpAccountant,
        "PLD of dp-accounting": library("dp_accounting.pld").PLDAccountant,
    }
    return {
        tool: tuple(
            float(made().compose(event, count).get_epsilon(float(delta))) for count in rounds
        )
        for tool, made in kinds.items()
    }
