"""Releases of tables, records and text; the correct twin of each fault is next to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from audit import declare
from dpcore import DiscreteLaplace

NOISE = DiscreteLaplace(scale=1)
DAYS = ("mon", "tue", "wed")


def _counts(rows: list[list[Any]]) -> dict[str, int]:
    return {day: sum(row[0] == day for row in rows) for day in DAYS}


# -- DataFrames: rows are [day, amount] -------------------------------------------------------


def by_day(rows: list[list[Any]], rng: np.random.Generator) -> Any:
    """The correct twin of the next ones: all days, also days without visits."""
    noisy = {day: count + rng.laplace() for day, count in _counts(rows).items()}
    frame = pd.DataFrame({"day": list(noisy), "visits": list(noisy.values())})
    return frame.set_index("day")


def only_days_that_occur(rows: list[list[Any]], rng: np.random.Generator) -> Any:
    """A row for each day in the data, as groupby creates."""
    frame = pd.DataFrame(rows, columns=["day", "amount"]).groupby("day")["amount"].count()
    return frame.astype(float) + rng.laplace(size=len(frame))


def index_of_the_data(rows: list[list[Any]], rng: np.random.Generator) -> Any:
    """The same number of rows, with the index labels of the data, as after sort_values."""
    frame = pd.DataFrame(rows, columns=["day", "amount"]).sort_values("amount")
    frame["amount"] = rng.laplace(size=len(frame))
    return frame[["amount"]]


def index_forgotten(rows: list[list[Any]], rng: np.random.Generator) -> Any:
    return index_of_the_data(rows, rng).reset_index(drop=True)


def exact_beside_noise(rows: list[list[Any]], rng: np.random.Generator) -> Any:
    """One column is noisy, the other is exact."""
    counts = _counts(rows)
    noisy = [count + rng.laplace() for count in counts.values()]
    return pd.DataFrame({"visits": noisy, "days": [len(rows)] * len(noisy)})


# -- arrays -----------------------------------------------------------------------------------


def array_type(amounts: list[float], rng: np.random.Generator) -> Any:
    return np.zeros_like(np.array(amounts)) + int(rng.integers(9))


def array_type_fixed(amounts: list[float], rng: np.random.Generator) -> Any:
    return np.zeros_like(np.array(amounts), dtype=float) + int(rng.integers(9))


def mean_with_nan(amounts: list[float], rng: np.random.Generator) -> Any:
    """A record that is nan makes every answer nan."""
    return np.array([np.mean(amounts) + rng.laplace(), rng.laplace()])


def mean_without_nan(amounts: list[float], rng: np.random.Generator) -> Any:
    return np.array([np.nanmean(amounts) + rng.laplace(), rng.laplace()])


# -- records and text -------------------------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    total: float
    people: int


def record(amounts: list[int], rng: np.random.Generator) -> Answer:
    """Exact size beside a noisy total."""
    return Answer(total=sum(amounts) + rng.laplace(), people=len(amounts))


def noisy_record(amounts: list[int], rng: np.random.Generator) -> Answer:
    return Answer(total=sum(amounts) + rng.laplace(), people=len(amounts) + NOISE.sample())


def names_known(names: list[str]) -> dict[str, Any]:
    return {"visits": {name: (name in names) + NOISE.sample() for name in ("ada", "ben", "eve")}}


def told(names: list[str]) -> str:
    """Text that names a person."""
    return f"{len(names) + NOISE.sample()} visitors, the first is {min(names)}"


def told_in_words(names: list[str]) -> str:
    return f"{len(names) + NOISE.sample()} visitors"


def told_unclipped(amounts: list[int]) -> str:
    return f"total: {sum(amounts) + NOISE.sample()} euros"


# -- errors -------------------------------------------------------------------------------------


def fails_on_data(amounts: list[int]) -> int:
    if max(amounts) > 100:
        raise ValueError("an amount is too large")
    return sum(amounts) + NOISE.sample()


def clips(amounts: list[int]) -> int:
    return sum(min(amount, 100) for amount in amounts) + NOISE.sample()


def fails_with_the_data(names: list[str], rng: np.random.Generator) -> int:
    if rng.random() < 0.5:
        raise KeyError(min(names))
    return len(names) + NOISE.sample()


def fails_in_fixed_words(names: list[str], rng: np.random.Generator) -> int:
    if rng.random() < 0.5:
        raise KeyError("no answer")
    return len(names) + NOISE.sample()


# -- declared values ----------------------------------------------------------------------------


def declares_clipped(amounts: list[int]) -> int:
    top = declare(10, "clipping bound")
    total = declare(sum(min(x, top) for x in amounts), "clipped sum", sensitivity=10)
    return total + DiscreteLaplace(scale=10).sample()


def declares_the_largest(amounts: list[int]) -> int:
    """The declared bound depends on the data; the noise is correct."""
    top = declare(max(amounts), "clipping bound")
    return sum(min(x, top) for x in amounts) + DiscreteLaplace(scale=100).sample()


def declares_unclipped(amounts: list[int]) -> int:
    total = declare(sum(amounts), "clipped sum", sensitivity=10)
    return total + DiscreteLaplace(scale=10).sample()
