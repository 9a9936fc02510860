r"""Format plans and simulations of protocols as text and as JSON.

Each bound states its direction.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from accounting.guarantees.bound import Bound
from accounting.guarantees.guarantee import Guarantee
from accounting.protocol_guarantees.plan_protocol import Plan
from accounting.protocol_guarantees.simulate_protocol import Simulation, deviation
from dpcore.cli.terminal import fact
from dpcore.numbers.enclosure import round_up
from dpcore.numbers.parameter import write_rational
from dpcore.numbers.rounding import down, exactly, up
from dpcore.parse_noise import write_noise
from dpcore.protocols.noisy_sums import CentralSum, LocalSum
from dpcore.protocols.shuffled_bits import BinaryShuffle, PureShuffle, VectorShuffle

_MARGIN: Final = 14
_MEASURED: Final = (
    *("runs", "aggregation", "dropouts", "present"),
    *("mean_absolute_error", "root_mean_square_error"),
)


def plan_lines(plan: Plan) -> list[str]:
    r"""The plan as lines of text: the target, the guarantee, and then the parameters."""
    target = f"epsilon = {plan.epsilon}, delta = {write_rational(plan.delta)}"
    kept = "meets the target" if plan.meets else "NOT certified to meet the target"
    facts = [
        ("target", f"{target} with {plan.honest} honest users"),
        ("guarantee", f"{_whole(plan, plan.guarantee, plan.honest)}: {kept}"),
        *_assumed(plan, plan.guarantee, plan.honest),
        *_parameters(plan)[1],
        ("bits", f"{plan.protocol.bits_per_user} per user"),
    ]
    return _lines(plan, facts)


def simulation_lines(result: Simulation) -> list[str]:
    r"""Lines of text: the simulated errors, and the guarantee before and after the dropouts."""
    plan, kept = result.plan, _whole(result.plan, result.kept, result.honest)
    stayed = f"{result.present} users stayed"
    stayed += f", {result.honest} of them honest" if result.honest < result.present else ""
    error = f"mean |error| {result.mean_absolute_error:.4g}, root mean square "
    error += f"{result.root_mean_square_error:.4g}, of a sum of {result.present} values in [0, 1]"
    planned = _whole(plan, plan.guarantee, plan.honest)
    facts = [
        ("runs", f"{result.runs} runs, {result.aggregation}"),
        ("dropouts", f"{result.dropouts} of {plan.protocol.users} users dropped out in each run"),
        ("error", error),
        ("noise", f"standard deviation at most {up(result.noise_deviation)}, from the exact law"),
        ("bits", f"{plan.protocol.bits_per_user} per user"),
        ("planned", f"{planned} ({plan.honest} honest users)"),
        ("remaining", f"{kept} ({stayed})"),
        *_assumed(plan, result.kept, result.honest),
    ]
    return _lines(plan, facts)


def _lines(plan: Plan, facts: Iterable[tuple[str, str]]) -> list[str]:
    head = f"{plan.instance} for {plan.protocol.users} users, parameters {plan.parameters}"
    return [head, *(fact(f"  {name}", value, margin=_MARGIN) for name, value in facts)]


def plan_json(plan: Plan) -> dict[str, Any]:
    r"""The plan as JSON: exact parameters as text, and each bound as two numbers."""
    own = plan.protocol.local_noise
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
        "noise_of_a_user": None if own is None else write_noise(own),
        "noise_of_the_sum": write_noise(plan.protocol.planned_noise),
        **_parameters(plan)[0],
        "bits_per_user": plan.protocol.bits_per_user,
    }


def simulation_json(result: Simulation) -> dict[str, Any]:
    r"""The simulation as JSON, including the plan."""
    plan = result.plan
    return {
        "schema": "dpcore-protocol-simulation/1",
        "plan": plan_json(plan),
        **{name: getattr(result, name) for name in _MEASURED},
        "noise_deviation_upper": result.noise_deviation,
        "bits_per_user": plan.protocol.bits_per_user,
        "planned": _curve_json(plan, plan.guarantee, plan.honest),
        "kept": _curve_json(plan, result.kept, result.honest),
    }


def _epsilon(plan: Plan, curve: Guarantee, present: int) -> Bound:
    # epsilon(delta) with the noise of the present users. If a plan meets its target, its epsilon
    # with only the honest users is proven to be at most the target, which may be tighter than the
    # bound of a bisection.
    found = curve.epsilon(plan.delta)
    if plan.meets and present == plan.honest:
        lower = None if found.lower is None else min(found.lower, plan.epsilon)
        return replace(found, lower=lower, upper=min(found.upper, plan.epsilon))
    return found


def _at(plan: Plan, curve: Guarantee, present: int) -> str:
    # The delta is exact: rounding it would invalidate the upper or the lower bound.
    found, delta = _epsilon(plan, curve, present), plan.delta
    low = None if found.lower is None else down(found.lower, 6)
    high = up(found.upper, 6)
    value = f"exactly {low}" if low == high else f"between {low} and {high}"
    if low is None:
        value = f"at most {high}"
    return f"epsilon {value}" + (f" at delta = {exactly(delta)}" if delta else "")


def _whole(plan: Plan, curve: Guarantee, present: int) -> str:
    # The cost of the sum plus that of an assumed aggregation; there is no lower bound.
    if not plan.assumes:
        return _at(plan, curve, present)
    most = up(_epsilon(plan, curve, present).upper + plan.assumed_epsilon, 6)
    return f"epsilon at most {most}, under the assumption below"


def _assumed(plan: Plan, curve: Guarantee, present: int) -> list[tuple[str, str]]:
    if not plan.assumes:
        return []
    spent = exactly(plan.assumed_epsilon)
    return [
        ("assumes", f"{plan.assumes}, which may cost {spent}"),
        ("sum alone", _at(plan, curve, present)),
    ]


def _curve_json(plan: Plan, curve: Guarantee, present: int) -> dict[str, Any]:
    found = _epsilon(plan, curve, present)
    ends = {"lower": _number(found.lower_float), "upper": _number(found.upper_float)}
    return {"epsilon": ends, "delta": write_rational(plan.delta)}


def _number(value: float | None) -> float | str | None:
    return value if value != float("inf") else "infinity"


def _parameters(plan: Plan) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    # The parameters of the protocol: for the JSON document, and as lines of text.
    protocol, own = plan.protocol, plan.protocol.local_noise
    steps = None if isinstance(protocol, BinaryShuffle) else protocol.precision
    data: dict[str, Any] = {} if steps is None else {"precision": steps}
    per_unit = "1 step per unit" if steps == 1 else f"{steps} steps per unit"
    precision = [] if steps is None else [("precision", f"g = {per_unit}")]
    rows = [] if own is None else [("each user", write_noise(own))]
    where = "analyzer" if isinstance(protocol, CentralSum) else "sum noise"
    total = (where, write_noise(protocol.planned_noise))
    match protocol:
        case BinaryShuffle() | VectorShuffle():
            bits = f"{protocol.noise_bits} random bit{'s' * (protocol.noise_bits > 1)}"
            rows.append(("each user", f"{bits}, 1 with probability {protocol.probability}"))
            rows += [total, *precision]
            data |= {"noise_bits": protocol.noise_bits, "probability": str(protocol.probability)}
            if isinstance(protocol, VectorShuffle):
                data["coordinates"] = protocol.coordinates
        case PureShuffle():
            missed, error = protocol.missed(protocol.users), deviation(protocol, protocol.users)
            cover = f"with probability {protocol.cover}, or if |noise| > {protocol.reach}"
            rows += [("cover", cover), total, ("any cover", f"with probability <= {up(missed)}")]
            rows += [("error", f"standard deviation at most {up(error)}"), *precision]
            data |= {"reach": protocol.reach, "cover": str(protocol.cover)}
            data |= {"missed_upper": round_up(missed), "standard_error_upper": error}
        case _:
            tau, wraps = protocol.threshold, plan.wraparound
            rows += [
                total,
                *precision,
                ("modulus", f"m = {protocol.modulus}, threshold tau = {tau}"),
            ]
            data |= {"threshold": tau, "modulus": protocol.modulus}
            data["wraparound_upper"] = None if wraps is None else wraps.upper_float
            if wraps is not None:
                rows.append(("wraps", f"with probability at most {up(wraps.upper)}"))
            if isinstance(protocol, LocalSum):
                rows.append(("trust", "no trusted party: every single message has the guarantee"))
    return data, rows
