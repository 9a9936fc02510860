r"""Audit targets for bandit algorithms, named for example ``bandit:dist-dp-se,epsilon=1``.

An audit tests what the server sees in short runs of ``play`` (see :func:`audit_view`). This module
does not import ``audit``: an :class:`AuditTarget` holds the function to audit, a pair of datasets,
the claimed guarantee and the features to test. Proofs: docs/proofs/bandits.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Final, cast, get_args

import numpy as np

from bandits.audit_targets.server_view import (
    ABSENT,
    ARMS,
    BATCHES,
    PathName,
    ServerView,
    Views,
    view_of,
)
from bandits.audit_targets.structured_views import (
    MODEL,
    PAIR,
    combinatorial_view_of,
    linear_view_of,
)
from bandits.elimination_radii import RadiusName
from bandits.play_combinatorial import cucb_of
from bandits.policies.combinatorial_ucb import FAMILY, Cucb
from bandits.policies.linear_phased_elimination import PhasedElimination
from bandits.policies.policy import Policy
from bandits.policies.registry import (
    ALGORITHMS,
    LINEAR,
    Algorithm,
    Entry,
    Setting,
    blamed_policy,
    is_own,
    own_policy,
    read_algorithm,
)
from bandits.policies.successive_elimination import NAMES, BatchedElimination
from bandits.privatizers.batch_sums_by_trust_model import SumPrivatizer
from bandits.privatizers.continual_sums_per_arm import StreamRelease
from bandits.privatizers.deployment import Deployment
from bandits.privatizers.returning_users import SteadyPrivatizer
from bandits.privatizers.vector_averages import Calibrated
from dpcore.cli.options import share
from dpcore.errors import InvalidParameter
from dpcore.numbers.parameter import RationalLike, integer, rational, whole_number
from dpcore.sampling.rng import SYSTEM, SeededRng
from dpcore.spec_syntax import check_word, did_you_mean, find_name, read_keys

_KEYS: Final = {
    "epsilon": "",
    "delta": "the delta of the claim (0, or 1/100 if the loss is unbounded)",
    "scaling": "for batched elimination on sums",
    "radius": " or ".join(get_args(RadiusName)),
    "path": " or ".join(get_args(PathName)),
    "visits": "1 or 2, the number of visits of the watched user, which the noise protects",
    "honest": "the fraction of honest users",
    "dropouts": "the fraction of users who drop out",
    "calibration": f"{' or '.join(get_args(Calibrated))}, for linear algorithms",
    "release": f"{' or '.join(get_args(StreamRelease))}, for cucb-dp and cucb-dp2",
}
_OWN_KEYS: Final = ("delta", "path")
_WORDS: Final = ("radius", "calibration", "release")
_BITS: Final = NAMES["binary-shuffle"]
_FLOORS: Final = (NAMES["none"], "dpe", "pe", "dpe-fixedu", "cucb")
_HORIZON: Final = 1000
_USUAL: Final = Fraction(1, 100)
_GRID: Final = 10**6
_SEEDS: Final = 1 << 63


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditTarget:
    r"""The input of an audit: a function ``run(dataset, n, rng)``, a pair of datasets and a claim.

    The function returns n views of the server, one per row. The claim is (``epsilon``,
    ``delta``)-DP for the releases that contain the watched user, derived from their noise.
    ``features`` names the functions of a view whose values are tested, as documented in the module
    of the view. Nothing else of the joint distribution of all columns is tested.
    """

    name: str
    run: Callable[[Any, int, np.random.Generator], Views]
    pair: tuple[int, int]
    epsilon: Fraction
    delta: Fraction
    features: tuple[str, ...]


def lead(view: Any) -> int:
    r"""A feature: the released sum of arm 0 minus that of arm 1 in the first batch, in steps."""
    first = _first(view)
    return int(view[first]) - int(view[first + 1])


def across(view: Any) -> int:
    r"""A feature: the sum of arm 0 in batch 1 minus that in batch 2, in half rewards, or ABSENT."""
    return _in_halves(view, -1)


def both(view: Any) -> int:
    r"""A feature: the released total of arm 0 over both batches, in half rewards, or ABSENT."""
    return _in_halves(view, 1)


def second(view: Any) -> int:
    r"""A feature: the released sum of arm 0 in the second batch, in steps, or ``ABSENT``."""
    return int(view[_first(view) + ARMS])


def _in_halves(view: Any, sign: int) -> int:
    # The sum of arm 0 in the first batch, plus or minus its sum in the second.
    after = second(view)
    if after == ABSENT:
        return ABSENT
    before, units = int(view[_first(view)]), [int(unit) for unit in view[-1 - BATCHES : -1]]
    return round(2 * (Fraction(before, units[0]) + sign * Fraction(after, units[1])))


def _first(view: Any) -> int:
    # The index of the first sum, which a message may precede.
    return (len(view) - 1 - BATCHES) % ARMS


def target(spelling: str, rest: str, seeded: bool) -> AuditTarget:  # noqa: FBT001  # an entry point's
    r"""Build the audit target ``bandit:`` + ``rest``.

    ``rest`` is an algorithm of ``dpcore bandit run`` with its parameters, for example:

        dist-dp-se,epsilon=1                        each sum gets one draw of the total noise
        dist-dp-se,epsilon=1,path=devices           every user's device adds its share of the noise
        dist-rdp-se:s=10,epsilon=1,delta=1e-3       or with scaling=10 instead of :s=10
        sdp-ae:m=8,epsilon=1,radius=paper           with the confidence radius of the paper
        cdp-dpe,epsilon=1,delta=1/100               calibration=paper uses the paper's noise
        cucb-dp,epsilon=1,release=doubling          release may also be tree or factorisation

    The algorithm may also be bit-se, batched elimination over shuffled bits.

    ``rest`` may also be your own policy in a file or module: an instance of
    :class:`bandits.Policy`, or a callable that returns such an instance when called without
    arguments. Your own policies take no ``epsilon``: the guarantee is that of their privatizer.

        mine.py:Policy,delta=1e-3,path=devices

    ``delta`` is the delta of the claim, by default 0, or 1/100 if the privacy loss is unbounded. It
    is also the delta for which an algorithm calibrates its noise, if it needs one (by default
    1/100). If ``seeded`` is false, the noise comes from the operating system, as in production.
    """
    algorithm, _, keys = (part.strip() for part in rest.partition(","))
    own = is_own(algorithm)
    known = {key: _KEYS[key] for key in _OWN_KEYS} if own else _KEYS
    needed = () if own else ("epsilon",)
    given = read_keys("target", spelling, keys, known, owner=algorithm, needed=needed, hint=_known)
    delta = rational("delta", given["delta"]) if "delta" in given else None
    if delta is not None and not 0 <= delta < 1:
        raise InvalidParameter("delta", given["delta"], "must lie in [0, 1)")
    path = given.get("path", "release")
    check_word("path", path, PathName)
    visits = whole_number("visits", given.get("visits", "1"))
    policy: Policy[Any] | Cucb
    if own:
        policy = own_policy(spelling, algorithm)
    else:
        policy = _policy(spelling, algorithm, given, delta or _USUAL, visits)
    with blamed_policy("target", spelling, algorithm) if own else nullcontext():
        return audit_view(
            policy, delta=delta, path=cast(PathName, path), seeded=seeded, visits=visits
        )


def audit_view(
    policy: Policy[Any] | Cucb,
    *,
    delta: RationalLike | None = None,
    path: PathName = "release",
    seeded: bool = True,
    visits: int = 1,
) -> AuditTarget:
    r"""Build the audit target of your own policy: ``audit.audit(audit_view(policy))``.

    The audited run has two batches (elimination), two phases (linear bandits) or four rounds
    (combinatorial bandits). The watched user, whose reward differs between the two datasets, is in
    the first of them (see ``server_view`` and ``structured_views``). With ``path="devices"`` the
    device of every user runs the protocol; with ``path="release"`` only the total noise is drawn.

    The claim is the guarantee of the policy's privatizer for the watched user: its epsilon at
    ``delta`` (by default 0, or 1/100 if the privacy loss is unbounded). ``seeded`` is as in
    :func:`target`. With ``visits=2`` the watched user is in both batches, and the claim is for both
    releases together. All releases of the policy must then have the same noise law
    (``bandits.privatizers.returning_users``).

    >>> from bandits.privatizers.batch_sums_by_trust_model import SumPrivatizer
    >>> pure = SumPrivatizer(trust="pure", epsilon="1/2", failure="1e-3")
    >>> audit_view(BatchedElimination(privatizer=pure)).epsilon
    Fraction(1, 2)

    Raises :class:`InvalidParameter` if ``policy`` is not a private policy, or if it does not
    support the given ``path`` or ``visits``.
    """
    if not isinstance(policy, (Policy, Cucb)):
        raise InvalidParameter("policy", policy, "must be a bandits.Policy")
    view = _view_of(policy, path, visits)
    epsilon, chosen = claimed(view, None if delta is None else rational("delta", delta))

    def run(dataset: Any, n: int, rng: np.random.Generator) -> Views:
        reward = integer("dataset", dataset)
        if reward not in (0, 1):
            raise InvalidParameter("dataset", dataset, "must be 0 or 1")
        return view.views(reward, n, SeededRng(int(rng.integers(_SEEDS))) if seeded else SYSTEM)

    return AuditTarget(
        name=f"bandit:{policy.name}",
        run=run,
        pair=(0, 1),
        epsilon=epsilon,
        delta=chosen,
        features=view.features,
    )


def _view_of(policy: Policy[Any] | Cucb, path: PathName, visits: int) -> ServerView:
    if visits not in (1, BATCHES):
        raise InvalidParameter(
            "visits", visits, f"must be 1 or {BATCHES}, because a view has {BATCHES} batches"
        )
    steady = not isinstance(policy, Cucb) and isinstance(policy.privatizer, SteadyPrivatizer)
    if visits > 1 and not steady:
        reason = f"must be 1: the releases of {policy.name} do not all have the same law"
        raise InvalidParameter("visits", visits, reason)
    if not isinstance(policy, (PhasedElimination, Cucb)):
        return view_of(policy, path=path, visits=visits)
    if path != "release":
        raise InvalidParameter("path", path, f"{policy.name} supports only path=release")
    return combinatorial_view_of(policy) if isinstance(policy, Cucb) else linear_view_of(policy)


def _known(given: Mapping[str, str]) -> str:
    # The hint for an unknown key: the nearest key, and descriptions of all keys.
    near = next((did_you_mean(key, _KEYS) for key in given if key not in _KEYS), "")
    keys = "; ".join(f"{key}: {says}" for key, says in _KEYS.items() if says)
    return f"; {near}{keys}"


def claimed(view: ServerView, delta: Fraction | None) -> tuple[Fraction, Fraction]:
    r"""The claimed (epsilon, delta) of the watched user's releases, with epsilon rounded up.

    The default ``delta`` is 0, or 1/100 if the privacy loss is unbounded. Raises
    :class:`InvalidParameter` if the privacy loss is unbounded and ``delta`` is 0.
    """
    curve = view.curve()
    largest = curve.pure().upper
    pure = largest if isinstance(largest, Fraction) else None
    if pure is None and delta == 0:
        raise InvalidParameter("delta", delta, "must lie in (0, 1): the loss is unbounded")
    if delta is None:
        delta = _USUAL if pure is None else Fraction(0)
    if pure is not None and delta == 0:
        return pure, delta
    return Fraction(math.ceil(Fraction(curve.epsilon(delta).upper) * _GRID), _GRID), delta


def _policy(
    spelling: str, text: str, given: dict[str, str], delta: Fraction, visits: int
) -> Policy[Any] | Cucb:
    name = text.partition(":")[0]
    known = [entry.name for entry in ALGORITHMS if entry.name not in _FLOORS]
    if name in _FLOORS:
        reason = f"{name} is not private, so it has no claim: choose a private algorithm"
        raise InvalidParameter("target", spelling, reason)
    find_name("target", spelling, dict.fromkeys((*known, _BITS)), name=name)
    combinatorial = name in FAMILY
    words: dict[str, Any] = {key: given[key] for key in _WORDS if key in given}
    setting = Setting(
        epsilon=given["epsilon"],
        delta=delta,
        horizon=_HORIZON,
        arms=ARMS,
        schedule="paper",
        model=PAIR if combinatorial else MODEL,
        max_visits=None if visits == 1 else visits,
        deployment=Deployment(
            honest=share("honest", given.get("honest", "1")),
            dropouts=share("dropouts", given.get("dropouts", "0")),
        ),
        **words,
    )
    _check_keys(name, given)
    if combinatorial:
        return cucb_of(read_algorithm(text), setting)
    algorithm = Algorithm(entry=Entry(_BITS, "")) if text == _BITS else read_algorithm(text)
    policy = algorithm.policy(setting)
    if "scaling" not in given:
        return policy
    privatizer = policy.privatizer
    if not isinstance(policy, BatchedElimination) or not isinstance(privatizer, SumPrivatizer):
        raise InvalidParameter(
            "scaling", given["scaling"], f"{name} has no such parameter: omit it"
        )
    if text != name:
        raise InvalidParameter(
            "scaling", given["scaling"], f"is also given as s in {text}: omit one of them"
        )
    return replace(policy, privatizer=replace(privatizer, scaling=given["scaling"]))


def _check_keys(name: str, given: Mapping[str, str]) -> None:
    # Raises an error for parameters that the algorithm does not support.
    others = {"release"} if name in LINEAR else {"release", "calibration"}
    if name in FAMILY:
        others = {"calibration", "scaling", "radius", "visits", "honest", "dropouts"}
        others |= {"release"} if name.startswith("cucb-ldp") else set()
    for key in given:
        if key in others:
            raise InvalidParameter(key, given[key], f"{name} has no such parameter: omit it")
