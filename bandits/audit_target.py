r"""The server's view of a bandit, for an audit: ``bandit:dist-dp-se,epsilon=1``.

A run of two arms and a few batches in which one user of the first batch holds the reward 0 or 1,
and all others hold fixed ones, chosen so that this user's reward tips whether the second arm is
dropped: the noise decides what follows, and what follows is part of the view. One output is all
that the server sees: of each arm in each batch the released sum in steps, after the user's own
message in the local model; ``ABSENT`` where an arm was not pulled.

Nothing here imports the audit: :func:`target` gives it a callable, a pair and a claim.
Proofs: docs/proofs/bandits.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from accounting.distributed import protocol_guarantee
from bandits.elimination import NAMES, BatchedElimination, EliminationState
from bandits.policy import Commit, Released, ReleasedSum
from bandits.privatizer import Privatizer
from bandits.privatizer_bits import BitPrivatizer
from bandits.privatizer_sum import SumPrivatizer, Trust
from bandits.radius import ExactRadius
from bandits.schedule import Schedule
from dpcore.errors import InvalidParameter
from dpcore.inversion import Integers
from dpcore.parameter import integer, rational
from dpcore.protocol import LocalSum, ModularSum
from dpcore.rng import SYSTEM, Rng, SeededRng
from dpcore.shuffled_bits import BinaryShuffle

__all__ = [
    "ABSENT",
    "ARMS",
    "BATCHES",
    "Encoded",
    "View",
    "Viewed",
    "drawn",
    "lead",
    "target",
    "transcripts",
    "view_of",
]

Encoded: TypeAlias = Callable[[int, int, int, int, int], Integers]
"""(batch, arm, pulls, precision, runs): the encoded sum of that release in each run."""

ARMS: Final = 2

BATCHES: Final = 3
r"""How many batches of the small instance are seen."""

ABSENT: Final = -(1 << 62)
r"""In the place of a sum that was not released: below every sum."""

_FAILURE: Final = Fraction(1, 1000)
_GRID: Final = 10**6
_SEEDS: Final = 1 << 63
_WIDEST: Final = Fraction(3, 4)
_MOST_PULLS: Final = 1 << 14
_KEYS: Final = ("epsilon", "delta", "scaling")


@dataclass(frozen=True, slots=True, kw_only=True)
class Viewed:
    r"""What an audit needs: ``run(dataset, n, rng)``, n views along the first axis; pair and claim.

    The claim is what was derived for one release, which is all that a new user is in. ``features``
    spell what to look at in a view: the first column, and the lead of arm 0 over arm 1, in which
    noise that both arms share would cancel.
    """

    run: Callable[[Any, int, np.random.Generator], npt.NDArray[np.int64]]
    pair: tuple[int, int]
    epsilon: Fraction
    delta: Fraction
    features: tuple[str, ...] = ("coordinate:0", "bandits.audit_target:lead")


def lead(view: Any) -> int:
    r"""The sum of arm 0 less that of arm 1 in the first batch, in steps.

    >>> lead([9, 4, 20, 7, 41, 12]), lead([-3, 9, 4, 20, 7, 41, 12])
    (5, 5)
    """
    first = len(view) % ARMS
    return int(view[first]) - int(view[first + 1])


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    r"""The small instance: a policy, and how many users of arm 1 hold the reward 1 in each batch.

    The users of arm 0 hold 1, all but one user of the first batch.
    """

    policy: BatchedElimination
    ones: tuple[int, ...]

    def encoded(self, reward: int) -> Encoded:
        r"""The sums of a world in which the user holds ``reward``: no encoding of 0 or 1 rounds."""

        def sums(batch: int, arm: int, pulls: int, precision: int, runs: int) -> Integers:
            held = self.ones[batch - 1] if arm else pulls
            if batch == 1 and arm == 0:
                held += reward - 1
            return np.full(runs, held * precision, dtype=np.int64)

        return sums

    def views(self, reward: int, runs: int, rng: Rng) -> npt.NDArray[np.int64]:
        r"""``runs`` views of the server, a row each."""
        steps = self.policy.privatizer.precision(self.policy.schedule.pulls(1))
        return transcripts(
            self.policy,
            self.encoded(reward),
            batches=BATCHES,
            runs=runs,
            rng=rng,
            watched=reward * steps,
        )


def view_of(privatizer: SumPrivatizer | BitPrivatizer) -> View:
    r"""The small instance for ``privatizer``: the shortest first batch whose gap is at most 3/4.

    In every batch the ones of arm 1 leave it a gap below arm 0, as nearly as they can.

    >>> view = view_of(SumPrivatizer(trust="pure", epsilon=1, failure="1e-3"))
    >>> view.policy.schedule.pulls(1), view.ones
    (16, (6, 19, 46))
    """
    first, radius = 1, ExactRadius(batches=BATCHES)
    p = Fraction(1, 10)

    def gap(batch: int) -> float:
        pulls = first << (batch - 1)
        return radius.gap(privatizer, pulls, batch=batch, active=ARMS, failure=p)

    while gap(1) > _WIDEST and first < _MOST_PULLS:
        first *= 2
    sizes = [(batch, first << (batch - 1)) for batch in range(1, BATCHES + 1)]
    return View(
        policy=BatchedElimination(
            privatizer=privatizer,
            schedule=Schedule(first=first, growth=2),
            radius=radius,
            confidence=p,
        ),
        ones=tuple(size - min(math.ceil(gap(batch) * size), size) for batch, size in sizes),
    )


def transcripts(
    policy: BatchedElimination,
    encoded: Encoded,
    *,
    batches: int,
    runs: int,
    rng: Rng,
    watched: int | None = None,
) -> npt.NDArray[np.int64]:
    r"""The released sums of the first ``batches`` of many runs at once, of two arms, a row a run.

    In steps (for bits, the number of ones), batch after batch; ``ABSENT`` where an arm was not
    pulled. In the local model a ``watched`` user, the encoding of whose reward is given, is among
    the first to pull arm 0, and the first column is that user's message. The law is that of
    ``play`` with the same policy: runs in one state draw their noise together, and the policy
    decides for each released pair of sums.

    Raises :class:`InvalidParameter` for a policy whose privatizer protects nothing.
    """
    privatizer = policy.privatizer
    shown = np.full((runs, ARMS * batches), ABSENT, dtype=np.int64)
    message: npt.NDArray[np.int64] | None = None
    state = policy.init(ARMS, ARMS * policy.schedule.pulls(batches))
    groups: dict[EliminationState, Integers] = {state: np.arange(runs)}
    for batch in range(1, batches + 1):
        following: dict[EliminationState, list[Integers]] = {}
        for state, rows in groups.items():
            choice = policy.choose(state)
            if isinstance(choice, Commit):
                continue
            for arm, count in enumerate(choice.counts):
                if not count:
                    continue
                steps = privatizer.precision(count)
                sums = encoded(batch, arm, count, steps, len(rows))
                seen, own = drawn(privatizer, sums, count, rng)
                shown[rows, ARMS * (batch - 1) + arm] = seen
                if own is not None and watched is not None and batch == 1 and arm == 0:
                    message = own + watched
            _follow(policy, state, choice.counts, shown, rows, following)
        groups = {state: np.concatenate(rows) for state, rows in following.items()}
    if message is None:
        return shown
    # A message is known mod m; around 0 it reads best.
    protocol = privatizer.protocol(policy.schedule.pulls(1))
    if isinstance(protocol, LocalSum):
        half = protocol.modulus // 2
        message = np.remainder(message + half, protocol.modulus) - half
    return np.column_stack([message, shown])


def _follow(
    policy: BatchedElimination,
    state: EliminationState,
    counts: tuple[int, ...],
    shown: npt.NDArray[np.int64],
    rows: Integers,
    following: dict[EliminationState, list[Integers]],
) -> None:
    # What the policy makes of every distinct list of sums.
    start = ARMS * (state.batch - 1)
    seen = shown[rows, start : start + ARMS]
    distinct, place = np.unique(seen, axis=0, return_inverse=True)
    after = []
    for sums in distinct.tolist():
        released = tuple(
            _released(policy.privatizer, total, count) if count else None
            for total, count in zip(sums, counts, strict=True)
        )
        after.append(policy.observe(state, Released(released)))
    kinds = list(dict.fromkeys(after))
    kind = np.array([kinds.index(each) for each in after])[place.reshape(-1)]
    for i, each in enumerate(kinds):
        following.setdefault(each, []).append(rows[kind == i])


def drawn(
    privatizer: Privatizer, sums: Integers, pulls: int, rng: Rng
) -> tuple[Integers, Integers | None]:
    r"""Sums of encodings with fresh noise, as the server reads them, a run each.

    In the local model the noise of one user is returned as well, which is in the sum too.
    """
    protocol, noise = privatizer.protocol(pulls), privatizer.noise(pulls)
    if noise is None or protocol is None:
        raise InvalidParameter("privatizer", privatizer.name, "must protect: there is no claim")
    if isinstance(protocol, LocalSum):
        own = protocol.noise.sample(len(sums), rng=rng)
        rest = np.zeros(len(sums), dtype=np.int64)
        for _ in range(pulls - 1):
            rest += protocol.noise.sample(len(sums), rng=rng)
        return protocol.unwrap(np.remainder(sums + own + rest, protocol.modulus)), own
    noisy = sums + noise.sample(len(sums), rng=rng)
    if isinstance(protocol, ModularSum):
        noisy = protocol.unwrap(np.remainder(noisy, protocol.modulus))
    return noisy, None


def _released(privatizer: Privatizer, total: int, pulls: int) -> ReleasedSum:
    # What an analyzer makes of a sum that it has read.
    protocol = privatizer.protocol(pulls)
    if isinstance(protocol, BinaryShuffle):
        return ReleasedSum(protocol.estimates(np.array([total]), pulls)[0])
    return ReleasedSum(Fraction(total, privatizer.precision(pulls)))


# -- by name ----------------------------------------------------------------------------------


def target(spelling: str, rest: str, seeded: bool) -> Viewed:  # noqa: FBT001  # an entry point's
    r"""What ``bandit:`` and ``rest`` name, for an audit.

    ``rest`` is an algorithm and arguments of its privatizer: ``dist-dp-se,epsilon=1``,
    ``dist-rdp-se,epsilon=1,delta=1e-3,scaling=4``. ``delta`` (0, or 1/1000 where no noise is pure)
    is that of the claim, and for bits what they are chosen for. ``seeded`` false lets the noise
    come from the operating system, as in earnest.

    >>> viewed = target("bandit:dist-dp-se,epsilon=1", "dist-dp-se,epsilon=1", True)
    >>> viewed.pair, viewed.epsilon, viewed.run(1, 2, np.random.default_rng(1)).shape
    ((0, 1), Fraction(1, 1), (2, 6))

    Raises :class:`InvalidParameter` for an unknown or unprotected algorithm, and arguments that
    are unknown, missing, given twice or out of range.
    """
    name, *parts = (part.strip() for part in rest.split(","))
    given: dict[str, str] = {}
    for part in parts:
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or key not in _KEYS:
            reason = f"{part!r} must be one of {', '.join(_KEYS)}, with ="
            raise InvalidParameter("target", spelling, reason)
        if key in given:
            raise InvalidParameter(key, value, "is given twice")
        given[key] = value
    if "epsilon" not in given:
        raise InvalidParameter("target", spelling, "epsilon is missing: write epsilon=...")
    privatizer, delta = _privatizer(spelling, name, given)
    view = view_of(privatizer)

    def run(dataset: Any, n: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
        reward = integer("dataset", dataset)
        if reward not in (0, 1):
            raise InvalidParameter("dataset", dataset, "must be 0 or 1: a reward")
        return view.views(reward, n, SeededRng(int(rng.integers(_SEEDS))) if seeded else SYSTEM)

    return Viewed(run=run, pair=(0, 1), epsilon=_claim(view, delta), delta=delta)


def _privatizer(
    spelling: str, name: str, given: dict[str, str]
) -> tuple[SumPrivatizer | BitPrivatizer, Fraction]:
    trust = {algorithm: trust for trust, algorithm in NAMES.items() if trust != "none"}.get(name)
    if trust is None:
        known = ", ".join(algorithm for trust, algorithm in NAMES.items() if trust != "none")
        raise InvalidParameter("target", spelling, f"{name!r} must be one of {known}")
    epsilon = given["epsilon"]
    unbounded = trust in ("renyi", "concentrated", "binary-shuffle")
    delta = rational("delta", given.get("delta", "1/1000" if unbounded else 0))
    if not 0 <= delta < 1 or (unbounded and not delta):
        reason = "must lie in (0, 1)" if unbounded else "must lie in [0, 1)"
        raise InvalidParameter("delta", given.get("delta"), reason)
    if trust == "binary-shuffle":
        if "scaling" in given:
            raise InvalidParameter("scaling", given["scaling"], "bits have none")
        return BitPrivatizer(epsilon=epsilon, delta=delta), delta
    return (
        SumPrivatizer(
            trust=cast(Trust, trust),
            epsilon=epsilon,
            failure=_FAILURE,
            scaling=given.get("scaling", 1),
        ),
        delta,
    )


def _claim(view: View, delta: Fraction) -> Fraction:
    # The worst release that the instance may make, rounded up; of a relaxed aggregation, the sum.
    sizes = [view.policy.schedule.pulls(batch) for batch in range(1, BATCHES + 1)]
    found = [_epsilon(view.policy.privatizer, size, delta) for size in sizes]
    return Fraction(math.ceil(max(found) * _GRID), _GRID)


def _epsilon(privatizer: Privatizer, size: int, delta: Fraction) -> Fraction:
    protocol = privatizer.protocol(size)
    if protocol is None:
        raise InvalidParameter("privatizer", privatizer.name, "must protect: there is no claim")
    return Fraction(protocol_guarantee(protocol, size).epsilon(delta).upper)
