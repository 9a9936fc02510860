r"""Targets: auditable mechanisms, and how a block of runs is drawn.

A target draws one block of runs at a time, in run order, with separate randomness for each dataset
and each block. ``audit.targets.target_syntax`` parses targets.
"""

from __future__ import annotations

import math
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from audit.claims import Claim, CurveClaim, read_claim
from audit.errors import TargetFailed
from audit.outputs.copies import captured, copies
from audit.outputs.output_parser import Outputs, join, require_no_iterator, require_readable
from audit.outputs.time_limit import current
from dpcore.errors import ABSENT, InvalidParameter, Unrepresentable
from dpcore.mechanism import Relation
from dpcore.noise import Noise
from dpcore.numbers.exp_field import ExpRational
from dpcore.numbers.parameter import RationalLike, integer, whole_number
from dpcore.sampling.rng import SYSTEM, Rng, SeededRng
from dpcore.spec_syntax import read_keys

if TYPE_CHECKING:
    from typing import Self

    from audit.broken_mechanisms import Subject

FORMS: Final = "f(dataset), f(dataset, rng) or f(dataset, n, rng)"
r"""The accepted signatures of a callable.

``rng`` is a numpy Generator. A parameter annotated ``rng: Rng`` (of dpcore) receives a
:class:`dpcore.SeededRng`, from which dpcore's noise can be drawn.
"""

_ROOM: Final = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    r"""A block of consecutive runs to draw, as data.

    - ``pair``: the two datasets;
    - ``worlds``: the dataset of each run, True for B;
    - ``seeds``: a random seed for each dataset; no two blocks have the same seeds;
    - ``mixing``: the seed of :attr:`mixer`;
    - ``drawn``: the number of runs before the block;
    - ``timeout``: the time limit of each call, in seconds;
    - ``until``: the time, as in ``time.time()``, after which no run is drawn;
    - ``label``: the location of the block in error messages;
    - ``timed``: whether each run gives (output, nanoseconds of its call).
    """

    pair: tuple[Any, Any]
    worlds: NDArray[np.bool_]
    seeds: tuple[np.random.SeedSequence, np.random.SeedSequence]
    mixing: np.random.SeedSequence
    drawn: int = 0
    timeout: float | None = None
    until: float = math.inf
    label: str = ""
    timed: bool = False

    @property
    def sizes(self) -> tuple[int, int]:
        in_b = int(np.count_nonzero(self.worlds))
        return len(self.worlds) - in_b, in_b

    def seed(self, world: int) -> np.random.SeedSequence:
        r"""A new copy, which may be spawned, of the seed of dataset A (``world`` 0) or B (1)."""
        seed = self.seeds[world]
        return np.random.SeedSequence(seed.entropy, spawn_key=seed.spawn_key)

    @property
    def mixer(self) -> np.random.Generator:
        r"""A new generator, which shuffles the outputs of each dataset before runs are assigned."""
        return np.random.default_rng(self.mixing)

    def fresh(self, world: int) -> Callable[[], Any]:
        r"""A function that returns a new copy of dataset A (``world`` 0) or B (1) at each call."""
        return copies(f"dataset {'AB'[world]}", self.pair[world])


def working_folder() -> str:
    r"""The working folder, or "." if it was removed."""
    try:
        return str(Path.cwd())
    except OSError:
        return "."


@dataclass(frozen=True, slots=True, kw_only=True)
class Target(ABC):
    r"""A map from a dataset to a random output.

    ``spelling`` is the target as text. ``seeded`` means that the audit's seed determines the
    randomness of the target. ``named`` means that :func:`read_target` made the target from its
    text, and can make it again in another process. Relative file names in the text are relative to
    ``folder``, also in another process.
    """

    spelling: str
    seeded: bool = True
    named: bool = field(default=False, compare=False, repr=False)
    folder: str = field(default_factory=working_folder, compare=False, repr=False)
    lines: ClassVar[bool] = False
    r"""Whether outputs are lines of text that must be parsed."""
    limits_itself: ClassVar[bool] = False
    r"""Whether the target enforces its time limit in every thread."""
    tells_time: ClassVar[bool] = False
    r"""Whether each run can be a separate call, whose time is measured."""

    def check(self, pair: tuple[Any, Any]) -> tuple[Any, Any]:
        r"""Return the pair; raise :class:`InvalidParameter` if the target cannot accept it."""
        for name, dataset in zip("AB", pair, strict=True):
            copies(f"dataset {name}", dataset)
        return pair

    @abstractmethod
    def draw(self, block: Block) -> Iterator[Outputs]:
        r"""Yield the outputs of a block, in one or more parts, in run order.

        If the target fails, the parts that were yielded before the failure are kept.
        """


