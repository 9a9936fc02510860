r"""``dpcore audit corpus``: real failures of published packages, installed and audited."""

from __future__ import annotations

from pathlib import Path

from audit.cli.written import leave
from audit.wording.formats import format_of
from dpcore.command.options import (
    AsFormat,
    AsJson,
    Format,
    argument,
    command_group,
    named,
    option,
    read_jobs,
)
from dpcore.command.terminal import page
from dpcore.errors import ABSENT, InvalidParameter

__all__ = ["corpus"]

corpus = command_group(
    "corpus",
    help="Audit published packages that broke their promise. Start with dpcore audit corpus list.",
    no_args_is_help=True,
)


@corpus.command("list")
def list_entries(*, as_json: AsJson = False) -> None:
    r"""List the real failures: package, claim, truth, and the megabytes that trying it takes."""
    from audit.corpus.entry import entries
    from audit.corpus.render import entries_text, listed

    leave(entries_text(entries()) if as_json else page(listed(entries())), 0)


@corpus.command()
def show(
    name: str = argument("NAME", "An entry of dpcore audit corpus list."),
    *,
    as_json: AsJson = False,
) -> None:
    r"""Show an entry: what was claimed, what is true, who found it, and the code that shows it."""
    from audit.corpus.entry import find
    from audit.corpus.render import entries_text, shown_lines

    entry = find(name)
    leave(entries_text([entry]) if as_json else page(shown_lines(entry)), 0)


@corpus.command()
def run(
    names: list[str] | None = argument(
        "NAME", "Entries of dpcore audit corpus list.", default=None
    ),
    *,
    everything: bool = option("", "Run every entry: downloads gigabytes.", "--all", default=False),
    jobs: str = option("N", "How many processes; -1: one per core.", "-j", "--jobs", default="1"),
    keep: bool = option(
        "", "Keep the environments: the next run needs no network.", "--keep", default=False
    ),
    cache: Path | None = option(
        "FOLDER", "Where environments are made. (default: your cache folder)"
    ),
    alpha: str = option("P", "The chance of a false alarm, of each audit.", default="0.001"),
    seed: str = option("N", "Seed: the same seed gives the same coins.", default="1"),
    output: Path | None = option("FILE", "Also write the JSON to a file.", "-o", "--output"),
    as_json: AsJson = False,
    form: AsFormat = Format.TEXT,
) -> None:
    r"""Install the pinned packages and audit them: failures must be refuted, twins must not.

    Each is installed into an environment of its own, from the index that pip is set up for.

    Example: dpcore audit corpus run opendp-threshold

    Exit code: 0 all judged as they should be, 1 otherwise, 2 usage, 3 an environment failed.
    """
    printed = format_of(form, as_json=as_json)
    from audit.cli.options import read_seed
    from audit.corpus.entry import entries, find
    from audit.corpus.environment import cache_folder
    from audit.corpus.judge import judge, steps
    from dpcore.command.output_file import check_writable, write_whole
    from dpcore.command.progress import progress_bar

    check_writable("--output", output)
    if bool(names) == everything:
        reason = "takes no names: it runs every entry" if names else "must be given, or --all"
        raise InvalidParameter("--all" if names else "NAME", ABSENT, reason)
    folder = cache_folder() if cache is None else cache
    if next((path for path in (folder, *folder.parents) if path.exists()), folder).is_file():
        raise InvalidParameter("--cache", str(folder), "must be a folder")
    chosen = entries() if everything else tuple(map(find, dict.fromkeys(names or ())))
    width = read_jobs(jobs)
    with named(alpha="--alpha"), progress_bar("environments, audits", steps(chosen)) as progress:
        found = judge(
            chosen,
            cache=folder,
            keep=keep,
            alpha=alpha,
            seed=read_seed(seed),
            jobs=width,
            done=progress,
        )
    if output is not None:
        write_whole("--output", output, found.to_text())
    leave(found.to_format(printed), found.exit_code)
