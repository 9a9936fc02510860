r"""Generate the navigation, the commands and the public names for the site.

The commands come from the parser of ``dpcore`` itself and the names from ``__all__``, so that pages
cannot differ from the code. ``docs/conf.py`` appends each part to its page.
"""

from __future__ import annotations

import inspect
import re
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from typer.main import get_command

from dpcore.cli.app import app

HERE = Path(__file__).parent
FOLDERS = ("docs/proofs/", "docs/decisions/")  # a README that lists the other pages of its folder
PACKAGES = ("dpcore", "accounting", "audit", "bandits")
_HOST = r"""((?:https?:)?//[^"' >)]+)"""
_ASSET = re.compile(
    r"""<(?:script|img|link|iframe|source|video|embed)\b[^>]*?\b(?:src|href)=["']?"""
    rf"""{_HOST}|url\(\s*["']?{_HOST}|@import\s+["']{_HOST}"""
)


def navigation() -> dict[str, list[str]]:
    """The pages under each caption."""
    text = (HERE / "navigation.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def appended(page: str) -> str:
    """The generated Markdown for the end of a page; empty for most pages."""
    if page == "docs/index":
        return "".join(_toctree(caption, pages) for caption, pages in navigation().items())
    if page == "docs/reference/commands":
        return "".join(_command(path, command) for path, command in commands())
    folder, _, name = page.rpartition("/")
    if folder == "docs/reference" and name in PACKAGES:
        return _names(name)
    if f"{folder}/" in FOLDERS and name == "README":
        listed = sorted(path.stem for path in (HERE.parent / folder).glob("[!R]*.md"))
        return _toctree("", [f"{folder}/{stem}" for stem in listed])
    return ""


def external_assets(text: str) -> list[str]:
    """The addresses on other hosts that a page or style sheet would load; links are not loaded."""
    return ["".join(found) for found in _ASSET.findall(text)]


def _toctree(caption: str, pages: list[str]) -> str:
    named = f":caption: {caption}\n" if caption else ""
    listed = "\n".join(f"/{page}" for page in pages)
    return f"\n```{{toctree}}\n:hidden:\n{named}\n{listed}\n```\n"


def commands(command: Any = None, path: tuple[str, ...] = ("dpcore",)) -> Iterator[tuple[str, Any]]:
    """All commands that the help lists, each group before its members."""
    command = get_command(app) if command is None else command
    yield " ".join(path), command
    for name in getattr(command, "list_commands", lambda _: [])(None):
        member = command.get_command(None, name)
        if not member.hidden:
            yield from commands(member, (*path, name))


def _command(path: str, command: Any) -> str:
    # `dpcore audit TARGET` is a command without a name of its own inside the group.
    shown = command.get_command(None, "run") if path == "dpcore audit" else command
    arguments = [one for one in shown.params if one.param_type_name == "argument"]
    options = [one for one in shown.params if one.param_type_name == "option" and not one.hidden]
    usage = " ".join([path, *(one.metavar or one.name.upper() for one in arguments)])
    text = f"\n## `{path}`\n\n```text\n{usage}{' [OPTIONS]' if options else ''}\n```\n\n"
    text += "\n\n".join(_escaped(part) for part in (shown.help or "").split("\n\n")) + "\n"
    if arguments or options:
        text += "\n| argument or option | meaning |\n|---|---|\n"
    for one in arguments:
        text += f"| `{one.metavar or one.name.upper()}` | {_cell(one)} |\n"
    for one in options:
        spelled = ", ".join([*one.opts, *one.secondary_opts])
        text += f"| `{spelled}{f' {one.metavar}' if one.metavar else ''}` | {_cell(one)} |\n"
    return text


def _cell(parameter: Any) -> str:
    needed = " **Required.**" if parameter.required else ""
    return _escaped(parameter.help or "").replace("|", "\\|").replace("\n", " ") + needed


def _escaped(text: str) -> str:
    # The help has markup for a terminal: [bold]…[/bold] becomes code, other characters are text.
    text = text.replace("[bold]", "`").replace("[/bold]", "`").replace("\\[", "[")
    parts = text.split("`")
    for i in range(0, len(parts), 2):
        for sign in "*_<[":
            parts[i] = parts[i].replace(sign, f"\\{sign}")
    return "`".join(parts)


def _names(package: str) -> str:
    """A section for each kind of public name: classes, then functions, in alphabetical order."""
    module = import_module(package)
    sections: dict[str, list[str]] = {"Classes": [], "Functions": [], "Errors": [], "Types": []}
    for name in sorted(module.__all__):
        value = getattr(module, name)
        if not inspect.getdoc(value):
            raise ValueError(f"{package}.{name} has no docstring")
        if not inspect.isclass(value):
            kind, directive = (
                ("Functions", "autofunction") if inspect.isroutine(value) else ("Types", "autodata")
            )
        elif issubclass(value, BaseException):
            kind, directive = "Errors", "autoexception"
        else:
            kind, directive = "Classes", "autoclass"
        members = "\n   :members:\n   :inherited-members: tuple, Exception" * (kind == "Classes")
        sections[kind].append(f".. {directive}:: {package}.{name}{members}\n")
    return "".join(
        f"\n## {title}\n\n```{{eval-rst}}\n" + "\n".join(entries) + "```\n"
        for title, entries in sections.items()
        if entries
    )
