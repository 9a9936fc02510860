r"""Arms from a learning-to-rank data set, as Chowdhury and Zhou take them from MSLR-WEB10K.

A line of the LETOR text format is a query-url pair: ``2 qid:10 1:3 2:0.5 ... 136:0``, a relevance
0 to 4 first. k-means on the 136 features, as they are, makes K = 50 clusters; each is an arm, whose
rewards are the relevances of its pairs over 4. Microsoft distributes the data; nothing of it is
here.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, Final

import numpy as np

from bandits.environment import Table
from bandits.presets.cz import CZ_ALGORITHMS
from bandits.presets.preset import FromFile, Preset
from dpcore.errors import InvalidParameter
from dpcore.parameter import integer

__all__ = ["FEATURES", "MSLR", "letor_arms"]

FEATURES: Final = 136
_ARMS: Final = 50
_MOST_RELEVANT: Final = 4
_SEED: Final = 0


def letor_arms(path: Path, arms: int | None = _ARMS) -> Table:
    r"""The clusters of the file's pairs as arms, in rising order of mean reward.

    k-means starts from one fixed seed and runs on one thread: a file gives the same arms again.

    Raises :class:`InvalidParameter` for a file that cannot be read, a line that is not of the
    format, a relevance other than 0, 1, 2, 3, 4, fewer than ``arms`` different pairs, and where
    scikit-learn is not installed.
    """
    wanted = _ARMS if arms is None else integer("arms", arms, at_least=1)
    features, relevance = _read(path)
    if len(relevance) < wanted:
        reason = f"holds {len(relevance)} pairs: too few for {wanted} clusters"
        raise InvalidParameter("data", str(path), reason)
    labels = _clusters(features, wanted)
    if len(np.unique(labels)) < wanted:
        reason = f"holds fewer than {wanted} different pairs: too few for as many clusters"
        raise InvalidParameter("data", str(path), reason)
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
    try:
        features, relevance, _ = load_svmlight_file(
            str(path), n_features=FEATURES, zero_based=False, query_id=True, dtype=np.float32
        )
    except OSError as error:
        raise InvalidParameter("data", str(path), error.strerror or str(error)) from None
    except (ValueError, OverflowError, IndexError) as error:
        reason = f"is not LETOR text of {FEATURES} features ({error})"
        raise InvalidParameter("data", str(path), reason) from None
    wrong = relevance[~np.isin(relevance, range(_MOST_RELEVANT + 1))]
    if len(wrong):
        reason = f"holds a relevance of {wrong[0]:g}: it must be 0, 1, 2, 3 or 4"
        raise InvalidParameter("data", str(path), reason)
    return features.toarray(), relevance


def _clusters(features: Any, arms: int) -> Any:
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]  # it has no types

    # Several threads add up in whatever order they finish.
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")  # too few different points: the caller refuses them
        return KMeans(n_clusters=arms, n_init=1, random_state=_SEED).fit_predict(features)


MSLR: Final = Preset(
    name="cz/mslr",
    sentence="50 arms: clusters of MSLR-WEB10K, rewards relevance/4 (--data FILE)",
    source=FromFile(
        read=letor_arms,
        wanted="--data FILE: MSLR-WEB10K as LETOR text, e.g. train.txt of a fold",
    ),
    algorithms=CZ_ALGORITHMS,
    epsilons=("1", "5", "10"),
    horizon=10**6,
    schedule="released",
    arms=_ARMS,
)
