r"""The elements of the HTML report, and its style in light, dark and print.

Nothing is fetched. The colours of the worlds are told apart by every kind of colour vision (after
Okabe and Ito's palette).
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from audit.claims.levels import shown_p_value
from audit.claims.verdicts import VerdictWord
from audit.wording.shorten import shortened

__all__ = [
    "STYLE",
    "as_json",
    "code",
    "copied",
    "definitions",
    "document",
    "figure",
    "folded",
    "head",
    "p_value",
    "printable",
    "section",
    "several",
    "table",
    "text",
    "warning_list",
]

# What a page holds at most: 2 MB, whatever a target gave.
_MOST_SIGNS: Final = 500
_MOST_COPIED: Final = 2_000
_MOST_CODE: Final = 200
_MOST_ITEMS: Final = 40
_MOST_ROWS: Final = 200


_POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
    "form-action 'none'"
)
_LOOKS: Final[dict[VerdictWord | None, tuple[str, str]]] = {
    "refuted": ("refuted", "✗"),
    "not_refuted": ("open", "○"),
    "proven": ("proven", "✓"),
    "nothing_measured": ("failed", "!"),
    None: ("failed", "!"),
}


def document(title: str, body: str) -> str:
    r"""A whole page, which by its own policy loads nothing; both are HTML already."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n{body}\n"
        "</main>\n</body>\n</html>\n"
    )


def head(target: str, verdict: VerdictWord | None, words: str, sentence: str) -> str:
    r"""The verdict on a target in ``words``, and a sentence that is HTML already."""
    style, sign = _LOOKS[verdict]
    return (
        f'<header><p class="kind">Audit of</p><h1>{code(target)}</h1>'
        f'<div class="verdict {style}"><p class="word"><span aria-hidden="true">{sign}</span> '
        f"<strong>{escape(words)}</strong></p><p>{sentence}</p></div></header>"
    )


def section(title: str, body: str) -> str:
    r"""A part of the page under its heading; nothing where there is no body."""
    return f"<section><h2>{escape(title)}</h2>{body}</section>" if body else ""


def figure(picture: str, note: str) -> str:
    r"""A picture with what must be known to read it."""
    return f"<figure>{picture}<figcaption>{escape(note)}</figcaption></figure>"


def folded(title: str, body: str) -> str:
    r"""Shown when the reader opens it."""
    return f"<details><summary>{escape(title)}</summary>{body}</details>"


def definitions(rows: Iterable[tuple[str, str]]) -> str:
    r"""Names and what they are, both HTML already."""
    shown = [f"<dt>{name}</dt><dd>{value}</dd>" for name, value in rows]
    return f"<dl>{several(shown, '<dt></dt><dd>{}</dd>')}</dl>"


def warning_list(warnings: Sequence[str]) -> str:
    r"""A part of the page that lists warnings; nothing where there are none."""
    items = several([f"<li>{text(warning)}</li>" for warning in warnings], "<li>{}</li>")
    return section("Warnings", f'<ul class="warnings">{items}</ul>' if items else "")


