r"""Search for the most revealing pair of datasets: trained on some runs, tested on others.

Candidate pairs are compared by successive halving: all candidates get the same number of runs, then
the best third of them get the same number of further runs, and so on. Then the best candidates are
compared, in the same way, with slightly changed versions of themselves. The chosen pair is a
function of the training runs alone.

**Statement.** Let the pair be chosen by :func:`search`, and tested on separate runs. If the claim
holds for all pairs of neighbours, the test refutes it with probability at most alpha. *Proof.* The
search and the test use different random streams of the seed, so their runs are independent. Given
the training runs, the pair is fixed, and the test of a fixed pair errs with probability at most
alpha. Therefore this also holds on average over the training runs. ∎
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincc, expit

from audit.claims import TRAINING, Claim
from audit.errors import TargetFailed
from audit.features.fit_score_model import learned_scores
from audit.features.parse_feature import default_features
from audit.formats.result import Facts
from audit.formats.shorten import cut
from audit.outputs.output_parser import OutputParser, Outputs, concatenate, draw_worlds
from audit.outputs.reading import Integers, read
from audit.outputs.time_limit import stdout_to_stderr
from audit.runs.draw_plan import Plan
from audit.sandbox.parallel_jobs import Drawer, check_reveals, drawer
from audit.search.neighbour_spaces import DatasetPair, Space, key, unique_pairs
from audit.statistical_tests.event import Tally
from audit.targets.target import Block, Target
from dpcore.errors import InvalidParameter
from dpcore.numbers.parameter import integer

SHARE: Final = 4
r"""The inverse of the fraction of an audit's runs that the search may use."""

STREAM: Final = 1 << 31
r"""The first word of the spawn keys of a search; the random streams of an audit never use it."""

_LEAST: Final = 1000
# The fractions of the training runs for the first candidates, and for two rounds of changed pairs.
_BRACKETS: Final = (0.6, 0.2, 0.2)
_KEPT: Final = 3  # one candidate in three is kept
_FEWEST: Final = 650  # runs per candidate, if there are enough
_SOME: Final = 8
_SCARCE: Final = 150
_RANDOM: Final = 4  # one first candidate in four is random
_SHUFFLES: Final = 4
_POINTS: Final = 3
_SHOWN: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate(Facts):
    r"""A candidate pair of datasets, the number of its training runs, and its score.

    The score orders candidates and is not a bound. It estimates, from runs on the pair, how far the
    fraction of right guesses of the dataset can exceed q = e^epsilon/(1 + e^epsilon), the claim's
    maximum for delta = 0. Let r be the rate of right guesses for outputs in the same cell as the
    output of a run, and E the mean over the posterior distribution of r. From the mean over runs of
    E[max(0, r - q)], its value expected by chance and delta/(1 + e^epsilon) are subtracted. The
    result is multiplied by sqrt(runs). The score is the largest such product over all features and,
    for a claimed curve, over three of its points.
    """

    pair: DatasetPair
    runs: int
    score: float

    @classmethod
    def of_json(cls, held: Any) -> Candidate:
        r"""Parse the result of :meth:`to_json`. Raises ValueError if it is invalid."""
        match held:
            case {"pair": [a, b], "runs": int(runs), "score": float(score)} if math.isfinite(score):
                return cls(pair=(a, b), runs=runs, score=score)
        raise ValueError("expected the keys pair, runs and score, where score is finite")


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult(Facts):
    r"""The result of a search: the chosen pair of datasets, and all candidates.

    ``runs`` is the total number of training runs. ``tried`` contains the chosen candidate, and then
    the others by their number of runs.
    """

    space: str
    pair: DatasetPair
    runs: int
    tried: tuple[Candidate, ...]

    @classmethod
    def of_json(cls, held: Any) -> SearchResult:
        r"""Parse the result of :meth:`to_json`. Raises ValueError if it is invalid."""
        match held:
            case {"space": str(space), "pair": [a, b], "runs": int(runs), "tried": list(tried)}:
                every = tuple(map(Candidate.of_json, tried))
                return cls(space=space, pair=(a, b), runs=runs, tried=every)
        raise ValueError("not a search result")


def training_runs(runs: int) -> int:
    r"""How many of an audit's ``runs`` (at least 1000) a search may use; the test uses the rest."""
    if integer("runs", runs) < _LEAST:
        raise InvalidParameter(
            "runs", runs, f"must be >= {_LEAST:,}, to leave enough runs for both search and test"
        )
    return runs // SHARE


