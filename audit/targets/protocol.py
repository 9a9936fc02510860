r"""A distributed protocol as a target: an output is the server's view of one round.

    protocol:pure,users=64,epsilon=1
    protocol:renyi,users=64,epsilon=1,delta=1e-6,honest_fraction=3/4,functionality=masked

The first word names an instance of a protocol; the other words are arguments of
``accounting.protocol_guarantees.plan_protocol.choose``. A dataset is the value of one user: a
number in [0, 1], or a list of such numbers for vectors. All other users have the value 0. One run
is one round of the real protocol, in which all but the honest users drop out before they send their
input. The server's view is usually the sum in steps of 1/precision. For protocols that send bits it
is the number of ones per coordinate, for a local protocol the message of the one user, and for a
central protocol the published sum.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from accounting.protocol_guarantees.plan_protocol import Plan, choose
from audit.targets.target import Catalogued, Known, Law, Shifted, read_words
from dpcore.errors import InvalidParameter
from dpcore.noise import Noise
from dpcore.numbers.arrays import Integers
from dpcore.numbers.parameter import rational, whole_number
from dpcore.protocols.noisy_sums import (
    AggregatedSum,
    CentralSum,
    LocalSum,
    ModularSum,
    ShuffledPure,
)
from dpcore.protocols.run_protocol import (
    Aggregation,
    IdealAggregation,
    Protocol,
    RelaxedAggregation,
    Shuffler,
    run,
)
from dpcore.protocols.shuffled_bits import BinaryShuffle, PureShuffle, VectorShuffle
from dpcore.sampling.rng import Rng
from dpcore.secure_aggregation.masked_aggregation import MaskedAggregation, Step
from dpcore.spec_syntax import check_word

FUNCTIONALITIES: Final = ("ideal", "per-user", "masked")
r"""How the secure sum is computed: with one draw of the total noise, with one draw of noise per
user, or with masked messages.
"""

Held: TypeAlias = tuple[Fraction, ...]

_NUMBERS: Final = ("epsilon", "delta", "honest_fraction", "failure", "scaling")
_COUNTS: Final = ("users", "precision", "coordinates")
_WORDS: Final = ("parameters", "functionality")
_GRID: Final = 10**6


def read_protocol(spelling: str, words: str, *, seeded: bool = True) -> Catalogued:
    r"""Build the target that the text ``words`` after "protocol:" describes."""
    plan, functionality = read_plan(spelling, words)
    return target_of(plan, spelling=spelling, functionality=functionality, seeded=seeded)


def read_plan(spelling: str, words: str) -> tuple[Plan, str]:
    r"""Parse ``words`` as a plan of a protocol and one of :data:`FUNCTIONALITIES`."""
    keys, needed = (*_NUMBERS, *_COUNTS, *_WORDS), ("users", "epsilon")
    instance: Any
    instance, given = read_words(spelling, words, keys, needed, owner="a protocol")
    functionality = given.pop("functionality", "ideal")
    given |= {key: whole_number(key, given[key]) for key in _COUNTS if key in given}
    return choose(instance=instance, **given), functionality


def target_of(
    plan: Plan, *, spelling: str, functionality: str = "ideal", seeded: bool = True
) -> Catalogued:
    r"""Build a target that runs ``plan``, and computes the secure sum as ``functionality`` states.

    Protocols that send bits use the shuffler instead. With ``seeded=False`` the protocol draws from
    the operating system, as in production. The law of the output is known if the output is a sum
    plus noise with a single law, which excludes a pure shuffle.
    """
    check_word("functionality", functionality, FUNCTIONALITIES)
    protocol = plan.protocol
    if functionality != "ideal" and not isinstance(protocol, (AggregatedSum, CentralSum)):
        reason = f"must be ideal: {protocol.name} needs no secure sum, or assumes an ideal one"
        raise InvalidParameter("functionality", functionality, reason)
    below = _functionality(plan, functionality)
    pair: tuple[Any, Any] = (0, 1)
    if isinstance(protocol, VectorShuffle):
        pair = ([0] * protocol.coordinates, [1] * protocol.coordinates)

    def rounds(dataset: Any, n: int, rng: Rng) -> NDArray[np.int64]:
        return _seen(plan, _held(protocol, dataset, "dataset"), below, n, rng)

    epsilon, delta = _claimed(plan)
    own: dict[str, Any] = {"held": partial(_held, protocol)}
    claimed: dict[str, Any] = {"pair": pair, "epsilon": epsilon, "delta": delta}
    if isinstance(protocol, PureShuffle):
        return Catalogued.of(spelling, rounds, seeded=seeded, own=own, **claimed)
    # The law of the noise in an output, before the reduction mod m.
    if isinstance(protocol, ShuffledPure):
        noise = protocol.sum_mechanism(plan.honest).noise
    else:
        noise = protocol.mechanism(plan.honest).noise
    own |= {"noise": noise, "about": _about(plan), "laws": partial(_laws, protocol, noise)}
    return Known.of(spelling, rounds, seeded=seeded, own=own, **claimed)


def _about(plan: Plan) -> str:
    protocol = plan.protocol
    if isinstance(protocol, LocalSum):
        return ", of the noise in one message"
    if isinstance(protocol, CentralSum):
        return ", of the noise in the published sum"
    about = f", of the noise of {plan.honest} honest users of {protocol.users} in the sum"
    return f"{about} alone; assumed: {plan.assumes}" if plan.assumes else about


def _laws(protocol: Protocol, noise: Noise, pair: tuple[Any, Any]) -> tuple[Law, Law]:
    # The law of the noise shifted by each dataset's value, in steps. Raises InvalidParameter if a
    # value would be rounded at random.
    found: list[int | tuple[int, ...]] = []
    steps = protocol.precision
    for name, dataset in zip("AB", pair, strict=True):
        scaled = [x * steps for x in _held(protocol, dataset, f"dataset {name}")]
        if any(x.denominator != 1 for x in scaled):
            reason = f"must be a multiple of 1/{steps}: other values are rounded at random, and "
            raise InvalidParameter(f"dataset {name}", dataset, reason + "the law is a mixture")
        whole = tuple(int(x) for x in scaled)
        found.append(whole if isinstance(dataset, list) else whole[0])
    return Shifted(noise, found[0]), Shifted(noise, found[1])


def _claimed(plan: Plan) -> tuple[Fraction, Fraction]:
    # The planned guarantee or, if the plan does not meet it, the derived one, rounded up.
    spent = plan.epsilon / 2 if plan.assumes else Fraction(0)
    if plan.meets:
        return plan.epsilon - spent, plan.delta
    derived = plan.guarantee.epsilon(plan.delta).upper
    if derived == math.inf:
        raise InvalidParameter(
            "delta", plan.delta, "gives no finite epsilon: choose a larger delta"
        )
    return Fraction(math.ceil(Fraction(derived) * _GRID), _GRID), plan.delta


def _functionality(plan: Plan, name: str) -> Aggregation | Shuffler | RelaxedAggregation:
    protocol = plan.protocol
    if not isinstance(protocol, ModularSum):
        return Shuffler()
    if isinstance(protocol, ShuffledPure):
        return RelaxedAggregation(modulus=protocol.modulus, epsilon_hat=plan.epsilon / 4, q_hat=0)
    if name == "masked":
        return MaskedAggregation(
            users=protocol.users,
            dropouts=protocol.users - plan.honest,
            coordinates=1,
            modulus=protocol.modulus,
        )
    return IdealAggregation(modulus=protocol.modulus, per_user=name == "per-user")


def _seen(plan: Plan, held: Held, below: Any, n: int, rng: Rng) -> NDArray[np.int64]:
    # The server's view of n independent rounds, one per row.
    protocol = plan.protocol
    if isinstance(protocol, LocalSum):
        return _messages(protocol, held[0], n, rng)
    one: Any = list(held) if isinstance(protocol, VectorShuffle) else held[0]
    rest: Any = [Fraction(0)] * len(held) if isinstance(protocol, VectorShuffle) else Fraction(0)
    names = [str(i) for i in range(protocol.users)]
    values = {name: rest if i else one for i, name in enumerate(names)}
    vanish = dict.fromkeys(names[plan.honest :], Step.INPUT)
    offset, steps = protocol.bias(plan.honest), protocol.precision
    rows = []
    for _ in range(n):
        estimate = run(protocol, values, below, batch="audit", vanish=vanish, rng=rng).estimate
        sums = estimate if isinstance(estimate, tuple) else (estimate,)
        rows.append([int(z * steps + offset) for z in sums])
    seen = np.array(rows, dtype=np.int64).reshape(n, len(held))
    return seen if isinstance(protocol, VectorShuffle) else seen[:, 0]


def _messages(protocol: LocalSum, x: Fraction, n: int, rng: Rng) -> Integers:
    # n messages of users with the value x, in batches of all users of the protocol.
    found = [np.zeros(0, dtype=np.int64)]
    for start in range(0, n, protocol.users):
        alike = np.array([x] * min(protocol.users, n - start), dtype=object)
        found.append(protocol.randomize(alike, rng=rng))
    return np.concatenate(found)


def _held(protocol: Protocol, dataset: Any, name: str) -> Held:
    many = protocol.coordinates if isinstance(protocol, VectorShuffle) else None
    values = [dataset] if many is None else dataset
    if not isinstance(values, list) or len(values) != (many or 1):
        raise InvalidParameter(name, dataset, f"must be a list of {many} numbers in [0, 1]")
    exact = tuple(rational(name, value) for value in values)
    if any(not 0 <= x <= 1 for x in exact):
        raise InvalidParameter(name, dataset, "must lie in [0, 1]: it is the value of one user")
    if isinstance(protocol, BinaryShuffle) and any(x.denominator != 1 for x in exact):
        raise InvalidParameter(name, dataset, "must be 0 or 1")
    return exact
