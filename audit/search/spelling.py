r"""Read a space to search from its spelling, ``name:key=value``."""

from __future__ import annotations

from dataclasses import dataclass

from audit.search.space import FARTHEST, LARGEST, NORMS, SPACES, Space
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Norm, Relation, Unit
from dpcore.numbers.parameter import whole_number
from dpcore.spec import did_you_mean, read_keys, split_name


def read_space(text: str, relation: Relation | str = Relation.REPLACE) -> Space:
    r"""The space that ``text`` spells; see the module.

    Raises :class:`InvalidParameter` for an unknown space, and for a key that is missing, unknown,
    given twice or out of range.

    >>> space = read_space("vector:dimension=3,low=0,high=1")
    >>> next(space.patterns()), space.neighbours([0, 0, 0], [1, 1, 0])
    (([0, 0, 0], [1, 1, 1]), True)
    """
    from audit.search.grids import Histograms, Integers, Vectors
    from audit.search.records import Datasets, Streams

    name, rest = split_name(text)
    if name not in SPACES:
        reason = f"must start with one of {', '.join(SPACES)}, e.g. integer:low=0,high=10"
        hint = did_you_mean(name, SPACES)
        raise InvalidParameter("--search", text, f"{hint}{'it ' if hint else ''}{reason}")
    known = SPACES[name]
    usual = {key: value for key, value in known.items() if value is not None}
    needed = [key for key in known if key not in usual]
    values = read_keys("--search", text, rest, known, owner=name, needed=needed)
    given = _Given(text=text, values=usual | values)
    match name:
        case "integer":
            low, high = given.range()
            apart = given.whole("apart", 1, high - low)
            return Integers(spelling=text, low=low, high=high, apart=apart)
        case "vector":
            low, high = given.range()
            norm = given.word("norm", tuple(norm.value for norm in NORMS))
            # A step beyond the range can never be taken.
            most = LARGEST**2 if norm != Norm.BOX.value else high - low
            return Vectors(
                spelling=text,
                low=low,
                high=high,
                dimension=given.whole("dimension", 1, LARGEST),
                amount=given.whole("sensitivity", 1, most),
                norm=Norm(norm),
            )
        case "histogram":
            replaced = Relation(relation) is Relation.REPLACE
            return Histograms(
                spelling=text,
                low=0,
                high=given.whole("most", 1, FARTHEST),
                dimension=given.whole("bins", 2 if replaced else 1, LARGEST),
                relation=Relation(relation),
            )
        case "dataset":
            low, high = given.range()
            return Datasets(
                spelling=text,
                low=low,
                high=high,
                most=given.whole("most", 1, LARGEST),
                relation=Relation(relation),
            )
        case _:
            low, high = given.range()
            return Streams(
                spelling=text,
                low=low,
                high=high,
                steps=given.whole("steps", 1, LARGEST),
                users=given.whole("users", 1, LARGEST),
                unit=Unit(given.word("unit", tuple(unit.value for unit in Unit))),
                relation=Relation(relation),
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    text: str
    values: dict[str, str]

    def whole(self, word: str, least: int, most: int) -> int:
        try:
            return whole_number(word, self.values[word], at_least=least, at_most=most)
        except InvalidParameter:
            reason = f"{word} must be a whole number from {least} to {most}"
            raise InvalidParameter("--search", self.text, reason) from None

    def range(self) -> tuple[int, int]:
        low = self.whole("low", -FARTHEST, FARTHEST - 1)
        return low, self.whole("high", low + 1, FARTHEST)

    def word(self, word: str, known: tuple[str, ...]) -> str:
        if self.values[word] not in known:
            raise InvalidParameter("--search", self.text, f"{word} must be {' or '.join(known)}")
        return self.values[word]
