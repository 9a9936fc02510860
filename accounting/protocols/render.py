r"""Format plans and simulations as text and as JSON; each bound names its direction."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from accounting.claims.bound import Bound
from accounting.claims.guarantee import Guarantee
from accounting.protocols.choose import Plan, Protocol
from accounting.protocols.simulation import Simulation
from dpcore.command.terminal import fact
from dpcore.noise import Noise
from dpcore.numbers.enclosure import round_up
from dpcore.numbers.parameter import write_rational
from dpcore.numbers.rounding import down, exactly, up
from dpcore.protocols.pure_shuffle import PureShuffle
from dpcore.protocols.shuffled_bits import BinaryShuffle, VectorShuffle
from dpcore.protocols.sums import CentralSum, LocalSum
from dpcore.spelling import write_noise

_MARGIN = 14


def plan_lines(plan: Plan) -> list[str]:
    r"""The plan as text, one fact per line, the guarantee first.

    >>> from accounting.protocols.choose import choose
    >>> print("\n".join(plan_lines(choose(instance="pure", users=1024, epsilon=1))[:3]))
    pure for 1024 users, parameters exact
      promise     epsilon = 1, delta = 0 with 1024 honest users
      guarantee   epsilon exactly 1: kept
    """
    protocol = plan.protocol
    lines = [
        f"{plan.instance} for {protocol.users} users, parameters {plan.parameters}",
        _line("promise", f"{_target(plan)} with {plan.honest} honest users"),
        _line("guarantee", f"{_whole(plan, plan.guarantee, plan.honest)}: {_kept(plan)}"),
    ]
    lines += _assumed(plan, plan.guarantee, plan.honest)
    lines += [_line(name, value) for name, value in _parameters(plan)]
    return lines


def simulation_lines(result: Simulation) -> list[str]:
    r"""The plan in short, the simulated errors, and the remaining guarantee."""
    plan = result.plan
    gone = f"{result.dropouts} of {plan.protocol.users} users vanished in each run"
    runs = f"{result.runs} runs, {result.aggregation}"
    error = f"mean |error| {result.mean_absolute_error:.4g}, root mean square "
    error += f"{result.root_mean_square_error:.4g}, of a sum of {result.present} values in [0, 1]"
    planned = _whole(plan, result.planned, plan.honest)
    kept = _whole(plan, result.kept, result.present)
    lines = [
        f"{plan.instance} for {plan.protocol.users} users, parameters {plan.parameters}",
        _line("runs", runs),
        _line("dropouts", gone),
        _line("error", error),
        _line("noise", f"standard deviation {up(result.noise_deviation)} at most, exact law"),
        _line("bits", f"{plan.protocol.bits_per_user} a user"),
        _line("planned", f"{planned} ({plan.honest} honest users)"),
        _line("kept", f"{kept} ({result.present} users stayed)"),
    ]
    lines += _assumed(plan, result.kept, result.present)
    return lines


def plan_json(plan: Plan) -> dict[str, Any]:
    r"""The plan as JSON: exact parameters as text and bounds as two ends.

    >>> from accounting.protocols.choose import choose
    >>> plan_json(choose(instance="pure", users=64, epsilon=1))["bits_per_user"]
    10
    """
    return {
        "schema": "dpcore-protocol-plan/1",
        "instance": plan.instance,
        "parameters": plan.parameters,
        "users": plan.protocol.users,
        "honest": plan.honest,
        "target": {"epsilon": write_rational(plan.epsilon), "delta": write_rational(plan.delta)},
        "guarantee": _curve_json(plan, plan.guarantee, plan.honest),
        "meets_target": plan.meets,
        "assumes": plan.assumes or None,
        "assumed_epsilon": write_rational(plan.assumed_epsilon),
        "noise_of_a_user": _noise_json(_of_a_user(plan.protocol)),
        "noise_of_the_sum": _noise_json(plan.protocol.planned_noise),
        **_numbers(plan),
        "bits_per_user": plan.protocol.bits_per_user,
    }


def simulation_json(result: Simulation) -> dict[str, Any]:
    r"""The simulation as JSON, including the plan."""
    plan = result.plan
    return {
        "schema": "dpcore-protocol-simulation/1",
        "plan": plan_json(plan),
        "runs": result.runs,
        "aggregation": result.aggregation,
        "dropouts": result.dropouts,
        "present": result.present,
        "mean_absolute_error": result.mean_absolute_error,
        "root_mean_square_error": result.root_mean_square_error,
        "noise_deviation_upper": result.noise_deviation,
        "bits_per_user": plan.protocol.bits_per_user,
        "planned": _curve_json(plan, result.planned, plan.honest),
        "kept": _curve_json(plan, result.kept, result.present),
    }


def _line(name: str, value: str) -> str:
    return fact(f"  {name}", value, margin=_MARGIN)


def _target(plan: Plan) -> str:
    return f"epsilon = {plan.epsilon}, delta = {write_rational(plan.delta)}"


def _kept(plan: Plan) -> str:
    return "kept" if plan.meets else "NOT certified to keep the promise"


def _epsilon(plan: Plan, curve: Guarantee, present: int) -> Bound:
    # epsilon(delta) of what so many users hide. A plan that meets its target is certified to lie
    # at or below it with the honest alone, which can be narrower than a box's bisection.
    found = curve.epsilon(plan.delta)
    if plan.meets and present == plan.honest:
        lower = None if found.lower is None else min(found.lower, plan.epsilon)
        return replace(found, lower=lower, upper=min(found.upper, plan.epsilon))
    return found


def _at(plan: Plan, curve: Guarantee, present: int) -> str:
    # The delta is exact: rounded to either side it would make one of the two ends untrue.
    found, delta = _epsilon(plan, curve, present), plan.delta
    low = None if found.lower is None else down(found.lower, 6)
    high = up(found.upper, 6)
    value = f"exactly {low}" if low == high else f"between {low} and {high}"
    if low is None:
        value = f"at most {high}"
    return f"epsilon {value}" + (f" at delta = {exactly(delta)}" if delta else "")


def _whole(plan: Plan, curve: Guarantee, present: int) -> str:
    # With what an assumed aggregation shows beside the sum: the two add up, and no lower end.
    if not plan.assumes:
        return _at(plan, curve, present)
    most = up(_epsilon(plan, curve, present).upper + plan.assumed_epsilon, 6)
    return f"epsilon at most {most}, given what is assumed"


def _assumed(plan: Plan, curve: Guarantee, present: int) -> list[str]:
    if not plan.assumes:
        return []
    spent = exactly(plan.assumed_epsilon)
    return [
        _line("assumes", f"{plan.assumes}, which may cost {spent}"),
        _line("sum alone", _at(plan, curve, present)),
    ]


def _curve_json(plan: Plan, curve: Guarantee, present: int) -> dict[str, Any]:
    found = _epsilon(plan, curve, present)
    ends = {"lower": _number(found.lower_float), "upper": _number(found.upper_float)}
    return {"epsilon": ends, "delta": write_rational(plan.delta)}


def _number(value: float | None) -> float | str | None:
    return value if value != float("inf") else "infinity"


def _of_a_user(protocol: Protocol) -> Noise | None:
    match protocol:
        case BinaryShuffle() | VectorShuffle():
            return None
        case PureShuffle():
            return protocol.share
        case _:
            return protocol.local_noise


def _noise_json(noise: Noise | None) -> str | None:
    return None if noise is None else write_noise(noise)


def _numbers(plan: Plan) -> dict[str, Any]:
    match plan.protocol:
        case BinaryShuffle() as bits:
            return {"noise_bits": bits.noise_bits, "probability": str(bits.probability)}
        case VectorShuffle() as vector:
            return {
                "precision": vector.precision,
                "coordinates": vector.coordinates,
                "noise_bits": vector.noise_bits,
                "probability": str(vector.probability),
            }
        case PureShuffle() as pure:
            return {
                "precision": pure.precision,
                "reach": pure.reach,
                "cover": str(pure.cover),
                "missed_upper": round_up(pure.missed(pure.users)),
                "standard_error_upper": _standard_error(pure),
            }
        case protocol:
            wraps = plan.size.wraparound.upper_float if plan.size is not None else None
            return {
                "precision": protocol.precision,
                "threshold": protocol.threshold,
                "modulus": protocol.modulus,
                "wraparound_upper": wraps,
            }


def _standard_error(protocol: PureShuffle) -> float:
    return math.nextafter(math.sqrt(round_up(protocol.square_error(protocol.users))), math.inf)


def _parameters(plan: Plan) -> list[tuple[str, str]]:
    protocol, one = plan.protocol, _of_a_user(plan.protocol)
    rows = [("each user", write_noise(one))] if one is not None else []
    match protocol:
        case BinaryShuffle() | VectorShuffle():
            bits = f"{protocol.noise_bits} random bit{'s' * (protocol.noise_bits > 1)}"
            rows.append(("each user", f"{bits}, 1 with probability {protocol.probability}"))
            rows.append(("sum noise", write_noise(protocol.planned_noise)))
            if isinstance(protocol, VectorShuffle):
                rows.append(("precision", f"g = {protocol.precision} steps a unit"))
        case PureShuffle():
            rows.append(("cover", f"with probability {protocol.cover}, or beyond {protocol.reach}"))
            rows.append(("sum noise", write_noise(protocol.planned_noise)))
            rows.append(
                ("missed", f"with probability at most {up(protocol.missed(protocol.users))}")
            )
            rows.append(("error", f"standard deviation at most {up(_standard_error(protocol))}"))
            rows.append(("precision", f"g = {protocol.precision} steps a unit"))
        case _:
            where = "analyzer" if isinstance(protocol, CentralSum) else "sum noise"
            rows.append((where, write_noise(protocol.planned_noise)))
            rows.append(("precision", f"g = {protocol.precision} steps a unit"))
            rows.append(
                ("modulus", f"m = {protocol.modulus}, threshold tau = {protocol.threshold}")
            )
            if plan.size is not None:
                chance = up(plan.size.wraparound.upper)
                rows.append(("wraps", f"with probability at most {chance}"))
            if isinstance(protocol, LocalSum):
                rows.append(("trust", "nobody: every message keeps the promise by itself"))
    rows.append(("bits", f"{protocol.bits_per_user} a user"))
    return rows