def search(
    target: Target, plan: Plan, space: Space, *, progress: Callable[[int], None] | None = None
) -> SearchResult:
    r"""Choose the pair of datasets that best reveals a violation of the plan's claim.

    The search draws at most ``training_runs(plan.runs)`` runs; the other runs of the plan remain
    for the test. If the target uses only the randomness that it is given, the same arguments give
    the same pair, for any ``plan.jobs``. As in the test, ``plan.features`` or the default features
    are applied to outputs. ``progress`` is called with the number of runs so far.
    """
    budget = training_runs(plan.runs)
    rng = np.random.default_rng(np.random.SeedSequence(plan.seed, spawn_key=(STREAM, 0)))
    with stdout_to_stderr(), drawer(target, plan.jobs, plan.timeout, progress) as draws:
        trainer = _Trainer(target=target, plan=plan, draws=draws)
        shares = [int(budget * share) for share in _BRACKETS]
        best = trainer.bracket(_first(space, _width(shares[0]), rng), shares[0])
        for share in shares[1:]:
            best = trainer.bracket(_changed(space, best, _width(share), rng), share)
    rest = [tried for tried in trainer.tried.values() if tried is not best[0]]
    return SearchResult(
        space=space.spelling,
        pair=best[0].pair,
        runs=trainer.drawn,
        tried=(best[0], *sorted(rest, key=lambda tried: (-tried.runs, -tried.score))),
    )


