r"""Run a bandit algorithm in a simulated world, and record its regret, releases and guarantee.

A run proceeds batch by batch. The policy receives only released sums, never raw rewards. By default
every user is new, and therefore in at most one release (``bandits.privatizers.privatizer``); for
returning users see ``bandits.privatizers.returning_users``. Proofs: docs/proofs/bandits.md.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from bandits.batch import Commit, Plays, Pulls, Released, ReleasedSum, arms_and_horizon
from bandits.policies.policy import Policy, Sizes, State
from bandits.privatizers.privatizer import Releasing
from bandits.privatizers.run_guarantee import NEW_USERS, RunGuarantee, Users
from bandits.regret import ArmRegret
from bandits.worlds.arm_environments import Environment
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Release
from dpcore.numbers.parameter import integer
from dpcore.sampling.rng import SYSTEM, Rng, SystemRng

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    r"""The result of a run: the regret, the releases, and the guarantee of each user.

    - ``regret``: the pseudo-regret sum_a gap_a N_a(t) at each round t of ``checkpoints``, where
      gap_a is the best true mean minus that of arm a, and N_a(t) is the number of pulls of arm a in
      the first t rounds. It is computed from the true means, so publishing it for real rewards is
      not private.
    - ``pulls``: N_a(T) for each arm a, where T is the horizon.
    - ``active``: the remaining arms after the last batch, or the arm that the policy committed to.
    - ``batches``: the number of released batches.
    - ``releases``: a record of every release that a ``dpcore.mechanism.Mechanism`` describes.
    - ``bits_per_user``: the largest number of bits that a user sent in one participation.
    - ``mean_bits_per_user``: the mean number of bits over all participations in released batches.
    - ``guarantee``: the guarantee of each user, which assumes noise from the operating system, or
      None if the policy is not private.
    - ``simulated``: True if the noise came from a source other than the operating system.
    - ``numbers``, ``bits_sent``: the total numbers of values and bits that all users sent.
    - ``out_of_users``: the number of rounds that remained when too few users had visits left for
      the next batch; nothing was released in these rounds.

    For a combinatorial run, :func:`bandits.play_combinatorial.play_together` defines ``regret``,
    and ``active`` is the super arm of the last round.
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
    numbers: int = 0
    bits_sent: int = 0
    out_of_users: int = 0

    @property
    def regret_per_round(self) -> float:
        r"""The regret per round, Reg(t)/t, at the last checkpoint."""
        return self.regret[-1] / self.checkpoints[-1]

    def plot(self, ax: Axes | None = None) -> Axes:
        r"""Plot the pseudo-regret at the checkpoints.

        ``ax`` are the matplotlib axes, by default those of a new figure; they are returned.

        Raises :class:`InvalidParameter` if matplotlib is missing.
        """
        from dpcore.cli.figure_file import axes_or_new

        axes = axes_or_new(ax)
        axes.plot(self.checkpoints, self.regret, marker="o", label=self.policy)
        axes.set(xlabel="round", ylabel="pseudo-regret", xlim=(0, None), ylim=(0, None))
        axes.legend()
        return axes


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
    r"""Run ``policy`` in ``environment`` for T = ``horizon`` rounds.

    The generator ``world`` draws the rewards, ``rng`` the noise. A batch pulls its arms in the
    order of their numbers, from arm 0. A batch that exceeds the horizon is cut off at round T. If
    too few users have visits left for a batch, its arms share the remaining rounds equally. In both
    cases nothing is released and no reward is drawn. A batch that exceeds the horizon charges no
    user; with too few users, those already charged for the batch remain charged. ``checkpoints``
    are increasing rounds in [1, T], by default only T.

    >>> from bandits.policies.successive_elimination import BatchedElimination
    >>> from bandits.worlds.arm_environments import Bernoulli
    >>> from bandits.privatizers.batch_sums_by_trust_model import SumPrivatizer
    >>> privatizer = SumPrivatizer(trust="pure", epsilon=1, failure="1e-4")
    >>> policy = BatchedElimination(privatizer=privatizer)
    >>> world = np.random.default_rng(1)
    >>> run = play(policy, Bernoulli(means=(0.9, 0.1)), horizon=10_000, world=world)
    >>> sum(run.pulls), run.guarantee.pure(), run.simulated
    (10000, Bound(at most 1, 'worst'), False)

    Before the first batch, the guarantee is derived from the privatizer and the policy's ``sizes``.
    The size of each batch is checked before any user is charged for this batch.

    Raises :class:`InvalidParameter` if

    - the horizon is below the number of arms;
    - ``checkpoints`` are out of range or not increasing;
    - a mean is outside [``lowest``, 1], where ``lowest`` is an attribute of the environment;
    - the size of a batch is not in the policy's ``sizes``;
    - an argument has the wrong type.
    """
    if not isinstance(policy, Policy):
        raise InvalidParameter("policy", policy, "must be a Policy")
    if not isinstance(environment, Environment) or isinstance(environment, Policy):
        raise InvalidParameter("environment", environment, "must be an Environment, not a Policy")
    if not isinstance(world, np.random.Generator):
        raise InvalidParameter("world", world, "must be a numpy.random.Generator")
    if not isinstance(rng, Rng):
        raise InvalidParameter("rng", rng, "must be a dpcore Rng: SystemRng() or SeededRng(n)")
    if not isinstance(users, Users):
        raise InvalidParameter("users", users, "must be Users, e.g. NEW_USERS")
    arms, horizon = arms_and_horizon(environment.arms, horizon)
    if not all(environment.lowest <= mean <= 1 for mean in environment.means):
        reason = f"must have means in [{environment.lowest}, 1]"
        raise InvalidParameter("environment", environment, reason)
    score = ArmRegret(environment.gaps, checked_checkpoints(checkpoints, horizon))
    privatizer, sizes = releases_of(policy, arms, horizon)
    derived = users.guarantee(privatizer, sizes)
    named = frozenset(sizes) if isinstance(sizes, tuple) else sizes
    sent = _Sent(privatizer, policy.name, users, named)
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
        guarantee=derived,
        simulated=type(rng) is not SystemRng,
        numbers=sent.numbers,
        bits_sent=sent.bits,
        out_of_users=sent.out_of_users,
    )


