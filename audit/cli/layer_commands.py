r"""The commands ``dpcore audit replay``, ``fit``, ``canaries`` (one training run), ``dpsgd`` (one
training step) and ``exact`` (proofs about two known laws).
"""

from __future__ import annotations

import math
import secrets
import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import typer

from audit.cli.options import spec_of, with_spec
from audit.cli.output import leave_with
from audit.formats.junit_and_sarif import format_of
from audit.formats.result import Result
from audit.spec import AuditSpec, read_seed
from dpcore.cli.figure_file import check_picture
from dpcore.cli.options import AsFormat, AsJson, Format, argument, flag, named, option, read_law
from dpcore.cli.output_file import check_writable, write_whole
from dpcore.cli.terminal import say
from dpcore.cli.time_limit import with_optional_time_limit, with_time_limit
from dpcore.errors import InvalidParameter, PrecisionExhausted
from dpcore.numbers.parameter import at_least_zero, rational, rational_in, whole_number
from dpcore.numbers.rounding import down

if TYPE_CHECKING:
    from audit.known_laws.divergence import Order, Point
    from audit.known_laws.law_file import WrittenLaw
    from audit.targets.target import Shifted


def _leave_isolated(
    target: str,
    spec: AuditSpec,
    load: Callable[[], Any],
    audited: Callable[[Any], Result],
    form: str,
    options: AbstractContextManager[None],
) -> NoReturn:
    # Audit a target in its own process, print the report and end the command.
    from audit.sandbox.child_process import error_fields, error_from_fields
    from audit.sandbox.sandboxed_target import importing, run_isolated

    def there() -> tuple[tuple[str, ...], str, int, tuple[Any, ...] | None]:
        with importing(spec.timeout):
            subject = load()
        report = audited(subject)
        error = getattr(report, "error", None)
        nothing = error is not None and not getattr(report, "runs", 0)
        text = report.to_format(form, text="" if nothing else None)
        failed = None if error is None else error_fields(error)
        return report.warnings, text, report.exit_code, failed

    with options:
        warnings, text, code, failed = run_isolated(target, there, timeout=spec.timeout)
    say((f"warning: {warning}" for warning in warnings), sys.stderr)
    sys.stdout.write(text)
    sys.stdout.flush()
    if failed is not None:
        raise error_from_fields(failed)
    raise typer.Exit(code)


def _seed(spec: AuditSpec) -> int:
    return secrets.randbits(32) if spec.seed is None else spec.seed


_REPLAYED: Final = (
    "pair", "sensitivity", "norm", "strict", "tapes", "changes", "seed", "timeout", "deadline",
    "allow_constant",
)  # fmt: skip


@with_spec(*_REPLAYED)
def replay_command(
    given: dict[str, Any],
    target: str = argument(
        "TARGET",
        "module:callable, file.py:callable, a noise distribution, a protocol, or a name that "
        "dpcore audit catalogue lists.",
    ),
    *,
    as_json: AsJson = False,
    form: AsFormat = Format.TEXT,
) -> None:
    r"""Replay TARGET on both datasets with the same random draws, and with single draws at
    extremes.

    Example: dpcore audit replay clipped-to-two --sensitivity 1

    Exit code: 0 no error found, 1 refuted or a fault found, 2 usage, 3 the target failed or cannot
    be replayed, 4 nothing is drawn and both outputs are equal.
    """
    printed, spec = format_of(form, as_json=as_json), spec_of(given)
    fields = {name: getattr(spec, name) for name in _REPLAYED} | {"seed": _seed(spec)}

    def load() -> Any:
        from audit.targets.target_syntax import read_target

        return read_target(target, seeded=True)

    def audited(subject: Any) -> Result:
        from audit.replay.replay import replay
        from audit.targets.neighbours import pairs_of

        return replay(subject, **fields | {"pair": pairs_of(subject, spec.pair)[0]})

    _leave_isolated(target, spec, load, audited, printed, named("pair", target="TARGET"))


