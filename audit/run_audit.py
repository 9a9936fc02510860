r"""Assemble an audit from its spec, run its layers, and merge their results in one report.

:class:`Audit` resolves the target, the claim, the pairs and the features of a spec; an error names
the invalid field. The Python function, the commands, the pytest plugin and the corpus all use this
class. ``Audit.run`` searches for a pair, if requested, and runs the chosen ones of these layers:

    exact     prove or refute the claim from known output laws        audit.known_laws.exact_layer
    fit       test whether draws follow the law assumed by the proof  audit.fit.fit
    sample    test the outputs of many runs on both datasets          audit.sample_layer
    replay    run both datasets with the same random draws            audit.replay.replay_both

The fit layer and the sample layer share the false-alarm probability. The claim is refuted only by
evidence against the claim itself. A sampler that does not follow its law, and a fault found by
replay, are findings: they violate the assumptions of a proof. So the report then contains no proof,
and the exit code is that of a fault.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from audit.audit_spec import AuditSpec
from audit.claims import Claim, CurveClaim, LayerRun, level
from audit.errors import TargetFailed
from audit.features.parse_feature import Feature, read_feature
from audit.formats.result import plain
from audit.report.audit_report import AuditReport
from audit.runs.draw_plan import Plan
from audit.statistical_tests.sample_outcome import versions
from audit.targets.check_neighbours import doubts, pairs_of
from audit.targets.target import Catalogued, KnownLaw, Shifted, Target, claim_of
from audit.targets.target_syntax import Auditable, read_target, target_of
from audit.verdict_words_and_exit_codes import INTERRUPTED, cause_of
from dpcore.cli.terminal import notebook_bar
from dpcore.errors import ABSENT, InvalidParameter
from dpcore.mechanism import Relation
from dpcore.numbers.parameter import RationalLike, rational

if TYPE_CHECKING:
    from audit.fit.fit import FitReport
    from audit.replay.replay_report import Finding
    from audit.search.worst_pair_search import SearchResult
    from dpcore.noise import Noise

Progress = Callable[[int], None]
_REPLAY: Final = LayerRun(
    layer="replay",
    method="one random tape for both datasets, and tapes with draws set to extremes",
    proves="a fault is an error in the code or a violated declaration; it does not refute the "
    "claim",
)
# For each field the layers that use it. Without one of these layers the field has no effect.
_READERS: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(("search", "features", "floats", "baselines", "resume"), ("sample",)),
    "resolution": ("sample", "exact"),
    **dict.fromkeys(("runs", "sequential"), ("sample", "fit")),
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
        pairs = pairs_of(target, spec.pair, spec.pairs, search=spec.search, relation=claim.relation)
        self.baselines: tuple[str, ...] = ()
        if spec.baselines:  # scipy.stats takes half a second
            from audit.statistical_tests.clopper_pearson_and_other_baselines import baseline_names

            self.baselines = baseline_names(spec.baselines)
        self.space = None
        if spec.search is not None:
            from audit.search.neighbour_spaces import read_space

            self.space = read_space(spec.search, claim.relation)
        self.layers = _layers_of(target, spec)
        derived: dict[str, Any] = {
            "claim": claim,
            "pair": pairs[0] if pairs else (None, None),  # a search finds it
            "pairs": pairs or ((None, None),),
            "features": tuple(features),
            "runs": spec.planned_runs,
            "seed": _seed_of(spec),
        }
        self.plan = Plan(**{each.name: getattr(spec, each.name) for each in fields(spec)} | derived)
        if self.space is not None and self.plan.timed:
            raise InvalidParameter(
                "features", "time", "cannot be combined with a search: give a pair"
            )

    def run(self, progress: Progress | None = None, *, figures: bool = False) -> AuditReport:
        r"""Run every layer and return the report; ``figures`` adds the figures of the HTML page.

        If the target fails, ``error`` of the report is set; after Ctrl-C, ``interrupted`` is set. A
        failure during the search, or Ctrl-C before the first tested run, is raised instead.
        """
        plan, found = self.plan, None
        if self.space is not None:
            from audit.search.worst_pair_search import search

            found = self._kept_search() or search(self.target, plan, self.space, progress=progress)
            plan = replace(plan, pair=found.pair, pairs=(), runs=plan.runs - found.runs)
        sampled = partial(self._sampled, found=found, progress=progress, figures=figures)
        report = run_layers(self.target, plan, self.layers, sampled)
        doubts = () if found is not None else _doubted(self.target, plan)
        return replace(report, search=found, warnings=(*doubts, *report.warnings))

    def completed(self, progress: Progress | None = None) -> AuditReport:
        r"""Like :meth:`run`, but raise the error if the target failed or Ctrl-C was pressed."""
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
            from audit.resume import resume

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
        # The search result that is stored in the file of a resumed audit, or None.
        path = self.spec.resume
        if path is None or self.space is None:
            return None
        from audit.resume import hostile, refused, stored
        from audit.search.worst_pair_search import training_runs

        kept = stored(path)
        if kept is None:
            return None
        if (found := kept[1]) is None:
            raise refused(path, "was started without a search: omit --search, or use a new file")
        if found.space != self.space.spelling:
            reason = f"was started with another search: give --search {found.space}, or a new file"
            raise refused(path, reason)
        most = training_runs(self.plan.runs)
        if not self.space.neighbours(*found.pair) or not 0 <= found.runs <= most:
            raise hostile(path, "its search result does not fit this search space")
        self.target.check(found.pair)
        return found


def _layers_of(target: Target, spec: AuditSpec) -> tuple[str, ...]:
    # The requested layers; by default exact if the law is known, otherwise sample. By default a
    # field that the sample layer uses, but the exact layer does not, adds the sample layer. A field
    # that no chosen layer uses is refused.
    known = target if isinstance(target, KnownLaw) else None
    given = [name for name in _READERS if spec.given(name)]
    if spec.layers is None:
        drawn = any("sample" in _READERS[name] and "exact" not in _READERS[name] for name in given)
        layers: tuple[str, ...] = (
            ("sample",) if known is None else ("exact", "sample") if drawn else ("exact",)
        )
    else:
        layers = tuple(spec.layers)
    for layer, law in (("exact", known), ("fit", known and known.noise)):
        if layer in layers and law is None:
            listed = "" if known is None else ", not a list of probabilities"
            needed = f"a target with a known law, such as noise{listed}"
            reason = f"includes {layer}, which needs {needed}: omit it"
            raise InvalidParameter("layers", ",".join(layers), reason)
    for name in given:
        if not set(_READERS[name]) & set(layers):
            reason = f"would have no effect: it applies only to {' and '.join(_READERS[name])}"
            value = getattr(spec, name)
            printed = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
            raise InvalidParameter(name, printed, reason)
    return layers


def _seed_of(spec: AuditSpec) -> int:
    # The seed of the spec, the stored seed of a resumed audit, or a random seed.
    if spec.seed is None and spec.resume is not None:
        from audit.resume import stored

        if (kept := stored(spec.resume)) is not None:
            return kept[0]
    return secrets.randbits(32) if spec.seed is None else spec.seed


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

    ``target`` is one of:

    - a callable f(dataset), f(dataset, rng) or, faster, f(dataset, n, rng) returning n outputs;
    - noise;
    - the text of a target, as on the command line.

    ``claim`` is a claim, or text such as "epsilon=1", "epsilon=1,delta=1e-6" or "rho=0.1". Give one
    ``pair`` of neighbouring datasets, several ``pairs``, or a space in which to ``search`` for a
    pair. A mechanism of the catalogue has its own claim and pair.

    All bounds hold together with confidence 1 - ``alpha``, and a true claim is refuted with
    probability at most ``alpha``. Further arguments:

    - ``alpha``: 0.001 by default; ``confidence`` = 1 - ``alpha`` may be given instead;
    - ``runs``: the number of runs, both datasets and all pairs together (default 100,000);
    - ``sequential``: whether to stop as soon as the evidence suffices; then ``runs`` is the maximum
      (default 1,000,000);
    - ``layers``: some of "exact", "fit", "replay" and "sample"; by default "exact" if the law is
      known, and "sample" if it is not, or if an option is given that only "sample" uses;
    - ``features``: features to test instead of the output;
    - ``floats``: "ignore" ignores the floating-point representation of outputs;
    - ``jobs``: the number of processes (-1: one per core);
    - ``timeout``, ``deadline``: time limits in seconds, for one call and for drawing all runs;
    - ``resume``: a file that stores the runs, from which an interrupted audit continues.

    The target runs in the current process. The same ``seed`` repeats the audit if the target uses
    no other randomness than ``rng``. A notebook shows a progress bar, and the report as HTML.

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

    Raises :class:`dpcore.errors.InvalidParameter` with the name of an invalid argument, and
    :class:`audit.errors.TargetFailed` if the target returns no outputs.
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


def run_layers(
    target: Target,
    plan: Plan,
    layers: tuple[str, ...],
    sampled_with: Callable[[Plan], AuditReport],
) -> AuditReport:
    r"""Run the layers named in ``layers``, and merge their results in one report.

    The function ``sampled_with`` runs the sample layer for a plan.
    """
    drawing = [layer for layer in ("fit", "sample") if layer in layers]
    level = rational("alpha", plan.alpha)
    shared = replace(plan, alpha=level / max(len(drawing), 1))
    report: AuditReport | None = None
    fitted: FitReport | None = None
    if isinstance(target, KnownLaw) and "exact" in layers:
        from audit.known_laws.exact_layer import prove  # imports accounting: slow

        report = prove(target, plan)
    if isinstance(target, KnownLaw) and target.noise is not None and "fit" in layers:
        fitted = _fitted(target, target.noise, shared)
    ended = fitted is not None and (fitted.error is not None or fitted.stopped == INTERRUPTED)
    if "sample" in layers and not ended:
        sampled = sampled_with(shared)
        # A report compares the evidence with the whole level, but the sample layer has only a share
        # of it: scale the evidence accordingly.
        if sampled.p_value is not None:
            sampled = replace(sampled, p_value=min(1.0, sampled.p_value * len(drawing)))
        if sampled.e_value is not None:
            sampled = replace(sampled, e_value=sampled.e_value / len(drawing))
        if report is None:
            report = sampled
        else:
            from audit.known_laws.exact_layer import join_layers

            report = join_layers(report, sampled)
    if report is None:
        report = AuditReport(
            target=target.spelling,
            claim=plan.claim,
            pair=plan.pair,
            pairs=plan.pairs if len(plan.pairs) > 1 else (),
            verdict="not_refuted",
            epsilon_lower=0.0,
            alpha=plan.alpha,
            runs_by_world=(0, 0),
            stopped="no runs: the sample layer was not requested",
            seed=plan.seed,
            versions=versions(),
        )
    if fitted is not None:
        report = _with_fit(report, fitted)
    # Replay is last, so that its calls cannot affect the tested runs if the target keeps state.
    if "replay" in layers and report.error is None and not report.interrupted:
        report = _with_replay(report, target, plan)
    return replace(report, alpha=level)


# -- fit ------------------------------------------------------------------------------------------


def _fitted(target: KnownLaw, noise: Noise, plan: Plan) -> FitReport:
    from audit.fit.fit import fit

    laws = [law for pair in plan.pairs for law in target.laws(pair)]
    if not all(isinstance(law, Shifted) and isinstance(law.shift, int) for law in laws):
        reason = (
            f"needs outputs that are single integers, but {target.spelling} has several coordinates"
        )
        raise InvalidParameter("layers", "fit", reason)
    own = plan.only("runs", "alpha", "seed", "sequential", "timeout", "deadline")
    return fit(target, noise, **own)


def _with_fit(report: AuditReport, fitted: FitReport) -> AuditReport:
    place = sum(layer.layer == "exact" for layer in report.layers)
    report = replace(
        report,
        fit=fitted,
        layers=(*report.layers[:place], fitted.method, *report.layers[place:]),
        error=report.error or fitted.error,
        warnings=(*report.warnings, *(f"fit: {warning}" for warning in fitted.warnings)),
        interrupted=report.interrupted or fitted.stopped == INTERRUPTED,
    )
    if report.error is not None:
        return replace(report, verdict=None)
    if fitted.verdict != "refuted":
        return report
    from audit.replay.replay_report import Finding
    from dpcore.parse_noise import write_noise

    found = Finding(
        kind="not-its-law",
        severity="error",
        statement=f"the draws do not follow {write_noise(fitted.law)}",
        witness={} if fitted.witness is None else plain(fitted.witness),
    )
    return _without_proof(replace(report, findings=(*report.findings, found)))


def _without_proof(report: AuditReport) -> AuditReport:
    # The proof does not apply: it assumes that the code follows its law and uses its randomness
    # properly.
    return replace(report, verdict="not_refuted") if report.verdict == "proven" else report


# -- replay ---------------------------------------------------------------------------------------


def _replayed(target: Target, plan: Plan) -> tuple[Finding, ...]:
    from audit.sandbox.sandboxed_target import Remote, importing, run_isolated

    if not isinstance(target, Remote):
        return _replay_findings(target, plan)

    def there() -> list[dict[str, Any]]:
        with importing(plan.timeout):
            subject = read_target(target.spelling)
        return [finding.to_json() for finding in _replay_findings(subject, plan)]

    from audit.replay.replay_report import Finding

    found = run_isolated(target.spelling, there, timeout=plan.timeout)
    return tuple(Finding(**fields) for fields in found)


def _replay_findings(target: Target, plan: Plan) -> tuple[Finding, ...]:
    from audit.replay.replay_both import replay

    own = plan.only(
        "sensitivity", "norm", "strict", "tapes", "changes", "seed", "timeout", "deadline"
    )
    if plan.sensitivity is None and isinstance(plan.claim, CurveClaim):
        # NOISE@SENSITIVITY declares that the output is a query with this sensitivity, plus noise.
        stated = plan.claim.spelling.partition("@")[2]
        own["sensitivity"] = Fraction(stated) if stated.isdecimal() else None
    found: list[Finding] = []
    for pair in plan.pairs:
        report = replay(target, pair, **own)
        found += [finding for finding in report.findings if finding not in found]
    return tuple(found)


def _with_replay(report: AuditReport, target: Target, plan: Plan) -> AuditReport:
    # The results of the earlier layers are kept for every outcome of the replay.
    try:
        findings = _replayed(target, plan)
    except TargetFailed as error:
        return replace(report, verdict=None, error=error)
    except KeyboardInterrupt:
        if not report.runs:
            raise
        return replace(_without_proof(report), interrupted=True)
    empty = {"elsewhere", "own-entropy", *(() if plan.allow_constant else ("constant",))}
    if not report.layers and any(finding.kind in empty for finding in findings):
        # Replay was the only layer, and it could not examine anything.
        report = replace(report, verdict="nothing_measured")
    report = replace(
        report, findings=(*report.findings, *findings), layers=(*report.layers, _REPLAY)
    )
    faults = any(finding.severity == "error" for finding in findings)
    return _without_proof(report) if faults else report
