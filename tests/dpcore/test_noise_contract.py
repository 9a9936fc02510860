r"""What every law promises, whatever it is: as a value, in writing, in shape, and in law.

A new law joins by its examples. Its statistics are exact binomial cells with a Bonferroni
correction and alpha from the run's purse; a scale two percent off and a doubled zero are the
mutants they reject, at the power computed beside them.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import json
import pickle
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp
from scipy import stats

import dpcore
from dpcore import Noise, SeededRng, SystemRng, read_noise, write_noise
from dpcore.noise import batch_of
from dpcore.spelling import LAWS, noise_from_json, parameter_names
from tests.dpcore import second_path
from tests.purse import purse

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "seeded.json").read_text())

# One row for each law: a tiny, a fractional, an everyday and a large parameter.
EXAMPLES: dict[str, tuple[str, ...]] = {
    "discrete-laplace": ("scale=1/10", "scale=1/3", "scale=10", "scale=1000000", "scale=2e12"),
    "discrete-gaussian": (
        *("sigma_squared=1/50", "sigma_squared=1/4", "sigma_squared=400"),
        *("sigma_squared=1000003", "sigma_squared=16777216.5", "sigma_squared=1e24"),
    ),
}
SPELLED = [f"{law}:{parameters}" for law, rows in EXAMPLES.items() for parameters in rows]
BEYOND_INT64 = ["discrete-laplace:scale=1e30", "discrete-gaussian:sigma_squared=1e60"]


def test_every_law_has_examples() -> None:
    assert set(EXAMPLES) == set(LAWS)


@pytest.fixture(params=SPELLED)
def noise(request: pytest.FixtureRequest) -> Noise:
    return read_noise(request.param)


def fresh(noise: Noise) -> Noise:
    r"""An equal value that shares nothing with the first."""
    return type(noise)(**noise.parameters)


# -- as a value --------------------------------------------------------------------------------


@pytest.mark.parametrize("text", SPELLED + BEYOND_INT64)
def test_a_repr_evaluates_back(text: str) -> None:
    noise = read_noise(text)
    assert eval(repr(noise), vars(dpcore)) == noise  # noqa: S307 - what a repr is for


def test_equal_parameters_are_equal_values(noise: Noise) -> None:
    other = fresh(noise)
    assert other is not noise
    assert other == noise
    assert hash(other) == hash(noise)
    assert {noise: 1}[other] == 1


def test_another_parameter_or_law_is_another_value(noise: Noise) -> None:
    values = {name: Fraction(value) + 1 for name, value in noise.parameters.items()}
    assert type(noise)(**values) != noise
    assert noise != noise.parameters
    others = [read_noise(text) for text in SPELLED]
    assert others.count(noise) == 1


def test_laws_with_equal_numbers_do_not_share_a_sampler() -> None:
    laplace, gaussian = dpcore.DiscreteLaplace(scale=400), dpcore.DiscreteGaussian(sigma_squared=400)
    assert laplace != gaussian
    assert batch_of(laplace) is not batch_of(gaussian)  # type: ignore[comparison-overlap]


def test_what_was_drawn_ahead_changes_no_value(noise: Noise) -> None:
    before, code = repr(noise), hash(noise)
    noise.sample()
    assert (repr(noise), hash(noise), noise == fresh(noise)) == (before, code, True)


def test_parameters_cannot_be_changed(noise: Noise) -> None:
    for name in (*parameter_names(type(noise)), "name", "anything"):
        with pytest.raises((dataclasses.FrozenInstanceError, AttributeError, TypeError)):
            setattr(noise, name, 1)
    with pytest.raises((dataclasses.FrozenInstanceError, AttributeError)):
        delattr(noise, parameter_names(type(noise))[0])


def test_parameters_are_exact(noise: Noise) -> None:
    assert all(isinstance(value, (Fraction, int)) for value in noise.parameters.values())
    assert list(noise.parameters) == list(parameter_names(type(noise)))


def test_a_law_says_what_it_is(noise: Noise) -> None:
    assert LAWS[noise.name] is type(noise)
    assert isinstance(noise.mean, Fraction)
    assert noise.symmetric in (True, False)
    assert noise.log_concave in (True, False)


# -- in writing --------------------------------------------------------------------------------


@pytest.mark.parametrize("text", SPELLED + BEYOND_INT64)
def test_a_spelling_reads_back(text: str) -> None:
    noise = read_noise(text)
    assert read_noise(write_noise(noise)) == noise
    assert noise_from_json(json.loads(json.dumps(noise.to_json()))) == noise


@given(st.fractions(min_value=Fraction(1, 10**9), max_value=10**9), st.sampled_from(sorted(LAWS)))
def test_every_parameter_reads_back(value: Fraction, law: str) -> None:
    (name,) = parameter_names(LAWS[law])
    noise = LAWS[law](**{name: value})
    assert noise.parameters == {name: value}
    assert read_noise(write_noise(noise)) == noise
    assert noise_from_json(noise.to_json()) == noise
    assert eval(repr(noise), vars(dpcore)) == noise  # noqa: S307 - what a repr is for


def test_a_spelling_bears_spaces() -> None:
    assert read_noise(" discrete-laplace : scale=10 , ") == dpcore.DiscreteLaplace(scale=10)


# -- copies ------------------------------------------------------------------------------------

COPIES: dict[str, Callable[[Noise], Noise]] = {
    "pickle": lambda noise: pickle.loads(pickle.dumps(noise)),  # type: ignore[no-any-return]  # noqa: S301 - our own bytes
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "replace": lambda noise: dataclasses.replace(noise),  # type: ignore[type-var]
    "deepcopy in a list": lambda noise: copy.deepcopy([noise])[0],
    "pickle in a mechanism": lambda noise: pickle.loads(  # type: ignore[no-any-return]  # noqa: S301 - our own bytes
        pickle.dumps(dpcore.Mechanism(noise=noise, sensitivity=dpcore.Sensitivity(1)))
    ).noise,
}


def reservoirs(noise: Noise) -> list[Any]:
    r"""What an instance holds besides its parameters."""
    hidden = [f.name for f in dataclasses.fields(noise) if not f.init]
    assert hidden, "the law keeps its reservoir in a field that this test must find"
    return [getattr(noise, name) for name in hidden]


@pytest.mark.parametrize("name", COPIES)
@pytest.mark.parametrize("text", ["discrete-laplace:scale=2e12", "discrete-gaussian:sigma_squared=1e24"])
def test_no_copy_carries_noise_drawn_ahead(text: str, name: str) -> None:
    noise = fresh(read_noise(text))
    seen = [noise.sample(), *noise.sample(10).tolist()]
    twin = COPIES[name](noise)
    assert twin == noise
    assert twin is not noise
    for mine, its in zip(reservoirs(noise), reservoirs(twin), strict=True):
        assert mine is not its
        assert len(its) == 0
    for _ in range(200):
        seen += [noise.sample(), twin.sample(), *noise.sample(5).tolist(), *twin.sample(5).tolist()]
    assert len(set(seen)) == len(seen), "a value of 40 bits was dealt twice"


def test_a_copy_that_shares_its_reservoir_is_seen() -> None:
    noise = fresh(read_noise("discrete-laplace:scale=2e12"))
    noise.sample()
    twin = fresh(noise)
    (mine,), (its,) = reservoirs(noise), reservoirs(twin)
    its.extend(mine)
    assert {noise.sample() for _ in range(50)} & {twin.sample() for _ in range(50)}


# -- shapes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", [SystemRng(), SeededRng(1)], ids=repr)
def test_one_draw_is_a_python_integer(noise: Noise, source: Any) -> None:
    assert type(noise.sample(rng=source)) is int
    assert type(noise.sample_reference(source)) is int


@pytest.mark.parametrize("size", [0, 1, 5, (), (0,), (3,), (2, 3), (2, 0, 4), np.int64(4), (np.int8(2), 2)])
@pytest.mark.parametrize("source", [SystemRng(), SeededRng(1)], ids=repr)
def test_draws_have_the_shape_asked_for(size: Any, source: Any) -> None:
    for law, rows in EXAMPLES.items():
        drawn = read_noise(f"{law}:{rows[2]}").sample(size, rng=source)
        assert drawn.shape == (tuple(size) if isinstance(size, tuple) else (size,))
        assert drawn.dtype == np.int64
        assert drawn.flags.writeable
        assert drawn.flags.c_contiguous


def test_draws_are_the_callers_own(noise: Noise) -> None:
    # Writing into one array of draws reaches neither another nor what is drawn next.
    first, second = noise.sample(50), noise.sample(50)
    kept = second.copy()
    first[:] = 2**40 + 123
    assert second.tolist() == kept.tolist()
    assert 2**40 + 123 not in noise.sample(4000)
    assert 2**40 + 123 not in [noise.sample() for _ in range(100)]


@pytest.mark.parametrize("shape", [(), (0,), (1,), (5,), (2, 3), (0, 3), (2, 1, 2)])
@pytest.mark.parametrize(
    "dtype", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
)
def test_functions_keep_the_shape_of_their_places(shape: tuple[int, ...], dtype: str) -> None:
    places = np.arange(np.prod(shape, dtype=int), dtype=dtype).reshape(shape)
    for law, rows in EXAMPLES.items():
        noise = read_noise(f"{law}:{rows[2]}")
        for name in ("pmf", "log_pmf", "cdf", "sf"):
            function = getattr(noise, name)
            found = function(places)
            assert np.shape(found) == shape
            assert np.asarray(found).dtype == np.float64
            one_by_one = [function(int(k)) for k in places.reshape(-1)]
            assert np.asarray(found).reshape(-1).tolist() == one_by_one
            assert all(type(value) is float for value in one_by_one)


@pytest.mark.parametrize("order", ["transposed", "strided", "reversed", "big endian", "list", "tuple"])
def test_functions_take_any_layout(order: str) -> None:
    places = np.arange(-6, 6).reshape(3, 4)
    layouts: dict[str, Any] = {
        "transposed": places.T,
        "strided": places[::2, ::3],
        "reversed": places[::-1],
        "big endian": places.astype(">i8"),
        "list": places.tolist(),
        "tuple": tuple(map(tuple, places.tolist())),
    }
    layout = layouts[order]
    for law, rows in EXAMPLES.items():
        noise = read_noise(f"{law}:{rows[2]}")
        flat = [noise.pmf(int(k)) for k in np.asarray(layout).reshape(-1)]
        assert np.asarray(noise.pmf(layout)).reshape(-1).tolist() == flat


def test_quantiles_keep_the_shape_of_their_levels() -> None:
    for law, rows in EXAMPLES.items():
        noise = read_noise(f"{law}:{rows[2]}")
        assert type(noise.quantile(0.3)) is int
        assert type(noise.quantile(np.float64(0.3))) is int
        assert type(noise.quantile(Fraction(1, 3))) is int
        for shape in ((0,), (3,), (2, 2)):
            found: Any = noise.quantile(np.full(shape, 0.3))
            assert found.shape == shape
            assert found.dtype == np.int64
        assert np.asarray(noise.quantile([0.3, 0.9])).tolist() == [noise.quantile(0.3), noise.quantile(0.9)]


# -- seeded draws ------------------------------------------------------------------------------


def test_equal_seeds_give_equal_draws(noise: Noise) -> None:
    first = noise.sample((3, 40), rng=SeededRng(9))
    assert first.tolist() == fresh(noise).sample((3, 40), rng=SeededRng(9)).tolist()
    one_by_one = [noise.sample(rng=source) for source in [SeededRng(9)] for _ in range(20)]
    assert one_by_one == [fresh(noise).sample(rng=source) for source in [SeededRng(9)] for _ in range(20)]
    noise.sample()
    assert first.tolist() == noise.sample((3, 40), rng=SeededRng(9)).tolist()


@pytest.mark.parametrize("text", list(VECTORS["draws"]))
def test_seeded_draws_are_the_same_on_every_platform(text: str) -> None:
    noise = read_noise(text)
    for seed, drawn in VECTORS["draws"][text].items():
        assert noise.sample(len(drawn), rng=SeededRng(int(seed))).tolist() == drawn
    for seed, drawn in VECTORS["reference"][text].items():
        source = SeededRng(int(seed))
        assert [noise.sample_reference(source) for _ in drawn] == drawn


def cdf_by_sums(text: str, k: int) -> Any:
    value = Fraction(text.partition("=")[2])
    if text.startswith("discrete-laplace"):
        return 1 - second_path.laplace_sf(value, k)
    return 1 - second_path.gaussian_sf(value, k)


@pytest.mark.parametrize(
    "text",
    [
        *("discrete-laplace:scale=1/3", "discrete-laplace:scale=10"),
        *("discrete-gaussian:sigma_squared=1/4", "discrete-gaussian:sigma_squared=400"),
    ],
)
def test_seeded_draws_are_the_inverse_of_the_distribution(text: str) -> None:
    # The whole path a second time: SHA-256 and AES to words (test_rng), words to V, and the least
    # k with V < F(k) by mpmath. It holds for laws that fit one table.
    with second_path.digits(30):
        for seed, drawn in VECTORS["draws"][text].items():
            words = SeededRng(int(seed)).words(len(drawn)).tolist()
            for word, k in zip(words, drawn, strict=True):
                v = mp.mpf(word) / 2**64
                assert cdf_by_sums(text, k - 1) < v < cdf_by_sums(text, k)


# -- statistics --------------------------------------------------------------------------------

Cell = tuple[str, Callable[[Any], Any], float]


@cache
def cells(noise: Noise) -> list[Cell]:
    r"""Half-lines at quantiles, and the single values 0, 1 and -1, with their probabilities."""
    found: list[Cell] = []
    for level in (0.001, 0.01, 0.05, 0.1, 0.2, 0.3, 0.45, 0.55, 0.7, 0.8, 0.9, 0.95, 0.99, 0.999):
        k = noise.quantile(level)
        assert isinstance(k, int)
        found.append((f"X <= {k}", lambda x, k=k: x <= k, float(noise.enclose_cdf(k, 64).upper)))
        found.append((f"|X| > {abs(k)}", lambda x, k=k: abs(x) > abs(k), noise.tail(abs(k))))
    for k in (0, 1, -1):
        found.append((f"X = {k}", lambda x, k=k: x == k, float(noise.enclose_pmf(k, 64).upper)))
    found.append(("X even", lambda x: x % 2 == 0, even(noise)))
    return [cell for cell in found if 1e-12 < cell[2] < 1 - 1e-12]


@cache
def even(noise: Noise) -> float:
    # Parity looks into the lowest digit, which no half-line of a large scale sees.
    spread = noise.quantile(1 - 1e-12)
    assert isinstance(spread, int)
    if spread > 10_000:
        return 0.5
    places = np.arange(-2 * spread, 2 * spread + 1, 2)
    return float(np.sum(noise.pmf(places)))


def binomial_p(seen: int, trials: int, probability: float) -> float:
    r"""Two-sided, exact: twice the smaller tail."""
    below = stats.binom.cdf(seen, trials, probability)
    above = stats.binom.sf(seen - 1, trials, probability)
    return float(min(1.0, 2 * min(below, above)))


def worst(noise: Noise, drawn: Any) -> float:
    r"""The least p-value of all cells, times their number (Bonferroni)."""
    rows = cells(noise)
    return len(rows) * min(
        binomial_p(int(np.count_nonzero(inside(drawn))), len(drawn), p) for _, inside, p in rows
    )


DRAWN = 400_000
TINY_ALPHA = "1e-9"


@pytest.mark.parametrize("text", SPELLED)
def test_batches_have_the_law(text: str) -> None:
    alpha = purse.buy(f"cells: batch {text}", TINY_ALPHA)
    noise = read_noise(text)
    assert worst(noise, noise.sample(DRAWN, rng=SeededRng(11))) > alpha


@pytest.mark.parametrize("text", SPELLED)
def test_single_draws_have_the_law(text: str) -> None:
    alpha = purse.buy(f"cells: single {text}", TINY_ALPHA)
    noise, source = read_noise(text), SeededRng(12)
    assert worst(noise, np.array([noise.sample(rng=source) for _ in range(2000)])) > alpha


@pytest.mark.parametrize("text", SPELLED)
def test_the_reference_sampler_has_the_law(text: str) -> None:
    alpha = purse.buy(f"cells: reference {text}", TINY_ALPHA)
    noise, source = read_noise(text), SeededRng(13)
    assert worst(noise, np.array([noise.sample_reference(source) for _ in range(2000)])) > alpha


def two_percent_off(text: str) -> Noise:
    law, _, rest = text.partition(":")
    name, _, value = rest.partition("=")
    power = 2 if name == "sigma_squared" else 1
    return read_noise(f"{law}:{name}={Fraction(value) * Fraction(102, 100) ** power}")


def power_of(noise: Noise, mutant: Noise, trials: int, alpha: float) -> float:
    r"""A lower bound of the chance that the mutant is rejected: that of the best single cell."""
    rows, best = cells(noise), 0.0
    for (_, _, p), (_, _, q) in zip(rows, shifted_cells(noise, mutant), strict=True):
        least = stats.binom.ppf(alpha / len(rows) / 2, trials, p)
        most = stats.binom.isf(alpha / len(rows) / 2, trials, p)
        missed = stats.binom.cdf(most, trials, q) - stats.binom.cdf(least - 1, trials, q)
        best = max(best, 1 - float(missed))
    return best


def shifted_cells(noise: Noise, mutant: Noise) -> list[Cell]:
    r"""The cells of ``noise`` with the probabilities of ``mutant``."""
    found = []
    for label, inside, _ in cells(noise):
        kind, _, text = label.rpartition(" ")
        k = 0 if text == "even" else int(text)
        chance = {
            "X <=": lambda k=k: float(mutant.enclose_cdf(k, 64).upper),
            "|X| >": lambda k=k: mutant.tail(k),
            "X =": lambda k=k: float(mutant.enclose_pmf(k, 64).upper),
            "X": lambda: even(mutant),
        }[kind]
        found.append((label, inside, chance()))
    return found


# The tiny parameter of each law gives too few values beside 0 for so small a change.
WIDE_ENOUGH = [f"{law}:{parameters}" for law, rows in EXAMPLES.items() for parameters in rows[1:]]


@pytest.mark.parametrize("text", WIDE_ENOUGH)
def test_two_percent_of_scale_are_seen(text: str) -> None:
    noise, mutant = read_noise(text), two_percent_off(text)
    assert power_of(noise, mutant, DRAWN, 1e-9) > 0.999
    assert worst(noise, mutant.sample(DRAWN, rng=SeededRng(11))) < 1e-9


@pytest.mark.parametrize(
    ("text", "trials"),
    [
        ("discrete-laplace:scale=10", 3000),
        ("discrete-laplace:scale=10", DRAWN),
        ("discrete-gaussian:sigma_squared=400", 6000),
        ("discrete-gaussian:sigma_squared=400", DRAWN),
    ],
)
def test_a_doubled_zero_is_seen(text: str, trials: int) -> None:
    # What a sampler does that does not reject the pair (-, 0): zero has twice its mass.
    noise = read_noise(text)
    zero = float(noise.enclose_pmf(0).upper)
    doubled = 2 * zero / (1 + zero)
    most = stats.binom.isf(1e-9 / len(cells(noise)) / 2, trials, zero)
    assert stats.binom.sf(most, trials, doubled) > 0.99
    drawn = noise.sample(trials, rng=SeededRng(11))
    again = np.random.default_rng(1).random(trials) < zero / (1 + zero)
    assert worst(noise, np.where(again, 0, drawn)) < 1e-9


def test_a_draw_from_the_system_has_the_law_roughly() -> None:
    # Not seeded, so it asks only what fails with chance below 10^-300: half lies on either side.
    noise = dpcore.DiscreteLaplace(scale=1000)
    for drawn in (noise.sample(4000), np.array([noise.sample() for _ in range(4000)])):
        assert 1000 < np.count_nonzero(drawn > 0) < 3000
        assert abs(drawn).max() < 10**6


def test_the_public_list_is_what_the_package_offers() -> None:
    assert sorted(dpcore.__all__) == list(dpcore.__all__)
    assert all(hasattr(dpcore, name) for name in dpcore.__all__)
    assert {law.__name__ for law in LAWS.values()} <= set(dpcore.__all__)
    assert all(inspect.getdoc(getattr(dpcore, name)) for name in dpcore.__all__)
