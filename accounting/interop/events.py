r"""To and from dp-accounting: its events, its loss distributions, an accountant for its users.

dp-accounting is an extra, ``pip install dpcore[interop]``; nothing here imports it before it is
needed. It computes in floats: what leaves for it is rounded so that it promises no more than we do,
and what its own arithmetic then adds is not ours to bound. What comes from it is read as a
statement of its caller: the law of an integer noise gives an exact curve; noise on the reals, which
no code draws exactly, and claims enter as assumed, with the event as the reason.
Proofs: docs/proofs/interop.md.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final

from accounting.claims.claim import Approx, Assumed, Pure, Rdp, ZCdp
from accounting.claims.guarantee import Guarantee
from accounting.errors import NotDerived
from accounting.interop.distributions import MissingExtra, assumes, at_least, library, to_pld
from accounting.reals.normal_loss import NormalLoss
from accounting.reals.sampled_laplace import SampledLaplace
from accounting.release.curve import PrivacyCurve
from accounting.release.real_curve import RealCurve
from accounting.release.subsampling import FixedSizeSampled, PoissonSampled
from accounting.totals.compose import Composition, compose
from dpcore.errors import DpcoreError, InvalidParameter
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.mechanism import Norm, Relation, Scope, Sensitivity
from dpcore.numbers.enclosure import Enclosure, ball, precision, round_down
from dpcore.numbers.parameter import integer, positive_rational, rational

__all__ = ["MissingExtra", "accountant", "from_dp_event", "to_dp_event", "to_pld"]

_BITS: Final = 128
_ORDERS: Final = (Fraction(3, 2), *(Fraction(order) for order in (2, 3, 4, 6, 8, 16, 32, 64, 256)))
_ADD_REMOVE: Final = Scope(relation=Relation.ADD_REMOVE)


# -- to events --------------------------------------------------------------------------------


def to_dp_event(source: Guarantee) -> Any:
    r"""The event of dp-accounting that promises no more than ``source``.

    Discrete Laplace noise in one number or in l1 is a ``DiscreteLaplaceDpEvent``, to be read under
    ADD_OR_REMOVE_ONE; so is Pure(e), as noise of parameter e that is moved by 1. Any other noise is
    its zCDP parameter, a ``ZCDpEvent``: version 0.6 has no event for discrete Gaussian, Skellam or
    Polya noise (:func:`to_pld` keeps their whole curve). Sampling of discrete Laplace noise, and
    lists, keep their shape. A randomised response event is never made: the PLD accountant of 0.6
    charges many rounds of one as a single round.

    Raises :class:`NotDerived` for Approx and Rdp claims, which have no event, and for assumed
    claims, whose reason an event cannot carry.
    """
    dp = library("dp_accounting.dp_event")
    match source:
        case Composition(parts=parts):
            if assumes(source):
                raise _no_event(repr(source), "an event carries no assumption")
            events = [_repeated(dp, _event(dp, part), rounds) for part, rounds in parts]
            return events[0] if len(events) == 1 else dp.ComposedDpEvent(events)
        case Assumed():
            raise _no_event(repr(source), "an event carries no assumption")
    return _event(dp, source)


def _event(dp: Any, source: Guarantee) -> Any:
    match source:
        case Pure(stated_epsilon=epsilon):
            e = Fraction(epsilon)
            return dp.DiscreteLaplaceDpEvent(at_least(e), 1) if e else dp.NoOpDpEvent()
        case ZCdp(rho=rho):
            return dp.ZCDpEvent(at_least(Fraction(rho)))
        case PoissonSampled(curve=curve, rate=rate):
            inner = _integer_event(dp, curve)
            return dp.PoissonSampledDpEvent(min(at_least(Fraction(rate)), 1.0), inner)
        case FixedSizeSampled(curve=curve, sample=sample, population=population):
            inner = _integer_event(dp, curve)
            return dp.SampledWithoutReplacementDpEvent(population, sample, inner)
        case RealCurve():
            return _real_event(dp, source)
        case PrivacyCurve() if _one_laplace(source):
            return _integer_event(dp, source)
        case PrivacyCurve():
            rho = source.zcdp().upper
            if not isinstance(rho, Fraction):
                raise _no_event(repr(source), "its zCDP parameter is infinite: use to_pld")
            return dp.ZCDpEvent(at_least(rho))
    raise _no_event(repr(source), "version 0.6 has none for such a claim")


def _one_laplace(curve: PrivacyCurve) -> bool:
    norm = Sensitivity.of(curve.sensitivity).norm
    return isinstance(curve.noise, DiscreteLaplace) and norm in (Norm.ABSOLUTE, Norm.L1)


def _integer_event(dp: Any, curve: PrivacyCurve | RealCurve) -> Any:
    if isinstance(curve, RealCurve):
        return _real_event(dp, curve)
    if not isinstance(curve.noise, DiscreteLaplace) or not _one_laplace(curve):
        raise _no_event(repr(curve), "sampling of noise that has no event of its own")
    parameter = at_least(1 / Fraction(curve.noise.scale))
    return dp.DiscreteLaplaceDpEvent(parameter, Sensitivity.of(curve.sensitivity).amount)


def _real_event(dp: Any, curve: RealCurve) -> Any:
    # A larger loss is a smaller multiplier: rounded so that the event promises no more.
    loss = curve.loss()
    if isinstance(loss, NormalLoss):
        with precision(_BITS):
            root = Enclosure.of((1 / ball(loss.variance)).sqrt()).lower
        return dp.GaussianDpEvent(round_down(root))
    assert isinstance(loss, SampledLaplace)  # noqa: S101  # the loss of everybody
    return dp.LaplaceDpEvent(round_down(1 / loss.spread))


def _repeated(dp: Any, event: Any, rounds: int) -> Any:
    return event if rounds == 1 else dp.SelfComposedDpEvent(event, rounds)


def _no_event(what: str, why: str) -> NotDerived:
    return NotDerived(f"an event of dp-accounting for {what}", why)


# -- from events ------------------------------------------------------------------------------


def from_dp_event(event: Any, scope: Scope = _ADD_REMOVE) -> Composition:
    r"""What an event of dp-accounting says, as a composition of ours under ``scope``.

    An event has no scope: ``scope`` names the relation under which it is read. Bounds in events are
    of one record, so replacing a record moves a sum by twice as much. Discrete Laplace events are
    exact curves, sampled ones amplified curves, randomised response is pure. Gaussian and Laplace
    events are noise on the reals: a zCDP and a pure claim, assumed, for no code draws them exactly;
    so is a ``ZCDpEvent``. The reasons are the assumptions of the composition.

    Raises :class:`InvalidParameter` for anything but an event, and :class:`NotDerived` for events
    that no guarantee of ours states.
    """
    dp = library("dp_accounting.dp_event")
    if not isinstance(event, dp.DpEvent):
        raise InvalidParameter("event", event, "must be a DpEvent of dp_accounting")
    if not isinstance(scope, Scope):
        raise InvalidParameter("scope", scope, "must be a Scope")
    return _read(dp, event, scope)


def _read(dp: Any, event: Any, scope: Scope) -> Composition:
    match event:
        case dp.SelfComposedDpEvent():
            count = integer("count", event.count, at_least=0)
            inner = _read(dp, event.event, scope)
            return compose((inner, count)) if count else compose(Pure(0, scope=scope))
        case dp.ComposedDpEvent():
            parts = [_read(dp, each, scope) for each in event.events]
            return compose(*parts) if parts else compose(Pure(0, scope=scope))
        case dp.PoissonSampledDpEvent() | dp.SampledWithoutReplacementDpEvent():
            return compose(_sampled(dp, event, scope))
    return compose(_single(dp, event, scope))


def _single(dp: Any, event: Any, scope: Scope) -> Guarantee:
    # How far one record can move a sum whose terms are bounded by 1.
    moves = 2 if scope.relation is Relation.REPLACE else 1
    match event:
        case dp.NoOpDpEvent():
            return Pure(0, scope=scope)
        case dp.NonPrivateDpEvent():
            return Approx(0, 1, scope=scope)
        case dp.DiscreteLaplaceDpEvent(noise_parameter=0):
            return Approx(0, 1, scope=scope)
        case dp.DiscreteLaplaceDpEvent():
            parameter = _positive("noise_parameter", event.noise_parameter)
            return PrivacyCurve(
                noise=DiscreteLaplace(scale=1 / parameter),
                sensitivity=Sensitivity.l1(moves * integer("sensitivity", event.sensitivity)),
                scope=scope,
            )
        case dp.RandomizedResponseDpEvent():
            return _response(event, scope)
        case dp.GaussianDpEvent() | dp.LaplaceDpEvent() if event.noise_multiplier == 0:
            return Approx(0, 1, scope=scope)
        case dp.GaussianDpEvent():
            multiplier = _positive("noise_multiplier", event.noise_multiplier)
            rho = Fraction(moves * moves) / (2 * multiplier**2)
            return Assumed(ZCdp(rho, scope=scope), _real(event))
        case dp.LaplaceDpEvent():
            multiplier = _positive("noise_multiplier", event.noise_multiplier)
            return Assumed(Pure(moves / multiplier, scope=scope), _real(event))
        case dp.ZCDpEvent():
            return Assumed(_concentrated(event, scope), f"claimed by the event {event!r}")
    raise NotDerived(f"a guarantee from {event!r}", "no claim of ours states it")


def _real(event: object) -> str:
    return f"noise on the reals, drawn without rounding, as in the event {event!r}"


def _concentrated(event: Any, scope: Scope) -> ZCdp | Rdp:
    rho, xi = rational("rho", event.rho), rational("xi", event.xi)
    if xi == 0:
        return ZCdp(rho, scope=scope)
    return Rdp([(order, xi + rho * order) for order in _ORDERS], scope=scope)


def _response(event: Any, scope: Scope) -> Guarantee:
    # Of k buckets the true one is shown with chance 1 - p + p/k, any other with p/k.
    k = integer("num_buckets", event.num_buckets, at_least=1)
    p = rational("noise_parameter", event.noise_parameter)
    if not 0 <= p <= 1:
        raise InvalidParameter("noise_parameter", p, "must lie in [0, 1]")
    if scope.relation is not Relation.REPLACE:
        raise NotDerived(f"a guarantee from {event!r}", "randomised response replaces a record")
    if k == 1:
        return Pure(0, scope=scope)
    if p == 0:
        return Approx(0, 1, scope=scope)
    with precision(_BITS):
        loss = Enclosure.of(ball((1 - p) * k / p + 1).log())
    return Pure(Fraction(loss.upper), scope=scope)


def _sampled(dp: Any, event: Any, scope: Scope) -> Guarantee:
    inner = _read(dp, event.event, scope)
    ((curve, rounds),) = inner.parts if len(inner.parts) == 1 else ((None, 0),)
    if rounds != 1 or not isinstance(curve, PrivacyCurve) or inner.assumptions:
        raise NotDerived(
            f"a guarantee from {event!r}", "only one round of an exact noise is sampled"
        )
    if isinstance(event, dp.PoissonSampledDpEvent):
        rate = rational("sampling_probability", event.sampling_probability)
        return PoissonSampled(curve=curve, rate=rate) if rate else Pure(0, scope=scope)
    return FixedSizeSampled(
        curve=curve, sample=event.sample_size, population=event.source_dataset_size
    )


def _positive(argument: str, value: object) -> Fraction:
    return positive_rational(argument, value, "it scales the noise")


# -- an accountant ----------------------------------------------------------------------------


def accountant(neighboring_relation: Any = None) -> Any:
    r"""A ``PrivacyAccountant`` of dp-accounting whose numbers are the upper ends of our enclosures.

    It has the methods of theirs: supports, compose, get_epsilon, get_delta, ledger; events mean
    what :func:`from_dp_event` says. ``assumptions`` names what it had to believe. The relation is
    ADD_OR_REMOVE_ONE (by default) or REPLACE_ONE.

    Raises :class:`InvalidParameter` for any other relation.
    """
    relations = library().NeighboringRelation
    relation = relations.ADD_OR_REMOVE_ONE if neighboring_relation is None else neighboring_relation
    scopes = {
        relations.ADD_OR_REMOVE_ONE: Relation.ADD_REMOVE,
        relations.REPLACE_ONE: Relation.REPLACE,
    }
    if relation not in scopes:
        raise InvalidParameter(
            "neighboring_relation", relation, "must be ADD_OR_REMOVE_ONE or REPLACE_ONE"
        )
    return _kind()(relation, Scope(relation=scopes[relation]))


@lru_cache(maxsize=1)
def _kind() -> Callable[..., Any]:
    dp = library()
    base: Any = dp.PrivacyAccountant

    class CertifiedAccountant(base):  # type: ignore[misc]  # the base is known when it is installed
        r"""Composes events through :func:`accounting.interop.events.from_dp_event`."""

        def __init__(self, relation: Any, scope: Scope) -> None:
            super().__init__(relation)
            self._scope = scope
            self._parts: list[Guarantee] = []

        def _maybe_compose(self, event: Any, count: int, do_compose: bool) -> Any:  # noqa: FBT001 - its interface
            try:
                found = from_dp_event(event, self._scope)
            except DpcoreError as refusal:
                return self.CompositionErrorDetails(event, str(refusal))
            if do_compose and count:
                self._parts.append(compose((found, count)))
            return None

        @property
        def assumptions(self) -> tuple[str, ...]:
            r"""What was believed of the events, in their order."""
            return self._total().assumptions

        def get_epsilon(self, target_delta: float) -> float:
            return self._total().epsilon(target_delta).upper_float

        def get_delta(self, target_epsilon: float) -> float:
            return self._total().delta(target_epsilon).upper_float

        def _total(self) -> Composition:
            return compose(*(self._parts or [Pure(0, scope=self._scope)]))

    return CertifiedAccountant
