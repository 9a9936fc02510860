r"""Features: functions of an output, for outputs that are too complex to be tested directly.

Let f be a function of a single output that is fixed before the runs. If a mechanism M is (epsilon,
delta)-DP, so is f(M), by post-processing. So a claim that is refuted for f(M) is refuted for M, and
a lower bound on epsilon for f(M) holds for M. The converse is false: a feature may hide all
information in M.

A feature is written as its name, in some cases with a number (``round:1``); ``a+b`` applies a, then
b. A user's function is written ``module:callable`` or ``file.py:callable``, and is called with one
output. An output to which a built-in feature does not apply becomes a label ("no sign: str"), never
an error.

The default features are chosen from the outputs of a training block of runs, which is not tested:

- numbers and labels that are repeated are tested directly;
- numbers that are rarely repeated are tested by thresholds, and also modulo a step if they lie on a
  grid. If they are floats, their precision is tested, because it reveals floating-point noise;
- any other output is a row of a table (:mod:`audit.outputs.rows`). The best column and a learned
  score are tested, and the structure if it varies. If there is a single column of numbers, it is
  also tested like numbers. If there are at most 64 columns of floats, their lowest bits are tested;
- the outputs themselves get a share of the level, which is large if they are repeated.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import quote

import numpy as np

from audit.errors import TargetFailed
from audit.features import built_in_features as maps
from audit.features.built_in_features import by_value, each
from audit.features.learner_columns import MOST_WIDE, step_of
from audit.outputs.copies import captured
from audit.outputs.identity import identity, number_in
from audit.outputs.output_parser import Outputs, require_readable, same
from audit.outputs.reading import as_float
from audit.outputs.rows import Floats, Schema, Table
from audit.outputs.time_limit import current, load
from audit.verdict_words_and_exit_codes import cause_of
from dpcore.errors import InvalidParameter
from dpcore.spec_syntax import did_you_mean

_BITS: Final = frozenset({"lowest-bit", "last-bits", "precision", "modulo", "grid"})
_PLAIN: Final = frozenset({int, float, bool, str, bytes, type(None)})

# The shares of the level of the default features.
_REPEATED: Final = {"identity": 60, "coordinates": 10, "learned": 30}
_VECTORS: Final = {"identity": 5, "coordinates": 25, "learned": 70}
_FLOAT_VECTORS: Final = {"identity": 5, "coordinates": 25, "learned": 50, "grid": 20}
_STRUCTURE: Final = {"structure": 20}
_OTHERS: Final = {"coordinates": 8, "learned": 8}

_OFTEN: Final = Fraction(3, 4)  # outputs count as repeated if fewer than this fraction are distinct


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    r"""A named function of an output, whose values are tested instead of the outputs.

    ``apply`` computes the values of several outputs; ``apply(outputs)[i]`` depends only on
    ``outputs[i]``. If the feature has a ``learner``, these values are not tested. Instead, a score
    is learned from the values of earlier runs, and the score is tested. ``share`` is the feature's
    relative share of the significance level. If ``as_it_is`` is false, the values are normalised
    (:func:`by_value`). Features with the same name and share are equal.
    """

    name: str
    apply: Callable[[Outputs], Outputs] = field(compare=False, repr=False)
    as_it_is: bool = field(default=True, compare=False, repr=False)
    learner: str | None = None
    share: Fraction = Fraction(1)

    @property
    def of_time(self) -> bool:
        r"""Whether the feature reads the duration of a call: its first step is ``time``."""
        return self.name.partition("+")[0] == "time"

    @property
    def of_bits(self) -> bool:
        r"""Whether the feature reads the digits of a number, not its magnitude."""
        return self.name.rpartition("+")[2].partition(":")[0] in _BITS

    def viewed(self, outputs: Outputs) -> Outputs:
        r"""The tested values of the feature, normalised unless ``as_it_is`` is true."""
        found = self.apply(outputs)
        return found if self.as_it_is else by_value(found)


@dataclass(frozen=True, slots=True)
class Builtin:
    r"""The definition of a built-in feature.

    With ``limits``, the feature is written ``name:number``, where the number has the type of the
    limits and lies between them. With ``text``, it is written ``name:text``, with any text. In both
    cases, ``make`` returns the function for this number or text; without both, ``make`` is the
    function. With ``learned``, the feature is a score that is learned from the values of the
    features before it in a chain, and must be the last of the chain.
    """

    make: Callable[[Any], Any]
    limits: tuple[int, int] | tuple[float, float] | None = None
    text: bool = False
    learned: bool = False


def _itself(outputs: Outputs) -> Outputs:
    return outputs


FEATURES: Final[Mapping[str, Builtin]] = MappingProxyType(
    {
        "identity": Builtin(_itself),
        "sign": Builtin(maps.SIGN),
        "exponent": Builtin(maps.EXPONENT),
        "lowest-bit": Builtin(maps.LOWEST_BIT),
        "precision": Builtin(maps.PRECISION),
        "modulo": Builtin(maps.modulo, (1e-300, 1e300)),
        "last-bits": Builtin(maps.last_bits, (1, 52)),
        "round": Builtin(maps.rounded, (-300, 300)),
        "kind": Builtin(maps.KIND),
        "length": Builtin(maps.LENGTH),
        "coordinate": Builtin(maps.coordinate, (-(10**9), 10**9)),
        "structure": Builtin(maps.STRUCTURE),
        "column": Builtin(maps.column, text=True),
        "argmax": Builtin(maps.ARGMAX),
        "sum": Builtin(maps.SUM),
        "sorted": Builtin(maps.SORTED),
        "distinct": Builtin(maps.DISTINCT),
        # The duration of the call in nanoseconds, for targets that are called once per run.
        "time": Builtin(maps.coordinate(1)),
        "hash": Builtin(maps.hashed, (2, 1 << 20)),
        # The most informative coordinate, difference, sum or maximum, found during the runs.
        "coordinates": Builtin(_itself, learned=True),
        # A score of the whole output, learned during the runs.
        "learned": Builtin(_itself, learned=True),
        # The lowest bits of all floats in an output, with weights learned during the runs.
        "grid": Builtin(_itself, learned=True),
    }
)
r"""The built-in features by name; :mod:`audit.features.built_in_features` describes each map."""


def read_feature(
    text: str, *, own: Callable[[str], Callable[[Outputs], Outputs]] | None = None
) -> Feature:
    r"""Parse a feature: a built-in feature, a user's function, or a chain of these.

    ``own`` loads a user's function from its text; the default is :func:`own_map`.
    """
    wrong = partial(InvalidParameter, "feature", text)
    steps = [step.strip() for step in text.split("+")]
    applied = tuple(_read_step(step, own or own_map, wrong) for step in steps)
    last = steps[-1].partition(":")[0]
    if steps == ["time", "identity"]:
        raise wrong(
            "time replaces the output; to test the output as well, use --feature time --feature "
            "identity"
        )
    learned = [step for step in steps if step in FEATURES and FEATURES[step].learned]
    if learned and learned != steps[-1:]:
        raise wrong(f"{learned[0]} returns a score, so it must be the last step")
    return Feature(
        name="+".join(steps),
        apply=applied[0] if len(applied) == 1 else _Chain(steps=applied),
        as_it_is=last == "identity" or last not in FEATURES or bool(learned),
        learner=last if learned else None,
    )


def _read_step(
    step: str,
    own: Callable[[str], Callable[[Outputs], Outputs]],
    wrong: Callable[[str], InvalidParameter],
) -> Callable[[Outputs], Outputs]:
    name, colon, number = step.partition(":")
    found = FEATURES.get(name)
    if found is None:
        if colon:
            return own(step)
        hint = did_you_mean(step, FEATURES)
        known = f"must be one of {', '.join(FEATURES)}, or module:callable or file.py:callable"
        raise wrong(f"{hint}{'it ' if hint else ''}{known}")
    value: Any = number
    if found.text:
        if not colon:
            raise wrong(f"{name} must have the form {name}:PATH (in the output), e.g. {name}:mean")
    elif found.limits is None:
        if colon:
            raise wrong(f"{name} must be written without a number")
        return found.make
    else:
        low, high = found.limits
        whole = isinstance(low, int)
        try:
            value = int(number) if whole else float(number)
        except ValueError:
            kind, example = ("INTEGER", max(low, 4)) if whole else ("NUMBER", 0.01)
            raise wrong(f"{name} must have the form {name}:{kind}, e.g. {name}:{example}") from None
        if not low <= value <= high:
            raise wrong(f"the number in {step} must be in [{low}, {high}]")
    made: Callable[[Outputs], Outputs] = found.make(value)
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chain:
    steps: tuple[Callable[[Outputs], Outputs], ...]

    def __call__(self, outputs: Outputs) -> Outputs:
        for step in self.steps:
            outputs = step(outputs)
        return outputs


@dataclass(frozen=True, slots=True, kw_only=True)
class _OwnMap:
    spelling: str
    function: Callable[[Any], object]

    def __reduce__(self) -> tuple[Callable[[str], Callable[[Outputs], Outputs]], tuple[str]]:
        # Another process loads the map again from its text, because a function from a file belongs
        # to no importable module.
        return own_map, (self.spelling,)

    def __call__(self, outputs: Outputs) -> Outputs:
        # The map runs with the same time limit and handling of Ctrl-C as the target.
        watchdog, name = current(), f"feature {self.spelling}"
        return [watchdog.call(partial(self._of, output), name) for output in each(outputs)]

    def _of(self, output: object) -> object:
        found = self.function(_copied(output))
        require_readable(found)
        return captured(found)


def own_map(spelling: str) -> Callable[[Outputs], Outputs]:
    r"""Load a user's feature, written ``module:callable`` or ``file.py:callable``.

    The result applies the callable to each output. Raises :class:`InvalidParameter` if the callable
    cannot be found or called with one output, and :class:`TargetFailed` if its import fails.
    """
    wrong = partial(InvalidParameter, "feature", spelling)
    try:
        function = load(spelling)
    except InvalidParameter as error:
        raise wrong(error.reason) from None
    if not callable(function):
        raise wrong(f"is of type {type(function).__name__}, not a callable")
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        raise wrong("must be callable with one output") from None
    except ValueError:  # native code may have no signature
        pass
    return _OwnMap(spelling=spelling, function=function)


def _copied(output: object) -> object:
    # The map gets a copy, because it may modify its argument, which other features read.
    if type(output) in _PLAIN:
        return output
    try:
        return copy.deepcopy(output)
    except Exception:  # noqa: BLE001 - an object that cannot be copied is passed directly
        return output


_OUTPUT: Final = maps.coordinate(0)


def with_time(features: tuple[Feature, ...]) -> tuple[Feature, ...]:
    r"""Adapt features to runs whose duration is measured.

    If any feature reads the duration of a call, each run returns (output, nanoseconds). The
    features that do not read the duration are changed so that they read only the output.
    """
    found = list(features)
    for i, feature in enumerate(features if any(f.of_time for f in features) else ()):
        steps = feature.apply.steps if isinstance(feature.apply, _Chain) else (feature.apply,)
        if not feature.of_time and steps[0] is not _OUTPUT:
            found[i] = replace(feature, apply=_Chain(steps=(_OUTPUT, *steps)))
    return tuple(found)


def require_fixed(feature: Feature, outputs: Outputs) -> None:
    r"""Raise an error unless a feature is a deterministic function of each single output.

    The feature is applied to ``outputs`` twice, the second time in reverse order. These outputs
    must not be tested afterwards. The check cannot detect a feature that changes its values later,
    so the user must exclude that.
    """
    if len(first := feature.apply(outputs)) != len(outputs):
        reason = f"returned {len(first):,} values for {len(outputs):,} outputs"
        raise TargetFailed(f"feature {feature.name}", reason)
    again = feature.apply(outputs[::-1])
    if not same(first, again[::-1]):
        reason = (
            "returned different values for the same outputs: a feature must be a "
            "deterministic function of one output"
        )
        raise InvalidParameter("feature", feature.name, reason)


# -- the default features --------------------------------------------------------------------------


def default_family(outputs: Outputs) -> dict[str, int]:
    r"""The names of the default features for these outputs, with their shares of the level.

    The result is empty if only the outputs themselves are to be tested.
    """
    values = each(outputs)
    came = len(set(map(identity, values)))
    if came < 2 or all(isinstance(value, bool | np.bool_) for value in values):
        return {}  # a threshold adds nothing for two values
    again = came < _OFTEN * len(values)
    numbers = [number for value in values if (number := number_in(value)) is not None]
    if 2 * len(numbers) > len(values):
        # A few ints among floats may be clamped numbers.
        for kind in (float, int):
            mine = [number.value for number in numbers if isinstance(number.value, kind)]
            if not again and 2 * len(mine) > len(values):
                parts = _number_family(np.array([as_float(value) for value in mine]))
                return parts if len(parts) > 1 else {}
        return {}
    schema = Schema()
    table = schema.read(outputs)
    return _table_family(table, schema.paths, again=again)


def default_features(outputs: Outputs, *, floats: bool) -> tuple[Feature, ...]:
    r"""The default features for ``outputs``; floating-point features only if ``floats`` is true."""
    parts = default_family(outputs)
    return tuple(
        replace(read_feature(name), share=Fraction(part, sum(parts.values())))
        for name, part in parts.items()
        if floats or cause_of(name) != "floating-point"
    )


def _number_family(numbers: Floats, path: str | None = None) -> dict[str, int]:
    # The features for outputs with a rarely repeated number at ``path``, or, if it is None, for
    # outputs that are rarely repeated numbers.
    name, chain = ("identity", "") if path is None else (f"column:{path}", f"column:{path}+")
    rest = ["precision"] if 2 * np.count_nonzero(numbers != np.rint(numbers)) > len(numbers) else []
    if step := step_of(numbers):
        rest.append(f"modulo:{step!r}")
    return {name: 80} | {chain + each: 20 // len(rest) for each in rest}


def _table_family(table: Table, paths: Sequence[str], *, again: bool) -> dict[str, int]:
    known = table.known()
    columns = [table.column(place) for place in range(table.width)]
    varying = [
        place
        for place, (numbers, codes) in enumerate(columns)
        if len(np.unique(codes)) > 1 or len(np.unique(numbers[codes == 0])) > 1
    ]
    structures = len(np.unique(table.structures))
    several = 1 < structures < _OFTEN * len(table)
    if not several and not known[:, varying].any() and len(varying) < 2:
        return {}  # a single label is tested directly
    repeated = (len(np.unique(columns[i][1])) < _OFTEN * len(table) for i in varying)
    if not several and not known[:, varying].any() and not any(repeated):
        return {}  # unrepeated labels are useless
    structure = _STRUCTURE if several else {}
    if len(varying) == 1 and known[:, (place := varying[0])].all():
        path = quote(paths[place].removeprefix("."), safe="[]{}'(), ./:;=\"")
        parts = {"identity": 40 if again else 5} | _number_family(table.numbers[:, place], path)
        return parts | _OTHERS | structure
    if again:
        return _REPEATED | structure
    numbers = table.numbers[known]
    fine = numbers[numbers != np.rint(numbers)]  # few if most numbers are flags
    gridded = len(varying) <= MOST_WIDE and 4 * len(fine) > len(table)
    return (_FLOAT_VECTORS if gridded else _VECTORS) | structure
