"""A numpy stand-in for the parts of torch and Opacus that the step check uses."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.support.audit.training_steps import CLIP, Right


class Generator:
    """A random generator, seeded by an integer."""

    def manual_seed(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)


class Linear:
    """A linear model without a bias: the gradient of a record is the record."""

    def __init__(self, size: int, out: int, *, bias: bool) -> None:
        assert (out, bias) == (1, False)
        self.in_features = size
        self.weight = SimpleNamespace(grad=None)

    def parameters(self) -> Any:
        return iter([self.weight])

    def __call__(self, given: Any) -> Any:
        self.given = given
        return self

    def mean(self) -> Any:
        return self

    def backward(self) -> None:
        self.gradients = self.given


class Loader:
    """A loader of batches of one size, shuffled or not."""

    def __init__(self, dataset: Any, *, batch_size: int, shuffle: bool, generator: Any) -> None:
        self.dataset, self.size, self.shuffle = dataset, batch_size, shuffle
        self.generator = generator

    def __len__(self) -> int:
        return math.ceil(len(self.dataset) / self.size)

    @property
    def batch_sampler(self) -> Any:
        order = list(range(len(self.dataset)))
        if self.shuffle:
            self.generator.rng.shuffle(order)
        for start in range(0, len(order), self.size):
            yield order[start : start + self.size]


class Poisson:
    """The batches of a private loader: each record is sampled independently."""

    def __init__(self, loader: Loader, rate: float) -> None:
        self.loader, self.rate = loader, rate

    @property
    def batch_sampler(self) -> Any:
        for _ in range(len(self.loader)):
            coins = self.loader.generator.rng.random(len(self.loader.dataset))
            yield np.flatnonzero(coins < self.rate).tolist()


class Optimizer:
    """Clips, adds noise and divides."""

    def __init__(self, engine: Engine, model: Linear, given: dict[str, Any]) -> None:
        self.engine, self.model, self.given = engine, model, given

    def zero_grad(self) -> None:
        self.model.weight.grad = None

    def step(self) -> None:
        assert self.model.weight.grad is None
        gradients, clip = self.model.gradients, self.given["max_grad_norm"]
        assert clip == CLIP
        total = Right().clipped(self.engine.finite(gradients)).sum(axis=0)
        deviation = self.given["noise_multiplier"] * clip
        noise = self.given["noise_generator"].rng.normal(scale=deviation, size=total.shape)
        expected = self.engine.expected(self.given["data_loader"])
        self.model.weight.grad = ((total + noise) / expected)[None]


class Engine:
    """The correct engine, which makes a training loop private."""

    def make_private(self, **given: Any) -> Any:
        loader, model = given["data_loader"], given["module"]
        assert given["optimizer"] == ("SGD", model.weight)
        made = Poisson(loader, self.rate(loader)) if given["poisson_sampling"] else loader
        return model, Optimizer(self, model, given), made

    def rate(self, loader: Loader) -> float:
        return 1 / len(loader)

    def finite(self, gradients: Any) -> Any:
        return Right().finite(gradients)

    def expected(self, loader: Loader) -> float:
        return len(loader.dataset) / len(loader)


class NotFinite(Engine):
    """Broken: clips inf and nan to nan, as Opacus does."""

    def finite(self, gradients: Any) -> Any:
        return gradients


class Floored(Engine):
    """Broken: divides by a whole number of records."""

    def expected(self, loader: Loader) -> float:
        return int(super().expected(loader))


class OftenerThanCharged(Engine):
    """Broken: samples at the rate of one batch fewer."""

    def rate(self, loader: Loader) -> float:
        return 1 / (len(loader) - 1)


def modules(engine: type[Engine]) -> dict[str, Any]:
    """The modules that the step imports, by name."""
    return {
        "torch": SimpleNamespace(
            Generator=Generator,
            as_tensor=np.asarray,
            empty=lambda records, columns: range(records),
            float32=np.float32,
            nn=SimpleNamespace(Linear=Linear),
            optim=SimpleNamespace(SGD=lambda weights, lr: ("SGD", *weights)),
        ),
        "torch.utils.data": SimpleNamespace(DataLoader=Loader, TensorDataset=lambda rows: rows),
        "opacus": SimpleNamespace(PrivacyEngine=engine),
    }
