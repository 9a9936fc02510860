r"""Choose the default features for outputs like those of a first block.

Repeated numbers, and labels, are tested directly. Numbers that are rarely repeated are also tested
modulo a grid, if they lie on one, and floats by their precision, which reveals noise added in
floating point. Any other output is a row of a table (``audit.outputs.rows``), tested by its
structure if that varies, and by its columns. A single column of numbers is tested by thresholds,
and the best column and a learned score also read the other columns, which may vary later; several
are tested by these two and, up to 64 of them, by their grids. The outputs themselves keep a share
of the level, a large one if they are repeated. The choice uses a training block, which is not
tested.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Final
from urllib.parse import quote

import numpy as np

from audit.claims import cause_of
from audit.features.apply_feature import each
from audit.features.columns import MOST_WIDE
from audit.features.numbers import step_of
from audit.features.parse_feature import Feature, read_feature
from audit.outputs.identity import identity, number_in
from audit.outputs.output_parser import Outputs
from audit.outputs.reading import as_float
from audit.outputs.rows import Floats, Schema, Table

_OFTEN: Final = Fraction(3, 4)


_REPEATED: Final = {"identity": 60, "coordinates": 10, "learned": 30}
_VECTORS: Final = {"identity": 5, "coordinates": 25, "learned": 70}
_FLOAT_VECTORS: Final = {"identity": 5, "coordinates": 25, "learned": 50, "grid": 20}
_STRUCTURE: Final = {"structure": 20}
_OTHERS: Final = {"coordinates": 8, "learned": 8}


def default_family(outputs: Outputs) -> dict[str, int]:
    r"""Default features with their shares of the level; empty to test only the outputs."""
    values = each(outputs)
    came = len(set(map(identity, values)))
    if came < 2 or all(isinstance(value, bool | np.bool_) for value in values):
        return {}  # a threshold adds nothing for two values
    again = came < _OFTEN * len(values)
    numbers = [number for value in values if (number := number_in(value)) is not None]
    if 2 * len(numbers) > len(values):
        # A clamped number may be an int among floats.
        for kind in (float, int):
            mine = [number.value for number in numbers if isinstance(number.value, kind)]
            if not again and 2 * len(mine) > len(values):
                parts = _number_family(np.array([as_float(value) for value in mine]))
                return parts if len(parts) > 1 else {}
        return {}
    schema = Schema()
    table = schema.read(outputs)
    return _table_family(table, schema.paths, again=again)


def default_features(outputs: Outputs, *, floats: bool) -> tuple[Feature, ...]:
    r"""The default features with their shares; without ``floats``, those of the floating-point
    representation are omitted.
    """
    parts = default_family(outputs)
    return tuple(
        replace(read_feature(name), share=Fraction(part, sum(parts.values())))
        for name, part in parts.items()
        if floats or cause_of(name) != "floating-point"
    )


def _number_family(numbers: Floats, path: str | None = None) -> dict[str, int]:
    # The features of a number that is hardly ever repeated; ``path`` is its path in the output.
    name, chain = ("identity", "") if path is None else (f"column:{path}", f"column:{path}+")
    rest = ["precision"] if 2 * np.count_nonzero(numbers != np.rint(numbers)) > len(numbers) else []
    if step := step_of(numbers):
        rest.append(f"modulo:{step!r}")
    return {name: 80} | {chain + each: 20 // len(rest) for each in rest}


def _table_family(table: Table, paths: Sequence[str], *, again: bool) -> dict[str, int]:
    known = table.known()
    columns = [table.column(place) for place in range(table.width)]
    varying = [
        place
        for place, (numbers, codes) in enumerate(columns)
        if len(np.unique(codes)) > 1 or len(np.unique(numbers[codes == 0])) > 1
    ]
    structures = len(np.unique(table.structures))
    several = 1 < structures < _OFTEN * len(table)
    if not several and not known[:, varying].any() and len(varying) < 2:
        return {}  # a single label is tested directly
    repeated = (len(np.unique(columns[i][1])) < _OFTEN * len(table) for i in varying)
    if not several and not known[:, varying].any() and not any(repeated):
        return {}  # unrepeated labels are useless
    structure = _STRUCTURE if several else {}
    if len(varying) == 1 and known[:, (place := varying[0])].all():
        path = quote(paths[place].removeprefix("."), safe="[]{}'(), ./:;=\"")
        parts = {"identity": 40 if again else 5} | _number_family(table.numbers[:, place], path)
        return parts | _OTHERS | structure
    if again:
        return _REPEATED | structure
    numbers = table.numbers[known]
    fine = numbers[numbers != np.rint(numbers)]  # few if most numbers are flags
    gridded = len(varying) <= MOST_WIDE and 4 * len(fine) > len(table)
    return (_FLOAT_VECTORS if gridded else _VECTORS) | structure