@dataclass(frozen=True, slots=True)
class Shifted:
    r"""The law of ``shift`` + ``noise``; each coordinate of a tuple ``shift`` has its own draw."""

    noise: Noise
    shift: int | tuple[int, ...]

    def __post_init__(self) -> None:
        for step in self.shift if isinstance(self.shift, tuple) else (self.shift,):
            integer("shift", step)


Law: TypeAlias = Shifted | Mapping[Hashable, RationalLike | ExpRational]
r"""A shifted noise, or the probability of each output, a rational number or ``ExpRational``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scalar(Target):
    r"""A function f(dataset), or f(dataset, rng) if seeded, that returns one output per call.

    ``ours`` means that the parameter ``rng`` is annotated ``rng: Rng`` and receives a generator of
    dpcore.
    """

    function: Callable[..., Any]
    ours: bool = False
    tells_time: ClassVar[bool] = True

    def draw(self, block: Block) -> Iterator[Outputs]:
        watchdog, fresh = current(), (block.fresh(0), block.fresh(1))
        options: list[dict[str, Any]] = [
            {"rng": _rng_for(block.seed(world), ours=self.ours)} if self.seeded else {}
            for world in (0, 1)
        ]
        if block.timed:
            # Both datasets use the same generator: with two generators, one might be cached better
            # during the whole audit, and the time of a call would reveal which one was passed.
            options[1] = options[0]
        # Likewise, both datasets are copied before each call, in random order, because the copy
        # that is made last is cached better.
        order = block.mixer.integers(2, size=len(block.worlds)).tolist() if block.timed else []
        seen: dict[int, tuple[object, str]] = {}
        for i, world in enumerate(block.worlds.tolist()):
            if block.timed:
                made = {first: fresh[first]() for first in (order[i], 1 - order[i])}
                dataset = made[world]
            else:
                dataset = fresh[world]()
            timed = watchdog.call(
                partial(self._output, dataset, options[world], seen),
                self.spelling,
                dataset="AB"[world],
                run=block.drawn + i + 1,
            )
            yield [timed] if block.timed else [timed[0]]

    def _output(
        self, dataset: Any, options: dict[str, Any], seen: dict[int, tuple[object, str]]
    ) -> tuple[Any, int]:
        # The output of one call, and its duration in nanoseconds.
        begun = time.perf_counter_ns()
        output = self.function(dataset, **options)
        spent = time.perf_counter_ns() - begun
        require_readable(output)
        return captured(output, seen), spent


@dataclass(frozen=True, slots=True, kw_only=True)
class Vectorised(Target):
    r"""A function f(dataset, n, rng) that returns n outputs, along the first axis, per call."""

    function: Callable[..., Any]
    ours: bool = False

    def draw(self, block: Block) -> Iterator[Outputs]:
        sides = [self._side(block, world) if block.sizes[world] else None for world in (0, 1)]
        given = [side for side in sides if side is not None]
        side_a, side_b = (given[0][:0] if side is None else side for side in sides)
        yield join(side_a, side_b, block.worlds, block.mixer)

    def _side(self, block: Block, world: int) -> Outputs:
        rng, dataset = _rng_for(block.seed(world), ours=self.ours), block.fresh(world)()

        def outputs() -> Any:
            returned = self.function(dataset, n=block.sizes[world], rng=rng)
            if isinstance(returned, np.ma.MaskedArray) and returned.ndim:
                # Each output keeps the data under its mask, and the properties of the array.
                returned = [returned[i, ...] for i in range(len(returned))]
            elif type(returned) not in {np.ndarray, np.memmap} and isinstance(returned, np.ndarray):
                returned = list(returned) if returned.ndim else returned
            require_no_iterator(returned, returned)
            holds_objects = isinstance(returned, np.ndarray) and returned.dtype.hasobject
            if isinstance(returned, list | tuple) or (holds_objects and returned.ndim):
                for output in returned:
                    require_readable(output)
            return captured(returned, {})

        returned = current().call(outputs, self.spelling, dataset="AB"[world])
        return self._checked(returned, block.sizes[world], world)

    def _checked(self, returned: Any, runs: int, world: int) -> Outputs:
        outputs = list(returned) if isinstance(returned, tuple) else returned
        if outputs is None:
            reason = "returned nothing"
        elif not isinstance(outputs, np.ndarray | list):
            reason = f"returned {type(outputs).__name__} instead of an array"
        elif isinstance(outputs, np.ndarray) and outputs.ndim == 0:
            reason = "returned a single value"
        elif len(outputs) != runs:
            reason = f"returned {len(outputs):,} output{'' if len(outputs) == 1 else 's'}"
        else:
            return outputs
        reason += f": f(dataset, n, rng) must return n = {runs:,} outputs along the first axis"
        raise TargetFailed(self.spelling, reason, dataset="AB"[world])


def _rng_for(seed: np.random.SeedSequence, *, ours: bool) -> np.random.Generator | SeededRng:
    return seeded_rng(seed) if ours else np.random.default_rng(seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogued(Vectorised):
    r"""A target with its own pair and claim, such as an entry of the catalogue.

    ``held(dataset, name)`` raises :class:`InvalidParameter` for the argument ``name`` if the target
    does not accept the dataset.
    """

    subject: Subject
    held: Callable[[Any, str], object] | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(
        cls,
        spelling: str,
        run: Callable[[Any, int, Rng], Any],
        *,
        seeded: bool,
        own: Mapping[str, Any] | None = None,
        **about: Any,
    ) -> Self:
        r"""Make a target that runs a dpcore mechanism; ``seeded`` as in :class:`Target`.

        ``own`` contains further fields of this class, and ``about`` the fields of ``subject``.
        """
        from audit.broken_mechanisms import Subject
        from audit.broken_mechanisms import seeded as stream

        def function(dataset: Any, n: int, rng: np.random.Generator) -> NDArray[Any]:
            return np.asarray(run(dataset, n, stream(rng) if seeded else SYSTEM))

        subject = Subject(name=spelling, run=function, **about)
        more = own or {}
        return cls(spelling=spelling, function=function, subject=subject, seeded=seeded, **more)

    @property
    def tells_time(self) -> bool:  # type: ignore[override]  # a property, not a class attribute
        return self.subject.call is not None

    def check(self, pair: tuple[Any, Any]) -> tuple[Any, Any]:
        if self.held is None:
            return Vectorised.check(self, pair)
        for name, dataset in zip("AB", pair, strict=True):
            self.held(dataset, f"dataset {name}")
        return pair

    def draw(self, block: Block) -> Iterator[Outputs]:
        if block.timed and self.subject.call is not None:
            return Scalar(spelling=self.spelling, function=self.subject.call).draw(block)
        return Vectorised.draw(self, block)


@dataclass(frozen=True, slots=True, kw_only=True)
class Known(Catalogued):
    r"""A mechanism of dpcore whose output has a known law.

    ``laws(pair)`` returns the laws of the output on both datasets: ``noise`` shifted by the exact
    answer on the dataset or, if ``noise`` is None, the probability of each output. ``about`` starts
    with a comma, and is appended to the sentence that states what a proof covers.
    """

    laws: Callable[[tuple[Any, Any]], tuple[Law, Law]] = field(compare=False, repr=False)
    noise: Noise | None = None
    about: str = ""


def read_words(
    spelling: str,
    words: str,
    keys: Sequence[str],
    needed: Sequence[str] = (),
    *,
    names: Collection[str] | None = None,
    owner: str = "",
    whole: Sequence[str] = (),
) -> tuple[str, dict[str, Any]]:
    r"""Parse ``name,key=value,...`` and return the name, and the values by key.

    The name must be one of ``names`` if these are given. Values of keys in ``whole`` are converted
    to integers >= 1.
    """
    name, _, rest = (part.strip() for part in words.partition(","))
    if names is not None and name not in names:
        raise InvalidParameter("target", spelling, f"must name one of {', '.join(names)}")
    given = read_keys("target", spelling, rest, keys, owner=owner or name, needed=needed)
    return name, {
        key: whole_number(key, value, at_least=1) if key in whole else value
        for key, value in given.items()
    }


def typed(number: Fraction) -> int | str:
    r"""Write a number as in a dataset of the command line: an integer, or a fraction as text."""
    return int(number) if number.denominator == 1 else str(number)


def claim_of(
    subject: Target, claim: Claim | CurveClaim | str | None, relation: Relation | str | None
) -> Claim | CurveClaim:
    r"""The given claim (text is parsed), or the own claim of the target if ``claim`` is None."""
    match claim:
        case Claim() | CurveClaim():
            if relation is not None and Relation(claim.relation) is not Relation(relation):
                reason = f"must be {Relation(claim.relation).value}, the relation of the claim"
                raise InvalidParameter("relation", relation, reason)
            return claim
        case str():
            own = subject.subject.relation if isinstance(subject, Catalogued) else Relation.REPLACE
            return read_claim(claim, relation or own)
        case None if isinstance(subject, Catalogued):
            return subject.subject.claim(relation)
        case None:
            raise InvalidParameter("claim", ABSENT, "must be given, e.g. epsilon=1")
    raise InvalidParameter("claim", claim, 'must be a claim, or text such as "epsilon=1"')


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseAdded(Target):
    r"""A target that returns dataset + ``noise``, where the dataset is an integer.

    The noise is drawn with the system's randomness unless ``seeded`` is true.
    """

    noise: Noise
    about: ClassVar[str] = ""

    def laws(self, pair: tuple[Any, Any]) -> tuple[Law, Law]:
        a, b = self.check(pair)
        return Shifted(self.noise, a), Shifted(self.noise, b)

    def check(self, pair: tuple[Any, Any]) -> tuple[int, int]:
        for name, dataset in zip("AB", pair, strict=True):
            if isinstance(dataset, bool) or not isinstance(dataset, int):
                reason = f"must be an integer: {self.spelling} adds its noise to it"
                raise InvalidParameter(f"dataset {name}", dataset, reason)
        return pair[0], pair[1]

    def draw(self, block: Block) -> Iterator[Outputs]:
        pair = self.check(block.pair)
        sides = []
        for world in (0, 1):
            rng: Rng = seeded_rng(block.seed(world)) if self.seeded else SYSTEM
            sides.append(self._side(pair[world], block.sizes[world], rng))
        if isinstance(sides[0], list) != isinstance(sides[1], list):
            # Use Python's integers on both sides if one is too large for an array.
            sides = [list(map(int, side)) for side in sides]
        yield join(sides[0], sides[1], block.worlds, block.mixer)

    def _side(self, value: int, runs: int, rng: Rng) -> Outputs:
        try:
            drawn = self.noise.sample(runs, rng=rng)
        except Unrepresentable:
            return [value + self.noise.sample(rng=rng) for _ in range(runs)]
        if abs(value) < _ROOM:
            return drawn + value
        return [value + z for z in drawn.tolist()]


KnownLaw: TypeAlias = Known | NoiseAdded
r"""A target whose laws are known."""


def seeded_rng(seed: np.random.SeedSequence) -> SeededRng:
    r"""A dpcore generator that is seeded from ``seed``."""
    return SeededRng(int.from_bytes(seed.generate_state(4).tobytes(), sys.byteorder))
