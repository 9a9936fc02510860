r"""Presets: simulated worlds, numbered by instance, with a paper's settings for experiments."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from bandits.policies.registry import WorldKind
from bandits.policies.successive_elimination import ScheduleName
from bandits.worlds.arm_environments import Environment, Reordered
from dpcore.cli.files import require_plain
from dpcore.errors import InvalidParameter
from dpcore.numbers.parameter import integer

MOST_INSTANCES: Final = 1 << 20
_MOST_ARMS: Final = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class FromFile:
    r"""A source of worlds: instance i is ``read(path, K)`` with its arms in a random order.

    K is the number of arms, or None if the file determines it; ``wanted`` describes the file. The
    order of the arms is drawn with numpy's legacy generator and seed i, whose stream never changes.
    If ``several`` is true, ``read`` also accepts a tuple of two or more files.
    """

    read: Callable[[Any, int | None], Environment]
    wanted: str
    several: bool = False


Source: TypeAlias = FromFile | Callable[..., Environment]
"""A file, or a deterministic function that returns instance i with K arms; for super arms the third
argument is their size."""

Data: TypeAlias = Path | Sequence[Path] | None
"""The file of a world, or several files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worlds:
    r"""The worlds of all instances; ``data`` is the SHA-256 hash of the file, None if simulated.

    For several files it is the SHA-256 of their hexadecimal SHA-256 digests, one per line.
    """

    environments: tuple[Environment, ...]
    data: str | None = None

    @property
    def arms(self) -> int:
        r"""The largest number of arms in an instance."""
        return max(world.arms for world in self.environments)

    def digest(self) -> str:
        r"""The SHA-256 hash of the definitions and the means of the environments.

        >>> from bandits.worlds import preset_of
        >>> easy, hard = (preset_of(name).worlds(2) for name in ("cz/easy", "cz/hard"))
        >>> easy.digest() == preset_of("cz/easy").worlds(2).digest(), easy.digest() == hard.digest()
        (True, False)
        """
        found = hashlib.sha256()
        for world in self.environments:
            found.update(json.dumps(_defined(world)).encode() + b"\n")
        return found.hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    r"""A preset: simulated worlds and the default settings of experiments in them.

    ``schedule`` is for batched elimination with the paper's radius; the exact radius has its own
    schedule. ``arms`` is None if the data determine the number of arms. ``users`` is the population
    of a linear world, or None if it is unlimited. ``super_arm`` is the number K of base arms in a
    super arm of a combinatorial world.
    """

    name: str
    sentence: str
    source: Source
    algorithms: tuple[str, ...]
    epsilons: tuple[str, ...]
    horizon: int
    arms: int | None
    schedule: ScheduleName = "paper"
    instances: int = 20
    delta: str = "1e-6"
    kind: WorldKind = "arms"
    users: int | None = None
    super_arm: int | None = None

    def arms_of(self, arms: int | None) -> int | None:
        r"""The number K of arms: the requested one, or otherwise the default of the preset.

        >>> from bandits.worlds import preset_of
        >>> preset_of("cz/easy").arms_of(None), preset_of("cz/easy").arms_of(4)
        (10, 4)

        Raises :class:`InvalidParameter` if the requested number is outside [1, 2^16], or if the
        data determine it.
        """
        if arms is None:
            return self.arms
        if self.arms is None:
            reason = f"{self.name} takes the number of arms from its data: omit this option"
            raise InvalidParameter("arms", arms, reason)
        return integer("arms", arms, at_least=1, at_most=_MOST_ARMS)

    def super_arm_of(self, size: int | None) -> int | None:
        r"""The size of super arms: the requested one, or otherwise the default of the preset.

        It is None without super arms. Raises :class:`InvalidParameter` if the requested size is
        below 1 or the preset has no super arms.
        """
        if size is None:
            return self.super_arm
        if self.super_arm is None:
            raise InvalidParameter(
                "super_arm", size, f"{self.name} has no super arms: omit this option"
            )
        return integer("super_arm", size, at_least=1)

    def worlds(
        self,
        instances: int,
        *,
        arms: int | None = None,
        data: Data = None,
        super_arm: int | None = None,
    ) -> Worlds:
        r"""Create the first ``instances`` worlds, from files if the preset needs them.

        >>> from bandits.worlds import preset_of
        >>> preset_of("cz/easy").worlds(2).environments[1].arms
        10

        Raises :class:`InvalidParameter` if ``instances`` is outside [1, 2^20] or ``arms`` is
        invalid (see :meth:`arms_of`). The same error is raised if a file is missing, invalid,
        repeated or given for a simulated preset, or if the preset reads only one of several files.
        """
        paths = () if data is None else (data,) if isinstance(data, Path) else tuple(data)
        named = ", ".join(map(str, paths))
        count = integer("instances", instances, at_least=1, at_most=MOST_INSTANCES)
        wanted_arms, size = self.arms_of(arms), self.super_arm_of(super_arm)
        if paths and not isinstance(self.source, FromFile):
            raise InvalidParameter("data", named, f"must be omitted: {self.name} is simulated")
        if not isinstance(self.source, FromFile):
            given = [each for each in (wanted_arms, size) if each is not None]
            built = self.source
            return Worlds(environments=tuple(built(i, *given) for i in range(count)))
        if not paths:
            raise InvalidParameter("preset", self.name, f"needs {self.source.wanted}")
        if len(paths) > 1 and not self.source.several:
            raise InvalidParameter("data", named, f"must be one file for {self.name}")
        if len({path.resolve() for path in paths}) < len(paths):
            raise InvalidParameter("data", named, "must not contain a file twice")
        for path in paths:
            require_plain("data", path)
        digests = [_digest(path) for path in paths]
        whole = hashlib.sha256("\n".join(digests).encode()).hexdigest()
        world = self.source.read(paths if len(paths) > 1 else paths[0], wanted_arms)
        orders = [np.random.RandomState(i).permutation(world.arms) for i in range(count)]
        environments = tuple(Reordered(world=world, order=tuple(o.tolist())) for o in orders)
        return Worlds(environments=environments, data=whole if len(paths) > 1 else digests[0])


def _defined(value: Any) -> Any:
    # An environment as JSON: its kind, its fields, and its means, which determine the regret.
    if isinstance(value, (tuple, list)):
        return [_defined(each) for each in value]
    if is_dataclass(value) or isinstance(value, Environment):
        held = fields(value) if is_dataclass(value) else ()
        found = {field.name: _defined(getattr(value, field.name)) for field in held}
        means = list(value.means) if isinstance(value, Environment) else []
        return [type(value).__name__, found, means]
    return value if type(value) in (bool, int, float, str) else str(value)


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InvalidParameter("data", str(path), error.strerror or str(error)) from None
