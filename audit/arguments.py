r"""The options of ``dpcore audit`` as values: each refused by name, before anything is drawn."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from typing import Any, Final

import numpy as np

from audit.claim import Claim
from audit.target import Catalogued, KnownLaw, Target
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Relation
from dpcore.parameter import rational

__all__ = [
    "read_claim",
    "read_layers",
    "read_pair",
    "read_resolution",
    "read_runs",
    "read_seconds",
    "read_seed",
]

_LAYERS: Final = ("exact", "sample")
_SEEDS: Final = 1 << 32
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


def read_seed(text: str | None) -> int:
    r"""The seed, drawn where none is given.

    >>> read_seed("7")
    7
    """
    if text is None:
        return int(np.random.default_rng().integers(_SEEDS))
    exact = rational("--seed", text)
    if exact.denominator != 1 or exact < 0:
        raise InvalidParameter("--seed", text, "must be a whole number >= 0")
    return int(exact)


def read_seconds(argument: str, text: str) -> float:
    r"""A time in seconds.

    >>> read_seconds("--timeout", "0.5")
    0.5
    """
    exact = rational(argument, text)
    if not 0 < exact <= _MOST_SECONDS:
        raise InvalidParameter(argument, text, f"must be > 0 and <= {_MOST_SECONDS:,} seconds")
    return float(exact)


def read_claim(subject: Target, text: str | None, relation: str | None) -> Claim:
    r"""The claim, or that of a catalogue entry.

    >>> from audit.target import read_target
    >>> print(read_claim(read_target("discrete-laplace:scale=1"), "epsilon=1", None))
    epsilon=1
    """
    own = subject.subject if isinstance(subject, Catalogued) else None
    of = relation or (Relation.REPLACE if own is None else own.relation)
    if text is not None:
        return Claim.read(text, of)
    if own is None:
        raise InvalidParameter("--claim", "(none)", "is needed, e.g. --claim epsilon=1")
    return Claim(epsilon=own.epsilon, delta=own.delta, relation=of)


def read_pair(subject: Target, texts: tuple[str, str] | None) -> tuple[Any, Any]:
    r"""The two datasets, or those of a catalogue entry.

    >>> from audit.target import read_target
    >>> read_pair(read_target("discrete-laplace:scale=1"), ("0", "[1]"))
    Traceback (most recent call last):
    ...
    dpcore.errors.InvalidParameter: dataset B = [1]: must be an integer: discrete-laplace...
    """
    if texts is None:
        if isinstance(subject, Catalogued):
            return subject.subject.pair
        raise InvalidParameter("--pair", "(none)", "is needed: two datasets, e.g. --pair 0 1")
    pair = (_dataset("A", texts[0]), _dataset("B", texts[1]))
    return subject.check(pair)


def _dataset(name: str, text: str) -> Any:
    def refuse(constant: str) -> Any:
        raise ValueError(f"{constant} is not JSON")

    def finite(number: str) -> float:
        # It could not be written back into a report.
        return float(number) if math.isfinite(float(number)) else refuse(f"{number} as a float")

    try:
        return json.loads(text, parse_constant=refuse, parse_float=finite)
    except (ValueError, RecursionError) as error:
        reason = f"must be JSON, such as 3, [1, 2] or '\"text\"' ({error})"
        raise InvalidParameter(f"--pair: dataset {name}", text, reason) from None


def _count(argument: str, text: str) -> int:
    exact = rational(argument, text)
    if exact.denominator != 1 or exact < 1:
        raise InvalidParameter(argument, text, "must be a whole number >= 1, e.g. 1000 or 1e5")
    if exact > _MOST_RUNS:
        raise InvalidParameter(argument, text, "must be <= 1e12")
    return int(exact)


def read_resolution(text: str | None) -> Fraction | None:
    r"""A probability, or None.

    >>> read_resolution("1e-3")
    Fraction(1, 1000)
    """
    if text is None:
        return None
    wanted = rational("--resolution", text)
    if not 0 < wanted <= 1:
        raise InvalidParameter("--resolution", text, "must be a probability in (0, 1]")
    return wanted


def read_layers(subject: Target, text: str | None) -> tuple[str, ...]:
    r"""Which layers run: the strongest there is, or those asked for.

    >>> from audit.target import read_target
    >>> read_layers(read_target("discrete-laplace:scale=1"), "exact,sample")
    ('exact', 'sample')
    """
    known = isinstance(subject, KnownLaw)
    if text is None:
        return ("exact",) if known else ("sample",)
    layers = tuple(layer.strip() for layer in text.split(","))
    if not set(layers) <= set(_LAYERS):
        raise InvalidParameter("--layers", text, "must be exact, sample or exact,sample")
    if "exact" in layers and not known:
        reason = f"the law of {subject.spelling} is not known; of a noise it is"
        raise InvalidParameter("--layers", text, reason)
    return layers
