r"""A law with one parameter left open: its size, which a calibration chooses."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from dpcore.errors import InvalidParameter
from dpcore.noise import Noise
from dpcore.spelling import LAWS, noise_from_json, parameter_names

__all__ = ["FreeLaw", "read_free_law"]

_FREE: Final = {
    "discrete-laplace": "scale",
    "discrete-gaussian": "sigma_squared",
    "discrete-gaussian-sum": "sigma_squared",
    "skellam": "variance",
    "polya": "scale",
    "polya-difference": "scale",
    "poisson": "mean",
    "binomial": "trials",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeLaw:
    r"""``law`` with the parameters ``fixed``; ``free`` names the one that is open.

    >>> read_free_law("polya-difference:shape=0.9").at(Fraction(20))
    PolyaDifference(shape='9/10', scale=20)
    """

    law: str
    free: str
    fixed: tuple[tuple[str, str], ...]

    @property
    def whole(self) -> bool:
        r"""Whether the open parameter counts something."""
        return self.free == "trials"

    @property
    def power(self) -> int:
        r"""The variance grows like this power of the open parameter."""
        return 2 if self.free == "scale" else 1

    def at(self, value: Fraction) -> Noise:
        r"""The noise with that parameter.

        Raises :class:`InvalidParameter` as the law does.
        """
        return noise_from_json({"law": self.law, self.free: str(value), **dict(self.fixed)})


def read_free_law(text: str) -> FreeLaw:
    r"""A law's name, with its other parameters where it has some.

    >>> read_free_law("binomial:probability=1/2").free
    'trials'

    Raises :class:`InvalidParameter` for an unknown law, a parameter that is missing, unknown or
    given twice, and for the size itself, which is what is looked for.
    """
    if not isinstance(text, str):
        raise InvalidParameter("noise", text, "must be a law's name, e.g. discrete-gaussian")
    law, _, rest = text.partition(":")
    law = law.strip()
    if law not in _FREE:
        raise InvalidParameter("noise", text, f"must start with one of {', '.join(_FREE)}")
    given: dict[str, str] = {}
    for part in filter(None, (piece.strip() for piece in rest.split(","))):
        key, equals, value = (word.strip() for word in part.partition("="))
        if not key or not equals:
            raise InvalidParameter("noise", text, f"{part!r} must be written key=value")
        if key in given:
            raise InvalidParameter("noise", text, f"{key} is given twice")
        given[key] = value
    free = _FREE[law]
    if free in given:
        raise InvalidParameter("noise", text, f"{free} is what is looked for: leave it out")
    wanted = [name for name in parameter_names(LAWS[law]) if name != free]
    if missing := [name for name in wanted if name not in given]:
        raise InvalidParameter("noise", text, f"{missing[0]} is missing: {law}:{missing[0]}=...")
    if left := [name for name in given if name not in wanted]:
        raise InvalidParameter("noise", text, f"{law} has no parameter {left[0]}")
    return FreeLaw(law=law, free=free, fixed=tuple(given.items()))
