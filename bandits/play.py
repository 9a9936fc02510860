r"""One run of a bandit algorithm: the only code that touches both rewards and releases.

Work is done batch by batch. Unless ``users`` says otherwise every user is new, so each is in one
release at most: what a run promises a user is the worst of what its releases promise, and nothing
composes. Users who come back are in ``bandits.returning``. Proofs: docs/proofs/bandits.md.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any, Final, TypeAlias

import numpy as np

from accounting.bound import Bound
from accounting.box import BinomialBox
from accounting.claim import Assumed, Pure
from accounting.compose import Composition
from accounting.curve import PrivacyCurve
from bandits.environment import Environment
from bandits.policy import Commit, Policy, Pulls, Released, ReleasedSum, State, arms_and_horizon
from bandits.privatizer import OfOne, Privatizer
from dpcore.enclosure import Enclosure
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Release, Scope
from dpcore.parameter import RationalLike, integer, rational
from dpcore.rng import SYSTEM, Rng, SystemRng

__all__ = ["NEW_USERS", "NewUsers", "Run", "RunGuarantee", "Users", "play", "run_guarantee"]

OfAll: TypeAlias = OfOne | Composition
"""What one user is promised by all the releases that the user may be in."""

_NEW: Final = "users are new: each takes part in one release at most"
_THEOREM: Final = "what befalls a user is one of the parts: the worst of them"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunGuarantee:
    r"""What a run promises each of its users: the worst over ``parts``.

    For new users a part is a distinct release, for those who come back all that one may take part
    in. ``parts`` cover every release that a run of this length could make, whatever it saw; a run
    of a single arm makes none, and promises everything. ``assumptions`` are what they take for
    granted.
    """

    parts: tuple[OfAll, ...]
    assumptions: tuple[str, ...]

    def epsilon(self, delta: RationalLike) -> Bound:
        r"""An upper bound of epsilon at ``delta`` in [0, 1]; no lower end is claimed."""
        exact = _delta(delta)
        return _worst([_epsilon(part, exact) for part in self.parts])

    def delta(self, epsilon: RationalLike) -> Bound:
        r"""An upper bound of delta at ``epsilon`` >= 0; no lower end is claimed."""
        exact = rational("epsilon", epsilon)
        if exact < 0:
            raise InvalidParameter("epsilon", epsilon, "must be >= 0")
        return _worst([_delta_of(part, exact) for part in self.parts])

    def pure(self) -> Pure | None:
        r"""The pure guarantee, exact, or None where the loss of some release is unbounded."""
        found = [_pure(part) for part in self.parts]
        if None in found:
            return None
        most = max((Fraction(p.epsilon) for p in found if p), default=Fraction(0))
        return Pure(most, scope=next((p.scope for p in found if p), Scope()))

    def to_json(self) -> dict[str, Any]:
        r"""The pure epsilon, if any, what the parts are, and the assumptions."""
        pure = self.pure()
        return {
            "pure": None if pure is None else str(pure.epsilon),
            "releases": len(self.parts),
            "assumptions": [*self.assumptions],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    r"""What a run gave, at what cost.

    ``regret`` is the pseudo-regret sum_a gap_a N_a(t) at each t of ``checkpoints``, ``pulls`` the
    N_a(T), ``active`` the arms that the last batch asked for, or the arm committed to. Regret is of
    the true means, and no release: it protects nobody whose rewards are real.
    ``releases`` holds a record of every sum that was released (none where no mechanism describes
    it); ``batches`` counts the batches that were. ``bits_per_user`` is the most that one user sent,
    ``mean_bits_per_user`` the mean over those whose sum was released. ``guarantee`` is None where
    nothing was promised; it is of noise from the operating system, and ``simulated`` says that this
    run's was drawn from something else.
    """

    policy: str
    horizon: int
    checkpoints: tuple[int, ...]
    regret: tuple[float, ...]
    pulls: tuple[int, ...]
    active: tuple[int, ...]
    batches: int
    releases: tuple[Release, ...]
    bits_per_user: int
    mean_bits_per_user: float
    guarantee: RunGuarantee | None
    simulated: bool

    @property
    def regret_per_round(self) -> float:
        r"""Reg(t)/t at the last checkpoint."""
        return self.regret[-1] / self.checkpoints[-1]


class Users(ABC):
    r"""Who pulls: whether a batch has its users, and what all a user takes part in costs."""

    __slots__ = ()

    @abstractmethod
    def admit(self, pulls: Pulls, batch: str) -> bool:
        r"""Finds ``pulls.counts[a]`` users for the release of each arm a, and charges them.

        It is asked before any reward is drawn. False where too few can take part: then nothing is
        released any more.
        """

    @abstractmethod
    def guarantee(self, privatizer: Privatizer, sizes: Sequence[int]) -> RunGuarantee | None:
        r"""What releases of ``privatizer``, of so many users each, promise every user.

        It is asked before the first batch. None where nothing is protected.
        """


class NewUsers(Users):
    r"""Nobody comes twice, and there are always more."""

    __slots__ = ()

    def admit(self, pulls: Pulls, batch: str) -> bool:  # noqa: ARG002  # nobody is turned away
        return True

    def guarantee(self, privatizer: Privatizer, sizes: Sequence[int]) -> RunGuarantee | None:
        parts: dict[OfOne, None] = {}
        for size in sizes:
            part = privatizer.guarantee(size)
            if part is None:
                return None
            parts[part] = None
        return RunGuarantee(parts=tuple(parts), assumptions=(*privatizer.assumptions, _NEW))


NEW_USERS: Final = NewUsers()


def play(
    policy: Policy[State],
    environment: Environment,
    *,
    horizon: int,
    world: np.random.Generator,
    rng: Rng = SYSTEM,
    checkpoints: Sequence[int] = (),
    users: Users = NEW_USERS,
) -> Run:
    r"""T = ``horizon`` rounds of ``policy`` in ``environment``.

    ``world`` draws the rewards, ``rng`` the noise. A batch pulls arm after arm in rising order; one
    that the horizon cuts releases nothing and charges nobody, and its rewards are not drawn.
    When there are too few users for a batch, its arms share the rest of the rounds, and nothing is
    released. ``checkpoints`` are rounds in [1, T], in rising order; T alone if none are given.

    >>> from bandits.elimination import BatchedElimination
    >>> from bandits.environment import Bernoulli
    >>> from bandits.privatizer_sum import SumPrivatizer
    >>> privatizer = SumPrivatizer(trust="pure", epsilon=1, failure="1e-4")
    >>> policy = BatchedElimination(privatizer=privatizer)
    >>> world = np.random.default_rng(1)
    >>> run = play(policy, Bernoulli(means=(0.9, 0.1)), horizon=10_000, world=world)
    >>> sum(run.pulls), run.pulls[0] > run.pulls[1], run.guarantee.pure()
    (10000, True, Pure(1))

    The guarantee is derived before the first batch, from the privatizer that will release and from
    the policy's ``sizes``; a batch of another size is refused before anybody is charged for it.

    Raises :class:`InvalidParameter` for a horizon below the number of arms, checkpoints out of
    range or order, means outside of [0, 1], a policy whose ``sizes`` do not name a batch that it
    asks for, and arguments of the wrong kind.
    """
    if not isinstance(policy, Policy):
        raise InvalidParameter("policy", policy, "must be a Policy")
    if not isinstance(environment, Environment) or isinstance(environment, Policy):
        raise InvalidParameter("environment", environment, "must be an Environment, and no Policy")
    if not isinstance(world, np.random.Generator):
        raise InvalidParameter("world", world, "must be a numpy.random.Generator")
    if not isinstance(rng, Rng):
        raise InvalidParameter("rng", rng, "must be a dpcore Rng: SystemRng() or SeededRng(n)")
    if not isinstance(users, Users):
        raise InvalidParameter("users", users, "must be Users, e.g. NEW_USERS")
    arms, horizon = arms_and_horizon(environment.arms, horizon)
    if not all(0 <= mean <= 1 for mean in environment.means):
        raise InvalidParameter("environment", environment, "must have means in [0, 1]")
    score = _Score(environment.gaps, _checked(checkpoints, horizon))
    privatizer, sizes = policy.privatizer, policy.sizes(arms, horizon)
    promised = users.guarantee(privatizer, sizes)
    sent = _Sent(privatizer, policy.name, users, frozenset(sizes))
    state = policy.init(arms, horizon)
    for counts in _batches(policy, state, environment, horizon, sent, world, rng):
        score.add(counts)
    return Run(
        policy=policy.name,
        horizon=horizon,
        checkpoints=score.checkpoints,
        regret=tuple(score.regret),
        pulls=tuple(score.pulls),
        active=sent.active,
        batches=sent.batches,
        releases=tuple(sent.releases),
        bits_per_user=sent.most_bits,
        mean_bits_per_user=sent.bits / sent.users if sent.users else 0.0,
        guarantee=promised,
        simulated=type(rng) is not SystemRng,
    )


def run_guarantee(policy: Policy[State], arms: int, horizon: int) -> RunGuarantee | None:
    r"""What ``policy`` promises each new user before a run: None where nothing is protected.

    >>> from bandits.dp_se import DpSe
    >>> run_guarantee(DpSe(epsilon="1/2", failure="1e-5"), 10, 10**5).pure()
    Pure('1/2')
    """
    arms, horizon = arms_and_horizon(arms, horizon)
    return NEW_USERS.guarantee(policy.privatizer, policy.sizes(arms, horizon))


# -- the rounds -------------------------------------------------------------------------------


def _batches(
    policy: Policy[State],
    state: State,
    environment: Environment,
    horizon: int,
    sent: _Sent,
    world: np.random.Generator,
    rng: Rng,
) -> Iterator[tuple[int, ...]]:
    # The pulls of every arm, batch by batch, until they add up to the horizon.
    left, arms = horizon, environment.arms
    while left:
        choice = policy.choose(state)
        if isinstance(choice, Commit) and choice.arm < arms:
            sent.active = (choice.arm,)
            yield tuple(left if arm == choice.arm else 0 for arm in range(arms))
            return
        if not isinstance(choice, Pulls) or len(choice.counts) != arms:
            raise InvalidParameter("policy", choice, f"must pull {arms} arms, or commit to one")
        sent.active = tuple(arm for arm, count in enumerate(choice.counts) if count)
        if choice.total > left:
            yield tuple(_cut(choice.counts, left))
            return
        if not sent.admitted(choice):
            yield tuple(_shared(choice.counts, left))
            return
        left -= choice.total
        yield choice.counts
        state = policy.observe(state, sent.batch(choice, environment, world, rng))


def _cut(counts: tuple[int, ...], left: int) -> Iterator[int]:
    for count in counts:
        taken = min(count, left)
        left -= taken
        yield taken


def _shared(counts: tuple[int, ...], left: int) -> Iterator[int]:
    # The rounds that are left, equally among the arms of a batch.
    arms = sum(1 for count in counts if count)
    for count in counts:
        taken = -(-left // arms) if count else 0
        arms -= 1 if count else 0
        left -= taken
        yield taken


class _Sent:
    # What users sent and the server released so far.

    def __init__(
        self, privatizer: Privatizer, name: str, users: Users, sizes: frozenset[int]
    ) -> None:
        self.privatizer, self.name, self.people, self.sizes = privatizer, name, users, sizes
        self.batches = self.users = self.bits = self.most_bits = 0
        self.releases: list[Release] = []
        self.active: tuple[int, ...] = ()

    def admitted(self, choice: Pulls) -> bool:
        for count in choice.counts:
            if count and count not in self.sizes:
                reason = f"pulls {count} users, a batch that its sizes do not name"
                raise InvalidParameter("policy", self.name, reason)
        return self.people.admit(choice, f"{self.name}/batch {self.batches + 1}")

    def batch(
        self, choice: Pulls, environment: Environment, world: np.random.Generator, rng: Rng
    ) -> Released:
        self.batches += 1
        privatizer = self.privatizer
        sums: list[ReleasedSum | None] = []
        for arm, count in enumerate(choice.counts):
            if not count:
                sums.append(None)
                continue
            steps = environment.encoded_sum(arm, count, privatizer.precision(count), world)
            sums.append(privatizer.release(steps, count, rng))
            record = privatizer.record(count, f"{self.name}/batch {self.batches}/arm {arm}")
            if record is not None:
                self.releases.append(record)
            bits = privatizer.bits(count)
            self.most_bits = max(self.most_bits, bits)
            self.users += count
            self.bits += count * bits
        return Released(tuple(sums))


class _Score:
    # Pseudo-regret at the checkpoints, while the pulls come in, arm after arm.

    def __init__(self, gaps: tuple[float, ...], checkpoints: tuple[int, ...]) -> None:
        self.gaps, self.checkpoints = gaps, checkpoints
        self.pulls = [0] * len(gaps)
        self.rounds = 0
        self.regret: list[float] = []

    def add(self, counts: tuple[int, ...]) -> None:
        for arm, count in enumerate(counts):
            before = self.pulls[arm]
            for checkpoint in self.checkpoints[len(self.regret) :]:
                if checkpoint > self.rounds + count:
                    break
                self.pulls[arm] = before + checkpoint - self.rounds
                pairs = zip(self.gaps, self.pulls, strict=True)
                self.regret.append(math.fsum(gap * pulled for gap, pulled in pairs))
            self.pulls[arm] = before + count
            self.rounds += count


def _checked(checkpoints: Sequence[int], horizon: int) -> tuple[int, ...]:
    exact = tuple(integer("checkpoints", t, at_least=1) for t in checkpoints) or (horizon,)
    if any(b <= a for a, b in pairwise(exact)) or exact[-1] > horizon:
        reason = f"must rise, and end by the horizon, {horizon}"
        raise InvalidParameter("checkpoints", checkpoints, reason)
    return exact


# -- the worst of many releases ---------------------------------------------------------------


def _worst(found: list[Enclosure | Bound | Fraction]) -> Bound:
    # No lower end: the worst part is one that a run could make, but perhaps none does.
    uppers = [each if isinstance(each, Fraction) else each.upper for each in found]
    return Bound(
        upper=max(uppers, default=Fraction(0)),
        lower=None if found else Fraction(0),
        method="worst",
        theorem=_THEOREM,
    )


def _epsilon(part: OfAll, delta: Fraction) -> Enclosure | Bound | Fraction:
    match part:
        case PrivacyCurve() | Composition():
            return part.epsilon(delta)
        case BinomialBox():
            return part.epsilon(delta) if delta else Enclosure.infinite()
        case Assumed(guarantee=Pure(epsilon=epsilon)):
            return Fraction(epsilon)
    raise InvalidParameter("parts", part, "must be a curve or an assumed pure guarantee")


def _delta_of(part: OfAll, epsilon: Fraction) -> Enclosure | Bound | Fraction:
    match part:
        case PrivacyCurve() | BinomialBox() | Composition():
            return part.delta(epsilon)
        case Assumed(guarantee=Pure(epsilon=promised)):
            return Fraction(0) if epsilon >= Fraction(promised) else Fraction(1)
    raise InvalidParameter("parts", part, "must be a curve or an assumed pure guarantee")


def _pure(part: OfAll) -> Pure | None:
    match part:
        case Composition():
            most = part.pure()
            exact = most.upper if most.upper == most.lower else math.inf
            return Pure(exact, scope=part.scope) if isinstance(exact, Fraction) else None
        case PrivacyCurve():
            return part.pure()
        case Assumed(guarantee=Pure() as promised):
            return promised
    return None


def _delta(delta: RationalLike) -> Fraction:
    exact = rational("delta", delta)
    if not 0 <= exact <= 1:
        raise InvalidParameter("delta", delta, "must lie in [0, 1]: it is a probability")
    return exact
