r"""Simulated worlds by name (presets), for the experiments of the papers and for real data."""

from __future__ import annotations

from typing import Final

from bandits.worlds.arm_presets import BINARY, EASY, HARD, MSLR, OBD, OWN
from bandits.worlds.combinatorial import CSB
from bandits.worlds.linear import LZJ
from bandits.worlds.preset import FromFile, Preset, Worlds
from dpcore.spec_syntax import find_name

__all__ = ["PRESETS", "FromFile", "Preset", "Worlds", "preset_of"]

PRESETS: Final[tuple[Preset, ...]] = (EASY, HARD, MSLR, BINARY, OBD, *LZJ, *CSB, OWN)


def preset_of(name: str) -> Preset:
    r"""Look up the preset ``name``.

    >>> preset_of("cz/hard").horizon
    10000000
    >>> preset_of("cz/esay")
    Traceback (most recent call last):
    ...
    dpcore.errors.InvalidParameter: preset = cz/esay: did you mean cz/easy? it must be one of ...

    Raises :class:`InvalidParameter` if the name is unknown; the message lists all names.
    """
    return find_name("preset", name, {preset.name: preset for preset in PRESETS})
