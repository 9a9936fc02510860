r"""Targets of sibling packages, found by the entry point that names them.

``bandit:dist-dp-se,epsilon=1`` is asked of the entry point ``bandit`` in the group
``dpcore.targets``: a callable of (spelling, rest, seeded) that answers with plain data: ``run``, a
callable f(dataset, n, rng), ``pair``, ``epsilon``, ``delta`` and ``features``. So audit reaches a
sibling and imports none.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Final

from audit.catalogue import Subject
from audit.targets.target import Catalogued

__all__ = ["GROUP", "provided"]

GROUP: Final = "dpcore.targets"
r"""The group of entry points."""


def provided(spelling: str, name: str, rest: str, *, seeded: bool) -> Catalogued | None:
    r"""The target with its own pair, claim and features; None where nobody provides the name.

    >>> provided("nobody:at home", "nobody", "at home", seeded=True) is None
    True
    """
    for entry in entry_points(group=GROUP, name=name):
        found = entry.load()(spelling, rest, seeded)
        subject = Subject(
            name=spelling,
            run=found.run,
            pair=found.pair,
            epsilon=found.epsilon,
            delta=found.delta,
            features=found.features,
        )
        return Catalogued(spelling=spelling, function=found.run, subject=subject, seeded=seeded)
    return None
