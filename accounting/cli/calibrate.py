r"""``dpcore budget calibrate``: the least noise, the most rounds or the largest sampling rate."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from accounting.cli import answers
from accounting.cli.composition_options import Delta, Group, Neighbours, Releases, rate_of, whole
from accounting.composition.training_run import TrainingRun
from dpcore.cli.options import AsJson, named, option, share, with_fields, with_time_limit
from dpcore.cli.terminal import progress_bar, show
from dpcore.errors import ABSENT, InvalidParameter
from dpcore.mechanism import Relation
from dpcore.numbers.parameter import rational
from dpcore.numbers.rounding import exactly
from dpcore.parse_noise import read_sensitivity, write_noise

if TYPE_CHECKING:
    from accounting.descriptions.sampling_schemes import Scheme
    from accounting.privacy_curves.release_curve import OneRelease


_MOST: Final = "most"
_Answer: TypeAlias = tuple[dict[str, Any], list[answers.Fact]]
# The JSON document and the lines of text.


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationOptions:
    r"""A target guarantee and the known parameters of the releases, as options."""

    noise: str = option(
        "LAW",
        "The noise law, without a scale: discrete-gaussian, gaussian (added in floats) or "
        "polya-difference:shape=0.9. Give the scale too if --rounds or --poisson is 'most'.",
        default=...,
    )
    epsilon: str = option("EPSILON", "The target epsilon, e.g. 2.", default=...)
    delta: Delta = "0"
    sensitivity: str = option(
        "D",
        "The largest change that one person can cause in the answer (1 for a count).",
        default="1",
    )
    rounds: str = option(
        "K",
        "The number of releases of the query, or 'most' to find the largest number.",
        default="1",
    )
    poisson: str = option(
        "RATE",
        "The probability that a person is sampled in a round, e.g. 256/60000, or 'most' to find "
        "the largest.",
        default="100%",
    )
    scheme: str | None = option(
        "SCHEME",
        "Another sampling scheme, such as fixed-size:sample=10,population=1000, as in dpcore "
        "budget epsilon; it replaces --poisson.",
    )
    honest: str = option(
        "SHARE",
        "The fraction of users who add their noise, e.g. 90%; each user's share is then larger.",
        default="100%",
    )
    relation: Neighbours = None
    group: Group = "1"
    batch_size: str | None = option(
        "B", "The expected size of a Poisson batch; with --examples it replaces --poisson."
    )
    examples: str | None = option("N", "The size of the training data, with --batch-size.")
    epochs: str | None = option(
        "E", "The number of epochs; with --batch-size it replaces --rounds."
    )


def _of_training(wanted: CalibrationOptions) -> CalibrationOptions:
    # Convert --batch-size, --examples and --epochs to --poisson and --rounds.
    given = {"--batch-size": wanted.batch_size, "--examples": wanted.examples}
    if wanted.epochs is None and not any(given.values()):
        return wanted
    for name, value in given.items():
        if value is None:
            raise InvalidParameter(name, ABSENT, "use --batch-size and --examples together")
    for name, value, default in (
        ("--poisson", wanted.poisson, "100%"),
        ("--rounds", wanted.rounds, "1" if wanted.epochs else wanted.rounds),
    ):
        if value != default:
            raise InvalidParameter(name, value, "must be omitted: the training options set it")
    with named("batch_size", "examples", "epochs"):
        run = TrainingRun(
            noise_multiplier=1,
            batch_size=whole("--batch-size", str(wanted.batch_size), 1),
            examples=whole("--examples", str(wanted.examples), 1),
            epochs=wanted.epochs or 0,
            rounds=0 if wanted.epochs else 1,
        )
    count = str(run.rounds) if wanted.epochs else wanted.rounds
    return replace(wanted, poisson=str(run.rate), rounds=count)


@with_time_limit
@with_fields
def calibrate(wanted: CalibrationOptions, *, as_json: AsJson = False) -> None:
    r"""Find the least noise, the most rounds or the largest sampling rate for a guarantee.

    Example: dpcore budget calibrate --noise discrete-gaussian --rounds 50 --epsilon 2 --delta 1e-6

    --rounds most finds the largest number of rounds, --poisson most the largest sampling rate.
    """
    wanted = _of_training(wanted)
    document, facts = (_most if _MOST in (wanted.rounds, wanted.poisson) else _noise)(wanted)
    show({"schema": answers.SCHEMA, **document} if as_json else answers.lines(facts))


def _noise(wanted: CalibrationOptions) -> _Answer:
    from accounting.calibration.calibrate import calibrate as least_noise

    names = ("noise", "epsilon", "delta", "relation", "group", "scheme", "sensitivity")
    others = {"honest_fraction": "--honest", "members": "--group"}
    others |= dict.fromkeys(("shape", "probability", "count"), "--noise")
    count, kept = whole("--rounds", wanted.rounds, 1), rational("--delta", wanted.delta)
    options = named(*names, **others)
    with progress_bar("sizes of the noise tried", None) as advance, options:
        found = least_noise(
            noise=wanted.noise,
            epsilon=rational("--epsilon", wanted.epsilon),
            delta=kept,
            rounds=count,
            sensitivity=read_sensitivity("--sensitivity", wanted.sensitivity),
            honest_fraction=share("--honest", wanted.honest),
            rate=rate_of(wanted.poisson),
            scheme=_scheme(wanted),
            relation=wanted.relation,
            group=whole("--group", wanted.group, 1),
            watch=advance,
        )
    quantity, plural = f"delta({wanted.epsilon})" if kept else "epsilon(0)", "s" * (count != 1)
    target = f"epsilon = {wanted.epsilon}, delta = {wanted.delta}"
    facts = [
        ("noise", write_noise(found.noise)),
        ("target", f"{target} over {count} round{plural}"),
        ("reached", f"{quantity} is {answers.between(found.found)}"),
    ]
    if found.step_less is not None:
        facts.append(
            answers.beyond_fact("less noise", write_noise(found.step_less), found.edge, quantity)
        )
    facts += [("method", answers.computed_by(found.found)), *answers.assumed(found.total())]
    return {**found.to_json(), "delta": answers.exact(kept)}, facts


def _scheme(wanted: CalibrationOptions) -> Scheme:
    from accounting.descriptions.sampling_schemes import EVERYONE, read_scheme

    if wanted.scheme is None:
        return EVERYONE
    if wanted.poisson != "100%":
        reason = "cannot be combined with --poisson: write poisson:rate=1/100"
        raise InvalidParameter("--scheme", wanted.scheme, reason)
    return read_scheme("--scheme", wanted.scheme)


def _most(wanted: CalibrationOptions) -> _Answer:
    from accounting.calibration.calibrate import largest_rate, most_rounds
    from dpcore.local import LocalReport

    if wanted.rounds == wanted.poisson:
        reason = "must be a rate if --rounds is 'most'"
        raise InvalidParameter("--poisson", wanted.poisson, reason)
    if share("--honest", wanted.honest) != 1:
        reason = "must be 100% here: state the noise that the honest users add"
        raise InvalidParameter("--honest", wanted.honest, reason)
    at, limit = rational("--epsilon", wanted.epsilon), rational("--delta", wanted.delta)
    _scheme(wanted)
    rate = None if wanted.poisson == _MOST or rate_of(wanted.poisson) == 1 else [wanted.poisson]
    if wanted.poisson == _MOST and wanted.relation is Relation.REPLACE:
        reason = "must be add-remove when solving for the rate"
        raise InvalidParameter("--relation", wanted.relation.value, reason)
    if wanted.poisson == _MOST and wanted.group != "1":
        raise InvalidParameter("--group", wanted.group, "must be 1 when solving for the rate")
    one = Releases(
        noise=[wanted.noise],
        sensitivity=[wanted.sensitivity],
        poisson=rate,
        scheme=None if wanted.scheme is None else [wanted.scheme],
        relation=wanted.relation,
        group=wanted.group,
    )
    ((description, _),), total = one.described(), one.composed()
    what, next_one = (
        ("rounds", "more rounds") if wanted.rounds == _MOST else ("rate", "higher rate")
    )
    noise = description.noise
    part = cast("OneRelease", total.parts[0][0])  # the composition of a single release
    with progress_bar("bounds on delta", None), named("epsilon", "delta", "noise"):
        if what == "rounds":
            found = most_rounds(part, epsilon=at, delta=limit)
        elif isinstance(noise, LocalReport):
            raise InvalidParameter(
                "--noise", wanted.noise, "must be additive noise when solving for the rate"
            )
        else:
            count, moves = whole("--rounds", wanted.rounds, 1), description.sensitivity
            found = largest_rate(noise, rounds=count, epsilon=at, delta=limit, sensitivity=moves)
    quantity, bound = f"delta({wanted.epsilon})", f"epsilon = {wanted.epsilon}, delta"
    plural, value = what == "rounds" and found.value != 1, exactly(found.value)
    if found.proven:
        words = f"at most {value} {'satisfy' if plural else 'satisfies'}"
    else:
        words = f"{value} {'are' if plural else 'is'} proven to satisfy"
    facts = [
        (what, f"{words} {bound} = {wanted.delta}"),
        ("reached", f"{quantity} is {answers.between(found.found)}"),
    ]
    if found.beyond is not None:
        facts.append(answers.beyond_fact(next_one, exactly(found.beyond), found, quantity))
    head = {"looked_for": what, "assumptions": list(total.assumptions)}
    target = {"epsilon": answers.exact(at), "delta": answers.exact(limit)}
    ends = found.to_json(beyond="one_step_more", proven="most")
    document = {**head, "target": target, "noise": wanted.noise, **ends}
    return document, [*facts, *answers.assumed(total)]
