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
        norms = np.linalg.norm(gradients, axis=1, keepdims=True)
        return np.asarray(gradients / np.maximum(norms / CLIP, 1.0))

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
        norms = np.linalg.norm(small, axis=1, keepdims=True)
        total = (small / np.maximum(norms / np.float32(CLIP), np.float32(1.0))).sum(axis=0)
        noise = self.noise(gradients.shape[1], rng).astype(np.float32)
        return (total + noise) / np.float32(RATE * RECORDS)


class ScaledUp(Right):
    """Automatic clipping (Bu and others 2023): small gradients are scaled up to the norm."""

    def clipped(self, gradients: Floats) -> Floats:
        norms = np.linalg.norm(gradients, axis=1, keepdims=True)
        return np.asarray(gradients * CLIP / (norms + 0.01))


class ScaledBelow(Right, fails="clipping"):
    """Broken: gradients within the norm are scaled up beyond it; larger ones are clipped."""

    def clipped(self, gradients: Floats) -> Floats:
        norms = np.linalg.norm(gradients, axis=1, keepdims=True)
        return np.where(norms > CLIP * 1.001, super().clipped(gradients), gradients * 1.9)


class Fixed(Right, fails="batch sizes"):
    """Batches of a fixed size, each drawn anew."""

    def sample(self, rng: np.random.Generator) -> Any:
        return rng.choice(RECORDS, round(RATE * RECORDS), replace=False)


class Shuffled(Right, fails="record counts"):
    """Epochs, each shuffled once and cut into batches."""

    def __init__(self) -> None:
        self.waiting: list[Any] = []

    def sample(self, rng: np.random.Generator) -> Any:
        if not self.waiting:
            self.waiting = np.split(rng.permutation(RECORDS), round(1 / RATE))
        return self.waiting.pop()


class ScaledBeyond(Right, fails="normaliser"):
    """Broken: small gradients are scaled up beyond the norm."""

    def clipped(self, gradients: Floats) -> Floats:
        norms = np.linalg.norm(gradients, axis=1, keepdims=True)
        return np.asarray(super().clipped(gradients) * np.where(norms < 0.9 * CLIP, 3, 1))


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


class Truncated(Right, fails="batch sizes"):
    """Broken: batches are cut to one size, which one in ten exceeds."""

    def sample(self, rng: np.random.Generator) -> Any:
        batch = super().sample(rng)
        return rng.permutation(batch)[:112]


class CappedVisits(Right, fails="record counts"):
    """Broken: a record is in at most 25 batches."""

    def __init__(self) -> None:
        self.visits = np.zeros(RECORDS)

    def sample(self, rng: np.random.Generator) -> Any:
        batch = super().sample(rng)
        batch = batch[self.visits[batch] < 25]
        self.visits[batch] += 1
        return batch


class TooOften(Right, fails="rate"):
    """Broken: the sampling rate is 5% too large."""

    def sample(self, rng: np.random.Generator) -> Any:
        return np.flatnonzero(rng.random(RECORDS) < 1.05 * RATE)


class OneMoreOften(Right, fails="each record"):
    """Broken: one record is drawn five times as often as the others."""

    def sample(self, rng: np.random.Generator) -> Any:
        rates = np.full(RECORDS, RATE)
        rates[17] = 5 * RATE
        return np.flatnonzero(rng.random(RECORDS) < rates)


class Twice(Right, fails="no repeats"):
    """Broken: records are drawn with replacement, so a record may be in a batch twice."""

    def sample(self, rng: np.random.Generator) -> Any:
        return rng.integers(0, RECORDS, rng.binomial(RECORDS, RATE))


class NoiseWithoutClip(Right, fails="noise"):
    """Broken: noise of standard deviation sigma instead of sigma times the norm."""

    def noise(self, size: int, rng: np.random.Generator) -> Floats:
        return rng.normal(scale=SIGMA, size=size)


class TenthLessNoise(Right, fails="noise"):
    """Broken: nine tenths of the standard deviation."""

    def noise(self, size: int, rng: np.random.Generator) -> Floats:
        return rng.normal(scale=0.9 * SIGMA * CLIP, size=size)


class LaplaceNoise(Right, fails="noise"):
    """Broken: Laplace noise of the same variance."""

    def noise(self, size: int, rng: np.random.Generator) -> Floats:
        return rng.laplace(scale=SIGMA * CLIP / np.sqrt(2), size=size)


