r"""The cost of returning users: regret at the same guarantee, by number of visits and by route.

A user has a guarantee of (epsilon, delta) for at most B visits together. The route is the
composition theorem; it determines the noise of a visit, and the noise determines the regret.
Chowdhury and Zhou 2023, Appendix I, use advanced composition.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import cache, lru_cache
from typing import Any, Final, Literal, TypeAlias, get_args

import numpy as np

from accounting.calibration.calibrate_noise_rounds_or_rate import calibrate
from accounting.composition.compose import compose
from accounting.composition.composition_theorems import advanced_over_splits, per_user
from accounting.errors import NotDerived
from accounting.guarantees.renyi_and_zcdp_to_epsilon import approx_from_renyi
from accounting.privacy_curves.release_curve import PrivacyCurve
from bandits.batch import arms_and_horizon
from bandits.elimination_radii import ExactRadius
from bandits.experiments.summary import mean_and_error
from bandits.play import Run, play
from bandits.policies.successive_elimination import BatchedElimination, exact_schedule
from bandits.privatizers.returning_users import Pool, SteadyPrivatizer, visits_of
from bandits.worlds.arm_environments import cz_instance
from dpcore.errors import InvalidParameter
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.laws.poisson_and_binomial import Binomial
from dpcore.laws.skellam import Skellam
from dpcore.numbers.enclosure import End, round_up
from dpcore.numbers.parameter import RationalLike, integer, positive_rational, rational
from dpcore.sampling.rng import SeededRng
from dpcore.spec_syntax import check_word

__all__ = ["ALGORITHMS", "ReturningRow", "Route", "returning_table", "visit_noise"]

VisitLaw: TypeAlias = DiscreteLaplace | Skellam | Binomial

Route: TypeAlias = Literal["exact", "renyi", "advanced"]

ALGORITHMS: Final = {"dist-rdp-se": "skellam", "dist-dp-se": "discrete-laplace"}
r"""The algorithms of the table, with the laws of their noise."""

_LAWS: Final = {**ALGORITHMS, "bit-se": "binomial"}

_STEPS: Final = 16
_NEAR: Final = 1.005
_ASIDE: Final = 0.002
_GRID: Final = 10**5
_ROUND_WIDTH: Final = Fraction(1, 10**5)
_TRIES: Final = 30
_FAILURE_PROBABILITY: Final = Fraction(1, 10)
_ARMS: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturningRow:
    r"""One row of the table.

    ``epsilon`` is certified by the route for all visits at ``delta`` and is at most the target;
    ``epsilon_exact`` is the epsilon of the same noise by exact composition. ``per_visit`` is g/s or
    g/sigma, and ``deviation`` the standard deviation of the noise of a sum in units of reward. None
    of the ``users`` users was charged for more than ``most_visits`` releases in any instance;
    ``turned_away`` is a mean over instances, and in ``dry`` instances a batch was not played
    because too few users were left.
    """

    algorithm: str
    max_visits: int
    route: Route
    per_visit: float
    deviation: float
    epsilon: float
    epsilon_exact: float
    delta: str
    users: int
    most_visits: int
    turned_away: float
    dry: int
    regret_per_round: float
    standard_error: float
    instances: int
    horizon: int
    bits_per_user: int

    def to_json(self) -> dict[str, Any]:
        r"""Return the row as a dictionary."""
        return asdict(self)


def visit_noise(
    *,
    law: str,
    epsilon: RationalLike,
    delta: RationalLike,
    max_visits: int,
    route: Route,
    steps: int = _STEPS,
) -> VisitLaw:
    r"""The least noise for which ``route`` certifies (epsilon, delta) over ``max_visits`` releases.

    ``exact`` composes privacy losses, by ``accounting.calibrate``, within 0.12% of the least
    parameter. ``renyi`` composes Renyi divergences at each order. ``advanced`` composes the
    (epsilon, delta) of a visit by the better of Dwork, Rothblum and Vadhan's theorem and basic
    composition. The latter two are within 0.5%. For ``binomial``, shuffled bits, ``advanced`` is
    equation 14 of the paper, and ``renyi`` is not available.

    >>> arguments = dict(law="discrete-laplace", epsilon=1, delta="1e-6", max_visits=64)
    >>> exact = visit_noise(route="exact", **arguments)
    >>> advanced = visit_noise(route="advanced", **arguments)
    >>> round(float(advanced.scale / exact.scale), 1)
    1.3

    Raises :class:`InvalidParameter` if the law or route is unknown, or a number is out of range.
    """
    check_word("law", law, _LAWS.values())
    check_word("route", route, Route)
    most, times = rational("delta", delta), visits_of(max_visits)
    if not 0 < most < 1:
        raise InvalidParameter("delta", delta, "must lie in (0, 1)")
    wanted = positive_rational("epsilon", epsilon, "epsilon 0 needs infinite noise")
    return _noise(law, wanted, most, times, route, integer("steps", steps, at_least=1))


@lru_cache(maxsize=1 << 8)
def _noise(
    law: str, epsilon: Fraction, delta: Fraction, max_visits: int, route: Route, steps: int
) -> VisitLaw:
    if law == "binomial":
        law, steps = "binomial:probability=1/2", 1
    found = calibrate(
        noise=law, epsilon=epsilon, delta=delta, rounds=max_visits, sensitivity=steps
    ).noise
    if not isinstance(found, (DiscreteLaplace, Skellam, Binomial)):
        raise InvalidParameter("law", law, "must be discrete-laplace, skellam or binomial")
    if route == "exact":
        return found
    start = Fraction(found.scale if isinstance(found, DiscreteLaplace) else found.variance)

    def spent(value: Fraction) -> End:
        return _epsilon(_made(law, value), steps, max_visits, delta, route)

    power = 1.0 if isinstance(found, DiscreteLaplace) else 2.0
    return _made(law, _least(spent, start, epsilon, power))


def _made(law: str, value: Fraction) -> VisitLaw:
    # ``value`` is the scale or the variance; the variance of n fair bits is n/4.
    if law == "discrete-laplace":
        return DiscreteLaplace(scale=value)
    if law == "skellam":
        return Skellam(variance=value)
    return Binomial(trials=math.ceil(4 * value), probability=Fraction(1, 2))


def _least(
    spent: Callable[[Fraction], End], value: Fraction, most: Fraction, power: float
) -> Fraction:
    # Approximately the least value with spent(value) <= most; spent^-power is about linear in it.
    low, high, kept = 0.0, math.inf, value
    for _ in range(_TRIES):
        found = spent(value)
        if found <= most:
            kept, high = value, float(value)
        else:
            low = float(value)
        if high <= low * _NEAR:
            return kept
        # Slightly more than the estimate, but inside the known bracket.
        off = float(found / most) if found < math.inf else 2.0
        beyond = float(value) * off**power * (1 + _ASIDE)
        inside = min(max(beyond, low * (1 + 2 * _ASIDE)), high / (1 + 2 * _ASIDE))
        value = Fraction(math.ceil(inside * _GRID), _GRID)
    raise NotDerived("noise for this route", "no noise reached the target epsilon")


@lru_cache(maxsize=1 << 10)
def _epsilon(noise: VisitLaw, steps: int, max_visits: int, delta: Fraction, route: Route) -> End:
    curve = PrivacyCurve(noise=noise, sensitivity=steps)
    total = per_user(curve, max_visits=max_visits)
    match route:
        case "exact":
            return total.epsilon(delta, _ROUND_WIDTH).upper
        case "renyi":
            return approx_from_renyi(total.renyi_upper, delta).upper
    one = compose(curve)

    @cache
    def each(at: Fraction) -> End:
        return one.epsilon(at, _ROUND_WIDTH).upper

    theorem = advanced_over_splits(each, max_visits, delta).upper
    return min(theorem, max_visits * each(delta / max_visits))


def returning_table(  # noqa: PLR0913 - the axes of an experiment, each with a default
    *,
    horizon: int = 10**5,
    instances: int = 5,
    max_visits: Iterable[int] = (1, 4, 16, 64),
    routes: Iterable[Route] = get_args(Route),
    algorithms: Iterable[str] = tuple(ALGORITHMS),
    epsilon: RationalLike = 1,
    delta: RationalLike = "1e-6",
    gap: RationalLike = "0.5",
    seed: int = 1,
) -> tuple[ReturningRow, ...]:
    r"""Regret of batched elimination with at most B visits per user, at (epsilon, delta) in total.

    There are T/B users, rounded up, just enough for T rewards. No release contains more than half
    of them: longer batches are released in parts (``BatchedElimination.most``). If too few users
    have visits left, the arms of that batch share the remaining rounds, and nothing more is
    released. Every row has the same instances of :func:`cz_instance`, with the schedule and radius
    for its own noise; g is 16. The noise is seeded, for simulation, and not private.

    Raises :class:`InvalidParameter`, with the name of the argument, if a value is out of range.
    """
    seed, count = integer("seed", seed, at_least=0), integer("instances", instances, at_least=1)
    _, horizon = arms_and_horizon(_ARMS, horizon)
    most_of = tuple(visits_of(most) for most in _listed("max_visits", max_visits))
    ways, names = _listed("routes", routes), _listed("algorithms", algorithms)
    for route in ways:
        check_word("route", route, Route)
    for algorithm in names:
        check_word("algorithm", algorithm, _LAWS)
    rows = []
    for algorithm in names:
        for most in most_of:
            for route in ways:
                noise = visit_noise(
                    law=_LAWS[algorithm],
                    epsilon=epsilon,
                    delta=delta,
                    max_visits=most,
                    route=route,
                )
                steps = 1 if isinstance(noise, Binomial) else _STEPS
                steady = SteadyPrivatizer(law=noise, steps=steps, failure=Fraction(1, horizon**2))
                spent = {
                    way: _epsilon(noise, steps, most, rational("delta", delta), way)
                    for way in (route, "exact")
                }
                pools, runs = _played(steady, most, horizon, count, gap, seed)
                mean, error = mean_and_error([run.regret_per_round for run in runs])
                rows.append(
                    ReturningRow(
                        algorithm=algorithm,
                        max_visits=most,
                        route=route,
                        per_visit=round_up(steady.epsilon),
                        deviation=steady.deviation,
                        epsilon=round_up(spent[route]),
                        epsilon_exact=round_up(spent["exact"]),
                        delta=str(rational("delta", delta)),
                        users=pools[0].users,
                        most_visits=max(pool.most_visits for pool in pools),
                        turned_away=sum(pool.turned_away for pool in pools) / count,
                        dry=sum(pool.dry for pool in pools),
                        regret_per_round=mean,
                        standard_error=math.nan if error is None else error,
                        instances=count,
                        horizon=horizon,
                        bits_per_user=max(run.bits_per_user for run in runs),
                    )
                )
    return tuple(rows)


def _listed(argument: str, values: object) -> tuple[Any, ...]:
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise InvalidParameter(argument, values, "must be a collection, for example a tuple")
    found = tuple(values)
    if not found:
        raise InvalidParameter(argument, values, "must not be empty")
    return found


def _played(
    steady: SteadyPrivatizer,
    max_visits: int,
    horizon: int,
    instances: int,
    gap: RationalLike,
    seed: int,
) -> tuple[list[Pool], list[Run]]:
    # The pool of users and the run of each instance.
    users = -(-horizon // max_visits)
    schedule = exact_schedule(steady, arms=_ARMS, horizon=horizon, failure=_FAILURE_PROBABILITY)
    policy = BatchedElimination(
        privatizer=steady,
        schedule=schedule,
        radius=ExactRadius(batches=schedule.batches(horizon)),
        # Half of the users: a release finds enough users as long as half of them have a visit left.
        most=max(users // 2, 1),
        failure_probability=_FAILURE_PROBABILITY,
    )
    pools, runs = [], []
    for instance in range(instances):
        pool = Pool(
            users=users,
            max_visits=max_visits,
            privatizer=steady,
            arrivals=np.random.default_rng([seed, instance, 1]),
        )
        pools.append(pool)
        run = play(
            policy,
            cz_instance(gap, instance, arms=_ARMS),
            horizon=horizon,
            world=np.random.default_rng([seed, instance]),
            rng=SeededRng(seed * instances + instance),
            users=pool,
        )
        runs.append(run)
    return pools, runs
