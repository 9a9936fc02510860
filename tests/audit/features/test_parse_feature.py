"""Tests of features: each output is mapped by itself; fast and plain paths agree; none raises; the
default features fit the outputs, and their shares sum to 1.
"""

from __future__ import annotations

import math
import pickle
import re
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from numpy.typing import NDArray

from audit.errors import TargetFailed
from audit.features import learner_columns
from audit.features.built_in_features import Map
from audit.features.learner_columns import step_of
from audit.features.parse_feature import (
    FEATURES,
    Feature,
    default_family,
    default_features,
    read_feature,
    require_fixed,
)
from audit.outputs.output_parser import Outputs
from audit.outputs.reading import read
from audit.run_audit import audit
from dpcore.errors import InvalidParameter
from tests.day_and_nightly import by_day, effort, spread
from tests.support.dpcore.mutants import mutated, rewired
from tests.support.run_command import python

ALL = [f"{name}:4" if b.limits or b.text else name for name, b in FEATURES.items()]
NUMBERS = ["sign", "exponent", "lowest-bit", "precision", "modulo:0.3"]
NUMBERS += ["last-bits:4", "round:2", "hash:16"]
ROWS = ["length", "coordinate:1", "coordinate:-1", "argmax", "sum", "sorted", "distinct", "kind"]


def settled(outputs: Outputs) -> list[str]:
    # Values as a test compares them: -0.0 is 0, 3.0 is 3, a row is a tuple, nan is nan.
    def one(value: Any) -> str:
        if isinstance(value, np.ndarray | np.generic):
            value = value.tolist()
        if isinstance(value, list | tuple):
            return f"({', '.join(map(one, value))})"
        return repr(value + 0.0) if isinstance(value, int | float) else repr(value)

    return [one(value) for value in outputs]


