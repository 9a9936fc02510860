r"""Command-line options for the fields of ``AuditSpec``, and the output of results.

All commands of ``dpcore audit`` share this code. A result is printed, and written to files as JSON
or HTML.
"""

from __future__ import annotations

import secrets
import shlex
import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import Field, dataclass, fields, make_dataclass
from pathlib import Path
from typing import Any, NoReturn, TextIO

import typer

from audit.audit_spec import AuditSpec, Option
from audit.formats.result import Result, Statement
from dpcore.cli.figure_file import require_matplotlib
from dpcore.cli.files import check_writable, parse_json, write_whole
from dpcore.cli.options import argument, named, option, with_fields
from dpcore.cli.terminal import page, printable, say
from dpcore.errors import InvalidParameter
from dpcore.spec_syntax import did_you_mean


class SpecOptions:
    r"""The options of a command that are fields of :class:`audit.audit_spec.AuditSpec`.

    :func:`with_spec` makes a subclass for each command.
    """

    def given(self) -> dict[str, Any]:
        r"""The values of the options that the user gave, by the name of the field."""
        return {name: value for name, value in vars(self).items() if value not in (None, False)}


def with_spec(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    r"""Return a decorator that adds options to a command: one for each spec field in ``names``.

    Without names, all fields become options. The values of the options are passed as the command's
    parameter ``options``, a :class:`SpecOptions`.
    """
    taken = [each for each in fields(AuditSpec) if not names or each.name in names]
    options = [(each.name, *_option(each, panels=not names)) for each in taken]
    kind = make_dataclass("Options", options, bases=(SpecOptions,), kw_only=True)

    def made(command: Callable[..., None]) -> Callable[..., None]:
        command.__annotations__["options"] = kind
        return with_fields(command)

    return made


def spec_of(options: SpecOptions) -> AuditSpec:
    r"""Return the audit spec for the given options; error messages name the options."""
    given = options.given()
    with named_by_options():
        if "pair" in given:
            given["pair"] = read_pair(given["pair"])
        return AuditSpec(**given)


def seed_of(spec: AuditSpec) -> int:
    r"""The seed of the spec, or a new random seed if the spec has none."""
    return secrets.randbits(32) if spec.seed is None else spec.seed


def _option(field: Field[Any], *, panels: bool) -> tuple[Any, Any]:
    # The type and the declaration of the option for a field.
    stated: Option = field.metadata["option"]
    given = (stated.metavar, stated.help + _default(field))
    panel = {"rich_help_panel": stated.panel} if panels else {}
    if field.name == "target":
        return stated.kind | None, argument(*given, default=None)
    if field.default is False:
        return bool, option(*given, _name(field), default=False, **panel)
    typed = list[str] if field.default == () else stated.kind
    return typed | None, option(*given, *stated.names, **panel)


def _default(field: Field[Any]) -> str:
    # Only the help shows the default: an option that is not given may be set by --spec.
    default = field.default
    if default in (None, False, ()):
        return ""
    return f" (default: {default:g})" if isinstance(default, float) else f" (default: {default})"


def _name(field: Field[Any]) -> str:
    # Errors use the first name of an option, such as "-n" or "--allow-constant".
    short = [name for name in field.metadata["option"].names if name != "-j"]
    return short[0] if short else f"--{field.name.replace('_', '-')}"


def named_by_options() -> AbstractContextManager[None]:
    r"""A context in which errors about a field of a spec name the field's option instead."""
    options = {each.name: _name(each) for each in fields(AuditSpec)}
    options |= {name.lstrip("-"): name for name in options.values()}  # --feature sets ``features``
    within = {part: f"--claim: {part}" for part in ("epsilon", "delta")}
    return named(**options | within | {"target": "TARGET"})


def read_pair(texts: tuple[str, str]) -> tuple[Any, Any]:
    r"""Parse the two datasets of ``--pair`` as JSON."""
    return _dataset("A", texts[0]), _dataset("B", texts[1])


def _dataset(name: str, text: str) -> Any:
    try:
        return parse_json(text)
    except ValueError as error:
        reason = f"must be JSON, such as 3, [1, 2] or '\"text\"' ({error})"
        raise InvalidParameter(f"--pair: dataset {name}", text, reason) from None


def read_spec(path: Path) -> dict[str, Any]:
    r"""Parse the file of ``--spec``, a dict of fields: TOML, or JSON if its name ends in ``.json``.

        target = "noisy.py:count"
        claim = "epsilon=1"
        pair = [0, 1]
        runs = 1e6

    File names in the file are relative to the working folder, as on the command line.
    """
    from audit.targets.check_neighbours import read_document

    found = read_document("--spec", path)
    if not isinstance(found, dict):
        raise InvalidParameter("--spec", str(path), "must contain options, such as runs = 1000")
    known = [each.name for each in fields(AuditSpec)]
    for key in found:
        if key not in known:
            reason = f"{key} is unknown: {did_you_mean(key, known)}allowed are {', '.join(known)}"
            raise InvalidParameter("--spec", str(path), reason)
    if isinstance(found.get("pairs"), str):
        found["pairs"] = Path(found["pairs"])
    return found


def print_report(text: str, warnings: Iterable[str] = ()) -> None:
    r"""Print warnings to standard error, then a report to standard output."""
    say((f"warning: {warning}" for warning in warnings), sys.stderr)
    sys.stderr.flush()
    sys.stdout.write(text)
    sys.stdout.flush()


def leave_with(
    result: Result, form: str, output: Path | None = None, html: Path | None = None
) -> NoReturn:
    r"""Write a result to the given files, print it, and exit with the result's exit code."""
    Rendered.of(result, form=form, html=html).publish(output=output, html=html)
    raise typer.Exit(result.exit_code)


def leave_isolated(
    target: str,
    spec: AuditSpec,
    load: Callable[[], Any],
    audited: Callable[[Any], Result],
    form: str,
    options: AbstractContextManager[None],
) -> NoReturn:
    r"""Audit a target in a separate process, print the report, and exit with the report's code."""
    from audit.sandbox.child_process import error_fields, error_from_fields
    from audit.sandbox.sandboxed_target import importing, run_isolated

    def there() -> tuple[tuple[str, ...], str, int, tuple[Any, ...] | None]:
        with importing(spec.timeout):
            subject = load()
        report = audited(subject)
        error = getattr(report, "error", None)
        failed = None if error is None else error_fields(error)
        text = Rendered.of(report, form=form, html=None).formatted
        return report.warnings, text, report.exit_code, failed

    with options:
        warnings, text, code, failed = run_isolated(target, there, timeout=spec.timeout)
    print_report(text, warnings)
    if failed is not None:
        raise error_from_fields(failed)
    raise typer.Exit(code)


def check_files(**files: Path | None) -> None:
    r"""Raise an error, before any run, if an output file cannot be written or is named twice."""
    places: dict[Path, str] = {}
    for name, path in files.items():
        if path is None:
            continue
        if name != "pairs":
            check_writable(f"--{name}", path)
        if path.exists() and not path.is_file():
            if name == "resume":
                raise InvalidParameter("--resume", str(path), "is not a regular file")
            continue
        other = places.setdefault(path.resolve(), name)
        if other != name:
            reason = f"is also given as --{other}: use two files"
            raise InvalidParameter(f"--{name}", str(path), reason)
    if files["html"] is not None:
        # Fail before hours of drawing if the figures cannot be made.
        require_matplotlib("--html", str(files["html"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    r"""A result in the requested formats, all made before anything is printed."""

    result: Result
    document: str
    formatted: str
    page: str | InvalidParameter

    @classmethod
    def of(cls, result: Result, *, form: str, html: Path | None) -> Rendered:
        r"""Render a result; this can run code of output objects, which may print."""
        nothing = getattr(result, "error", None) is not None and not getattr(result, "runs", 0)
        page: str | InvalidParameter = ""
        if html is not None:
            try:
                page = result.to_html(command=shlex.join(["dpcore", *sys.argv[1:]]))
            except InvalidParameter as error:
                page = error
        return cls(
            result=result,
            document=result.to_text(),
            formatted=result.to_format(form, text="" if nothing else None),
            page=page,
        )

    def publish(self, *, output: Path | None, html: Path | None, statement: bool = False) -> None:
        r"""Write the JSON and HTML files, then print the result.

        If a file cannot be written, the error is raised at the end. With ``statement=True``, a
        terminal shows only the statement of the result, in colour.
        """
        unwritten: InvalidParameter | None = None
        for name, path, text in (("--output", output, self.document), ("--html", html, self.page)):
            try:
                if isinstance(text, InvalidParameter):
                    raise text
                if path is not None:
                    write_whole(name, path, text)
            except InvalidParameter as error:
                unwritten = error
        coloured = statement and sys.stdout.isatty() and self.formatted
        print_report("" if coloured else self.formatted, self.result.warnings)
        if coloured:
            show(self.result.statement(), sys.stdout)
        if unwritten is not None:
            raise unwritten


def show(statement: Statement, file: TextIO) -> None:
    r"""Print the statement of a report, in colour on a terminal that supports it."""
    if not file.isatty():
        file.write(page(statement.lines()))
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(file=file, highlight=False, soft_wrap=True)
    for line in map(printable, statement.lines()):
        text = Text(line)
        if line.startswith(statement.verdict):
            text.stylize(statement.style, 0, len(statement.verdict))
        console.print(text)
