r"""Worlds of independent arms: simulated worlds, user tables, and two data sets.

``cz/easy`` and ``cz/hard`` follow the code released with Chowdhury and Zhou: K = 10 arms with
rewards Normal(mean, 0.1^2) clipped to [0, 1]. Instance i has means gap u + (1 - gap)/2, where u is
uniform and drawn from numpy's legacy generator with seed i; the gap is 0.5 (easy) or 0.1 (hard).
There are 20 instances, and batches grow by a factor of 4. docs/errata.md states the source.
``tkms/binary`` is for the shuffled bits of Tenenbaum and others, whose paper has no experiments:
its rewards are 0 or 1 with the means of ``cz/easy``.

``own`` is a CSV file whose columns are arms and whose rows are rewards in [0, 1]. Rewards are drawn
with replacement, independently for each arm from its own column. A first row without numbers
contains the names of the arms.

``obd`` is a log of impressions of the items in a fashion shop, with columns ``item_id`` and
``click`` (0 or 1) among others. Each item is an arm with binary rewards, whose mean is its logged
click rate. Positions and users are pooled: the rates are those in the log, not those of items shown
to all users.

``cz/mslr`` takes arms from a learning-to-rank data set, as Chowdhury and Zhou do from MSLR-WEB10K.
A line of the LETOR text format is a query-URL pair, e.g. ``2 qid:10 1:3 2:0.5 ... 136:0``. The
first number is its relevance, from 0 to 4. k-means on the unscaled 136 features gives K = 50
clusters. Each cluster is an arm, whose rewards are the relevances of the cluster's pairs, divided
by 4. Microsoft distributes the data; it is not included here.
"""

from __future__ import annotations

import math
import warnings
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import numpy as np

from bandits.worlds.arm_environments import Bernoulli, Table, cz_instance
from bandits.worlds.preset import FromFile, Preset
from dpcore.cli.files import csv_rows, require_plain
from dpcore.errors import InvalidParameter
from dpcore.numbers.parameter import integer, rational

CZ_ALGORITHMS: Final = (
    "cdp-se",
    "ldp-se",
    "dist-dp-se",
    "dist-rdp-se",
    "dist-cdp-se",
    "dp-se",
    "se",
)
r"""The algorithms of the paper's figures, and elimination without privacy as the baseline."""


EASY: Final = Preset(
    name="cz/easy",
    sentence="10 arms, means uniform in [0.25, 0.75], normal rewards clipped to [0, 1]",
    source=lambda seed, arms: cz_instance("0.5", seed, arms=arms),
    algorithms=CZ_ALGORITHMS,
    epsilons=("0.1", "0.5", "1"),
    horizon=10**6,
    schedule="released",
    arms=10,
)

HARD: Final = replace(
    EASY,
    name="cz/hard",
    sentence="10 arms, means uniform in [0.45, 0.55], normal rewards clipped to [0, 1]",
    source=lambda seed, arms: cz_instance("0.1", seed, arms=arms),
    horizon=10**7,
)


def binary_instance(seed: int, arms: int = 10) -> Bernoulli:
    r"""Create Bernoulli arms whose means are the centers of ``cz_instance("0.5", seed)``."""
    return Bernoulli(means=cz_instance("0.5", seed, arms=arms).centers)


BINARY: Final = Preset(
    name="tkms/binary",
    sentence="10 arms, rewards 0 or 1, means uniform in [0.25, 0.75]",
    source=binary_instance,
    algorithms=("sdp-ae", "vb-sdp-ae", "dist-dp-se", "se"),
    epsilons=("0.1", "0.5", "1"),
    horizon=10**6,
    arms=10,
)


def table_arms(path: Path, arms: int | None = None) -> Table:
    r"""Read a table of rewards with one arm per column; values are exact rationals."""
    columns: list[list[Fraction]] = []
    for line, row in _rows(path):
        columns = columns or [[] for _ in row]
        for number, (column, cell) in enumerate(zip(columns, row, strict=True), start=1):
            value = _number(cell)
            if value is None or not 0 <= value <= 1:
                reason = f"line {line}, column {number}: {cell[:40]!a} is not a reward in [0, 1]"
                raise InvalidParameter("data", str(path), reason)
            column.append(value)
    if not columns:
        raise InvalidParameter("data", str(path), "contains no rows of rewards")
    if arms is not None and len(columns) != arms:
        reason = f"must be {len(columns)}, the number of columns in the file"
        raise InvalidParameter("arms", arms, reason)
    return Table(rewards=columns)


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    width = 0
    for line, row in csv_rows("data", path):
        names = not width and all(cell.strip() and _number(cell) is None for cell in row)
        width = width or len(row)
        if len(row) != width:
            reason = f"line {line} has {len(row)} cells, but the first line has {width}"
            raise InvalidParameter("data", str(path), reason)
        if not names:
            yield line, row


