r"""An audit in Python: what ``dpcore audit`` does, as one function."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from audit.assembly import Audit
from audit.claims.claim import Claim
from audit.claims.curve_claim import CurveClaim
from audit.claims.verdicts import level
from audit.report.report import AuditReport
from audit.spec import AuditSpec
from audit.targets.spelling import Auditable
from dpcore.command.progress import notebook_bar
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Relation
from dpcore.numbers.parameter import RationalLike


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
    r"""Test a mechanism: does the code keep its epsilon on two neighbouring datasets?

    ``target`` is a callable f(dataset), f(dataset, rng) or, faster, f(dataset, n, rng) returning n
    outputs; a noise; or a target as the command spells it. ``claim`` is text such as "epsilon=1",
    "epsilon=1,delta=1e-6" or "rho=0.1", or a claim. ``pair`` is two neighbouring datasets,
    ``pairs`` are several; ``search`` names a space to look for one in. A mechanism of the catalogue
    brings its own claim and pair.

    All bounds hold together with confidence 1 - ``alpha``, and of a true claim an audit says
    "refuted" with probability at most ``alpha`` (0.001); ``confidence`` may be given in its place.
    ``runs`` are those of both worlds and all pairs together (100,000); with ``sequential`` the most
    of them (1,000,000), and the audit stops as soon as the evidence suffices. ``layers`` are of
    "exact", "fit", "replay" and "sample": by default "exact" where the law is known, else "sample".
    ``features`` read something of each output, ``floats="ignore"`` leaves the floating-point
    representation of outputs alone, ``jobs`` processes draw (-1: one a core),
    ``timeout`` seconds limit one call of the target and ``deadline`` seconds the drawing,
    ``resume`` is a file that keeps what was drawn.

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
    if confidence is not None:
        if alpha is not None:
            raise InvalidParameter("confidence", confidence, "is given beside alpha: leave one out")
        alpha = 1 - level("confidence", confidence, "0.95")
    spec = AuditSpec(
        target=target,
        claim=claim,
        pair=pair,
        pairs=pairs,  # type: ignore[arg-type]  # any iterable, read by the spec
        search=search,
        relation=relation,
        features=features,  # type: ignore[arg-type]  # the same
        floats=floats,
        runs=runs,
        sequential=sequential,
        alpha="0.001" if alpha is None else alpha,
        layers=layers,  # type: ignore[arg-type]  # the same
        baselines=baselines,  # type: ignore[arg-type]  # the same
        seed=seed,
        timeout=timeout,
        deadline=deadline,
        jobs=jobs,
        resume=None if resume is None else Path(resume),
        allow_constant=allow_constant,
    )
    ready = Audit(spec)
    with notebook_bar("runs", ready.plan.runs) as progress:
        return ready.completed(progress)
