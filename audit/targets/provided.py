r"""Targets of sibling packages, found by the entry point that names them.

``bandit:dist-dp-se,epsilon=1`` is asked of the entry point ``bandit`` in the group
``dpcore.targets``: a callable of (spelling, rest, seeded) that answers with plain data: ``run``, a
callable f(dataset, n, rng), ``pair``, ``epsilon``, ``delta`` and ``features``. So audit reaches a
sibling and imports none.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from importlib.metadata import entry_points
from typing import Any, Final, Protocol, runtime_checkable

from audit.catalogue import Subject
from audit.targets.target import Catalogued

GROUP: Final = "dpcore.targets"
r"""The group of entry points."""


@runtime_checkable
class Provided(Protocol):
    r"""What an entry point answers with, and ``bandits.audit_view``: see the module."""

    @property
    def run(self) -> Callable[..., Any]:
        r"""f(dataset, n, rng), n outputs along the first axis."""

    @property
    def pair(self) -> tuple[Any, Any]:
        r"""Two neighbouring datasets."""

    @property
    def epsilon(self) -> Fraction:
        r"""What is claimed."""

    @property
    def delta(self) -> Fraction:
        r"""The delta of the claim."""

    @property
    def features(self) -> tuple[str, ...]:
        r"""What to look at in an output, as ``--feature`` spells it."""


def provided(spelling: str, name: str, rest: str, *, seeded: bool) -> Catalogued | None:
    r"""The target with its own pair, claim and features; None where nobody provides the name.

    >>> provided("nobody:at home", "nobody", "at home", seeded=True) is None
    True
    """
    for entry in entry_points(group=GROUP, name=name):
        return provided_as(spelling, entry.load()(spelling, rest, seeded), seeded=seeded)
    return None


def provided_as(spelling: str, found: Provided, *, seeded: bool = True) -> Catalogued:
    r"""A target from its parts."""
    subject = Subject(
        name=spelling,
        run=found.run,
        pair=found.pair,
        epsilon=found.epsilon,
        delta=found.delta,
        features=found.features,
    )
    return Catalogued(spelling=spelling, function=found.run, subject=subject, seeded=seeded)
