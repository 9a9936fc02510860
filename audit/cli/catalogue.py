r"""Broken mechanisms: the commands ``dpcore audit catalogue``, ``bench`` and ``corpus``.

The catalogue contains mechanisms that are broken on purpose, each with a correct twin; the bench
audits all of them. The corpus contains published packages that violate a claim.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from audit.audit_spec import read_seed
from audit.claims import Claim
from audit.cli.options_and_output import SpecOptions, leave_with, print_report, spec_of, with_spec
from audit.formats.junit_and_sarif import format_of
from audit.formats.result import aligned, members, terminal_width
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
from dpcore.cli.terminal import page, progress_bar, say
from dpcore.cli.terminal import show as show_json
from dpcore.errors import ABSENT, InvalidParameter
from dpcore.spec_syntax import did_you_mean

if TYPE_CHECKING:
    from audit.broken_mechanisms import Entry

_QUICK: Final = 5000
_OUTPUT: Final = option("FILE", "Also write the JSON to a file.", "-o", "--output")


def catalogue_command(as_json: AsJson = False) -> None:
    r"""List mechanisms that are broken on purpose, each with its correct twin.

    Example: dpcore audit catalogue

    Audit one by its name: dpcore audit half-scale.
    """
    from audit.broken_mechanisms import ENTRIES

    if as_json:
        columns = members("pair", "epsilon", "delta", "relation", "sentence")
        listed = [{"name": each.name, "twin": each.twin.name, **columns(each)} for each in ENTRIES]
        show_json({"schema": "dpcore-catalogue/1", "entries": listed})
        return
    rows = []
    for entry in ENTRIES:
        claim = Claim(epsilon=entry.epsilon, delta=entry.delta, relation=entry.relation)
        rows.append((entry.name, f"{claim}. {entry.sentence} The correct twin: {entry.twin.name}."))
    say(["dpcore audit TARGET, with TARGET one of", *aligned(rows, terminal_width(), indent=0)])


@with_spec("alpha")
def bench_command(
    options: SpecOptions,
    names: list[str] | None = argument(
        "NAME",
        "Names of entries, as printed by dpcore audit catalogue. (default: all)",
        default=None,
    ),
    *,
    quick: bool = flag("Omit sampled entries that need over 5,000 runs: takes seconds.", "--quick"),
    jobs: int = option("N", "Number of processes; -1: one per core.", default=2),
    seed: str = option("N", "Seed: equal seeds give equal runs.", default="1"),
    output: Path | None = _OUTPUT,
    as_json: AsJson = False,
    form: AsFormat = Format.TEXT,
) -> None:
    r"""Test the auditor: it must catch every broken mechanism and refute no correct twin.

    Example: dpcore audit bench half-scale fixed-seed

    The catalogue states for each entry a number of runs N, with which 95 of 100 audits refute it. A
    broken mechanism is audited up to three times, with N, 2N and 4N fresh runs at a third of alpha
    each, and is caught if one audit refutes it. Its correct twin is audited once, with N runs at
    alpha. A few twins may be refuted by chance: the bench fails if the probability of at least this
    many refutations is below 0.001 when all claims are true. An entry that sampling cannot catch is
    tested by another layer (exact, fit or replay), and a timing leak by the durations of calls.

    Exit code: 0 every entry was caught and not too many twins were refuted, 1 otherwise, 2 usage.
    """
    printed, spec = format_of(form, as_json=as_json), spec_of(options)
    from audit.bench import bench

    check_writable("--output", output)
    chosen, left_out = _entries(names or [], quick=quick)
    with progress_bar("audits", 2 * len(chosen)) as progress:
        found = bench(
            chosen, alpha=spec.alpha, seed=read_seed("--seed", seed), jobs=jobs, done=progress
        )
    found = replace(found, left_out=tuple(entry.name for entry in left_out))
    leave_with(found, printed, output)


def _entries(names: list[str], *, quick: bool) -> tuple[list[Entry], list[Entry]]:
    from audit.bench import first_runs
    from audit.broken_mechanisms import ENTRIES, Layer, find

    chosen: dict[str, Entry] = {}
    for name in names:
        entry = find(name)
        if entry is None:
            hint = did_you_mean(name, [entry.name for entry in ENTRIES])
            raise InvalidParameter(
                "NAME", name, f"{hint}it must be an entry that dpcore audit catalogue lists"
            )
        chosen[name] = entry
    entries = list(chosen.values() if names else ENTRIES)
    kept = [
        entry
        for entry in entries
        if not quick or entry.layer is not Layer.SAMPLE or first_runs(entry) <= _QUICK
    ]
    if not kept:
        raise InvalidParameter("--quick", "true", "leaves no entry to audit: name other entries")
    return kept, [entry for entry in entries if entry not in kept]


corpus_commands = command_group(
    "corpus",
    help=(
        "Audit published packages that violate their privacy claim. "
        "Start with [bold]dpcore audit corpus list[/bold]."
    ),
    no_args_is_help=True,
)


@corpus_commands.command("list")
def list_entries(*, as_json: AsJson = False) -> None:
    r"""List the entries of the corpus: package, claim, true value, and size of the download."""
    from audit.published_failures.corpus_entry import entries
    from audit.published_failures.judge import entries_text, listed

    print_report(entries_text(entries()) if as_json else page(listed(entries())))


@corpus_commands.command()
def show(
    name: str = argument("NAME", "The name of an entry, as printed by dpcore audit corpus list."),
    *,
    as_json: AsJson = False,
) -> None:
    r"""Show an entry: the claim, the true value, who found it, and code that demonstrates it."""
    from audit.published_failures.corpus_entry import find
    from audit.published_failures.judge import entries_text, entry_lines

    entry = find(name)
    print_report(entries_text([entry]) if as_json else page(entry_lines(entry)))


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
    output: Path | None = _OUTPUT,
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
        reason = "runs every entry: omit the names" if names else "must be given, or use --all"
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