def _number(cell: str) -> Fraction | None:
    # NaN and infinity are invalid rewards, not names of arms.
    if cell.strip().lower().lstrip("+-") in ("nan", "inf", "infinity"):
        return Fraction(-1)
    try:
        return rational("data", cell.strip())
    except InvalidParameter:
        return None


OWN: Final = Preset(
    name="own",
    sentence="your own table of rewards in [0, 1], one arm per column (--rewards FILE)",
    source=FromFile(
        read=table_arms,
        wanted="--rewards FILE: a CSV whose columns are arms and whose rows are rewards in [0, 1]",
    ),
    algorithms=CZ_ALGORITHMS,
    epsilons=("0.5", "1"),
    horizon=10**5,
    arms=None,
)


_COLUMNS: Final = ("item_id", "click")
_CLICKS: Final = {"0": 0, "1": 1, "0.0": 0, "1.0": 1}


def obd_arms(path: Path, arms: int | None = None) -> Bernoulli:
    r"""Read one arm per item, ordered by ``item_id``; the mean of an arm is its click rate."""
    counts: Counter[int] = Counter()
    clicked: Counter[int] = Counter()
    for item, click in _obd_rows(path):
        counts[item] += 1
        clicked[item] += click
    if not counts:
        raise InvalidParameter("data", str(path), "contains no rows")
    if arms is not None and len(counts) != arms:
        raise InvalidParameter(
            "arms", arms, f"must be {len(counts)}, the number of items in the file"
        )
    return Bernoulli(means=[Fraction(clicked[item], counts[item]) for item in sorted(counts)])


def _obd_rows(path: Path) -> Iterator[tuple[int, int]]:
    rows = csv_rows("data", path)
    _, header = next(rows, (0, []))
    missing = [name for name in _COLUMNS if name not in header]
    if missing:
        reason = f"has no column {missing[0]}: it must be a CSV of the Open Bandit Dataset"
        raise InvalidParameter("data", str(path), reason)
    item, click = (header.index(name) for name in _COLUMNS)
    for line, row in rows:
        try:
            if not row[item].isdecimal():
                raise ValueError(row[item])
            yield int(row[item]), _CLICKS[row[click]]
        except (ValueError, KeyError, IndexError):
            reason = f"line {line} must contain an item number and a click, 0 or 1"
            raise InvalidParameter("data", str(path), reason) from None


OBD: Final = Preset(
    name="obd",
    sentence="the Open Bandit Dataset, one arm per item, rewards are clicks (--data FILE)",
    source=FromFile(
        read=obd_arms,
        wanted="--data FILE: a CSV of the Open Bandit Dataset, e.g. random/all/all.csv",
    ),
    algorithms=("sdp-ae", "vb-sdp-ae", "dist-dp-se", "se"),
    epsilons=("0.5", "1", "5"),
    horizon=10**6,
    arms=None,
)


FEATURES: Final = 136
_ARMS: Final = 50
_MOST_RELEVANT: Final = 4
_SEED: Final = 0
_DIGITS: Final = 40
_LARGEST: Final = float(np.finfo(np.float32).max)


def letor_arms(data: Path | Sequence[Path], arms: int | None = _ARMS) -> Table:
    r"""Cluster the query-URL pairs in the files into arms, in increasing order of mean reward.

    The 1,200,192 pairs of the paper are the train, vali and test files of one fold together. A
    reward is relevance/4, in [0, 1]; the paper does not state the scaling. k-means has a fixed seed
    and runs on one thread, so the same files in the same order give the same arms.
    """
    wanted = _ARMS if arms is None else integer("arms", arms, at_least=1)
    paths = (data,) if isinstance(data, Path) else tuple(data)
    if not paths:
        raise InvalidParameter("data", (), "must contain at least one file")
    read = [_read(path) for path in paths]
    features, relevance = (np.concatenate(parts) for parts in zip(*read, strict=True))
    named = ", ".join(map(str, paths))
    if len(relevance) < wanted:
        reason = f"contains {len(relevance)} pairs, too few for {wanted} clusters"
        raise InvalidParameter("data", named, reason)
    labels = _clusters(features, wanted)
    if len(np.unique(labels)) < wanted:
        reason = f"contains fewer than {wanted} distinct pairs, too few for {wanted} clusters"
        raise InvalidParameter("data", named, reason)
    rewards = [relevance[labels == label] / _MOST_RELEVANT for label in range(wanted)]
    rewards.sort(key=lambda own: (float(own.mean()), len(own)))
    return Table(rewards=rewards)


