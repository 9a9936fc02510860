r"""Samplers to test: anything that draws integers, behind one interface.

f(n, rng)      n integers in one call, rng a numpy Generator (fastest)
f(rng), f()    one integer per call
a Noise        its own sampler, seeded by the fit
a mapping      integers to masses
rvs            an object with scipy's rvs(size=, random_state=)
a Target       of ``audit.targets.target``, on the dataset 0
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from audit.errors import TargetFailed
from audit.fit.statistics import Integers
from audit.outputs.call_guard import Watchdog
from audit.targets.target import Block, Catalogued, Target, seeded_rng
from dpcore.errors import InvalidParameter, Unrepresentable
from dpcore.noise import Noise
from dpcore.numbers.parameter import rational
from dpcore.sampling.rng import SeededRng

_MANY: Final = 1 << 20
# For one draw per call: small pieces, so that the draws before a failure are kept.
_FEW: Final = 1 << 10
_FORMS: Final = (
    "must be a callable f(n, rng), f(rng) or f(), a Noise, a mapping from outcomes to "
    "probabilities, or an object with a method rvs"
)
_LEAST, _LARGEST = -(1 << 63), (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampler:
    r"""A sampler: ``function(n)`` draws n values; at most ``piece`` are requested at a time."""

    spelling: str
    function: Callable[[int], Any]
    watchdog: Watchdog
    piece: int = _MANY

    def draw(self, n: int) -> Integers:
        r"""Draw n values; values beyond int64 are clipped to its range, and so count as the far
        tail.
        """
        returned = self.watchdog.call(lambda: self.function(n), self.spelling)
        try:
            draws: NDArray[Any] = np.asarray(returned)
        except (ValueError, TypeError, OverflowError):
            raise TargetFailed(self.spelling, "did not return an array of integers") from None
        if returned is None:
            raise TargetFailed(self.spelling, "returned nothing")
        if draws.shape != (n,):
            reason = f"returned an array of shape {draws.shape} instead of ({n},)"
            raise TargetFailed(self.spelling, reason)
        match draws.dtype.kind:
            case "i":
                return np.asarray(draws, dtype=np.int64)
            case "u":
                return np.asarray(np.minimum(draws, np.uint64(_LARGEST)), dtype=np.int64)
            case "O":
                return self._clipped(draws.tolist())
        reason = f"returned {draws.dtype} values such as {draws[0]!s}: integers are required"
        raise TargetFailed(self.spelling, reason)

    def _clipped(self, values: list[Any]) -> Integers:
        for x in values:
            if isinstance(x, bool) or not isinstance(x, int | np.integer):
                reason = f"returned {x!r}: integers are required"
                raise TargetFailed(self.spelling, reason)
        return np.array([min(max(int(x), _LEAST), _LARGEST) for x in values], dtype=np.int64)


def sampler_of(
    sampler: Any, seed: np.random.SeedSequence, *, timeout: float | None = None
) -> Sampler:
    r"""Convert ``sampler`` to a Sampler; the module lists the accepted types."""
    watchdog = Watchdog(timeout)
    rng = np.random.default_rng(seed)
    name, piece = _name(sampler), _MANY
    function: Callable[[int], Any]
    if isinstance(sampler, Noise):
        name, function = repr(sampler), _of_noise(sampler, seeded_rng(seed))
    elif isinstance(sampler, Target):
        name, function = sampler.spelling, _of_target(sampler, seed, timeout)
    elif isinstance(sampler, Mapping):
        name, function = "a pmf", _of_pmf(sampler, rng)
    elif callable(rvs := getattr(sampler, "rvs", None)):
        function = lambda n: rvs(size=n, random_state=rng)  # noqa: E731 - a def would only be longer
    elif callable(sampler):
        function, piece = _of_function(sampler, rng, watchdog)
    else:
        raise InvalidParameter("sampler", sampler, _FORMS)
    return Sampler(spelling=name, function=function, watchdog=watchdog, piece=piece)


def _name(sampler: Any) -> str:
    return getattr(sampler, "__qualname__", None) or type(sampler).__qualname__


def _of_noise(noise: Noise, rng: SeededRng) -> Callable[[int], Any]:
    def draw(n: int) -> Any:
        try:
            return noise.sample(n, rng=rng)
        except Unrepresentable:
            return np.array([noise.sample(rng=rng) for _ in range(n)], dtype=object)

    return draw


def _of_pmf(masses: Mapping[Any, Any], rng: np.random.Generator) -> Callable[[int], Any]:
    exact = {x: rational(f"mass of {x!r}", mass) for x, mass in masses.items()}
    if any(isinstance(x, bool) or not isinstance(x, int) for x in exact):
        raise InvalidParameter("sampler", list(exact), "the outcomes of a pmf must be integers")
    if any(mass < 0 for mass in exact.values()) or sum(exact.values()) != 1:
        raise InvalidParameter("sampler", masses, "the masses of a pmf must be >= 0 and sum to 1")
    values = np.array(list(exact), dtype=object)
    return lambda n: rng.choice(values, size=n, p=[float(mass) for mass in exact.values()])


def _of_target(
    target: Target, seed: np.random.SeedSequence, timeout: float | None
) -> Callable[[int], Any]:
    pair = target.subject.pair if isinstance(target, Catalogued) else target.check((0, 0))

    def draw(n: int) -> Any:
        mixing, *seeds = seed.spawn(3)
        block = Block(
            pair=pair,
            worlds=np.zeros(n, dtype=np.bool_),
            seeds=(seeds[0], seeds[1]),
            mixing=mixing,
            timeout=timeout,
        )
        pieces = [list(piece) for piece in target.draw(block)]
        outputs = [x for piece in pieces for x in piece]
        if target.lines:
            # Objects, because numpy would convert integers beyond its types to floats.
            return np.array([_of_line(target.spelling, line) for line in outputs], dtype=object)
        return np.array(outputs)

    return draw


def _of_line(spelling: str, line: str) -> int:
    try:
        return int(line)
    except ValueError:
        reason = f"wrote {line[:60]!r}: one integer per line is required"
        raise TargetFailed(spelling, reason) from None


def _of_function(
    function: Callable[..., Any], rng: np.random.Generator, watchdog: Watchdog
) -> tuple[Callable[[int], Any], int]:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        raise InvalidParameter("sampler", _name(function), _FORMS) from None
    if _takes(signature, n=1, rng=rng):
        return lambda n: function(n=n, rng=rng), _MANY
    if _takes(signature, 1, rng):
        return lambda n: function(n, rng), _MANY
    if _takes(signature, rng=rng):
        return _one_by_one(lambda: function(rng=rng), watchdog), _FEW
    if _takes(signature):
        return _one_by_one(function, watchdog), _FEW
    raise InvalidParameter("sampler", f"{_name(function)}{signature}", _FORMS)


def _takes(signature: inspect.Signature, *args: Any, **kwargs: Any) -> bool:
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def _one_by_one(once: Callable[[], Any], watchdog: Watchdog) -> Callable[[int], Any]:
    def draw(n: int) -> Any:
        draws = np.empty(n, dtype=object)
        for i in range(n):
            watchdog.restart()
            draws[i] = once()
        return draws

    return draw
