r"""``dpcore budget dpsgd`` and ``check``: the privacy of training, and checks of other tools."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from importlib.util import find_spec
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from accounting.cli import answers
from accounting.cli.composition_options import (
    CertificateFile,
    Group,
    Relative,
    exactly_one,
    relation_option,
    whole,
)
from accounting.composition.training_run import Sampling, TrainingRun
from accounting.errors import NotDerived
from dpcore.cli.figure_file import check_picture, curve_picture
from dpcore.cli.files import read_text
from dpcore.cli.options import AsJson, flag, named, option, with_fields, with_time_limit
from dpcore.cli.terminal import progress_bar, show
from dpcore.errors import ANSWER, NEGATIVE_ANSWER, NO_ANSWER, InvalidParameter
from dpcore.mechanism import Relation, Scope
from dpcore.numbers.enclosure import End
from dpcore.numbers.parameter import rational, rational_in
from dpcore.numbers.rounding import down, exactly, up

if TYPE_CHECKING:
    from accounting.calibration.parameter_search import Edge
    from accounting.composition.compose import Composition
    from accounting.composition.truncated_batches_delta import Truncated
    from accounting.descriptions.description import Description
    from accounting.guarantees.bound import Bound


_MOST_TEXT: Final = 1 << 20
_DIGITS: Final = 9
_NEAR: Final = "1e-6"

_INDEPENDENT: Final = "each example is in each batch with the same probability, independently"
_ADDED: Final = "neighbours differ by adding or removing one example"
_REPLACED: Final = "neighbours differ by replacing one example, which"
_TWICE: Final = f"{_REPLACED} changes the sum by up to twice the clipping norm"
_EXPLANATIONS: Final = {
    Sampling.POISSON: f"{_INDEPENDENT}; {_ADDED}",
    Sampling.FIXED: f"each batch is a new uniformly random subset of this size; {_TWICE}",
    Sampling.SHUFFLED: "each example is in one batch of each epoch; no amplification is claimed, "
    f"so this is an upper bound for every order of the examples; {_TWICE}",
    Sampling.ALLOCATED: "each example is in one batch of each epoch, uniformly random and chosen "
    "independently of all other examples, so that batches differ in size (shuffling does not do "
    f"this); {_ADDED}",
}
_CHANCE: Final = {
    Sampling.POISSON: "each example in a batch with probability {rate}",
    Sampling.FIXED: "each example in a batch with probability {rate}",
    Sampling.SHUFFLED: "each example in one batch of each epoch",
    Sampling.ALLOCATED: "each example in one of the {batches} batches of each epoch",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    r"""The parameters of a training script, as text."""

    noise_multiplier: str | None = option(
        "Z", "The standard deviation of the noise, divided by the clipping norm; or use --epsilon."
    )
    epsilon: str | None = option(
        "EPSILON", "Find the smallest noise multiplier proven to satisfy this epsilon."
    )
    batch_size: str = option("B", "The (expected) size of a batch.", default=...)
    examples: str = option("N", "The size of the training data.", default=...)
    epochs: str | None = option("E", "The number of epochs; or use --rounds.")
    rounds: str | None = option("K", "The number of batches, instead of --epochs.")
    sampling: Sampling = option(
        "WORD",
        "How batches are drawn: poisson (each example independently), fixed (a random subset "
        "of size B), shuffled (each example once per epoch) or allocated (each example in one "
        "random batch of an epoch).",
        default=Sampling.POISSON,
        case_sensitive=False,
    )
    relation: Relation | None = relation_option(
        "add-remove for poisson and allocated, otherwise replace"
    )
    group: Group = "1"

    def run(self) -> TrainingRun:
        r"""The training run, with noise multiplier 1 if the command solves for the multiplier."""
        exactly_one("--noise-multiplier", self.noise_multiplier, "--epsilon", self.epsilon)
        exactly_one("--epochs", self.epochs, "--rounds", self.rounds)
        with named(*_PARAMETERS):
            return TrainingRun(
                noise_multiplier=self.noise_multiplier or 1,
                batch_size=whole("--batch-size", self.batch_size, 1),
                examples=whole("--examples", self.examples, 1),
                epochs=self.epochs or 0,
                rounds=0 if self.rounds is None else whole("--rounds", self.rounds, 1),
                sampling=self.sampling,
                relation=self.relation,
                group=whole("--group", self.group, 1),
            )


_PARAMETERS: Final = tuple(each.name for each in fields(TrainingRun))


@with_time_limit
@with_fields
def dpsgd(
    script: RunOptions,
    *,
    delta: str = option("DELTA", "The delta, e.g. 1e-5.", default=...),
    truncate: str | None = option(
        "MOST", "With poisson: larger batches are truncated to this size, at random."
    ),
    relative: Relative = _NEAR,
    certificate: CertificateFile = None,
    evidence: bool = flag(
        "Write the bounds that the integer kernel proves, and its precision; for 14,000 batches "
        "this takes about 30 seconds.",
        "--evidence",
    ),
    plot: Path | None = option(
        "FILE",
        "Plot epsilon over epochs to a file: .svg, .png or .pdf; for poisson batches also RDP "
        "and PLD, if dp-accounting is installed.",
    ),
    as_json: AsJson = False,
) -> None:
    r"""Compute the privacy of DP-SGD training from the parameters of a training script.

    Example: dpcore budget dpsgd --noise-multiplier 1.1 --batch-size 256 \
    --examples 60000 --epochs 60 --delta 1e-5

    With --epsilon 3 instead of --noise-multiplier the command finds the least noise for epsilon 3.
    """
    run, sampling, epsilon = script.run(), script.sampling, script.epsilon
    _check(truncate, script, {"--certificate": certificate, "--plot": plot}, evidence=evidence)
    explanation = _EXPLANATIONS[sampling]
    if sampling is Sampling.POISSON and run.relation is Relation.REPLACE:
        explanation = f"{_INDEPENDENT}; {_REPLACED} may change the sum in the opposite direction"
    at = rational_in("--delta", delta, "(0, 1)")
    if plot is not None:
        check_picture("--plot", plot)
    least = None if epsilon is None else _least_multiplier(run, epsilon, at)
    if least is not None:
        run = replace(run, noise_multiplier=least.value)
    noise = dict.fromkeys(("noise", "sigma"), "--noise-multiplier")
    with named(*_PARAMETERS, members="--group", **noise):
        step, _ = run.release()
        total = run.composition()
    cut = None if truncate is None else _truncated(total, run, truncate)
    with named("delta", "relative", "rounds"):
        found = total.epsilon(at, relative) if cut is None else _at_random(cut, step, at, relative)
    found = run.bounded(found)
    written = answers.write_certificate(certificate, total, at, evidence=evidence)
    if plot is not None:
        batch = f"{run.batch_size} of {run.examples} examples per batch"
        title = f"{batch}, delta = {delta}, {sampling.value}"
        draw_epochs(plot, [over_epochs(run, at)], title=title)
    command = run.command(delta) if truncate is None else None
    derived: dict[str, Any] = {
        "rounds": run.rounds,
        "rate": str(run.rate),
        "epochs": exactly(run.epochs),
        "sampling": sampling.value,
        "means": explanation,
    }
    if least is not None:
        derived["noise_multiplier"] = least.to_json(beyond="one_step_less", proven="least")
    drawn = _CHANCE[sampling].format(rate=run.rate, batches=run.batches)
    facts = [
        *answers.of_least("noise multiplier", least),
        ("epsilon", f"{answers.between(found)} at delta = {delta}"),
        ("derived", f"{run.rounds} batch{'es' * (run.rounds != 1)}, {drawn}"),
        ("sampling", f"{sampling.value}: {explanation}"),
        *written,
    ]
    if sampling is Sampling.SHUFFLED:
        facts += _if_poisson(run, at, relative)
    if cut is not None:
        derived |= {"truncate": cut.most, "cut_at_all": cut.cut_at_all.upper_float}
        eta = f"probability {up(cut.cut_at_all.upper, _DIGITS)} that any batch is truncated"
        facts.append(("truncated", f"to {cut.most}, with {eta}"))
    if as_json:
        answer = {"epsilon": found.to_json(), "delta": answers.exact(at), "derived": derived}
        show({**answers.document(answer, total, found), "command": command})
        return
    same = [] if command is None else [("equivalent", command)]
    show([*answers.lines(facts), *answers.lines_of(total, found), *answers.lines(same)])


def _least_multiplier(run: TrainingRun, epsilon: str, delta: Fraction) -> Edge:
    from accounting.calibration.calibrate_noise_rounds_or_rate import noise_multiplier

    wanted, options = rational("--epsilon", epsilon), ("epsilon", "delta", "relation", "group")
    with progress_bar("noise multipliers tried", None) as advance, named(*options):
        return noise_multiplier(run, epsilon=wanted, delta=delta, watch=advance)


def _if_poisson(run: TrainingRun, delta: Fraction, relative: str) -> list[answers.Fact]:
    # This explains why the bound for shuffled batches is large: the cost of Poisson samples.
    sampled = replace(run, sampling=Sampling.POISSON, relation=None, epochs=0).composition()
    found = answers.between(sampled.epsilon(delta, relative))
    hint = "for adding or removing one example; this is not a bound for shuffled batches"
    return [("if poisson", f"{found}, {hint}")]


def _check(
    truncate: str | None, script: RunOptions, files: dict[str, Path | None], *, evidence: bool
) -> None:
    if evidence and files["--certificate"] is None:
        raise InvalidParameter("--evidence", "true", "requires --certificate FILE")
    if truncate is None:
        return
    if script.sampling is not Sampling.POISSON:
        reason = f"requires --sampling poisson, not {script.sampling.value}"
        raise InvalidParameter("--truncate", truncate, reason)
    if script.epsilon is not None:
        reason = "requires a given --noise-multiplier: truncation increases epsilon"
        raise InvalidParameter("--truncate", truncate, reason)
    for name, file in files.items():
        if file is not None:
            reason = "cannot be combined with --truncate: the file would omit its cost"
            raise InvalidParameter(name, str(file), reason)


def _truncated(total: Composition, run: TrainingRun, most: str) -> Truncated:
    from accounting.composition.truncated_batches_delta import Truncated

    if run.rate == 1:
        reason = "requires sampled batches: full batches include every example"
        raise InvalidParameter("--truncate", most, reason)
    return Truncated(total=total, examples=run.examples, most=whole("--truncate", most, 1))


def _at_random(cut: Truncated, step: Description, delta: Fraction, relative: str) -> Bound:
    # The bound for any truncation; if neighbours differ in one example, it is intersected with the
    # bound for random truncation.
    from accounting.composition.compose import compose, narrower
    from accounting.derive_guarantee import guarantee
    from accounting.descriptions.sampling_schemes import Poisson, TruncatedPoisson

    found = cut.epsilon(delta, relative)
    if step.group > 1 or not isinstance(step.scheme, Poisson):
        return found
    scheme = TruncatedPoisson(rate=step.scheme.rate, examples=cut.examples, most=cut.most)
    random = guarantee(replace(step, scheme=scheme))
    return narrower(found, compose((random, cut.total.rounds)).epsilon(delta, relative))


# -- plots ------------------------------------------------------------------------------------

_COLOURS: Final = ("black", "tab:red", "tab:blue", "tab:green", "tab:purple")
# Rings around the dots mark a curve that coincides with another one.
_STYLES: Final[tuple[dict[str, Any], ...]] = (
    {"linestyle": "--"},
    {"linestyle": "", "marker": "o", "markersize": 8, "fillstyle": "none"},
)

_TENTHS: Final = 10


def draw(path: Path, points: Sequence[tuple[float, Bound]], *, title: str) -> None:
    r"""Plot ``points``, pairs (delta, bound on epsilon), with a logarithmic delta axis."""
    from accounting.guarantees.plot_curve import draw_curve

    with curve_picture("--plot", path, title=title) as axes:
        draw_curve(axes, points)


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    r"""The epsilon of one training run after each number of epochs, to be plotted.

    ``points`` contains pairs (epochs, bound on epsilon). ``others`` maps the name of another tool
    to its pairs (epochs, epsilon).
    """

    label: str
    points: tuple[tuple[float, Bound], ...]
    others: dict[str, tuple[tuple[float, float], ...]]


def over_epochs(run: TrainingRun, delta: Fraction) -> Training:
    r"""Bound epsilon after each tenth of a run, if possible also with dp-accounting."""
    from accounting.interop.from_dp_accounting import library

    counts = sorted({max(run.rounds * i // _TENTHS, 1) for i in range(1, _TENTHS + 1)})
    points = []
    with progress_bar("epochs", len(counts)) as advance:
        for count in counts:
            shorter = run.first(count)
            found = shorter.bounded(shorter.composition().epsilon(delta, _NEAR))
            points.append((float(shorter.epochs), found))
            advance(len(points))
    others: dict[str, tuple[tuple[float, float], ...]] = {}
    sampled = run.sampling is Sampling.POISSON and run.relation is not Relation.REPLACE
    if sampled and run.group == 1 and find_spec("dp_accounting"):
        dp, at = library(), float(delta)
        noise = dp.GaussianDpEvent(float(run.noise_multiplier))
        event = dp.PoissonSampledDpEvent(float(run.rate), noise)
        rdp, pld = library("dp_accounting.rdp"), library("dp_accounting.pld")
        for tool, kind in (("RDP", rdp.RdpAccountant), ("PLD", pld.PLDAccountant)):
            epsilons = (float(kind().compose(event, n).get_epsilon(at)) for n in counts)
            epochs = (x for x, _ in points)
            others[f"{tool} of dp-accounting"] = tuple(zip(epochs, epsilons, strict=True))
    label = f"noise multiplier {exactly(run.noise_multiplier)}"
    return Training(label=label, points=tuple(points), others=others)


def draw_epochs(path: Path, lines: Sequence[Training], *, title: str) -> None:
    r"""Plot proven bounds on epsilon against epochs, and the values of other tools."""
    if not any(bound.upper < math.inf for line in lines for _, bound in line.points):
        reason = "there is nothing to plot, because every epsilon is infinite"
        raise InvalidParameter("--plot", str(path), reason)
    labels = {"x_label": "epochs", "y_label": "epsilon"}
    with curve_picture("--plot", path, title=title, y_scale="linear", **labels) as axes:
        for line, colour in zip(lines, cycle(_COLOURS), strict=False):
            finite = [(x, bound) for x, bound in line.points if bound.upper < math.inf]
            known = [(x, b.lower_float) for x, b in finite if b.lower_float is not None]
            ends = "both proven bounds" if len(known) == len(finite) else "proven upper bound"
            marks: dict[str, Any] = {"color": colour, "linewidth": 1.0}
            dots = {**marks, "marker": "o", "markersize": 2.5}
            epochs, above = [x for x, _ in finite], [b.upper_float for _, b in finite]
            axes.plot(epochs, above, label=f"{line.label}: {ends}", **dots)
            if known:
                axes.plot(*zip(*known, strict=True), **dots)
            for (tool, found), style in zip(line.others.items(), _STYLES, strict=False):
                title = f"{line.label}: {tool}"
                axes.plot(*zip(*found, strict=True), label=title, **{**marks, **style})


# -- checks of other tools --------------------------------------------------------------------


@with_time_limit
def check(
    *,
    event: Path = option(
        "FILE",
        'An event of dp-accounting as JSON: class_name and fields, e.g. {"class_name": '
        '"GaussianDpEvent", "noise_multiplier": 1.1}; or what another command prints with --json. '
        "- is standard input.",
        default=...,
    ),
    delta: str = option("DELTA", "The delta at which both epsilons are compared.", default=...),
    says: str = option("EPSILON", "The epsilon that another tool reports.", default=...),
    relation: Relation | None = relation_option("add-remove, or the relation in the file"),
    as_json: AsJson = False,
) -> None:
    r"""Check another tool's epsilon: is it a proven upper bound for an event of dp-accounting?

    Example: dpcore budget check --event event.json --delta 1e-6 --says 6.907419

    Exit code: 0 the reported epsilon is a proven upper bound; 1 the true epsilon is larger; 4
    undecided; 2 an invalid option.
    """
    from accounting.composition.compose import compose
    from accounting.composition.guarantee_from_json import guarantee_from_json
    from accounting.interop.from_dp_accounting import document_of, event_from_json, from_dp_event

    claimed, at = rational("--says", says), rational("--delta", delta)
    if claimed < 0:
        raise InvalidParameter("--says", says, "must be >= 0")
    text = read_text("--event", event, most=_MOST_TEXT, stdin=True)
    run: dict[str, Any] = {}
    with _of_file(event):
        parts = document_of(text)
        if isinstance(parts, dict) and "class_name" not in parts and "parts" in parts:
            run, parts = parts, parts["parts"]
        if isinstance(parts, list) or (isinstance(parts, dict) and "claim" in parts):
            total = compose(guarantee_from_json(parts))
        else:
            among = Scope(relation=relation or Relation.ADD_REMOVE)
            total = from_dp_event(event_from_json(text), among)
    own = total.scope.relation
    if relation is not None and relation is not own:
        raise InvalidParameter("--relation", relation.value, f"must be {own.value}, as in the file")
    if "truncate" in (run.get("derived") or ()):
        reason = "must be a run without truncation: its parts lack the cost of truncation"
        raise InvalidParameter("--event", str(event), reason)
    with named("delta"):
        found = total.epsilon(at)
    stated = run.get("epsilon")
    if isinstance(stated, dict) and stated.get("lower") is None:
        # A run whose batches are shuffled, or whose pass ends early, may have a smaller loss than
        # its parts.
        found = replace(found, lower=None)
    # The least amount by which the reported epsilon differs from the true one.
    gap: End | None = None
    verdict, code = "undecided", NO_ANSWER
    if found.upper <= claimed:
        verdict, code, gap = "an upper bound, proven", ANSWER, claimed - Fraction(found.upper)
    elif found.lower is not None and found.lower > claimed:
        verdict, code = "below the truth", NEGATIVE_ANSWER
        gap = math.inf if found.lower == math.inf else Fraction(found.lower) - claimed
    by = None if gap is None else down(gap, _DIGITS)
    distance = "" if by is None else f", by at least {by}"
    distance = ", which is infinite" if gap == math.inf else distance
    answer = {
        "epsilon": found.to_json(),
        "delta": answers.exact(at),
        "says": answers.exact(claimed),
        "verdict": verdict,
        "by_at_least": by,
    }
    facts = [
        ("says", f"{says} at delta = {delta}: {verdict}{distance}"),
        ("epsilon", answers.between(found)),
    ]
    answers.show_answer(answer, facts, total, found, as_json=as_json)
    raise typer.Exit(code)


@contextmanager
def _of_file(event: Path) -> Iterator[None]:
    # Report any error in the event under the option --event, with the name of its file.
    try:
        yield
    except InvalidParameter as error:
        reason = error.reason if str(error.value) == "..." else f"{error.value}: {error.reason}"
        if error.argument != "event":
            reason = f"{error.argument} = {reason}"
        raise InvalidParameter("--event", str(event), reason) from None
    except NotDerived as error:
        raise InvalidParameter("--event", str(event), str(error)) from None
    except RecursionError:
        raise InvalidParameter("--event", str(event), "is nested too deeply") from None
