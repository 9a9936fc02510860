"""DP-SGD steps: a correct one, and others that each have one fault."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

RECORDS, RATE, SIGMA, CLIP = 2000, 0.05, 1.5, 0.5
STATED: dict[str, Any] = {
    "records": RECORDS, "rate": "0.05", "noise_multiplier": "1.5", "clip": "0.5",
}  # fmt: skip
BROKEN: dict[type[Right], str] = {}


def norms(gradients: Floats) -> Floats:
    return np.asarray(np.linalg.norm(gradients, axis=1, keepdims=True))


class Right:
    """Correct: Poisson batches, clipped sum, Gaussian noise, divided by the expected batch size."""

    def __init_subclass__(cls, fails: str | None = None) -> None:
        # The check that a step with a fault must fail.
        if fails is not None:
            BROKEN[cls] = fails

    def sample(self, rng: np.random.Generator) -> Any:
        return np.flatnonzero(rng.random(RECORDS) < RATE)

    def finite(self, gradients: Floats) -> Floats:
        kept = np.isfinite(gradients).all(axis=1, keepdims=True)
        return np.where(kept, gradients, np.zeros_like(gradients))

    def clipped(self, gradients: Floats) -> Floats:
        return np.asarray(gradients / np.maximum(norms(gradients) / CLIP, 1.0))

    def noise(self, size: int, rng: np.random.Generator) -> Floats:
        return rng.normal(scale=SIGMA * CLIP, size=size)

    def divisor(self, batch: int) -> float:
        return RATE * RECORDS

    def update(self, gradients: Floats, rng: np.random.Generator) -> Any:
        total = self.clipped(self.finite(gradients)).sum(axis=0)
        total += self.noise(gradients.shape[1], rng)
        return total / self.divisor(len(gradients))


class SinglePrecision(Right):
    """Correct, in 32-bit floats."""

    def update(self, gradients: Floats, rng: np.random.Generator) -> Any:
        small = self.finite(gradients.astype(np.float32))
        total = (small / np.maximum(norms(small) / np.float32(CLIP), np.float32(1.0))).sum(axis=0)
        noise = self.noise(gradients.shape[1], rng).astype(np.float32)
        return (total + noise) / np.float32(RATE * RECORDS)


class ScaledUp(Right):
    """Automatic clipping (Bu and others 2023): small gradients are scaled up to the norm."""

    def clipped(self, gradients: Floats) -> Floats:
        return np.asarray(gradients * CLIP / (norms(gradients) + 0.01))


def faulty(name: str, fails: str | None, **methods: Any) -> Any:
    """The correct step with these methods instead of its own, and the check that it must fail."""
    return type(name, (Right,), methods, fails=fails)


def renoised(name: str, fails: str, change: Any) -> Any:
    """The correct step with this function of its noise and the generator instead of its noise."""
    return faulty(
        name, fails, noise=lambda self, size, rng: change(Right.noise(self, size, rng), rng)
    )


# Sampling: batches of a fixed size, each drawn anew; cut to one size, which one in ten exceeds; a
# rate that is 5% too large; with replacement, so that a record may be in a batch twice.
Fixed = faulty(
    "Fixed",
    "batch sizes",
    sample=lambda _, rng: rng.choice(RECORDS, round(RATE * RECORDS), replace=False),
)
Truncated = faulty(
    "Truncated",
    "batch sizes",
    sample=lambda self, rng: rng.permutation(Right.sample(self, rng))[:112],
)
faulty("TooOften", "rate", sample=lambda _, rng: np.flatnonzero(rng.random(RECORDS) < 1.05 * RATE))
faulty(
    "Twice",
    "no repeats",
    sample=lambda _, rng: rng.integers(0, RECORDS, rng.binomial(RECORDS, RATE)),
)

# Noise: of sigma instead of sigma times the norm; nine tenths of it; Laplace noise of the same
# variance; the same at every step, in another order; none in one step of fifty; a quarter of it in
# one coordinate of two hundred; none in the sum of all coordinates, as their mean is subtracted; a
# fifth of the variance of each coordinate common to all.
renoised("NoiseWithoutClip", "noise", lambda noise, _: noise / CLIP)
TenthLessNoise = renoised("TenthLessNoise", "noise", lambda noise, _: 0.9 * noise)
faulty(
    "LaplaceNoise",
    "noise",
    noise=lambda _, size, rng: rng.laplace(scale=SIGMA * CLIP / np.sqrt(2), size=size),
)
faulty(
    "ShuffledNoise",
    "noise",
    noise=lambda self, size, rng: rng.permutation(
        Right.noise(self, size, np.random.default_rng(0))
    ),
)
RareNoNoise = renoised(
    "RareNoNoise", "each update", lambda noise, rng: noise * (rng.random() >= 0.02)
)
renoised("QuietLayer", "coordinates", lambda noise, _: np.append(noise[:-1], noise[-1] / 4))
renoised("CentredNoise", "coordinates", lambda noise, _: noise - noise.mean())
renoised(
    "CommonNoise",
    "coordinates",
    lambda noise, rng: 0.8**0.5 * noise + 0.2**0.5 * rng.normal(scale=SIGMA * CLIP),
)
# Correct, but with a noise source of its own.
OwnNoise = faulty(
    "OwnNoise", None, noise=lambda self, size, _: Right.noise(self, size, np.random.default_rng())
)

# Clipping: gradients within the norm are scaled up beyond it, a little or far; each coordinate is
# clipped instead of the norm; two layers, each clipped to the whole norm.
faulty(
    "ScaledBelow",
    "clipping",
    clipped=lambda self, g: np.where(norms(g) > 1.001 * CLIP, Right.clipped(self, g), 1.9 * g),
)
faulty(
    "ScaledBeyond",
    "normaliser",
    clipped=lambda self, g: Right.clipped(self, g) * np.where(norms(g) < 0.9 * CLIP, 3, 1),
)
faulty("ClippedByCoordinate", "clipping", clipped=lambda _, g: np.clip(g, -CLIP, CLIP))
faulty(
    "ClippedByLayer",
    "clipping",
    clipped=lambda self, g: np.concatenate(
        [Right.clipped(self, half) for half in np.split(g, 2, axis=1)], 1
    ),
)

# Gradients that are not finite: all reach the sum; infinite ones do; one of them removes those of
# all other records; an error reveals it.
faulty("InfAndNan", "inf and nan", finite=lambda _, g: g)
faulty("OnlyNan", "inf and nan", finite=lambda _, g: np.where(np.isnan(g), 0.0, g))
faulty(
    "SkipsTheBatch",
    "inf and nan",
    finite=lambda _, g: g if np.isfinite(g).all() else np.zeros_like(g),
)
NonFiniteRaises = faulty(
    "NonFiniteRaises", "inf and nan", finite=lambda _, g: np.asarray_chkfinite(g)
)

# The divisor: the size of this batch; an expected size that was rounded down twice.
ActualSize = faulty("ActualSize", "normaliser", divisor=lambda _, batch: max(batch, 1))
faulty("Floored", "normaliser", divisor=lambda *_: RECORDS // (1 / RATE) - 1)


class Shuffled(Right, fails="record counts"):
    """Epochs, each shuffled once and cut into batches."""

    def __init__(self) -> None:
        self.waiting: list[Any] = []

    def sample(self, rng: np.random.Generator) -> Any:
        if not self.waiting:
            self.waiting = np.split(rng.permutation(RECORDS), round(1 / RATE))
        return self.waiting.pop()


class Lagged(Right, fails="overlap"):
    """Broken: each batch keeps half of the previous one."""

    def __init__(self) -> None:
        self.before: Any = None

    def sample(self, rng: np.random.Generator) -> Any:
        fresh = rng.random(RECORDS) < RATE
        if self.before is not None:
            fresh = np.where(rng.random(RECORDS) < 0.5, self.before, fresh)
        self.before = fresh
        return np.flatnonzero(fresh)


class CappedVisits(Right, fails="record counts"):
    """Broken: a record is in at most 25 batches."""

    def __init__(self) -> None:
        self.visits = np.zeros(RECORDS)

    def sample(self, rng: np.random.Generator) -> Any:
        batch = super().sample(rng)
        batch = batch[self.visits[batch] < 25]
        self.visits[batch] += 1
        return batch


class OneMoreOften(Right, fails="each record"):
    """Broken: one record is drawn five times as often as the others."""

    def sample(self, rng: np.random.Generator) -> Any:
        rates = np.full(RECORDS, RATE)
        rates[17] = 5 * RATE
        return np.flatnonzero(rng.random(RECORDS) < rates)


class SeededLayers(Right, fails="noise"):
    """Broken: the generator is seeded anew for each of two layers, which get the same noise."""

    def noise(self, size: int, rng: np.random.Generator) -> Floats:
        half = super().noise(-(-size // 2), rng)
        return np.concatenate([half, -half])[:size]


class EveryHundredth(Right, fails="each update"):
    """Every hundredth update has half of the noise."""

    updates = 0

    def noise(self, size: int, rng: np.random.Generator) -> Floats:
        self.updates += 1
        return super().noise(size, rng) * (0.5 if self.updates % 100 == 0 else 1)


class BalancedNoise(Right, fails="each update"):
    """Each update subtracts the noise of the previous one, so their sum has little noise."""

    last: Floats | None = None

    def noise(self, size: int, rng: np.random.Generator) -> Floats:
        found = super().noise(size, rng)
        before, self.last = self.last, found
        if before is None or len(before) != size:
            return found
        return np.asarray((found - before) / 2**0.5)


class NoiseOfFullBatches(Right, fails="noise"):
    """Broken: a small batch gets less noise."""

    def update(self, gradients: Floats, rng: np.random.Generator) -> Any:
        total = self.clipped(self.finite(gradients)).sum(axis=0)
        noise = self.noise(gradients.shape[1], rng)
        full = 0 < len(gradients) < RATE * RECORDS
        return (total + (0.5 * noise if full else noise)) / self.divisor(len(gradients))


class LastUnclipped(Right, fails="clipping"):
    """Broken: the rest of a batch that does not fill a microbatch is not clipped."""

    def clipped(self, gradients: Floats) -> Floats:
        found = super().clipped(gradients)
        found[len(gradients) // 8 * 8 :] = gradients[len(gradients) // 8 * 8 :]
        return found


class NotANumber(Right, fails="noise"):
    """Broken: divides by the norm of a gradient of zeros."""

    def clipped(self, gradients: Floats) -> Floats:
        size = norms(gradients)
        with np.errstate(invalid="ignore"):
            return np.asarray(gradients * np.minimum(CLIP, size) / size)


class EmptyWithoutNoise(Right, fails="empty batch"):
    """Broken: adds no noise to an empty batch."""

    def update(self, gradients: Floats, rng: np.random.Generator) -> Any:
        if not len(gradients):
            return np.zeros(gradients.shape[1])
        return super().update(gradients, rng)


class EmptyRaises(Right, fails="empty batch"):
    """Broken: raises for an empty batch."""

    def update(self, gradients: Floats, rng: np.random.Generator) -> Any:
        if not len(gradients):
            raise ValueError("empty batch")
        return super().update(gradients, rng)
