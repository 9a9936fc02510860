r"""A law with one parameter left open: its size, which a calibration chooses."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from accounting.mechanism.real_noise import REAL_LAWS, RealNoise
from dpcore.errors import InvalidParameter
from dpcore.noise import Noise
from dpcore.spec import pairs_of, read_keys, split_name
from dpcore.spelling import LAWS, law_meant, noise_from_json, parameter_names

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
    "gaussian": "sigma",
    "laplace": "scale",
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
        return 2 if self.free in ("scale", "sigma") else 1

    @property
    def real(self) -> bool:
        r"""Whether the law is one on the reals."""
        return self.law in REAL_LAWS

    def at(self, value: Fraction) -> Noise | RealNoise:
        r"""The noise with that parameter.

        Raises :class:`InvalidParameter` as the law does.
        """
        data = {"law": self.law, self.free: str(value), **dict(self.fixed)}
        return noise_from_json(data, REAL_LAWS)


def read_free_law(text: str) -> FreeLaw:
    r"""A law's name, with its other parameters where it has some.

    >>> read_free_law("binomial:probability=1/2").free
    'trials'

    Raises :class:`InvalidParameter` for an unknown law, a parameter that is missing, unknown or
    given twice, and for the size itself, which is what is looked for.
    """
    if not isinstance(text, str):
        raise InvalidParameter("noise", text, "must be a law's name, e.g. discrete-gaussian")
    law, rest = split_name(text)
    if law not in _FREE:
        near = law_meant(law)
        hint = "" if near is None else f"; did you mean {near}?"
        raise InvalidParameter("noise", text, f"must start with one of {', '.join(_FREE)}{hint}")
    free = _FREE[law]
    if any(key == free for key, _ in pairs_of(rest)):
        raise InvalidParameter(
            "noise", text, f"leave out {free}: it is the number that calibrate finds"
        )
    names = (free,) if law in REAL_LAWS else parameter_names(LAWS[law])
    wanted = [name for name in names if name != free]
    given = read_keys("noise", text, rest, wanted, owner=law, needed=wanted)
    return FreeLaw(law=law, free=free, fixed=tuple(given.items()))
