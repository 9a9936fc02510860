r"""An audit in Python: what ``dpcore audit`` does, as one function."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from audit.claims.claim import Claim
from audit.claims.curve_claim import CurveClaim
from audit.claims.levels import level
from audit.claims.verdicts import INTERRUPTED
from audit.layers import LAYERS, Wanted, examine
from audit.outputs.features.feature import Feature, read_feature
from audit.report.report import AuditReport
from audit.runs.plan import Plan
from audit.search.pairs import pairs_of
from audit.targets.spelling import Auditable, target_of
from audit.targets.target import Catalogued, KnownLaw, Target, claim_of
from dpcore.command.progress import notebook_bar
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Relation
from dpcore.numbers.parameter import RationalLike

__all__ = ["audit", "baselines_of", "features_of", "seed_of"]

_RUNS: Final = 100_000
_MOST_RUNS: Final = 1_000_000


def audit(  # noqa: PLR0913 - each is an option of the command
    target: Auditable,
    claim: Claim | CurveClaim | str | None = None,
    *,
    pair: tuple[Any, Any] | None = None,
    pairs: Iterable[tuple[Any, Any]] | None = None,
    search: str | None = None,
    relation: Relation | str | None = None,
    features: Iterable[str] = (),
    runs: int | None = None,
    sequential: bool = False,
    confidence: RationalLike = "0.95",
    layers: str | Iterable[str] | None = None,
    baselines: Iterable[str] = (),
    seed: int | None = None,
    timeout: float | None = 60.0,
    deadline: float | None = None,
    jobs: int = 1,
    resume: str | Path | None = None,
    allow_constant: bool = False,
) -> AuditReport:
    r"""Test a mechanism: does the code keep its epsilon on two neighbouring datasets?

    ``target`` is a callable f(dataset), f(dataset, rng) or, faster, f(dataset, n, rng) returning n
    outputs; a noise; or a target as the command spells it. ``claim`` is text such as "epsilon=1",
    "epsilon=1,delta=1e-6" or "rho=0.1", or a claim. ``pair`` is two neighbouring datasets,
    ``pairs`` are several; ``search`` names a space to look for one in. A mechanism of the catalogue
    brings its own claim and pair.

    All bounds hold together with ``confidence``, and of a true claim an audit says "refuted" with
    probability at most 1 - ``confidence``. ``runs`` are those of both worlds and all pairs
    together (100,000); with ``sequential`` the most of them (1,000,000), and the audit stops as
    soon as the evidence suffices. ``layers`` are of "exact", "fit", "replay" and "sample": by
    default "exact" where the law is known, else "sample". ``features`` read something of each
    output, ``jobs`` processes draw (-1: one a core), ``timeout`` seconds limit one call of the
    target and ``deadline`` seconds the drawing, ``resume`` is a file that keeps what was drawn.

    The target runs in this process, and ``seed`` repeats the audit. In a notebook a bar shows how
    far it is, and the report is shown as a card.

    >>> def noisy_count(names, n, rng):
    ...     return len(names) + rng.geometric(0.5, n) - rng.geometric(0.5, n)
    >>> pair = ([], ["ada"])
    >>> report = audit(noisy_count, "epsilon=0.5", pair=pair, relation="add-remove", seed=7)
    >>> report.refuted, report.verdict, 0.6 < report.epsilon_lower < 0.7
    (True, 'refuted', True)
    >>> print(audit("discrete-laplace:scale=1", "epsilon=1", pair=(0, 1)))
    PROVEN  discrete-laplace:scale=1 keeps epsilon=1
      pair     A = 0, B = 1 (replace)
      epsilon  exactly 1 on this pair (proven)
      delta    exactly 0 at the claimed epsilon (proven)
      exact    for every event, and every pair of integers at distance <= 1

    Raises :class:`dpcore.errors.InvalidParameter` by the name of the argument, and
    :class:`audit.errors.TargetFailed` where the target gives no outputs.
    """
    subject = target_of(target, seeded=seed is not None)
    stated = claim_of(subject, claim, relation)
    both = pairs_of(subject, pair, pairs, searched=search is not None, relation=stated.relation)
    names = tuple(features)
    only_runs = any((names, runs, sequential, tuple(baselines), search, resume))
    plan = Plan(
        claim=stated,
        pair=both[0] if both else (None, None),
        others=both[1:],
        features=features_of(subject, names),
        runs=(_MOST_RUNS if sequential else _RUNS) if runs is None else runs,
        sequential=sequential,
        alpha=1 - level("confidence", confidence, "0.95"),
        seed=seed_of(seed, resume),
        jobs=jobs,
        timeout=timeout,
        deadline=deadline,
        allow_constant=allow_constant,
    )
    space = None
    if search is not None:
        from audit.search.spelling import read_space

        space = read_space(search, stated.relation)
    wanted = Wanted(
        layers=_layers(subject, layers, drawn=only_runs),
        baselines=baselines_of(baselines),
        space=space,
        state=None if resume is None else Path(resume),
    )
    with notebook_bar("runs", plan.runs) as progress:
        report = examine(subject, plan, wanted, progress=progress)
    if report.error is not None:
        raise report.error
    if report.interrupted or report.stopped == INTERRUPTED:  # Ctrl-C ends a script, too
        raise KeyboardInterrupt
    return report


def features_of(
    subject: Target, names: Iterable[str], read: Callable[[str], Feature] = read_feature
) -> tuple[Feature, ...]:
    r"""The features of these names, or those that a catalogue entry brings."""
    own = subject.subject.features if isinstance(subject, Catalogued) else ()
    return tuple(map(read, tuple(names) or own))


def seed_of(seed: int | None, resume: str | Path | None) -> int:
    r"""The seed that is given, that of the audit to go on with, or a fresh one."""
    if seed is not None:
        return seed
    if resume is not None:
        from audit.resume.checkpoint import stored_seed

        # A second start goes on with the seed of the first.
        kept = stored_seed(str(resume))
        if kept is not None:
            return kept
    return secrets.randbits(32)


def _layers(subject: Target, layers: str | Iterable[str] | None, *, drawn: bool) -> tuple[str, ...]:
    if layers is None:
        if not isinstance(subject, KnownLaw):
            return ("sample",)
        return ("exact", "sample") if drawn else ("exact",)
    named = [layers] if isinstance(layers, str) else list(layers)
    if not named or not set(named) <= set(LAYERS) or len(set(named)) < len(named):
        raise InvalidParameter(
            "layers", layers, f"must be some of {', '.join(LAYERS)}, each at most once"
        )
    return tuple(layer for layer in LAYERS if layer in named)


def baselines_of(names: Iterable[str]) -> tuple[str, ...]:
    r"""The methods to compare with, each refused by name."""
    asked = tuple(names)
    if not asked:
        return ()
    from audit.evidence.baselines.compare import baseline_names  # scipy.stats takes half a second

    return baseline_names(asked)