class QuietLayer(Right, fails="coordinates"):
    """Broken: one coordinate in two hundred has a quarter of the noise."""

    def noise(self, size: int, rng: np.random.Generator) -> Floats:
        found = super().noise(size, rng)
        found[-1] /= 4
        return found


class SeededLayers(Right, fails="noise"):
    """Broken: the generator is seeded anew for each of two layers, which get the same noise."""

    def noise(self, size: int, rng: np.random.Generator) -> Floats:
        half = super().noise(-(-size // 2), rng)
        return np.concatenate([half, -half])[:size]


class CentredNoise(Right, fails="coordinates"):
    """Broken: the mean of the noise is subtracted, so the sum of all coordinates has none."""

    def noise(self, size: int, rng: np.random.Generator) -> Floats:
        found = super().noise(size, rng)
        return np.asarray(found - found.mean())


class CommonNoise(Right, fails="coordinates"):
    """Broken: a fifth of the variance of each coordinate is common to all."""

    def noise(self, size: int, rng: np.random.Generator) -> Floats:
        own, common = super().noise(size, rng), super().noise(1, rng)
        return np.asarray(0.8**0.5 * own + 0.2**0.5 * common)


class RareNoNoise(Right, fails="each update"):
    """One step in fifty has no noise."""

    def noise(self, size: int, rng: np.random.Generator) -> Floats:
        return super().noise(size, rng) * (rng.random() >= 0.02)


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


class ShuffledNoise(Right, fails="noise"):
    """Broken: the same noise at every step, in another order."""

    def noise(self, size: int, rng: np.random.Generator) -> Floats:
        return rng.permutation(np.random.default_rng(0).normal(scale=SIGMA * CLIP, size=size))


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


class ClippedByCoordinate(Right, fails="clipping"):
    """Broken: each coordinate is clipped instead of the norm."""

    def clipped(self, gradients: Floats) -> Floats:
        return np.clip(gradients, -CLIP, CLIP)


class ClippedByLayer(Right, fails="clipping"):
    """Broken: two layers, each clipped to the whole norm."""

    def clipped(self, gradients: Floats) -> Floats:
        halves = np.split(gradients, 2, axis=1)
        return np.concatenate([super(ClippedByLayer, self).clipped(half) for half in halves], 1)


class InfAndNan(Right, fails="inf and nan"):
    """Broken: divides by the norm of every gradient, so inf / inf and nan reach the sum."""

    def finite(self, gradients: Floats) -> Floats:
        return gradients


class OnlyNan(Right, fails="inf and nan"):
    """Broken: keeps infinite gradients."""

    def finite(self, gradients: Floats) -> Floats:
        return np.where(np.isnan(gradients), 0.0, gradients)


class SkipsTheBatch(Right, fails="inf and nan"):
    """Broken: one gradient that is not finite removes those of all other records."""

    def finite(self, gradients: Floats) -> Floats:
        return gradients if np.isfinite(gradients).all() else np.zeros_like(gradients)


class NonFiniteRaises(Right, fails="inf and nan"):
    """Broken: an error reveals that some gradient was not finite."""

    def finite(self, gradients: Floats) -> Floats:
        return np.asarray_chkfinite(gradients)


class NotANumber(Right, fails="noise"):
    """Broken: divides by the norm of a gradient of zeros."""

    def clipped(self, gradients: Floats) -> Floats:
        norms = np.linalg.norm(gradients, axis=1, keepdims=True)
        with np.errstate(invalid="ignore"):
            return np.asarray(gradients * np.minimum(CLIP, norms) / norms)


class ActualSize(Right, fails="normaliser"):
    """Broken: divides by the size of this batch."""

    def divisor(self, batch: int) -> float:
        return max(batch, 1)


class Floored(Right, fails="normaliser"):
    """Broken: divides by an expected size that was rounded down twice."""

    def divisor(self, batch: int) -> float:
        return RECORDS // (1 / RATE) - 1


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


class OwnNoise(Right):
    """Correct, but with a noise source of its own."""

    def noise(self, size: int, rng: np.random.Generator) -> Floats:
        return np.random.default_rng().normal(scale=SIGMA * CLIP, size=size)
