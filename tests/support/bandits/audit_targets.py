"""Helpers for tests of bandit audits: an audit of a target by name, and broken privatizers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest

from audit.claims import Claim
from audit.features.parse_feature import read_feature
from audit.report.audit_report import AuditReport
from audit.runs.draw_plan import Plan
from audit.sample_layer import sample
from audit.targets.target import Vectorised
from bandits.audit_targets.target import AuditTarget, target
from bandits.batch import ReleasedSum
from bandits.privatizers.continual_sums_per_arm import StreamPrivatizer
from bandits.privatizers.privatizer import Privatizer
from bandits.privatizers.vector_averages import AveragePrivatizer, Averages
from dpcore.laws.poisson_and_binomial import Binomial
from dpcore.noise import Noise
from dpcore.numbers.arrays import Integers
from dpcore.protocols.noisy_sums import ModularSum
from dpcore.protocols.shuffled_bits import BinaryShuffle, PureShuffle
from dpcore.sampling.rng import SYSTEM, Rng

SUMS = ("cdp-se", "ldp-se", "dist-dp-se", "dist-rdp-se", "dist-cdp-se", "shuffled-se", "dp-se")
BITS = ("sdp-ae", "vb-sdp-ae", "bit-se")
EVERY = (*SUMS, *BITS)
"""All on independent arms that can be audited."""

LINEAR = ("cdp-dpe", "ldp-dpe", "sdp-dpe", "cdp-pe", "ldp-pe", "sdp-pe")
"""All on linear actions that can be audited."""

COMBINATORIAL = (
    "cucb-ldp1,epsilon=1",
    "cucb-ldp2,epsilon=1",
    *(
        f"{name},epsilon=1,release={release}"
        for name in ("cucb-dp", "cucb-dp2")
        for release in ("factorisation", "tree", "doubling")
    ),
)
"""All on super arms that can be audited, spelled whole."""

PURE = tuple(f"{name},epsilon=1,calibration=pure" for name in LINEAR if name[:3] != "sdp")
"""With discrete Laplace noise."""

FLOORS = ("se", "dpe", "pe", "dpe-fixedu", "cucb")
"""What protects nobody."""

Release = Callable[[Privatizer, int, int, Rng], ReleasedSum]


def viewed(rest: str) -> AuditTarget:
    """The target ``bandit:rest``, with seeded noise."""
    return target(f"bandit:{rest}", rest, True)


def audited(rest: str, *, runs: int, alpha: float) -> AuditReport:
    """The audit of ``dpcore audit bandit:rest``, at the derived claim."""
    found = viewed(rest)
    plan = Plan(
        claim=Claim(epsilon=found.epsilon, delta=found.delta),
        pair=found.pair,
        features=tuple(read_feature(spelling) for spelling in found.features),
        runs=runs,
        alpha=alpha,
        seed=6,
    )
    return sample(Vectorised(spelling="bandit", function=found.run), plan)


def with_noise(privatizer: Privatizer, encoded_sum: int, pulls: int, noise: int) -> ReleasedSum:
    """The release of the analyzer for a sum with this noise."""
    protocol = privatizer.protocol(pulls)
    if isinstance(protocol, BinaryShuffle):
        return ReleasedSum(protocol.estimates(np.array([encoded_sum + noise]), pulls)[0])
    if isinstance(protocol, PureShuffle):
        ones = pulls * protocol.reach + encoded_sum + noise
        return ReleasedSum(protocol.estimate(ones, pulls))
    assert isinstance(protocol, ModularSum)
    read = protocol.unwrap((encoded_sum + noise) % protocol.modulus)
    return ReleasedSum(protocol.encoding.decode(read))


def law_of(privatizer: Privatizer, pulls: int) -> Noise:
    """The required noise of a release; for shuffled bits that of the shares, without covers."""
    protocol = privatizer.protocol(pulls)
    if isinstance(protocol, PureShuffle):
        return replace(protocol.share, shape=protocol.share.shape * pulls)
    noise = privatizer.noise(pulls)
    assert noise is not None
    return noise


def bare(privatizer: Privatizer, encoded_sum: int, pulls: int, _: Rng) -> ReleasedSum:
    """Releases without noise."""
    return with_noise(privatizer, encoded_sum, pulls, 0)


def halved(privatizer: Privatizer, encoded_sum: int, pulls: int, rng: Rng) -> ReleasedSum:
    """Releases with half of the noise."""
    law = law_of(privatizer, pulls)
    centre = int(law.mean) if isinstance(law, Binomial) else 0
    noise = centre + (law.sample(rng=rng) - centre) // 2
    return with_noise(privatizer, encoded_sum, pulls, noise)


def shared() -> Release:
    """Releases with one draw for the two arms of a batch."""
    drawn: list[int] = []

    def release(privatizer: Privatizer, encoded_sum: int, pulls: int, rng: Rng) -> ReleasedSum:
        if drawn:
            return with_noise(privatizer, encoded_sum, pulls, drawn.pop())
        drawn.append(law_of(privatizer, pulls).sample(rng=rng))
        return with_noise(privatizer, encoded_sum, pulls, drawn[0])

    return release


_DRAWN, _DRAW = AveragePrivatizer._drawn, StreamPrivatizer.draw


@contextmanager
def erring(how: Literal["bare", "halved", "shared"]) -> Iterator[None]:
    """Every privatizer adds no noise, half, or one draw for all arms, with the same guarantee."""

    def instead(drawn: Integers, centre: int = 0) -> Integers:
        if how == "shared":
            return np.repeat(drawn[..., :1], drawn.shape[-1], axis=-1)
        return centre + (drawn - centre) // 2 * (how == "halved")

    def averages(held: Any, noise: Noise, size: Averages, rng: Rng) -> list[int]:
        centre = int(noise.mean) if isinstance(noise, Binomial) else 0
        return [*map(int, instead(np.array(_DRAWN(held, noise, size, rng)), centre))]

    def streams(held: Any, shape: tuple[int, ...], rng: Rng) -> Integers:
        return instead(_DRAW(held, shape, rng))

    release: Release = {"bare": bare, "halved": halved, "shared": shared()}[how]

    def sums(held: Privatizer, encoded: int, pulls: int, rng: Rng = SYSTEM) -> ReleasedSum:
        return release(held, encoded, pulls, rng)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Privatizer, "release", sums)
        patch.setattr(AveragePrivatizer, "_drawn", averages)
        patch.setattr(StreamPrivatizer, "draw", streams)
        yield