class Hostile:
    """Raises for every access except its class name."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    def __len__(self) -> int:
        raise RuntimeError("no length")

    def __float__(self) -> float:
        raise RuntimeError("no float")


WEIRD: list[Any] = [
    None, math.nan, math.inf, -math.inf, -0.0, 5e-324, 2**70, -(2**70), True, "", "abc", b"ab", [],
    [1, [2, 3]], [[], [1], "x", None], [math.nan, 1.0, math.nan], (1, "a"), {1: 2}, {3, 1}, 1 + 2j,
    Decimal(1), object(), np.float32(0.1), np.int8(-3), np.zeros((2, 2)), np.zeros(0),
    np.array(2.5), np.array(["a"]), np.longdouble(1) / 3, np.datetime64("2020-01-01"),
]  # fmt: skip


@pytest.mark.parametrize("name", ALL)
def test_every_feature_is_a_fixed_map_that_never_raises(name: str) -> None:
    feature = read_feature(name)
    found = feature.apply([*WEIRD, Hostile()])
    assert len(found) == len(WEIRD) + 1
    assert len(feature.apply([])) == 0
    if name != "identity" and not FEATURES[name.partition(":")[0]].learned:
        read(found)
    require_fixed(feature, WEIRD)
    assert pickle.loads(pickle.dumps(feature)) == feature  # noqa: S301 - made in this line


VALUES = st.one_of(
    st.integers(-(2**66), 2**66),
    st.floats(),
    st.floats(width=32).map(np.float32),
    st.text(max_size=3),
    st.none(),
    st.booleans(),
    st.lists(st.integers(-3, 3), max_size=3),
    st.lists(st.floats(), max_size=3).map(tuple),
)
LISTS = st.one_of(
    st.lists(VALUES, max_size=6),
    st.lists(st.floats(), max_size=6),
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=6),
)
ARRAYS = npst.arrays(
    dtype=st.sampled_from([np.float64, np.float32, np.float16, np.int64, np.int8, np.uint64]),
    shape=st.one_of(
        st.tuples(st.integers(0, 5)),
        st.tuples(st.integers(0, 5), st.integers(0, 3)),
        st.tuples(st.integers(0, 3), st.integers(1, 2), st.integers(1, 2)),
    ),
)


def reads_each_by_itself(apply: Callable[[Outputs], Outputs], outputs: Outputs) -> bool:
    whole = settled(apply(outputs))
    alone = [settled(apply(outputs[i : i + 1]))[0] for i in range(len(outputs))]
    return whole == alone and settled(apply(outputs[::-1])) == whole[::-1]


@by_day(2)
@pytest.mark.parametrize("name", ALL)
@given(outputs=st.one_of(LISTS, ARRAYS))
@settings(max_examples=effort(6, 20), deadline=None)
def test_each_output_is_read_separately(name: str, outputs: Outputs) -> None:
    assert reads_each_by_itself(read_feature(name).apply, outputs)


def test_a_map_that_depends_on_other_outputs_is_detected() -> None:
    for outputs in ([0, 0.0], [0, None], [np.float64(1), None], [np.int64(1), "x"]):
        assert reads_each_by_itself(read_feature("kind").apply, outputs)
    ranks = lambda outputs: np.argsort(np.argsort(outputs))  # noqa: E731 - one line says it
    assert not reads_each_by_itself(ranks, [3, 1, 2])


@by_day(3)
@pytest.mark.parametrize("name", NUMBERS + ROWS)
@given(array=ARRAYS)
@settings(max_examples=30, deadline=None)
def test_the_vectorised_and_the_plain_map_agree(name: str, array: NDArray[Any]) -> None:
    fast = read_feature(name).apply
    assert isinstance(fast, Map)
    plain = replace(fast, of_array=lambda *_: None)
    # The plain path gets numpy scalars and rows one by one, so a float32 keeps its own bits.
    assert settled(fast(array)) == settled([plain([output])[0] for output in array])


def test_a_vectorised_map_that_rounds_is_detected() -> None:
    # 2^63 - 1 is not representable as a float: frexp alone is off by one.
    fast: Any = read_feature("exponent").apply
    mutant = mutated(fast.of_array, "power -= np.right_shift(", "_ = np.right_shift(")
    top = np.array([2**63 - 1])
    assert fast.of_array(top)[0] == fast.of_one(2**63 - 1) == 62
    assert mutant(top)[0] == 63


@given(st.floats(allow_nan=False, allow_infinity=False).filter(bool))
def test_features_of_float_bits_agree_with_the_hexadecimal_form(x: float) -> None:
    whole, digits, power = (
        re.fullmatch(r"-?0x([01])\.([0-9a-f]+)p([+-]\d+)", x.hex()) or [""]
    ).groups()  # type: ignore[union-attr]  # every finite float has such a form
    significand = int(whole + digits, 16)
    assert list(read_feature("last-bits:52").apply([x])) == [int(digits, 16)]
    assert list(read_feature("last-bits:3").apply([x])) == [int(digits, 16) % 8]
    lowest = int(power) - 52 + (significand & -significand).bit_length() - 1
    assert list(read_feature("lowest-bit").apply([x])) == [lowest]
    exponent = int(power) - 52 + significand.bit_length() - 1
    assert list(read_feature("exponent").apply([x])) == [exponent]
    exact = Fraction(1, 2) - lowest + Fraction(exponent + 1100, 10**4) * (1 if x > 0 else -1)
    assert list(read_feature("precision").apply([x])) == [float(exact)]


@pytest.mark.parametrize(
    ("name", "outputs", "expected"),
    [
        ("identity", [1, "x"], [1, "x"]),
        ("sign", [-3, 0.0, -0.0, math.inf, "x"], [-1, 0, "-0", 1, "no sign: str"]),
        ("exponent", [0, 1023, 1024, -math.inf], [-math.inf, 9, 10, math.inf]),
        ("lowest-bit", [0, 96, 0.375, "1"], [math.inf, 5, -3, "no lowest-bit: str"]),
        ("precision", [0, 96, 0.375, -0.375, math.inf, "1"],
         [-math.inf, -4.3894, 3.6098, 3.3902, math.nan, "no precision: str"]),
        ("precision", [1, 2**2000, 2**9999], [0.61, -1999.19, -9998.01]),
        ("modulo:0.25", [1.0, -0.0625, 0.3125, 10**30, math.inf, "1"],
         [0, 0.75, 0.25, 0, math.inf, "no modulo:0.25: str"]),
        ("last-bits:3", [13, -1, 2**90 + 5, math.inf], [5, 7, 5, math.inf]),
        ("round:1", [0.25, 7, [0.24, 1.06], 1e308], [0.2, 7, (0.2, 1.1), 1e308]),
        ("round:-2", [149.0, 250], [100, 200]),
        ("kind", [1, "x", (1, 2)], ["int", "str", "tuple of 2"]),
        ("length", ["ab", {1: 2}, {3}, 4], [2, 1, 1, "no length: int"]),
        ("coordinate:1", ["ab", [5, 6, 7], [5]], ["b", 6, "no coordinate:1: list of 1"]),
        ("argmax", [[1, 5, 5], [[1, 2], [3, 0]], [1, math.nan]], [1, 2, 1]),
        ("argmax", [[], "ab"], ["no argmax: list of 0", "no argmax: str"]),
        ("sum", [[1, [2, True]], "ab", b"ab", []], [4, "no sum: str", 195, 0]),
        ("sorted", [[2, 1], "ba", [math.nan, 1]], [(1, 2), ("a", "b"), (1, math.nan)]),
        ("distinct", [[1, 1.0, True, 2], "aab", [math.nan, math.nan]], [2, 2, 1]),
        # The text of the last column is not a label: its number is the column user.text[0].
        ("column:user", [{"user": "ada"}, {"user": 7}, {"user": "user 17"}],
         ["ada", 7, "no column:user: dict"]),
        ("coordinate:0+last-bits:1", [(3, 0), (4, 0), 5], [1, 0, "no last-bits:1: str"]),
    ],
)  # fmt: skip
def test_features_have_the_documented_values(
    name: str, outputs: list[Any], expected: list[Any]
) -> None:
    assert settled(read_feature(name).apply(outputs)) == settled(expected)


def test_the_hash_feature_is_equal_in_every_process_and_uniform() -> None:
    code = (
        "from audit.features.parse_feature import read_feature\n"
        "outputs = ['a', {'x', 'y', 'z'}, (1, 2.5), None, 2**80, -0.0, {'k': object()}]\n"
        "found = [int(i) for i in read_feature('hash:1048576').apply(outputs)]"
    )
    exec(code, here := dict[str, Any]())  # noqa: S102 - the lines above
    assert python("-c", f"{code}\nprint(found)").stdout.strip() == str(here["found"])
    # Equal values of different types are one output.
    same: list[Any] = [7, 7.0, np.int8(7), np.float32(7), np.array([7])]
    assert len(set(read_feature("hash:1048576").apply(same))) == 1
    cells = np.bincount(np.asarray(read_feature("hash:16").apply(np.arange(16_000))), minlength=16)
    assert 800 < cells.min() <= cells.max() < 1200


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("sing", "did you mean sign"),
        ("", "must be one of identity"),
        ("sign:2", "must be written without a number"),
        ("last-bits", "must have the form last-bits:INTEGER, e.g. last-bits:4"),
        ("last-bits:x", "must have the form last-bits:INTEGER"),
        ("modulo", "must have the form modulo:NUMBER, e.g. modulo:0.01"),
        ("modulo:0", r"must be in \[1e-300, 1e\+300\]"),
        ("modulo:nan", "must be in"),
        ("last-bits:0", r"must be in \[1, 52\]"),
        ("hash:1", "must be in"),
        ("sum+", "must be one of identity"),
        ("no_such_module:f", "no module"),
        ("math:pi", "is of type float, not a callable"),
        ("math:atan2", "must be callable with one output"),
        ("math:squrt", "did you mean sqrt"),
    ],
)
def test_an_invalid_feature_is_refused_by_name(text: str, reason: str) -> None:
    with pytest.raises(InvalidParameter, match=reason) as caught:
        read_feature(text)
    assert caught.value.argument == "feature"


OWN = """
import random
seen = []
def parity(output):
    return output % 2
