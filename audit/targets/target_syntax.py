r"""Parse targets from text, and find the source files of targets and features.

package.module:callable    path/file.py:callable    f(dataset), f(dataset, rng), or
                           f(dataset, n, rng) -> n outputs along the first axis (faster)
discrete-laplace:scale=1   an exact noise of dpcore: dataset + noise
half-scale                 a name of the catalogue (``dpcore audit catalogue``)
protocol:pure,users=64,epsilon=1
                           rounds of a distributed protocol, see ``audit.targets.protocol``
continual:tree,horizon=64,epsilon=1
                           running sums of a stream, see ``audit.targets.continual``
release:count,rows_per_user=2,epsilon=1
                           a release from a table, see ``audit.targets.release``
randomised-response:values=4,epsilon=1 or local:randomised-response,values=4,epsilon=1
                           reports of one user, see ``audit.targets.local_and_selection``
select:above-threshold,epsilon=1
                           a private choice, see ``audit.targets.local_and_selection``
bandit:dist-dp-se,epsilon=1
                           the server's view of a bandit run
bandit:mine.py:Policy      the server's view of a bandit run with a user's policy
bandit:dist-dp-se,epsilon=1,path=devices
                           the server's view of a bandit run, with one message per user
exec:./program args        any executable, see ``audit.targets.program``

``bandit:...`` is resolved by the entry point ``bandit`` in the group ``dpcore.targets``. This entry
point is a callable of (spelling, rest, seeded) that returns plain data (:class:`Provided`), so that
audit does not import the package bandits.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import partial
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias, get_args, runtime_checkable

from audit.features.parse_feature import FEATURES, Feature
from audit.outputs.time_limit import load
from audit.targets.target import (
    FORMS,
    Catalogued,
    NoiseAdded,
    Scalar,
    Target,
    Vectorised,
    working_folder,
)
from dpcore.errors import InvalidParameter
from dpcore.noise import Noise
from dpcore.sampling.rng import Rng, SeededRng
from dpcore.spec_syntax import did_you_mean

GROUP: Final = "dpcore.targets"
r"""The group of entry points that provide further kinds of targets."""


@runtime_checkable
class Provided(Protocol):
    r"""The interface of the objects that entry points and ``bandits.audit_view`` return."""

    @property
    def run(self) -> Callable[..., Any]:
        r"""The mechanism f(dataset, n, rng), which returns n outputs along the first axis."""

    @property
    def pair(self) -> tuple[Any, Any]:
        r"""The two neighbouring datasets."""

    @property
    def epsilon(self) -> Fraction:
        r"""The claimed epsilon."""

    @property
    def delta(self) -> Fraction:
        r"""The claimed delta."""

    @property
    def features(self) -> tuple[str, ...]:
        r"""The features to test, in the syntax of ``--feature``."""


def provided(spelling: str, name: str, rest: str, *, seeded: bool) -> Catalogued | None:
    r"""The target that the entry point ``name`` provides; None if there is no such entry point."""
    for entry in entry_points(group=GROUP, name=name):
        return provided_as(spelling, entry.load()(spelling, rest, seeded), seeded=seeded)
    return None


def provided_as(spelling: str, found: Provided, *, seeded: bool = True) -> Catalogued:
    r"""Build a target from an object that an entry point returned."""
    from audit.broken_mechanisms import Subject

    parts = {name: getattr(found, name) for name in ("pair", "epsilon", "delta", "features")}
    subject = Subject(name=spelling, run=found.run, **parts)
    return Catalogued(spelling=spelling, function=found.run, subject=subject, seeded=seeded)


Auditable: TypeAlias = Target | Noise | Provided | Callable[..., Any] | str
r"""The types that are accepted as a target: a :class:`Target`, a noise, the result of
``bandits.audit_view``, a callable (see :data:`audit.targets.target.FORMS`), or a target as text.
"""


def read_target(
    spelling: str, *, seeded: bool = True, found: Callable[[str], Target] | None = None
) -> Target:
    r"""Parse a target: a callable, program, noise, protocol or catalogue entry.

    With ``seeded=False``, a built-in noise or protocol draws from the operating system, as in
    production. ``found`` loads a callable from a file or module; by default it is imported in this
    process.

    >>> read_target("discrete-laplace:scale=10").spelling
    'discrete-laplace:scale=10'

    Raises :class:`InvalidParameter` if the target is unknown, and
    :class:`audit.errors.TargetFailed` if the import of a file or module fails.
    """
    folder = working_folder()  # before an import can change it
    target = _read(
        spelling, seeded=seeded, found=found or (lambda text: as_target(text, load(text)))
    )
    return replace(target, named=True, folder=folder)


def _read(spelling: str, *, seeded: bool, found: Callable[[str], Target]) -> Target:
    name, colon, rest = spelling.partition(":")
    if not colon:
        return _catalogued(spelling)
    if name == "exec":
        from audit.targets.program import read_program

        return read_program(spelling, rest)
    if name in _KINDS:
        return _of_kind(name, spelling, rest, seeded=seeded)
    if name.endswith(".py"):
        return found(spelling)
    from dpcore.local import FAMILIES
    from dpcore.parse_noise import LAWS, law_meant, read_noise  # imports every law: slow

    if name in FAMILIES:
        return _of_kind("local", spelling, spelling, seeded=seeded)
    # The name of a callable contains no "=", so a text with "=" is a misspelled law: it is refused
    # with a hint at the intended law.
    if name in LAWS or ("=" in rest and law_meant(name)):
        return NoiseAdded(spelling=spelling, noise=read_noise(spelling), seeded=seeded)
    return provided(spelling, name, rest, seeded=seeded) or found(spelling)


def _of_kind(kind: str, spelling: str, words: str, *, seeded: bool) -> Target:
    read = getattr(import_module(f"audit.targets.{_KINDS[kind]}"), f"read_{kind}")
    made: Target = read(spelling, words, seeded=seeded)
    return made


# The kinds of targets that are mechanisms of dpcore, with the modules that parse them.
_KINDS: Final = {
    "protocol": "protocol",
    "continual": "continual",
    "release": "release",
    "local": "local_and_selection",
    "select": "local_and_selection",
}
# The subcommands of dpcore audit, for hints: an unknown target may be a misspelt subcommand.
_AUDITS: Final = ("exact", "fit", "replay", "canaries", "dpsgd", "catalogue", "bench", "corpus")


def _catalogued(spelling: str) -> Target:
    from audit.broken_mechanisms import find_subject

    if subject := find_subject(spelling):
        return Catalogued(spelling=spelling, function=subject.run, subject=subject)
    from audit.broken_mechanisms import ENTRIES
    from dpcore.parse_noise import LAWS

    known = [subject.name for entry in ENTRIES for subject in (entry.twin, entry)]
    hint = did_you_mean(spelling, [*known, *LAWS, *_AUDITS])
    raise InvalidParameter(
        "target",
        spelling,
        f"{hint}a target is module:callable, file.py:callable, exec:./program, noise such as "
        "discrete-laplace:scale=1, protocol:..., continual:..., release:..., local:..., "
        "select:..., bandit:..., or a name that dpcore audit catalogue lists",
    )


def target_of(given: Auditable, *, seeded: bool = True) -> Target:
    r"""Convert a target, given in Python in any of the types of :data:`Auditable`."""
    match given:
        case Target():
            return given
        case str():
            return read_target(given, seeded=seeded)
        case Noise():
            from dpcore.parse_noise import write_noise

            return NoiseAdded(spelling=write_noise(given), noise=given, seeded=seeded)
        case Provided():
            return provided_as(getattr(given, "name", "provided"), given, seeded=True)
    return as_target(getattr(given, "__qualname__", None) or repr(given), given)


def as_target(spelling: str, found: Any) -> Target:
    r"""Make a target from f(dataset), f(dataset, rng) or f(dataset, n, rng)."""
    if not callable(found):
        reason = f"is of type {type(found).__name__}, not a callable"
        raise InvalidParameter("target", spelling, reason)
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):  # native code may have no signature
        return Scalar(spelling=spelling, function=found, seeded=False)
    names = signature.parameters
    ours = takes_ours(found, signature)
    try:
        if {"n", "rng"} <= names.keys():
            signature.bind(None, n=1, rng=None)
            return Vectorised(spelling=spelling, function=found, ours=ours)
        seeded = "rng" in names
        signature.bind(None, **({"rng": None} if seeded else {}))
    except TypeError as error:
        reason = f"must be callable as {FORMS}: {error}"
        raise InvalidParameter("target", spelling, reason) from None
    return Scalar(spelling=spelling, function=found, seeded=seeded, ours=ours)


def takes_ours(function: Callable[..., Any], signature: inspect.Signature) -> bool:
    r"""Whether a parameter is annotated ``rng: Rng``, ``rng: SeededRng`` or ``rng: Rng | None``."""
    if "rng" not in signature.parameters:
        return False
    annotation = signature.parameters["rng"].annotation
    if isinstance(annotation, str):  # from __future__ import annotations
        while isinstance(function, partial):
            function = function.func
        names = getattr(inspect.unwrap(function), "__globals__", None)
        with suppress(Exception):  # the name may be imported only for a type checker
            names = names or vars(sys.modules[function.__module__])  # an object with __call__
            annotation = eval(annotation, names)  # noqa: S307  # the user's own source
    return any(each is Rng or each is SeededRng for each in (annotation, *get_args(annotation)))


def source_of(function: Callable[..., Any] | None) -> str | None:
    r"""The source file of a function; None for native code."""
    try:
        return None if function is None else inspect.getsourcefile(inspect.unwrap(function))
    except TypeError:
        return None


def content_of(target: Target) -> str | None:
    r"""A digest of the source file of a target, or None if there is no such file.

    For a program, the digest covers the executable and the arguments that name files. Files that
    the source imports, and data files, are not included.
    """
    from audit.targets.program import Program

    paths: list[str] = []
    if isinstance(target, Program):
        paths = list(target.command)
    else:
        name, _, _ = target.spelling.rpartition(":")
        own = name if target.named and name.endswith(".py") else None
        source = source_of(getattr(target, "function", None)) or getattr(target, "source", None)
        paths = [path for path in (own or source,) if path is not None]
    found = [Path(target.folder, path) for path in paths]
    return digest_of([path for path in found if os.access(path, os.R_OK) and path.is_file()])


def digest_of(files: Sequence[Path | str]) -> str | None:
    r"""A digest of the contents of ``files``; None if ``files`` is empty."""
    digest = hashlib.sha256()
    for path in files:
        with Path(path).open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest() if files else None


def files_of(step: str, feature: Feature) -> list[str]:
    r"""The source files of ``step``, one of the steps of a feature; empty for a built-in step.

    If the step is a function in a module, the result is the file of the module and the file that
    defines the function, because the module may have imported the function.
    """
    if step.partition(":")[0] in FEATURES:
        return []
    place, _, attribute = step.rpartition(":")
    if place.endswith(".py"):
        return [place]
    for applied in getattr(feature.apply, "steps", (feature.apply,)):
        # A map that runs in a sandbox states its source files.
        if getattr(applied, "spelling", None) == step and hasattr(applied, "sources"):
            return list(applied.sources)
    files: list[str | None] = []
    function: Any = feature.apply
    if (module := sys.modules.get(place)) is not None:
        files.append(getattr(module, "__file__", None))
        function = module
        for name in attribute.split("."):
            function = getattr(function, name, None)
    files.append(source_of(function))
    return [file for file in dict.fromkeys(files) if file is not None]
