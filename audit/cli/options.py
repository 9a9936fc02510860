r"""The options of ``dpcore audit`` as values: each refused by name, before anything is drawn."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from audit.api import seed_of
from audit.layers import LAYERS
from audit.search.pairs import pairs_of, read_pairs_file
from audit.targets.target import Catalogued, KnownLaw, Target, claim_of
from dpcore.command.options import named
from dpcore.command.options import read_jobs as processes
from dpcore.errors import ABSENT, InvalidParameter
from dpcore.numbers.parameter import rational, rational_in, whole_number

if TYPE_CHECKING:
    from audit.claims.claim import Claim
    from audit.claims.curve_claim import CurveClaim
    from dpcore.mechanism import Relation

__all__ = [
    "read_claim",
    "read_jobs",
    "read_layers",
    "read_pairs",
    "read_resolution",
    "read_runs",
    "read_seconds",
    "read_seed",
]

_MOST_RUNS: Final = 10**12
_MOST_SECONDS: Final = 10**7  # a timer of the operating system takes a little more


def read_runs(fixed: str | None, most: str | None, *, sequential: bool) -> int:
    r"""-n, or the --max-n of --sequential.

    >>> read_runs("1e5", None, sequential=False)
    100000
    """
    if sequential and fixed is not None:
        raise InvalidParameter("-n", fixed, "is for a fixed number of runs; use --max-n")
    if most is not None and not sequential:
        raise InvalidParameter("--max-n", most, "is for --sequential; use -n")
    return _count("--max-n", most or "1e6") if sequential else _count("-n", fixed or "1e5")


def read_seed(text: str | None, resume: Path | None = None) -> int:
    r"""The seed; where none is given that of the audit to go on with, or a fresh one.

    >>> read_seed("7")
    7
    """
    return seed_of(None if text is None else whole_number("--seed", text, at_least=0), resume)


def read_seconds(argument: str, text: str) -> float:
    r"""A time in seconds.

    >>> read_seconds("--timeout", "0.5")
    0.5
    """
    exact = rational(argument, text)
    if not 0 < exact <= _MOST_SECONDS:
        raise InvalidParameter(argument, text, f"must be > 0 and <= {_MOST_SECONDS:,} seconds")
    return float(exact)


def read_claim(subject: Target, text: str | None, relation: str | None) -> Claim | CurveClaim:
    r"""The claim, or that of a catalogue entry: its curve where it has one.

    >>> from audit.targets.spelling import read_target
    >>> print(read_claim(read_target("discrete-laplace:scale=1"), "epsilon=1", None))
    epsilon=1
    """
    if text is None and not isinstance(subject, Catalogued):
        raise InvalidParameter("--claim", ABSENT, "must be given, e.g. --claim epsilon=1")
    with named(claim="--claim", epsilon="--claim: epsilon", delta="--claim: delta"):
        return claim_of(subject, text, relation)


def read_pairs(
    subject: Target,
    one: tuple[str, str] | None,
    file: Path | None = None,
    *,
    searched: bool = False,
    relation: Relation | str | None = None,
) -> tuple[tuple[Any, Any], ...]:
    r"""The pairs of --pair or --pairs, or that of a catalogue entry; see
    :func:`audit.search.pairs.pairs_of`.

    >>> from audit.targets.spelling import read_target
    >>> read_pairs(read_target("half-scale"), None)
    ((0, 1),)
    >>> read_pairs(read_target("discrete-laplace:scale=1"), ("0", "[1]"))
    Traceback (most recent call last):
    ...
    dpcore.errors.InvalidParameter: dataset B = [1]: must be an integer: discrete-laplace...
    """
    nothing = one is None and file is None and not searched
    if nothing and not isinstance(subject, Catalogued):
        reason = "must be given: two datasets, e.g. --pair 0 1"
        raise InvalidParameter("--pair", ABSENT, reason)
    pair = None if one is None else (_dataset("A", one[0]), _dataset("B", one[1]))
    pairs = None if file is None else read_pairs_file(file)
    with named(pair="--pair", pairs="--pairs", search="--search"):
        return pairs_of(subject, pair, pairs, searched=searched, relation=relation)


def _dataset(name: str, text: str) -> Any:
    def refuse(constant: str) -> Any:
        raise ValueError(f"{constant} is not JSON")

    def finite(number: str) -> float:
        # A JSON report cannot hold infinity.
        return float(number) if math.isfinite(float(number)) else refuse(f"{number} as a float")

    try:
        return json.loads(text, parse_constant=refuse, parse_float=finite)
    except (ValueError, RecursionError) as error:
        reason = f"must be JSON, such as 3, [1, 2] or '\"text\"' ({error})"
        raise InvalidParameter(f"--pair: dataset {name}", text, reason) from None


def _count(argument: str, text: str) -> int:
    return whole_number(argument, text, at_least=1, at_most=_MOST_RUNS)


def read_resolution(text: str | None) -> Fraction | None:
    r"""A probability, or None.

    >>> read_resolution("1e-3")
    Fraction(1, 1000)
    """
    why = "it is a probability"
    return None if text is None else rational_in("--resolution", text, "(0, 1]", why)


def read_layers(
    subject: Target, text: str | None, asked: Mapping[str, object] | None = None
) -> tuple[str, ...]:
    r"""Which layers run: the strongest that decides, or those asked for, strongest first.

    ``asked`` are options by name, None where they were not given: what only runs can answer brings
    the sample layer with it, and what no chosen layer reads is refused.

    >>> from audit.targets.spelling import read_target
    >>> read_layers(read_target("discrete-laplace:scale=1"), "sample,exact")
    ('exact', 'sample')
    """
    known = isinstance(subject, KnownLaw)
    given = [name for name, value in (asked or {}).items() if value is not None]
    if text is None:
        drawn = any("exact" not in _READERS[option] for option in given)
        strongest = ("exact", "sample") if drawn else ("exact",)
        return strongest if known else ("sample",)
    named = [layer.strip() for layer in text.split(",")]
    if not set(named) <= set(LAYERS) or len(set(named)) < len(named):
        reason = f"must be some of {', '.join(LAYERS)}, each at most once, separated by commas"
        raise InvalidParameter("--layers", text, reason)
    for layer in ("exact", "fit"):
        if layer in named and not known:
            reason = f"{layer} needs a target of known law, such as a noise: leave {layer} out"
            raise InvalidParameter("--layers", text, reason)
    for option in given:
        if not set(_READERS[option]) & set(named):
            reason = f"{option} would have no effect: it is for {' and '.join(_READERS[option])}"
            raise InvalidParameter("--layers", text, reason)
    return tuple(layer for layer in LAYERS if layer in named)


# The layers that read an option: without one of them it would have no effect.
_READERS: Final[dict[str, tuple[str, ...]]] = {
    "--search": ("sample",),
    "--feature": ("sample",),
    "--baseline": ("sample",),
    "--resume": ("sample",),
    "--resolution": ("sample", "exact"),
    "-n": ("sample", "fit"),
    "--max-n": ("sample", "fit"),
    "--sequential": ("sample", "fit"),
    "--deadline": ("sample", "fit", "replay", "exact"),
}


def read_jobs(text: str | None, scheduler: str | None = None) -> int:
    r"""How many processes draw; -1: one for each core, or all that a cluster has.

    >>> read_jobs("2"), read_jobs(None), read_jobs(None, "tcp://host:8786")
    (2, 1, -1)
    """
    if text is None:
        return 1 if scheduler is None else -1
    if scheduler is not None:
        raise InvalidParameter("--jobs", text, "is for processes here; a --scheduler has its own")
    return processes(text)
