r"""The command ``dpcore audit bench``: every broken mechanism and every correct twin."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from audit.audit_spec import read_seed
from audit.cli.options import SpecOptions, spec_of, with_spec
from audit.cli.output import leave_with
from audit.formats.junit_and_sarif import format_of
from dpcore.cli.files import check_writable
from dpcore.cli.options import AsFormat, AsJson, Format, argument, flag, option
from dpcore.cli.terminal import progress_bar
from dpcore.errors import InvalidParameter
from dpcore.spec_syntax import did_you_mean

if TYPE_CHECKING:
    from audit.broken_mechanisms import Entry

_QUICK: Final = 5000


@with_spec("alpha")
def bench_command(
    options: SpecOptions,
    names: list[str] | None = argument(
        "NAME",
        "Names of entries, as printed by dpcore audit catalogue. (default: all)",
        default=None,
    ),
    *,
    quick: bool = flag("Only entries that 5,000 runs refute: takes seconds.", "--quick"),
    jobs: int = option("N", "Number of processes; -1: one per core.", default=2),
    seed: str = option("N", "Seed: equal seeds give equal runs.", default="1"),
    output: Path | None = option("FILE", "Also write the JSON to a file.", "-o", "--output"),
    as_json: AsJson = False,
    form: AsFormat = Format.TEXT,
) -> None:
    r"""Test the auditor: it must catch every broken mechanism and refute no correct twin.

    Example: dpcore audit bench half-scale fixed-seed

    The catalogue gives each entry a number of runs N that refutes it in 95 of 100 audits. A broken
    mechanism is audited up to three times, with N, 2N and 4N fresh runs at a third of alpha each,
    and is caught if one audit refutes it. Its correct twin is audited once, with N runs at alpha. A
    few twins may be refuted by chance: the bench fails if the probability of this number of
    refutations is below 0.001 when all claims are true. An entry that sampling cannot catch is
    tested by another layer (exact, fit or replay), and a timing leak by the clock.

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
        raise InvalidParameter("--quick", "true", "leaves no entry to audit")
    return kept, [entry for entry in entries if entry not in kept]