def _read(path: Path) -> tuple[Any, Any]:
    try:
        from sklearn.datasets import load_svmlight_file
    except ImportError:
        reason = "needs scikit-learn: pip install 'dpcore[bandits]'"
        raise InvalidParameter("preset", MSLR.name, reason) from None
    require_plain("data", path)
    try:
        with path.open("rb") as file:
            if file.read(len(BOM_UTF8)) != BOM_UTF8:
                file.seek(0)
            with np.errstate(all="ignore"):  # overflows raise an error below
                features, relevance, queries = load_svmlight_file(
                    file, n_features=FEATURES, zero_based=False, query_id=True, dtype=np.float32
                )
    except OSError as error:
        raise InvalidParameter("data", str(path), error.strerror or str(error)) from None
    except (ValueError, OverflowError, IndexError) as error:
        raise _bad(path) or _refused(path, f"({error})") from None
    whole = len(queries) == len(relevance) and bool(np.isfinite(features.data).all())
    if not whole or not np.isin(relevance, range(_MOST_RELEVANT + 1)).all():
        raise _bad(path) or _refused(path, "(a line without a query or a number)")
    return features.toarray(), relevance


def _refused(path: Path, why: str) -> InvalidParameter:
    return InvalidParameter("data", str(path), f"is not LETOR text with {FEATURES} features {why}")


def _bad(path: Path) -> InvalidParameter | None:
    # Finds the first invalid line with a slower reader, for the error message.
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                wrong = _wrong(line.removeprefix(BOM_UTF8) if number == 1 else line)
                if wrong:
                    return _refused(path, f"(line {number:,}: {wrong})")
    except OSError as error:
        return InvalidParameter("data", str(path), error.strerror or str(error))
    return None


def _wrong(line: bytes) -> str | None:
    # Describes the error in a line; returns None for valid lines, blank lines and comments.
    words = line.partition(b"#")[0].split()
    if not words:
        return None
    if _float(words[0]) not in range(_MOST_RELEVANT + 1):
        return f"a relevance of {_printable(words[0])}: it must be 0, 1, 2, 3 or 4"
    if len(words) < 2 or not words[1].startswith(b"qid:") or not words[1][4:].isdigit():
        return "no qid:NUMBER after the relevance"
    before = 0
    for word in words[2:]:
        index, colon, value = word.partition(b":")
        if not colon or not index.isdigit() or len(index) > _DIGITS:
            return f"{_printable(word)} is not of the form FEATURE:VALUE"
        if not before < int(index) <= FEATURES:
            return f"features must increase from 1 to {FEATURES}, but feature {int(index)} does not"
        if not abs(_float(value)) <= _LARGEST:
            return f"feature {int(index)} is {_printable(value)}: it must be a finite number"
        before = int(index)
    return None


def _float(word: bytes) -> float:
    try:
        return float(word)
    except ValueError:
        return math.nan


def _printable(word: bytes) -> str:
    return ascii(word[:_DIGITS].decode("latin-1"))[1:-1]


def _clusters(features: Any, arms: int) -> Any:
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]  # it has no types

    # With several threads the order of sums would not be fixed.
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")  # too few distinct points: the caller raises an error
        return KMeans(n_clusters=arms, n_init=1, random_state=_SEED).fit_predict(features)


MSLR: Final = Preset(
    name="cz/mslr",
    sentence="50 arms: clusters of MSLR-WEB10K, rewards relevance/4 (--data FILE ...)",
    source=FromFile(
        read=letor_arms,
        wanted="--data FILE: MSLR-WEB10K as LETOR text, e.g. train.txt of a fold; repeatable",
        several=True,
    ),
    algorithms=CZ_ALGORITHMS,
    epsilons=("1", "5", "10"),
    horizon=10**6,
    schedule="released",
    arms=_ARMS,
)
