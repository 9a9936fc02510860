r"""Assemble an audit from its spec, and run it: the one way for Python, commands, tests and corpus.

spec      what was asked for, as data     audit.spec.AuditSpec
Audit     target, claim, pairs and features found; refused by name where they are not
run()     the search for a pair, where one is asked for, then the layers of audit.layers
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from audit.claims.verdicts import INTERRUPTED, cause_of
from audit.errors import TargetFailed
from audit.features.feature import Feature, read_feature
from audit.layers import run_layers
from audit.report.report import AuditReport
from audit.runs.block import Plan
from audit.spec import AuditSpec
from audit.targets.neighbours import doubts, pairs_of
from audit.targets.spelling import target_of
from audit.targets.target import Catalogued, KnownLaw, Target, claim_of
from dpcore.errors import ABSENT, InvalidParameter

if TYPE_CHECKING:
    from audit.search.search import Found

Progress = Callable[[int], None]
_RUNS: Final = 100_000
_MOST_RUNS: Final = 1_000_000
# The layers that read a field: without one of them it would have no effect.
_READERS: Final[dict[str, tuple[str, ...]]] = {
    "search": ("sample",),
    "features": ("sample",),
    "floats": ("sample",),
    "baselines": ("sample",),
    "resume": ("sample",),
    "resolution": ("sample", "exact"),
    "runs": ("sample", "fit"),
    "sequential": ("sample", "fit"),
    "deadline": ("sample", "fit", "replay", "exact"),
}


class Audit:
    r"""An audit that is ready to run: the target, claim, pairs, features and layers of its spec.

    ``feature`` reads a feature from its name, as ``read_feature`` does unless another is given.

    >>> spec = AuditSpec(target="discrete-laplace:scale=1", claim="epsilon=1", pair=(0, 1), seed=7)
    >>> report = Audit(spec).run()
    >>> report.verdict, [layer.layer for layer in report.layers]
    ('proven', ['exact'])

    Raises :class:`InvalidParameter` by the name of the field, and :class:`TargetFailed` for a
    target whose file fails while it is imported.
    """

    def __init__(
        self, spec: AuditSpec, *, feature: Callable[[str], Feature] = read_feature
    ) -> None:
        if spec.target is None:
            raise InvalidParameter("target", ABSENT, "must be given")
        self.spec = spec
        self.target = target = target_of(spec.target, seeded=spec.seed is not None)
        own = target.subject.features if isinstance(target, Catalogued) else ()
        features = [each if isinstance(each, Feature) else feature(each)
                    for each in spec.features or own]  # fmt: skip
        for each in features:
            if spec.floats == "ignore" and cause_of(each.name) == "floating-point":
                reason = f"leaves out what the feature {each.name} reads"
                raise InvalidParameter("floats", spec.floats, reason)
        claim = claim_of(target, spec.claim, spec.relation)
        searched = spec.search is not None
        pairs = pairs_of(
            target, spec.pair, spec.pairs, searched=searched, relation=claim.relation
        ) or ((None, None),)
        self.baselines: tuple[str, ...] = ()
        if spec.baselines:
            # scipy.stats takes half a second
            from audit.evidence.baselines import baseline_names

            self.baselines = baseline_names(spec.baselines)
        self.space = None
        if spec.search is not None:
            from audit.search.spelling import read_space

            self.space = read_space(spec.search, claim.relation)
        self.layers = _layers_of(target, spec)
        derived: dict[str, Any] = {
            "claim": claim,
            "pair": pairs[0],
            "pairs": pairs,
            "features": tuple(features),
            "runs": spec.runs or (_MOST_RUNS if spec.sequential else _RUNS),
            "seed": _seed_of(spec),
        }
        self.plan = Plan(**{each.name: getattr(spec, each.name) for each in fields(spec)} | derived)
        if self.space is not None and self.plan.timed:
            reason = "is for pairs that are given, not for a search"
            raise InvalidParameter("features", "time", reason)

    def run(self, progress: Progress | None = None, *, figures: bool = False) -> AuditReport:
        r"""Audit the target by every layer; ``figures`` are those of the HTML page.

        A target that fails gives a report with ``error`` set, Ctrl-C one that is ``interrupted``.
        """
        plan, found = self.plan, None
        if self.space is not None:
            from audit.search.search import search

            found = self._kept_search() or search(self.target, plan, self.space, progress=progress)
            plan = replace(plan, pair=found.pair, pairs=(), runs=plan.runs - found.runs)
        sampled = partial(self._sampled, found=found, progress=progress, figures=figures)
        report = run_layers(self.target, plan, self.layers, sampled)
        said = () if found is not None else _doubted(self.target, plan)
        return replace(report, search=found, warnings=(*said, *report.warnings))

    def completed(self, progress: Progress | None = None) -> AuditReport:
        r"""As :meth:`run`, for a script: raises what the target failed with, and Ctrl-C."""
        report = self.run(progress)
        if report.error is not None:
            raise report.error
        if report.interrupted or report.stopped == INTERRUPTED:
            raise KeyboardInterrupt
        return report

    def _sampled(
        self,
        plan: Plan,
        *,
        found: Found | None,
        progress: Progress | None,
        figures: bool,
    ) -> AuditReport:
        from audit.sample import draw, report_of, run_baselines

        if self.spec.resume is None:
            drawn = draw(self.target, plan, progress=progress)
        else:
            from audit.resume.checkpoint import resume

            searched = None if found is None else found.to_json()
            with resume(self.spec.resume, self.target, plan, searched) as state:
                drawn = draw(self.target, plan, progress=progress, state=state)
        report = report_of(drawn)
        if drawn.runs and report.error is None and (self.baselines or figures):
            try:
                with drawn.reading():
                    report = run_baselines(report, drawn, self.baselines, figures=figures)
            except TargetFailed as failed:
                report = replace(report, verdict=None, error=failed)
        return report

    def _kept_search(self) -> Found | None:
        # What the first start of a resumed audit found: a second one tests the same pair.
        if self.spec.resume is None or self.space is None:
            return None
        from audit.resume.checkpoint import stored_search, stored_seed
        from audit.search.search import Found, training_runs

        path = str(self.spec.resume)
        held = stored_search(path)
        if held is None:
            if stored_seed(path) is None:
                return None
            raise InvalidParameter("--resume", path, "was begun without a search")
        found = Found.of_json(held)
        if found.space != self.space.spelling:
            raise InvalidParameter("--resume", path, "was begun with another search")
        most = training_runs(self.plan.runs)
        if not self.space.neighbours(*found.pair) or not 0 <= found.runs <= most:
            reason = "is damaged or hostile: it holds a search of another space"
            raise InvalidParameter("--resume", path, reason)
        self.target.check(found.pair)
        return found


def _layers_of(target: Target, spec: AuditSpec) -> tuple[str, ...]:
    # The strongest that decides, or those asked for. What only runs can answer brings the sample
    # layer with it, and what no chosen layer reads is refused.
    known = isinstance(target, KnownLaw)
    given = [name for name in _READERS if spec.given(name)]
    if spec.layers is None:
        drawn = any("exact" not in _READERS[name] for name in given)
        return ("sample",) if not known else ("exact", "sample") if drawn else ("exact",)
    layers = tuple(spec.layers)
    for layer in ("exact", "fit"):
        if layer in layers and not known:
            reason = f"{layer} needs a target of known law, such as a noise: leave {layer} out"
            raise InvalidParameter("layers", ",".join(layers), reason)
    for name in given:
        if not set(_READERS[name]) & set(layers):
            reason = f"would have no effect: it is for {' and '.join(_READERS[name])}"
            value = getattr(spec, name)
            shown = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
            raise InvalidParameter(name, shown, reason)
    return layers


def _seed_of(spec: AuditSpec) -> int:
    # A second start of a resumed audit goes on with the seed of the first.
    kept = spec.seed
    if kept is None and spec.resume is not None:
        from audit.resume.checkpoint import stored_seed

        kept = stored_seed(str(spec.resume))
    return secrets.randbits(32) if kept is None else kept


def _doubted(target: Target, plan: Plan) -> tuple[str, ...]:
    # Of the pairs that somebody wrote down; an entry of the catalogue knows its own.
    own = target.subject.pair if isinstance(target, Catalogued) else None
    several = len(plan.pairs) > 1
    return tuple(
        (f"pair {i}: " if several else "") + doubt
        for i, pair in enumerate(plan.pairs, 1)
        if pair is not own
        for doubt in doubts(pair, plan.claim.relation)
    )
