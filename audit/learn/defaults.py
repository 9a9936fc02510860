r"""What an audit looks at where nobody says so: the features for outputs like the first ones.

Numbers that come again, and labels, are tested as they are: nothing is gained by more. Floats that
hardly come twice are also read by their precision, which reveals noise that was added in floating
point, and where they lie in steps, by what remains after whole ones. Vectors and records are read
by their best coordinate, by a learned score, and, up to 64 coordinates, by their grids; the outputs
themselves keep a share, a large one where they come again. Decided by a training block, of which
nothing is tested.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

import numpy as np

from audit.learn.columns import MOST_WIDE
from audit.learn.lattice import step_of
from audit.learn.table import Table, table_of
from audit.outputs.features.maps import each
from audit.outputs.form import Outputs
from audit.outputs.identity import identity

__all__ = ["Share", "default_family"]

_OFTEN: Final = Fraction(3, 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    r"""A feature by name, and its share of the false-alarm level."""

    feature: str
    share: Fraction


def _shares(**parts: int) -> tuple[Share, ...]:
    return tuple(
        Share(feature=name.replace("_", "-"), share=Fraction(part, 100))
        for name, part in parts.items()
    )


_FLOATS: Final = _shares(identity=80, precision=20)
_STEPS: Final = _shares(identity=80, precision=10, modulo=10)
_REPEATED: Final = _shares(identity=60, coordinates=10, learned=30)
_VECTORS: Final = _shares(identity=5, coordinates=25, learned=70)
_FLOAT_VECTORS: Final = _shares(identity=5, coordinates=25, learned=50, grid=20)


def default_family(outputs: Outputs) -> tuple[Share, ...]:
    r"""The features for outputs like these, with shares that sum to 1; none: the outputs alone.

    >>> [each.feature for each in default_family([(0.1, 0.2), (0.3, 0.1)])]
    ['identity', 'coordinates', 'learned', 'grid']
    >>> default_family([3, 4, 3]), default_family(["a", "b"])
    ((), ())
    """
    if not len(outputs):
        return ()
    values = each(outputs)
    if len(set(map(identity, values))) == 1:
        return ()
    sequences = sum(map(_is_sequence, values))
    if 2 * sequences >= len(values):
        return _of_vectors(values, table_of(outputs))
    # A number that is cut off at a bound may be an int among floats.
    fine = sum(isinstance(value, float | np.floating) and _is_fine(value) for value in values)
    if not sequences and 2 * fine > len(values) and _hardly_repeat(values):
        return _of_floats(values)
    return ()


def _of_floats(values: Sequence[object]) -> tuple[Share, ...]:
    step = step_of([float(value) for value in values if isinstance(value, float | np.floating)])
    if step is None:
        return _FLOATS
    return (*_STEPS[:-1], replace(_STEPS[-1], feature=f"modulo:{step!r}"))


def _of_vectors(values: Sequence[object], table: Table) -> tuple[Share, ...]:
    numbers = table.codes == 0
    again = [len(np.unique(column)) < _OFTEN * len(column) for column in table.codes.T]
    if not numbers.any() and not any(again):
        return ()
    if not _hardly_repeat(values):
        return _REPEATED
    known = table.numbers[numbers]
    fine = known[known != np.rint(known)]  # among flags there may be few of them
    gridded = table.width <= MOST_WIDE and 4 * len(fine) > len(values)
    return _FLOAT_VECTORS if gridded else _VECTORS


def _is_fine(value: float | np.floating) -> bool:
    return bool(np.isfinite(value)) and value != np.rint(value)


def _is_sequence(value: object) -> bool:
    if isinstance(value, np.ndarray):
        return value.ndim > 0 and value.size > 1
    return isinstance(value, list | tuple | dict) and len(value) > 1


def _hardly_repeat(values: Sequence[object]) -> bool:
    return len(set(map(identity, values))) >= _OFTEN * len(values)
