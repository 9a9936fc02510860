r"""The step that JAX Privacy takes, as :class:`audit.training.dpsgd.TrainingStep`.

Its own Poisson sampling, clipped gradients and Gaussian noise, put together as its guide does; the
gradients are planted through a linear loss. Needs jax-privacy (extra ``bench``).
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from audit.training.step_report import Stated
from dpcore.errors import InvalidParameter

_SEEDS = 1 << 31


class JaxPrivacyStep:
    r"""JAX Privacy's sampler, clipping and noise with the stated parameters.

    Raises :class:`InvalidParameter` without jax-privacy, by the name of the extra.
    """

    def __init__(self, stated: Stated) -> None:
        try:
            self.library = import_module("jax_privacy")
            self.batches = import_module("jax_privacy.batch_selection")
            self.noise = import_module("jax_privacy.noise_addition")
            self.arrays = import_module("jax.numpy")
        except ImportError as error:
            reason = f"needs jax-privacy ({error}): pip install 'dpcore[bench]'"
            raise InvalidParameter("step", "jax-privacy", reason) from None
        self.stated = stated
        self.gradient = self.library.clipped_grad(
            self.arrays.vdot,  # of the weights and a record: its gradient is the record
            l2_clip_norm=float(stated.clip),
            normalize_by=float(stated.expected),
            keep_batch_dim=False,
        )

    def sample(self, rng: np.random.Generator) -> Any:
        if self.stated.sampling == "poisson":
            sampler = self.batches.CyclicPoissonSampling(
                sampling_prob=float(self.stated.rate), iterations=1
            )
        else:
            sampler = self.batches.FixedBatchSampling(
                batch_size=int(self.stated.expected), iterations=1
            )
        (batch,) = sampler.batch_iterator(self.stated.records, rng)
        return batch

    def update(self, gradients: Any, rng: np.random.Generator) -> Any:
        weights = self.arrays.zeros(gradients.shape[1])
        if not len(gradients):  # padded, as its guide does: a zero gradient adds nothing
            gradients = np.zeros((1, gradients.shape[1]))
        total = self.gradient(weights, self.arrays.asarray(gradients))
        privatizer = self.noise.gaussian_privatizer(
            stddev=float(self.stated.noise_multiplier * self.stated.clip / self.stated.expected),
            prng_key=int(rng.integers(_SEEDS)),
        )
        noisy, _ = privatizer.update(total, privatizer.init(weights))
        return np.asarray(noisy, dtype=np.float64)
