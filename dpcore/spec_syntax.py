r"""Parse ``name:key=value,key=value``, the syntax of noise, claims, targets and search spaces.

All text of this form is parsed here, so equal mistakes give equal messages: an unknown name or key
(with the nearest known one), and a key that is missing, repeated or without a value. Errors report
the option or argument.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import MISSING, fields
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, Final, TypeVar, get_args

from dpcore.errors import InvalidParameter
from dpcore.numbers.parameter import Of, whole_number

_T = TypeVar("_T")
_DEVIATION: Final = (("sigma_squared", 2), ("variance", 2))
_VARIANCE: Final = (("sigma_squared", 1), ("variance", 1))
_PARAMETER_NAMES: Final[Mapping[str, tuple[tuple[str, int], ...]]] = MappingProxyType(
    {
        **dict.fromkeys(("sigma", "std", "stddev", "scale"), _DEVIATION),
        **dict.fromkeys(("sigma2", "sigma^2", "var", "variance"), _VARIANCE),
        **dict.fromkeys(("b", "s"), (("scale", 1),)),
        **dict.fromkeys(("lambda", "lam", "mu"), (("mean", 1), ("scale", 1))),
        "p": (("probability", 1),),
        "n": (("trials", 1), ("count", 1)),
        "r": (("shape", 1),),
    }
)


def did_you_mean(given: object, known: Iterable[str]) -> str:
    r"""Return a hint with the nearest known name for an error message; "" if none is near."""
    near = get_close_matches(str(given), [*known], n=1)
    return f"did you mean {near[0]}? " if near else ""


def find_name(
    argument: str, typed: object, known: Mapping[str, _T], *, name: str | None = None
) -> _T:
    r"""Return the value of the name ``typed`` in ``known``.

    >>> find_name("preset", "cz/esay", {"cz/easy": 1})
    Traceback (most recent call last):
    ...
    dpcore.errors.InvalidParameter: preset = cz/esay: did you mean cz/easy? it must be one of ...

    If only a part of ``typed`` is the name, pass this part as ``name``. Raises
    :class:`InvalidParameter` if the name is unknown; the message contains the nearest known name
    and all known names.
    """
    given = typed if name is None else name
    if isinstance(given, str) and given in known:
        return known[given]
    hint = did_you_mean(given, known)
    who = "it " if hint else "" if name is None else f"{name!r} "
    raise InvalidParameter(argument, typed, f"{hint}{who}must be one of {', '.join(known)}")


def check_word(argument: str, value: object, words: Any) -> None:
    r"""Raise an error unless ``value`` is one of ``words``, a collection or a ``Literal`` type."""
    known = get_args(words) or tuple(words)
    if value not in known:
        if len(known) == 2:
            raise InvalidParameter(argument, value, f"must be {' or '.join(map(repr, known))}")
        find_name(argument, value, dict.fromkeys(known))


class _Word(Of[Any]):
    def __init__(self, words: Any, default: str | None) -> None:
        super().__init__(str, "", default)
        self._words = words

    def read(self, argument: str, value: object) -> Any:
        check_word(argument, value, self._words)
        return value


def word(words: Any, default: str | None = None) -> Any:
    r"""Declare a field that is one of ``words``, a ``Literal`` type (:func:`check_word`)."""
    return _Word(words, default)


def split_name(text: str) -> tuple[str, str]:
    r"""Split ``text`` at the first colon into the name and the rest."""
    name, _, rest = text.partition(":")
    return name.strip(), rest.strip()


def read_keys(
    argument: str,
    text: str,
    written: str | Mapping[str, str],
    known: Collection[str],
    *,
    owner: str,
    needed: Collection[str] = (),
    hint: Callable[[Mapping[str, str]], str] | None = None,
) -> dict[str, str]:
    r"""Check ``written``, which is ``key=value,key=value`` or a mapping; return its values by key.

    Raises :class:`InvalidParameter`, which quotes ``text``, the whole input, if a key is not in
    ``known``, is given twice or has no value, or if a key in ``needed`` is missing.
    """
    given: dict[str, str] = {}
    pairs = pairs_of(written) if isinstance(written, str) else [*written.items()]

    def wrong(reason: str, near: str = "") -> InvalidParameter:
        end = near if hint is None else hint(dict(pairs))
        return InvalidParameter(argument, text, reason + end)

    takes, form = f"the parameters {', '.join(known)}", ", each as key=value"
    if not known:
        takes, form = "no parameters", ""
    for key, value in pairs:
        if not key:
            raise wrong(f"{value!r}: {owner} has {takes}{form}")
        if key in given:
            raise InvalidParameter(argument, text, f"{key} is given twice")
        given[key] = value
    for key, value in given.items():
        if key not in known:
            close = get_close_matches(key.lower(), known, n=1)
            near = f"; did you mean {close[0]}={value}?" if close else ""
            raise wrong(f"'{key}={value}': {owner} has {takes}", near)
    for key in (*given, *needed):
        if not given.get(key):
            what = "has no value" if key in given else "is missing"
            raise wrong(f"{key} {what}: write {key}=...")
    return given


def parameter_names(kind: type[Any]) -> tuple[str, ...]:
    r"""The keys of the text form of a dataclass: its fields in order, without the scope."""
    return tuple(each.name for each in fields(kind) if each.init and each.name != "scope")


def required_names(kind: type[Any]) -> tuple[str, ...]:
    r"""The keys of the text form of a dataclass (:func:`parameter_names`) that have no default."""
    known = {each.name: each.default for each in fields(kind)}
    return tuple(name for name in parameter_names(kind) if known[name] is MISSING)


def from_words(kind: type[_T], given: Mapping[str, Any]) -> _T:
    r"""Make an instance of the dataclass ``kind`` from text values, by the names of its fields.

    Integers may be written as 1e3, and the items of a list are separated by spaces.
    """
    types = {each.name: str(each.type) for each in fields(kind)}  # type: ignore[arg-type]  # a dataclass
    made: dict[str, Any] = {}
    for key, value in given.items():
        if types[key] in ("int", "Whole"):
            made[key] = whole_number(key, value)
        else:
            made[key] = value.split() if types[key].startswith("Sequence") else value
    return kind(**made)


def read_spec(
    argument: str,
    text: str,
    kinds: Mapping[str, type[_T]],
    *,
    spec: str = "",
    also: Collection[str] = (),
) -> tuple[_T, dict[str, str]]:
    r"""Parse ``name:key=value`` as an instance of one of the dataclasses ``kinds``.

    Returns the instance, and the text values of the additional keys ``also``, which are no fields
    of the instance. ``spec`` is the part of ``text`` to parse, by default all of ``text``.

    Raises :class:`InvalidParameter` if the text is invalid; the message contains the argument and
    ``text``.
    """
    name, rest = split_name(spec or text)
    kind = find_name(argument, text, kinds, name=name)
    keys = (*parameter_names(kind), *also)
    given = read_keys(argument, text, rest, keys, owner=name, needed=required_names(kind))
    more = {key: given.pop(key) for key in also if key in given}
    try:
        return from_words(kind, given), more
    except InvalidParameter as error:
        raise InvalidParameter(argument, text, f"{error.argument} {error.reason}") from None


def pairs_of(written: str) -> list[tuple[str, str]]:
    r"""The keys and values of ``key=value,key=value``; an item without a key has the key ""."""
    found = []
    for piece in filter(None, (piece.strip() for piece in written.split(","))):
        key, equals, value = piece.partition("=")
        found.append((key.strip(), value.strip()) if equals and key.strip() else ("", piece))
    return found


def parameter_meant(key: str, wanted: tuple[str, ...]) -> tuple[str, int]:
    r"""The parameter that ``key`` stands for, and the power to which its value must be raised.

    >>> parameter_meant("sigma", ("sigma_squared",))
    ('sigma_squared', 2)
    """
    key = key.lower()
    if key in wanted:
        return key, 1
    if not key and len(wanted) == 1:
        return wanted[0], 1
    for own, power in _PARAMETER_NAMES.get(key, ()):
        if own in wanted:
            return own, power
    near = get_close_matches(key, wanted, n=1)
    if not near:
        raise InvalidParameter("parameter", key, f"must be one of {', '.join(wanted)}")
    return near[0], 1
