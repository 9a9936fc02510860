r"""A program that runs other auditors on given outputs, in their own interpreters.

It reads one JSON document from standard input and writes one to standard output. It does not import
dpcore, so that the environment of an auditor need not contain it. A question names a file with the
outputs on each dataset, one per row; ``marks`` are the values that stand for words. A bound is on
epsilon, or on delta at the claimed epsilon.

    {"peer": "dp_sniper", "alpha": 0.05, "seed": 1,
     "questions": [{"file": "0.npz", "epsilon": 1.0, "delta": 0.0, "marks": [], ...}, ...]}
    {"version": "0.1.0", "answers": [{"epsilon_lower": 0.9}, ...], "seconds": [1.5, ...]}
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
import time
from importlib import import_module
from importlib.metadata import version
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np


class Kept:
    r"""A mechanism that returns outputs drawn beforehand, each once."""

    def __init__(self, *sides: Any) -> None:
        self.left = [*sides]

    def m(self, side: int, n_samples: int) -> Any:
        taken, self.left[side] = np.split(self.left[side], [n_samples])
        return taken


def jax_privacy(asked: dict[str, Any], a: Any, b: Any) -> dict[str, float]:
    r"""The Clopper-Pearson bounds of jax_privacy, with its three methods of choosing a threshold.

    ``ask`` selects "each" method for large scores, at the whole level, or the Gaussian-DP bound.
    """
    auditing, seed = import_module("jax_privacy.auditing"), asked["seed"]
    ask, alpha, delta = asked.get("ask"), asked["alpha"], asked["delta"]
    large, small = (auditing.CanaryScoreAuditor(x * b[:, 0], x * a[:, 0]) for x in (1, -1))
    if ask == "gdp":
        return {"gdp": float(large.epsilon_from_gdp(alpha, delta))}
    ways = {
        "bonferroni": auditing.Bonferroni(),
        "split": auditing.Split(seed=seed),
        "split_a_tenth": auditing.Split(threshold_estimation_frac=0.1, seed=seed),
    }

    def bound(auditor: Any, way: str, level: float) -> float:
        strategy = {"one_sided": False, "threshold_strategy": ways[way]}
        return float(auditor.epsilon_clopper_pearson(level, delta, **strategy))

    if ask == "each":
        return {way: bound(large, way, alpha) for way in ways}
    found = [bound(auditor, way, alpha / 6) for auditor in (large, small) for way in ways]
    return {"epsilon_lower": max(found)}


def dp_sniper(asked: dict[str, Any], a: Any, b: Any) -> dict[str, float]:
    r"""The bound of DP-Sniper; the classifiers and the orders of the datasets share the level.

    As in the authors' code, equal numbers of runs are used for training, the threshold and the
    estimate. There are fewer than their 107 batches, which are repeated, so that the classifier
    makes the same number of steps. ``ordered`` uses only the given order, so that the first dataset
    needs no runs for a threshold.
    """
    factories = import_module("dpsniper.classifiers.classifier_factory")
    optimizers = import_module("dpsniper.classifiers.torch_optimizer_factory")
    features = import_module("dpsniper.classifiers.feature_transformer")
    sniper = import_module("dpsniper.attack.dpsniper")
    estimators = import_module("dpsniper.probability.estimators")
    config = import_module("dpsniper.search.ddconfig").DDConfig
    # The log of every step is discarded.
    network: Any = import_module("dpsniper.classifiers.multi_layer_perceptron")
    network.SummaryWriter = lambda **_: SimpleNamespace(add_scalar=lambda *_: 0, close=lambda: 0)
    sgd, adam = optimizers.SGDOptimizerFactory(), optimizers.AdamOptimizerFactory()
    classifiers = {
        "logistic": (factories.LogisticRegressionFactory, sgd, 0.001),
        "network": (factories.MultiLayerPerceptronFactory, adam, 0.0001),
    }
    names, ordered = asked.get("classifiers", [*classifiers]), asked.get("ordered", False)
    n = min(len(a) // (2 if ordered else 3), len(b) // 3)
    n -= n % 1000 if n >= 10_000 else 0
    batch = min(n, 10_000)
    flags = features.FlagsFeatureTransformer(asked["marks"]) if asked["marks"] else None
    level = asked["alpha"] / len(names) / (1 if ordered else 2)
    chosen = config(n_train=n, n=n, n_check=n, training_batch_size=batch, confidence=1 - level)
    found = []
    with tempfile.TemporaryDirectory() as folder:
        import_module("dpsniper.utils.paths").set_output_directory(folder)
        import_module("dpsniper.utils.torch").torch_initialize(torch_threads=1)
        import_module("torch").manual_seed(asked["seed"])
        for first, second in ((0, 1),) if ordered else ((0, 1), (1, 0)):
            for name in names:
                factory, optimizer, weight = classifiers[name]
                classifier = factory(
                    in_dimensions=a.shape[1] * (1 + len(asked["marks"])),
                    optimizer_factory=optimizer,
                    feature_transform=flags,
                    regularization_weight=weight,
                    epochs=math.ceil(1070 / math.ceil(n / batch)),
                )
                kept = Kept(a, b)
                attack = sniper.DPSniper(kept, classifier, chosen).best_attack(first, second)
                rates = estimators.PrEstimator(kept, n, chosen)
                estimate = estimators.EpsEstimator(rates)
                found.append(estimate.compute_eps_estimate(first, second, attack)[1])
    return {"epsilon_lower": max(0.0, *map(float, found))}


def dp_auditorium(asked: dict[str, Any], a: Any, b: Any) -> dict[str, float]:
    r"""The hockey-stick tester of DP-Auditorium's example; both directions share the level.

    Outputs are scaled by the training half. If there are fewer runs, they are repeated, so that the
    network makes the same number of steps as in the example.
    """
    # Import the modules without their packages, which import generators and TensorFlow Probability.
    for name in ("dp_auditorium", "dp_auditorium.testers"):
        bare = ModuleType(name)
        bare.__path__ = [f"{place}/{name.replace('.', '/')}" for place in sys.path]
        sys.modules.setdefault(name, bare)
    tester = import_module("dp_auditorium.testers.hockey_stick_tester")
    configs = import_module("dp_auditorium.configs.property_tester_config")
    properties = import_module("dp_auditorium.configs.privacy_property")
    import_module("tensorflow").keras.utils.set_random_seed(asked["seed"])
    half = np.concatenate([side[: len(side) // 2] for side in (a, b)])
    a, b = (np.tanh((side - half.mean(0)) / (half.std(0) + 1e-300)) for side in (a, b))
    training = tester.make_default_hs_training_config()
    training.training_epochs = max(2, math.ceil(100 / math.ceil(len(half) / 2 / 100)))
    # The tester does not accept epsilon = 0; a claim at 0 also holds at any larger epsilon.
    claim = properties.ApproximateDp(epsilon=max(asked["epsilon"], 1e-9), delta=asked["delta"])
    config = configs.HockeyStickPropertyTesterConfig(training_config=training, approximate_dp=claim)
    found = [
        tester.HockeyStickPropertyTester(
            config=config, base_model=tester.make_default_hs_base_model()
        ).estimate_lower_bound(*sides, asked["alpha"] / 2)
        for sides in ((a, b), (b, a))
    ]
    return {"delta_lower": max(0.0, *map(float, found))}


def dp_recorder(asked: dict[str, Any], a: Any, b: Any) -> dict[str, float]:
    r"""The audit by samples of DP-Recorder, with the whole release as the recorded primitive."""
    recorder = import_module("dp_recorder.auditing.audit_primitives")
    kept = Kept(a, b)

    @recorder.audit_spec(  # type: ignore[untyped-decorator] # it is not installed here
        kind="release", input_arg="side", sensitivity_arg="moves", metric_fn=lambda *_: 0.0
    )
    def release(side: int, moves: float) -> Any:
        del moves
        return kept.m(side, 1)[0]

    auditor = recorder.Auditor()
    with auditor:
        release(side=0, moves=1.0)
    auditor.set_replay()
    with auditor:
        release(side=1, moves=1.0)
    # Recording used one output on the first dataset.
    auditor.run_distributional_audit(2 * min(len(a) - 1, len(b)), alpha=asked["alpha"])
    return {"epsilon_lower": float(auditor.log[0].empirical_epsilon_lb)}


ASKS = {
    "jax-privacy": jax_privacy,
    "dpsniper": dp_sniper,
    "dp-auditorium": dp_auditorium,
    "dp-recorder": dp_recorder,
}
r"""The functions by the names of the distributions."""


def main() -> None:
    out, sys.stdout = sys.stdout, sys.stderr
    asked = json.load(sys.stdin)
    found: dict[str, Any] = {"version": version(asked["peer"]), "answers": [], "seconds": []}
    for question in asked.pop("questions"):
        sides, begun = np.load(question["file"]), time.perf_counter()
        answer = ASKS[asked["peer"]]({**asked, **question}, sides["a"], sides["b"])
        found["answers"].append(answer)
        found["seconds"].append(round(time.perf_counter() - begun, 2))
    json.dump(found, out)


if __name__ == "__main__":
    main()
