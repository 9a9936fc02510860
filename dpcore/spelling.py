r"""How a noise is written: ``name:key=value,key=value``, the same in code, commands and files.

``discrete-laplace:scale=10``, ``discrete-gaussian:sigma_squared=1/4``. Values are exact numbers
as :func:`dpcore.numbers.parameter.rational` reads them. A new law adds its class to ``LAWS``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from difflib import get_close_matches
from types import MappingProxyType
from typing import Final

from dpcore.errors import InvalidParameter
from dpcore.laws.binomial import Binomial
from dpcore.laws.discrete_gaussian import DiscreteGaussian
from dpcore.laws.discrete_gaussian_sum import DiscreteGaussianSum
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.laws.poisson import Poisson
from dpcore.laws.polya import Polya
from dpcore.laws.polya_difference import PolyaDifference
from dpcore.laws.skellam import Skellam
from dpcore.noise import Noise
from dpcore.numbers.parameter import rational
from dpcore.numbers.parameter import text as plain_text
from dpcore.numbers.rounding import exactly

__all__ = ["LAWS", "noise_from_json", "parameter_names", "read_noise", "write_noise"]

LAWS: Final[Mapping[str, type[Noise]]] = MappingProxyType(
    {
        law.name: law
        for law in (
            DiscreteLaplace,
            DiscreteGaussian,
            DiscreteGaussianSum,
            Skellam,
            Polya,
            PolyaDifference,
            Poisson,
            Binomial,
        )
    }
)

# What others call a law, or a parameter: beside it what it is called here, and the power of their
# value that is meant.
_LAW_NAMES: Final = MappingProxyType(
    {
        "gaussian": "discrete-gaussian",
        "normal": "discrete-gaussian",
        "laplace": "discrete-laplace",
        "geometric": "discrete-laplace",
        "negative-binomial": "polya",
    }
)
_DEVIATION: Final = (("sigma_squared", 2), ("variance", 2))
_VARIANCE: Final = (("sigma_squared", 1), ("variance", 1))
_PARAMETER_NAMES: Final[Mapping[str, tuple[tuple[str, int], ...]]] = MappingProxyType(
    {
        **dict.fromkeys(("sigma", "std", "stddev", "scale"), _DEVIATION),
        **dict.fromkeys(("sigma2", "sigma^2", "var", "variance"), _VARIANCE),
        **dict.fromkeys(("b", "s"), (("scale", 1),)),
        **dict.fromkeys(("lambda", "lam", "mu"), (("mean", 1), ("scale", 1))),
        "p": (("probability", 1),),
        "n": (("trials", 1), ("count", 1)),
        "r": (("shape", 1),),
    }
)


def read_noise(text: str) -> Noise:
    r"""The noise that ``text`` spells.

    Raises :class:`InvalidParameter` for an unknown law, and for a parameter that is missing,
    unknown, given twice or out of range; where the noise that was meant can be told, the error
    spells it.

    >>> read_noise("discrete-laplace:scale=1/3")
    DiscreteLaplace(scale='1/3')
    >>> read_noise("gaussian:sigma=1.1")
    Traceback (most recent call last):
    ...
    dpcore.errors.InvalidParameter: noise = gaussian:sigma=1.1: must start with ...?
    """
    text = plain_text("noise", text, "must be text: discrete-laplace:scale=10")
    name, _, rest = text.partition(":")
    given: dict[str, str] = {}
    for part in filter(None, (piece.strip() for piece in rest.split(","))):
        key, equals, value = part.partition("=")
        key = key.strip()
        if not key or not equals:
            meant = _did_you_mean(name.strip(), {"": part})
            raise InvalidParameter("noise", text, f"{part!r} must be written key=value{meant}")
        if key in given:
            raise InvalidParameter(key, value, "is given twice")
        given[key] = value.strip()
    return _build(name.strip(), given, text)


def write_noise(noise: Noise) -> str:
    r"""The text that :func:`read_noise` reads back.

    >>> write_noise(DiscreteGaussian(sigma_squared="0.25"))
    'discrete-gaussian:sigma_squared=1/4'
    """
    parameters = ",".join(f"{key}={value}" for key, value in noise.parameters.items())
    return f"{noise.name}:{parameters}"


def noise_from_json(data: Mapping[str, str]) -> Noise:
    r"""The inverse of ``Noise.to_json``.

    >>> noise_from_json({"law": "discrete-laplace", "scale": "10"})
    DiscreteLaplace(scale=10)
    """
    given = dict(data)
    if "law" not in given:
        raise InvalidParameter("law", given, "is missing")
    return _build(given.pop("law"), given, str(dict(data)))


def parameter_names(law: type[Noise]) -> tuple[str, ...]:
    r"""The parameters a law takes, in order.

    >>> parameter_names(DiscreteLaplace)
    ('scale',)
    """
    return tuple(f.name for f in fields(law) if f.init)


def _build(name: str, given: Mapping[str, str], text: str) -> Noise:
    law = LAWS.get(name) if isinstance(name, str) else None
    if law is None:
        reason = f"must start with one of {', '.join(LAWS)}{_did_you_mean(name, given)}"
        raise InvalidParameter("noise", text, reason)
    wanted = parameter_names(law)
    for key, value in given.items():
        if key not in wanted:
            reason = f"{name} takes {', '.join(wanted)}{_did_you_mean(name, given)}"
            raise InvalidParameter(key, value, reason)
    for key in wanted:
        if key not in given:
            raise InvalidParameter("noise", text, f"{key} is missing: write {name}:{key}=...")
    whole = {f.name for f in fields(law) if f.type == "int"}
    return law(
        **{key: _whole(key, value) if key in whole else value for key, value in given.items()}
    )


def _whole(key: str, text: str) -> int:
    value = rational(key, text)
    if value.denominator != 1:
        raise InvalidParameter(key, text, "must be an integer")
    return int(value)


def _did_you_mean(name: str, given: Mapping[str, str]) -> str:
    # The words for an error: the noise that was meant, in full, where one can be told.
    said = str(name).lower().replace("_", "-")
    near = get_close_matches(_LAW_NAMES.get(said, said), LAWS, n=1)
    if not near:
        return ""
    law, meant = LAWS[near[0]], dict[str, str]()
    wanted = parameter_names(law)
    try:
        for key, value in given.items():
            own, power = _parameter_meant(key.lower(), wanted)
            number = rational(key, value)
            if own in meant or number <= 0:
                return ""
            meant[own] = exactly(rational(key, number**power))
        if len(meant) == len(wanted):
            _build(law.name, meant, law.name)
    except InvalidParameter:
        return ""
    words = ",".join(f"{key}={meant.get(key, '...')}" for key in wanted)
    return f"; did you mean {law.name}:{words}?"


def _parameter_meant(key: str, wanted: tuple[str, ...]) -> tuple[str, int]:
    # A parameter of the law, and the power of the value that is meant.
    if key in wanted:
        return key, 1
    if not key and len(wanted) == 1:
        return wanted[0], 1
    for own, power in _PARAMETER_NAMES.get(key, ()):
        if own in wanted:
            return own, power
    near = get_close_matches(key, wanted, n=1)
    if not near:
        raise InvalidParameter(key, wanted, "has no such parameter")
    return near[0], 1
