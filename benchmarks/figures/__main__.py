r"""``python -m benchmarks.figures``: run every study and write pictures, numbers and the page."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from bandits.regret_plots import ERROR_NOTE, draw_panels
from benchmarks.figures.chowdhury_zhou import paper_figures
from benchmarks.figures.li_zhou_ji import linear_figures
from benchmarks.figures.li_zhou_ji_clients import linear_remarks
from benchmarks.figures.mslr_arms import real_rewards
from benchmarks.figures.page import page
from benchmarks.figures.returning import returning_users
from benchmarks.figures.section import Effort, Section
from benchmarks.figures.shared_experiments import Player
from benchmarks.figures.studies import equal_promises, schedules, shuffled_bits, trade_off
from dpcore.cli.figure_file import check_picture
from dpcore.cli.files import write_whole
from dpcore.cli.workers import checked_jobs
from dpcore.errors import DpcoreError, InvalidParameter
from dpcore.numbers.parameter import integer
from dpcore.spec_syntax import find_name

__all__ = ["STUDIES", "regenerate"]

STUDIES: Final[tuple[Callable[[Player], Section], ...]] = (
    paper_figures,
    real_rewards,
    schedules,
    trade_off,
    equal_promises,
    shuffled_bits,
    returning_users,
    linear_figures,
    linear_remarks,
)

WHOLE: Final = Effort(instances=20, easy=10**6, hard=10**7)
QUICK: Final = Effort(
    instances=2,
    easy=4000,
    hard=8000,
    scalings=(1, 10),
    epsilons=("0.5", "1"),
    returning=2000,
    visits=(1, 2),
    real=4000,
    linear=(1000, 3000),
    linear_epsilons=("3", "10"),
)


def regenerate(
    folder: Path,
    *,
    effort: Effort,
    seed: int,
    jobs: int,
    only: Sequence[str] = (),
    mslr: Path | None = None,
) -> dict[str, Any]:
    r"""Write all studies, or the functions that ``only`` names, into ``folder``; return the JSON.

    ``jobs`` is the number of processes, or -1 for one per core. Nothing is written before all
    studies have finished.

    Raises :class:`InvalidParameter` if the folder does not exist, a study is unknown, ``jobs`` is
    neither -1 nor >= 1, the seed is below 0, or matplotlib is not installed.
    """
    known = _studies(seed, jobs, only)
    check_picture("folder", folder / "picture.svg")
    player = Player(effort=effort, seed=seed, jobs=jobs, mslr=mslr)
    sections = [study(player) for study in known]
    note = f"{ERROR_NOTE} over {effort.instances} instances"
    for section in sections:
        for picture in section.pictures:
            path = folder / f"{picture.name}.svg"
            draw_panels(path, picture.panels, title=picture.title, note=note)
    verdicts = Counter(check.verdict for section in sections for check in section.checks)
    results = {
        "seed": seed,
        "instances": effort.instances,
        "checks": dict(sorted(verdicts.items(), reverse=True)),
        "sections": {section.name: section.to_json() for section in sections},
    }
    text = json.dumps(results, indent=1, ensure_ascii=False) + "\n"
    write_whole("folder", folder / "results.json", text)
    write_whole("folder", folder / "README.md", page(results))
    return results


def _studies(seed: int, jobs: int, only: Sequence[str]) -> list[Callable[[Player], Section]]:
    # The requested studies, each once; an unknown study is refused.
    checked_jobs(jobs)
    integer("seed", seed, at_least=0)
    known = {study.__name__: study for study in STUDIES}
    return [find_name("only", name, known) for name in dict.fromkeys(only or known)]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.figures", description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("docs/figures"), help="a folder")
    parser.add_argument("--jobs", type=int, default=2, help="processes; -1: one per core")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="short runs with two instances")
    names = [study.__name__ for study in STUDIES]
    parser.add_argument("--only", nargs="+", default=(), choices=names, metavar="STUDY",
                        help=f"of {', '.join(names)}")  # fmt: skip
    parser.add_argument("--mslr", type=Path, metavar="FILE", help="MSLR-WEB10K, for Figure 5")
    chosen = parser.parse_args()
    if chosen.quick and chosen.output == parser.get_default("output"):
        parser.error("--quick requires --output, because the committed figures are of full runs")
    if chosen.mslr and chosen.output == parser.get_default("output"):
        parser.error("--mslr requires --output, because the committed figures are of a stand-in")
    if chosen.only and chosen.output == parser.get_default("output"):
        parser.error("--only requires --output, because the committed page has all studies")
    try:
        _studies(chosen.seed, chosen.jobs, chosen.only)
        chosen.output.mkdir(parents=True, exist_ok=True)
    except InvalidParameter as error:
        parser.error(str(error))
    except OSError as error:
        parser.error(f"--output = {chosen.output}: is not a folder ({error.strerror})")
    try:
        regenerate(
            chosen.output,
            effort=QUICK if chosen.quick else WHOLE,
            seed=chosen.seed,
            jobs=chosen.jobs,
            only=chosen.only,
            mslr=chosen.mslr,
        )
    except InvalidParameter as error:
        parser.error(str(error))
    except DpcoreError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
