r"""Assertions that a mechanism satisfies its claim, for any test suite, and a pytest plugin.

The public names are imported on first use, so that a test suite that loads the plugin but makes no
audits is not slowed down.
"""

from typing import TYPE_CHECKING

from dpcore.lazy_import import lazy_names

if TYPE_CHECKING:
    from audit.targets.check_neighbours import read_pairs
    from audit.targets.target_syntax import Auditable
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


__getattr__ = lazy_names(__name__)
