r"""Convert guarantees to events and PLDs of dp-accounting, and provide a certified accountant.

The library is an extra (``pip install dpcore[interop]``) and is imported at first use. It computes
in floats. Exported values are rounded to the safe side, but the rounding errors of the library are
not bounded. The accountant trusts the events that its caller states. An event of integer noise
becomes an exact curve; for real-valued noise, exact sampling is an assumption. An event that states
a guarantee becomes an :class:`Assumed` claim. Proofs: docs/proofs/composition.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache, reduce
from typing import Any, Final

from flint import arb

from accounting.composition.compose import Composition, compose, dominating_pairs
from accounting.derive_guarantee import guarantee
from accounting.descriptions.description import Description
from accounting.descriptions.real_noise import Gaussian, Laplace
from accounting.descriptions.sampling_schemes import (
    EVERYONE,
    Everyone,
    FixedSize,
    Poisson,
    TruncatedPoisson,
)
from accounting.errors import NotDerived
from accounting.guarantees.guarantee import Guarantee
from accounting.guarantees.stated_guarantees import Assumed, BoundedRange, Pure, ZCdp
from accounting.interop.from_dp_accounting import from_dp_event, library, refused_part, reveals_all
from accounting.pld.finite_pld import Listing
from accounting.pld_composition.cell_refinement import AllocatedLoss, TabledLoss
from accounting.privacy_curves.connect_the_dots import UNSEEN
from accounting.privacy_curves.dominating_pairs import Law, loss_of
from accounting.privacy_curves.local_report_curve import ReportCurve
from accounting.privacy_curves.matrix_mechanism import MatrixCurve
from accounting.privacy_curves.release_curve import OneRelease, described
from dpcore.errors import InvalidParameter
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.mechanism import Norm, Relation, Scope, Sensitivity
from dpcore.numbers.enclosure import (
    Enclosure,
    End,
    ball,
    integer_below,
    precision,
    round_down,
    round_up,
)
from dpcore.numbers.parameter import RationalLike, positive_rational, rational

_BITS: Final = 128
_FAR: Final = 10**9
_SPARE: Final = 64
_MOST_NODES: Final = 1 << 20
_PADDING: Final = Fraction(1, 1 << 32)
_NEAR: Final = 2.0**-64


def assumes(source: Guarantee) -> bool:
    r"""Whether ``source`` is :class:`Assumed`, or has assumptions that its parts do not imply."""
    if isinstance(source, Composition):
        return source.assumptions != compose(*source.parts).assumptions
    return isinstance(source, Assumed)


# -- to events --------------------------------------------------------------------------------


def to_dp_event(source: Guarantee) -> Any:
    r"""An event of dp-accounting whose guarantee is implied by ``source``.

    - Discrete Laplace noise on one number, or with an l1 sensitivity, becomes a
      ``DiscreteLaplaceDpEvent``, which the library must evaluate under ADD_OR_REMOVE_ONE.
    - Pure(e), or a local report with largest loss e, becomes the same event with parameter e and
      sensitivity 1.
    - Other integer noise becomes a ``ZCDpEvent`` with its zCDP parameter, since version 0.6 has no
      event for it; :func:`to_pld` keeps the whole curve.
    - Real-valued noise becomes a ``GaussianDpEvent`` or a ``LaplaceDpEvent``.
    - Compositions, samples of discrete Laplace or real-valued noise, and truncated batches whose
      rate is a float become events of the same structure.

    A randomised response event is never created: the PLD accountant of version 0.6 charges many
    rounds of such an event as one round. Raises :class:`NotDerived` if no such event exists.
    """
    dp = library("dp_accounting.dp_event")
    if assumes(source):
        raise _no_event(repr(source), "an event cannot record assumptions")
    if not isinstance(source, Composition):
        return _event(dp, source)
    listed = [(_event(dp, part), rounds) for part, rounds in source.parts]
    events = [dp.SelfComposedDpEvent(one, k) if k > 1 else one for one, k in listed]
    return events[0] if len(events) == 1 else dp.ComposedDpEvent(events)


def _event(dp: Any, source: Guarantee) -> Any:
    match source:
        case BoundedRange():
            return dp.ZCDpEvent(round_up(Fraction(source.zcdp().upper)))
        case Pure(stated_epsilon=epsilon):
            return dp.DiscreteLaplaceDpEvent(round_up(epsilon), 1) if epsilon else dp.NoOpDpEvent()
        case ReportCurve():
            return dp.DiscreteLaplaceDpEvent(round_up(Fraction(source.pure().upper)), 1)
        case ZCdp(rho=rho):
            return dp.ZCDpEvent(round_up(rho))
        case MatrixCurve():
            return _gaussian(dp, source)
    description = described(source)
    drawn = None if description is None else _described(dp, source, description)
    if drawn is not None:
        return drawn
    if isinstance(source, OneRelease) and (description is None or description.scheme == EVERYONE):
        found = source.zcdp().upper
        if not isinstance(found, Fraction):
            raise _no_event(repr(source), "its zCDP parameter is infinite: use to_pld")
        return dp.ZCDpEvent(round_up(found))
    raise _no_event(repr(source), "dp-accounting 0.6 has no event for this claim")


def _described(dp: Any, source: Guarantee, description: Description) -> Any:
    # None if dp-accounting has no event for this scheme.
    match description.scheme:
        case Everyone() if description.real or _one_laplace(description):
            return _noise(dp, description)
        case Poisson(rate=rate) if description.group == 1 and not description.replaced:
            return dp.PoissonSampledDpEvent(min(round_up(rate), 1.0), _noise(dp, description))
        case FixedSize(sample=sample, population=population):
            inner = _noise(dp, description)
            return dp.SampledWithoutReplacementDpEvent(population, sample, inner)
        case TruncatedPoisson() as cut:
            return _truncated(dp, source, description, cut)
    return None


def _one_laplace(description: Description) -> bool:
    norm = Sensitivity.of(description.sensitivity).norm
    return isinstance(description.noise, DiscreteLaplace) and norm in (Norm.ABSOLUTE, Norm.L1)


def _noise(dp: Any, description: Description) -> Any:
    # The noise without sampling. The multiplier is rounded down, so that the event does not
    # overstate the privacy.
    moves = description.moved
    match description.noise:
        case DiscreteLaplace(scale=scale) if _one_laplace(description):
            return dp.DiscreteLaplaceDpEvent(round_up(1 / Fraction(scale)), moves.amount)
        case Laplace():
            loss = Fraction(_curve(description).pure().upper)
            return dp.LaplaceDpEvent(round_down(1 / loss))
        case Gaussian():
            return _gaussian(dp, _curve(description))
    raise _no_event(description.text, "dp-accounting has no event for this noise under subsampling")


def _curve(description: Description) -> Guarantee:
    return guarantee(replace(description, scheme=EVERYONE, relation=description.added))


def _gaussian(dp: Any, curve: Guarantee) -> Any:
    return dp.GaussianDpEvent(round_down(_root(1 / (2 * Fraction(curve.zcdp().upper)))))


def _truncated(dp: Any, source: Guarantee, description: Description, cut: TruncatedPoisson) -> Any:
    if description.replaced:
        raise _no_event(repr(source), "the event requires the relation ADD_OR_REMOVE_ONE")
    if rational("rate", float(cut.rate)) != cut.rate:
        why = "its rate is not exactly representable as a float, and rounding it up may lower "
        raise _no_event(repr(source), f"{why}the privacy cost")
    inner = _noise(dp, description)
    return dp.TruncatedSubsampledGaussianDpEvent(
        cut.examples, float(cut.rate), cut.most, inner.noise_multiplier
    )


def _root(value: Fraction) -> End:
    # The square root, rounded down.
    top, bottom = math.isqrt(value.numerator), math.isqrt(value.denominator)
    if Fraction(top * top, bottom * bottom) == value:
        return Fraction(top, bottom)
    with precision(_BITS):
        return Enclosure.of(ball(value).sqrt()).lower


def _no_event(what: str, why: str) -> NotDerived:
    return NotDerived(f"an event of dp-accounting for {what}", why)


# -- to loss distributions ---------------------------------------------------------------------


def to_pld(source: Guarantee, *, interval: RationalLike = "1e-4") -> Any:
    r"""A ``PrivacyLossDistribution`` of dp-accounting that dominates ``source``.

    Its losses are multiples of ``interval``, as dp-accounting requires for composition. Each
    outcome is split into two outcomes at the adjacent multiples, so that its probability is
    unchanged under both datasets. Merging the two outcomes is post-processing, so the split
    distribution dominates the original one. Every mass is rounded up. So the delta of one round is
    at least the exact delta at every epsilon, even after dp-accounting rounds its sums. Several
    rounds are composed by dp-accounting, whose transform has an error of about 1e-16 in either
    direction.
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
            reason = "a PLD holds at most two directions, with equal numbers of rounds"
            raise NotDerived(f"a dp-accounting PLD of {source!r}", reason)
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
            raise NotDerived(f"a distribution of {law!r}", "its loss is not discretised")
    with precision(_BITS + _SPARE):
        return nodes(listing, step)


