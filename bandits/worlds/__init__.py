r"""Worlds and presets by name: the experiments of the papers, and real data."""

from __future__ import annotations

from typing import Final

from bandits.worlds.arms import BINARY, EASY, HARD, MSLR, OBD, OWN
from bandits.worlds.combinatorial import CSB
from bandits.worlds.linear import LZJ
from bandits.worlds.preset import FromFile, Preset, Worlds
from dpcore.spec_syntax import find_name

__all__ = ["PRESETS", "FromFile", "Preset", "Worlds", "preset_of"]

PRESETS: Final[tuple[Preset, ...]] = (EASY, HARD, MSLR, BINARY, OBD, *LZJ, *CSB, OWN)


def preset_of(name: str) -> Preset:
    r"""The preset of this name.

    >>> preset_of("cz/hard").horizon
    10000000
    >>> preset_of("cz/esay")
    Traceback (most recent call last):
    ...
    dpcore.errors.InvalidParameter: preset = cz/esay: did you mean cz/easy? it must be one of ...

    Raises :class:`InvalidParameter` for another name, with the list.
    """
    return find_name("preset", name, {preset.name: preset for preset in PRESETS})
