r"""Assertions that a mechanism satisfies its claim, for any test suite, and a pytest plugin.

The public names are imported on first use, so a suite that loads the plugin without audits is not
slowed down.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from audit.targets.neighbours import read_pairs
    from audit.targets.spelling import Auditable
    from audit.testing.assertions import (
        NothingMeasured,
        Refuted,
        assert_private,
        assert_sensitivity,
    )
    from audit.testing.fits import assert_fits

__all__ = [
    "Auditable",
    "NothingMeasured",
    "Refuted",
    "assert_fits",
    "assert_private",
    "assert_sensitivity",
    "read_pairs",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'audit.testing' has no attribute {name!r}")
    place = {
        "Auditable": "audit.targets.spelling",
        "assert_fits": "audit.testing.fits",
        "read_pairs": "audit.targets.neighbours",
    }.get(name, "audit.testing.assertions")
    return getattr(import_module(place), name)
