r"""Results: frozen dataclasses from which JSON, HTML and text are derived.

The facts of a result are the fields declared with :func:`fact` and the properties declared with
:func:`computed`. They determine the JSON document and its schema. The sentences of
:meth:`Result.statement`, the sections and the test cases determine the terminal text, the HTML
page, its short form in a notebook, and the formats of :mod:`audit.formats.junit_and_sarif`.

The HTML page is one self-contained file without scripts, and loads nothing from the network. Its
markup is in ``templates/``. Jinja2 escapes every text; invisible characters are replaced, long
texts are cut, and the content security policy forbids loading anything. The colours of the datasets
can be distinguished with every type of colour vision (Okabe and Ito's palette).
"""

from __future__ import annotations

import ast
import json
import math
import shutil
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn, Protocol, TypeVar

from markupsafe import Markup, escape

from audit.formats.junit_and_sarif import Case, formatted, outcome_of
from audit.formats.shorten import printable, shortened
from dpcore.cli.terminal import page as printed
from dpcore.numbers.enclosure import Enclosure
from dpcore.numbers.parameter import write_rational
from dpcore.numbers.rounding import down, up


def json_text(document: Mapping[str, Any]) -> str:
    r"""Write a document as JSON with a final newline.

    Objects of types that JSON lacks are written as text. Raises ValueError for nan or infinity.
    """
    return json.dumps(document, indent=2, default=str, allow_nan=False) + "\n"


_NARROWEST, _WIDEST = 40, 100
_LEAST_GROUP: Final = 100
_MOST_GROUP: Final = 10**15  # larger groups are written as a power of ten

