r"""Which sensitivity norms have a theorem, for each law and scheme. Proofs: docs/proofs/checker.md.

The engine has no part in this table: a test asks the engine about every entry that is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from accounting.checker.laws.law import LAWS, REAL_LAWS

__all__ = ["NORMS", "norms_of"]

NORMS: Final = ("absolute", "l1", "l2-squared", "box")

_ONE: Final = ("absolute",)
_APART: Final = ("absolute", "box")
_SUMMED: Final = ("absolute", "l1")

_COVERED: Final[Mapping[str | None, Mapping[str, tuple[str, ...]]]] = {
    None: {
        **dict.fromkeys(LAWS, _APART),
        "discrete-laplace": NORMS,
        "discrete-gaussian": NORMS,
        "gaussian": NORMS,
        "laplace": _SUMMED,
    },
    "poisson": {**dict.fromkeys(LAWS, _ONE), "gaussian": NORMS, "laplace": _SUMMED},
    "poisson-replaced": {"gaussian": NORMS},
    "poisson-group": {"gaussian": NORMS},
    "correlated": {"gaussian": ("absolute", "l2-squared")},
}


def norms_of(law: str, scheme: str | None, amount: int) -> tuple[str, ...]:
    r"""The norms under which a round of ``law`` can be checked; empty if the scheme has no theorem.

    ``scheme`` is None, a kind of sampling, or "correlated". An l1 or l2 norm of 1 moves one
    coordinate of an integer query by 1, as ``absolute`` does; on the reals it can move many.

    >>> norms_of("laplace", None, 1), norms_of("skellam", None, 2), norms_of("skellam", None, 1)
    (('absolute', 'l1'), ('absolute', 'box'), ('absolute', 'l1', 'l2-squared', 'box'))
    """
    found = _COVERED[scheme].get(law, ())
    if scheme is None and amount == 1 and law not in REAL_LAWS:
        return NORMS
    return found
