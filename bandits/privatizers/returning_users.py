r"""Returning users: each of M users is in at most B releases and is charged before each of them.

The guarantee of a user covers all releases that contain the user. All of these releases use one
mechanism (:class:`SteadyPrivatizer`), that is, the same precision g and at least the same noise for
every number of users. The cost of a user then does not depend on which releases these are, and B
visits cost exactly the B-fold composition of one privacy curve. A :class:`Pool` counts the visits
in its run, and a :class:`LedgerBook` records the budget that every user has spent over several
runs. A user without remaining visits is turned away.

A release needs a different user for each reward. An elimination that pulls every active arm l times
splits the batch into m releases per arm, none with more than half of all users, and adds their
sums. The total contains l rewards and m independent noise terms (``BatchedElimination.most``).
:func:`steady_for` calibrates the least noise that is certified to give (epsilon, delta) over B
releases with one law. Proofs: docs/proofs/bandits.md and docs/proofs/radius.md.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import count as counted
from typing import Any, Final, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from accounting.calibration.calibrate_noise_rounds_or_rate import calibrate
from accounting.composition.composition_theorems import per_user
from accounting.errors import NotDerived
from accounting.guarantees.stated_guarantees import Pure, Rdp, Word
from accounting.ledger import AlreadyCharged, Ledger
from accounting.privacy_curves.release_curve import PrivacyCurve
from accounting.privacy_filters import SHARES
from bandits.batch import Plays, Pulls
from bandits.privatizers.batch_sums_by_trust_model import Planned
from bandits.privatizers.deployment import EVERYONE, Deployment
from bandits.privatizers.privatizer import Releasing
from bandits.privatizers.run_guarantee import POOLED, RunGuarantee, Users
from dpcore.continual_sums import variance
from dpcore.errors import InvalidParameter
from dpcore.laws.discrete_gaussian import DiscreteGaussian, DiscreteGaussianSum
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.laws.poisson_and_binomial import Binomial
from dpcore.laws.skellam import Skellam
from dpcore.laws.sum_of_shares import summed
from dpcore.mechanism import Mechanism, Scope, Unit
from dpcore.noise import Additive, Noise
from dpcore.numbers.enclosure import ball, narrow
from dpcore.numbers.integer_search import ceil_sqrt
from dpcore.numbers.parameter import (
    Exact,
    Of,
    RationalLike,
    Whole,
    check_fields,
    integer,
    name,
    rational,
)
from dpcore.protocols.noisy_sums import AggregatedSum, size_protocol
from dpcore.protocols.shuffled_bits import BinaryShuffle

SteadyLaw: TypeAlias = DiscreteLaplace | Skellam | DiscreteGaussianSum | Binomial
r"""The noise laws that releases with any number of users can have in common."""

_ROUNDED: Final = 10**6


@dataclass(frozen=True, slots=True, kw_only=True)
class SteadyPrivatizer(Planned[AggregatedSum | BinaryShuffle]):
    r"""Release sums with noise of the same ``law``, in steps of 1/g, for any number of users.

    The precision g = ``steps`` is the same for every number n of users, so every release protects a
    reward equally well. With secure aggregation, each user adds a share of discrete Laplace or
    Skellam noise. If the law is a sum of N discrete Gaussians or of N fair bits, each of n users
    adds ceil(N/n) terms. A release then contains at least N terms, and the guarantee relies on N of
    them. Fair bits are shuffled; then g = 1 and rewards are rounded at random to a bit. ``failure``
    bounds the probability that a sum mod m is decoded incorrectly. With a ``deployment``, the users
    who neither drop out nor collude add this noise in the worst case.
    """

    law: SteadyLaw
    steps: Whole = Whole()
    failure: Exact = Exact(within="(0, 1)")

    def __post_init__(self) -> None:
        if not isinstance(self.law, get_args(SteadyLaw)):
            names = ", ".join(kind.__name__ for kind in get_args(SteadyLaw))
            raise InvalidParameter("law", self.law, f"must be one of {names}")
        if isinstance(self.law, Binomial):
            if 2 * self.law.probability != 1:
                raise InvalidParameter(
                    "law", self.law, "must be a binomial law with probability 1/2"
                )
            if self.steps != 1:
                raise InvalidParameter("steps", self.steps, "must be 1: rewards are single bits")
        Planned.__post_init__(self)

    @property
    def name(self) -> str:
        return _KINDS[type(self.law)]

    @property
    def least_noise(self) -> SteadyLaw:
        return self.law

    @property
    def epsilon(self) -> Fraction:
        r"""The ratio of g to the scale (Laplace noise) or to the standard deviation, rounded up."""
        if isinstance(self.law, DiscreteLaplace):
            return self.steps / self.law.scale
        least, _ = variance(self.law)
        return Fraction(ceil_sqrt((self.steps * _ROUNDED) ** 2 / least), _ROUNDED)

    @property
    def deviation(self) -> float:
        r"""The standard deviation of the noise of a sum, in units of reward, rounded up."""
        _, most = variance(self.law)
        return narrow(lambda: ball(most).sqrt() / self.steps, 64).upper_float

    @property
    def curve(self) -> PrivacyCurve:
        r"""The privacy curve of one release, for one reward of a user."""
        return PrivacyCurve(noise=self.law, sensitivity=self.steps)

    def plan(self, n: int) -> AggregatedSum | BinaryShuffle:
        counted, law = self.deployment.counted_on(n), self.law
        match law:
            case Binomial(trials=trials, probability=half):
                return BinaryShuffle(users=n, noise_bits=-(-trials // counted), probability=half)
            # One threshold serves many numbers of users: it is computed for at least the noise of n
            # users. A separate threshold for each number would take a second.
            case DiscreteGaussianSum(count=count, sigma_squared=v):
                each = -(-count // counted)
                share = summed(DiscreteGaussian(sigma_squared=v), each)
                most = 1 << (n * each - 1).bit_length()
                wide: Noise = DiscreteGaussianSum(count=most, sigma_squared=v)
            case _:
                share = law if counted == 1 else law.share(counted)
                wide = summed(law, -(-n // counted))
        tau = _threshold(self, wide)
        return AggregatedSum(users=n, precision=self.steps, threshold=tau, share=share)

    def of_parts(self, parts: Sequence[int]) -> tuple[Noise, Fraction]:
        # Each of several sums may be decoded incorrectly mod m.
        failure = self.failure * (len(parts) if len(parts) > 1 else 0)
        noises = [each for part in parts if (each := self.noise(part)) is not None]
        for law in noises:
            if isinstance(law, Additive):
                # A law without this parameter is a single draw and counts once.
                total = sum(each.parameters.get(law.adds, 1) for each in noises)
                return type(law)(**{**law.parameters, law.adds: total}), failure
        return summed(noises[0], len(noises)), failure


_KINDS: Final[Mapping[type[Noise], str]] = {
    DiscreteLaplace: "pure",
    Skellam: "renyi",
    DiscreteGaussianSum: "concentrated",
    Binomial: "binary-shuffle",
}


@lru_cache(maxsize=1 << 8)
def _threshold(steady: SteadyPrivatizer, noise: Noise) -> int:
    # The threshold for the noise alone.
    size = size_protocol(users=1, precision=steady.steps, noise=noise, failure=steady.failure)
    return size.threshold


class Pool(Users):
    r"""A pool of M = ``users`` users, each of whom is in at most B = ``max_visits`` releases.

    For every release, users arrive in a random order drawn by ``arrivals`` until the release is
    full. A user is turned away after B releases of this pool, or if the ``book`` of this pool has
    no budget left for the user. The limit B is independent of the book, because a ledger may cover
    the visits of several runs. If too few users can take part, the batch is not played, and users
    already charged for it remain charged. ``turned_away`` counts refusals; ``dry`` is true if a
    batch was not played.

    The same user may pull several arms: each pull draws a new reward of its arm.

    The default ``book`` has no limit. Raises :class:`InvalidParameter` if users is outside [1,
    2^27], max_visits is outside [1, 2^29], privatizer or arrivals has the wrong type, or the curve
    of the book differs from that of the privatizer.
    """

    def __init__(
        self,
        *,
        users: int,
        max_visits: int,
        privatizer: SteadyPrivatizer,
        arrivals: np.random.Generator,
        book: Book | None = None,
    ) -> None:
        self.users, self.max_visits = people(users), visits_of(max_visits)
        if not isinstance(privatizer, SteadyPrivatizer):
            reason = "must be a SteadyPrivatizer, so that a visit costs the same in every release"
            raise InvalidParameter("privatizer", privatizer, reason)
        if not isinstance(arrivals, np.random.Generator):
            raise InvalidParameter("arrivals", arrivals, "must be a numpy.random.Generator")
        if book is None:
            book = Book(curve=privatizer.curve)
        if not isinstance(book, Book):
            raise InvalidParameter("book", book, "must be a Book, e.g. LedgerBook(...)")
        if book.curve != privatizer.curve:
            reason = f"must charge the curve of the privatizer, {privatizer.curve!r}"
            raise InvalidParameter("book", book.curve, reason)
        self.privatizer, self.arrivals, self.book = privatizer, arrivals, book
        self.turned_away, self.dry = 0, False
        self.visited = np.zeros(self.users, dtype=np.int64)
        self.alone = threading.Lock()

    def admit(self, pulls: Pulls | Plays, batch: str) -> bool:
        with self.alone:  # one thread at a time selects users and charges them
            found = all(
                self._filled(count, f"{batch}/arm {arm}")
                for arm, count in enumerate(pulls.counts)
                if count
            )
            self.dry = self.dry or not found
        return found

    def guarantee(self, privatizer: Releasing[Any], sizes: Iterable[Any]) -> RunGuarantee:
        if privatizer != self.privatizer:
            raise InvalidParameter("policy", privatizer, "must use the privatizer of the pool")
        steady, assumed = self.privatizer, dict[str, None]()
        charged = Mechanism(noise=steady.law, sensitivity=steady.steps)
        for size in sizes:
            reason = f"must use one mechanism for every number of users, but differs for {size}"
            try:
                record = steady.record(size, "a release")
            except NotDerived as error:
                raise InvalidParameter("policy", steady, reason) from error
            if record is None or record.mechanism != charged:
                raise InvalidParameter("policy", steady, reason)
            assumed |= dict.fromkeys(steady.assumed(size))
        total = per_user(steady.curve, max_visits=self.max_visits)
        return RunGuarantee(parts=(total,), assumptions=(*assumed, POOLED))

    @property
    def most_visits(self) -> int:
        r"""The largest number of releases for which any user has been charged."""
        return int(self.visited.max())

    def _filled(self, count: int, release: str) -> bool:
        if count > self.users:
            return False
        waiting = self.arrivals.permutation(self.users)
        for call in counted(1):
            places = self._first_able(waiting, count)
            if len(places) < count:
                self.turned_away += len(waiting) - len(places)
                return False
            called, seen = waiting[places], int(places[-1]) + 1
            paid = self.book.pay(called, f"{release}/call {call}")
            self.visited[called[paid]] += 1
            taken = int(np.count_nonzero(paid))
            self.turned_away += seen - taken
            count -= taken
            if not count:
                return True
            # Another process charged some users meanwhile; no user is considered twice.
            waiting = waiting[seen:]
        raise AssertionError  # every call removes a waiting user

    def _first_able(self, waiting: Names, count: int) -> Names:
        # The indices of the first ``count`` users who can take part, in order, or of all of them if
        # there are fewer. The book checks ``count`` users first, and the others only if necessary.
        places = np.flatnonzero(self.visited[waiting] < self.max_visits)
        near, far = places[:count], places[count:]
        near = near[self.book.able(waiting[near])]
        if len(near) == count:
            return near
        far = far[self.book.able(waiting[far])]
        return np.concatenate([near, far])[:count]


Names: TypeAlias = npt.NDArray[np.int64]
"""Users, given by their numbers in [0, M)."""

_ORDERS: Final = (2, 4, 8, 16, 32)
_MOST_VISITS: Final = 1 << 29
_MOST_PEOPLE: Final = 1 << 27
_LONGEST_RUN: Final = 100
_CURVE: Final = "must be a PrivacyCurve"
_PLAYED: Final = "was already played on this ledger; use a new name, because the noise is new"


def visits_budget(curve: PrivacyCurve, max_visits: int) -> Word:
    r"""The budget with which a user can pay for exactly ``max_visits`` releases of ``curve``.

    It is a pure epsilon if that is finite, and otherwise a list of Renyi divergences of the orders
    2, 4, 8, 16 and 32. A filter rounds each cost up, so the budget exceeds the exact cost by a
    relative error of at most ``max_visits``/2^60.
    """
    most = visits_of(max_visits)
    if not isinstance(curve, PrivacyCurve):
        raise InvalidParameter("curve", curve, _CURVE)
    scope = Scope(unit=Unit.USER, relation=curve.scope.relation)
    # The smallest b such that ceil(SHARES cost/b) fits ``most`` times into SHARES.
    times = Fraction(SHARES, SHARES // most)
    largest = curve.pure().upper
    if isinstance(largest, Fraction):
        return Pure(largest * times, scope=scope)
    costs = {order: curve.renyi(order).upper for order in _ORDERS}
    if math.inf in costs.values():
        raise InvalidParameter(
            "curve", curve, "must have finite Renyi divergences of orders 2, 4, 8, 16 and 32"
        )
    return Rdp({order: Fraction(cost) * times for order, cost in costs.items()}, scope=scope)


def visits_of(max_visits: object) -> int:
    r"""Return B = ``max_visits`` as an integer in [1, 2^29], or raise an error."""
    return integer("max_visits", max_visits, at_least=1, at_most=_MOST_VISITS)


def people(users: object) -> int:
    r"""Return M = ``users`` as an integer in [1, 2^27], or raise an error."""
    return integer("users", users, at_least=1, at_most=_MOST_PEOPLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Book:
    r"""The spending of each user on releases of ``curve``, without a limit in this base class."""

    curve: Of[PrivacyCurve] = Of(PrivacyCurve, _CURVE)

    def __post_init__(self) -> None:
        check_fields(self)

    def able(self, users: Names) -> npt.NDArray[np.bool_]:
        r"""Whether each user has enough budget for a release; no user is charged."""
        return np.ones(len(users), dtype=np.bool_)

    def pay(self, users: Names, release: str) -> npt.NDArray[np.bool_]:  # noqa: ARG002  # no names
        r"""Charge each of ``users`` for ``release``; return False for users without enough budget.

        Users without enough budget are not charged and must not take part. If a user is unknown or
        repeated, a :class:`LedgerBook` raises :class:`InvalidParameter` and charges no user.
        """
        return self.able(users)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerBook(Book):
    r"""The budget that users have spent in a ledger, which names them ``user 0``, ``user 1``, ...

    ``run`` names this run in the ledger. Use a new name for each start: a restarted run draws new
    noise, but the ledger charges each batch name only once, so a reused name is refused. If several
    processes use the same name, only one of them can make a given release. A ledger may cover the
    visits of several runs.
    """

    ledger: Of[Ledger] = Of(Ledger, "must be a Ledger")
    run: str

    def __post_init__(self) -> None:
        Book.__post_init__(self)
        scope = self._curve.scope
        if self.curve.scope.relation is not scope.relation:
            reason = f"must have the relation of the ledger's budget, {scope.relation.value!r}"
            raise InvalidParameter("curve", self.curve, reason)
        self.ledger.filter.price(self._curve)
        # The ledger allows names of twice this length; the rest is for the name of a release.
        if len(name("run", self.run)) > _LONGEST_RUN:
            reason = f"must be at most {_LONGEST_RUN} characters long"
            raise InvalidParameter("run", self.run, reason)

    @property
    def _curve(self) -> PrivacyCurve:
        # A user sends one report per release, so the cost per report is the cost per user.
        return replace(self.curve, scope=self.ledger.budget.scope)

    def able(self, users: Names) -> npt.NDArray[np.bool_]:
        names = _called(users)
        spent = frozenset(self.ledger.exhausted(names, self._curve) if names else ())
        return np.array([each not in spent for each in names], dtype=np.bool_)

    def pay(self, users: Names, release: str) -> npt.NDArray[np.bool_]:
        names, batch = _called(users), name("release", f"{self.run}/{release}")
        try:
            receipt = self.ledger.charge(names, self._curve, batch=batch, skip_exhausted=True)
        except (AlreadyCharged, InvalidParameter) as error:
            if isinstance(error, InvalidParameter) and error.argument != "batch":
                raise
            raise InvalidParameter("run", self.run, f"{_PLAYED} ({error})") from error
        left_out = frozenset(receipt.left_out)
        return np.array([each not in left_out for each in names], dtype=np.bool_)


def _called(users: Names) -> list[str]:
    if not isinstance(users, np.ndarray) or users.ndim != 1 or users.dtype.kind not in "iu":
        raise InvalidParameter("users", users, "must be a one-dimensional array of integers")
    if len(users) and not 0 <= users.min() <= users.max() < _MOST_PEOPLE:
        raise InvalidParameter("users", users, f"must contain integers in [0, {_MOST_PEOPLE})")
    if len(np.unique(users)) < len(users):
        raise InvalidParameter("users", users, "must not contain duplicate users")
    return [f"user {number}" for number in users.tolist()]


STEPS: Final = 16
r"""The largest g of a steady release: rounding adds at most 1/1024 per reward to the variance."""

_BITS: Final = "binomial:probability=1/2"
_GAUSSIAN: Final = "discrete-gaussian"
_LAWS: Final = {
    "dist-dp-se": "discrete-laplace",
    "dist-rdp-se": "skellam",
    "dist-cdp-se": _GAUSSIAN,
    "sdp-ae": _BITS,
    "vb-sdp-ae": _BITS,
}
RETURNING: Final = tuple(_LAWS)
r"""The algorithms whose releases can all have the same noise law."""

_WIDE: Final = 1 << 18
_MOST_SHARES: Final = 1 << 10
_GRID: Final = 1 << 20
_NEAR: Final = Fraction(1, 1000)
_MORE: Final = tuple(Fraction(n, 1000) for n in (1003, 1020, 1200, 2000, 4000))


def steady_for(
    algorithm: str,
    *,
    epsilon: RationalLike,
    delta: RationalLike,
    max_visits: int,
    failure: RationalLike,
    deployment: Deployment = EVERYONE,
) -> SteadyPrivatizer:
    """The privatizer with the least noise for (epsilon, delta) over ``max_visits`` releases."""
    if algorithm not in _LAWS:
        reason = f"does not support returning users; use one of {', '.join(_LAWS)}"
        raise InvalidParameter("algorithms", algorithm, reason)
    e, d, most = rational("epsilon", epsilon), rational("delta", delta), visits_of(max_visits)
    law, steps = _law(_LAWS[algorithm], e, d, most)
    return SteadyPrivatizer(law=law, steps=steps, failure=failure, deployment=deployment)


@lru_cache(maxsize=1 << 8)
def _law(law: str, epsilon: Fraction, delta: Fraction, max_visits: int) -> tuple[SteadyLaw, int]:
    def least(noise: str, steps: int) -> Any:
        return calibrate(
            noise=noise, epsilon=epsilon, delta=delta, rounds=max_visits, sensitivity=steps
        ).noise

    if law == _BITS:
        return least(law, 1), 1
    steps = STEPS
    gaussian = least(_GAUSSIAN, steps)
    while gaussian.sigma_squared > _WIDE and steps > 1:
        # With this much noise, coarser rounding is also negligible, and bounding the law takes less
        # time.
        steps //= 2
        gaussian = least(_GAUSSIAN, steps)
    if law != _GAUSSIAN:
        return least(law, steps), steps
    # Each term has variance at least 1, so the sum is as private as one Gaussian of slightly
    # smaller variance.
    count = min(max(math.floor(gaussian.sigma_squared), 1), _MOST_SHARES)
    for more in _MORE:
        share = Fraction(math.ceil(gaussian.sigma_squared * more * _GRID / count), _GRID)
        found = DiscreteGaussianSum(count=count, sigma_squared=share)
        visit = PrivacyCurve(noise=found, sensitivity=steps)
        if per_user(visit, max_visits=max_visits).epsilon(delta, _NEAR).upper <= epsilon:
            return found, steps
    raise NotDerived("a sum of discrete Gaussians with this guarantee", "use a larger delta")
