r"""How lines look: the colour and the dashes of an algorithm, and spare ones for other names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final, TypeAlias

__all__ = ["LOOKS", "SPARE", "Look", "looks_of"]

Look: TypeAlias = tuple[str, Any]
"""A colour, and dashes as matplotlib takes them."""

LOOKS: Final[dict[str, Look]] = {
    "se": ("#6e6e6e", (0, (1, 1.2))),
    "cdp-se": ("#000000", (0, (4, 2.5))),
    "ldp-se": ("#d55e00", "-"),
    "dist-dp-se": ("#0072b2", "-"),
    "dist-rdp-se": ("#009e73", (0, (7, 1.5))),
    "dist-rdp-se:s=100": ("#56b4e9", (0, (7, 1.5, 1.2, 1.5))),
    "dist-cdp-se": ("#cc79a7", "-"),
    "dp-se": ("#e69f00", (0, (3, 1))),
    "shuffled-se": ("#8c5109", (0, (5, 1.5, 1, 1.5, 1, 1.5))),
    "sdp-ae": ("#009e73", "-"),
    "vb-sdp-ae": ("#cc79a7", (0, (5, 1.5))),
}
"""An algorithm, or a variant of it where it is not there itself, looks so in every picture."""

SPARE: Final[tuple[Look, ...]] = (
    ("#000000", "-"),
    ("#d55e00", (0, (6, 2))),
    ("#0072b2", (0, (2, 1))),
    ("#8c5109", "-"),
    ("#56b4e9", (0, (4, 1, 1, 1))),
    ("#e69f00", "-"),
    ("#6e6e6e", (0, (6, 1.5, 1, 1.5))),
)
"""For other names, by turns in the order in which a picture names them."""


def looks_of(names: Iterable[str]) -> dict[str, Look]:
    r"""A look for each name: its algorithm's, or a spare one where another has that already.

    >>> looks_of(["dp-se", "dp-se, exact radius"])["dp-se"] == LOOKS["dp-se"]
    True
    """
    found: dict[str, Look] = {}
    wanted = dict.fromkeys(names)
    for key in (_algorithm, _first_word):
        for name in wanted:
            look = LOOKS.get(key(name))
            if name not in found and look is not None and look not in found.values():
                found[name] = look
    others = [name for name in wanted if name not in found]
    return found | {name: SPARE[i % len(SPARE)] for i, name in enumerate(others)}


def _algorithm(name: str) -> str:
    # As it is written in a command; s = 10 is what a name without s means.
    return re.sub("[ :]s=", ":s=", name).removesuffix(":s=10")


def _first_word(name: str) -> str:
    return (name.split() or [""])[0].rstrip(",").partition(":")[0]
