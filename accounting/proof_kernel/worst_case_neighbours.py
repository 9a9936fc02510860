r"""The rounds on the worst-case neighbouring datasets, for each component of a certificate.

In each coordinate and direction, the largest shift is the worst at every epsilon. It remains to
choose the worst of the shifts that a norm permits and, for an asymmetric law, the direction in each
coordinate. The worst choice may differ between rounds and depend on earlier releases. So several
rounds are supported only if all choices but one are excluded. Proofs: docs/proofs/kernel.md.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Final, TypeAlias

from accounting.proof_kernel.law_tables import REAL, Refused, Round

Scenario: TypeAlias = list[tuple[Round, int]]
r"""A list of rounds with their counts."""

LAWS: Final = {
    "discrete-laplace": ("scale",),
    "staircase": ("epsilon", "sensitivity", "plateau"),
    "discrete-gaussian": ("sigma_squared",),
    "discrete-gaussian-sum": ("count", "sigma_squared"),
    "skellam": ("variance",),
    "polya": ("shape", "scale"),
    "polya-difference": ("shape", "scale"),
    "poisson": ("mean",),
    "binomial": ("trials", "probability"),
    "gaussian": ("sigma",),
    "laplace": ("scale",),
}
"""The parameters of every law."""

NORMS: Final = ("absolute", "l1", "l2-squared", "box")
STRATEGIES: Final = {"tree": (), "banded": ("bands",), "toeplitz": ("coefficients",)}
"""The strategies of correlated noise in certificates, with their fields."""

_ONE: Final = Fraction(1)
_BITS: Final = 256
_MOST_SHIFTS: Final = 64
_MOST_AMOUNT: Final = 400
_MOST_WORK: Final = 1 << 18
_ONE_SIDED: Final = ("poisson", "poisson-group")
_SKEW: Final = ("polya", "poisson", "binomial")
_COVERED: Final[Mapping[str | None, Mapping[str, tuple[str, ...]]]] = {
    None: {
        **dict.fromkeys(LAWS, ("absolute", "box")),
        **dict.fromkeys(("discrete-laplace", "discrete-gaussian", "gaussian"), NORMS),
        "laplace": ("absolute", "l1"),
    },
    "poisson": {
        **dict.fromkeys(LAWS, ("absolute",)),
        "gaussian": NORMS,
        "laplace": ("absolute", "l1"),
    },
    "poisson-replaced": {"gaussian": NORMS},
    "poisson-group": {"gaussian": NORMS},
    "correlated": {"gaussian": ("absolute", "l2-squared")},
}


def norms_of(law: str, scheme: str | None, amount: int) -> tuple[str, ...]:
    r"""The sensitivity norms for which a theorem covers this law and ``scheme``; possibly none.

    ``scheme`` is a sampling scheme, "correlated", or None. ``amount`` is the sensitivity. An
    integer query of l1 or l2 sensitivity 1 changes one coordinate by 1, as under ``absolute``, but
    a real-valued query may change several coordinates.

    >>> norms_of("laplace", None, 1), norms_of("skellam", None, 2), norms_of("skellam", None, 1)
    (('absolute', 'l1'), ('absolute', 'box'), ('absolute', 'l1', 'l2-squared', 'box'))
    """
    if scheme is None and amount == 1 and law not in REAL:
        return NORMS
    return _COVERED[scheme].get(law, ())


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    r"""A number of equal rounds of a certificate, which have the same noise or stated claim.

    For a stated claim, ``law`` is "pure", "approx" or "zcdp". Without sampling, ``sampling`` is
    None and ``rate`` is 1. The privacy unit is a group of ``members``, which are all added or all
    removed. A run of releases with ``correlated`` noise counts as one round.
    """

    law: str
    parameters: tuple[Fraction, ...]
    rounds: int
    norm: str = ""
    amounts: tuple[int, ...] = ()
    sampling: str | None = None
    rate: Fraction = _ONE
    members: int = 1
    correlated: Correlated | None = None

    @property
    def symmetric(self) -> bool:
        r"""Whether the noise X and -X have the same law (for a fair binomial, up to a shift)."""
        fair = self.law == "binomial" and self.parameters[1] == Fraction(1, 2)
        return self.law not in _SKEW or fair


def scenarios(
    parts: tuple[Part, ...], *, above: bool, tick: Callable[[], None] = lambda: None
) -> list[Scenario]:
    r"""All compositions that may be the worst case; a claim must hold for all of them.

    An irrational shift is rounded to a larger loss if ``above`` is true, otherwise to a smaller
    one. ``tick`` is called between computations that may take seconds.

    Raises :class:`Refused` if the worst shift or direction may differ between rounds, because then
    there are further compositions.
    """
    # Added units are in the same dataset in all rounds, so all rounds share the direction.
    ways = (False, True) if any(part.sampling in _ONE_SIDED for part in parts) else (False,)
    for part in parts:
        if part.correlated is not None:
            tick()
            _enclosed_square(part.correlated)  # cached for the choices below
    rows: list[Scenario] = []
    for swapped in ways:
        choices = [_choices(part, swapped=swapped, above=above) for part in parts]
        if any(len(each) > 1 for each in choices) and sum(part.rounds for part in parts) > 1:
            raise Refused("the worst shift or direction may differ between rounds")
        if len(parts) == 1:
            rows += choices[0]
        else:
            rows.append([one for each in choices for one in each[0]])
    return [_with_one_gaussian(row, above=above) for row in rows]


def _choices(part: Part, *, swapped: bool, above: bool) -> list[Scenario]:
    n, rate = part.members, part.rate
    here = tuple(math.comb(n, j) * rate**j * (1 - rate) ** (n - j) for j in range(n + 1))
    one_sided = part.sampling in _ONE_SIDED
    match part.law:
        case "zcdp":
            raise Refused("a zCDP claim has no curve, only an upper bound")
        case "pure" | "approx":
            stated = (*part.parameters, Fraction(0))[:2]
            return [[(Round("stated", stated, _ONE), part.rounds)]]
        case "gaussian" | "laplace":
            there = here if part.sampling == "poisson-replaced" else (_ONE,)
            shift = _root(_squared(part, above=above), above=above)
            one = Round(part.law, (), shift, here, there, swapped and one_sided)
            return [[(one, part.rounds)]]
    if one_sided:
        if part.norm != "absolute":
            raise Refused("sampling is not supported for integer noise in several coordinates")
        if part.law in _SKEW:
            raise Refused(
                f"sampling is not supported for {part.law}: the law is asymmetric or bounded"
            )
        move = Fraction(part.amounts[0])
        return [[(Round(part.law, part.parameters, move, here, (_ONE,), swapped), part.rounds)]]
    return [
        [(Round(part.law, part.parameters, Fraction(step)), part.rounds * k) for step, k in moves]
        for shift in _shifts(part)
        for moves in _directions(sorted(shift.items()), symmetric=part.symmetric)
    ]


def _squared(part: Part, *, above: bool) -> Fraction:
    # The squared length of the shift in units of the scale. By rotation, Gaussian noise needs only
    # one coordinate; under l1 the whole shift in one coordinate is the worst.
    moved = part.amounts if part.norm != "l2-squared" else ()
    squared = Fraction(sum(step**2 for step in moved) or part.amounts[0])
    if part.correlated is not None:
        squared *= _enclosed_square(part.correlated)[above]
    return squared / part.parameters[0] ** 2


def _with_one_gaussian(rounds: Scenario, *, above: bool) -> Scenario:
    # Unsampled Gaussian rounds form one round: their losses are normal and the variances add.
    plain = [each for each in rounds if each[0].law == "gaussian" and each[0].here[1] == 1]
    if sum(count for _, count in plain) < 2:
        return rounds
    squared = sum((each.shift**2 * count for each, count in plain), Fraction(0))
    rest = [each for each in rounds if each not in plain]
    return [*rest, (Round("gaussian", (), _root(squared, above=above)), 1)]


def _root(square: Fraction, *, above: bool) -> Fraction:
    tops = math.isqrt(square.numerator), math.isqrt(square.denominator)
    if (tops[0] ** 2, tops[1] ** 2) == (square.numerator, square.denominator):
        return Fraction(*tops)
    scaled = math.isqrt((square.numerator << 2 * _BITS) // square.denominator)
    return Fraction(scaled + above, 1 << _BITS)


def _directions(shift: list[tuple[int, int]], *, symmetric: bool) -> list[list[tuple[int, int]]]:
    # Lists of (signed step, count): coordinates with equal steps are exchangeable.
    if symmetric:
        return [shift]
    if math.prod(count + 1 for _, count in shift) > _MOST_SHIFTS:
        raise Refused(f"there are more choices of directions than the limit of {_MOST_SHIFTS}")
    found = []
    for downs in itertools.product(*(range(count + 1) for _, count in shift)):
        both = zip(shift, downs, strict=True)
        moves = [m for (step, k), down in both for m in ((step, k - down), (-step, down))]
        found.append([move for move in moves if move[1]])
    return found


def _shifts(part: Part) -> list[dict[int, int]]:
    # Steps with their counts. Under l1 the whole shift in one coordinate is the worst for discrete
    # Laplace; otherwise every partition of the whole amount into steps is tried.
    if part.norm == "absolute" or (part.norm == "l1" and part.law == "discrete-laplace"):
        return [{part.amounts[0]: 1}]
    if part.norm == "box":
        return [dict(Counter(part.amounts))]
    if not part.symmetric:
        raise Refused(f"no theorem covers {part.law} noise under a norm of several coordinates")
    amount, power = part.amounts[0], 2 if part.norm == "l2-squared" else 1
    if amount > _MOST_AMOUNT:
        raise Refused(f"the norm sensitivity must be at most {_MOST_AMOUNT}")
    found = [*itertools.islice(_partitions(amount, amount, power), _MOST_SHIFTS + 1)]
    if len(found) > _MOST_SHIFTS:
        raise Refused(f"the norm permits more shifts than the limit of {_MOST_SHIFTS}")
    return found


def _partitions(amount: int, largest: int, power: int) -> Iterator[dict[int, int]]:
    if amount == 0:
        yield {}
    for step in range(1, largest + 1):
        if step**power > amount:
            return
        for rest in _partitions(amount - step**power, step, power):
            yield {**rest, step: rest.get(step, 0) + 1}


# -- correlated noise ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Correlated:
    r"""A strategy matrix C over ``rounds`` rounds, and the restriction on a unit's participations.

    A unit participates in at most ``most`` rounds, and any two of them are at least ``apart``
    rounds apart. C is a binary tree if ``strategy`` is "tree". Otherwise it is a Toeplitz matrix
    with entries c_(i-j): c_0, c_1, ... are the ``coefficients`` for "toeplitz", and c_k = binom(2k,
    k)/4^k for k < ``bands`` for "banded".

    >>> tree = Correlated(strategy="tree", rounds=8, most=2, apart=3)
    >>> tree.squared
    (Fraction(10, 1), Fraction(10, 1))
    """

    strategy: str
    rounds: int
    most: int
    apart: int
    bands: int = 0
    coefficients: tuple[Fraction, ...] = ()

    @property
    def squared(self) -> tuple[Fraction, Fraction]:
        r"""Lower and upper bounds on the squared l2 sensitivity of C.

        It is the maximum of ||C u||^2 over the 0/1 vectors u of rounds in which a unit may
        participate. Raises :class:`Refused` if there are too many such vectors.
        """
        bits = 0 if self.strategy == "tree" else _BITS
        coefficients, low, high = self._scaled(), 0, 0
        for pattern in self._patterns(len(coefficients)):
            rows = Counter[object]()
            for place in pattern:
                rows.update(self._column(place, coefficients))
            # Rounding makes a coefficient smaller by less than the length of the column, in units
            # of its last bit.
            slack = len(coefficients) * len(pattern)
            low = max(low, sum(row**2 for row in rows.values()))
            high = max(high, sum((row + slack) ** 2 for row in rows.values()))
        return Fraction(low, 1 << 2 * bits), Fraction(high, 1 << 2 * bits)

    def _patterns(self, length: int) -> Iterator[Sequence[int]]:
        # If coefficients never increase, the earliest rounds are the worst pattern; otherwise any
        # may be.
        if self.strategy != "tree" and all(a >= b for a, b in pairwise(self.coefficients)):
            places = range(0, self.rounds, self.apart)[: self.most]
            if length * len(places) > _MOST_WORK:
                raise Refused("the strategy has too many rounds and participations for the kernel")
            yield places
            return
        work, waiting = 0, list[tuple[int, ...]]([()])
        while waiting:
            chosen = waiting.pop()
            yield chosen
            if len(chosen) == self.most:
                continue
            for at in range(chosen[-1] + self.apart if chosen else 0, self.rounds):
                work += 1 + len(chosen)
                if work > _MOST_WORK:
                    raise Refused("the strategy has too many participation patterns")
                waiting.append((*chosen, at))

    def _scaled(self) -> list[int]:
        # The first column of a Toeplitz matrix, rounded down to units of 2^-256.
        if self.strategy == "banded":
            found = [1 << _BITS]
            for k in range(1, self.bands):
                found.append(found[-1] * (2 * k - 1) // (2 * k))
            return found
        return [(each.numerator << _BITS) // each.denominator for each in self.coefficients]

    def _column(self, place: int, coefficients: Sequence[int]) -> dict[object, int]:
        if self.strategy == "tree":
            # The blocks of 2^k rounds that contain the round and end at an odd multiple of 2^k.
            blocks = ((place >> k, k) for k in range(self.rounds.bit_length()))
            return {(i, k): 1 for i, k in blocks if i % 2 == 0 and i + 1 << k <= self.rounds}
        return dict(zip(range(place, self.rounds), coefficients, strict=False))


@lru_cache(maxsize=128)
def _enclosed_square(run: Correlated) -> tuple[Fraction, Fraction]:
    return run.squared