@with_spec("runs", "sequential", "alpha", "seed", "timeout", "deadline")
def fit(
    given: dict[str, Any],
    target: str = argument(
        "TARGET",
        "module:callable or file.py:callable, called as f(n, rng), f(rng) or f(); noise "
        "such as discrete-laplace:scale=1; 'exec:./program args'; a name of the catalogue.",
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
    printed, spec = format_of(form, as_json=as_json), spec_of(given)
    noise, seed = read_law("--law", law), _seed(spec)

    def audited(sampler: Any) -> Result:
        from audit.fit.fit import fit as fitted

        return fitted(
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

    options = named(target="TARGET", sampler="TARGET")
    _leave_isolated(target, spec, partial(_sampler, target), audited, printed, options)


def _sampler(spelling: str) -> Any:
    from audit.outputs.loading import load
    from audit.targets.target_syntax import read_target
    from dpcore.parse_noise import LAWS

    path, _, attribute = spelling.rpartition(":")
    if not (path and attribute) or spelling.partition(":")[0] in {"exec", "protocol", *LAWS}:
        return read_target(spelling)
    # A callable is used directly: a sampler is called without a dataset.
    return load(spelling)


@with_time_limit
def canaries_command(
    scores: str = argument(
        "SCORES",
        "A CSV file with the columns score and included (1 or 0), one canary per line; an .npz "
        "file of numpy with arrays of these names; - is standard input (CSV).",
    ),
    *,
    claim: str = option(
        "CLAIM",
        "epsilon=8,delta=1e-5; or a whole curve: gdp=1, rho=0.1, or NOISE@SENSITIVITY.",
        default=...,
    ),
    relation: str = option(
        "WORD",
        "How a canary is excluded: left out (add-remove), or replaced by a fixed record (replace).",
        default="add-remove",
    ),
    guesses: str | None = option(
        "N",
        "Number of canaries to guess; choose it before you see which were included. (default: "
        "three tests share alpha: of a sixteenth of the canaries, or more if the claim needs it, "
        "of a quarter, and of all)",
    ),
    guess: str = option(
        "WORD",
        "Guess the highest scores as included, the lowest as excluded, or half of each (both).",
        default="both",
    ),
    alpha: str = option("P", "The probability of a false alarm.", default="0.001"),
    seed: str = option("N", "Seed that breaks ties between equal scores.", default="0"),
    html: Path | None = option("FILE", "Also write the report as a web page."),
    as_json: AsJson = False,
    form: AsFormat = Format.TEXT,
) -> None:
    r"""Audit one training run by its canaries: does it satisfy the claim?

    A canary is an example that is included in the training data with probability 1/2; a larger
    score means that the model seems to have seen it.

    Example: dpcore audit canaries scores.csv --claim epsilon=8,delta=1e-5

    Exit code: 0 not refuted, 1 refuted, 2 usage, 4 nothing measured.
    """
    printed = format_of(form, as_json=as_json)
    from audit.claims.verdicts import level
    from audit.training.canary_audit import canaries, read_scores

    exact = level("--alpha", alpha)
    number = None if guesses is None else whole_number("--guesses", guesses, at_least=1)
    check_writable("--html", html)
    if html is not None and html.resolve() == Path(scores).resolve():
        raise InvalidParameter(
            "--html", str(html), "would overwrite the file of SCORES: choose another path"
        )
    values, included = read_scores(scores)
    names = ("claim", "relation", "guesses", "guess")
    with named(*names, epsilon="--claim: epsilon", delta="--claim: delta"):
        report = canaries(
            values,
            included,
            claim,
            relation=relation,
            guesses=number,
            guess=guess,  # type: ignore[arg-type]  # refused by name where it is another word
            confidence=1 - exact,
            seed=read_seed("--seed", seed),
        )
    if html is not None:
        command = shlex.join(["dpcore", *sys.argv[1:]])
        write_whole("--html", html, report.to_html(command=command))
    say((f"warning: {warning}" for warning in report.warnings), sys.stderr)
    leave_with(report, printed)


@with_optional_time_limit
@with_spec("alpha", "seed", "timeout")
def dpsgd_command(
    given: dict[str, Any],
    step: str = argument(
        "STEP",
        "module:Class or file.py:Class with two methods: sample(rng) returns the records of "
        "the next batch, update(gradients, rng) the released vector, from per-example "
        "gradients (batch x dimension). Or a library's step: jax-privacy (needs "
        "dpcore\\[bench]), opacus (needs dpcore\\[opacus]).",
    ),
    *,
    records: str = option("N", "Number of records in the data.", default=...),
    rate: str = option("Q", "The stated probability that a record enters a batch.", default=...),
    noise_multiplier: str = option(
        "SIGMA", "The stated standard deviation of the noise, over the clipping norm.", default=...
    ),
    clip: str = option(
        "C", "The stated clipping norm: the largest l2 norm of a gradient.", default=...
    ),
    sampling: str = option(
        "WORD",
        "poisson: each record independently; fixed: exactly rate x records in every batch.",
        default="poisson",
    ),
    dimension: str = option("D", "Number of coordinates of a gradient.", default="500"),
    batches: str = option("N", "Number of batches to draw.", default="400"),
    draws: str = option(
        "N", "Number of coordinates of noise to test.", "-n", "--draws", default="20000"
    ),
    as_json: AsJson = False,
    form: AsFormat = Format.TEXT,
) -> None:
    r"""Audit a training step: does it sample, clip, add noise and divide as stated?

    Example: dpcore audit dpsgd step.py:Step --records 1000 --rate 0.1 --noise-multiplier 1 --clip 1

    Exit code: 0 not refuted, 1 refuted or a fault, 2 usage, 3 the step failed, 4 some checks could
    not be made.
    """
    printed, spec = format_of(form, as_json=as_json), spec_of(given)
    numbers = {
        name: whole_number(f"--{name}", text, at_least=least)
        for name, text, least in (
            ("records", records, 2), ("dimension", dimension, 2), ("batches", batches, 2),
            ("draws", draws, 100),
        )
    }  # fmt: skip
    seed = _seed(spec)

    def load() -> Any:
        from audit.outputs import loading
        from audit.training.dpsgd_step import LIBRARIES

        return step if step in LIBRARIES else loading.load(step)

    def audited(made: Any) -> Result:
        from audit.training.dpsgd_step import dpsgd

        return dpsgd(
            made,
            **numbers,
            rate=rate,
            noise_multiplier=noise_multiplier,
            clip=clip,
            sampling=sampling,  # type: ignore[arg-type]  # refused by name where it is another word
            alpha=spec.alpha,
            seed=seed,
            timeout=spec.timeout,
            target=step,
        )

    names = ("records", "rate", "clip", "sampling", "alpha", "noise_multiplier")
    options = named(*names, step="STEP", target="STEP")
    _leave_isolated(step, spec, load, audited, printed, options)


_EPSILONS: Final = ("0", "1/2", "1", "2")
_DELTAS: Final = ("0", "1e-6")
_ORDERS: Final = ("2", "inf")


def exact(
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
    to the true one for the highest precision; this never happens with two files.
    """
    printed = format_of(form, as_json=as_json)
    from audit.claims.curve_claim import read_claim
    from audit.known_laws.divergence import decide
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
            raise InvalidParameter("Q", q, f"must be the noise of P with another shift: P = {p}")
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
    one: WrittenLaw,
    other: WrittenLaw,
    quantities: tuple[list[str] | None, list[str] | None, list[str] | None],
    *,
    default: bool,
) -> tuple[tuple[Point, ...], list[str]]:
    # The requested points; without a request, the points of the default table that can be derived.
    from accounting.errors import NotDerived

    wanted = _wanted(one, other, quantities)
    if wanted or not default:
        return tuple(find() for find in wanted), []
    found: list[Point] = []
    refused: list[Exception] = []
    for find in _wanted(one, other, (_EPSILONS, _DELTAS, _ORDERS)):
        try:
            found.append(find())
        except (NotDerived, PrecisionExhausted) as error:
            refused.append(error)
    if not found:
        raise refused[0]
    return tuple(found), list(dict.fromkeys(map(str, refused)))


def _wanted(
    one: WrittenLaw, other: WrittenLaw, quantities: tuple[Sequence[str] | None, ...]
) -> list[Callable[[], Point]]:
    from audit.known_laws.divergence import delta_point, epsilon_point, renyi_point

    epsilons, deltas, orders = (texts or () for texts in quantities)
    p, q = one.law, other.law
    return [
        *(partial(delta_point, p, q, at_least_zero("--epsilon", text)) for text in epsilons),
        *(partial(epsilon_point, p, q, rational_in("--delta", text, "[0, 1)")) for text in deltas),
        *(partial(renyi_point, p, q, _order(text)) for text in orders),
    ]


def _order(text: str) -> Order:
    if text.strip().lower() in {"inf", "infinity"}:
        return math.inf
    exact = rational("--order", text)
    if exact <= 1:
        raise InvalidParameter("--order", text, "must be > 1, or inf")
    return exact
