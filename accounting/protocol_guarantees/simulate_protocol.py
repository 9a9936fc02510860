r"""Simulate a planned protocol: the error of its estimates, and the guarantee after dropouts.

Values and dropouts are random, and the noise is that of the real protocol. The guarantee is derived
from the number of users who stay, not from the simulated runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from accounting.guarantees.guarantee import Guarantee
from accounting.protocol_guarantees.plan_protocol import Plan, protocol_guarantee
from dpcore.errors import InvalidParameter
from dpcore.numbers.enclosure import round_up
from dpcore.numbers.parameter import integer
from dpcore.protocols.noisy_sums import ModularSum, ShuffledPure
from dpcore.protocols.run_protocol import (
    Aggregation,
    IdealAggregation,
    Protocol,
    RelaxedAggregation,
    Shuffler,
    run,
)
from dpcore.protocols.shuffled_bits import BinaryShuffle, VectorShuffle
from dpcore.sampling.rng import SYSTEM, Rng
from dpcore.secure_aggregation.masked_aggregation import MaskedAggregation, Step
from dpcore.secure_aggregation.round_parameters import size_neighbourhood
from dpcore.spec_syntax import check_word

Kind: TypeAlias = Literal["ideal", "ideal-per-user", "masked", "masked-neighbours"]

_BATCH: Final = "simulation"
_MOST_VALUES: Final = 1 << 24
_MOST_BITS: Final = 1 << 26


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    r"""The results of ``runs`` runs of a plan, with ``dropouts`` dropouts in each.

    Errors are those of the estimated sum of values in [0, 1], over all coordinates, measured in
    these runs. ``kept`` is the guarantee derived from the noise of the ``honest`` users who stayed.
    ``noise_deviation`` is the standard deviation of the noise law in the units of the values,
    rounded up. Randomised rounding of the values adds an error whose standard deviation is at most
    sqrt(users)/(2 precision).
    """

    plan: Plan
    runs: int
    dropouts: int
    aggregation: str
    mean_absolute_error: float
    root_mean_square_error: float
    noise_deviation: float
    kept: Guarantee

    @property
    def present(self) -> int:
        r"""The number of users who did not drop out."""
        return self.plan.protocol.users - self.dropouts

    @property
    def honest(self) -> int:
        r"""The number of users who stayed and whose noise counts, at most as many as planned."""
        return min(self.plan.honest, self.present)


def simulate(
    plan: Plan,
    *,
    dropouts: int = 0,
    runs: int = 100,
    aggregation: Kind = "ideal",
    world: np.random.Generator,
    rng: Rng = SYSTEM,
    progress: Callable[[int], None] | None = None,
) -> Simulation:
    r"""Simulate ``plan`` with random values in [0, 1]; ``world`` draws the values and the dropouts.

    The values are uniform, or fair bits for a binary shuffle.

    With ``aggregation="ideal"`` the noise of the sum is one draw; with ``"ideal-per-user"`` every
    user draws noise. ``"masked"`` runs masked secure aggregation. ``"masked-neighbours"`` runs it
    with the smallest neighbourhoods that suffice if all users collude who neither drop out nor are
    among the honest users of the plan. Shuffle protocols accept only ``"ideal"``.
    """
    users = plan.protocol.users
    gone, runs = integer("dropouts", dropouts, at_least=0), integer("runs", runs, at_least=1)
    if gone >= users:
        reason = f"must be below {users}: at least one user must remain"
        raise InvalidParameter("dropouts", dropouts, reason)
    _check_size(plan.protocol)
    words, functionality = _functionality(plan, gone, aggregation)
    errors = []
    for number in range(runs):
        values = _values(plan.protocol, world)
        away = {str(user): Step.INPUT for user in world.choice(users, gone, replace=False)}
        outcome = run(plan.protocol, values, functionality, batch=_BATCH, vanish=away, rng=rng)
        stayed = [user for user in range(users) if str(user) not in away]
        errors.append(np.array(outcome.estimate, dtype=np.float64) - values[stayed].sum(axis=0))
        if progress is not None:
            progress(number + 1)
    error = np.array(errors)
    return Simulation(
        plan=plan,
        runs=runs,
        dropouts=gone,
        aggregation=words,
        mean_absolute_error=float(np.abs(error).mean()),
        root_mean_square_error=float(np.sqrt((error**2).mean())),
        noise_deviation=deviation(plan.protocol, users - gone),
        kept=protocol_guarantee(plan.protocol, min(plan.honest, users - gone)),
    )


def _check_size(protocol: Protocol) -> None:
    # One run is held in memory: a run that is too large is refused before anything is drawn.
    if not isinstance(protocol, ModularSum):
        need, most, of = protocol.users * protocol.bits_per_user, _MOST_BITS, "bits"
    else:
        need, most, of = protocol.users, _MOST_VALUES, "values"
    if need > most:
        reason = f"a run needs {need} {of}, above the limit of {most}: simulate fewer users"
        raise InvalidParameter("users", protocol.users, reason)


def _functionality(
    plan: Plan, gone: int, aggregation: Kind
) -> tuple[str, Aggregation | RelaxedAggregation | Shuffler]:
    # Returns a description of the functionality, and the functionality.
    protocol, users = plan.protocol, plan.protocol.users
    check_word("aggregation", aggregation, Kind)
    shuffled = not isinstance(protocol, ModularSum) or isinstance(protocol, ShuffledPure)
    if shuffled and aggregation != "ideal":
        reason = "must be ideal for shuffle protocols"
        raise InvalidParameter("aggregation", aggregation, reason)
    if not isinstance(protocol, ModularSum):
        return "a shuffler of bits", Shuffler()
    modulus = protocol.modulus
    if isinstance(protocol, ShuffledPure):
        # The aggregation is only assumed: its two parameters do not affect the draws.
        relaxed = RelaxedAggregation(modulus=modulus, epsilon_hat=0, q_hat=0)
        return "a relaxed aggregation, assumed", relaxed
    if aggregation == "ideal":
        return "ideal: the noise of the sum is one draw", IdealAggregation(modulus=modulus)
    if aggregation == "ideal-per-user":
        ideal = IdealAggregation(modulus=modulus, per_user=True)
        return "ideal: every user draws a share of the noise", ideal
    size: dict[str, Any] = {"users": users, "coordinates": 1, "modulus": modulus}
    if aggregation == "masked":
        masked = MaskedAggregation(**size, dropouts=max(gone, (users - 1) // 3))
        return f"masked, up to {masked.dropouts} dropouts", masked
    colluding = max(0, users - plan.honest - gone)
    near = size_neighbourhood(users=users, dropouts=gone, colluding=colluding)
    others = users - 1 if near is None else near.neighbours
    words = f"masked by {others} neighbours each, up to {gone} dropouts and {colluding} colluding"
    return words, MaskedAggregation(**size, dropouts=gone, neighbourhood=near)


def _values(protocol: Protocol, world: np.random.Generator) -> npt.NDArray[Any]:
    match protocol:
        case BinaryShuffle():
            return world.integers(0, 2, protocol.users)
        case VectorShuffle():
            return world.random((protocol.users, protocol.coordinates))
        case _:
            return world.random(protocol.users)


def deviation(protocol: Protocol, present: int) -> float:
    r"""The standard deviation of the noise of ``present`` users in value units, rounded up."""
    return math.nextafter(math.sqrt(round_up(protocol.square_error(present))), math.inf)
