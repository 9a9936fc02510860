r"""Assemble an audit from its spec, and run it; shared by Python, commands, tests and corpus.

spec      the requested audit, as data    audit.audit_spec.AuditSpec
Audit     target, claim, pairs and features, resolved; an error names the invalid field
run()     the search for a pair, if requested, then the layers of audit.run_layers
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from audit.audit_spec import AuditSpec
from audit.claims.claim import Claim, CurveClaim
from audit.claims.verdicts import INTERRUPTED, cause_of, level
from audit.errors import TargetFailed
from audit.features.parse_feature import Feature, read_feature
from audit.report.audit_report import AuditReport
from audit.run_layers import run_layers
from audit.runs.draw_plan import Plan
from audit.targets.check_neighbours import doubts, pairs_of
from audit.targets.target import Catalogued, KnownLaw, Target, claim_of
from audit.targets.target_syntax import Auditable, target_of
from dpcore.cli.progress import notebook_bar
from dpcore.errors import ABSENT, InvalidParameter
from dpcore.mechanism import Relation
from dpcore.numbers.parameter import RationalLike

if TYPE_CHECKING:
    from audit.search.search import SearchResult

Progress = Callable[[int], None]
# The layers that read each field: without one of these layers, the field would have no effect.
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
    **dict.fromkeys(("sensitivity", "norm", "strict", "tapes", "changes"), ("replay",)),
}


class Audit:
    r"""A configured audit: the target, claim, pairs, features and layers of its spec.

    ``feature`` is the function that parses the name of a feature, by default ``read_feature``.

    >>> spec = AuditSpec(target="discrete-laplace:scale=1", claim="epsilon=1", pair=(0, 1), seed=7)
    >>> report = Audit(spec).run()
    >>> report.verdict, [layer.layer for layer in report.layers]
    ('proven', ['exact'])

    Raises :class:`InvalidParameter` with the name of the invalid field, and :class:`TargetFailed`
    if the import of the target fails.
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
                reason = f"contradicts the feature {each.name}, which reads floating-point digits"
                raise InvalidParameter("floats", spec.floats, reason)
        claim = claim_of(target, spec.claim, spec.relation)
        searched = spec.search is not None
        pairs = pairs_of(
            target, spec.pair, spec.pairs, searched=searched, relation=claim.relation
        ) or ((None, None),)
        self.baselines: tuple[str, ...] = ()
        if spec.baselines:
            # scipy.stats takes half a second
            from audit.statistical_tests.clopper_pearson_baselines import baseline_names

            self.baselines = baseline_names(spec.baselines)
        self.space = None
        if spec.search is not None:
            from audit.search.neighbour_spaces import read_space

            self.space = read_space(spec.search, claim.relation)
        self.layers = _layers_of(target, spec)
        derived: dict[str, Any] = {
            "claim": claim,
            "pair": pairs[0],
            "pairs": pairs,
            "features": tuple(features),
            "runs": spec.planned_runs,
            "seed": _seed_of(spec),
        }
        self.plan = Plan(**{each.name: getattr(spec, each.name) for each in fields(spec)} | derived)
        if self.space is not None and self.plan.timed:
            reason = "requires given pairs, not a search"
            raise InvalidParameter("features", "time", reason)

    def run(self, progress: Progress | None = None, *, figures: bool = False) -> AuditReport:
        r"""Run every layer; ``figures`` adds the figures of the HTML page.

        If the target fails, the report has ``error`` set; after Ctrl-C it has ``interrupted`` set.
        """
        plan, found = self.plan, None
        if self.space is not None:
            from audit.search.search import search

            found = self._kept_search() or search(self.target, plan, self.space, progress=progress)
            plan = replace(plan, pair=found.pair, pairs=(), runs=plan.runs - found.runs)
        sampled = partial(self._sampled, found=found, progress=progress, figures=figures)
        report = run_layers(self.target, plan, self.layers, sampled)
        doubts = () if found is not None else _doubted(self.target, plan)
        return replace(report, search=found, warnings=(*doubts, *report.warnings))

    def completed(self, progress: Progress | None = None) -> AuditReport:
        r"""Run as :meth:`run` does, but raise the target's error, or KeyboardInterrupt."""
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
        found: SearchResult | None,
        progress: Progress | None,
        figures: bool,
    ) -> AuditReport:
        from audit.sample_layer import draw, report_of, run_baselines

        if self.spec.resume is None:
            drawn = draw(self.target, plan, progress=progress)
        else:
            from audit.resume.checkpoint import resume

            with resume(self.spec.resume, self.target, plan, found) as state:
                drawn = draw(self.target, plan, progress=progress, state=state)
        report = report_of(drawn)
        if drawn.runs and report.error is None and (self.baselines or figures):
            try:
                with drawn.reading():
                    report = run_baselines(report, drawn, self.baselines, figures=figures)
            except TargetFailed as failed:
                report = replace(report, verdict=None, error=failed)
        return report

    def _kept_search(self) -> SearchResult | None:
        # The search result of the first start of a resumed audit: a later start tests the same
        # pair.
        path = self.spec.resume
        if path is None or self.space is None:
            return None
        from audit.resume.checkpoint import hostile, refused, stored_search, stored_seed
        from audit.search.search import training_runs

        found = stored_search(path)
        if found is None:
            if stored_seed(path) is None:
                return None
            raise refused(path, "was started without a search")
        if found.space != self.space.spelling:
            raise refused(path, "was started with another search")
        most = training_runs(self.plan.runs)
        if not self.space.neighbours(*found.pair) or not 0 <= found.runs <= most:
            raise hostile(path, "its search result does not fit this search space")
        self.target.check(found.pair)
        return found


