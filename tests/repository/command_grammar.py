r"""Generate hostile command lines of ``dpcore``.

A line is a valid one with one or two of its values replaced by hostile ones. The options of each
command are those of its parser; a new option needs its row in ``VALUES``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Final

from tests.repository.test_options import COMMANDS

__all__ = ["HOSTILE", "TYPED", "line"]

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
r"""Stands for any noise."""

# What fits each value and each option; the options that a command has, its parser knows.
VALUES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "noise": (NOISE,),
        "values": ("3", "-1"),
        "--noise": (NOISE,),
        "--sensitivity": ("1", "2", "l1=3", "l2-squared=4", "box=1x2"),
        "--rounds": ("1", "3", "8"),
        "--relative": ("1e-4",),
        "--relation": ("add-remove", "replace"),
        "--group": ("1", "2"),
        "--poisson": ("1%", "1/2"),
        "--scheme": ("poisson:rate=1/9", "fixed-size:sample=2,population=9", "allocated:rounds=9"),
        "--epsilon": ("1", "1/2"),
        "--delta": ("1e-6", "0"),
        "--least-delta": ("1e-6",),
        "--points": ("2",),
        "--visits": ("1,2",),
        "--event": (str(Path(__file__).with_name("event.json")),),
        "--says": ("1.5",),
        "--noise-multiplier": ("1.1",),
        "--batch-size": ("256",),
        "--examples": ("60000",),
        "--epochs": ("1",),
        "--sampling": ("poisson", "fixed", "shuffled", "allocated"),
        "--truncate": ("400",),
        "--horizon": ("8",),
        "--low": ("-1",),
        "--high": ("2",),
        "--unit": ("1/2",),
        "--strategy": ("tree", "square-root", "banded:bands=3", "toeplitz:c=1 1/2"),
        "--participations": ("2",),
        "--apart": ("3",),
        "--instance": (
            *("pure", "renyi", "concentrated", "central", "local"),
            *("shuffled-pure", "binary-shuffle", "vector-shuffle"),
        ),
        "--users": ("12",),
        "--honest": ("90%",),
        "--parameters": ("exact", "paper"),
        "--precision": ("4",),
        "--scaling": ("1", "2"),
        "--coordinates": ("1", "2"),
        "--failure": ("1e-6",),
        "--dropouts": ("1", "10%"),
        "--aggregation": ("ideal", "ideal-per-user"),
        "-n": ("1", "2"),
        "--seed": ("1",),
        "--bits": ("64",),
    }
)
OWN: Final[Mapping[tuple[str, str], tuple[str, ...]]] = MappingProxyType(
    {
        ("calibrate", "--noise"): (
            *("discrete-laplace", "discrete-gaussian", "skellam", "polya-difference:shape=0.9"),
            *("binomial:probability=1/2", "discrete-gaussian-sum:count=3"),
        ),
        ("matrix", "--noise"): ("gaussian:sigma=4",),
    }
)
ALWAYS: Final = {"--points", "--noise-multiplier", "--epochs", "--visits", "--noise"}
r"""Of the options that the parser does not require; about half of the others are omitted."""

ONE_OF: Final = (
    *(("--poisson", "--scheme"), ("--noise", "--epsilon"), ("--noise-multiplier", "--epsilon")),
    *(("--epochs", "--rounds"), ("--visits", "--rounds")),
)
r"""Pairs of options that exclude one another where the parser does not require both."""

OMITTED: Final = {"--within", "--certificate", "--plot", "--evidence"}
r"""Options that write files, and the time that every line has."""

TRAINING: Final = {"--batch-size", "--examples", "--epochs"}
r"""Belong together: ``dpcore budget dpsgd`` has them alone."""

TYPED: Final = {
    words: command
    for words, command in COMMANDS.items()
    if words in {("sample",), ("pmf",)} or (words[1:] and words[0] in {"budget", "protocol"})
}
r"""The commands that the fuzzer types."""


def line(rng: Random, words: tuple[str, ...]) -> list[str]:
    r"""Return a command line with one or two hostile values; equal ``rng`` give equal lines."""
    chosen = {one.opts[0]: one for one in TYPED[words].params if OMITTED.isdisjoint(one.opts)}
    for name, one in [*chosen.items()]:
        omitted = name not in ALWAYS and rng.random() < 0.5
        if not one.required and (omitted or (words[-1] == "calibrate" and name in TRAINING)):
            del chosen[name]
    for pair in ONE_OF:
        given = [name for name in pair if name in chosen and not chosen[name].required]
        if given and chosen.keys() >= set(pair):
            del chosen[rng.choice(given)]
    places = [name for name, one in chosen.items() if not getattr(one, "is_flag", False)]
    hostile = set(rng.sample(places, min(len(places), rng.choice((0, 1, 1, 1, 2)))))
    typed = [*words, "--within", SECONDS]
    for name in chosen:
        typed += [name] if name.startswith("-") else []
        if name in places:
            fitting = OWN.get((words[-1], name)) or VALUES[name]
            typed.append(_value(rng, fitting, hostile=name in hostile))
    return typed


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
