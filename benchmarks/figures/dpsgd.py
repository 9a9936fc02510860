r"""The picture of the page "What does DP-SGD cost?": epsilon against epochs by dpcore and others.

``python -m benchmarks.figures.dpsgd --output docs/figures``. Batches of 256 of 60,000 examples,
Poisson, at delta 1e-5, for several noise multipliers. The computation is deterministic.
"""

from __future__ import annotations

import argparse
from fractions import Fraction
from pathlib import Path
from typing import Final

from accounting.cli.training import draw_epochs, over_epochs
from accounting.composition.training_run import TrainingRun

__all__ = ["NAME", "draw_dpsgd"]

NAME: Final = "dpsgd.svg"
_MULTIPLIERS: Final = ("0.8", "1.1", "2")
_BATCH: Final = 256
_EXAMPLES: Final = 60_000
_EPOCHS: Final = 100
_DELTA: Final = "1e-5"


def draw_dpsgd(folder: Path, *, epochs: int = _EPOCHS) -> None:
    r"""Write the picture into ``folder``; dp-accounting must be installed for its two lines.

    Raises :class:`InvalidParameter` if the picture cannot be written.
    """
    lines = [
        over_epochs(
            TrainingRun(
                noise_multiplier=multiplier, batch_size=_BATCH, examples=_EXAMPLES, epochs=epochs
            ),
            Fraction(_DELTA),
        )
        for multiplier in _MULTIPLIERS
    ]
    title = f"DP-SGD: Poisson batches of {_BATCH} of {_EXAMPLES:,} examples, delta = {_DELTA}"
    draw_epochs(folder / NAME, lines, title=title)


def main() -> None:
    r"""Draw the picture of docs/cost_of_dpsgd.md."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.figures.dpsgd", description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("docs/figures"), help="a folder")
    draw_dpsgd(parser.parse_args().output)


if __name__ == "__main__":
    main()
