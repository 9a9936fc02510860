r"""Play combinatorial bandits round by round, many independent runs in parallel.

The draws of a run do not depend on the other runs. Each run has two generators (:class:`Coins`):
one draws the outcomes of the base arms and the random tie-breaking, the other draws the noise. The
policy's estimates use only released sums (:mod:`bandits.privatizers.continual_sums_per_arm`), and
only this module reads outcomes. Proofs: docs/proofs/radius.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final, cast

import numpy as np

from bandits.combinatorial_rewards_and_oracles import LargestSum, Problem
from bandits.play import Run, checked_checkpoints
from bandits.policies.combinatorial_ucb import Cucb, CucbName
from bandits.policies.registry import Algorithm, Setting
from bandits.privatizers.continual_sums_per_arm import Totals
from bandits.regret import SuperArmRegret
from bandits.super_arms import Bools, Unions
from bandits.worlds.combinatorial import BitWorld
from dpcore.errors import ABSENT, InvalidParameter
from dpcore.mechanism import Release
from dpcore.numbers.arrays import Floats, Integers
from dpcore.sampling.rng import Rng, SystemRng

_BLOCK: Final = 512
_TIE: Final = 1e-9
_MANY_ROUNDS: Final = 1 << 18


@dataclass(frozen=True, slots=True, kw_only=True)
class Coins:
    r"""The random generators of one run: ``world`` for outcomes and ties, ``rng`` for noise."""

    world: np.random.Generator
    rng: Rng


def play_together(
    policy: Cucb,
    worlds: Sequence[BitWorld],
    coins: Sequence[Coins],
    *,
    checkpoints: Sequence[int] = (),
) -> tuple[Run, ...]:
    r"""Run ``policy`` once in each of ``worlds``, for ``policy.horizon`` rounds.

    ``coins[i]`` contains the two random generators of the run in ``worlds[i]``. Let opt be the
    largest mean reward of a super arm, and r(S_t) the mean reward of the super arm played in round
    t. If the oracle reaches the fraction alpha of opt with probability beta, the regret is the sum
    of alpha beta opt - r(S_t) over all rounds. It may be negative for an approximate oracle.

    The oracle receives the upper confidence bounds plus random perturbations below 1e-9, so that
    ties are broken at random. As long as some base arms have no released outcome, the super arm
    that contains the most of them is played.
    """
    if not isinstance(policy, Cucb):
        raise InvalidParameter("policy", policy, "must be a Cucb")
    if not worlds:
        raise InvalidParameter("worlds", worlds, "must contain at least one world")
    if any(world.of != policy.problem for world in worlds):
        raise InvalidParameter("worlds", ABSENT, "each world must have the policy's problem")
    if len(coins) != len(worlds):
        raise InvalidParameter(
            "coins",
            ABSENT,
            f"must contain {len(worlds)} pairs of generators, one for each world",
        )
    at = checked_checkpoints(checkpoints, policy.privatizer.horizon)
    # Fewer rounds take less time than the import of numba.
    many = policy.privatizer.horizon * len(worlds) >= _MANY_ROUNDS
    game = Game(policy, worlds, coins, compiled=many)
    score = SuperArmRegret(policy.problem, worlds, at)
    for start in range(0, policy.privatizer.horizon, _BLOCK):
        score.add(game.play(min(_BLOCK, policy.privatizer.horizon - start)))
    return _runs(policy, game, score)


def cucb_of(algorithm: Algorithm, setting: Setting) -> Cucb:
    r"""The policy of ``algorithm`` for ``setting``, whose ``model`` is a combinatorial problem."""
    name = algorithm.entry.name
    if algorithm.entry.world != "combinatorial" or not isinstance(setting.model, Problem):
        reason = "must be cucb or a private version of it: the world is combinatorial"
        raise InvalidParameter("algorithms", name, reason)
    if algorithm.value is not None and setting.radius == "exact":
        reason = "c applies only to the paper's radius: omit it, or use --radius paper"
        raise InvalidParameter("algorithms", str(algorithm), reason)
    return Cucb(
        cast(CucbName, name),
        setting.model,
        horizon=setting.horizon,
        epsilon=setting.epsilon,
        delta=setting.delta,
        release=setting.release,
        radius=setting.radius,
        c=algorithm.value or algorithm.entry.default or 4,
    )


class Game:
    r"""The state of several runs of one policy that are played in parallel.

    Each array has one row per run; ``sums`` holds the released sums of all runs.
    """

    def __init__(
        self,
        policy: Cucb,
        worlds: Sequence[BitWorld],
        coins: Sequence[Coins],
        *,
        compiled: bool = False,
    ) -> None:
        m = policy.problem.arms
        self.policy, self.worlds, self.coins = policy, worlds, coins
        self.sums = Totals(policy.privatizer, m, [each.rng for each in coins])
        self.bonus, self.clip = policy.bonuses(), float(policy.clip)
        self.bounds = np.full((len(worlds), m), self.clip)
        self.rows = np.arange(len(worlds))
        self.fresh = np.ones((len(worlds), m), dtype=np.bool_)
        self.waiting = True
        self.sent = np.zeros(len(worlds), dtype=np.int64)
        self.last = np.zeros((len(worlds), m), dtype=np.bool_)
        problem = policy.problem
        sums = type(problem.oracle) is LargestSum and not problem.oracle.offset
        unions = sums and isinstance(problem.decisions, Unions)
        self.compiled = compiled and unions and find_spec("numba") is not None

    def play(self, rounds: int) -> Bools:
        r"""Play the next rounds; return the super arms played, of shape (rounds, runs, arms)."""
        m, sent = self.policy.problem.arms, self.policy.privatizer.sent
        outcomes = np.empty((len(self.worlds), rounds, m), dtype=np.bool_)
        public = np.empty((len(self.worlds), rounds, m + 1))
        noise = np.zeros((len(self.worlds), rounds, sent), dtype=np.int64)
        for i, (world, each) in enumerate(zip(self.worlds, self.coins, strict=True)):
            outcomes[i] = world.outcomes(rounds, each.world)
            each.world.random(out=public[i])
            if self.sums.each:
                noise[i] = self.policy.privatizer.draw((rounds, sent), each.rng)
        played: Bools = np.empty(outcomes.shape, dtype=np.bool_)
        done = 0
        while done < rounds and (self.waiting or not self.compiled):
            ties = public[:, done, :m] * _TIE
            chosen = self.policy.problem.choose(self.bounds + ties, public[:, done, m])
            chosen = self._first(chosen, ties) if self.waiting else chosen
            played[:, done] = chosen
            self._send(chosen, outcomes[:, done], ties, noise[:, done])
            done += 1
        if done < rounds:
            rest = (played[:, done:], outcomes[:, done:], public[:, done:], noise[:, done:])
            self._loop(*rest)
        self.last = played[:, -1]
        return played.swapaxes(0, 1)

    def _loop(self, played: Bools, outcomes: Bools, public: Floats, noise: Integers) -> None:
        # Local import: numba is an extra and slow to import.
        from bandits.policies.combinatorial_ucb_compiled import loop_of, play_rounds

        whole, found = np.ascontiguousarray, np.ascontiguousarray(played)
        loop, state = loop_of(self.policy, _TIE), (self.bounds, self.sent)
        coins = (whole(public), whole(outcomes), whole(noise))
        play_rounds(loop, self.sums.tables(), state, *coins, found)
        if found is not played:
            played[:] = found

    def _first(self, chosen: Bools, ties: Floats) -> Bools:
        # While sums are missing, play the super arm with the most base arms without sums.
        found = self.policy.problem.decisions.best(self.fresh + ties)
        missing: Bools = np.any(found & self.fresh, axis=1)
        self.fresh[~missing] = False  # base arms in no super arm are never played
        return np.where(missing[:, None], found, chosen)

    def _send(self, chosen: Bools, outcomes: Bools, ties: Floats, noise: Integers) -> None:
        sums, m = self.sums, chosen.shape[1]
        if self.policy.least:
            taken = np.where(chosen, sums.taken.reshape(chosen.shape) + ties, np.inf)
            cells = self.rows * m + taken.argmin(axis=1)
        else:
            cells = chosen.ravel().nonzero()[0]
        drawn = noise.ravel()
        if len(cells) == noise.size:
            self.sent += noise.shape[1]
        else:  # some super arms are smaller
            sizes = chosen.sum(axis=1)
            self.sent += sizes
            drawn = noise[np.arange(noise.shape[1]) < sizes[:, None]]
        cells = sums.add(cells, outcomes.ravel()[cells], drawn)
        if len(cells):
            self._bound(cells)

    def _bound(self, cells: Integers) -> None:
        # Updates the bounds for newly released sums.
        sums = self.sums
        count = sums.count.ravel()[cells]
        bounds = sums.value.ravel()[cells] / count
        bounds += self.bonus[count]
        self.bounds.ravel()[cells] = np.minimum(bounds, self.clip, out=bounds)
        if self.waiting:
            self.fresh.ravel()[cells] = False
            self.waiting = bool(self.fresh.any())


def _runs(policy: Cucb, game: Game, score: SuperArmRegret) -> tuple[Run, ...]:
    privatizer, mechanism = policy.privatizer, policy.privatizer.mechanism
    # Local model: one release per user. Central model: one release of all users per run.
    count = privatizer.horizon if privatizer.trust == "local" else 1
    batch = f"{policy.name}/{'one of the rounds' if count > 1 else 'all rounds'}"
    records = () if mechanism is None else (Release(mechanism=mechanism, batch=batch),) * count
    guarantee, bits = policy.guarantee(), privatizer.bits
    return tuple(
        Run(
            policy=policy.name,
            horizon=privatizer.horizon,
            checkpoints=score.checkpoints,
            regret=tuple(float(each[i]) for each in score.regret),
            pulls=tuple(score.pulls[i].tolist()),
            active=tuple(np.flatnonzero(game.last[i]).tolist()),
            batches=privatizer.horizon,
            releases=records,
            bits_per_user=privatizer.sent * bits,
            mean_bits_per_user=numbers * bits / privatizer.horizon,
            guarantee=guarantee,
            simulated=type(coins.rng) is not SystemRng,
            numbers=numbers,
            bits_sent=numbers * bits,
        )
        for i, (coins, numbers) in enumerate(zip(game.coins, game.sent.tolist(), strict=True))
    )
