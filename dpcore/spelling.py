r"""How a noise is written: ``name:key=value,key=value``, the same in code, commands and files.

``discrete-laplace:scale=10``, ``discrete-gaussian:sigma_squared=1/4``. Values are exact numbers
as :func:`dpcore.parameter.rational` reads them. A new law adds its class to ``LAWS``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Final

from dpcore.binomial import Binomial
from dpcore.discrete_gaussian import DiscreteGaussian
from dpcore.discrete_gaussian_sum import DiscreteGaussianSum
from dpcore.discrete_laplace import DiscreteLaplace
from dpcore.errors import InvalidParameter
from dpcore.noise import Noise
from dpcore.parameter import rational
from dpcore.parameter import text as plain_text
from dpcore.poisson import Poisson
from dpcore.polya import Polya
from dpcore.polya_difference import PolyaDifference
from dpcore.skellam import Skellam

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


def read_noise(text: str) -> Noise:
    r"""The noise that ``text`` spells.

    Raises :class:`InvalidParameter` for an unknown law, and for a parameter that is missing,
    unknown, given twice or out of range.

    >>> read_noise("discrete-laplace:scale=1/3")
    DiscreteLaplace(scale='1/3')
    """
    text = plain_text("noise", text, "must be text: discrete-laplace:scale=10")
    name, _, rest = text.partition(":")
    given: dict[str, str] = {}
    for part in filter(None, (piece.strip() for piece in rest.split(","))):
        key, equals, value = part.partition("=")
        key = key.strip()
        if not key or not equals:
            raise InvalidParameter("noise", text, f"{part!r} must be written key=value")
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
        raise InvalidParameter("noise", text, f"must start with one of {', '.join(LAWS)}")
    wanted = parameter_names(law)
    for key, value in given.items():
        if key not in wanted:
            raise InvalidParameter(key, value, f"{name} takes {', '.join(wanted)}")
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
