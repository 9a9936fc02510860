r"""Write the results of a command: to files, as JSON, and to the terminal."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

import typer

from audit.audit_spec import AuditSpec
from audit.formats.result import Result, Statement
from dpcore.cli.figure_file import require_matplotlib
from dpcore.cli.output_file import check_writable, write_whole
from dpcore.cli.terminal import page, printable, say
from dpcore.errors import InvalidParameter

if TYPE_CHECKING:
    pass


def print_report(text: str, warnings: Iterable[str] = ()) -> None:
    r"""Print warnings to standard error, then a report to standard output."""
    say((f"warning: {warning}" for warning in warnings), sys.stderr)
    sys.stderr.flush()
    sys.stdout.write(text)
    sys.stdout.flush()


def leave_with(
    result: Result, form: str, output: Path | None = None, html: Path | None = None
) -> NoReturn:
    r"""Write a result to the given files, print it, and exit."""
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
    r"""Audit a target in its own process, print the report, and exit."""
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
    r"""Refuse, before any run, output paths that cannot be written."""
    places: dict[Path, str] = {}
    for name, path in files.items():
        option = f"--{name}"
        if path is None:
            continue
        if name != "pairs":
            check_writable(option, path)
        if path.exists() and not path.is_file():
            if name == "resume":
                raise InvalidParameter(option, str(path), "is not a regular file")
            continue
        other = places.setdefault(path.resolve(), option)
        if other != option:
            raise InvalidParameter(option, str(path), f"is also given as {other}")
    if files["html"] is not None:
        # Fail before hours of drawing if the figures cannot be made.
        require_matplotlib("--html", str(files["html"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    r"""A result in a format, as JSON and as HTML, rendered before anything is printed."""

    result: Result
    document: str
    formatted: str
    page: str | InvalidParameter

    @classmethod
    def of(cls, result: Result, *, form: str, html: Path | None) -> Rendered:
        r"""Render all views first: the code of an output may print while the output is rendered."""
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
        r"""Write the files, then standard output; an error is raised after all were tried. The
        text is the ``statement`` of the result, in colour on a terminal, if that is set.
        """
        unwritten: InvalidParameter | None = None
        for option, path, text in (
            ("--output", output, self.document),
            ("--html", html, self.page),
        ):
            try:
                if isinstance(text, InvalidParameter):
                    raise text
                if path is not None:
                    write_whole(option, path, text)
            except InvalidParameter as error:
                unwritten = error
        coloured = statement and sys.stdout.isatty() and self.formatted
        print_report("" if coloured else self.formatted, self.result.warnings)
        if coloured:
            show(self.result.statement(), sys.stdout)
        if unwritten is not None:
            raise unwritten


def show(statement: Statement, file: TextIO) -> None:
    r"""Print a report; in colour on a colour terminal."""
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