def several(items: Sequence[str], last: str, most: int = _MOST_ITEMS) -> str:
    r"""Join items; of too many the first, then ``last`` with how many more there are.

    >>> several(["<li>a</li>"] * 1000, "<li>{}</li>", 2)
    '<li>a</li><li>a</li><li>and 998 more</li>'
    """
    more = len(items) - most
    return "".join(items[:most]) + (last.format(f"and {more:,} more") if more > 0 else "")


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], name: str) -> str:
    r"""Rows of cells that are HTML already; a wide one scrolls by itself, by keyboard too."""
    if not rows:
        return ""
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    shown = [
        f'<tr><th scope="row">{row[0]}</th>{"".join(f"<td>{cell}</td>" for cell in row[1:])}</tr>'
        for row in rows
    ]
    body = several(shown, f'<tr><td colspan="{len(columns)}">{{}}</td></tr>', _MOST_ROWS)
    return (
        f'<div class="wide" role="region" aria-label="{escape(name)}" tabindex="0"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def copied(value: object, name: str = "") -> str:
    r"""Text that is selected whole by one click."""
    named = f' id="{name}"' if name else ""
    return f'<pre class="copy"{named}>{text(value, _MOST_COPIED)}</pre>'


def text(value: object, most: int = _MOST_SIGNS) -> str:
    r"""Shown as it is, whatever it holds; of a long one the start, its length and a digest.

    >>> text("<script>"), code("a" * 300)[200:]
    ('&lt;script&gt;', 'aaaaaa... (300 characters, SHA-256 9835fa6bf4e2)</code>')
    """
    return escape(printable(shortened(str(value), most)))


def code(value: object) -> str:
    r"""Text of a program, cut where it is long."""
    return f"<code>{text(value, _MOST_CODE)}</code>"


def printable(value: str) -> str:
    r"""Replace characters that HTML cannot hold or that a reader cannot see.

    Signs that reorder or hide others are such: what is read is what is there.

    >>> printable("a\x00b"), printable("user\u202egpj.exe")
    ('a\ufffdb', 'user\ufffdgpj.exe')
    """
    return "".join(sign if _has_place(sign) else "\ufffd" for sign in value)


def _has_place(sign: str) -> bool:
    # Of format signs the two joiners have a place: scripts and emoji need them.
    if sign in "\n\t\u200c\u200d":
        return True
    hidden = unicodedata.category(sign) in {"Cc", "Cf", "Cs", "Zl", "Zp"}
    return not hidden and ord(sign) & 0xFFFE != 0xFFFE and not "\ufdd0" <= sign <= "\ufdef"


def as_json(value: object, *, indent: int | None = None) -> str:
    r"""As JSON; what JSON lacks as text."""
    return json.dumps(value, indent=indent, default=str, ensure_ascii=False)


def p_value(value: float | None) -> str:
    r"""A p-value, rounded up; "none" of a test without one."""
    return "none" if value is None else shown_p_value(value)


STYLE: Final = """
:root { color-scheme: light dark; --paper: #ffffff; --ink: #1b1f24; --soft: #57606a;
  --faint: #d0d7de; --panel: #f6f8fa; --a: #0072b2; --b: #c04a00; --mark: #fff3c4;
  --refuted: #b3261e; --open: #7a5b00; --proven: #0b6b3a; --failed: #6b2fa0; }
@media (prefers-color-scheme: dark) { :root { --paper: #14171a; --ink: #e6e8ea; --soft: #a2abb4;
  --faint: #3a424a; --panel: #1d2227; --a: #56b4e9; --b: #f0a020; --mark: #3d3820;
  --refuted: #ff8f85; --open: #e8c35a; --proven: #63d297; --failed: #c9a4f5; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); line-height: 1.5;
  font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif; }
main { max-width: 50rem; margin: 0 auto; padding: 1.5rem 1rem 3rem; }
h1 { font-size: 1.35rem; line-height: 1.3; margin: 0 0 1rem; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 2.2rem 0 .6rem; padding-bottom: .2rem;
  border-bottom: 1px solid var(--faint); }
code, pre { font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; }
code { font-size: .95em; overflow-wrap: anywhere; unicode-bidi: isolate; }
pre { background: var(--panel); border: 1px solid var(--faint); border-radius: .3rem;
  margin: .6rem 0; padding: .6rem .8rem; font-size: .85rem; white-space: pre-wrap;
  overflow-wrap: anywhere; }
pre.copy { user-select: all; }
.kind, .note, figcaption { color: var(--soft); font-size: .9rem; }
header .kind { margin: 0; }
.verdict { border: 1px solid; border-left-width: .5rem; border-radius: .3rem; padding: .7rem 1rem;
  background: var(--panel); }
.verdict p { margin: .2rem 0; color: var(--ink); }
.verdict .word { font-size: 1.35rem; line-height: 1.25; color: inherit; }
.refuted { color: var(--refuted); } .open { color: var(--open); }
.proven { color: var(--proven); } .failed { color: var(--failed); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .3rem 1.2rem; margin: 1rem 0; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
.warnings li { border-left: .25rem solid var(--open); padding-left: .6rem; list-style: none;
  margin: .4rem 0; }
.warnings, .findings { padding-left: 0; list-style: none; } .findings li { margin: .6rem 0; }
.wide { overflow-x: auto; margin: .6rem 0; }
table { border-collapse: collapse; font-size: .92rem; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .3rem 1.2rem .3rem 0; border-bottom: 1px solid var(--faint);
  vertical-align: top; }
tbody th { font-weight: normal; } thead th { color: var(--soft); font-weight: 600; }
figure { margin: .6rem 0; }
svg.figure { display: block; stroke-linejoin: round; stroke-linecap: butt;
  width: 100%; max-width: 42rem; height: auto; }
svg.figure text { font-family: inherit !important; }
details { margin: .8rem 0; } summary { cursor: pointer; color: var(--soft); }
@media (max-width: 32rem) { dl { grid-template-columns: 1fr; gap: 0; }
  dd { margin-bottom: .5rem; } }
@media print { :root { --paper: #ffffff; --ink: #000000; --soft: #444444; --faint: #bbbbbb;
  --panel: #ffffff; --a: #0072b2; --b: #c04a00; --mark: #fff3c4; --refuted: #b3261e;
  --open: #7a5b00; --proven: #0b6b3a; --failed: #6b2fa0; }
  main { max-width: none; padding: 0; } figure, .verdict, tr { break-inside: avoid; }
  h2 { break-after: avoid; } details:not([open]) { display: none; } }
"""