def nodes(listed: Listing, step: float) -> tuple[dict[int, float], float]:
    r"""Discretise privacy losses to multiples of ``step``, so that the result dominates.

    Returns the masses as {j: mass of the loss j ``step``}, and the mass at infinity. Consider an
    outcome with loss l, P-mass a and Q-mass b = a e^-l, and adjacent multiples u <= l <= v. The
    mass a (1 - e^(u-l))/(1 - e^(u-v)) goes to v and the rest of a to u, so that a and b are
    preserved. Each multiple is the float that dp-accounting computes for it. A loss within 2^-64 of
    a multiple is moved there. The mass at infinity includes the mass that this move may lose, and
    that of unlisted outcomes.
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
        reason = "is too small: the losses need more grid points than the limit of 2^20"
        raise InvalidParameter("interval", step, reason)
    hidden = (1 - seen).max(arb(listed.hidden))
    return {key: _padded(mass) for key, mass in found.items()}, _padded(hidden + moved)


def _node(key: int, step: float) -> arb:
    return ball(Fraction(key * step))


def _padded(mass: arb) -> float:
    # 2^20 float additions lose less than 2^-32 of a sum of non-negative terms.
    upper = max(Fraction(Enclosure.of(mass).upper), Fraction(0))
    return round_up(upper * (1 + _PADDING))


# -- an accountant ----------------------------------------------------------------------------


def accountant(neighboring_relation: Any = None) -> Any:
    r"""A ``PrivacyAccountant`` of dp-accounting whose numbers are proven upper bounds.

    It has the methods supports, compose, get_epsilon, get_delta and ledger of the library; events
    are interpreted as in :func:`from_dp_event`. ``assumptions`` lists all assumptions. The relation
    is ADD_OR_REMOVE_ONE (by default) or REPLACE_ONE.
    """
    relations = library().NeighboringRelation
    relation = relations.ADD_OR_REMOVE_ONE if neighboring_relation is None else neighboring_relation
    scopes = {relations.ADD_OR_REMOVE_ONE: Relation.ADD_REMOVE}
    scopes[relations.REPLACE_ONE] = Relation.REPLACE
    if relation not in scopes:
        reason = "must be ADD_OR_REMOVE_ONE or REPLACE_ONE"
        raise InvalidParameter("neighboring_relation", relation, reason)
    return _kind()(relation, Scope(relation=scopes[relation]))


@lru_cache(maxsize=1)
def _kind() -> Callable[..., Any]:
    dp = library()
    base: Any = dp.PrivacyAccountant

    class CertifiedAccountant(base):  # type: ignore[misc]  # the base is known when it is installed
        def __init__(self, relation: Any, scope: Scope) -> None:
            super().__init__(relation)
            self._scope = scope
            self._parts: list[Guarantee] = []

        def _maybe_compose(self, event: Any, count: int, do_compose: bool) -> Any:  # noqa: FBT001 - its interface
            offender = refused_part(event, self._scope)
            if offender is not None:
                return self.CompositionErrorDetails(offender[0], str(offender[1]))
            if do_compose and count:
                self._parts.append(compose((from_dp_event(event, self._scope), count)))
            return None

        @property
        def assumptions(self) -> tuple[str, ...]:
            return self._total().assumptions

        def get_epsilon(self, target_delta: float) -> float:
            total = self._total()
            # A claim that may reveal all data has an infinite epsilon, even at delta = 1.
            return math.inf if reveals_all(total) else total.epsilon(target_delta).upper_float

        def get_delta(self, target_epsilon: float) -> float:
            at = _FAR if target_epsilon == math.inf else target_epsilon
            return self._total().delta(at).upper_float

        def _total(self) -> Composition:
            return compose(*(self._parts or [Pure(0, scope=self._scope)]))

    return CertifiedAccountant
