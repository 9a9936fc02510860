r"""Audit the corpus of real failures by dpcore and by other auditors.

``python -m benchmarks.auditing.peers_on_corpus [NAME ...] [--peer PEER=/path/to/python ...]
[--cache FOLDER] [--jobs 2]`` needs access to a package index. Without names it writes
``results/corpus.json``.

Each failure and each twin is audited by ``dpcore audit corpus``. Then the same number of runs is
drawn once more, and each ``--peer`` audits these outputs by ``benchmarks/auditing/peer_programs``.
PEER is the name of the distribution that the interpreter must have: jax-privacy, dpsniper,
dp-auditorium or dp-recorder. A peer finds a failure if its lower bound at level alpha exceeds the
claim, and raises a false alarm if this happens for a twin. Peers do not support claimed curves.

``seconds`` include the sampling for dpcore, but not for the peers.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from fractions import Fraction
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any, Final

from joblib import Parallel, delayed

from audit.claims import Claim, read_claim
from audit.errors import TargetFailed
from audit.published_failures.corpus_entry import ROLES, Entry, Role, entries, find
from audit.published_failures.environment import Environment, Worker, cache_folder
from audit.published_failures.judge import Answer, judge
from benchmarks.auditing.harness import ALPHA
from benchmarks.auditing.peers import PEERS, Peer, Question
from benchmarks.machine import write
from dpcore.numbers.rounding import down

__all__ = ["main", "page_counts", "page_table"]

_BLOCK: Final = 1000
_SEED: Final = 1
_SAYS: Final[dict[Role, tuple[str, str]]] = {
    "broken": ("missed", "found"),
    "twin": ("silent", "false alarm"),
}


def drawn(entry: Entry, role: Role, python: Path) -> tuple[list[str], list[str]]:
    r"""Draw half of the entry's runs on each dataset."""
    sides: tuple[list[str], list[str]] = ([], [])
    with Worker(f"{entry.name} ({role})", python, entry.sides[role].code) as worker:
        worker.begin()
        for world, side in enumerate(sides):
            while len(side) < entry.runs // 2:
                size = min(_BLOCK, entry.runs // 2 - len(side))
                seed = _SEED + 2 * len(side) + world
                request = {"dataset": entry.pair[world], "n": size, "seed": seed}
                side.extend(worker.ask(request, size, "AB"[world], None))
    return sides


def question(entry: Entry, role: Role, cache: Path) -> Question | str:
    r"""The question about one side for the peers, or the reason why they do not support it."""
    claim = read_claim(entry.sides[role].claim, entry.relation)
    if not isinstance(claim, Claim):
        return "the claim is a curve"
    environment = Environment(
        requires=entry.sides[role].requires, newest_python=entry.python, alone=entry.alone
    )
    try:
        sides = drawn(entry, role, environment.python(cache))
    except TargetFailed as error:
        return str(error.reason)
    epsilon, delta = map(float, claim.exact)
    return Question.of_json(sides, epsilon, delta)


def by_peer(
    peer: Peer, python: str, asked: Sequence[tuple[Role, Question | str]]
) -> tuple[str, list[dict[str, Any]]]:
    r"""The version of a peer, and its result for each side in the format of :func:`by_dpcore`."""
    refused = [each if isinstance(each, str) else peer.refuses(each) for _, each in asked]
    says: list[dict[str, Any]] = [{"says": f"not asked: {why}"} for why in refused]
    taken = [
        (i, role, each)
        for i, (role, each) in enumerate(asked)
        if isinstance(each, Question) and refused[i] is None
    ]
    told = peer.ask(python, [each for *_, each in taken], seed=_SEED)
    answers = zip(taken, told["answers"], told["seconds"], strict=True)
    for (i, role, each), answer, seconds in answers:
        over = answer.get("epsilon_lower", 0.0) > each.epsilon
        over = over or answer.get("delta_lower", 0.0) > each.delta
        says[i] = {"says": _SAYS[role][over], **answer, "seconds": seconds}
    return str(told["version"]), says


def by_dpcore(result: Answer, role: Role) -> dict[str, Any]:
    r"""The result of ``dpcore audit corpus`` for one side: found, missed, false alarm or silent."""
    return {
        "says": _SAYS[role][result.verdict == "refuted"] if result.error is None else result.error,
        "epsilon_lower": result.epsilon_lower,
        "seconds": round(result.seconds, 2),
    }


def page_table(rows: Sequence[Mapping[str, Any]]) -> str:
    r"""The Markdown table of docs/corpus.md with all failures, and the false alarms on twins.

    >>> ours, theirs = {"says": "found", "epsilon_lower": 1.5}, {"says": "missed", "delta_lower": 0}
    >>> row = {"name": "x", "runs": 9, "broken": {"dpcore": ours, "peer": theirs}}
    >>> print(page_table([row]).splitlines()[-1])
    | `x` | 9 | found, 1.5 | missed, delta 0 |
    """
    names = list(rows[0]["broken"])
    lines = [f"| entry | runs | {' | '.join(names)} |", "|---" * (2 + len(names)) + "|"]
    for row in rows:
        cells = []
        for name in names:
            alarm = row.get("twin", {}).get(name, {"says": ""})
            cell = _cell(row["broken"][name])
            cells.append(cell + (f"; {_cell(alarm)}" if alarm["says"] == "false alarm" else ""))
        lines.append(f"| `{row['name']}` | {row['runs']:,} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(said: Mapping[str, Any]) -> str:
    for quantity, label in (("epsilon_lower", ""), ("delta_lower", "delta ")):
        if said.get(quantity) is not None:
            return f"{said['says']}, {label}{down(Fraction(said[quantity]), 3)}"
    return str(said["says"])


def page_counts(found: Mapping[str, Any]) -> str:
    r"""The table of docs/corpus.md with the counts of findings and false alarms per auditor."""
    lines = [
        "| auditor | found | missed | not asked | false alarms | twins | seconds | lines |",
        "|---|---|---|---|---|---|---|---|",
    ]
    to_ask = {"dpcore": 1} | {peer.name: peer.lines for peer in PEERS}
    for name, known in found["auditors"].items():
        sides = {role: [row[role][name] for row in found["rows"] if role in row] for role in ROLES}
        says = [each["says"] for side in sides.values() for each in side]
        seconds = [e["seconds"] for side in sides.values() for e in side if "seconds" in e]
        cells = (
            f"{name} {known}",
            says.count("found"),
            says.count("missed"),
            sum(each["says"].startswith("not asked") for each in sides["broken"]),
            says.count("false alarm"),
            sum(says.count(word) for word in _SAYS["twin"]),
            f"{median(seconds or [0.0]):.1f}",
            to_ask[name],
        )
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--peer", action="append", default=[], metavar="PEER=PYTHON")
    parser.add_argument("--cache", type=Path, default=cache_folder())
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    pythons = dict(each.split("=", 1) for each in options.peer)
    chosen = tuple(map(find, options.names)) or entries()
    audits = judge(
        chosen, cache=options.cache, keep=True, alpha=str(ALPHA), seed=_SEED, jobs=options.jobs
    )
    rows: list[dict[str, Any]] = [{"name": entry.name, "runs": entry.runs} for entry in chosen]
    for row, judged in zip(rows, audits.rows, strict=True):
        for role, result in zip(judged.entry.sides, judged.results.values(), strict=True):
            row[role] = {"dpcore": by_dpcore(result, role)}
    sides = [
        (entry, role, row[role])
        for entry, row in zip(chosen, rows, strict=True)
        for role in entry.sides
    ]
    asked = Parallel(n_jobs=options.jobs)(
        delayed(question)(entry, role, options.cache) for entry, role, _ in sides
    )
    auditors = {"dpcore": version("dpcore")}
    for peer in (peer for peer in PEERS if peer.name in pythons):
        roles = [role for _, role, _ in sides]
        auditors[peer.name], says = by_peer(
            peer, pythons[peer.name], list(zip(roles, asked, strict=True))
        )
        for (*_, said), each in zip(sides, says, strict=True):
            said[peer.name] = each
    found = {"alpha": ALPHA, "auditors": auditors, "rows": rows}
    if not options.names:
        write("corpus", found)
    print(page_counts(found), page_table(rows), sep="\n", file=sys.stderr)


if __name__ == "__main__":
    main()