def spoil(output):
    output.append(1)
    return len(output)
def late(output):
    seen.append(output)
    return len(seen)
def before(output):
    seen.append(output)
    return seen[-2] if len(seen) > 1 else None
def generator(output):
    return (x for x in [output])
def leave(output):
    raise SystemExit(3)
buffer = [0]
def kept(output):
    buffer[0] = output
    return buffer
"""


@pytest.fixture
def own(tmp_path: Path) -> Callable[[str], Feature]:
    path = tmp_path / "own_maps.py"
    path.write_text(OWN)
    return lambda name: read_feature(f"{path}:{name}")


def test_a_user_defined_map_is_a_feature(own: Callable[[str], Feature]) -> None:
    parity = own("parity")
    assert list(parity.apply(np.array([3, 4]))) == [1, 0]
    require_fixed(parity, [1, 2, 3])
    # A feature is pickled by its spelling.
    again = pickle.loads(pickle.dumps(parity))  # noqa: S301 - made one line above
    assert again == parity
    assert list(again.apply([5])) == [1]
    # The map gets a copy, so that another feature still reads the original output.
    outputs = [[1], [2]]
    require_fixed(own("spoil"), outputs)
    assert outputs == [[1], [2]]
    assert list(own("kept").apply([1, 2])) == [[1], [2]]  # a map may return one buffer


def test_an_error_in_a_user_defined_map_names_the_map(own: Callable[[str], Feature]) -> None:
    with pytest.raises(TargetFailed, match=r"feature .*own_maps.py:parity: raised TypeError"):
        own("parity").apply(["x", None])
    with pytest.raises(TargetFailed, match="returned a generator"):
        own("generator").apply([1])
    with pytest.raises(TargetFailed, match=r"sys.exit\(3\)"):
        own("leave").apply([1])
    short = Feature(name="short", apply=lambda outputs: outputs[:1])
    with pytest.raises(TargetFailed, match="feature short: returned 1 values for 2 outputs"):
        require_fixed(short, [1, 2])


def test_a_map_that_changes_its_answers_is_refused(own: Callable[[str], Feature]) -> None:
    for name in ("late", "before"):
        with pytest.raises(InvalidParameter, match="must be a deterministic"):
            require_fixed(own(name), [5, 6, 7])


Floats: TypeAlias = NDArray[np.float64]

_NOISE = np.random.default_rng(1).laplace(size=(32, 5))
_FLOATS = ["identity", "precision"]
_FLOAT_VECTORS = ["identity", "coordinates", "learned", "grid"]
_VECTORS = ["identity", "coordinates", "learned"]
_OTHERS = ["coordinates", "learned"]


@pytest.mark.parametrize(
    ("outputs", "features"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param(list(range(32)), [], id="integers"),
        pytest.param([f"row {'x' * k}" for k in range(32)], [], id="labels"),
        pytest.param(
            [f"row {k}" for k in range(32)], ["identity", "column:text[0]", *_OTHERS], id="text"
        ),
        pytest.param(
            [{"counts": {"a+b": k}, "of": 32} for k in range(32)],
            ["identity", "column:counts['a%2Bb']", *_OTHERS],
            id="one number of a record",
        ),
        pytest.param([[k] * (1 + k % 2) for k in range(32)], [*_VECTORS, "structure"], id="lists"),
        pytest.param([float(k) for k in range(32)], [], id="floats that are integers"),
        pytest.param([0.5, 1.5] * 16, [], id="repeated floats"),
        pytest.param(_NOISE[:, 0].tolist(), _FLOATS, id="floats"),
        pytest.param([max(min(x, 2), -2) for x in _NOISE[:, 0].tolist()], _FLOATS, id="cut off"),
        pytest.param([*_NOISE[:30, 0].tolist(), 10**400, None], _FLOATS, id="floats and others"),
        pytest.param(_NOISE, _FLOAT_VECTORS, id="float vectors"),
        pytest.param(np.tile(_NOISE, 22)[:, :64], _FLOAT_VECTORS, id="64 floats"),
        pytest.param(np.tile(_NOISE, 22)[:, :65], _VECTORS, id="65 floats have no grids"),
        pytest.param(
            [(float(x), k % 2) for k, x in enumerate(_NOISE[:, 0])], _FLOAT_VECTORS, id="records"
        ),
        pytest.param([(k, k % 3) for k in range(32)], _VECTORS, id="integer vectors"),
    ],
)
def test_default_features_depend_on_the_outputs(outputs: Any, features: list[str]) -> None:
    assert sorted(default_family(outputs)) == sorted(features)
    shares = [feature.share for feature in default_features(outputs, floats=True)]
    assert sum(shares) == (1 if features else 0)


def _geometrics(rng: np.random.Generator) -> int:
    return int(rng.geometric(0.05)) - int(rng.geometric(0.05))


_name = lambda answer, named, rng: {  # noqa: E731 - as the others
    "count": answer + _geometrics(rng),
    "user": "ada" if named else "none",
}
LEAKS: list[Callable[..., Any]] = [
    _name,
    lambda _, named, rng: {"mean": rng.normal(), **({"warning": "ada"} if named else {})},
    lambda _, named, rng: f"mean {rng.normal()}" + (" (ada)" if named else ""),
    lambda _, named, rng: np.array([rng.normal(), float(named)]),
]


@by_day(1)
@pytest.mark.parametrize("law", LEAKS, ids=range(4))
def test_a_rare_leak_beside_one_noisy_number_is_refuted(law: Callable[..., Any]) -> None:
    """The leak is rarely in the first outputs, from which the features are chosen."""

    def leaks(b: int, rng: np.random.Generator) -> Any:
        return law(b, bool(b) and rng.random() < 0.02, rng)

    def leaks_not(b: int, rng: np.random.Generator) -> Any:
        return law(b, rng.random() < 0.02, rng)

    options: Any = {"pair": (0, 1), "seed": 1, "runs": effort(6000, 8000), "floats": "ignore"}
    found = audit(leaks, "epsilon=1", **options)
    assert found.verdict == "refuted"
    assert audit(leaks_not, "epsilon=1", **options).verdict == "not_refuted"
    if law is _name:
        options["features"] = ["column:user"]
        found = audit(leaks, "epsilon=1", **options)
        assert (found.verdict, found.coverage[0].unread) == ("refuted", 0)


def _laplace(scale: float, n: int, rng: np.random.Generator) -> Floats:
    u = rng.random(n) - 0.5
    return -scale * np.sign(u) * np.log1p(-2.0 * np.abs(u))


def test_a_mean_leaks_through_floats_but_its_sum_does_not() -> None:
    """150/50 and 151/50: between -2 and -1 only one of them gives 51 binary places. Refuting every
    epsilon is therefore right, although ideal Laplace noise of scale 1 would give epsilon = 1/50.
    """

    def geometric(n: int, rng: np.random.Generator) -> Floats:
        return (rng.geometric(0.02, n) - rng.geometric(0.02, n)).astype(np.float64)

    def mean(dataset: list[int], n: int, rng: np.random.Generator) -> Floats:
        return sum(dataset) / len(dataset) + rng.laplace(0, 1, n)

    options: Any = {"pair": ([3] * 50, [3] * 49 + [4]), "seed": 1, "runs": 12_000}
    found = audit(mean, "epsilon=1", **options)
    assert {row.feature for row in found.outcomes if row.refuted} == {"precision"}
    assert audit(mean, "epsilon=1", features=["identity"], **options).verdict == "not_refuted"
    sums: list[Callable[..., Floats]] = [
        lambda dataset, n, rng: sum(dataset) + rng.laplace(0, 50, n),
        lambda dataset, n, rng: sum(dataset) + geometric(n, rng),
        lambda dataset, n, rng: (sum(dataset) + geometric(n, rng)) / 50,
    ]
    for kept in spread(sums, 2):
        assert audit(kept, "epsilon=1", **options).verdict == "not_refuted"
    assert audit(kept, "epsilon=1", **options, sequential=True).verdict == "not_refuted"


@by_day(1)
@pytest.mark.parametrize(
    "steps",
    [  # the noise is rounded before it is added; the sum is not rounded
        lambda n, rng: np.round(_laplace(1000.0, n, rng), 2),
        lambda n, rng: np.pi * np.rint(_laplace(1e5, n, rng)),
    ],
    ids=["cents", "multiples of pi"],
)
def test_noise_in_steps_reveals_the_value_to_which_it_is_added(steps: Any) -> None:
    def law(answer: float, n: int, rng: np.random.Generator) -> Floats:
        noise: Floats = steps(n, rng)
        return answer + noise

    def rounded(answer: float, n: int, rng: np.random.Generator) -> Floats:
        return np.round(law(answer, n, rng))

    options: Any = {"pair": (1 / 3, 2 / 3), "runs": effort(8000, 20_000), "seed": 1}
    found = audit(law, "epsilon=0.1", **options)
    (step,) = (name for name in found.features if name.startswith("modulo:"))
    assert {row.feature for row in found.outcomes if row.refuted} == {step}
    before = ["identity", "precision"]
    assert audit(law, "epsilon=0.1", **options, features=before).verdict == "not_refuted"
    assert audit(rounded, "epsilon=0.1", **options).verdict == "not_refuted"


@by_day(1)
@pytest.mark.parametrize(("order", "sequential"), [(1, False), (-1, True)])
def test_each_pair_has_features_chosen_from_its_own_outputs(order: int, sequential: bool) -> None:
    def vectors(d: float, n: int, rng: np.random.Generator) -> Any:
        noise = rng.laplace(0, 1, (n, 8)) + (d if abs(d) > 1 else 0)
        return noise if abs(d) > 1 else np.rint(20 * noise[:, 0]).astype(int)

    pairs = [(0, 1), (2, 3)][::order]
    options: Any = {"seed": 1, "runs": 4000, "sequential": sequential}
    report = audit(vectors, "epsilon=0.5", pairs=pairs, **options)
    assert (report.verdict, report.pair) == ("refuted", (2, 3))
    looked = {pair: {c.feature for c in report.coverage if c.pair == pair} for pair in (0, 1)}
    assert looked[pairs.index((0, 1))] == {None}
    assert looked[pairs.index((2, 3))] == set(_FLOAT_VECTORS) == set(report.features)


Numbers: TypeAlias = NDArray[np.floating[Any]]
Noise: TypeAlias = Callable[[np.random.Generator], Numbers]

RUNS = 32
SEEDS = range(20)


def cents(rng: np.random.Generator) -> Numbers:
    found: Numbers = np.round(rng.laplace(scale=100, size=RUNS), 2)
    return found


def of_step(step: float) -> Noise:
    return lambda rng: step * rng.integers(-9999, 9999, RUNS)


def between(noise: Noise, a: float, b: float) -> list[float | None]:
    """The step that is found for noise added to either of two answers."""
    found = []
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        answers = np.where(rng.random(RUNS) < 0.5, a, b)
        found.append(step_of(answers + noise(rng)))
    return found


@by_day(3)
@pytest.mark.parametrize(
    ("noise", "step", "pair"),
    [
        pytest.param(cents, 0.01, (1 / 3, 2 / 3), id="noise rounded to cents"),
        pytest.param(cents, 0.01, (100.123, 101.456), id="answers of three decimals"),
        pytest.param(of_step(0.3), 0.3, (0.0, 1 / 7), id="one answer is a multiple of the step"),
        pytest.param(of_step(math.pi), math.pi, (1e6, 1e6 + 1), id="a step that is not decimal"),
        pytest.param(of_step(2.0**-7), 2.0**-7, (0.1, 0.2), id="a binary step"),
    ],
)
def test_the_steps_of_noise_are_found(noise: Noise, step: float, pair: tuple[float, float]) -> None:
    found = [each for each in between(noise, *pair) if each is not None]
    assert len(found) >= 0.9 * len(SEEDS)
    for each in found:
        # A multiple of a few steps reveals as much. Over 10,000 steps the error is below 1/64 of a
        # step.
        times = round(each / step)
        assert 1 <= times <= 4
        assert abs(each / (times * step) - 1) < 1e-6


def test_no_step_is_found_if_there_is_none() -> None:
    noises: list[Noise] = [
        lambda rng: rng.laplace(size=RUNS),
        lambda rng: 1e6 + rng.normal(size=RUNS),
        lambda rng: rng.random(RUNS),
        lambda rng: np.zeros(RUNS),
        lambda rng: rng.random(2),
        lambda rng: np.array([math.nan, 1.0, 2.0]),
    ]
    for noise in noises:
        assert {step_of(noise(np.random.default_rng(seed))) for seed in SEEDS} == {None}


def test_steps_shared_by_all_outputs_are_omitted() -> None:
    shared: list[tuple[Any, float, float]] = [(of_step(2.0**-9), 0.0, 1.0), (cents, 3.25, 4.5)]
    for noise, a, b in shared:
        assert sum(step is not None for step in between(noise, a, b)) <= 0.1 * len(SEEDS)
        # A mutant that ignores chance variation on a finer lattice reports false steps.
        careless = rewired(
            step_of,
            _more_than_chance=mutated(
                learner_columns._more_than_chance, "if not part:", "if part >= 0:"
            ),
        )
        rng = np.random.default_rng(0)
        assert careless(a + noise(rng)) is not None
