"""Targets that a sibling package provides by an entry point."""

from __future__ import annotations

from fractions import Fraction
from importlib.metadata import entry_points

import pytest

from audit.targets.spelling import GROUP, provided, read_target
from audit.targets.target import Catalogued
from dpcore.errors import InvalidParameter
from tests.support.audit.command import ALPHA, Shell

pytestmark = pytest.mark.skipif(
    not entry_points(group=GROUP, name="bandit"), reason="dpcore is not installed: pip install -e ."
)


def test_a_bandit_is_a_target_with_its_claim_and_pair(audit: Shell) -> None:
    target = read_target("bandit:dist-dp-se,epsilon=1/2")
    assert isinstance(target, Catalogued)
    assert (target.subject.pair, target.subject.epsilon) == ((0, 1), Fraction(1, 2))
    found = audit("bandit:dist-dp-se,epsilon=1/2", "-n", 500, "--seed", 7, "--alpha", ALPHA)
    assert found.code == 0, found.err
    assert "bandit:dist-dp-se,epsilon=1/2 on epsilon=0.5" in found.out
    # The same view refutes a smaller claim than the noise was made for.
    tight = ("bandit:dist-dp-se,epsilon=4", "--claim", "epsilon=1", "-n", 1000, "--seed", 7)
    assert audit(*tight).code == 1


def test_what_nobody_provides_is_looked_for_as_a_module() -> None:
    assert provided("json:dumps", "json", "dumps", seeded=True) is None
    with pytest.raises(InvalidParameter, match="no module named nobody_here"):
        read_target("nobody_here:at_home")
    with pytest.raises(InvalidParameter, match="no-such-algorithm"):
        read_target("bandit:no-such-algorithm,epsilon=1")
