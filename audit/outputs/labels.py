r"""The labels that runs have shown so far: a column for each, in the order they came.

Of one reading a label is known by its place among the reading's names: nothing is hashed, and a
million rows that never come twice cost no object each. Of several readings it is known by its name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from audit.outputs.identity import Name
from audit.outputs.number_line import Integers


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    r"""Labels in the order they came, in columns 0, 1, ...

    ``names[codes[k]]`` is the label of column k, or ``known`` has the column of each by its name,
    where they came from several readings. The names of a reading are distinct.

    >>> labels, _ = Labels().add(names := ("a", "b", "c"), np.array([2, 0]))
    >>> list(labels), labels.find(names, np.array([0, 1, 2])).tolist()
    (['c', 'a'], [1, -1, 0])
    >>> labels.find(("b", "c"), np.array([0, 1])).tolist()
    [-1, 0]
    """

    names: Sequence[str | Name] = ()
    codes: Integers = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    known: dict[str | Name, int] | None = None

    def __len__(self) -> int:
        return len(self.codes) if self.known is None else len(self.known)

    def __iter__(self) -> Iterator[str | Name]:
        if self.known is not None:
            return iter(self.known)
        return (self.names[code] for code in self.codes.tolist())

    def add(self, names: Sequence[str | Name], codes: Integers) -> tuple[Labels, Integers]:
        r"""These and the labels ``names[codes]``, all different; and the columns of those."""
        if not len(codes):
            return self, codes
        if self.known is None and (names is self.names or not len(self)):
            columns = self.find(names, codes)
            fresh = columns < 0
            columns[fresh] = len(self) + np.arange(np.count_nonzero(fresh))
            return Labels(names=names, codes=np.concatenate((self.codes, codes[fresh]))), columns
        known = self._by_name()
        found = [known.setdefault(names[code], len(known)) for code in codes.tolist()]
        return Labels(known=known), np.array(found, dtype=np.int64)

    def find(self, names: Sequence[str | Name], codes: Integers) -> Integers:
        r"""The column of each ``names[codes[i]]``, -1 where there is none."""
        if not len(self):
            return np.full(len(codes), -1, dtype=np.int64)
        if self.known is None and names is self.names:
            column = np.full(len(names), -1, dtype=np.int64)
            column[self.codes] = np.arange(len(self.codes))
            return column[codes]
        # A reading may be a part of another, with the names of all of it.
        distinct, place = np.unique(codes, return_inverse=True)
        known = self._by_name() if self.known is None else self.known
        found = [known.get(names[code], -1) for code in distinct.tolist()]
        return np.array(found, dtype=np.int64)[place]

    def _by_name(self) -> dict[str | Name, int]:
        if self.known is not None:
            return dict(self.known)
        return {name: column for column, name in enumerate(self)}
