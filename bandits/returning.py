r"""Users who come back: M of them, each in at most B releases, charged before every one.

A user who may be in several releases is promised what they cost together, so all releases are one
mechanism here: the same steps g and the same law of noise, whatever the number of users
(:class:`SteadyPrivatizer`). Then nothing depends on which releases a user was in, and B visits cost
the B-fold composition of one curve, exactly. A book keeps what everyone has spent: a ledger
(:class:`LedgerBook`), or its arithmetic in memory (:class:`MemoryBook`) for simulated worlds. Who
has no visit left is turned away. Proofs: docs/proofs/bandits.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from accounting.claim import Pure, Rdp
from accounting.compose import Composition
from accounting.convert import Word
from accounting.curve import PrivacyCurve
from accounting.filter import SHARES, Filter, Price, filter_for
from accounting.guarantee import guarantee
from accounting.ledger import Ledger
from accounting.papers.arguments import ceil_sqrt
from accounting.returning import per_user
from bandits.play import RunGuarantee, Users
from bandits.policy import Pulls, ReleasedSum
from bandits.privatizer import ALL_HONEST, SUM_ONLY, Privatizer
from dpcore.discrete_laplace import DiscreteLaplace
from dpcore.enclosure import Enclosure, ball, narrow
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Release, Scope, Unit
from dpcore.noise import Noise
from dpcore.parameter import RationalLike, integer, rational
from dpcore.protocol import AggregatedSum
from dpcore.rng import SYSTEM, Rng
from dpcore.sizing import size_protocol
from dpcore.skellam import Skellam

__all__ = ["Book", "LedgerBook", "MemoryBook", "Pool", "SteadyPrivatizer", "visits_budget"]

Names: TypeAlias = npt.NDArray[np.int64]
"""Users by number, in [0, M)."""

_ORDERS: Final = (2, 4, 8, 16, 32)
_ROUNDED: Final = 10**6
_MOST_VISITS: Final = 1 << 29
_POOLED: Final = "who is in a release depends on earlier releases and on coins, never on rewards"


@dataclass(frozen=True, slots=True, kw_only=True)
class SteadyPrivatizer(Privatizer):
    r"""Secure aggregation with the same ``law`` of noise in every sum, in steps of 1/g.

    Discrete Laplace noise, or Skellam; n users add shares of it. g = ``steps`` is the same for
    every n, so every release hides one reward equally well. ``failure`` is the chance that a sum is
    read wrongly mod m.

    >>> steady = SteadyPrivatizer(law=DiscreteLaplace(scale=64), steps=32, failure="1e-6")
    >>> steady.guarantee(10) == steady.guarantee(1000), steady.guarantee(10).pure()
    (True, Pure('1/2'))

    Raises :class:`InvalidParameter` for another law, steps below 1 and a failure outside of
    (0, 1).
    """

    law: DiscreteLaplace | Skellam
    steps: int
    failure: RationalLike

    def __post_init__(self) -> None:
        if not isinstance(self.law, (DiscreteLaplace, Skellam)):
            raise InvalidParameter("law", self.law, "must be DiscreteLaplace or Skellam")
        failure = rational("failure", self.failure)
        if not 0 < failure < 1:
            raise InvalidParameter("failure", self.failure, "must lie in (0, 1)")
        object.__setattr__(self, "steps", integer("steps", self.steps, at_least=1))
        object.__setattr__(self, "failure", failure)

    @property
    def name(self) -> str:
        return "pure" if isinstance(self.law, DiscreteLaplace) else "renyi"

    @property
    def epsilon(self) -> Fraction:
        r"""g/s for discrete Laplace noise, exact; g/sigma for Skellam, rounded up."""
        if isinstance(self.law, DiscreteLaplace):
            return self.steps / Fraction(self.law.scale)
        square = Fraction(self.steps * _ROUNDED) ** 2 / Fraction(self.law.variance)
        return Fraction(ceil_sqrt(square), _ROUNDED)

    @property
    def deviation(self) -> float:
        r"""The standard deviation of the noise of a sum, in units of reward, rounded up."""
        variance = self.law.variance
        most = variance.upper if isinstance(variance, Enclosure) else variance
        return narrow(lambda: ball(Fraction(most)).sqrt() / self.steps, 64).upper_float

    @property
    def curve(self) -> PrivacyCurve:
        r"""What one release promises one contribution."""
        return PrivacyCurve(noise=self.law, sensitivity=self.steps)

    def protocol(self, pulls: int) -> AggregatedSum:
        return _protocol(self, integer("pulls", pulls, at_least=1))

    def precision(self, pulls: int) -> int:
        integer("pulls", pulls, at_least=1)
        return self.steps

    def bits(self, pulls: int) -> int:
        return self.protocol(pulls).bits_per_user

    def noise(self, pulls: int) -> Noise:
        return self.protocol(pulls).planned_noise

    def release(self, encoded_sum: int, pulls: int, rng: Rng = SYSTEM) -> ReleasedSum:
        protocol = self.protocol(pulls)
        sent = self.checked(encoded_sum, pulls) + protocol.planned_noise.sample(rng=rng)
        return ReleasedSum(protocol.analyze(sent % protocol.modulus))

    def guarantee(self, pulls: int) -> PrivacyCurve:
        return guarantee(self.protocol(pulls).mechanism(pulls))

    def record(self, pulls: int, batch: str) -> Release:
        return Release(mechanism=self.protocol(pulls).mechanism(pulls), batch=batch)

    @property
    def assumptions(self) -> tuple[str, ...]:
        return (SUM_ONLY, ALL_HONEST)


@lru_cache(maxsize=1 << 10)
def _protocol(steady: SteadyPrivatizer, n: int) -> AggregatedSum:
    share = steady.law if n == 1 else steady.law.share(n)
    return AggregatedSum(users=n, precision=steady.steps, threshold=_threshold(steady), share=share)


@lru_cache(maxsize=1 << 8)
def _threshold(steady: SteadyPrivatizer) -> int:
    # Of the noise alone, so the same for every number of users.
    size = size_protocol(users=1, precision=steady.steps, noise=steady.law, failure=steady.failure)
    return size.threshold


# -- who has visits left ----------------------------------------------------------------------


def visits_budget(curve: PrivacyCurve, visits: int) -> Word:
    r"""The budget of a user that holds ``visits`` releases of ``curve``, and not one more.

    Of its epsilon, where it is pure; else of its Renyi divergences at the orders 2 to 32. A filter
    counts shares and rounds each price up, so the budget is larger than the visits by a part in
    2^61/visits at most.

    >>> steady = SteadyPrivatizer(law=DiscreteLaplace(scale=64), steps=32, failure="1e-6")
    >>> visits_budget(steady.curve, 4)
    Pure(2, scope=Scope(unit='user', relation='replace'))

    Raises :class:`InvalidParameter` for visits below 1 or beyond 2^29.
    """
    most = integer("visits", visits, at_least=1)
    if most > _MOST_VISITS:
        raise InvalidParameter("visits", visits, f"must be <= {_MOST_VISITS}")
    scope = Scope(unit=Unit.USER, relation=curve.scope.relation)
    # The least b of which ceil(SHARES cost/b) fits ``most`` times into SHARES.
    times = Fraction(SHARES, SHARES // most)
    pure = curve.pure()
    if pure is not None:
        return Pure(Fraction(pure.epsilon) * times, scope=scope)
    costs = {order: Fraction(curve.renyi(order).upper) for order in _ORDERS}
    return Rdp({order: cost * times for order, cost in costs.items()}, scope=scope)


class Book(ABC):
    r"""What every user has spent."""

    @abstractmethod
    def pay(self, users: Names, release: str) -> npt.NDArray[np.bool_]:
        r"""Charges each of ``users`` for ``release``: False for those who cannot pay, and did not.

        They must not take part.
        """


class MemoryBook(Book):
    r"""The counters of a ledger's filter, in memory, for simulated worlds.

    >>> steady = SteadyPrivatizer(law=DiscreteLaplace(scale=64), steps=32, failure="1e-6")
    >>> book = MemoryBook(users=3, curve=steady.curve, visits=1)
    >>> book.pay(np.array([0, 2]), "a").tolist(), book.pay(np.array([0, 1]), "b").tolist()
    ([True, True], [False, True])
    """

    def __init__(self, *, users: int, curve: PrivacyCurve, visits: int) -> None:
        budget = visits_budget(curve, visits)
        self.filter: Filter = filter_for(budget)
        self.price: Price = self.filter.price(replace(curve, scope=budget.scope))
        self.totals = np.zeros((users, len(self.filter.counters)), dtype=np.int64)

    def pay(self, users: Names, release: str) -> npt.NDArray[np.bool_]:  # noqa: ARG002  # no names
        # Below 2^62: a counter is at most SHARES, a price SHARES + 1.
        after = self.totals[users] + np.array(self.price.amounts)
        able: npt.NDArray[np.bool_] = (after <= np.array(self.filter.limits)).all(axis=1)
        self.totals[users[able]] = after[able]
        return able


class LedgerBook(Book):
    r"""A ledger, where users are called ``user 0``, ``user 1``, and so on.

    ``run`` names this run in the ledger, and was used for no other: a batch of a name that was
    charged before would not be charged again. Raises :class:`InvalidParameter` when it was.
    """

    def __init__(self, *, ledger: Ledger, curve: PrivacyCurve, run: str) -> None:
        self.ledger, self.curve, self.run = ledger, curve, run

    def pay(self, users: Names, release: str) -> npt.NDArray[np.bool_]:
        names = [f"user {user}" for user in users.tolist()]
        before = self.ledger.charges()
        receipt = self.ledger.charge(
            names, self.curve, batch=f"{self.run}/{release}", skip_exhausted=True
        )
        if receipt.number <= before:
            raise InvalidParameter("run", self.run, "was played on this ledger before")
        left_out = set(receipt.left_out)
        return np.array([name not in left_out for name in names])


class Pool(Users):
    r"""M = ``users`` people, of whom each may be in ``visits`` releases, and in each once.

    Everyone asked for a release is drawn from those not yet asked, by ``arrivals``; who cannot pay
    is turned away, and another one is asked. When nobody is left to ask the batch has too few users
    and is not played; who was charged for it stays charged. ``turned_away`` counts refusals.

    The same people may give rewards of several arms: a reward is of the arm and fresh at each pull,
    as ``play`` draws it.
    """

    def __init__(
        self,
        *,
        users: int,
        visits: int,
        privatizer: SteadyPrivatizer,
        arrivals: np.random.Generator,
        book: Book | None = None,
    ) -> None:
        self.users = integer("users", users, at_least=1)
        self.visits = integer("visits", visits, at_least=1)
        if not isinstance(privatizer, SteadyPrivatizer):
            reason = "must be a SteadyPrivatizer: a visit costs the same in every release"
            raise InvalidParameter("privatizer", privatizer, reason)
        if not isinstance(arrivals, np.random.Generator):
            raise InvalidParameter("arrivals", arrivals, "must be a numpy.random.Generator")
        self.privatizer, self.arrivals, self.turned_away = privatizer, arrivals, 0
        self.book = book or MemoryBook(users=self.users, curve=privatizer.curve, visits=self.visits)

    def admit(self, pulls: Pulls, batch: str) -> bool:
        return all(
            self._filled(count, f"{batch}/arm {arm}")
            for arm, count in enumerate(pulls.counts)
            if count
        )

    def guarantee(
        self,
        privatizer: Privatizer,
        sizes: Sequence[int],  # noqa: ARG002  # a visit costs the same in every release
    ) -> RunGuarantee | None:
        if privatizer != self.privatizer:
            raise InvalidParameter("policy", privatizer, "must have the privatizer of its users")
        return RunGuarantee(parts=(self.total,), assumptions=(*privatizer.assumptions, _POOLED))

    @property
    def total(self) -> Composition:
        r"""What all visits of a user cost, in the scope of a user."""
        return per_user(self.privatizer.curve, max_visits=self.visits)

    def _filled(self, count: int, release: str) -> bool:
        if count > self.users:
            return False
        asked = np.zeros(self.users, dtype=np.bool_)
        called = self.arrivals.choice(self.users, count, replace=False)
        for call in range(1, self.users + 1):
            paid = self.book.pay(called, f"{release}/call {call}")
            count -= int(np.count_nonzero(paid))
            self.turned_away += len(called) - int(np.count_nonzero(paid))
            if not count:
                return True
            asked[called] = True
            left = np.flatnonzero(~asked)
            if len(left) < count:
                return False
            called = self.arrivals.choice(left, count, replace=False)
        return False