def _batches(
    policy: Policy[State],
    state: State,
    environment: Environment,
    horizon: int,
    sent: _Sent,
    world: np.random.Generator,
    rng: Rng,
) -> Iterator[tuple[int, ...]]:
    # Yields the pulls of every arm for each batch, until they sum to the horizon.
    left, arms = horizon, environment.arms
    while left:
        choice = policy.choose(state)
        if isinstance(choice, Commit) and choice.arm < arms:
            sent.active = (choice.arm,)
            yield tuple(left if arm == choice.arm else 0 for arm in range(arms))
            return
        if not isinstance(choice, (Pulls, Plays)) or len(choice.counts) != arms:
            raise InvalidParameter(
                "policy", choice, f"must choose a batch for {arms} arms, or a Commit"
            )
        sent.active = choice.active
        if choice.total > left:
            yield tuple(_cut(choice.counts, left))
            return
        if not sent.admitted(choice):
            sent.out_of_users = left
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
    # Divides the remaining rounds equally among the arms of a batch.
    arms = sum(1 for count in counts if count)
    for count in counts:
        taken = -(-left // arms) if count else 0
        arms -= 1 if count else 0
        left -= taken
        yield taken


class _Sent:
    # The messages of users and the releases of the server so far.

    def __init__(self, privatizer: Releasing[Any], name: str, users: Users, sizes: Sizes) -> None:
        self.privatizer, self.name, self.people, self.sizes = privatizer, name, users, sizes
        self.batches = self.users = self.numbers = self.bits = self.most_bits = 0
        self.out_of_users = 0
        self.releases: list[Release] = []
        self.active: tuple[int, ...] = ()

    def admitted(self, choice: Pulls | Plays) -> bool:
        for ask in choice.asks:
            if self.privatizer.size_of(ask) not in self.sizes:
                reason = f"requests {ask.users} users, a size that its method sizes() does not list"
                raise InvalidParameter("policy", self.name, reason)
        return self.people.admit(choice, f"{self.name}/batch {self.batches + 1}")

    def batch(
        self, choice: Pulls | Plays, environment: Environment, world: np.random.Generator, rng: Rng
    ) -> Released:
        self.batches += 1
        privatizer = self.privatizer
        sums: list[ReleasedSum | None] = [None] * environment.arms
        for ask in choice.asks:
            size = privatizer.size_of(ask)
            present = privatizer.present(ask)
            steps = environment.encoded_sums(present, privatizer.encoding(size), world)
            released = privatizer.release_sums(steps, size, rng)
            for action, total in zip(ask.actions, released, strict=True):
                sums[action] = total
            place = "+".join(map(str, ask.actions))
            record = privatizer.record(size, f"{self.name}/batch {self.batches}/arm {place}")
            if record is not None:
                self.releases.append(record)
            bits = privatizer.bits(size)
            self.most_bits = max(self.most_bits, bits)
            self.users += ask.users
            self.numbers += ask.users * len(ask.actions)
            self.bits += ask.users * bits
        return Released(tuple(sums))


def checked_checkpoints(checkpoints: Sequence[int], horizon: int) -> tuple[int, ...]:
    r"""Check that ``checkpoints`` increase up to at most the horizon T; the default is (T,)."""
    exact = tuple(integer("checkpoints", t, at_least=1) for t in checkpoints) or (horizon,)
    if any(b <= a for a, b in pairwise(exact)) or exact[-1] > horizon:
        reason = f"must be increasing and <= horizon = {horizon}"
        raise InvalidParameter("checkpoints", checkpoints, reason)
    return exact


def run_guarantee(policy: Policy[State], arms: int, horizon: int) -> RunGuarantee | None:
    r"""Derive the guarantee of a run of ``policy`` for new users, or None if it is not private.

    >>> from bandits.policies.successive_elimination import DpSe
    >>> run_guarantee(DpSe(epsilon="1/2", failure="1e-5"), 10, 10**5).pure()
    Bound(at most 0.5, 'worst')
    """
    arms, horizon = arms_and_horizon(arms, horizon)
    return NEW_USERS.guarantee(*releases_of(policy, arms, horizon))


def releases_of(policy: Policy[State], arms: int, horizon: int) -> tuple[Releasing[Any], Sizes]:
    r"""The privatizer of ``policy`` and the possible sizes of its releases; types are checked."""
    privatizer, sizes = policy.privatizer, policy.sizes(arms, horizon)
    if not isinstance(privatizer, Releasing):
        reason = f"must have a Privatizer, not {privatizer!r}; use Unprotected() for no privacy"
        raise InvalidParameter("policy", policy.name, reason)
    if not isinstance(sizes, Container) or not isinstance(sizes, Iterable):  # e.g. an iterator
        reason = f"must have a method sizes() that returns a tuple of sizes, not {sizes!r}"
        raise InvalidParameter("policy", policy.name, reason)
    return privatizer, sizes
