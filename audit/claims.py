r"""Privacy claims to test, and significance levels.

A claim is a point (epsilon, delta), or a whole privacy curve:

    epsilon=1,delta=1e-6                     a point
    rho=0.1                                  zero-concentrated DP: D_alpha <= rho alpha, alpha > 1
    gdp=1                                    1-GDP: no easier to tell apart than N(0, 1) and N(1, 1)
    discrete-gaussian:sigma_squared=4@1      the curve of this noise for sensitivity 1

An audit tests a few points (epsilon_j, delta_j) that lie on or above the curve. The claim implies
each of these points, so refuting a point refutes the claim. The points depend only on the claim,
and are fixed before anything is drawn. Proof: ``docs/proofs/audit_tests.md``.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache, lru_cache
from typing import Any, Final, Literal, TypeAlias

from dpcore.errors import DpcoreError, InvalidParameter
from dpcore.mechanism import Mechanism, Norm, Relation, Sensitivity
from dpcore.noise import Noise
from dpcore.numbers.enclosure import Enclosure, End, ball, decimal_up, precision, round_up
from dpcore.numbers.parameter import (
    Exact,
    RationalLike,
    at_least_zero,
    check_fields,
    positive_rational,
    rational,
    rational_in,
    write_rational,
)
from dpcore.numbers.rounding import down, exactly, up
from dpcore.spec_syntax import did_you_mean, pairs_of, read_keys

_MOST_EPSILON: Final = 10**300  # representable as a float, which bounds and statistics need
_POINT: Final = "the accepted forms are epsilon=E and epsilon=E,delta=D, e.g. epsilon=1,delta=1e-6"
_ALL: Final = (
    f"{_POINT}; rho=R, e.g. rho=0.1; gdp=MU, e.g. gdp=1; and NOISE@SENSITIVITY, "
    "e.g. discrete-gaussian:sigma_squared=4@1"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    r"""The claim that a mechanism M is (epsilon, delta)-differentially private.

    The claim means that P(M(D) in S) <= e^epsilon P(M(D') in S) + delta for all events S and all
    neighbouring datasets D and D'.

    >>> print(Claim.read("epsilon=1/2,delta=1e-6"))
    epsilon=0.5,delta=1e-6

    Raises :class:`InvalidParameter` if epsilon is not in [0, 1e300] or delta is not in [0, 1).
    """

    epsilon: Exact = Exact()
    delta: Exact = Exact(0, within="[0, 1)")
    relation: Relation | str = Relation.REPLACE

    def __post_init__(self) -> None:
        check_fields(self)
        if not 0 <= self.epsilon <= _MOST_EPSILON:
            raise InvalidParameter("epsilon", self.epsilon, "must be >= 0 and <= 1e300")
        object.__setattr__(self, "relation", read_relation("relation", self.relation))

    @classmethod
    def read(cls, text: str, relation: str | Relation = Relation.REPLACE) -> Claim:
        r"""Parse a claim: ``epsilon=1`` or ``epsilon=1,delta=1e-6``."""
        keys, typed = ("epsilon", "delta"), {key for key, _ in pairs_of(text)}
        if not typed <= {*keys} or "epsilon" not in typed:
            raise InvalidParameter("claim", text, _POINT)
        given = read_keys("claim", text, text, keys, owner="a claim", needed=keys[:1])
        return cls(epsilon=given["epsilon"], delta=given.get("delta", 0), relation=relation)

    @property
    def exact(self) -> tuple[Fraction, Fraction]:
        r"""The claimed (epsilon, delta) as fractions."""
        return self.epsilon, self.delta

    @property
    def points(self) -> tuple[Claim, ...]:
        r"""The points to test: only this claim itself. A :class:`CurveClaim` has several points."""
        return (self,)

    def __str__(self) -> str:
        epsilon, delta = map(format_rational, self.exact)
        return f"epsilon={epsilon}" + (f",delta={delta}" if self.delta else "")

    def to_json(self) -> dict[str, str]:
        r"""The exact epsilon, delta and relation as JSON values."""
        return {
            "epsilon": write_rational(self.epsilon),
            "delta": write_rational(self.delta),
            "relation": Relation(self.relation).value,
        }


def read_relation(name: str, value: object) -> Relation:
    r"""Parse a neighbouring relation, given as a :class:`Relation` or as its value."""
    try:
        return Relation(value)
    except ValueError:
        choices = " or ".join(relation.value for relation in Relation)
        raise InvalidParameter(name, value, f"must be {choices}") from None


def format_rational(value: Fraction) -> str:
    r"""Format a fraction as a short exact decimal if it has one, and otherwise as "p/q"."""
    return exactly(value).replace("e+", "e")


_TARGETS: Final = tuple(Fraction(1, 10**k) for k in range(1, 7))
_A_DECADE: Final = 90
# The candidate epsilons: 0 and the two-digit decimals from 1e-6 to 500. Both the test for a fixed
# number of runs and the sequential test support them.
_EPSILONS: Final = (
    Fraction(0),
    *(Fraction(m) * Fraction(10) ** k for k in range(-7, 1) for m in range(10, 100)),
    *(Fraction(m) for m in range(100, 501, 10)),
)
_DECADES: Final = (0, *range(1, len(_EPSILONS), _A_DECADE), len(_EPSILONS) - 1)
_NEAR: Final = Fraction(11, 10)
_DIGITS: Final = 6
_BITS: Final = 192

_Delta: TypeAlias = Callable[[Fraction], Fraction]


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveClaim:
    r"""The claim that a mechanism is (epsilon, delta(epsilon))-DP for every epsilon >= 0.

    ``spelling`` is the claim as text, and ``points`` are the tested points of the privacy curve:

    - epsilon = 0, where delta bounds the total variation distance;
    - for each target 0.1, 0.01, ..., 1e-6, the least epsilon with two digits at which delta is at
      most the target. At the first target that delta never reaches, the point is instead an epsilon
      at which delta is near its infimum, and further targets are not used;
    - delta = 0, at the pure epsilon of the curve, if that is at most 500.

    The delta of each point is a proven upper bound on the delta of the curve.

    >>> claim = CurveClaim(spelling="discrete-laplace:scale=2@1")
    >>> [str(point) for point in claim.points]
    ['epsilon=0,delta=0.244919', 'epsilon=0.33,delta=0.0973123', ..., 'epsilon=0.5']

    Raises :class:`InvalidParameter` if the text is not a curve, or if the curve gives no privacy.
    """

    spelling: str
    relation: Relation | str = Relation.REPLACE
    points: tuple[Claim, ...] = field(init=False)

    def __post_init__(self) -> None:
        stated, of = _stated_curve(self.spelling), read_relation("relation", self.relation)
        points = tuple(Claim(epsilon=e, delta=d, relation=of) for e, d in _points(self.spelling))
        if not points:
            reason = f"gives no privacy up to epsilon = {_EPSILONS[-1]}, the largest tested"
            raise InvalidParameter("claim", self.spelling, reason)
        for name, value in (("spelling", stated.spelling), ("relation", of), ("points", points)):
            object.__setattr__(self, name, value)

    def delta_upper(self, epsilon: RationalLike) -> float:
        r"""A proven upper bound on the claimed delta at ``epsilon`` >= 0, rounded up."""
        exact = at_least_zero("epsilon", epsilon)
        return min(1.0, round_up(_stated_curve(self.spelling).delta(exact)))

    def __str__(self) -> str:
        return self.spelling

    def to_json(self) -> dict[str, Any]:
        r"""The claim and its points as JSON values; epsilon and delta are None."""
        return {
            "epsilon": None,
            "delta": None,
            "claim": self.spelling,
            "relation": Relation(self.relation).value,
            "points": [[write_rational(value) for value in point.exact] for point in self.points],
        }


def read_claim(text: str, relation: str | Relation = Relation.REPLACE) -> Claim | CurveClaim:
    r"""Parse a claim: a point, as :meth:`Claim.read` does, or a curve.

    >>> print(read_claim("epsilon=1/2"), read_claim("rho=0.10"), read_claim("skellam:variance=9@1"))
    epsilon=0.5 rho=0.1 skellam:variance=9@1

    Raises :class:`InvalidParameter` with the accepted forms if the text is not a claim.
    """
    if not isinstance(text, str):
        raise InvalidParameter("claim", text, _ALL)
    if "@" in text or text.partition("=")[0].strip() in _WORDS:
        return CurveClaim(spelling=text, relation=relation)
    try:
        return Claim.read(text, relation)
    except InvalidParameter as error:
        if error.reason != _POINT:
            raise
        word = text.partition("=")[0].strip()
        near = {"delta": "epsilon is missing; ", "epsilon": ""}.get(word)
        if near is None:
            near = did_you_mean(word, ("epsilon", "delta", *_WORDS))
        raise InvalidParameter("claim", text, near + _ALL) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class _StatedCurve:
    # ``delta`` is an upper bound on delta at each epsilon; ``pure`` is the pure epsilon, if there
    # is one.
    spelling: str
    delta: _Delta
    pure: Fraction | None = None

    def points(self) -> Iterator[tuple[Fraction, Fraction]]:
        delta = cache(self.delta)
        end = _EPSILONS[-1] if self.pure is None else Fraction(up(self.pure, _DIGITS))
        for epsilon in sorted({Fraction(0), *_firsts(delta)}):
            # Rounded up, here and below, so that the claim implies each tested point.
            rounded = Fraction(up(delta(epsilon), _DIGITS))
            if epsilon < end and rounded < 1:
                yield epsilon, rounded
        if self.pure is not None and end <= _EPSILONS[-1]:
            yield end, Fraction(0)


@lru_cache(maxsize=64)
def _points(text: str) -> tuple[tuple[Fraction, Fraction], ...]:
    return tuple(_stated_curve(text).points())


def _firsts(delta: _Delta) -> Iterator[Fraction]:
    # For each target the least epsilon at which delta is at most the target. At the first target
    # that is never met: an epsilon at which delta is near its infimum, and no further epsilons.
    for target in _TARGETS:
        if (found := _first(delta, target)) is None:
            yield _first(delta, delta(_EPSILONS[-1]) * _NEAR) or _EPSILONS[-1]
            return
        yield found


def _first(delta: _Delta, target: Fraction) -> Fraction | None:
    # The least candidate at which delta is at most the target. Decades are tried first, because
    # enclosing delta far in the tail of a narrow curve is slow.
    decade = next((i for i, p in enumerate(_DECADES) if delta(_EPSILONS[p]) <= target), None)
    if decade is None:
        return None
    low, high = _DECADES[max(decade - 1, 0)], _DECADES[decade]
    return _EPSILONS[
        bisect_left(_EPSILONS, 1, low, high, key=lambda epsilon: int(delta(epsilon) <= target))
    ]


@lru_cache(maxsize=64)
def _stated_curve(text: str) -> _StatedCurve:
    word, _, value = (piece.strip() for piece in text.partition("="))
    try:
        if word in _WORDS:
            amount = positive_rational(word, value, f"{word} = 0 would be perfect privacy")
            return _StatedCurve(
                spelling=f"{word}={format_rational(amount)}", delta=_WORDS[word](amount)
            )
        noise, at, sensitivity = text.rpartition("@")
        if not at:
            raise InvalidParameter("claim", text, _ALL)
        if (hint := _gdp_hint(noise, sensitivity)) is not None:
            raise InvalidParameter("claim", text, hint)
        from dpcore.parse_noise import read_noise, read_sensitivity

        return _mechanism(read_noise(noise), read_sensitivity("sensitivity", sensitivity))
    except DpcoreError as error:
        if isinstance(error, InvalidParameter) and error.argument == "claim":
            raise
        raise InvalidParameter("claim", text, str(error)) from None


def _gdp_hint(noise: str, sensitivity: str) -> str | None:
    # A hint for continuous Gaussian noise, which is claimed as gdp=MU, because only the ratio of
    # sensitivity to sigma matters; None for other noise.
    name, _, rest = noise.strip().partition(":")
    if name != "gaussian":
        return None
    from dpcore.parse_noise import read_sensitivity

    parsed = read_sensitivity("sensitivity", sensitivity)
    given = read_keys("claim", noise, rest, ("sigma",), owner=name, needed=("sigma",))
    sigma = positive_rational("sigma", given["sigma"], "sigma 0 adds no noise")
    if not isinstance(parsed.amount, int) or parsed.norm is Norm.L2_SQUARED:
        return (
            "for continuous Gaussian noise write gdp=MU, where MU is the l2 sensitivity divided by "
            "sigma"
        )
    return f"did you mean gdp={parsed.amount / sigma}? It is the claim for this continuous noise"


def _mechanism(noise: Noise, sensitivity: Sensitivity) -> _StatedCurve:
    from accounting.derive_guarantee import guarantee
    from dpcore.parse_noise import write_noise, write_sensitivity

    curve = guarantee(Mechanism(noise=noise, sensitivity=sensitivity))
    largest = curve.pure().upper
    curve.delta(0)  # raises if no theorem applies
    return _StatedCurve(
        spelling=f"{write_noise(noise)}@{write_sensitivity(sensitivity)}",
        delta=lambda epsilon: _end(curve.delta(epsilon).upper),
        pure=largest if isinstance(largest, Fraction) else None,
    )


def _zcdp(rho: Fraction) -> _Delta:
    from accounting.guarantees.renyi_and_zcdp_to_epsilon import delta_from_renyi

    # Pinsker's inequality: the Kullback-Leibler divergence is at most D_alpha for every alpha > 1,
    # so at most rho.
    with precision(_BITS):
        variation = _end(Enclosure.of(ball(rho / 2).sqrt()).upper)

    def delta(epsilon: Fraction) -> Fraction:
        found = min(variation, _end(delta_from_renyi(lambda order: rho * order, epsilon).upper))
        return min(Fraction(1), found)

    return delta


def _gdp(mu: Fraction) -> _Delta:
    from accounting.published_noise_bounds import real_gaussian_delta

    return lambda epsilon: _end(real_gaussian_delta(1 / mu, epsilon).upper)


_WORDS: Final[dict[str, Callable[[Fraction], _Delta]]] = {"rho": _zcdp, "gdp": _gdp}


def _end(end: End) -> Fraction:
    return end if isinstance(end, Fraction) else Fraction(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRun:
    r"""A completed layer of an audit: its method, and what the result proves and assumes."""

    layer: Literal["exact", "fit", "replay", "sample"]
    method: str
    proves: str


def level(name: str, value: RationalLike, example: str = "0.05") -> Fraction:
    r"""Parse an alpha or a confidence in (0, 1) as an exact rational.

    Error messages call the value ``name``.
    """
    return rational_in(name, value, "(0, 1)", f"such as {example}")


def level_upper(alpha: RationalLike) -> float:
    r"""The smallest float whose shortest decimal form is at least ``alpha``."""
    return decimal_up(rational("alpha", alpha))


def confidence(alpha: RationalLike) -> str:
    r"""Format the confidence of all bounds together, 1 - alpha, as a percentage rounded down."""
    return f"{down(100 * (1 - rational('alpha', alpha)), 6)}%"


def log_bar(alpha: RationalLike) -> float:
    r"""An upper bound on ln(1/alpha); ``alpha`` may be smaller than every positive float."""
    level = rational_in("alpha", alpha, "(0, 1)")
    size = math.log(level.denominator)
    return size * (1.0 + 2.0**-50) - math.log(level.numerator)


def format_p_value(value: float) -> str:
    r"""Format a p-value with three digits, rounded up, or as "below 1e-300"."""
    return "below 1e-300" if value < 1e-300 else up(value, 3)


def evidence(alpha: RationalLike, *, p_value: float | None, e_value: float | None) -> str:
    r"""Describe the e-value (the p-value if ``e_value`` is None) and the threshold that refutes."""
    exact = rational("alpha", alpha)
    if e_value is None:
        return f"p-value {format_p_value(p_value or 0.0)}; {down(exact, 6)} or less refutes"
    number = down(e_value, 3) if math.isfinite(e_value) else "infinite"
    return f"e-value {number}; {up(1 / exact, 6)} or more refutes"


_FIRST_LOOK: Final = 32
_LOOK_GROWTH: Final = Fraction(5, 4)
_MOST_RUNS: Final = 10**12


def _looks() -> tuple[int, ...]:
    found = [_FIRST_LOOK]
    while found[-1] < _MOST_RUNS:
        found.append(math.ceil(found[-1] * _LOOK_GROWTH))
    return tuple(found)


LOOKS: Final = _looks()
r"""Fixed numbers of runs: 32, 40, 50, 63, 79, 99, ...

After each of these numbers of runs, a block of a sequential audit ends, scores are learned again,
and a sequential fit is tested.
"""

TRAINING: Final = LOOKS[0]
r"""The least number of initial runs that the fixed-runs and the anytime-valid test use only for
learning.
"""
