r"""Tests of integration examples: against stubs of the other packages, and against them nightly.

A stub of a package that is not installed has the names that the example uses, according to the
package's documentation.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from importlib import import_module, util
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import accounting
from accounting import Ledger, Pure
from accounting.ledger import BudgetExhausted
from dpcore.mechanism import Relation, Scope, Unit

EXAMPLES = Path(__file__).parents[1] / "examples"
USER = Scope(unit=Unit.USER, relation=Relation.ADD_REMOVE)


def example(patch: pytest.MonkeyPatch, name: str, **stand_ins: Mapping[str, object]) -> Any:
    for package, members in stand_ins.items():
        parts = package.split("__")
        for end in range(1, len(parts) + 1):
            module = ModuleType(".".join(parts[:end]))
            patch.setitem(sys.modules, module.__name__, module)
        for key, value in members.items():
            setattr(module, key, value)
    spec = util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def budget(folder: Path, epsilon: str) -> Iterator[Ledger]:
    with Ledger.create(str(folder / "ledger.db"), budget=Pure(epsilon, scope=USER)) as ledger:
        yield ledger


or_itself = pytest.mark.parametrize(
    "itself", [False, pytest.param(True, marks=pytest.mark.nightly)], ids=["stub", "itself"]
)


class IAccountant:
    """Opacus' base class of accountants, as far as an engine uses it."""


@or_itself
def test_opacus_reports_the_proven_epsilon(itself: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    known: dict[str, type] = {}
    if itself:
        pytest.importorskip("opacus", reason="the extra opacus is not installed")
        example(monkeypatch, "opacus_accountant")
        accountant = import_module("opacus.accountants").create_accountant("dpcore")
    else:
        names = {"IAccountant": IAccountant, "register_accountant": known.__setitem__}
        module = example(monkeypatch, "opacus_accountant", opacus__accountants=names)
        assert known == {"dpcore": module.ProvenAccountant}
        assert module.ProvenAccountant.mechanism() == "dpcore"
        accountant = known["dpcore"]()
    assert accountant.get_epsilon(delta=1e-5) == 0
    for noise, rate in [(1.1, 0.01)] * 3 + [(2.0, 0.01)] * 2 + [(2.0, 1.0)]:
        accountant.step(noise_multiplier=noise, sample_rate=rate)
    assert accountant.history == [(1.1, 0.01, 3), (2.0, 0.01, 2), (2.0, 1.0, 1)]
    assert len(accountant) == 6
    found = accountant.get_epsilon(delta=1e-5)
    # A composition costs at least its largest part (full batches with noise 2, in closed form), and
    # at most the sum of its parts at a part of delta each.
    alone = accounting.compose((accounting.Description(noise=accounting.Gaussian(sigma=2)), 1))
    assert alone.epsilon(1e-5).upper_float < found < 3
    accountant.step(noise_multiplier=0.5, sample_rate=0.01)
    assert accountant.get_epsilon(delta=1e-5) > found


def message(node: int) -> Any:
    return SimpleNamespace(metadata=SimpleNamespace(dst_node_id=node))


class Rounds:
    """A strategy that selects two clients in every round."""

    def configure_train(self, *_: object) -> Iterable[Any]:
        return [message(1), message(2)]


@or_itself
def test_a_flower_strategy_stops_when_the_budget_is_spent(
    itself: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if itself:
        pytest.importorskip("flwr", reason="flwr is not installed")
    names = {} if itself else {"flwr__serverapp__strategy": {"Strategy": object}}
    module = example(monkeypatch, "flower_ledger", **names)
    with budget(tmp_path, "9/4") as ledger:
        strategy = module.ChargedStrategy(Rounds(), ledger=ledger, cost=Pure(1, scope=USER))
        rounds = [len(strategy.configure_train(i, None, None, None)) for i in range(1, 5)]
        assert rounds == [2, 2, 0, 0]
        assert ledger.remaining("node-1") == {"epsilon": Fraction(1, 4)}
        assert "node-1" in str(strategy.stopped)


def test_opendp_draws_nothing_without_a_charge(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("opendp", reason="the extra peers is not installed")
    module = example(monkeypatch, "opendp_ledger")
    dp = module.dp
    dp.enable_features("contrib")
    space = dp.atom_domain(T=int), dp.absolute_distance(T=int)
    count = dp.m.make_laplace(*space, scale=2.0)
    with budget(tmp_path, "1") as ledger:
        for day in "ab":
            released = module.release(ledger, count, 42, users=["ada"], batch=day)
            assert abs(released - 42) < 200  # beyond 200 with probability e^-79
        seen = SimpleNamespace(output_measure=count.output_measure, map=count.map)
        with pytest.raises(BudgetExhausted):  # the call itself is refused
            module.release(ledger, seen, 42, users=["ada"], batch="c")
        assert ledger.remaining("ada") == {"epsilon": 0}


def event_of_plan() -> Any:
    events = pytest.importorskip("dp_accounting", reason="the extra interop is not installed")
    step = events.PoissonSampledDpEvent(0.01, events.GaussianDpEvent(1.1))
    return SimpleNamespace(dp_event=events.SelfComposedDpEvent(step, 100))


def test_the_epsilon_of_a_jax_privacy_plan_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    module = example(monkeypatch, "jax_privacy_plan")
    plan = event_of_plan()
    run = accounting.dpsgd(
        noise_multiplier="1.1", batch_size=1, examples=100, rounds=100, delta=1e-5
    )
    assert module.check(plan, delta=1e-5, epsilon=run.upper_float * 1.001).upper == run.upper
    with pytest.raises(AssertionError, match="is not proven"):
        module.check(plan, delta=1e-5, epsilon=run.upper_float * 0.999)


@pytest.mark.nightly
def test_a_plan_of_jax_privacy_itself_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    plans = pytest.importorskip(
        "jax_privacy.experimental.execution_plan", reason="the extra bench is not installed"
    )
    module = example(monkeypatch, "jax_privacy_plan")
    config = plans.BandMFExecutionPlanConfig.default(
        num_bands=1,
        iterations=100,
        epsilon=None,
        delta=None,
        noise_multiplier=1.1,
        sampling_prob=0.01,
    )
    found = module.bounds(config.plan, 1e-5)
    assert module.bounds(event_of_plan(), 1e-5).upper == found.upper
