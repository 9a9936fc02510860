r"""Generate hostile command lines: a grammar of ``dpcore``, one row per command.

A line is a valid one with one or two of its values replaced by hostile ones. A new command is one
more row of ``COMMANDS``; the values of its options are of the kinds below.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Final

__all__ = ["COMMANDS", "HOSTILE", "Row", "line"]

HOSTILE: Final = (
    "0", "-0", "-1", "nan", "inf", "-inf", "1e309", "-1e309", "1e-400", "1e3999", "1e-3999",
    "1e-330", "1e-10", "1e-30", "1e-100", "1e30", "1e100", "1/3", "1/0", "0.5", "1e4", "1e9",
    "1e18", "4611686018427387904", "9" * 3999, "9" * 5000, "1e999999999", "1e-999999999", "",
    " ", "٣", "½", "1_000", "0x10", "1e", "--", "-", "true", "None", "é\u202e", "100%", "1e-400%",
    "1,2", "1,2,3,...,1e18", "[" * 2000, "a" * 9000, "\x1b[31m",
)  # fmt: skip
r"""What stands in the place of a value."""

SECONDS: Final = "2"
r"""How long a command may compute before it says that it has no answer."""

_LAWS: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "discrete-laplace": {"scale": "10"},
        "discrete-gaussian": {"sigma_squared": "40"},
        "discrete-gaussian-sum": {"count": "3", "sigma_squared": "40"},
        "staircase": {"epsilon": "2", "sensitivity": "5"},
        "skellam": {"variance": "400"},
        "polya": {"shape": "3", "scale": "10"},
        "polya-difference": {"shape": "3/4", "scale": "10"},
        "poisson": {"mean": "40"},
        "binomial": {"trials": "400", "probability": "1/3"},
    }
)
NOISE: Final = "noise"
EVENT: Final = str(Path(__file__).with_name("event.json"))
SENSITIVITY: Final = ("1", "2", "l1=3", "l2-squared=4", "box=1x2")
INSTANCES: Final = (
    "pure", "renyi", "concentrated", "central", "local", "shuffled-pure", "binary-shuffle",
    "vector-shuffle",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    r"""One command: its words, its positional values, and its options with valid values.

    ``NOISE`` stands for any noise. ``optional`` are omitted from about half of the lines.
    ``answers`` are the exit codes of a successful run.
    """

    words: tuple[str, ...]
    values: tuple[tuple[str, ...], ...] = ()
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    optional: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    answers: tuple[int, ...] = (0,)


_RELEASES: Final = {"--noise": (NOISE,)}
_MORE: Final = {
    "--sensitivity": SENSITIVITY,
    "--rounds": ("1", "3", "10"),
    "--relative": ("1e-4",),
    "--relation": ("add-remove", "replace"),
    "--group": ("1", "2"),
    "--json": (),
}
_SCHEMES: Final = ("poisson:rate=1/9", "fixed-size:sample=2,population=9", "allocated:rounds=9")
_SAMPLED: Final = {**_MORE, "--poisson": ("1%", "1/2"), "--scheme": _SCHEMES}
_PROTOCOL: Final = {"--instance": INSTANCES, "--users": ("12",), "--epsilon": ("1", "1/2")}
_PROTOCOL_MORE: Final = {
    "--delta": ("1e-6",),
    "--honest": ("90%",),
    "--parameters": ("exact", "paper"),
    "--precision": ("4",),
    "--scaling": ("1", "2"),
    "--coordinates": ("1", "2"),
    "--failure": ("1e-6",),
    "--json": (),
}
COMMANDS: Final = (
    Row(
        words=("sample",),
        values=((NOISE,),),
        optional={"-n": ("1", "5"), "--seed": ("1",), "--json": ()},
    ),
    Row(words=("pmf",), values=((NOISE,), ("3", "-1")), optional={"--bits": ("64",), "--json": ()}),
    Row(
        words=("budget", "epsilon"),
        options={**_RELEASES, "--delta": ("1e-6", "0")},
        optional=_SAMPLED,
    ),
    Row(words=("budget", "delta"), options={**_RELEASES, "--epsilon": ("1",)}, optional=_SAMPLED),
    Row(
        words=("budget", "curve"),
        options={**_RELEASES, "--points": ("2",)},
        optional={**_MORE, "--least-delta": ("1e-6",)},
    ),
    Row(
        words=("budget", "calibrate"),
        options={
            "--noise": (
                "discrete-laplace",
                "discrete-gaussian",
                "skellam",
                "polya-difference:shape=0.9",
                "binomial:probability=1/2",
                "discrete-gaussian-sum:count=3",
            ),
            "--epsilon": ("1",),
            "--delta": ("1e-3", "0"),
        },
        optional={
            "--sensitivity": ("1", "2"),
            "--rounds": ("1", "2"),
            "--honest": ("90%",),
            "--relation": ("add-remove", "replace"),
        },
    ),
    Row(
        words=("budget", "returning"),
        options={"--noise": (NOISE,), "--visits": ("1,2",)},
        optional={"--delta": ("1e-6",), "--sensitivity": SENSITIVITY, "--poisson": ("1%",)},
    ),
    Row(
        words=("budget", "dpsgd"),
        options={
            "--noise-multiplier": ("1.1",),
            "--batch-size": ("256",),
            "--examples": ("60000",),
            "--epochs": ("1",),
            "--delta": ("1e-5",),
        },
        optional={
            "--sampling": ("poisson", "fixed", "shuffled", "allocated"),
            "--group": ("1", "2"),
            "--truncate": ("400",),
            "--relation": ("add-remove", "replace"),
            "--json": (),
        },
    ),
    Row(
        words=("budget", "check"),
        options={"--event": (EVENT,), "--delta": ("1e-6",), "--says": ("1.5",)},
        optional={"--relation": ("add-remove", "replace"), "--json": ()},
        answers=(0, 1, 4),
    ),
    Row(
        words=("budget", "continual"),
        options={"--horizon": ("8",), "--epsilon": ("1",)},
        optional={
            "--delta": ("1e-6",),
            "--low": ("-1",),
            "--high": ("2",),
            "--unit": ("1/2",),
            "--relation": ("add-remove", "replace"),
            "--json": (),
        },
    ),
    Row(
        words=("budget", "matrix"),
        options={
            "--strategy": ("tree", "square-root", "banded:bands=3", "toeplitz:c=1 1/2"),
            "--rounds": ("8",),
            "--noise": ("gaussian:sigma=4",),
            "--delta": ("1e-6",),
        },
        optional={
            "--participations": ("2",),
            "--apart": ("3",),
            "--sensitivity": ("1", "l2-squared=2"),
            "--relation": ("add-remove", "replace"),
            "--json": (),
        },
    ),
    Row(words=("protocol", "plan"), options=_PROTOCOL, optional=_PROTOCOL_MORE),
    Row(
        words=("protocol", "simulate"),
        options=_PROTOCOL,
        optional={
            **_PROTOCOL_MORE,
            "--runs": ("2",),
            "--dropouts": ("1", "10%"),
            "--seed": ("1",),
            "--aggregation": ("ideal", "ideal-per-user"),
        },
    ),
)
r"""The commands that the fuzzer types."""


def line(rng: Random, row: Row | None = None) -> list[str]:
    r"""Return a command line with one or two hostile values; equal ``rng`` give equal lines."""
    row = rng.choice(COMMANDS) if row is None else row
    chosen = dict(row.options)
    chosen |= {name: value for name, value in row.optional.items() if rng.random() < 0.5}
    places = [str(i) for i in range(len(row.values))] + [name for name, of in chosen.items() if of]
    hostile = set(rng.sample(places, min(len(places), rng.choice((0, 1, 1, 1, 2)))))
    words = [*row.words, "--within", SECONDS]
    for i, value in enumerate(row.values):
        words.append(_value(rng, value, hostile=str(i) in hostile))
    for name, of in chosen.items():
        words += [name, *([_value(rng, of, hostile=name in hostile)] if of else [])]
    return words


def _value(rng: Random, sane: tuple[str, ...], *, hostile: bool) -> str:
    text = rng.choice(sane)
    if text == NOISE:
        return _noise(rng, hostile=hostile)
    if not hostile:
        return text
    head, equals, _ = text.partition("=")
    return f"{head}={rng.choice(HOSTILE)}" if equals and rng.random() < 0.7 else rng.choice(HOSTILE)


def _noise(rng: Random, *, hostile: bool) -> str:
    law = rng.choice(list(_LAWS))
    given = dict(_LAWS[law])
    if hostile and rng.random() < 0.9:
        given[rng.choice(list(given))] = rng.choice(HOSTILE)
    elif hostile:
        return rng.choice((law, f"{law}:", f"{law}:x=1", *HOSTILE))
    return f"{law}:" + ",".join(f"{key}={value}" for key, value in given.items())
