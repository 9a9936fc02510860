"""What a policy sees: released sums, and nothing that an environment or a user holds."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import FrozenInstanceError
from fractions import Fraction
from pathlib import Path

import pytest

from bandits.batch import Commit, Pulls, Released, ReleasedSum, confidence_of
from bandits.policies.elimination import BatchedElimination
from bandits.policies.policy import Policy
from bandits.privatizers.privatizer import Unprotected
from dpcore.errors import InvalidParameter

ROOT = Path(__file__).parents[3]

HEAD = '''
from __future__ import annotations

from fractions import Fraction
from typing import Any

from bandits.worlds.environment import Bernoulli, Environment
from bandits.play import play
from bandits.policies.policy import Choice, Policy
from bandits.batch import Commit, Pulls, Released
from bandits.privatizers.privatizer import Privatizer, Unprotected


class Sums(Policy[tuple[Fraction, ...]]):
    """Keeps what is released."""

    @property
    def name(self) -> str:
        return "sums"

    @property
    def privatizer(self) -> Privatizer:
        return Unprotected()

    def init(self, arms: int, horizon: int) -> tuple[Fraction, ...]:
        return (Fraction(0),) * arms

    def choose(self, state: tuple[Fraction, ...]) -> Choice:
        return Pulls((1,) * len(state))

    def sizes(self, arms: int, horizon: int) -> tuple[int, ...]:
        return (1,)
'''

GOOD = """
    def observe(
        self, state: tuple[Fraction, ...], released: Released
    ) -> tuple[Fraction, ...]:
        return tuple(a + (b or 0) for a, b in zip(state, released.sums))
"""

PEEKS = {
    "it asks to be told the rewards": (
        """
    def observe(
        self, state: tuple[Fraction, ...], rewards: list[float]
    ) -> tuple[Fraction, ...]:
        return tuple(Fraction(reward) for reward in rewards)
""",
        "incompatible with supertype",
    ),
    "it asks for the world": (
        """
    def observe(
        self, state: tuple[Fraction, ...], released: Released, environment: Environment
    ) -> tuple[Fraction, ...]:
        return state
""",
        "incompatible with supertype",
    ),
    "it looks for rewards in what is released": (
        """
    def observe(
        self, state: tuple[Fraction, ...], released: Released
    ) -> tuple[Fraction, ...]:
        return tuple(map(Fraction, released.rewards))
""",
        'has no attribute "rewards"',
    ),
    "it makes what is released itself": (
        GOOD
        + """

    def shortcut(self, rewards: list[Fraction]) -> Released:
        return Released(tuple(rewards))
""",
        "incompatible type",
    ),
    "it hands an encoded sum over as released": (
        GOOD
        + """

    def shortcut(self, encoded_sum: int) -> Released:
        return Released((encoded_sum,))
""",
        "incompatible type",
    ),
}


def complaints(folder: Path, texts: dict[str, str]) -> dict[str, str]:
    # Only the two modules that define the contract are read: the others would add a minute.
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text)
    files = ("batch.py", "policies/policy.py", "worlds/environment.py")
    contract = [str(ROOT / "bandits" / name) for name in files]
    words = ["--strict", "--follow-imports=skip", "--explicit-package-bases", "--config-file="]
    run = subprocess.run(
        [sys.executable, "-m", "mypy", *words, *(f"{name}.py" for name in texts), *contract],
        cwd=folder,
        env={"PATH": "", "MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 1, run.stdout + run.stderr
    errors = [line for line in run.stdout.splitlines() if ": error:" in line]
    return {
        name: "\n".join(line for line in errors if line.startswith(f"{name}.py:")) for name in texts
    }


@pytest.mark.nightly
def test_a_policy_that_peeks_at_a_reward_is_refused_by_the_types(tmp_path: Path) -> None:
    texts = {f"peek_{number}": HEAD + body for number, (body, _) in enumerate(PEEKS.values())}
    found = complaints(tmp_path, {"good": HEAD + GOOD, **texts})
    assert found["good"] == ""
    for number, (why, (_, complaint)) in enumerate(PEEKS.items()):
        assert complaint in found[f"peek_{number}"], (why, found[f"peek_{number}"])


def test_what_is_released_is_exact_or_refused() -> None:
    assert Released((ReleasedSum(Fraction(1, 2)), None)).sums == (Fraction(1, 2), None)
    for raw in ((0.5,), (1,), [ReleasedSum(Fraction(1))], None):
        with pytest.raises(InvalidParameter, match="sums"):
            Released(raw)  # type: ignore[arg-type]  # what is refused


def test_a_sum_that_no_privatizer_released_does_not_type_check() -> None:
    # mypy refuses this line too: an ignore that it does not need would be an error.
    released = Released((Fraction(1),))  # type: ignore[arg-type]  # what is refused
    assert released.sums == (Fraction(1),)


def test_nobody_changes_a_state_or_a_choice() -> None:
    state = BatchedElimination(privatizer=Unprotected()).init(3, 100)
    with pytest.raises(FrozenInstanceError):
        state.batch = 2  # type: ignore[misc]  # what is refused
    with pytest.raises(FrozenInstanceError):
        Pulls((1, 1)).counts = (2, 2)  # type: ignore[misc]  # what is refused
    assert hash(state) == hash(BatchedElimination(privatizer=Unprotected()).init(3, 100))


@pytest.mark.parametrize("counts", [(), (0, 0), (-1, 2), (1.0, 2), [1, 2], (True, 1)])
def test_counts_that_are_no_batch_are_refused(counts: object) -> None:
    with pytest.raises(InvalidParameter, match="counts"):
        Pulls(counts)  # type: ignore[arg-type]  # what is refused


@pytest.mark.parametrize("value", [0, 1, -0.1, "nan", None, "0.95", 0.5])
def test_a_confidence_is_a_probability(value: object) -> None:
    with pytest.raises(InvalidParameter, match="confidence"):
        confidence_of(value)  # type: ignore[arg-type]  # what is refused


def test_an_arm_to_commit_to_is_an_index() -> None:
    with pytest.raises(InvalidParameter, match="arm"):
        Commit(-1)


def test_a_policy_must_say_everything() -> None:
    with pytest.raises(TypeError, match="abstract"):
        Policy()  # type: ignore[abstract]  # what is refused
