r"""The commands of single layers: ``dpcore audit exact``, ``fit`` and ``replay``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from audit.cli.options_and_output import (
    SpecOptions,
    leave_isolated,
    leave_with,
    seed_of,
    spec_of,
    with_spec,
)
from audit.formats.junit_and_sarif import format_of
from audit.formats.result import Result
from dpcore.cli.figure_file import check_picture
from dpcore.cli.options import AsFormat, AsJson, Format, argument, flag, named, option, read_law
from dpcore.errors import InvalidParameter, PrecisionExhausted
from dpcore.numbers.parameter import at_least_zero, rational, rational_in
from dpcore.numbers.rounding import down

if TYPE_CHECKING:
    from audit.known_laws.compare_two_laws import Order, Point
    from audit.known_laws.law_file import WrittenLaw
    from audit.targets.target import Shifted


def exact_command(
    p: str = argument(
        "P",
        "A noise distribution shifted by an integer, such as discrete-laplace:scale=1@0 (several "
        'coordinates: @0,1,0), or a file of probabilities: JSON such as {"yes": "3/4", "no": '
        '"1/4"}, or CSV with the columns output,probability.',
    ),
    q: str = argument("Q", "The other law, in the same form."),
    *,
    claim: str | None = option(
        "CLAIM",
        "What to prove or refute: epsilon=1; epsilon=1,delta=1e-6; or a whole curve, tested at "
        "several points: rho=0.1, or NOISE@SENSITIVITY.",
    ),
    epsilon: list[str] | None = option("E", "Compute delta at this epsilon; repeatable."),
    delta: list[str] | None = option("D", "Compute epsilon at this delta; repeatable."),
    order: list[str] | None = option(
        "A", "Compute the Renyi divergence of this order > 1, or inf."
    ),
    normalise: bool = flag("Divide the probabilities of a file by their exact sum.", "--normalise"),
    plot: Path | None = option("FILE", "Plot delta over epsilon to a file: .svg, .png or .pdf."),
    as_json: AsJson = False,
    form: AsFormat = Format.TEXT,
) -> None:
    r"""Prove bounds on the privacy loss between two known distributions P and Q.

    Example: dpcore audit exact with_alice.csv without.csv --claim epsilon=1

    Each number is the maximum over both directions, P against Q and Q against P. Exit code: 0
    proven, or nothing was claimed; 1 refuted; 2 usage; 4 undecided: the claimed delta is too close
    to the true one for the highest precision, which never happens with two files.
    """
    printed = format_of(form, as_json=as_json)
    from audit.claims import read_claim
    from audit.known_laws.compare_two_laws import decide
    from audit.known_laws.known_laws_report import ExactReport
    from audit.statistical_tests.sample_outcome import versions

    if plot is not None:
        check_picture("--plot", plot)
    one, other, notes = _read(p, q, divide=normalise)
    claimed = None if claim is None else read_claim(claim)
    stated = () if claimed is None else claimed.points
    decisions = tuple(decide(one.law, other.law, at) for at in stated)
    points, missing = _points(one, other, (epsilon, delta, order), default=claim is None)
    report = ExactReport(
        p=one,
        q=other,
        points=points,
        claim=None if claimed is None else str(claimed),
        decisions=decisions,
        notes=(*notes, *missing),
        versions=versions(),
    )
    if plot is not None:
        from audit.known_laws.known_laws_report import curve_points, draw_curve

        drawn = curve_points(one.law, other.law)
        draw_curve(plot, drawn, title=f"P = {one.spelling}, Q = {other.spelling}")
    leave_with(report, printed)


def _read(p: str, q: str, *, divide: bool) -> tuple[WrittenLaw, WrittenLaw, list[str]]:
    from audit.known_laws.law_file import read_law as read_exact_law
    from audit.targets.target import Shifted

    written = [read_exact_law(argument, text) for argument, text in (("P", p), ("Q", q))]
    if divide and all(law.outputs is None for law in written):
        raise InvalidParameter(
            "--normalise", "true", "requires files of probabilities, but both laws are noise"
        )
    one, other = (law.normalised() if divide else law.checked() for law in written)
    here, there = one.law, other.law
    if isinstance(here, Shifted) and isinstance(there, Shifted):
        if here.noise != there.noise:
            raise InvalidParameter("Q", q, f"must be a shift of the same noise as P = {p}")
        if _coordinates(here) != _coordinates(there):
            raise InvalidParameter("Q", q, f"must have a shift with as many coordinates as P = {p}")
    elif isinstance(here, Shifted) or isinstance(there, Shifted):
        raise InvalidParameter("Q", q, f"must be noise or a file of probabilities, like P = {p}")
    notes = [
        f"the probabilities of {law.argument} are divided by their sum, which is about 1 "
        f"{'+' if law.divided_by > 1 else '-'} {down(abs(law.divided_by - 1), 3)}"
        for law in (one, other)
        if law.divided_by != 1
    ]
    if one.outputs is not None and other.outputs is not None and not one.outputs & other.outputs:
        notes.append(
            "no output has mass in both files: is the same output written in the same way?"
        )
    return one, other, notes


def _coordinates(law: Shifted) -> int | None:
    return len(law.shift) if isinstance(law.shift, tuple) else None


def _points(
    one: WrittenLaw, other: WrittenLaw, given: Sequence[list[str] | None], *, default: bool
) -> tuple[tuple[Point, ...], list[str]]:
    # The requested points; without a request, the points of the default table that can be derived.
    from accounting.errors import NotDerived
    from audit.known_laws.compare_two_laws import delta_point, epsilon_point, renyi_point

    kinds: tuple[tuple[Callable[..., Point], Callable[[str], Any], tuple[str, ...]], ...] = (
        (delta_point, partial(at_least_zero, "--epsilon"), ("0", "1/2", "1", "2")),
        (epsilon_point, lambda text: rational_in("--delta", text, "[0, 1)"), ("0", "1e-6")),
        (renyi_point, _order, ("2", "inf")),
    )
    p, q = one.law, other.law
    wanted = [
        (find, read(text))
        for (find, read, _), texts in zip(kinds, given, strict=True)
        for text in texts or ()
    ]
    if wanted or not default:
        return tuple(find(p, q, at) for find, at in wanted), []
    found: list[Point] = []
    refused: list[Exception] = []
    for find, at in ((find, read(text)) for find, read, usual in kinds for text in usual):
        try:
            found.append(find(p, q, at))
        except (NotDerived, PrecisionExhausted) as error:
            refused.append(error)
    if not found:
        raise refused[0]
    return tuple(found), list(dict.fromkeys(map(str, refused)))


def _order(text: str) -> Order:
    if text.strip().lower() in {"inf", "infinity"}:
        return math.inf
    exact = rational("--order", text)
    if exact <= 1:
        raise InvalidParameter("--order", text, "must be > 1, or inf")
    return exact


@with_spec("runs", "sequential", "alpha", "seed", "timeout", "deadline")
def fit_command(
    options: SpecOptions,
    target: str = argument(
        "TARGET",
        "module:callable or file.py:callable, called as f(n, rng), f(rng) or f(); noise "
        "such as discrete-laplace:scale=1; 'exec:./program args'; a name in the catalogue.",
    ),
    *,
    law: str = option("NOISE", "The claimed law, e.g. discrete-laplace:scale=1.", default=...),
    as_json: AsJson = False,
    form: AsFormat = Format.TEXT,
) -> None:
    r"""Test a sampler: does TARGET draw from the law?

    Example: dpcore audit fit noise.py:draw --law discrete-gaussian:sigma_squared=4

    Exit code: 0 not refuted, 1 refuted, 2 usage, 3 the target failed.
    """
    printed, spec = format_of(form, as_json=as_json), spec_of(options)
    noise, seed = read_law("--law", law), seed_of(spec)

    def audited(sampler: Any) -> Result:
        from audit.fit.fit import fit

        return fit(
            sampler,
            noise,
            runs=spec.planned_runs,
            alpha=spec.alpha,
            seed=seed,
            sequential=spec.sequential,
            timeout=spec.timeout,
            deadline=spec.deadline,
            target=target,
        )

    naming = named(target="TARGET", sampler="TARGET")
    leave_isolated(target, spec, partial(_sampler, target), audited, printed, naming)


def _sampler(spelling: str) -> Any:
    from audit.outputs.time_limit import load
    from audit.targets.target_syntax import read_target
    from dpcore.parse_noise import LAWS

    path, _, attribute = spelling.rpartition(":")
    if not (path and attribute) or spelling.partition(":")[0] in {"exec", "protocol", *LAWS}:
        return read_target(spelling)
    # A callable is used directly: a sampler is called without a dataset.
    return load(spelling)


_REPLAYED: Final = (
    "pair", "sensitivity", "norm", "strict", "tapes", "changes", "seed", "timeout", "deadline",
    "allow_constant",
)  # fmt: skip


@with_spec(*_REPLAYED)
def replay_command(
    options: SpecOptions,
    target: str = argument(
        "TARGET",
        "module:callable, file.py:callable, a noise distribution, a protocol, or a name that "
        "dpcore audit catalogue lists.",
    ),
    *,
    as_json: AsJson = False,
    form: AsFormat = Format.TEXT,
) -> None:
    r"""Replay TARGET on both datasets with the same random draws, and with single draws set to
    extreme values.

    Example: dpcore audit replay clipped-to-two --sensitivity 1

    Exit code: 0 no error found, 1 refuted or a fault found, 2 usage, 3 the target failed or cannot
    be replayed, 4 nothing is drawn and both outputs are equal.
    """
    printed, spec = format_of(form, as_json=as_json), spec_of(options)
    fields = {name: getattr(spec, name) for name in _REPLAYED} | {"seed": seed_of(spec)}

    def load() -> Any:
        from audit.targets.target_syntax import read_target

        return read_target(target, seeded=True)

    def audited(subject: Any) -> Result:
        from audit.replay.replay_both import replay

        return replay(subject, **fields | {"pair": spec.pair})

    leave_isolated(target, spec, load, audited, printed, named("pair", target="TARGET"))