def _layers_of(target: Target, spec: AuditSpec) -> tuple[str, ...]:
    # The requested layers, or else the strongest applicable one. A field that only the sample layer
    # reads adds that layer; a field that no chosen layer reads is refused.
    known = target if isinstance(target, KnownLaw) else None
    given = [name for name in _READERS if spec.given(name)]
    if spec.layers is None:
        drawn = any("sample" in _READERS[name] and "exact" not in _READERS[name] for name in given)
        layers: tuple[str, ...] = (
            ("sample",) if known is None else ("exact", "sample") if drawn else ("exact",)
        )
    else:
        layers = tuple(spec.layers)
    for layer in ("exact", "fit"):
        if layer in layers and (known is None or (layer == "fit" and known.noise is None)):
            reason = (
                f"the {layer} layer needs a target with a known law, such as noise: omit {layer}"
            )
            raise InvalidParameter("layers", ",".join(layers), reason)
    for name in given:
        if not set(_READERS[name]) & set(layers):
            reason = f"would have no effect: it applies only to {' and '.join(_READERS[name])}"
            value = getattr(spec, name)
            printed = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
            raise InvalidParameter(name, printed, reason)
    return layers


def _seed_of(spec: AuditSpec) -> int:
    # A resumed audit keeps the seed of its first start.
    kept = spec.seed
    if kept is None and spec.resume is not None:
        from audit.resume.checkpoint import stored_seed

        kept = stored_seed(spec.resume)
    return secrets.randbits(32) if kept is None else kept


def _doubted(target: Target, plan: Plan) -> tuple[str, ...]:
    # Only pairs given by the user are checked; the pair of a catalogue entry is known to be right.
    own = target.subject.pair if isinstance(target, Catalogued) else None
    several = len(plan.pairs) > 1
    return tuple(
        (f"pair {i}: " if several else "") + doubt
        for i, pair in enumerate(plan.pairs, 1)
        if pair is not own
        for doubt in doubts(pair, plan.claim.relation)
    )


def audit(  # noqa: PLR0913 - each is an option of the command
    target: Auditable,
    claim: Claim | CurveClaim | str | None = None,
    *,
    pair: tuple[Any, Any] | None = None,
    pairs: Iterable[tuple[Any, Any]] | None = None,
    search: str | None = None,
    relation: Relation | str | None = None,
    features: Iterable[str] = (),
    floats: str = "test",
    runs: int | None = None,
    sequential: bool = False,
    alpha: RationalLike | None = None,
    confidence: RationalLike | None = None,
    layers: str | Iterable[str] | None = None,
    baselines: Iterable[str] = (),
    seed: int | None = None,
    timeout: float | None = 60.0,
    deadline: float | None = None,
    jobs: int = 1,
    resume: str | Path | None = None,
    allow_constant: bool = False,
) -> AuditReport:
    r"""Test a mechanism: does the code satisfy its claim on two neighbouring datasets?

    ``target`` is a callable f(dataset), f(dataset, rng) or, faster, f(dataset, n, rng) returning n
    outputs; noise; or the text of a target, as on the command line. ``claim`` is text such as
    "epsilon=1", "epsilon=1,delta=1e-6" or "rho=0.1", or a claim. ``pair`` is a pair of neighbouring
    datasets, ``pairs`` are several; ``search`` is a space in which to search for one. A mechanism
    of the catalogue has its own claim and pair.

    All bounds hold together with confidence 1 - ``alpha``, and a true claim is refuted with
    probability at most ``alpha`` (0.001); ``confidence`` = 1 - ``alpha`` may be given instead.
    ``runs`` is the number of runs of both datasets and all pairs together (100,000); with
    ``sequential`` the maximum (1,000,000): the audit stops as soon as the evidence suffices.
    ``layers`` are some of "exact", "fit", "replay" and "sample": by default "exact" if the law is
    known, else "sample". ``features`` are tested instead of the output; ``floats="ignore"`` ignores
    the floating-point representation of outputs. ``jobs`` is the number of processes (-1: one per
    core), ``timeout`` limits one call of the target and ``deadline`` the drawing of runs, in
    seconds, and ``resume`` is a file that stores the runs.

    The target runs in this process, and ``seed`` repeats the audit. A notebook shows a progress
    bar, and the report as a card.

    >>> def noisy_count(names, n, rng):
    ...     return len(names) + rng.geometric(0.5, n) - rng.geometric(0.5, n)
    >>> pair = ([], ["ada"])
    >>> report = audit(noisy_count, "epsilon=0.5", pair=pair, relation="add-remove", seed=7)
    >>> report.refuted, report.verdict, 0.6 < report.epsilon_lower < 0.7
    (True, 'refuted', True)
    >>> print(audit("discrete-laplace:scale=1", "epsilon=1", pair=(0, 1)))
    PROVEN  discrete-laplace:scale=1 satisfies epsilon=1
      pair     A = 0, B = 1 (replace)
      epsilon  exactly 1 on this pair (proven)
      delta    exactly 0 at the claimed epsilon (proven)
      exact    for every event, and every pair of integers at distance <= 1

    Raises :class:`dpcore.errors.InvalidParameter` with the name of the argument, and
    :class:`audit.errors.TargetFailed` if the target gives no outputs.
    """
    given = {name: value for name, value in locals().items() if name != "confidence"}
    if confidence is not None and alpha is not None:
        raise InvalidParameter(
            "confidence", confidence, "is given together with alpha: give only one of the two"
        )
    if confidence is not None:
        given["alpha"] = 1 - level("confidence", confidence, "0.95")
    elif alpha is None:
        del given["alpha"]
    ready = Audit(AuditSpec(**given))
    with notebook_bar("runs", ready.plan.runs) as progress:
        return ready.completed(progress)
