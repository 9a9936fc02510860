r"""Arms from a learning-to-rank data set, as Chowdhury and Zhou take them from MSLR-WEB10K.

A line of the LETOR text format is a query-url pair: ``2 qid:10 1:3 2:0.5 ... 136:0``, a relevance
0 to 4 first. k-means on the 136 features, as they are, makes K = 50 clusters; each is an arm, whose
rewards are the relevances of its pairs over 4. Microsoft distributes the data; nothing of it is
here.
"""

from __future__ import annotations

import math
import warnings
from codecs import BOM_UTF8
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from bandits.worlds.cz import CZ_ALGORITHMS
from bandits.worlds.environment import Table
from bandits.worlds.preset import FromFile, Preset
from dpcore.command.input_file import require_plain
from dpcore.errors import InvalidParameter
from dpcore.numbers.parameter import integer

__all__ = ["FEATURES", "MSLR", "letor_arms"]

FEATURES: Final = 136
_ARMS: Final = 50
_MOST_RELEVANT: Final = 4
_SEED: Final = 0
_DIGITS: Final = 40
_LARGEST: Final = float(np.finfo(np.float32).max)


def letor_arms(data: Path | Sequence[Path], arms: int | None = _ARMS) -> Table:
    r"""The clusters of the pairs of a file, or of several, as arms in rising order of mean reward.

    The 1,200,192 pairs of the paper are the train, vali and test files of one fold together. That
    a reward is relevance/4 is our choice, which takes the relevances to [0, 1]: the paper does not
    say. k-means starts from one fixed seed and runs on one thread: the same files in the same order
    give the same arms again.

    Raises :class:`InvalidParameter` for what is no plain file or cannot be read, the first line
    that is not of the format, without a query, with a feature that is no finite number or a
    relevance other than 0, 1, 2, 3, 4, fewer than ``arms`` different pairs, and where scikit-learn
    is not installed.
    """
    wanted = _ARMS if arms is None else integer("arms", arms, at_least=1)
    paths = (data,) if isinstance(data, Path) else tuple(data)
    if not paths:
        raise InvalidParameter("data", (), "must name one file or more")
    read = [_read(path) for path in paths]
    features, relevance = (np.concatenate(parts) for parts in zip(*read, strict=True))
    named = ", ".join(map(str, paths))
    if len(relevance) < wanted:
        reason = f"holds {len(relevance)} pairs: too few for {wanted} clusters"
        raise InvalidParameter("data", named, reason)
    labels = _clusters(features, wanted)
    if len(np.unique(labels)) < wanted:
        reason = f"holds fewer than {wanted} different pairs: too few for as many clusters"
        raise InvalidParameter("data", named, reason)
    rewards = [relevance[labels == label] / _MOST_RELEVANT for label in range(wanted)]
    return Table(rewards=sorted(rewards, key=_mean_and_size))


def _mean_and_size(rewards: Any) -> tuple[float, int]:
    return float(rewards.mean()), len(rewards)


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
            with np.errstate(all="ignore"):  # what overflows is refused below
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
    return InvalidParameter("data", str(path), f"is not LETOR text of {FEATURES} features {why}")


def _bad(path: Path) -> InvalidParameter | None:
    # The first line that is wrong, found by a slower reader, for the message.
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
    # What is wrong with a line, in words; a blank line or a comment is none.
    words = line.partition(b"#")[0].split()
    if not words:
        return None
    if _number(words[0]) not in range(_MOST_RELEVANT + 1):
        return f"a relevance of {_shown(words[0])}: it must be 0, 1, 2, 3 or 4"
    if len(words) < 2 or not words[1].startswith(b"qid:") or not words[1][4:].isdigit():
        return "no qid:NUMBER after the relevance"
    before = 0
    for word in words[2:]:
        index, colon, value = word.partition(b":")
        if not colon or not index.isdigit() or len(index) > _DIGITS:
            return f"{_shown(word)} is no FEATURE:VALUE"
        if not before < int(index) <= FEATURES:
            return f"feature {int(index)} must rise, from 1 to {FEATURES}"
        if not abs(_number(value)) <= _LARGEST:
            return f"feature {int(index)} is {_shown(value)}: it must be a finite number"
        before = int(index)
    return None


def _number(word: bytes) -> float:
    try:
        return float(word)
    except ValueError:
        return math.nan


def _shown(word: bytes) -> str:
    return ascii(word[:_DIGITS].decode("latin-1"))[1:-1]


def _clusters(features: Any, arms: int) -> Any:
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]  # it has no types

    # Several threads add up in whatever order they finish.
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")  # too few different points: the caller refuses them
        return KMeans(n_clusters=arms, n_init=1, random_state=_SEED).fit_predict(features)


MSLR: Final = Preset(
    name="cz/mslr",
    sentence="50 arms: clusters of MSLR-WEB10K, rewards relevance/4, our choice (--data FILE ...)",
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
