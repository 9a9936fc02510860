r"""The specification of an audit: target, claim, datasets, methods and time limits.

Keyword arguments, the options of ``dpcore audit``, pytest marks, entries of the corpus of published
failures, and files (``dpcore audit --spec audit.toml``) are all converted to an :class:`AuditSpec`,
which ``audit.run_audit.Audit`` runs. Each field declares its parser, and the name, help text and
help panel of its command-line option.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

from audit.claims import Claim, CurveClaim, read_claim, read_relation
from dpcore.cli.workers import checked_jobs
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Relation
from dpcore.numbers.parameter import (
    RationalLike,
    at_least_zero,
    rational,
    rational_in,
    whole_number,
)
from dpcore.spec_syntax import check_word

if TYPE_CHECKING:
    from audit.features.parse_feature import Feature

FLOATS: Final = ("test", "ignore")
r"""The values of ``floats``: also test the floating-point representation of outputs, or not."""

SensitivityNorm: TypeAlias = Literal["l1", "l2", "linf"]

LAYERS: Final = ("exact", "fit", "replay", "sample")
r"""The names of the layers, in decreasing order of the strength of their evidence."""

_RUNS: Final = 100_000
_SEQUENTIAL_RUNS: Final = 1_000_000
_MOST_RUNS: Final = 10**12
_MOST_TAPES: Final = 10**6
_MOST_SECONDS: Final = 10**7  # operating-system timers accept slightly more
# A p-value that underflows to 0 must not count as below alpha.
_LEAST_ALPHA: Final = Fraction(1, 10**300)


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    r"""The command-line option of a field: its names, metavar, help text and help panel.

    ``read`` parses the value. ``kind`` is the type on the command line, which is not used for a
    switch (a field with default False) or a repeatable option (a field with default ()).
    """

    metavar: str
    help: str
    names: tuple[str, ...] = ()
    panel: str
    kind: Any = str
    read: Callable[[str, Any], Any] | None = None


# -- how the fields are read ----------------------------------------------------------------------


def read_runs(name: str, value: Any) -> int:
    r"""Parse a number of runs from 1 to 10^12, such as 1000 or "1e5"."""
    return whole_number(name, value, at_least=1, at_most=_MOST_RUNS)


def read_seed(name: str, value: Any) -> int:
    r"""Parse a seed: an integer >= 0."""
    return whole_number(name, value, at_least=0)


def read_seconds(name: str, value: Any) -> float:
    r"""Parse a time in seconds, > 0 and at most 10^7."""
    exact = rational(name, value)
    if not 0 < exact <= _MOST_SECONDS:
        raise InvalidParameter(name, value, f"must be > 0 and <= {_MOST_SECONDS:,} seconds")
    return float(exact)


def _jobs(name: str, value: Any) -> int:
    return checked_jobs(whole_number(name, value))


def _alpha(name: str, value: Any) -> Fraction:
    exact = rational_in(name, value, "(0, 1)", "such as 0.001")
    if exact < _LEAST_ALPHA:
        raise InvalidParameter(name, value, "must be >= 1e-300")
    return exact


def _probability(name: str, value: Any) -> Any:
    rational_in(name, value, "(0, 1]", "it is a probability")
    return value


def _list(name: str, value: Any) -> tuple[Any, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InvalidParameter(name, value, f"must be a list, e.g. [{value!r}]")
    return tuple(value)


def _layers(name: str, value: Any) -> tuple[str, ...]:
    named = [layer.strip() for layer in value.split(",")] if isinstance(value, str) else [*value]
    if not named or not set(named) <= set(LAYERS) or len(set(named)) < len(named):
        reason = (
            f"must be one or more of {', '.join(LAYERS)}, each at most once, separated by commas"
        )
        raise InvalidParameter(name, value, reason)
    return tuple(layer for layer in LAYERS if layer in named)


def _one_of(*words: str) -> Callable[[str, Any], str]:
    def read(name: str, value: Any) -> str:
        check_word(name, value, words)
        return str(value)

    return read


read_norm: Final = _one_of(*get_args(SensitivityNorm))
r"""Parse the norm of a declared sensitivity."""


def _tapes(least: int) -> Callable[[str, Any], int]:
    return partial(whole_number, at_least=least, at_most=_MOST_TAPES)


def _switch(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidParameter(name, value, "must be true or false")
    return value


def _claim(name: str, value: Any) -> Any:
    # Only check the claim: it is parsed again later, with the relation of the target.
    if isinstance(value, str):
        read_claim(value)
    elif not hasattr(value, "points"):
        raise InvalidParameter(name, value, 'must be a claim, or text such as "epsilon=1"')
    return value


def _pair(name: str, value: Any) -> tuple[Any, Any]:
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise InvalidParameter(name, value, "must be two datasets, e.g. (0, 1)")
    return value[0], value[1]


def _pairs(name: str, value: Any) -> tuple[tuple[Any, Any], ...]:
    from audit.targets.check_neighbours import read_pairs, read_pairs_file

    return read_pairs_file(value) if isinstance(value, Path) else read_pairs(name, value)


def _path(name: str, value: Any) -> Path:
    if not isinstance(value, str | Path):
        raise InvalidParameter(name, value, "must be the name of a file")
    return Path(value)


def _option(
    panel: str, metavar: str, text: str, *names: str, default: Any = None, **more: Any
) -> Any:
    given = Option(metavar=metavar, help=text, names=names, panel=panel, **more)
    return field(default=default, metadata={"option": given})


_what = partial(_option, "What is tested")
_how = partial(_option, "How it is tested")
_where = partial(_option, "Where, and for how long")
_replay = partial(_option, "What a replay compares")
_result = partial(_option, "The report")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSpec:
    r"""The specification of an audit.

    Each field is a keyword argument, a command-line option and a key in files for ``--spec``.
    ``target`` is a callable, a dpcore noise, a target object, or the text of a target. Numbers, the
    claim, the relation and the layers may be texts, as on the command line.

    >>> AuditSpec(target="half-scale", runs="1e4", alpha="0.01").runs
    10000

    Raises :class:`InvalidParameter` with the name of the invalid field.
    """

    target: Any = _what(
        "TARGET",
        "module:callable, file.py:callable, 'exec:./program args', noise such as "
        "discrete-laplace:scale=1, a protocol such as protocol:pure,users=64,epsilon=1, a "
        "bandit such as bandit:dist-dp-se,epsilon=1 (further keys: delta, scaling, radius, "
        "path) or bandit:file.py:Policy, running sums such as "
        "continual:tree,horizon=64,epsilon=1, or a name that dpcore audit catalogue lists.",
    )
    claim: Claim | CurveClaim | str | None = _what(
        "CLAIM",
        "The claim to test: epsilon=1 or epsilon=1,delta=1e-6; or a whole curve: rho=0.1, gdp=1, "
        "or NOISE@SENSITIVITY such as discrete-gaussian:sigma_squared=4@1.",
        read=_claim,
    )
    pair: tuple[Any, Any] | None = _what(
        "A B",
        "Two neighbouring datasets, as JSON: 0 1, or '[]' '[\"ada\"]'.",
        kind=tuple[str, str],
        read=_pair,
    )
    pairs: tuple[tuple[Any, Any], ...] | None = _what(
        "FILE",
        "Several pairs: a .toml file of tables \\[\\[pair]], each with a = and b =, or a .json "
        "file with a list of pairs.",
        kind=Path,
        read=_pairs,
    )
    search: str | None = _what(
        "SPACE",
        "Search for the worst pair in a space such as vector:dimension=10,low=0,high=1: the "
        "search uses a quarter of the runs, and the other runs test the pair that it finds.",
    )
    relation: Relation | str | None = _what(
        "WORD",
        "How neighbouring datasets differ: one record replaced (replace), or added or removed "
        "(add-remove). (default: replace)",
        read=read_relation,
    )
    features: tuple[str | Feature, ...] = _what(
        "NAME",
        "Test a feature instead of the output: lowest-bit, sign, length, time (of the call), "
        "file.py:callable, ...; repeatable; identity is the output itself.",
        "--feature",
        default=(),
        read=_list,
    )
    floats: str = _what(
        "WORD",
        "Whether to test the floating-point representation of outputs in addition to their values "
        "(test) or not (ignore).",
        default="test",
        read=_one_of(*FLOATS),
    )
    runs: int | None = _how(
        "N",
        "Number of runs, on both datasets together; with --sequential, the maximum. (default: 1e5, "
        "with --sequential 1e6)",
        "-n",
        "--runs",
        "--max-n",
        read=read_runs,
    )
    sequential: bool = _how(
        "", "Stop as soon as there is enough evidence.", default=False, read=_switch
    )
    alpha: RationalLike = _how(
        "P",
        "Bound on the probability of a false alarm (REFUTED although the claim is true).",
        default="0.001",
        read=_alpha,
    )
    layers: tuple[str, ...] | str | None = _how(
        "NAMES",
        "The layers to run, separated by commas: exact (proof from a known law), fit (do draws "
        "follow this law?), replay (the same random draws on both datasets), sample (count the "
        "outputs of many runs). (default: exact if the law is known, otherwise sample)",
        read=_layers,
    )
    baselines: tuple[str, ...] = _how(
        "NAME",
        "Also show another method's bound, for comparison: clopper-pearson-split, dkw, "
        "bonferroni-thresholds, one-run, bayes, gaussian-dp, plug-in or all.",
        "--baseline",
        default=(),
        read=_list,
    )
    seed: int | None = _how(
        "N", "Seed of the audit; the seed printed in a report repeats that audit.", read=read_seed
    )
    sensitivity: RationalLike | None = _replay(
        "D",
        "Declare that output = query + noise, and that one person changes the query by at most D.",
        read=at_least_zero,
    )
    norm: SensitivityNorm = _replay(
        "WORD", "The norm of --sensitivity: l1, l2 or linf.", default="l1", read=read_norm
    )
    strict: bool = _replay(
        "", "Declare that draws and output shape do not depend on the data.", default=False,
        read=_switch,
    )  # fmt: skip
    tapes: int = _replay(
        "N",
        "Number of tapes (recorded random draws), each replayed on both datasets.",
        default=32,
        read=_tapes(2),
    )
    changes: int = _replay(
        "N",
        "Maximum number of tapes on which one draw is set to an extreme value.",
        default=500,
        read=_tapes(0),
    )
    timeout: float | None = _where(
        "SECONDS", "Time limit for one call of the target.", default=60.0, read=read_seconds
    )
    deadline: float | None = _where(
        "SECONDS", "Stop drawing runs after this time, and report.", read=read_seconds
    )
    jobs: int = _where(
        "N",
        "Number of processes; -1: one per core. The report does not depend on it.",
        "-j",
        "--jobs",
        default=1,
        read=_jobs,
    )
    resume: Path | None = _where(
        "FILE",
        "Store the runs in this file, and continue from it after an interruption.",
        kind=Path,
        read=_path,
    )
    resolution: RationalLike | None = _result(
        "P",
        "Exit with 4 if the runs could miss a revealing output of this probability, such as 1e-3 "
        "(see blind spot in the report).",
        read=_probability,
    )
    allow_constant: bool = _result(
        "", "Accept a target whose outputs are all equal.", default=False, read=_switch
    )

    def __post_init__(self) -> None:
        for each in fields(self):
            read, value = each.metadata["option"].read, getattr(self, each.name)
            if read is not None and value is not None:
                object.__setattr__(self, each.name, read(each.name, value))

    @property
    def planned_runs(self) -> int:
        r"""The number of runs; if ``sequential`` is set, the maximum number of runs."""
        return self.runs or (_SEQUENTIAL_RUNS if self.sequential else _RUNS)

    def only(self, *names: str) -> dict[str, Any]:
        r"""Return the values of the fields ``names``, as a dict by field name."""
        return {name: getattr(self, name) for name in names}

    def given(self, name: str) -> bool:
        r"""Whether the value of the field ``name`` differs from its default."""
        return bool(getattr(self, name) != getattr(AuditSpec(), name))
