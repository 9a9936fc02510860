r"""The ``dpcore protocol`` commands; the entry point is ``protocol``."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from accounting.cli.composition_options import whole
from dpcore.cli.options import (
    AsJson,
    command_group,
    named,
    option,
    share,
    with_fields,
    with_time_limit,
)
from dpcore.cli.terminal import progress_bar, show
from dpcore.errors import InvalidParameter

if TYPE_CHECKING:
    from accounting.protocol_guarantees.plan_protocol import Plan


_NAMES: Final = (
    *("instance", "users", "epsilon", "delta", "parameters", "precision", "scaling"),
    *("coordinates", "failure", "dropouts", "runs", "aggregation"),
)

protocol = command_group(
    "protocol",
    help="Plan and simulate protocols in which many users compute a private sum.\n\n"
    "Start with [bold]dpcore protocol plan --instance pure --users 1000 --epsilon 1[/bold].",
    no_args_is_help=True,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    r"""The planning options of ``dpcore protocol``, as text."""

    instance: str = option(
        "NAME",
        "pure, renyi or concentrated: each user adds a share of the noise, under secure "
        "aggregation; central: a trusted server adds the noise; local: each user adds the full "
        "noise; pure-shuffle, shuffled-pure, binary-shuffle or vector-shuffle: under a shuffler.",
        default=...,
    )
    users: str = option("N", "The number of users; each has a value in [0, 1].", default=...)
    epsilon: str = option("EPSILON", "The epsilon of each user, e.g. 1 or 1/2.", default=...)
    delta: str | None = option(
        "DELTA", "The delta of each user. (default: 0 if the protocol gives pure DP, else 1e-6)"
    )
    honest: str = option(
        "SHARE", "The fraction of users who follow the protocol and stay, e.g. 90%.", default="100%"
    )
    parameters: str = option(
        "WORD", "exact: the least noise; paper: the formula of the paper.", default="exact"
    )
    precision: str | None = option("N", "Round values to multiples of 1/N. (default: the paper's)")
    scaling: str = option(
        "S",
        "The scale of the encoding (renyi and concentrated): larger values give a smaller rounding "
        "error and longer messages.",
        default="1",
    )
    coordinates: str = option("N", "The length of a user's vector (vector-shuffle).", default="1")
    failure: str = option("P", "The largest probability that a sum overflows.", default="1e-6")

    def plan(self) -> Plan:
        r"""Build the plan from the options; error messages name the option."""
        from accounting.protocol_guarantees.plan_protocol import choose

        unbounded = ("renyi", "concentrated", "binary-shuffle", "vector-shuffle")
        given: dict[str, Any] = asdict(self)
        if self.delta is None:
            given["delta"] = "1e-6" if self.instance in unbounded else 0
        given["honest_fraction"] = share("--honest", given.pop("honest"))
        if not given["honest_fraction"]:
            reason = "must be above 0%: at least one user must remain"
            raise InvalidParameter("--honest", self.honest, reason)
        for name in ("users", "precision", "coordinates"):
            given[name] = None if given[name] is None else whole(f"--{name}", given[name])
        with named(*_NAMES, honest_fraction="--honest"):
            return choose(**given)


@protocol.command()
@with_time_limit
@with_fields
def plan(options: PlanOptions, *, as_json: AsJson = False) -> None:
    r"""Choose the parameters of a protocol for an epsilon and delta, and print what they guarantee.

    Example: dpcore protocol plan --instance binary-shuffle --users 1000 --epsilon 0.5 --delta 1e-6
    """
    from accounting.protocol_guarantees.format_plan import plan_json, plan_lines

    chosen = options.plan()
    show(plan_json(chosen) if as_json else plan_lines(chosen))


@protocol.command()
@with_time_limit
@with_fields
def simulate(
    options: PlanOptions,
    *,
    dropouts: str = option(
        "N", "The dropouts in each run: a number, or a percentage such as 10%.", default="0"
    ),
    runs: str = option("N", "The number of runs.", "-n", "--runs", default="100"),
    aggregation: str = option(
        "WORD",
        "ideal: the noise of the sum is one draw; ideal-per-user: each user draws noise; masked: "
        "real secure aggregation with keys; masked-neighbours: the same, with a few neighbours per "
        "user.",
        default="ideal",
    ),
    seed: str | None = option("N", "Repeat a simulation exactly; its noise is then NOT PRIVATE."),
    as_json: AsJson = False,
) -> None:
    r"""Simulate a protocol: its error, the bits sent, and the guarantee that remains.

    Example: dpcore protocol simulate --instance pure --users 1024 --epsilon 1 --dropouts 10%
    """
    import numpy as np

    from accounting.protocol_guarantees.format_plan import simulation_json, simulation_lines
    from accounting.protocol_guarantees.simulate_protocol import simulate as played
    from dpcore.sampling.rng import SYSTEM, SeededRng

    chosen = options.plan()
    count, start = whole("--runs", runs), None if seed is None else whole("--seed", seed)
    world = np.random.default_rng(start)
    with progress_bar("runs", count) as advance, named(*_NAMES):
        result = played(
            chosen,
            dropouts=_gone(dropouts, chosen.protocol.users),
            runs=count,
            aggregation=aggregation,  # type: ignore[arg-type]  # any text: simulate validates it
            world=world,
            rng=SYSTEM if start is None else SeededRng(start),
            progress=advance,
        )
    show(simulation_json(result) if as_json else simulation_lines(result))


def _gone(text: str, users: int) -> int:
    if text.endswith("%"):
        return math.ceil(share("--dropouts", text) * users)
    return whole("--dropouts", text)
