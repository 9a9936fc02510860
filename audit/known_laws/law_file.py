r"""Parse an output law from the command line: a shifted noise, or a file of probabilities.

    discrete-laplace:scale=1@3     3 + noise; the shift is 0 without @
    skellam:variance=100@0,1,0     one draw per coordinate, shifted by (0, 1, 0)
    law.json                       {"yes": "3/4", "no": "1/4"}, or [["yes", "3/4"], [[0, 1], 0.25]]
    law.csv                        lines such as "yes,3/4"; a first line "output,mass" is a header

Masses are exact: fractions, or decimals with their written value (a float has the value of its
shortest decimal form). They must sum to exactly 1. Computed floats rarely do, but can be divided by
their exact sum (:meth:`WrittenLaw.normalised`). Outputs are compared as text, so the number 0 in
one file equals the text "0" in another, but 1 differs from 1.0. The format of a file follows from
its name (.json or .csv), or else from its first character.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

from audit.formats.result import computed, fact
from audit.targets.target import Law, Shifted
from dpcore.cli.files import parse_json, read_text, rows_of
from dpcore.errors import InvalidParameter
from dpcore.numbers.parameter import RationalLike, rational, write_rational
from dpcore.numbers.rounding import down
from dpcore.parse_noise import LAWS, read_noise

_ONE: Final = Fraction(1)
_DIGITS: Final = 20
_MOST_BYTES: Final = 1 << 28
_HEADINGS: Final = (("output", "probability"), ("output", "mass"))


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenLaw:
    r"""An output law, parsed from a command-line argument, with its text.

    ``argument`` is the name of the argument in error messages. ``divided_by`` is the sum by which
    the masses of a file were divided, or 1 if they were not normalised.
    """

    argument: str
    spelling: str = fact("the text of the law", name="law")
    law: Law
    divided_by: Fraction = fact(
        "the sum of the masses, if it is not 1",
        write=lambda total: None if total == 1 else write_rational(total),
        default=_ONE,
    )

    @property
    def total(self) -> Fraction:
        r"""The exact sum of the masses, or 1 if the law is a noise."""
        if isinstance(self.law, Shifted):
            return _ONE
        return sum((rational("mass", mass) for mass in self.law.values()), Fraction())

    @computed(
        "the number of outputs with positive mass",
        before="divided_by",
        write=lambda found: None if found is None else len(found),
    )
    def outputs(self) -> frozenset[str] | None:
        r"""The outputs with positive mass, or None if the law is a noise."""
        if isinstance(self.law, Shifted):
            return None
        return frozenset(str(output) for output, mass in self.law.items() if mass)

    def checked(self) -> WrittenLaw:
        r"""Return this law, or raise :class:`InvalidParameter` if its masses do not sum to 1."""
        if (total := self.total) != 1:
            reason = (
                f"its probabilities sum to {_format_total(total)}, not to exactly 1 (floats are "
                "rounded; --normalise divides by the exact sum)"
            )
            raise InvalidParameter(self.argument, self.spelling, reason)
        return self

    def normalised(self) -> WrittenLaw:
        r"""The law with its masses divided by their exact sum."""
        total = self.total
        if isinstance(self.law, Shifted) or total == 1:
            return self
        if not total:
            raise InvalidParameter(self.argument, self.spelling, "all its probabilities are 0")
        divided = {x: rational("mass", mass) / total for x, mass in self.law.items()}
        return replace(self, law=divided, divided_by=total)


def _format_total(total: Fraction) -> str:
    written = down(total, _DIGITS)
    if Fraction(written) == total:
        return written
    beyond = down(abs(total - 1), 3)
    return f"{'more' if total > 1 else 'less'} than 1, by about {beyond}"


def read_law(argument: str, text: str) -> WrittenLaw:
    r"""Parse an output law, without checking that its masses sum to 1."""
    name, colon, _ = text.partition(":")
    if colon and name in LAWS:
        return WrittenLaw(argument=argument, spelling=text, law=_shifted_noise(argument, text))
    wrong = partial(InvalidParameter, argument, text)
    path = Path(text)
    try:
        content = read_text(argument, path, most=_MOST_BYTES)
    except InvalidParameter as error:
        hint = f"give a file of probabilities, or noise: {', '.join(LAWS)}"
        raise wrong(f"{error.reason} ({hint})") from None
    is_json = path.suffix.lower() == ".json" or (
        path.suffix.lower() != ".csv" and content.lstrip()[:1] in {"{", "["}
    )
    if is_json:
        pairs = _pairs_from_json(content, wrong)
    else:
        pairs = _pairs_from_csv(rows_of(argument, text, content.splitlines()), wrong)
    masses: dict[Hashable, RationalLike] = {}
    for output, written in pairs:
        if output in masses:
            raise wrong(f"lists the output {output!r} twice")
        named = f"{argument}: {text}: the probability of {output!r}"
        masses[output] = mass = rational(named, written)
        if mass < 0:
            raise InvalidParameter(named, str(written), "must be >= 0")
    if not masses:
        raise wrong("contains no outputs")
    return WrittenLaw(argument=argument, spelling=text, law=masses)


def _shifted_noise(argument: str, text: str) -> Shifted:
    name, at, place = text.partition("@")
    noise = read_noise(name)
    try:
        steps = tuple(int(step) for step in place.split(",")) if at else (0,)
    except ValueError:
        reason = "must have integers after the @, e.g. ...@1 or ...@0,1,0"
        raise InvalidParameter(argument, text, reason) from None
    return Shifted(noise, steps[0] if len(steps) == 1 else steps)


class _Object(list[tuple[str, Any]]):
    # The pairs of a JSON object, in order, including repeated keys.
    pass


_Wrong: TypeAlias = Callable[[str], InvalidParameter]
_SHAPE: Final = 'must be {"output": "probability", ...} or [[output, probability], ...]'


def _pairs_from_json(content: str, wrong: _Wrong) -> list[tuple[str, Any]]:
    try:
        # Decimals keep their text, so that they are not rounded to binary floats.
        found = parse_json(content, object_pairs_hook=_Object, parse_float=_Decimal)
    except ValueError as error:
        raise wrong(f"is not JSON: {error}") from None
    if isinstance(found, _Object):
        return list(found)
    if not isinstance(found, list) or not all(type(row) is list and len(row) == 2 for row in found):
        raise wrong(_SHAPE)
    return [(_label(output, wrong), mass) for output, mass in found]


class _Decimal(str):
    # The text of a decimal number in a JSON file.
    __slots__ = ()


def _label(output: Any, wrong: _Wrong) -> str:
    match output:
        case str():
            return str(output)
        case _Object():
            raise wrong("an output must be text, a number, true, false, null or a list of these")
        case list():
            return f"[{', '.join(_part(item, wrong) for item in output)}]"
        case _:
            return json.dumps(output)


def _part(item: Any, wrong: _Wrong) -> str:
    # In a list, text is quoted and a decimal is not.
    quoted = isinstance(item, str) and not isinstance(item, _Decimal)
    return json.dumps(item) if quoted else _label(item, wrong)


def _pairs_from_csv(rows: Iterable[tuple[int, list[str]]], wrong: _Wrong) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for line, row in rows:
        cells = tuple(cell.strip() for cell in row)
        if not pairs and tuple(map(str.lower, cells)) in _HEADINGS:
            continue
        if len(cells) != 2:
            raise wrong(f"line {line} must have the form output,probability")
        pairs.append((cells[0], cells[1]))
    return pairs
