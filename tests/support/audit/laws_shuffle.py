r"""Output laws of the catalogue: bits of bounded messages, shuffled."""

from __future__ import annotations

from typing import Any, Final

from mpmath import mpf

from tests.support.audit.catalogue_laws import Law, Masses, polya_difference

__all__ = ["LAWS"]


def both(message: Any) -> Law:
    """The ones of two users, of whom the second holds 0."""

    def law(value: int) -> Masses:
        found: Masses = {}
        for i, p in message(value).items():
            for j, q in message(0).items():
                found[i + j] = found.get(i + j, mpf(0)) + p * q
        return found

    return law


def fitting(value: int) -> Masses:
    """A share of one half, given that it is -1, 0 or 1."""
    kept = {z: polya_difference(z, mpf(1) / 2, 1) for z in (-1, 0, 1)}
    return {1 + value + z: mass / sum(kept.values()) for z, mass in kept.items()}


def covered(value: int) -> Masses:
    """Two thirds of it as it is, and the rest on 0, 1, 2 and 3 alike."""
    kept = {z: polya_difference(z, mpf(1) / 2, 1) * 2 / 3 for z in (-1, 0, 1)}
    cover = (1 - sum(kept.values())) / 4
    return {y: cover + kept.get(y - 1 - value, mpf(0)) for y in range(4)}


LAWS: Final[dict[str, Law]] = {"uncovered-ends": both(fitting), "covered-ends": both(covered)}
r"""One law a name, broken or twin."""
