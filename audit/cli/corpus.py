r"""The commands ``dpcore audit corpus``: failures of published packages."""

from __future__ import annotations

from pathlib import Path

from audit.audit_spec import read_seed
from audit.cli.options import SpecOptions, spec_of, with_spec
from audit.cli.output import leave, leave_with
from audit.formats.junit_and_sarif import format_of
from dpcore.cli.files import check_writable
from dpcore.cli.options import (
    AsFormat,
    AsJson,
    Format,
    argument,
    command_group,
    flag,
    option,
    read_jobs,
)
from dpcore.cli.terminal import page, progress_bar
from dpcore.errors import ABSENT, InvalidParameter

corpus_commands = command_group(
    "corpus",
    help="Audit published packages that violate a claim. Start with dpcore audit corpus list.",
    no_args_is_help=True,
)


@corpus_commands.command("list")
def list_entries(*, as_json: AsJson = False) -> None:
    r"""List the real failures: package, claim, true value, and size of the download."""
    from audit.published_failures.corpus_entry import entries
    from audit.published_failures.judge import entries_text, listed

    leave(entries_text(entries()) if as_json else page(listed(entries())), 0)


@corpus_commands.command()
def show(
    name: str = argument("NAME", "An entry of dpcore audit corpus list."),
    *,
    as_json: AsJson = False,
) -> None:
    r"""Show an entry: the claim, the true value, who found it, and code that demonstrates it."""
    from audit.published_failures.corpus_entry import find
    from audit.published_failures.judge import entries_text, entry_lines

    entry = find(name)
    leave(entries_text([entry]) if as_json else page(entry_lines(entry)), 0)


@corpus_commands.command()
@with_spec("alpha")
def run(
    options: SpecOptions,
    names: list[str] | None = argument(
        "NAME", "Names of entries, as printed by dpcore audit corpus list.", default=None
    ),
    *,
    everything: bool = flag("Run every entry (downloads gigabytes).", "--all"),
    jobs: str = option("N", "Number of processes; -1: one per core.", "-j", "--jobs", default="1"),
    keep: bool = flag("Keep the environments, so that the next run needs no network.", "--keep"),
    cache: Path | None = option(
        "FOLDER", "Folder of the environments. (default: your cache folder)"
    ),
    seed: str = option("N", "Seed: equal seeds give equal random choices.", default="1"),
    output: Path | None = option("FILE", "Also write the JSON to a file.", "-o", "--output"),
    as_json: AsJson = False,
    form: AsFormat = Format.TEXT,
) -> None:
    r"""Install the pinned packages and audit them: failures must be refuted, twins must not.

    Each package has its own environment, and comes from the index that pip is configured for.

    Example: dpcore audit corpus run opendp-threshold

    Exit code: 0 all verdicts are as expected, 1 otherwise, 2 usage, 3 an environment failed.
    """
    printed, spec = format_of(form, as_json=as_json), spec_of(options)
    from audit.published_failures.corpus_entry import entries, find
    from audit.published_failures.environment import cache_folder
    from audit.published_failures.judge import judge, steps

    check_writable("--output", output)
    if bool(names) == everything:
        reason = "runs every entry: give no names" if names else "must be given, or --all"
        raise InvalidParameter("--all" if names else "NAME", ABSENT, reason)
    folder = cache_folder() if cache is None else cache
    if next((path for path in (folder, *folder.parents) if path.exists()), folder).is_file():
        raise InvalidParameter("--cache", str(folder), "must be a folder")
    chosen = entries() if everything else tuple(map(find, dict.fromkeys(names or ())))
    width = read_jobs(jobs)
    with progress_bar("environments, audits", steps(chosen)) as progress:
        found = judge(
            chosen,
            cache=folder,
            keep=keep,
            alpha=spec.alpha,
            seed=read_seed("--seed", seed),
            jobs=width,
            done=progress,
        )
    leave_with(found, printed, output)
