r"""Phased elimination for linear bandits, in the trust models of Li, Zhou and Ji (2022).

Action x has the mean reward <theta*, x> for an unknown vector theta*. In phase l = 1, 2, ... let h
= 2^l, and let pi be a near-G-optimal design on the active actions. Each action x is played in n(x)
= ceil(h pi(x)) rounds. In their DP-DPE (Algorithm 1), ceil(2^(alpha l)) new clients observe all
rounds of the phase, for a parameter alpha in (0, 1). Each client sends its average reward of each
played action. DPE-FixedU has the same number of clients in every phase; by default the total over
the horizon is that of DP-DPE. In DP-PE (Appendix C, Algorithm 3) every round has a new client. Let
y(x) be the released average of action x. The released averages give a least-squares estimate of
theta*, and actions that cannot be the best are dropped.

Let the rows of X be the played actions, N the diagonal matrix of the numbers n(x), V = X^T N X, and
C = N X V^+, where V^+ is the pseudo-inverse of V. For a vector v let c = C v. The estimate of
<theta*, v> is sum_x c_x y(x), a fixed linear combination of the released averages. Its error is
therefore a sum of independent terms with known tails. Proofs: docs/proofs/radius.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Final, Literal, TypeAlias

import numpy as np
from flint import arb

from bandits.actions import Actions, LinearModel
from bandits.batch import Ask, Commit, Plays, Released, arms_and_horizon
from bandits.elimination_radii import RadiusName
from bandits.policies.g_optimal_design import Design, most_support, near_optimal_design
from bandits.policies.policy import Choice, Policy
from bandits.privatizers.vector_averages import AveragePrivatizer, Averages, LinearTrust
from dpcore.errors import InvalidParameter
from dpcore.numbers.arrays import Floats
from dpcore.numbers.enclosure import ball, integer_below
from dpcore.numbers.parameter import Exact, Of, check_fields, integer
from dpcore.spec_syntax import word

_RIVALS: Final = 256
_SLACK: Final = 1 + 1e-6
_UNSURE: Final = 1e-6
_HALF: Final = 2
_NEWTON: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    r"""A phase in which action ``design.support[i]`` is played in ``times[i]`` rounds.

    All of these rounds are observed by ``users`` clients. If ``apart`` is true, every round has a
    new client instead (Li, Zhou and Ji 2022, Appendix C), and ``users`` is 1. If ``local`` is true,
    each client adds noise. ``noise`` and ``rounding`` are variance proxies of the error in each
    released average that is due to noise and to random rounding. ``tails`` are the tail parameters
    of the noise (:meth:`bandits.privatizers.vector_averages.AveragePrivatizer.tail`).
    """

    model: LinearModel
    design: Design
    active: tuple[int, ...]
    h: int
    times: tuple[int, ...]
    users: int
    noise: Floats
    rounding: Floats
    tails: Floats
    horizon: int
    apart: bool = False
    local: bool = False

    @property
    def chances(self) -> float:
        r"""The inverse of the failure probability of each width: k T for k actions and T rounds."""
        return float(self.model.actions.count) * self.horizon

    @property
    def weights(self) -> Floats:
        r"""The matrix C such that C^T y estimates theta*, where y are the released averages."""
        points = self.model.actions.points[list(self.design.support)]
        times = np.array(self.times, dtype=np.float64)
        held = points @ self.design.basis
        inverse = np.linalg.inv((held * times[:, None]).T @ held)
        found: Floats = (times[:, None] * (held @ inverse)) @ self.design.basis.T
        return found


def paper_staying(phase: Phase, averages: Floats) -> tuple[int, ...]:
    r"""Return the active actions whose estimate is at most 2W below the best estimate.

    The width W is defined in Li, Zhou and Ji (2022), eq. 3 and 54. Let \|U\| be the number of
    clients, k the number of actions, T the horizon, d the dimension and h the parameter of the
    phase. Let sigma be the ``deviation`` of the model, s the number of played actions, and S the
    upper bound on s (:func:`~bandits.policies.g_optimal_design.most_support`). Then

        W = (sqrt(2d/(|U| h)) + sigma/sqrt|U| + sigma_n) sqrt(2 ln(kT)),

    where sigma_n = 2 sigma_p sqrt(Sd), and sigma_p is the standard deviation of the noise of a
    released average. With one user per round (Appendix C, Table 4), \|U\| = 1, sigma is replaced by
    0, and sigma_n = 2d sigma_s sqrt(s)/h; in the local model sigma_n = 2d sigma_u sqrt(2s/h). Here
    sigma_s and sigma_u are the standard deviations of the noise of a sum and of one user. W is
    reproduced from the paper, not proven here.
    """
    points = phase.model.actions.points[list(phase.active)]
    estimates = points @ (phase.weights.T @ averages)
    d = phase.model.actions.dimension
    spread = 0.0 if phase.apart else float(phase.model.deviation)
    width = math.sqrt(2 * d / (phase.users * phase.h)) + spread / math.sqrt(phase.users)
    width = (width + _private(phase)) * math.sqrt(2 * math.log(phase.chances))
    least = estimates.max() - 2 * width
    return tuple(x for x, e in zip(phase.active, estimates, strict=True) if e >= least)


def _private(phase: Phase) -> float:
    # sigma_n of `paper_staying`.
    d, s, h = phase.model.actions.dimension, len(phase.times), phase.h
    if not phase.apart:
        return 2 * math.sqrt(float(phase.noise.max()) * most_support(d) * d)
    times = np.array(phase.times, dtype=np.float64)
    if phase.local:
        return 2 * d * math.sqrt(float((phase.noise * times).max()) * 2 * s / h)
    return 2 * d * math.sqrt(float((phase.noise * times**2).max()) * s) / h


def exact_staying(phase: Phase, averages: Floats) -> tuple[int, ...]:
    r"""Return the active actions that are not certified to be worse than another action.

    Action x is dropped if, for some action b, the estimate of <theta*, b - x> exceeds its certified
    width. If b is not better than x, this happens with probability at most 1/(kT) for the actual
    noise, where k is the number of actions and T the horizon. So a phase drops the best action with
    probability at most 1/T. Only the 256 active actions with the largest estimates are used as b;
    any choice is valid.
    """
    points = phase.model.actions.points[list(phase.active)]
    estimates = points @ (phase.weights.T @ averages)
    rivals = np.argsort(-estimates, kind="stable")[:_RIVALS]
    ahead = estimates[rivals][:, None] - estimates[None, :]
    dropped = (ahead > exact_widths(phase, points[rivals], points)).any(axis=0)
    return tuple(phase.active[i] for i in np.flatnonzero(~dropped).tolist())


def exact_widths(phase: Phase, rivals: Floats, points: Floats) -> Floats:
    r"""Certified widths for the estimates of <theta*, b - x>, each with failure probability 1/(kT).

    The result has a row for each b in ``rivals`` and a column for each x in ``points``; k is the
    number of actions and T the horizon.
    """
    weights = phase.weights
    support = phase.model.actions.points[list(phase.design.support)]
    # A bound on the bias for |theta*| <= 1. It holds for the computed C, exact or not.
    missed = points @ (weights.T @ support) - points
    off = 2 * float(np.sqrt((missed * missed).sum(axis=1)).max()) + 1e-12
    if not off <= _UNSURE:
        return np.full((len(rivals), len(points)), math.inf)
    n = phase.users
    times = np.array(phase.times, dtype=np.float64)
    sigma = float(phase.model.deviation)
    lengths = np.sqrt((support * support).sum(axis=1))
    rewards = 1 / (times * n) + phase.noise + phase.rounding
    whole = (weights * rewards[:, None]).T @ weights
    heavy = weights * phase.tails[:, None]
    apart = phase.apart
    if apart:
        spread = (weights * (sigma * lengths)[:, None] ** 2 / times[:, None]).T @ weights
    else:
        held = support.T @ weights
        spread = sigma**2 / n * held.T @ held
    if phase.model.bounded:
        return _tail(whole + spread, heavy, rivals, points, 1 / phase.chances) + off
    deviations = np.sqrt((sigma * lengths) ** 2 + 1 / (1.0 if apart else times))
    clipped = 2 * _normal_tail((float(phase.model.bound) - lengths) / deviations)
    chance = float((clipped * (times if apart else n)).sum())
    if chance <= 1 / (_HALF * phase.horizon):
        # No client clips, except with half of the allowed failure probability.
        left = 1 / (_HALF * phase.chances)
        return _tail(whole + spread, heavy, rivals, points, left) + off
    # Clipping is 1-Lipschitz, so normal noise keeps its tails around another mean. The clipped
    # coordinates are unknown: the deviations of clients may add up in any of them.
    if not apart:
        largest = float(np.linalg.norm(support, 2)) ** 2
        spread = sigma**2 / n * largest * (weights.T @ weights)
    bias = deviations * _beyond((float(phase.model.bound) - lengths) / deviations)
    moved = (weights * bias[:, None] ** 2).T @ weights * len(bias)
    found = _tail(whole + spread, heavy, rivals, points, 1 / phase.chances)
    return found + np.sqrt(_squares(moved, rivals, points)) * _SLACK + off


def _tail(proxy: Floats, heavy: Floats, rivals: Floats, points: Floats, chance: float) -> Floats:
    # P(error > w) <= exp(-w^2/(2 proxy)); the bound for the tails of Laplace noise is weaker.
    least = math.log(1 / chance)
    squares = _squares(proxy, rivals, points)
    if heavy.any():
        from scipy.spatial.distance import cdist  # local import: it takes a fifth of a second

        scales = cdist(rivals @ heavy.T, points @ heavy.T, "chebyshev")
        scales += 1e-12 * float(np.abs(heavy).sum())
        return _heavy(squares, scales, least) * _SLACK
    found: Floats = math.sqrt(2 * least) * np.sqrt(squares) * _SLACK
    return found


def _heavy(squares: Floats, scales: Floats, least: float) -> Floats:
    # P(error > w) <= e^(-t w) (1 - c^2 t^2)^(-squares/2 c^2) for every t in (0, 1/c), and for any c
    # above the scale. With c t = sqrt(z/(1 + z)), a = squares/2 c^2, that is e^-least at
    # w = c (least + a log(1 + z)) sqrt((1 + z)/z). Any z > 0 gives a valid w; the best one solves
    # 2 z - log(1 + z) = least/a, which Newton steps approximate from above.
    c = np.maximum(scales, _UNSURE * np.sqrt(squares))
    a = squares / (2 * c * c)
    ratio = least / a
    z = ratio
    for _ in range(_NEWTON):
        z = z - (2 * z - np.log1p(z) - ratio) / (2 - 1 / (1 + z))
    found: Floats = c * (least + a * np.log1p(z)) * np.sqrt((1 + z) / z)
    return found


def _squares(matrix: Floats, rivals: Floats, points: Floats) -> Floats:
    # An upper bound on (b - x)^T M (b - x) that covers the rounding error.
    along = rivals @ matrix
    own, other = (along * rivals).sum(axis=1), ((points @ matrix) * points).sum(axis=1)
    found: Floats = own[:, None] - 2 * along @ points.T + other[None, :]
    found += 1e-12 * float(np.abs(matrix).sum())
    return np.maximum(found, 0)


def _normal_tail(z: Floats) -> Floats:
    # P(Z > z) for standard normal Z, rounded up.
    found: Floats = np.vectorize(math.erfc, otypes=[float])(z / math.sqrt(2)) / 2 * (1 + 1e-9)
    return found


def _beyond(z: Floats) -> Floats:
    # E(Z - z)^+ for standard normal Z, rounded up.
    density = np.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    found: Floats = np.maximum(density - z * _normal_tail(z) / (1 + 1e-9), 0) + 1e-12
    return found


Clients: TypeAlias = Literal["growing", "fixed", "one-a-round"]
r"""How the number of clients per phase is set: 2^(alpha l), constant, or one per round."""

FAMILIES: Final[dict[Clients, str]] = {"growing": "dpe", "fixed": "dpe-fixedu", "one-a-round": "pe"}
r"""The suffix of an algorithm's name, for each of :data:`Clients`; ``MODELS`` are the prefixes."""

