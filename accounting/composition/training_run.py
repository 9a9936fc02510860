r"""DP-SGD: a training run, its releases, and its epsilon at a delta."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from typing import TYPE_CHECKING

from dpcore.errors import ABSENT, InvalidParameter
from dpcore.mechanism import Relation
from dpcore.numbers.parameter import Choice, Exact, RationalLike, Whole, check_fields

if TYPE_CHECKING:
    from accounting.composition.compose import Composition
    from accounting.descriptions.description import Description
    from accounting.guarantees.bound import Bound


class Sampling(StrEnum):
    r"""The way in which batches are drawn."""

    POISSON = "poisson"
    FIXED = "fixed"
    SHUFFLED = "shuffled"
    ALLOCATED = "allocated"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRun:
    r"""A DP-SGD run, described by the parameters of a training script.

    Neighbours differ by replacing, or by adding or removing, ``group`` examples.

    Parameters
    ----------
    noise_multiplier : rational > 0
        The standard deviation of the noise, divided by the clipping norm.
    batch_size, examples : int
        The (expected) size of a batch and of the training data.
    epochs, rounds : rational > 0, int
        The number of passes over the data, or the number of batches; give exactly one of the two.
        An incomplete last batch is dropped: at the end of each pass for shuffled and allocated
        batches, otherwise at the end of the run.
    sampling : Sampling or str
        ``"poisson"`` (each example independently), ``"fixed"`` (a random subset of fixed size),
        ``"shuffled"`` (each example once per epoch) or ``"allocated"`` (each example in one random
        batch of an epoch).
    relation : Relation, optional
        By default add-remove for Poisson samples and allocation, otherwise replace.
    group : int
        The number of examples of one person.

    Raises
    ------
    InvalidParameter
        If a number is outside its range, or if epochs and rounds are both missing or disagree.

    Examples
    --------
    >>> TrainingRun(noise_multiplier="1.1", batch_size=256, examples=60000, epochs=60).rounds
    14062
    """

    noise_multiplier: Exact = Exact(zero="0 adds no noise")
    batch_size: Whole = Whole()
    examples: Whole = Whole()
    epochs: Exact = Exact(0, within="[0, oo)")
    rounds: Whole = Whole(0, at_least=0)
    sampling: Choice[Sampling] = Choice(Sampling, Sampling.POISSON)
    relation: Relation | None = None
    group: Whole = Whole(1)

    def __post_init__(self) -> None:
        check_fields(self)
        if self.relation is not None:
            object.__setattr__(self, "relation", Relation(self.relation))
        if self.batch_size > self.examples:
            must = f"must be at most examples = {self.examples}"
            raise InvalidParameter("batch_size", self.batch_size, must)
        size, data = self._share
        if not self.epochs:
            if not self.rounds:
                raise InvalidParameter(
                    "epochs", ABSENT, "give exactly one of epochs and rounds, as a number > 0"
                )
            object.__setattr__(self, "epochs", Fraction(self.rounds * size, data))
        whole = math.floor(self.epochs * data / size)
        if whole < 1:
            least = f"must be at least {size}/{data}: fewer epochs contain no batch"
            raise InvalidParameter("epochs", str(self.epochs), least)
        if self.rounds not in (0, whole):
            raise InvalidParameter(
                "epochs", str(self.epochs), "give exactly one of epochs and rounds"
            )
        object.__setattr__(self, "rounds", whole)

    @property
    def rate(self) -> Fraction:
        r"""The sampling rate: the batch size divided by the number of examples."""
        return Fraction(self.batch_size, self.examples)

    @property
    def batches(self) -> int:
        r"""The number of batches per epoch."""
        return self.examples // self.batch_size

    @property
    def _share(self) -> tuple[int, int]:
        # One round's share of an epoch; a pass over the data ends with its last complete batch.
        passes = self.sampling in (Sampling.SHUFFLED, Sampling.ALLOCATED)
        return (1, self.batches) if passes else (self.batch_size, self.examples)

    @property
    def _passes(self) -> int:
        # The number of passes from which at least one batch is used.
        return -(-self.rounds // self.batches)

    def first(self, rounds: int) -> TrainingRun:
        r"""The same run, stopped after ``rounds`` rounds."""
        return replace(self, rounds=rounds, epochs=0)

    def release(self) -> tuple[Description, int]:
        r"""The release that is repeated, and the number of its repetitions, as a pair.

        The release is one round, or one epoch if the batches of an epoch depend on each other.
        Replacing an example changes the sum of a batch by up to twice the clipping norm.

        Raises :class:`InvalidParameter` if no bound is proven for the relation or the group size.
        """
        from accounting.descriptions import sampling_schemes as the
        from accounting.descriptions.description import Description
        from accounting.descriptions.real_noise import Gaussian

        count, moves = self.rounds, 1
        scheme: the.Scheme = the.EVERYONE
        match self.sampling:
            case Sampling.POISSON:
                scheme = the.Poisson(rate=self.rate)
            case Sampling.ALLOCATED:
                scheme, count = the.Allocation(rounds=self.batches), self._passes
            case Sampling.FIXED:
                scheme, moves = the.FixedSize(sample=self.batch_size, population=self.examples), 2
            case Sampling.SHUFFLED:
                moves, count = 2, self._passes
        if self.sampling is Sampling.SHUFFLED and self.relation is Relation.ADD_REMOVE:
            must = "must be replace: shuffled batches keep their size"
            raise InvalidParameter("relation", self.relation.value, must)
        step = Description(
            noise=Gaussian(sigma=self.noise_multiplier),
            sensitivity=moves,
            scheme=scheme,
            relation=self.relation,
            group=self.group,
        )
        return step, count

    def composition(self) -> Composition:
        from accounting.composition.compose import compose

        return compose(self.release())

    def bounded(self, found: Bound) -> Bound:
        r"""Convert a bound on the composition of the releases to a bound on the run itself.

        The run may be more private than the composition if the order of the batches is a secret
        shuffle, or if the last pass of an allocation ends early. Then only the upper bound holds,
        and ``lower`` is None.
        """
        early = self.sampling is Sampling.ALLOCATED and self.rounds % self.batches
        return replace(found, lower=None) if early or self.sampling is Sampling.SHUFFLED else found

    def command(self, delta: str) -> str:
        r"""The ``dpcore budget epsilon`` command for the epsilon of the releases at ``delta``."""
        step, count = self.release()
        return f"dpcore budget epsilon --noise {step.text} --rounds {count} --delta {delta}"


def dpsgd(  # noqa: PLR0913  # the numbers of a training script
    *,
    noise_multiplier: RationalLike,
    batch_size: int,
    examples: int,
    delta: RationalLike,
    epochs: RationalLike = 0,
    rounds: int = 0,
    sampling: Sampling | str = Sampling.POISSON,
    relation: Relation | str | None = None,
    group: int = 1,
    relative: RationalLike = "1e-6",
) -> Bound:
    r"""Compute the epsilon of a DP-SGD training run at a delta.

    Parameters
    ----------
    delta : rational in (0, 1)
        The delta of the guarantee.
    relative : rational > 0
        The requested width of the result, relative to epsilon.
    noise_multiplier, batch_size, examples, epochs, rounds, sampling, relation, group
        As in :class:`TrainingRun`; use ``epochs`` or ``rounds``.

    Returns
    -------
    Bound
        A proven lower and a proven upper bound on epsilon, for noise that follows the normal law
        exactly. ``lower`` is None for shuffled batches, and if the last pass of allocated batches
        is incomplete.

    Raises
    ------
    InvalidParameter
        If a number is outside its range.
    NotDerived
        If no theorem gives a finite bound.

    Examples
    --------
    >>> dpsgd(noise_multiplier=1.1, batch_size=256, examples=60000, epochs=60, delta=1e-5)
    Bound([2.381..., 2.381...], ...)
    """
    run = TrainingRun(
        noise_multiplier=noise_multiplier,
        batch_size=batch_size,
        examples=examples,
        epochs=epochs,
        rounds=rounds,
        sampling=sampling,  # type: ignore[arg-type]  # read by the field
        relation=relation,  # type: ignore[arg-type]  # read by __post_init__
        group=group,
    )
    return run.bounded(run.composition().epsilon(delta, relative))
