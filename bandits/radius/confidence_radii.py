r"""Confidence radii for released means, which decide the elimination of arms.

:class:`ExactRadius` (the default) is certified for the law of the actual noise in the sum;
:class:`PaperRadius` is equation 2 of Chowdhury and Zhou (CZ, arXiv 2206.05772), and
:class:`DpSeRadius` is that of Sajed and Sheffet (2019). ``failure`` is always p, the error
probability of the whole run: with probability at least 1 - p, all intervals of all batches contain
their means. It is not the failure probability of a protocol, which sets tau. Proofs:
docs/proofs/radius.md.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Literal, TypeAlias

from flint import arb

from bandits.batch import failure_probability_of
from bandits.privatizers.batch_sums import SumPrivatizer
from bandits.privatizers.privatizer import Privatizer, Unprotected
from bandits.radius.certified_width import LEAST_FAILURE, certified_gap, certified_width, has_gap
from dpcore.errors import InvalidParameter
from dpcore.numbers.enclosure import ball, narrow
from dpcore.numbers.parameter import RationalLike, check_fields, integer, make_integers
from dpcore.protocols.noisy_sums import ModularSum
from dpcore.spec_syntax import word

RadiusName: TypeAlias = Literal["exact", "paper"]

TailName: TypeAlias = Literal["printed", "released"]
r"""The h of a :class:`PaperRadius` for Renyi noise: that of the paper or of its code."""

Size: TypeAlias = int | tuple[int, ...]
r"""The number of users of a batch, or of each of its parts."""

_BITS: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Radius(ABC):
    r"""A rule for the confidence width of a released mean."""

    @abstractmethod
    def width(
        self, privatizer: Privatizer, pulls: int, *, batch: int, active: int, failure: RationalLike
    ) -> float:
        r"""The width beta of a mean of ``pulls`` rewards, rounded up.

        If the rule is proven, \|released mean - true mean\| <= beta holds for all arms and batches
        together, except with probability p = ``failure``.
        """

    def gap(
        self, privatizer: Privatizer, pulls: Size, *, batch: int, active: int, failure: RationalLike
    ) -> float:
        r"""The gap below the best mean beyond which an arm is dropped: 2 beta for intervals."""
        each = integer("pulls", pulls, at_least=1)
        return 2 * self.width(privatizer, each, batch=batch, active=active, failure=failure)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactRadius(Radius):
    r"""The certified width for the actual noise, at failure p w(b)/\|Phi\| per arm in batch b.

    w(b) = 1/``batches`` if the maximum number of batches is known (``Schedule.batches``), otherwise
    1/(b(b+1)), which sums to 1 and is at least the 1/(2 b^2) of the papers. The certified bound
    (``bandits.radius.certified_width``) covers reward, noise and wraparound with this failure.
    """

    batches: int | None = None

    def __post_init__(self) -> None:
        if self.batches is not None:
            make_integers(self, "batches")

    def weight(self, batch: int) -> Fraction:
        r"""The fraction w(b) of p assigned to batch b."""
        b = integer("batch", batch, at_least=1, at_most=self.batches, limit="batches")
        return Fraction(1, b * (b + 1)) if self.batches is None else Fraction(1, self.batches)

    def width(
        self, privatizer: Privatizer, pulls: int, *, batch: int, active: int, failure: RationalLike
    ) -> float:
        share = _failure(failure) * self.weight(batch) / _active(active)
        share -= privatizer.missed(pulls)
        if share <= 0:
            return math.inf
        return certified_width(
            privatizer.noise(pulls),
            precision=privatizer.precision(pulls),
            pulls=privatizer.reporting(pulls),
            failure=share,
            threshold=_threshold(privatizer, pulls),
        )

    def gap(
        self, privatizer: Privatizer, pulls: Size, *, batch: int, active: int, failure: RationalLike
    ) -> float:
        r"""The certified width of the difference of two means: about sqrt(2) beta, not 2 beta.

        The best arm is compared with the \|Phi\| - 1 others, each with failure p w(b)/(\|Phi\| -
        1): then the best arm is kept, and every arm more than 2 gaps below it is dropped. For a law
        whose difference is unknown the gap is 2 beta. ``pulls`` may be the sizes of the parts of a
        batch, whose noise terms add.
        """
        parts = pulls if isinstance(pulls, tuple) else (pulls,)
        others = max(_active(active) - 1, 1)
        # The release of either arm may have noise of another law, so both failures are subtracted.
        share = _failure(failure) * self.weight(batch) / others
        noise, missed = privatizer.of_parts(parts)
        share -= 2 * missed
        if share <= 0 or (missed and share < LEAST_FAILURE):
            return math.inf
        if not has_gap(noise):
            return Radius.gap(self, privatizer, pulls, batch=batch, active=active, failure=failure)
        return certified_gap(
            noise,
            precision=privatizer.precision(parts[0]),
            pulls=sum(map(privatizer.reporting, parts)),
            failure=share,
            threshold=_threshold(privatizer, *parts) if len(parts) == 1 else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperRadius(Radius):
    r"""CZ equation 2: sqrt(ln(4\|Phi\|b^2/p)/(2l)) + sigma sqrt(ln(2\|Phi\|b^2/p))/l
    + h ln(2\|Phi\|b^2/p)/l.

    ``sigma`` and ``h`` depend on the trust model (:meth:`constants`). The paper shows that all
    intervals hold with probability at least 1 - 3p. For Renyi noise ``form="released"`` uses h =
    1/(s epsilon) as the code released with the paper, ``"printed"`` sqrt(2)/(s epsilon sqrt l).
    """

    form: TailName = word(TailName, "printed")

    def __post_init__(self) -> None:
        check_fields(self)

    def width(
        self, privatizer: Privatizer, pulls: int, *, batch: int, active: int, failure: RationalLike
    ) -> float:
        l, b = integer("pulls", pulls, at_least=1), integer("batch", batch, at_least=1)
        odds = _active(active) * b * b / _failure(failure)

        def beta() -> arb:
            sigma, h = self.constants(privatizer, l)
            reward, tail = ball(4 * odds).log(), ball(2 * odds).log()
            return (reward / (2 * l)).sqrt() + (sigma * tail.sqrt() + h * tail) / l

        return narrow(beta, _BITS).upper_float

    def constants(self, privatizer: Privatizer, pulls: int) -> tuple[arb, arb]:
        r"""The pair (sigma, h) of a batch of ``pulls``, as balls at the ambient precision."""
        if isinstance(privatizer, Unprotected):
            return arb(0), arb(0)
        _check_all_stay(privatizer)
        if not isinstance(privatizer, SumPrivatizer):
            raise InvalidParameter(
                "privatizer",
                privatizer.name,
                "Chowdhury and Zhou (2023) give no radius for this noise: use ExactRadius()",
            )
        if privatizer.delta:
            reason = (
                "Chowdhury and Zhou (2023) give no radius for noise calibrated to a delta: use "
                "ExactRadius()"
            )
            raise InvalidParameter("privatizer", privatizer, reason)
        e, s = ball(privatizer.epsilon), ball(privatizer.scaling)
        root = arb(2).sqrt()
        match privatizer.trust:
            case "pure" | "central":
                return root / e, 1 / e
            case "shuffled-pure":  # the noise of epsilon/2
                return 2 * root / e, 2 / e
            case "local":
                return (2 * root * arb(pulls).sqrt() + root) / e, 2 * root / e
            case "renyi":
                h = 1 if self.form == "released" else root / arb(pulls).sqrt()
                return (2 + root / s) / e, h / (s * e)
            case "concentrated":
                return (root + root / s) / e, arb(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class DpSeRadius(Radius):
    r"""Sajed and Sheffet's h_e + c_e (2019), for discrete Laplace noise of scale g/epsilon.

    h_e = sqrt(ln(8\|S\|e^2/p)/(2R)), c_e = ln(4\|S\|e^2/p)/(R epsilon); an arm is dropped if the
    best mean exceeds its mean by more than 2 h_e + 2 c_e.
    """

    def width(
        self, privatizer: Privatizer, pulls: int, *, batch: int, active: int, failure: RationalLike
    ) -> float:
        r, e = integer("pulls", pulls, at_least=1), integer("batch", batch, at_least=1)
        odds = _active(active) * e * e / _failure(failure)
        scale = _laplace_scale(privatizer)

        def beta() -> arb:
            return (ball(8 * odds).log() / (2 * r)).sqrt() + ball(4 * odds).log() * ball(scale / r)

        return narrow(beta, _BITS).upper_float


def tkms_width(*, batches: int, pulls: int, sigma: Fraction, horizon: int) -> float:
    r"""The width (2 sqrt(t) sigma/N + 1/sqrt(N)) sqrt(2 ln T) of Tenenbaum and others, rounded up.

    It is for a mean over all data so far: N = ``pulls`` in t = ``batches`` released sums, each with
    sub-Gaussian noise of parameter ``sigma``, in units of reward.
    """

    def width() -> arb:
        noise = 2 * arb(batches).sqrt() * ball(sigma) / pulls
        return (noise + 1 / arb(pulls).sqrt()) * (2 * arb(horizon).log()).sqrt()

    return narrow(width, _BITS).upper_float


def _failure(failure: RationalLike) -> Fraction:
    return failure_probability_of(failure, argument="failure")


def _active(active: int) -> int:
    return integer("active", active, at_least=1)


def _laplace_scale(privatizer: Privatizer) -> Fraction:
    # The scale of the one draw in a sum, in units of reward.
    if isinstance(privatizer, Unprotected):
        return Fraction(0)
    _check_all_stay(privatizer)
    if isinstance(privatizer, SumPrivatizer) and privatizer.trust in ("central", "pure"):
        return 1 / privatizer.epsilon
    raise InvalidParameter("privatizer", privatizer.name, "must add discrete Laplace noise")


def _check_all_stay(privatizer: Privatizer) -> None:
    if privatizer.deployment.factor != 1:
        reason = "has dropouts or collusion, for which the papers have no radius: use ExactRadius()"
        raise InvalidParameter("privatizer", privatizer.name, reason)


def _threshold(privatizer: Privatizer, pulls: int) -> int | None:
    protocol = privatizer.protocol(pulls)
    return protocol.threshold if isinstance(protocol, ModularSum) else None
