r"""Compute other methods' bounds on the same runs, for comparison only.

A baseline never decides anything: the verdict and its bound come from :mod:`audit.evidence.fixed`
and :mod:`audit.evidence.anytime`. Some baselines are valid and wider, some are not valid at all and
say so; ``docs/baselines.md`` tells which, with their sources and what they are known to over-claim.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from audit.evidence.baselines.bounds import (
    Asked,
    Scores,
    bayes,
    bonferroni_thresholds,
    clopper_pearson_split,
    dkw,
    gaussian_dp,
    one_run,
    plug_in,
)
from audit.outputs.reading import read
from dpcore.errors import InvalidParameter
from dpcore.numbers.parameter import RationalLike
from dpcore.spec import did_you_mean

__all__ = [
    "BASELINES",
    "Baseline",
    "BaselineFinding",
    "baseline_names",
    "compare",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    r"""A lower bound on epsilon from outputs that are finite numbers.

    ``valid``: P(it exceeds the true epsilon) <= alpha, whatever the mechanism. ``says`` is what a
    reader has to know beside the number.
    """

    name: str
    says: str
    valid: bool
    bound: Callable[[Scores, Asked], float]

    def lower(
        self,
        outputs: object,
        worlds: object,
        *,
        delta: RationalLike = 0,
        alpha: RationalLike = "0.05",
        seed: int,
    ) -> float:
        r"""Its bound; ``worlds`` is True for B, ``seed`` draws its coins, if it has any.

        >>> from audit.outputs.worlds import draw_worlds
        >>> import numpy as np
        >>> worlds = draw_worlds(4000, np.random.default_rng(1))
        >>> 3 < BASELINES["dkw"].lower(worlds.astype(int), worlds, seed=7) < 4
        True

        Raises :class:`InvalidParameter` for outputs that are not finite numbers.
        """
        return self.bound(Scores.read(outputs, worlds), Asked.read(delta, alpha, seed))


_ALL: Final = (
    Baseline(
        name="clopper-pearson-split",
        says="event from one half of the runs, Clopper-Pearson bounds from the other",
        valid=True,
        bound=clopper_pearson_split,
    ),
    Baseline(
        name="dkw",
        says="Dvoretzky-Kiefer-Wolfowitz bands over all thresholds",
        valid=True,
        bound=dkw,
    ),
    Baseline(
        name="bonferroni-thresholds",
        says="Clopper-Pearson bounds at 32 thresholds, level shared",
        valid=True,
        bound=bonferroni_thresholds,
    ),
    Baseline(
        name="one-run",
        says="Steinke, Nasr and Jagielski 2023: the runs as canaries of one run",
        valid=True,
        bound=one_run,
    ),
    Baseline(
        name="bayes",
        says="Zanella-Beguelin et al. 2023: not a confidence bound",
        valid=False,
        bound=bayes,
    ),
    Baseline(
        name="gaussian-dp",
        says="Nasr et al. 2023: assumes the family, picks its threshold on the tested runs",
        valid=False,
        bound=gaussian_dp,
    ),
    Baseline(
        name="plug-in",
        says="ratio of frequencies: always wrong, a negative control",
        valid=False,
        bound=plug_in,
    ),
)

BASELINES: Final[Mapping[str, Baseline]] = MappingProxyType({b.name: b for b in _ALL})
r"""By name.

>>> [name for name, baseline in BASELINES.items() if not baseline.valid]
['bayes', 'gaussian-dp', 'plug-in']
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineFinding:
    r"""The bound of a baseline on the runs; ``epsilon_lower`` is None if it cannot read them."""

    name: str
    epsilon_lower: float | None
    says: str
    valid: bool


def baseline_names(asked: Iterable[str]) -> tuple[str, ...]:
    r"""The names asked for, each once and in the order of :data:`BASELINES`; "all" is all of them.

    >>> baseline_names(["plug-in", "dkw", "dkw"])
    ('dkw', 'plug-in')

    Raises :class:`InvalidParameter` for a name that is none.
    """
    given = set(asked)
    for name in sorted(given - BASELINES.keys() - {"all"}):
        hint = did_you_mean(name, BASELINES)
        reason = f"{hint}must be one of {', '.join(BASELINES)}, or all"
        raise InvalidParameter("baseline", name, reason)
    return tuple(name for name in BASELINES if name in given or "all" in given)


def compare(
    names: Iterable[str],
    outputs: object,
    worlds: object,
    *,
    delta: RationalLike = 0,
    alpha: RationalLike = "0.05",
    seed: int,
) -> tuple[BaselineFinding, ...]:
    r"""The baselines' bounds on the same runs, each at level alpha by itself.

    >>> compare(["dkw"], ["x", "y"], [False, True], seed=7)[0].says
    'cannot read these outputs: not all of them are finite numbers'
    """
    chosen = baseline_names(names)
    asked = Asked.read(delta, alpha, seed)
    if bool((read(outputs).codes >= 0).any()):
        says = "cannot read these outputs: not all of them are finite numbers"
        return tuple(
            BaselineFinding(name=name, epsilon_lower=None, says=says, valid=BASELINES[name].valid)
            for name in chosen
        )
    scores = Scores.read(outputs, worlds)
    return tuple(
        BaselineFinding(
            name=b.name, epsilon_lower=b.bound(scores, asked), says=b.says, valid=b.valid
        )
        for b in map(BASELINES.__getitem__, chosen)
    )