_Value_co = TypeVar("_Value_co", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fact:
    about: str
    write: Callable[[Any], Any]
    kind: str
    name: str
    before: str


def fact(about: str, *, name: str = "", kind: str = "", write: Any = None, **default: Any) -> Any:
    r"""Declare a field of a result as a key of its JSON document.

    ``about`` is the description of the key in the schema. ``write`` converts the field to its JSON
    value, by default :func:`plain`. ``kind`` is the type of the JSON value, by default that of the
    field. ``name`` is the key, by default the name of the field.
    """
    return field(metadata={"fact": _read(about, name, kind, write)}, **default)


class _Property(Protocol[_Value_co]):
    def __get__(self, owner: Any, kind: Any = None, /) -> _Value_co: ...


def computed(
    about: str, *, before: str = "", name: str = "", kind: str = "", write: Any = None
) -> Callable[[Callable[[Any], _Value_co]], _Property[_Value_co]]:
    r"""Declare a property as a key of the JSON document, before the field ``before`` or last."""

    def marked(getter: Any) -> Any:
        getter.fact = _read(about, name, kind, write, before)
        return property(getter)

    return marked


def members(*names: str) -> Callable[[Any], dict[str, Any]]:
    r"""Return a ``write`` function that converts an object to a dict of its attributes ``names``.

    If the declared ``name`` of the field is "*", the attributes become keys of the document itself.
    """
    return lambda value: {name: plain(getattr(value, name)) for name in names}


def _read(about: str, name: str = "", kind: str = "", write: Any = None, before: str = "") -> _Fact:
    # ``write`` may return a type other than that of the field.
    kind = kind or ("Any" if write else "")
    return _Fact(about=about, write=write or plain, kind=kind, name=name, before=before)


@cache
def _facts(kind: type[Any]) -> list[tuple[str, _Fact, str]]:
    # (name, fact, annotation) in the order of the document; all fields if no field is declared.
    declared = any("fact" in each.metadata for each in fields(kind))
    found = [
        (each.name, each.metadata.get("fact", _read("")), str(each.type))
        for each in fields(kind)
        if "fact" in each.metadata or not declared
    ]
    for name, value in (item for base in kind.__mro__ for item in vars(base).items()):
        own = getattr(getattr(value, "fget", None), "fact", None)
        if own is not None:
            place = [other for other, _, _ in found].index(own.before) if own.before else len(found)
            found.insert(place, (name, own, value.fget.__annotations__["return"]))
    return found


def plain(value: Any) -> Any:
    r"""Convert to JSON types: fractions, inf and nan to text, an enclosure to [lower, upper]."""
    match value:
        case float():
            return value + 0.0 if math.isfinite(value) else str(value)  # -0.0 becomes 0.0
        case Fraction():
            return write_rational(value)
        case Enclosure():
            return [plain(value.lower_float), plain(value.upper_float)]  # rounded outwards
        case Enum():
            return value.value
        case tuple() | list():
            return [plain(each) for each in value]
        case dict():
            return {key: plain(each) for key, each in value.items()}
        case object(to_json=write):
            return write()
        case _ if is_dataclass(value):
            return _document(value)
    return value


def _document(value: Any) -> dict[str, Any]:
    kind: Any = type(value)
    document: dict[str, Any] = {}
    for name, own, _ in _facts(kind):
        written = own.write(getattr(value, name))
        document |= written if own.name == "*" else {own.name or name: written}
    return document


class Facts:
    r"""Base class of frozen dataclasses that convert their declared facts to JSON.

    If no field is declared with :func:`fact`, every field is a fact.
    """

    __slots__ = ()

    def to_json(self) -> dict[str, Any]:
        r"""The facts as JSON values, by key."""
        return _document(self)


class Result(Facts, ABC):
    r"""Base class of results: frozen dataclasses of facts, with a verdict.

    ``print`` prints the sentences of :meth:`statement`, :meth:`to_text` returns the JSON text, and
    a notebook shows a short HTML page.
    """

    __slots__ = ()

    SCHEMA: ClassVar[str]

    if TYPE_CHECKING:

        @property
        def verdict(self) -> Any:
            r"""The verdict; the schema lists the possible values."""

        @property
        def versions(self) -> dict[str, str]:
            r"""The versions of dpcore, Python and the numerical libraries."""

    @property
    @abstractmethod
    def exit_code(self) -> int:
        r"""The exit code of a command with this result."""

    @abstractmethod
    def statement(self) -> Statement:
        r"""The sentences of the result, which the text, the page and the notebook show."""

    @property
    def refuted(self) -> bool:
        return bool(self.verdict == "refuted")

    def __bool__(self) -> NoReturn:
        # Otherwise `assert audit(...)` would pass for every verdict.
        reason = "has no truth value: use refuted or verdict, or call assert_private"
        raise TypeError(f"{type(self).__name__} {reason}")

    @property
    def subject(self) -> str:
        return str(getattr(self, "target", ""))

    @property
    def sentence(self) -> str:
        r"""The meaning of the verdict in one sentence, which a page shows below the verdict."""
        return self.statement().about

    @property
    def warnings(self) -> tuple[str, ...]:
        r"""Warnings about the result, which are shown before the numbers."""
        return ()

    def summary(self) -> Iterable[tuple[str, object]]:
        return [row for row in self.statement().rows if row[0] != "repeat"]

    def sections(self) -> Iterator[Section]:
        r"""The sections of the HTML page, which follow the rows of :meth:`summary`."""
        yield from self.key_sections()

    def key_sections(self) -> Iterator[Section]:
        r"""The sections that a notebook shows, and that a page shows first."""
        yield from ()

    def cases(self) -> Iterator[Case]:
        r"""The test cases of the result in a JUnit or SARIF report."""
        statement = self.statement()
        yield Case(
            target=self.subject,
            name=statement.about,
            rule=self.SCHEMA.partition("/")[0],
            outcome=outcome_of(self.exit_code),
            message=f"{statement.verdict}: {statement.about}",
            detail=str(self),
        )

    def to_format(self, name: str, *, text: str | None = None) -> str:
        r"""The result as "text" (``text`` if that is given), "json", "junit" or "sarif"."""
        text = printed(str(self).splitlines()) if text is None else text
        return formatted(name, text=text, document=self.to_text(), cases=self.cases())

    def to_json(self) -> dict[str, Any]:
        r"""The result as a dict of JSON values, with the keys of its schema."""
        return {"schema": self.SCHEMA, **_document(self)}

    def to_text(self) -> str:
        return json_text(self.to_json())

    def to_html(self, *, command: str | None = None) -> str:
        r"""One self-contained HTML page; ``command`` is the command line that repeats the audit.

        The figures of a page need matplotlib.
        """
        repeat = [row for row in self.statement().rows if row[0] == "repeat"]
        last = Section(
            title="To repeat",
            copied="" if command is None else copied(command),
            id="command",
            facts=[*repeat, *sorted(self.versions.items()), ("schema", self.SCHEMA)],
        )
        return self._page(self.summary(), [*self.sections(), last], document=self.to_text())

    def _repr_html_(self) -> str:
        # The notebook card: a page in an iframe, with its own style.
        document = escape(self._page(self.statement().rows, self.key_sections()))
        style = f"width:100%;height:{_HEIGHT}px;border:0"
        return f'<iframe sandbox title="Audit" style="{style}" srcdoc="{document}"></iframe>'

    def _page(
        self,
        rows: Iterable[tuple[str, object]],
        sections: Iterable[Section],
        *,
        document: str = "",
    ) -> str:
        statement = self.statement()
        look, sign = _LOOKS.get(statement.style, _LOOKS["bold yellow"])
        # The JSON is ASCII: characters that HTML cannot contain are escaped, so nothing is lost.
        embedded = escape(document)
        if len(embedded) > _EMBEDDED:
            embedded = Markup("Too long for a page: write it to a file with dpcore audit --output.")
        page: str = _template().render(
            look=look, sign=sign, code=code, document=embedded, sections=list(sections),
            rows=[(name.capitalize(), value) for name, value in rows], verdict=statement.verdict,
            subject=self.subject, sentence=self.sentence, warnings=self.warnings,
        )  # fmt: skip
        return page

    def __str__(self) -> str:
        return "\n".join(self.statement().lines())


# -- the HTML page ---------------------------------------------------------------------------------

# Limits that keep a page below 2 MB, whatever the target returns.
_MOST_SIGNS: Final = 500
_MOST_CODE: Final = 200
_MOST_COPIED: Final = 2_000
_EMBEDDED: Final = 300_000

_HEIGHT: Final = 560
_LOOKS: Final = {
    "bold red": ("refuted", "✗"),
    "bold yellow": ("open", "○"),
    "bold green": ("proven", "✓"),
    "bold magenta": ("failed", "!"),
}
r"""For each verdict style: its class in the style sheet, and a symbol next to the colour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    r"""A section of an HTML page, with optional contents.

    The contents are a text to copy, a picture, a note, ``facts`` (pairs of name and value), and a
    table. One click selects the whole text ``copied``. If ``folded`` is set, the table is collapsed
    under this title.
    """

    title: str = ""
    copied: str | Markup = ""
    id: str = ""
    svg: Markup = Markup()
    note: str | Markup = ""
    facts: Sequence[tuple[str, object]] = ()
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[object]] = ()
    folded: str = ""


def code(value: object) -> Markup:
    r"""An HTML code element that contains ``value`` as text; long text is cut."""
    return Markup("<code>{}</code>").format(_escape_text(value, _MOST_CODE))


def copied(value: object) -> Markup:
    r"""Escape a text that readers copy from a page, for which more characters are allowed."""
    return _escape_text(value, _MOST_COPIED)


def as_json(value: object, *, indent: int | None = None) -> str:
    r"""The value as JSON; objects of types that JSON lacks become text."""
    return json.dumps(value, indent=indent, default=str, ensure_ascii=False)


@cache
def _template() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined  # slow

    made = Environment(
        loader=PackageLoader("audit.formats"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_escape_text,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return made.get_template("page.html")


def _escape_text(value: object, most: int = _MOST_SIGNS) -> Markup:
    # Escape any text; a long text is shortened to its start, length and digest.
    if isinstance(value, Markup):
        return value
    return escape(printable(shortened(str(value), most)))


# -- the JSON schema and the text ------------------------------------------------------------------


def json_schema(result: type[Result]) -> dict[str, Any]:
    r"""The JSON Schema of the documents of a result class, derived from its facts."""
    keys = {
        own.name or name: {
            "description": own.about,
            **_type(ast.parse(own.kind or kind, mode="eval").body),
        }
        for name, own, kind in _facts(result)
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": result.SCHEMA,
        "type": "object",
        "properties": {"schema": {"const": result.SCHEMA}, **keys},
        "required": ["schema", *keys],
        "additionalProperties": False,
    }


_TYPES: Final[dict[str, dict[str, Any]]] = {
    "str": {"type": "string"},
    "Fraction": {"type": "string"},
    "int": {"type": "integer"},
    "bool": {"type": "boolean"},
    "float": {"anyOf": [{"type": "number"}, {"const": "inf"}]},
    "tuple": {"type": "array"},
    "list": {"type": "array"},
    "dict": {"type": "object"},
    "None": {"type": "null"},
}


def _type(annotation: ast.expr) -> dict[str, Any]:
    match annotation:
        case ast.BinOp(left=one, right=other):
            both = (_type(one), _type(other))
            return {"anyOf": [*both]} if all(both) else {}
        case ast.Subscript(value=ast.Name(id="Literal"), slice=listed):
            words = listed.elts if isinstance(listed, ast.Tuple) else [listed]
            return {"enum": [ast.literal_eval(word) for word in words]}
        case ast.Subscript(value=ast.Name(id=name)) | ast.Name(id=name):
            return _TYPES.get(name, {})
    return _TYPES["None"] if ast.unparse(annotation) == "None" else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    r"""The text of a report that the terminal, the HTML page and a notebook show.

    The text consists of the verdict in capitals, a sentence (``about``) and rows (name, value).
    ``style`` is the style of the verdict on a terminal.
    """

    verdict: str
    about: str
    rows: tuple[tuple[str, str], ...] = ()
    style: str = "bold"

    def lines(self, width: int | None = None) -> list[str]:
        r"""The lines of the text, wrapped to ``width``, by default the width of the terminal."""
        width = terminal_width() if width is None else width
        head = f"{self.verdict}  {self.about}" if self.verdict else ""
        return [
            *textwrap.wrap(head, width, break_on_hyphens=False),
            *aligned(self.rows, width),
        ]


def aligned(rows: Iterable[tuple[str, str]], width: int, *, indent: int = 2) -> list[str]:
    r"""Format rows (name, value) as two aligned columns; lines are wrapped to ``width``."""
    listed = list(rows)
    margin = max((len(name) for name, _ in listed), default=0) + indent + 2
    return [
        line
        for name, value in listed
        for line in textwrap.wrap(
            value,
            width,
            initial_indent=f"{' ' * indent}{name}".ljust(margin),
            subsequent_indent=" " * margin,
            break_on_hyphens=False,
        )
    ]


def terminal_width() -> int:
    r"""The width of the terminal, clipped to the range of 40 to 100 columns."""
    return min(max(shutil.get_terminal_size().columns, _NARROWEST), _WIDEST)


def format_enclosure(value: Enclosure, digits: int = 9) -> str:
    r"""Format an enclosure as "exactly x" or as "between x and y", rounded outwards."""
    low, high = down(value.lower, digits), up(value.upper, digits)
    return f"exactly {low}" if low == high else f"between {low} and {high}"


def format_share(probability: Fraction | float, digits: int = 2) -> str:
    r"""Format a probability as "n of N"; N is a power of ten, and n is rounded up."""
    exact, group = Fraction(probability), _LEAST_GROUP
    while 0 < exact * group < 1:
        group *= 10
    words = f"{group:,}" if group < _MOST_GROUP else f"10^{len(str(group)) - 1}"
    return f"{up(exact * group, digits)} of {words}"