def _width(runs: int) -> int:
    # The number of candidates of a bracket (one successive halving), whose first round uses about a
    # third of its runs. If runs are scarce, several candidates matter more than precision.
    return max(2, min(_SOME, runs // _SCARCE), runs // (_KEPT * _FEWEST))


def _first(space: Space, width: int, rng: np.random.Generator) -> list[DatasetPair]:
    # The classic patterns, and some random pairs.
    classic = islice(space.patterns(), width - width // _RANDOM)
    drawn = (space.draw(rng) for _ in range(4 * width))
    return list(islice(unique_pairs(chain(classic, drawn)), width))


def _changed(
    space: Space, best: Sequence[Candidate], width: int, rng: np.random.Generator
) -> list[DatasetPair]:
    # The best candidates, and changed copies of each in turn.
    old = [tried.pair for tried in best]
    new = (space.mutate(old[i % len(old)], rng) for i in range(4 * width))
    return list(islice(unique_pairs(chain(old, new)), width))


@dataclass(slots=True, kw_only=True)
class _Trainer:
    # Draws runs and scores candidates; ``tried`` contains the last score of each.
    target: Target
    plan: Plan
    draws: Drawer
    drawn: int = 0
    blocks: int = 0
    runs: dict[str, _Runs] = field(default_factory=dict)
    tried: dict[str, Candidate] = field(default_factory=dict)

    def bracket(self, pairs: list[DatasetPair], runs: int) -> list[Candidate]:
        # Successive halving; returns the last few candidates, the best one first. Runs of earlier
        # brackets count too, so a changed pair must beat candidates with more runs.
        for pair in pairs:
            self.target.check(pair)
        rungs = max(1, round(math.log(len(pairs), _KEPT)))
        left = [self.runs.setdefault(key(pair), _Runs(pair=pair)) for pair in pairs]
        for rung in range(rungs):
            each = runs // (rungs * len(left))
            self._more(left, each)
            scored = [self._score(candidate) for candidate in left]
            order = sorted(range(len(left)), key=lambda i: -scored[i].score)
            kept = max(_KEPT, -(-len(left) // _KEPT)) if rung < rungs - 1 else _KEPT
            self.tried.update((key(tried.pair), tried) for tried in scored)
            best = [scored[i] for i in order[:kept]]
            left = [left[i] for i in order[:kept]]
        return best

    def _more(self, candidates: list[_Runs], each: int) -> None:
        blocks = [self._block(candidate.pair, each, i) for i, candidate in enumerate(candidates)]
        for candidate, block, drawing in zip(
            candidates, blocks, self.draws.draw(blocks), strict=True
        ):
            if drawing.error is not None:
                failed = check_reveals(drawing.error, block, self.draws)
                raise _with_dataset(failed, candidate.pair) from drawing.error
            if drawing.interrupted:
                raise KeyboardInterrupt
            candidate.outputs.append(drawing.outputs)
            candidate.worlds.append(block.worlds)
        self.drawn += each * len(candidates)
        self.blocks += len(candidates)

    def _block(self, pair: DatasetPair, runs: int, place: int) -> Block:
        number = self.blocks + place
        datasets, seed_a, seed_b, mixing = (
            np.random.SeedSequence(self.plan.seed, spawn_key=(STREAM, 1, number, purpose))
            for purpose in range(4)
        )
        return Block(
            pair=pair,
            worlds=draw_worlds(runs, np.random.default_rng(datasets)),
            seeds=(seed_a, seed_b),
            mixing=mixing,
            drawn=self.drawn + place * runs,
            timeout=self.plan.timeout,
        )

    def _score(self, candidate: _Runs) -> Candidate:
        outputs, worlds = concatenate(candidate.outputs), np.concatenate(candidate.worlds)
        form = OutputParser.learn(outputs, worlds, lines=self.target.lines)
        values = form.apply(outputs)
        score = max(
            self._of_view(view, worlds[-len(view) :]) * math.sqrt(len(view))
            for view in self._views(values, worlds)
        )
        return Candidate(pair=candidate.pair, runs=len(worlds), score=score)

    def _views(self, values: Outputs, worlds: NDArray[np.bool_]) -> Iterator[Outputs]:
        # Learned scores are computed for the second half of the runs, and learned from the first
        # half.
        half, floats = len(worlds) // 2, self.plan.floats == "test"
        found: dict[str, Any] | None = None
        features = self.plan.features
        if not features:
            yield values
            some = default_features(values[:TRAINING], floats=floats)
            features = tuple(feature for feature in some if feature.name != "identity")
        for feature in features:
            seen = feature.viewed(values)
            if feature.learner is None:
                yield seen
                continue
            if found is None or feature.name != feature.learner:
                found = learned_scores(seen, worlds, [half, len(worlds)])[0]
            yield found[feature.learner][half:]

    def _of_view(self, outputs: Outputs, worlds: NDArray[np.bool_]) -> float:
        counts = Tally.empty().add(read(outputs), worlds).cells().counts
        shuffle = np.random.SeedSequence(self.plan.seed, spawn_key=(STREAM, 2))
        return _advantage(counts, self.plan.claim.points, np.random.default_rng(shuffle))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Runs:
    pair: DatasetPair
    outputs: list[Outputs] = field(default_factory=list)
    worlds: list[NDArray[np.bool_]] = field(default_factory=list)


def _advantage(counts: Integers, points: Sequence[Claim], rng: np.random.Generator) -> float:
    # The score without the factor sqrt(runs), from counts (2, cells), at the best of a few points.
    chosen = {*np.linspace(0, len(points) - 1, _POINTS).round().astype(int).tolist()}
    runs = counts.sum(axis=0)
    shuffled = [rng.binomial(runs, 0.5) for _ in range(_SHUFFLES)]
    found = []
    for epsilon, delta in (points[i].exact for i in chosen):
        q = float(expit(float(epsilon)))
        by_chance = float(np.mean([_beyond(in_b, runs, q) for in_b in shuffled]))
        allowed = float(delta) * (1.0 - q) + by_chance
        found.append(_beyond(counts[1], runs, q) - allowed)
    return max(found)


def _beyond(in_b: Integers, runs: Integers, q: float) -> float:
    # The mean over all runs of E[(r - q)+], where r ~ Beta(right + 1/2, wrong + 1/2) for the counts
    # in the run's cell, summed over guesses of either dataset.
    total = 0.0
    for right in (in_b, runs - in_b):
        a, b = right + 0.5, runs - right + 0.5
        mean = a / (a + b)
        gain = mean * betaincc(a + 1.0, b, q) - q * betaincc(a, b, q)
        total += float((runs * gain).sum())
    return total / max(int(runs.sum()), 1)


def _with_dataset(failed: TargetFailed, pair: DatasetPair) -> TargetFailed:
    # The error shows the dataset, because a search tries many datasets.
    datasets = [cut(json.dumps(dataset), _SHOWN) for dataset in pair]
    place = (
        " or ".join(datasets) if failed.dataset is None else datasets["AB".index(failed.dataset)]
    )
    reason = f"in the search, on the dataset {place}: {failed.reason}"
    place_of: dict[str, Any] = {"dataset": failed.dataset, "run": failed.run}
    return TargetFailed(failed.target, reason, **place_of, reveals=failed.reveals)
