r"""The training steps of Opacus and JAX Privacy, as a ``TrainingStep`` of ``check_dpsgd_step``.

The Opacus step trains a linear model, made private by ``PrivacyEngine`` with default settings. In
both steps the gradient of a record is the record itself, so the audit chooses a gradient by passing
it as a record. Each step needs its library (extra ``opacus`` or ``bench``).
"""

from __future__ import annotations

import math
import warnings
from fractions import Fraction
from importlib import import_module
from typing import Any

import numpy as np

from audit.training.step_report import Stated
from dpcore.errors import InvalidParameter

_SEEDS = 1 << 31


class OpacusStep:
    r"""A training step of the Opacus ``PrivacyEngine``, with the stated parameters.

    A user of Opacus states a batch size, and the engine samples each record with probability
    1/(number of batches). ``rate`` must equal this probability for batches of size ceil(rate x
    records). If ``sampling`` is "fixed", the data loader has ``poisson_sampling=False``.

    Raises :class:`InvalidParameter` if ``rate`` differs, or if Opacus is not installed (the message
    names the extra).
    """

    def __init__(self, stated: Stated) -> None:
        try:
            self.torch = import_module("torch")
            self.data = import_module("torch.utils.data")
            self.library = import_module("opacus")
        except ImportError as error:
            reason = f"needs opacus ({error}): pip install 'dpcore[opacus]'"
            raise InvalidParameter("step", "opacus", reason) from None
        self.stated, self.size = stated, math.ceil(stated.expected)
        batches = math.ceil(Fraction(stated.records, self.size))
        if stated.rate * batches != 1:
            reason = (
                f"must be 1/{batches} for batches of {self.size:,}: Opacus samples at one over the "
                "number of batches"
            )
            raise InvalidParameter("rate", stated.rate, reason)
        self.batches, self.noise = self.torch.Generator(), self.torch.Generator()
        self.epoch: Any = iter(())
        self._train(1)

    def _train(self, dimension: int) -> None:
        # Set up a private training of a linear model with ``dimension`` weights.
        self.weights = self.torch.nn.Linear(dimension, 1, bias=False)
        poisson = self.stated.sampling == "poisson"
        loader = self.data.DataLoader(
            self.data.TensorDataset(self.torch.empty(self.stated.records, 0)),
            batch_size=self.size,
            shuffle=not poisson,
            generator=self.batches,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the generator is not secure
            self.model, self.optimizer, self.loader = self.library.PrivacyEngine().make_private(
                module=self.weights,
                optimizer=self.torch.optim.SGD(self.weights.parameters(), lr=1.0),
                data_loader=loader,
                noise_multiplier=float(self.stated.noise_multiplier),
                max_grad_norm=float(self.stated.clip),
                poisson_sampling=poisson,
                noise_generator=self.noise,
            )

    def sample(self, rng: np.random.Generator) -> Any:
        batch = next(self.epoch, None)
        if batch is None:
            self.batches.manual_seed(int(rng.integers(_SEEDS)))
            self.epoch = iter(self.loader.batch_sampler)
            batch = next(self.epoch)
        return np.asarray(batch)

    def update(self, gradients: Any, rng: np.random.Generator) -> Any:
        dimension = gradients.shape[1]
        if self.weights.in_features != dimension:
            self._train(dimension)
        self.noise.manual_seed(int(rng.integers(_SEEDS)))
        self.optimizer.zero_grad()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch: no input has a gradient
            given = self.torch.as_tensor(gradients, dtype=self.torch.float32)
            self.model(given).mean().backward()
        self.optimizer.step()
        return np.asarray(self.weights.weight.grad)[0]


class JaxPrivacyStep:
    r"""A training step that uses the sampler, clipping and noise of JAX Privacy as stated.

    Raises :class:`InvalidParameter` if JAX Privacy is not installed (the message names the extra).
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
            self.arrays.vdot,  # the gradient of vdot(weights, record) is the record
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
        if not len(gradients):  # padded, as in JAX Privacy's guide
            gradients = np.zeros((1, gradients.shape[1]))
        total = self.gradient(weights, self.arrays.asarray(gradients))
        privatizer = self.noise.gaussian_privatizer(
            stddev=float(self.stated.noise_multiplier * self.stated.clip / self.stated.expected),
            prng_key=int(rng.integers(_SEEDS)),
        )
        noisy, _ = privatizer.update(total, privatizer.init(weights))
        return np.asarray(noisy, dtype=np.float64)
