r"""Random sources that deal scripted values, and count the requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction

import numpy as np

from dpcore.sampling.rng import Rng, SeededRng, Words


class NeverAsked(Rng):
    r"""Fails the test at any draw: the refusal must come first."""

    __slots__ = ()

    def bits(self, count: int) -> int:
        raise AssertionError(f"{count} bits were drawn")

    def words(self, count: int) -> Words:
        raise AssertionError(f"{count} words were drawn")


class Acting(Rng):
    r"""Calls ``act`` at each request, then returns seeded bits; ``asked`` counts the requests."""

    __slots__ = ("_source", "act", "asked")

    def __init__(self, act: Callable[[], object]) -> None:
        self.act, self.asked, self._source = act, 0, SeededRng(1)

    def bits(self, count: int) -> int:
        self.asked += 1
        self.act()
        return self._source.bits(count)

    def words(self, count: int) -> Words:
        self.asked += 1
        self.act()
        return self._source.words(count)


class Dealt(Rng):
    r"""Deals the given words in order, all of them at most once, and no bits."""

    __slots__ = ("left",)

    def __init__(self, *words: int) -> None:
        self.left = list(words)

    def bits(self, count: int) -> int:
        raise AssertionError("arrays draw words")

    def words(self, count: int) -> Words:
        given, self.left = self.left[:count], self.left[count:]
        assert len(given) == count, "more words were drawn than written"
        return np.array(given, dtype=np.uint64)


class Digits(Rng):
    r"""Binary digits of real numbers in [0, 1): first words, then bits of the current number.

    ``words`` deals the leading 64 bits of each number in order; ``bits`` continues with those that
    follow in the number ``looked_at`` (the last one dealt). ``asked`` counts the further bits.
    """

    __slots__ = ("_left", "_place", "asked", "looked_at")

    def __init__(self, numbers: Iterable[Fraction]) -> None:
        self._left = list(numbers)
        self.looked_at = Fraction(0)
        self._place = 0
        self.asked = 0

    @classmethod
    def after(cls, number: Fraction, place: int = 64) -> Digits:
        r"""Deal bits of ``number`` only, those after the first ones."""
        rng = cls([])
        rng.looked_at, rng._place = number, place
        return rng

    def words(self, count: int) -> Words:
        dealt, self._left = self._left[:count], self._left[count:]
        assert len(dealt) == count, "more words were drawn than written"
        if dealt:
            self.start(dealt[-1])
        return np.array([leading(number) for number in dealt], dtype=np.uint64)

    def start(self, number: Fraction) -> None:
        r"""Continue with this number after its first 64 bits."""
        self.looked_at, self._place = number, 64

    def bits(self, count: int) -> int:
        self.asked += count
        self._place += count
        return int(self.looked_at * (1 << self._place)) & ((1 << count) - 1)


def leading(number: Fraction) -> int:
    r"""Return the first 64 bits of a number in [0, 1)."""
    assert 0 <= number < 1
    return int(number * (1 << 64))