MODELS: Final[dict[LinearTrust, str]] = {
    "none": "",
    "central": "cdp-",
    "local": "ldp-",
    "shuffle": "sdp-",
}
_MOST_CLIENTS: Final = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class AverageSizes:
    r"""All sizes of releases with at most ``users`` clients and at most ``coordinates`` actions.

    Iteration yields only the sizes with ``users`` clients, because the guarantee of
    :class:`bandits.privatizers.vector_averages.AveragePrivatizer` does not depend on the number of
    clients.
    """

    users: int
    coordinates: int

    def __contains__(self, size: object) -> bool:
        return (
            isinstance(size, Averages)
            and 1 <= size.users <= self.users
            and 1 <= size.coordinates <= self.coordinates
        )

    def __iter__(self) -> Iterator[Averages]:
        for count in range(1, self.coordinates + 1 if self.users else 1):
            yield Averages(users=self.users, coordinates=count)


@dataclass(frozen=True, slots=True, kw_only=True)
class PhasedState:
    r"""The active actions in increasing order, the number of the next phase, and the horizon T."""

    active: tuple[int, ...]
    phase: int
    horizon: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PhasedElimination(Policy[PhasedState]):
    r"""Phased elimination on ``model``, with averages released by ``privatizer``.

    ``clients`` sets the number of clients in phase l. It is ceil(2^(alpha l)) for ``"growing"`` and
    1 per round for ``"one-a-round"``. For ``"fixed"`` it is ``each``; if ``each`` is None, the
    total over T rounds is that of ``"growing"``, rounded up. ``population`` is the number of
    available users, or None if it is unlimited. A client takes part in only one phase. ``init`` and
    ``sizes`` therefore raise :class:`InvalidParameter` if the horizon needs more than
    ``population`` clients. ``radius`` selects :func:`exact_staying` or :func:`paper_staying`.
    """

    model: Of[LinearModel] = Of(LinearModel, "must be a LinearModel")
    privatizer: Of[AveragePrivatizer] = Of(AveragePrivatizer, "must be an AveragePrivatizer")
    clients: Clients = word(Clients, "growing")
    alpha: Exact = Exact("4/5", within="(0, 1)")
    each: int | None = None
    population: int | None = None
    radius: RadiusName = word(RadiusName, "exact")

    def __post_init__(self) -> None:
        check_fields(self)
        if self.privatizer.bound != self.model.bound:
            reason = f"its bound must be {self.model.bound}, the bound of the model"
            raise InvalidParameter("privatizer", self.privatizer.bound, reason)
        laplace = self.privatizer.calibration == "pure" and self.privatizer.trust != "none"
        if laplace and self.radius == "paper":
            reason = "must be exact for pure calibration: the paper has no width for Laplace noise"
            raise InvalidParameter("radius", self.radius, reason)
        if self.each is not None and self.clients != "fixed":
            raise InvalidParameter("each", self.each, "must be None unless clients='fixed'")
        for argument, field_name in (("each", "each"), ("users", "population")):
            if (value := getattr(self, field_name)) is not None:
                object.__setattr__(self, field_name, integer(argument, value, at_least=1))

    @property
    def name(self) -> str:
        return f"{MODELS[self.privatizer.trust]}{FAMILIES[self.clients]}"

    def h(self, phase: int) -> int:
        r"""The number h for phase l = ``phase``: each action x is played ceil(h pi(x)) times.

        Here pi is the design of the phase, and h = 2^l. With one client per round, h = 2^(l-1) h_1,
        where h_1 is 4 d ln ln d + 16 rounded up in d >= 3 dimensions, and otherwise 16.
        """
        if self.clients != "one-a-round":
            return int(2**phase)
        return int(_first(self.model.actions.dimension) * 2 ** (phase - 1))

    def users(self, phase: int, horizon: int) -> int:
        r"""The number of clients that observe a round of phase l = ``phase``."""
        match self.clients:
            case "growing":
                return _clients(self.alpha, phase)
            case "fixed" if self.each is not None:
                return self.each
            case "fixed":
                last = self.phases(horizon)
                return -(-sum(_clients(self.alpha, each) for each in range(1, last + 1)) // last)
            case _:
                return 1

    def phases(self, horizon: int) -> int:
        r"""An upper bound on the number of phases in ``horizon`` rounds: each has at least h."""
        begun, spent = 0, 0
        while spent < horizon:
            begun += 1
            spent += self.h(begun)
        return begun

    def init(self, arms: int, horizon: int) -> PhasedState:
        arms, horizon = arms_and_horizon(arms, horizon)
        if arms != self.model.actions.count:
            reason = f"must be {self.model.actions.count}, the number of actions in the model"
            raise InvalidParameter("arms", arms, reason)
        self._check_population(horizon)
        return PhasedState(active=tuple(range(arms)), phase=1, horizon=horizon)

    def choose(self, state: PhasedState) -> Choice:
        points = self.model.actions.points[list(state.active)]
        if (points == points[0]).all():  # no release distinguishes equal actions
            return Commit(state.active[0])
        design = _design(self.model.actions, state.active)
        times = design.times(self.h(state.phase))
        placed = sorted(zip(design.support, times, strict=True))
        actions, counts = tuple(a for a, _ in placed), tuple(n for _, n in placed)
        arms = self.model.actions.count
        if self.clients == "one-a-round":
            own = tuple(Ask(n, (a,)) for a, n in placed)
            return Plays(arms, own, state.active)
        users = self.users(state.phase, state.horizon)
        return Plays(arms, (Ask(users, actions, counts),), state.active)

    def observe(self, state: PhasedState, released: Released) -> PhasedState:
        phase = self.played(state)
        divide = phase.times if phase.apart else (phase.users,) * len(phase.times)
        averages = []
        for action, count in zip(phase.design.support, divide, strict=True):
            total = released.sums[action] if action < len(released.sums) else None
            if total is None:
                raise InvalidParameter(
                    "released", "None", f"must contain a sum for action {action}"
                )
            averages.append(float(total / count))
        staying = exact_staying if self.radius == "exact" else paper_staying
        active = staying(phase, np.array(averages))
        return replace(state, active=active, phase=state.phase + 1)

    def played(self, state: PhasedState) -> Phase:
        design = _design(self.model.actions, state.active)
        h, apart = self.h(state.phase), self.clients == "one-a-round"
        times, users = design.times(h), self.users(state.phase, state.horizon)
        sizes = [
            Averages(users=n, coordinates=1 if apart else len(times))
            for n in (times if apart else (users,) * len(times))
        ]
        return Phase(
            model=self.model,
            design=design,
            active=state.active,
            h=h,
            times=times,
            users=users,
            noise=np.array([float(self.privatizer.proxy(size)) for size in sizes]),
            rounding=np.array([float(self.privatizer.rounding(size)) for size in sizes]),
            tails=np.array([float(self.privatizer.tail(size)) for size in sizes]),
            horizon=state.horizon,
            apart=apart,
            local=self.privatizer.trust == "local",
        )

    def sizes(self, arms: int, horizon: int) -> AverageSizes:
        arms_and_horizon(arms, horizon)
        self._check_population(horizon)
        last = self.phases(horizon)
        if self.clients == "one-a-round":
            return AverageSizes(users=self.h(last), coordinates=1)
        most = max(self.users(phase, horizon) for phase in (1, last))
        return AverageSizes(users=most, coordinates=most_support(self.model.actions.dimension))

    def _check_population(self, horizon: int) -> None:
        needed = clients_needed(self, horizon)
        if needed > _MOST_CLIENTS:
            raise InvalidParameter(
                "horizon", horizon, f"needs {needed} clients, above the limit of 10^9: reduce it"
            )
        if self.population is not None and needed > self.population:
            reason = (
                f"is too small: {horizon} rounds of {self.name} need {needed} clients, and each "
                "client is used once; use more users, a smaller horizon or a smaller alpha"
            )
            raise InvalidParameter("users", self.population, reason)


def clients_needed(policy: PhasedElimination, horizon: int) -> int:
    r"""An upper bound on the number of clients in ``horizon`` rounds of ``policy``."""
    if policy.clients == "one-a-round":
        return horizon
    last = policy.phases(horizon)
    if policy.clients == "fixed":
        return last * policy.users(1, horizon)
    return sum(policy.users(phase, horizon) for phase in range(1, last + 1))


@lru_cache(maxsize=1 << 12)
def _clients(alpha: Fraction, phase: int) -> int:
    # ceil(2^(alpha l)) is exact, because 2^(p/q) is an integer only if q divides p.
    power = alpha * phase
    if power.denominator == 1:
        return int(2**power)
    return integer_below(arb(2) ** ball(power)) + 1


def _first(dimension: int) -> int:
    # h_1 = 4 d ln ln d + 16 (LZJ Algorithm 3), or 16 if ln ln d <= 0.
    if dimension < 3:  # ln ln d <= 0
        return 16
    return math.ceil(4 * dimension * math.log(math.log(dimension)) + 16)


@lru_cache(maxsize=1 << 8)
def _design(actions: Actions, active: tuple[int, ...]) -> Design:
    return near_optimal_design(actions, active)
