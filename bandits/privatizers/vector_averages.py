r"""Private averages of several actions at once, the PRIVATIZER procedures of Li, Zhou and Ji.

A client sends one average reward for each of s actions. Each average is clipped to [-B, B] and
encoded as an integer in [0, g] (:class:`bandits.batch.Encoding`), so a client changes each of the s
sums over clients by at most g. The noise is discrete. Its scale depends on ``calibration``:

- ``"exact"``: the least noise certified for (epsilon, delta) if all s averages of a client change
  by g at once;
- ``"paper"``: the paper's formula; the true epsilon and delta are derived from the noise;
- ``"pure"``: discrete Laplace noise of scale s g/epsilon, which is epsilon-DP for the client.

Sources in Li, Zhou and Ji (2022): eq. 5 (central), eq. 7 (local), Algorithm 2 (shuffle); with one
action per client Appendix C: eq. 55, eq. 57, Algorithm 4; pure epsilon: Remark C.9. Proofs:
docs/proofs/radius.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final, Literal, TypeAlias

from accounting.calibration.calibrate_noise_rounds_or_rate import calibrate
from accounting.derive_guarantee import guarantee
from accounting.errors import NotDerived
from accounting.guarantees.guarantee import Guarantee
from accounting.guarantees.stated_guarantees import ApproxBound, PureBound
from accounting.protocol_guarantees.paper_parameters import (
    WIDTH_BITS,
    epsilon_of,
    log_of,
    lzj_vector,
)
from accounting.protocol_guarantees.shuffled_bits_guarantee import BinomialBox
from accounting.published_noise_bounds import real_gaussian_ratio
from bandits.batch import Ask, Encoding, ReleasedSum
from bandits.privatizers.deployment import ALL_HONEST, BITS_ONLY, NO_NOISE, TRUSTED, noise_by_user
from bandits.privatizers.privatizer import Releasing
from dpcore.errors import InvalidParameter
from dpcore.laws.discrete_gaussian import DiscreteGaussian
from dpcore.laws.discrete_laplace import DiscreteLaplace
from dpcore.laws.poisson_and_binomial import Binomial
from dpcore.laws.sum_of_shares import summed
from dpcore.mechanism import Mechanism, Release, Sensitivity
from dpcore.noise import Noise
from dpcore.numbers.enclosure import Enclosure, ball, narrow
from dpcore.numbers.parameter import Exact, RationalLike, check_fields, integer, rational_in
from dpcore.protocols.shuffled_bits import VectorShuffle
from dpcore.sampling.rng import SYSTEM, Rng
from dpcore.spec_syntax import word

LinearTrust: TypeAlias = Literal["none", "central", "local", "shuffle"]
Calibrated: TypeAlias = Literal["exact", "paper", "pure"]

_PLAIN: Final = 1 << 20
_COUNTED: Final = 1 << 20
_AT_ONCE: Final = 1 << 20
_WORD: Final = 64
_CLIPPED: Final = "clients clip and round their averages before anything leaves them"
_ASSUMED: Final[dict[LinearTrust, tuple[str, ...]]] = {
    "none": (),
    "central": (TRUSTED, _CLIPPED),
    "local": (_CLIPPED,),
    "shuffle": (BITS_ONLY, ALL_HONEST, _CLIPPED),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Averages:
    r"""The size of a release: ``users`` clients with averages of ``coordinates`` actions."""

    users: int
    coordinates: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AveragePrivatizer(Releasing[Averages]):
    r"""Release noisy sums over clients of their averages of s actions, clipped at B = ``bound``.

    With ``trust="central"`` the server adds discrete Gaussian noise to each sum, or discrete
    Laplace noise if ``calibration`` is ``pure``. With ``local``, every client adds such noise to
    its own averages. With ``shuffle``, every client adds random bits, which a shuffler mixes with
    the bits of its averages, so the noise of a sum is binomial. With ``none`` there is no noise.
    """

    trust: LinearTrust = word(LinearTrust)
    epsilon: Exact = Exact(1, zero=NO_NOISE)
    delta: Exact = Exact("1e-6", within="(0, 1)")
    bound: Exact = Exact(2, zero="bound 0 clips every average to 0")
    calibration: Calibrated = word(Calibrated, "exact")

    def __post_init__(self) -> None:
        check_fields(self)
        if self.trust == "shuffle" and self.calibration == "pure":
            reason = "must be exact or paper for shuffled bits: binomial noise has no pure epsilon"
            raise InvalidParameter("calibration", self.calibration, reason)

    @property
    def name(self) -> str:
        return self.trust

    def size_of(self, ask: Ask) -> Averages:
        return Averages(users=ask.users, coordinates=len(ask.actions))

    def encoding(self, size: Averages) -> Encoding:
        wide = self.bound
        if self._paper_bits:
            # LZJ Algorithm 2 encodes coordinates on the range of the norm, B sqrt s.
            wide *= math.isqrt(size.coordinates - 1) + 1
        return Encoding(precision=self._steps(size), low=-wide, high=wide)

    def bits(self, size: Averages) -> int:
        match self.trust:
            case "shuffle":
                return self.shuffle(size).bits_per_user
            case "local":
                return _WORD * size.coordinates
            case _:
                return self._steps(size).bit_length() * size.coordinates

    def shuffle(self, size: Averages) -> VectorShuffle:
        chosen = paper_shuffle if self._paper_bits else least_shuffle
        return chosen(self.epsilon, self.delta, size.users, size.coordinates)

    def noise(self, size: Averages) -> Noise | None:
        r"""The noise law of each sum in steps; None without privacy. A binomial is not centred."""
        if self.trust == "none":
            return None
        added = self._added(size)
        return summed(added, size.users) if self.trust == "local" else added

    def proxy(self, size: Averages) -> Fraction:
        r"""A variance proxy of the noise X of one released average, in squared units of reward.

        Unless the noise is discrete Laplace, the centred noise X is sub-Gaussian with this proxy: E
        e^(tX) <= e^(t^2 proxy/2) for every t. The proxy of one discrete Laplace draw is 2 scale^2,
        and only the weaker bound of :meth:`tail` holds.
        """
        if self.trust == "none":
            return Fraction(0)
        match self._added(size):
            case DiscreteLaplace(scale=scale):  # bounded by that of continuous noise
                proxy = 2 * scale**2
            case Binomial(trials=trials):  # 1/4 for each bit, by Hoeffding's lemma
                proxy = Fraction(trials, 4)
            case DiscreteGaussian(sigma_squared=sigma_squared):
                proxy = sigma_squared
        draws = size.users if self.trust == "local" else 1
        return draws * proxy * self._step(size) ** 2

    def tail(self, size: Averages) -> Fraction:
        r"""A tail parameter c >= 0 of the noise X of one released average, in units of reward.

        It is 0 if X is sub-Gaussian. If c > 0, then log E e^(tX) <= -(proxy/(2 c^2)) log(1 - c^2
        t^2) for \|t\| < 1/c, where proxy is :meth:`proxy`. Sums of continuous Laplace variables of
        scale c attain the bound.
        """
        added = None if self.trust == "none" else self._added(size)
        return added.scale * self._step(size) if isinstance(added, DiscreteLaplace) else Fraction(0)

    def rounding(self, size: Averages) -> Fraction:
        r"""A variance proxy of the error that random rounding causes in one released average."""
        return self.encoding(size).step ** 2 / (4 * size.users)

    def release_sums(
        self, encoded: Sequence[int], size: Averages, rng: Rng = SYSTEM
    ) -> tuple[ReleasedSum, ...]:
        unit, n = self.encoding(size), size.users
        exact = [integer("encoded", total, at_least=0) for total in encoded]
        if len(exact) != size.coordinates or max(exact) > n * unit.precision:
            raise InvalidParameter(
                "encoded",
                encoded,
                f"must contain {size.coordinates} sums in [0, {n * unit.precision}]",
            )
        noise = self.noise(size)
        if noise is not None:
            drawn = self._drawn(noise, size, rng)
            exact = [total + each for total, each in zip(exact, drawn, strict=True)]
        centre = Fraction(noise.mean) if isinstance(noise, Binomial) else Fraction(0)
        return tuple(ReleasedSum((total - centre) * unit.step + n * unit.low) for total in exact)

    def _drawn(self, noise: Noise, size: Averages, rng: Rng) -> list[int]:
        s = size.coordinates
        if isinstance(noise, Binomial) and noise.trials <= _COUNTED and 2 * noise.probability == 1:
            # Counting fair bits is faster than building a table for a single draw.
            return [_ones(noise.trials, rng) for _ in range(s)]
        if self.trust != "local":
            return [int(each) for each in noise.sample(s, rng=rng)]
        own = self._added(size)
        return noise_by_user(own, users=size.users, sums=s, rng=rng, at_once=_AT_ONCE)

    def guarantee(self, size: Averages) -> Guarantee | None:
        if self.trust == "none":
            return None
        if self.calibration == "exact" or self._paper_bits:
            return ApproxBound(self.epsilon, self.delta)
        curve = self.curve(size)
        largest = curve.pure().upper
        return PureBound(largest) if isinstance(largest, Fraction) else curve

    def curve(self, size: Averages) -> Guarantee:
        r"""The guarantee of one release of this size for a client, derived from the noise."""
        return guarantee(self._mechanism(size))

    def assumed(self, size: Averages) -> tuple[str, ...]:
        del size
        return _ASSUMED[self.trust]

    def record(self, size: Averages, batch: str) -> Release | None:
        if self.trust == "none":
            return None
        return Release(mechanism=self._mechanism(size), batch=batch)

    def _mechanism(self, size: Averages) -> Mechanism:
        if self.trust == "shuffle":
            return self.shuffle(size).mechanism(size.users)
        return Mechanism(noise=self._added(size), sensitivity=moves(size.coordinates))

    @property
    def _paper_bits(self) -> bool:
        return self.trust == "shuffle" and self.calibration == "paper"

    def _steps(self, size: Averages) -> int:
        match self.trust:
            case "none":
                return _PLAIN
            case "shuffle" if self._paper_bits:
                return self.shuffle(size).precision
            case "shuffle":
                return bit_steps(self.epsilon, self.delta, size.coordinates)
            case _:
                return STEPS

    def _step(self, size: Averages) -> Fraction:
        # The effect of one step of one client on a released average.
        return self.encoding(size).step / size.users

    def _added(self, size: Averages) -> DiscreteGaussian | DiscreteLaplace | Binomial:
        # The noise of the server or of all bits on each sum, or of a client on each of its values.
        if self.trust == "shuffle":
            return self.shuffle(size).planned_noise
        if self.calibration == "pure":
            return DiscreteLaplace(scale=size.coordinates * STEPS / self.epsilon)
        if self.calibration == "paper":
            return paper_gaussian(self.epsilon, self.delta, size.coordinates)
        return least_gaussian(self.epsilon, self.delta, moves(size.coordinates))


def _ones(bits: int, rng: Rng) -> int:
    # The number of ones among ``bits`` fair bits.
    words = int.from_bytes(rng.words(-(-bits // 64)).tobytes(), "little")
    return (words >> (-bits % 64)).bit_count()


STEPS: Final = 1 << 6
r"""The number of steps g with Gaussian noise. Rounding adds at most 1/(4 n) squared steps to the
variance of an average; with 64 steps and B = 2 this is a tenth of sigma^2 = 0.01. More steps would
make certificates slow to check.
"""

_SHUFFLED: Final = (1 << 6, 1 << 5, 1 << 4)
_MOST_BITS: Final = 1 << 21
_MORE: Final = tuple(Fraction(n, 1000) for n in (1001, 1005, 1020, 1100, 1300, 2000, 4000, 16000))
_FEW: Final = 1 << 18


def moves(s: int) -> Sensitivity:
    r"""The sensitivity of s sums to one client, who changes each sum by at most :data:`STEPS`."""
    return Sensitivity(STEPS) if s == 1 else Sensitivity.box((STEPS,) * s)


@lru_cache(maxsize=1 << 12)
def least_gaussian(
    epsilon: Fraction, delta: Fraction, sensitivity: Sensitivity
) -> DiscreteGaussian:
    r"""The least discrete Gaussian noise that is proven to give (epsilon, delta)."""
    found = calibrate(
        noise="discrete-gaussian", epsilon=epsilon, delta=delta, sensitivity=sensitivity
    ).noise
    if not isinstance(found, DiscreteGaussian):
        raise NotDerived("discrete Gaussian noise", f"the calibration gave {found!r}")
    return found


@lru_cache(maxsize=1 << 12)
def paper_gaussian(epsilon: Fraction, delta: Fraction, s: int) -> DiscreteGaussian:
    r"""The noise of eq. 5 of Li, Zhou and Ji (2022), for s actions.

    (epsilon, delta)-DP is proven only for epsilon <= 1.
    """
    ratio = Fraction(lzj_classical_gaussian(epsilon, delta).upper)
    return DiscreteGaussian(sigma_squared=math.ceil(ratio**2 * s * STEPS**2))


@lru_cache(maxsize=1 << 12)
def least_shuffle(epsilon: Fraction, delta: Fraction, n: int, s: int) -> VectorShuffle:
    r"""The protocol with nearly the fewest fair bits certified to give (epsilon, delta)."""
    return VectorShuffle(
        users=n,
        noise_bits=-(-_enough(epsilon, delta, s) // n),
        probability="1/2",
        precision=bit_steps(epsilon, delta, s),
        coordinates=s,
    )


@lru_cache(maxsize=1 << 12)
def paper_shuffle(epsilon: Fraction, delta: Fraction, n: int, s: int) -> VectorShuffle:
    r"""The protocol of Li, Zhou and Ji (2022), Algorithm 2, for n users and s actions.

    Raises :class:`NotDerived` unless (epsilon, delta)-DP is certified for it.
    """
    found = lzj_vector(n, s, epsilon, delta)
    protocol = VectorShuffle(
        users=n,
        noise_bits=found.bits,
        probability=found.rounded_up,
        precision=found.precision,
        coordinates=s,
    )
    _check_kept(epsilon, delta, protocol)
    return protocol


@lru_cache(maxsize=1 << 10)
def _enough(epsilon: Fraction, delta: Fraction, s: int) -> int:
    # The number of fair bits for the target: 0.1% more than Gaussian noise would need, or more if
    # that is not certified. Further bits are independent additional noise, so they are harmless.
    g = bit_steps(epsilon, delta, s)
    real = _as_gaussian(epsilon, delta, s) * g * g
    for more in _MORE:
        trials = math.ceil(real * more)
        if BinomialBox(trials=trials, bounds=(g,) * s).meets(epsilon, delta):
            return trials
    reason = "use a larger delta or a smaller epsilon"
    raise NotDerived(f"shuffled bits for ({epsilon}, {delta})", reason)


@lru_cache(maxsize=1 << 10)
def _as_gaussian(epsilon: Fraction, delta: Fraction, s: int) -> Fraction:
    # The number of fair bits with the variance of continuous Gaussian noise, divided by g^2.
    return 4 * Fraction(real_gaussian_ratio(epsilon, delta).upper) ** 2 * s


def lzj_classical_gaussian(epsilon: RationalLike, delta: RationalLike) -> Enclosure:
    r"""The noise multiplier sqrt(2 ln(1.25/delta))/epsilon of Li, Zhou and Ji (2022).

    Their Theorems 4.2, 4.4, C.1 and C.3 use this ratio of the standard deviation of Gaussian noise
    to the l2 sensitivity. The ratio is proven to give (epsilon, delta)-DP only for epsilon <= 1
    (Dwork and Roth 2014, Theorem A.1). ``accounting`` provides the exact calibration and the true
    guarantee of this ratio.
    """
    e, log = epsilon_of(epsilon), log_of(Fraction(5, 4) / rational_in("delta", delta, "(0, 1)"))
    return narrow(lambda: (2 * log()).sqrt() / ball(e), WIDTH_BITS)


def bit_steps(epsilon: Fraction, delta: Fraction, s: int) -> int:
    r"""The precision g of averages in shuffled bits, limited so that the bits can be certified."""
    bits = _as_gaussian(epsilon, delta, s)
    return next((g for g in _SHUFFLED if bits * g * g <= _MOST_BITS), _SHUFFLED[-1])


def _check_kept(epsilon: Fraction, delta: Fraction, protocol: VectorShuffle) -> None:
    # The paper uses more bits than needed: a subset of the noise bits already suffices, by basic
    # composition of the coordinates.
    g, s = protocol.precision, protocol.coordinates
    every = protocol.planned_noise.trials
    for some in dict.fromkeys((min(every, _FEW), every)):
        one = BinomialBox(trials=some, bounds=(g,), probability=protocol.probability)
        if s * Fraction(one.delta(epsilon / s).upper) <= delta:
            return
    wanted = f"that Algorithm 2 of Li, Zhou and Ji satisfies ({epsilon}, {delta})-DP"
    raise NotDerived(wanted, "use exact calibration")
