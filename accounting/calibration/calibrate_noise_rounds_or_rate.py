r"""Calibration: the least noise, the most rounds or the largest sampling rate for a guarantee.

The search is over one parameter of a list of releases. A search in floating point proposes a
value, and certified bounds prove that the guarantee holds at the returned value. The adjacent value
with less privacy is evaluated too: :attr:`Edge.proven` states whether the guarantee is proven to
fail there, which needs a lower bound. If so, the guarantee fails at every value with still less
privacy, provided that the parameter is

- the number of rounds or the sampling rate,
- the variance of Skellam, Poisson or binomial noise,
- the scale of discrete Laplace noise, of a Polya law or of a Polya difference.

For the discrete Gaussian and its sums only the two evaluated values are certified. Proofs:
docs/proofs/composition.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import Any, Final, cast

from accounting.calibration.parameter_search import Edge, Unknown, decide, log, log_mu, search
from accounting.composition.compose import Composition, compose
from accounting.composition.training_run import TrainingRun
from accounting.descriptions.description import Description
from accounting.descriptions.real_noise import REAL_LAWS, Gaussian, RealNoise
from accounting.descriptions.sampling_schemes import EVERYONE, Poisson, Scheme
from accounting.errors import NotDerived
from accounting.guarantees.bound import Bound
from accounting.law_pairs.registry import heaviest
from accounting.privacy_curves.matrix_mechanism import MatrixMechanism
from accounting.privacy_curves.release_curve import OneRelease
from dpcore.cli.terminal import html_table
from dpcore.errors import InvalidParameter
from dpcore.laws.sum_of_shares import summed
from dpcore.mechanism import Relation, Sensitivity
from dpcore.noise import Divisible, Noise
from dpcore.numbers.parameter import RationalLike, integer, positive_rational, rational_in
from dpcore.numbers.rounding import exactly
from dpcore.parse_noise import LAWS, law_meant, noise_from_json, write_noise
from dpcore.spec_syntax import pairs_of, parameter_names, read_keys, split_name

_KEPT: Final = Fraction(1, 10**6)
_MOST_EPSILON: Final = 10**6
_LARGE: Final = 10**4
_DIGITS: Final = (4, 6, 9)
_FEW: Final = (3, 4, 6)
_REACH: Final = (Fraction(1, 10**12), Fraction(10**30))
_FREE: Final = {
    "discrete-laplace": "scale",
    "discrete-gaussian": "sigma_squared",
    "discrete-gaussian-sum": "sigma_squared",
    "skellam": "variance",
    "polya": "scale",
    "polya-difference": "scale",
    "poisson": "mean",
    "binomial": "trials",
    "gaussian": "sigma",
    "laplace": "scale",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseFamily:
    r"""A noise law whose parameter ``free`` is unknown; ``fixed`` contains the other parameters."""

    law: str
    free: str
    fixed: tuple[tuple[str, str], ...]

    def at(self, value: Fraction) -> Noise | RealNoise:
        r"""The noise law whose free parameter has this ``value``."""
        data = {"law": self.law, self.free: str(value), **dict(self.fixed)}
        return noise_from_json(data, REAL_LAWS)

    def unknown(self, *, fine: bool, unit: int) -> Unknown:
        r"""The free parameter and the values that a search tries.

        Adjacent values differ by 1/1000, or by 1/10^6 if ``fine`` is true, in relative terms. An
        integer parameter is a multiple of ``unit``.
        """
        power = 2 if self.free in ("scale", "sigma") else 1
        name = f"{self.free} of {self.law} noise"
        least, most = _REACH
        if self.free == "trials":
            return Unknown(name=name, power=power, unit=unit, least=unit, most=most, closed=True)
        step, digits = (Fraction(1, 10**6), 9) if fine else (Fraction(1, 1000), 5)
        return Unknown(name=name, power=power, least=least, most=most, step=step, digits=digits)


def read_noise_family(text: str) -> NoiseFamily:
    r"""Parse the name of a law and the values of all parameters except the one to calibrate."""
    if not isinstance(text, str):
        raise InvalidParameter("noise", text, "must be the name of a law, e.g. discrete-gaussian")
    law, rest = split_name(text)
    if law in LAWS and law not in _FREE:
        raise InvalidParameter("noise", text, "has no scale to calibrate: set its epsilon instead")
    if law not in _FREE:
        near = law_meant(law)
        hint = "" if near is None else f"; did you mean {near}?"
        raise InvalidParameter("noise", text, f"must start with one of {', '.join(_FREE)}{hint}")
    free = _FREE[law]
    if any(key == free for key, _ in pairs_of(rest)):
        reason = f"must not contain {free}: calibrate solves for it"
        raise InvalidParameter("noise", text, reason)
    names = (free,) if law in REAL_LAWS else parameter_names(LAWS[law])
    wanted = [name for name in names if name != free]
    given = read_keys("noise", text, rest, wanted, owner=law, needed=wanted)
    return NoiseFamily(law=law, free=free, fixed=tuple(given.items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    # Releases whose noise has an unknown parameter; the noise of `release` is a placeholder.
    law: NoiseFamily
    release: Description
    rounds: int
    honest_fraction: Fraction

    @property
    def sensitivity(self) -> Sensitivity:
        return Sensitivity.of(self.release.sensitivity)

    def composed(self, noise: Noise | RealNoise) -> Composition:
        # Only the noise of the honest users counts.
        one = replace(self.release, noise=_honest_part(noise, self.honest_fraction))
        return compose((one, self.rounds))


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration(_Plan):
    r"""The result of :func:`calibrate`: the least noise found, and the next smaller one.

    The composition of ``rounds`` releases with ``noise`` satisfies (epsilon, delta). ``found`` is
    the proven bound on its delta(epsilon), or on its epsilon(0) if delta = 0. ``step_less`` is the
    next smaller noise, and ``found_less`` is the same bound for this noise; both are None if there
    is no smaller noise. ``least`` is True if ``step_less`` is None or is proven to fail.
    """

    epsilon: Fraction
    delta: Fraction
    edge: Edge

    @property
    def noise(self) -> Noise | RealNoise:
        return self.law.at(self.edge.value)

    @property
    def step_less(self) -> Noise | RealNoise | None:
        r"""The next smaller noise that the search may try; None if no smaller noise exists."""
        return None if self.edge.beyond is None else self.law.at(self.edge.beyond)

    @property
    def found(self) -> Bound:
        r"""The bound on delta(epsilon) with ``noise``, or on epsilon(0) if delta = 0."""
        return self.edge.found

    @property
    def found_less(self) -> Bound | None:
        r"""The bound :attr:`found` for the noise ``step_less``; None if ``step_less`` is None."""
        return self.edge.found_beyond

    @property
    def least(self) -> bool:
        r"""Whether ``step_less`` is None, or is proven to violate (epsilon, delta)."""
        return self.edge.proven

    def total(self) -> Composition:
        r"""The composition of all rounds, in which only the noise of honest users counts."""
        return self.composed(self.noise)

    def epsilon_at_delta(self) -> Bound:
        r"""Bound the epsilon of all rounds at ``delta``. The upper bound is at most the target.

        >>> calibrate(noise="discrete-laplace", epsilon=2).epsilon_at_delta().upper
        Fraction(2, 1)
        """
        if self.delta == 0:
            return self.found
        found = self.total().epsilon(self.delta, _KEPT)
        return replace(found, upper=min(found.upper, self.epsilon))

    def _repr_html_(self) -> str:
        rows: list[tuple[str, object]] = [("noise", write_noise(self.noise))]
        rows += [("epsilon", exactly(self.epsilon)), ("delta", exactly(self.delta))]
        rows += [("rounds", self.rounds)]
        rows += [("delta at epsilon" if self.delta else "epsilon at 0", self.found)]
        return html_table("Calibration", [*rows, ("least", "yes" if self.least else "not proven")])

    def to_json(self) -> dict[str, Any]:
        r"""The result as JSON: exact parameters as text, each bound as two numbers."""
        step, quantity = None, "delta_at_target" if self.delta else "epsilon_at_zero"
        scheme, group = self.release.scheme, self.release.group
        sampled = {"rate": str(scheme.rate)} if isinstance(scheme, Poisson) else {}
        if scheme != EVERYONE and not sampled:
            sampled = {"scheme": scheme.text}
        if self.step_less is not None and self.found_less is not None:
            step = {"noise": self.step_less.to_json(), quantity: self.found_less.to_json()}
        return {
            "epsilon": self.epsilon_at_delta().to_json(),
            "delta": str(self.delta),
            "rounds": self.rounds,
            "method": self.found.method,
            "theorem": self.found.theorem,
            "noise": self.noise.to_json(),
            "sensitivity": self.sensitivity.to_json(),
            "honest_fraction": str(self.honest_fraction),
            "target": {"epsilon": str(self.epsilon), "delta": str(self.delta)},
            quantity: self.found.to_json(),
            "one_step_less": step,
            "least": self.least,
            **sampled,
            "relation": self.release.scope.relation.value,
            **({} if group == 1 else {"group": group}),
            "assumptions": list(self.total().assumptions),
        }


def calibrate(  # noqa: PLR0913 - the parts of one target, by keyword
    *,
    noise: str,
    epsilon: RationalLike,
    delta: RationalLike = 0,
    rounds: int = 1,
    sensitivity: Sensitivity | int = 1,
    honest_fraction: RationalLike = 1,
    rate: RationalLike = 1,
    scheme: Scheme = EVERYONE,
    relation: Relation | None = None,
    group: int = 1,
    watch: Callable[[int], None] | None = None,
) -> Calibration:
    r"""Find the least noise of a law that satisfies (epsilon, delta) over ``rounds`` releases.

    ``noise`` is the name of a law and the values of its other parameters, e.g.
    ``"discrete-gaussian"``, ``"polya-difference:shape=0.9"`` or ``"binomial:probability=1/2"``. In
    a distributed protocol each of n users adds a share of the noise. With ``honest_fraction`` = h/n
    the shares of h users suffice for the guarantee.

    If the next smaller value is proven to fail (:attr:`Calibration.least`), a real parameter is at
    most 0.12% above the least one; for discrete Gaussian noise and its sums this is not proven.
    With sampling, and for ``"gaussian"`` and ``"laplace"`` noise, values differ by one millionth.

    ``rate`` < 1 is the rate of Poisson sampling, and ``scheme`` is any other sampling scheme.
    ``scheme``, ``sensitivity``, ``relation`` and ``group`` are those of a :class:`Description`.
    ``watch`` is called after each value, with the number of values tried so far.

    >>> calibrate(noise="discrete-laplace", epsilon=2, rounds=50).noise
    DiscreteLaplace(scale=25)
    >>> calibrate(noise="skellam", epsilon=1, delta="1e-6", honest_fraction="9/10").least
    True

    Raises :class:`InvalidParameter` if the law is unknown, a parameter is missing or unknown, or a
    target is out of range; raises :class:`NotDerived` if no noise in the range of the search
    satisfies the guarantee, or if even the least noise in the range satisfies it.
    """
    at, limit = _targets(epsilon, delta, pure=True)
    law, sampled = read_noise_family(noise), Poisson(rate=rate)
    if not sampled.everybody and scheme != EVERYONE:
        raise InvalidParameter("rate", rate, "must be 1 if another scheme is given")
    plan = _Plan(
        law=law,
        release=Description(
            noise=law.at(Fraction(_LARGE)),
            sensitivity=sensitivity,
            scheme=scheme if sampled.everybody else sampled,
            relation=relation,
            group=group,
        ),
        rounds=integer("rounds", rounds, at_least=1),
        honest_fraction=rational_in("honest_fraction", honest_fraction, "(0, 1]"),
    )
    # For real-valued or sampled noise, a small step costs no more. Integers must be divisible by n.
    fine = law.law in REAL_LAWS or not plan.release.scheme.everybody
    unknown = law.unknown(fine=fine, unit=plan.honest_fraction.denominator)
    digits = _DIGITS if fine else (5, 7, 11)

    def bound(value: Fraction) -> Bound:
        planned = law.at(value)
        try:
            return decide(plan.composed(planned), at, limit, digits)
        except NotDerived as error:
            reason = f"the search stopped at {write_noise(planned)}: {error.instead}"
            raise NotDerived(f"the least {law.law} noise for this guarantee", reason) from error

    one = plan.honest_fraction == plan.release.group == 1 and plan.release.scheme.everybody
    edge = None
    if law.law == "discrete-laplace" and limit == 0 and one:
        edge = _exactly(unknown, bound, at)
    if edge is None:
        start = _guess(plan, unknown.power, at, limit)
        edge = search(unknown, bound, epsilon=at, delta=limit, start=start, watch=watch)
    given = {each.name: getattr(plan, each.name) for each in fields(plan)}
    return Calibration(**given, epsilon=at, delta=limit, edge=edge)


def most_rounds(release: OneRelease, *, epsilon: RationalLike, delta: RationalLike) -> Edge:
    r"""Find the most rounds of ``release`` whose composition is proven (epsilon, delta)-DP."""
    at, limit = _targets(epsilon, delta, pure=True)
    rounds = Unknown(name="number of rounds", power=-1, unit=1, least=1, most=1 << 40)

    def bound(value: Fraction) -> Bound:
        return decide(compose((release, int(value))), at, limit, _DIGITS)

    return search(rounds, bound, epsilon=at, delta=limit)


def largest_rate(
    noise: Noise | RealNoise,
    *,
    rounds: int,
    epsilon: RationalLike,
    delta: RationalLike,
    sensitivity: Sensitivity | int = 1,
) -> Edge:
    r"""Find the largest Poisson rate at which ``rounds`` rounds are proven (epsilon, delta)-DP."""
    at, limit = _targets(epsilon, delta, pure=True)
    times = integer("rounds", rounds, at_least=1)
    rate = Unknown(name="sampling rate", power=-2, least=_REACH[0], most=1, closed=True)

    def bound(value: Fraction) -> Bound:
        scheme = Poisson(rate=value)
        one = Description(noise=noise, sensitivity=sensitivity, scheme=scheme)
        total = compose((one, times))
        return decide(total, at, limit, _DIGITS)

    return search(rate, bound, epsilon=at, delta=limit)


def noise_multiplier(
    run: TrainingRun,
    *,
    epsilon: RationalLike,
    delta: RationalLike,
    watch: Callable[[int], None] | None = None,
) -> Edge:
    r"""Find the least noise multiplier at which a training run is proven to be (epsilon, delta)-DP.

    The search starts at the noise multiplier of ``run``. Adjacent values differ by 1/10,000, in
    relative terms.
    """
    at, limit = _targets(epsilon, delta)

    def bound(value: Fraction) -> Bound:
        total = replace(run, noise_multiplier=value).composition()
        return run.bounded(decide(total, at, limit, _FEW))

    size, start = _deviations("noise multiplier"), log(run.noise_multiplier)
    return search(size, bound, epsilon=at, delta=limit, start=start, watch=watch)


def least_sigma(mechanism: MatrixMechanism, *, epsilon: RationalLike, delta: RationalLike) -> Edge:
    r"""Find the least sigma at which a matrix mechanism is proven to be (epsilon, delta)-DP.

    The noise of ``mechanism`` is replaced by Gaussian noise. Adjacent values of sigma differ by
    1/10,000, in relative terms.
    """
    at, limit = _targets(epsilon, delta)

    def bound(value: Fraction) -> Bound:
        total = compose(replace(mechanism, noise=Gaussian(sigma=value)))
        return decide(total, at, limit, _FEW)

    moved = replace(mechanism, noise=Gaussian(sigma=1)).variances[1]
    start = log(moved) / 2 - log_mu(float(at), log(limit))
    return search(_deviations("sigma"), bound, epsilon=at, delta=limit, start=start)


def _deviations(name: str) -> Unknown:
    least, most = _REACH
    step = Fraction(1, 10**4)
    return Unknown(name=name, power=2, least=least, most=most, step=step, digits=6)


def _targets(
    epsilon: RationalLike, delta: RationalLike, *, pure: bool = False
) -> tuple[Fraction, Fraction]:
    at = positive_rational("epsilon", epsilon, "epsilon 0 needs infinite noise")
    if at > _MOST_EPSILON:
        raise InvalidParameter(
            "epsilon", epsilon, f"must be <= {_MOST_EPSILON}: a larger epsilon protects nothing"
        )
    return at, rational_in("delta", delta, "[0, 1)" if pure else "(0, 1)")


def _honest_part(noise: Noise | RealNoise, honest: Fraction) -> Noise | RealNoise:
    # The noise of h of n users, for honest = h/n.
    if honest == 1:
        return noise
    if not isinstance(noise, Divisible):
        reason = f"must be 1: {noise.name} noise cannot be divided into shares"
        raise InvalidParameter("honest_fraction", honest, reason)
    return summed(noise.share(honest.denominator), honest.numerator)


def _exactly(
    unknown: Unknown, bound: Callable[[Fraction], Bound], epsilon: Fraction
) -> Edge | None:
    # At delta = 0 the loss of discrete Laplace noise is exactly k d/s, so s = k d/epsilon.
    at_one = bound(Fraction(1))
    if at_one.lower != at_one.upper or not isinstance(at_one.upper, Fraction):
        return None
    scale = at_one.upper / epsilon
    less = scale * (1 - unknown.step)
    return Edge(
        value=scale, found=bound(scale), beyond=less, found_beyond=bound(less), limit=epsilon
    )


def _guess(plan: _Plan, power: int, epsilon: Fraction, delta: Fraction) -> float:
    # The log of the parameter at which Gaussian noise of the same variance roughly suffices.
    moved = sum(step**2 * n for step, n in heaviest(plan.sensitivity))
    rate = Fraction(getattr(plan.release.scheme, "rate", 1))
    squared = max(moved * plan.rounds * (rate * plan.release.group) ** 2, Fraction(1, 16))
    if delta == 0:
        return math.log(plan.rounds) + log(squared) / 2 - log(epsilon)
    wanted = log(squared) - 2 * log_mu(float(epsilon), log(delta))
    variance = cast("Noise | RealNoise", plan.release.noise).variance
    there = log(variance if isinstance(variance, Fraction) else variance.upper)
    there += log(plan.honest_fraction)
    return (wanted - there) / power + math.log(_LARGE)
