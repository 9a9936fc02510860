r"""Privatize the outcomes of base arms, round after round: the noise of CUCB-LDP and CUCB-DP.

A user sends the outcomes, 0 or 1, of the base arms that it is asked for. ``local``: each with
discrete Laplace noise, before it leaves the user. ``central``: a trusted server adds them up, a
running sum for each base arm (``dpcore.continual``), and all that it does depends on these sums.
The promise is that of all noised numbers together, derived from their noise; Chen et al. (2020)
state it for Laplace noise on the reals. Proofs: docs/proofs/radius.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, TypeAlias

from accounting.budget.calibrate import calibrate
from accounting.errors import NotDerived
from accounting.release.curve import PrivacyCurve
from bandits.batch import chance_of, check_word
from bandits.privatizers.promise import NEW
from bandits.privatizers.protocols import TRUSTED
from dpcore.continual.square_root import column
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.mechanism import Mechanism, Sensitivity
from dpcore.noise import Noise
from dpcore.numbers.arrays import Integers
from dpcore.numbers.parameter import Exact, make_integers, make_positive
from dpcore.sampling.rng import Rng

__all__ = ["StreamPrivatizer", "StreamRelease", "StreamTrust"]

StreamTrust: TypeAlias = Literal["none", "local", "central"]
StreamRelease: TypeAlias = Literal["tree", "doubling", "factorisation"]
r"""How a server releases running sums; :mod:`dpcore.continual` has them one by one."""

_MOST_HORIZON: Final = 10**8
_MOST_ITEMS: Final = 1 << 10
_LEAST_GRID: Final = 16
_WORD: Final = 64
_BITS: Final = "users send their outcomes as bits, 0 or 1, and no others"
_PUBLIC: Final = "which super arm is played depends on releases and on public coins only"
_ASSUMED: Final[dict[StreamTrust, tuple[str, ...]]] = {
    "none": (),
    "local": (_BITS, _PUBLIC, NEW),
    "central": (TRUSTED, _BITS, _PUBLIC, NEW),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPrivatizer:
    r"""Release what users send of their super arms, over ``horizon`` rounds, each user in one.

    A user sends at most ``sent`` outcomes. Local noise has scale sent/epsilon. Central noise is
    that of the ``release``: a ``tree`` of floor(log2 T) + 1 levels has scale
    sent (floor(log2 T) + 1)/epsilon, ``doubling`` blocks sent/epsilon; ``factorisation`` has
    discrete Gaussian noise for (epsilon, ``delta``), on blocks of ceil(T/1024) outcomes.

    >>> local = StreamPrivatizer(trust="local", epsilon=2, sent=8, horizon=1000)
    >>> local.noise, local.guarantee().pure()
    (DiscreteLaplace(scale=4), Bound([2, 2], 'exact'))
    >>> tree = StreamPrivatizer(trust="central", epsilon=2, sent=8, horizon=1000)
    >>> tree.noise, tree.guarantee().pure()
    (DiscreteLaplace(scale=40), Bound([2, 2], 'exact'))

    Raises :class:`InvalidParameter` for a trust or release that is none of these, epsilon not > 0,
    a delta outside of (0, 1), fewer outcomes than 1 and a horizon outside of [1, 10^8].
    """

    trust: StreamTrust
    epsilon: Exact = Exact(1)
    sent: int
    horizon: int
    release: StreamRelease = "tree"
    delta: Exact = Exact("1e-6")

    def __post_init__(self) -> None:
        check_word("trust", self.trust, StreamTrust)
        check_word("release", self.release, StreamRelease)
        make_positive(self, epsilon="no noise gives epsilon 0")
        object.__setattr__(self, "delta", chance_of("delta", self.delta))
        make_integers(self, "sent")
        make_integers(self, "horizon", at_most=_MOST_HORIZON)

    @property
    def kind(self) -> Literal["plain", "each", "tree", "doubling", "factorisation"]:
        r"""How sums are made: as they are, of noisy outcomes, or as ``release`` says."""
        match self.trust:
            case "none":
                return "plain"
            case "local":
                return "each"
            case _:
                return self.release

    @property
    def block(self) -> int:
        r"""How many outcomes of a base arm make one item of the factorisation."""
        return -(-self.horizon // _MOST_ITEMS) if self.kind == "factorisation" else 1

    @property
    def items(self) -> int:
        r"""The most items of a base arm: it is played in every round."""
        return -(-self.horizon // self.block)

    @property
    def grid(self) -> int:
        r"""Noise of the factorisation comes in steps of 1/grid: at least 16 sqrt(items)."""
        return _LEAST_GRID << -(-(self.items - 1).bit_length() // 2)

    @property
    def moves(self) -> tuple[int, ...]:
        r"""How far the noised numbers of a base arm move with one outcome of it, at the most."""
        match self.kind:
            case "tree":
                return (1,) * self.horizon.bit_length()
            case "factorisation":
                return column(self.items, self.grid)
            case _:
                return (1,)

    @property
    def sensitivity(self) -> Sensitivity:
        r"""Of all noised numbers together: outcomes of ``sent`` base arms may all move."""
        moves = self.moves * self.sent
        return Sensitivity(1) if moves == (1,) else Sensitivity.box(moves)

    @property
    def noise(self) -> Noise | None:
        r"""The law of the noise of each number; None where nothing is protected."""
        return None if self.trust == "none" else _noise(self)

    @property
    def mechanism(self) -> Mechanism | None:
        r"""One release that costs what all that a user is in costs."""
        noise = self.noise
        return None if noise is None else Mechanism(noise=noise, sensitivity=self.sensitivity)

    def guarantee(self) -> PrivacyCurve | None:
        r"""What it promises each user, derived from noise and sensitivity."""
        noise = self.noise
        return None if noise is None else PrivacyCurve(noise=noise, sensitivity=self.sensitivity)

    def assumed(self) -> tuple[str, ...]:
        r"""What the promise takes for granted beside the noise."""
        return _ASSUMED[self.trust]

    @property
    def bits(self) -> int:
        r"""The length of one number that a user sends."""
        return _WORD if self.trust == "local" else 1

    def draw(self, shape: tuple[int, ...], rng: Rng) -> Integers:
        r"""Fresh noise for so many numbers.

        Raises :class:`NotDerived` where nothing is protected.
        """
        noise = self.noise
        if noise is None:
            raise NotDerived("noise", "nothing is protected: there is none to draw")
        return noise.sample(shape, rng=rng)


@lru_cache(maxsize=1 << 8)
def _noise(privatizer: StreamPrivatizer) -> Noise:
    moved = privatizer.sensitivity
    if privatizer.kind != "factorisation":
        return DiscreteLaplace(scale=len(privatizer.moves) * privatizer.sent / privatizer.epsilon)
    found = calibrate(
        noise="discrete-gaussian",
        epsilon=privatizer.epsilon,
        delta=privatizer.delta,
        sensitivity=moved,
    ).noise
    if not isinstance(found, Noise):
        raise NotDerived("discrete Gaussian noise", f"the calibration gave {found!r}")
    return found
