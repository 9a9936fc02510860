r"""Parse and format noise and sensitivities, as text and as JSON, for code, commands and files.

Examples of noise are ``discrete-laplace:scale=10`` and ``discrete-gaussian:sigma_squared=1/4``,
examples of a sensitivity ``3``, ``l1=3``, ``l2-squared=4`` and ``box=1x2``. Values are exact
numbers, parsed by :func:`dpcore.numbers.parameter.rational`. To add a law, add its class to
``LAWS``.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from fractions import Fraction
from functools import partial
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeVar, overload

from dpcore.errors import InvalidParameter
from dpcore.laws.discrete_gaussian import DiscreteGaussian, DiscreteGaussianSum
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.laws.poisson_and_binomial import Binomial, Poisson
from dpcore.laws.polya import Polya, PolyaDifference
from dpcore.laws.skellam import Skellam
from dpcore.laws.staircase import Staircase
from dpcore.mechanism import Norm, Sensitivity
from dpcore.noise import Noise
from dpcore.numbers.parameter import rational, whole_number
from dpcore.numbers.parameter import text as plain_text
from dpcore.numbers.rounding import exactly, shortest
from dpcore.spec_syntax import (
    did_you_mean,
    from_words,
    pairs_of,
    parameter_meant,
    parameter_names,
    read_keys,
    required_names,
    split_name,
)

LAWS: Final[Mapping[str, type[Noise]]] = MappingProxyType(
    {
        law.name: law
        for law in (
            DiscreteLaplace,
            DiscreteGaussian,
            DiscreteGaussianSum,
            Staircase,
            Skellam,
            Polya,
            PolyaDifference,
            Poisson,
            Binomial,
        )
    }
)

# Other names of laws, with the name used here.
_LAW_NAMES: Final = MappingProxyType(
    {
        "gaussian": "discrete-gaussian",
        "normal": "discrete-gaussian",
        "laplace": "discrete-laplace",
        "geometric": "discrete-laplace",
        "negative-binomial": "polya",
    }
)
_FARTHEST: Final = 1 << 62
_FORMS: Final = "must be written like 3, l1=3, l2-squared=4 or box=1x2x2"
NO_MORE: Final[Mapping[str, type[Any]]] = MappingProxyType({})
_T = TypeVar("_T")


@overload
def read_noise(text: str) -> Noise: ...
@overload
def read_noise(text: str, more: Mapping[str, type[_T]]) -> Noise | _T: ...
def read_noise(text: str, more: Mapping[str, type[Any]] = NO_MORE) -> Any:
    r"""Parse noise, such as ``discrete-laplace:scale=10``.

    ``more`` maps the names of further laws to dataclasses.

    Raises :class:`InvalidParameter` if the law is unknown, or if a parameter is missing, unknown,
    given twice or out of range. The error suggests the intended noise if it can be guessed.

    >>> read_noise("discrete-laplace:scale=1/3")
    DiscreteLaplace(scale='1/3')
    >>> read_noise("gaussian:sigma=1.1")
    Traceback (most recent call last):
    ...
    dpcore.errors.InvalidParameter: noise = gaussian:sigma=1.1: must start with ...?
    """
    text = plain_text("noise", text, "must be text such as discrete-laplace:scale=10")
    name, rest = split_name(text)
    law, keys = _law(name, dict(pairs_of(rest)), text, more)
    return from_words(law, read_keys("noise", text, rest, **keys))


class _Law(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def parameters(self) -> Mapping[str, object]: ...


def write_noise(noise: _Law) -> str:
    r"""Format noise as text that :func:`read_noise` parses.

    Numbers are exact, in decimals unless the fraction is shorter.

    >>> write_noise(DiscreteGaussian(sigma_squared="12.26"))
    'discrete-gaussian:sigma_squared=12.26'
    """
    exact = {key: Fraction(str(value)) for key, value in noise.parameters.items()}
    parameters = ",".join(f"{key}={shortest(value)}" for key, value in exact.items())
    return f"{noise.name}:{parameters}"


@overload
def noise_from_json(data: Mapping[str, str]) -> Noise: ...
@overload
def noise_from_json(data: Mapping[str, str], more: Mapping[str, type[_T]]) -> Noise | _T: ...
def noise_from_json(data: Mapping[str, str], more: Mapping[str, type[Any]] = NO_MORE) -> Any:
    r"""Parse the result of ``Noise.to_json``; ``more`` is as in :func:`read_noise`."""
    if not isinstance(data, Mapping):
        raise InvalidParameter("noise", data, "must be an object with a key law")
    given = dict(data)
    if "law" not in given:
        raise InvalidParameter("law", given, "is missing: the object needs a key law")
    name, text = given.pop("law"), str(dict(data))
    law, keys = _law(name, given, text, more)
    return from_words(law, read_keys("noise", text, given, **keys))


def read_sensitivity(argument: str, text: str) -> Sensitivity:
    r"""Parse a sensitivity such as ``3``, ``l1=3``, ``l2-squared=4`` or ``box=1x2x2``."""
    (norm, amount), *more = pairs_of(text) or [("", text)]
    if more or norm not in ("", "l1", "l2-squared", "box"):
        near = did_you_mean(norm, ("l1", "l2-squared", "box"))
        reason = f"{near}it {_FORMS}".removeprefix("it ")
        raise InvalidParameter(argument, text, reason)
    bounds = amount.split("x") if norm == "box" else [amount]
    if "" in bounds:
        raise InvalidParameter(argument, text, _FORMS)
    moves = tuple(whole_number(argument, bound, at_least=1, at_most=_FARTHEST) for bound in bounds)
    return Sensitivity(moves if norm == "box" else moves[0], Norm(norm or "absolute"))


def write_sensitivity(sensitivity: Sensitivity) -> str:
    r"""Format a sensitivity as text that :func:`read_sensitivity` parses back."""
    amount = sensitivity.amount
    text = "x".join(map(str, amount)) if isinstance(amount, tuple) else str(amount)
    return text if sensitivity.norm is Norm.ABSOLUTE else f"{sensitivity.norm.value}={text}"


def sensitivity_from_json(data: object) -> Sensitivity:
    r"""Parse the result of ``Sensitivity.to_json``."""
    if not isinstance(data, Mapping) or set(data) != {"norm", "amount"}:
        raise InvalidParameter(
            "sensitivity", data, "must contain exactly the fields norm and amount"
        )
    return Sensitivity(**data)


def _law(
    name: str, given: Mapping[str, str], text: str, more: Mapping[str, type[Any]]
) -> tuple[type[Any], dict[str, Any]]:
    # The law, and the arguments of `read_keys` that describe its parameters.
    laws = {**more, **LAWS}
    law = laws.get(name) if isinstance(name, str) else None
    if law is None:
        near = get_close_matches(str(name), more, n=1)
        hint = _did_you_mean(name, given) or (f"; did you mean {near[0]}?" if near else "")
        raise InvalidParameter("noise", text, f"must start with one of {', '.join(laws)}{hint}")
    meant = None if name in more else partial(_did_you_mean, name)
    wanted, needed = parameter_names(law), required_names(law)
    return law, {"known": wanted, "owner": name, "needed": needed, "hint": meant}


def law_meant(name: str) -> str | None:
    r"""The name of the law most similar to a misspelled name, or None if no name is similar."""
    written = str(name).lower().replace("_", "-")
    near = get_close_matches(_LAW_NAMES.get(written, written), LAWS, n=1)
    return near[0] if near else None


def _did_you_mean(name: str, given: Mapping[str, str]) -> str:
    # The suggestion for an error message: the intended noise with all parameters, if it is clear.
    near = law_meant(name)
    if near is None:
        return ""
    law, meant = LAWS[near], dict[str, str]()
    wanted, needed = parameter_names(law), required_names(law)
    try:
        for key, value in given.items():
            own, power = parameter_meant(key, wanted)
            number = rational(key, value)
            if own in meant or number <= 0:
                return ""
            meant[own] = exactly(rational(key, number**power))
        if meant.keys() >= set(needed):
            from_words(law, meant)
    except InvalidParameter:
        return ""
    keys = [key for key in wanted if key in meant or key in needed]
    words = ",".join(f"{key}={meant.get(key, '...')}" for key in keys)
    return f"; did you mean {law.name}:{words}?"
