r"""A query on a table as a target: a dataset is a table, and an output is the released answer.

    release:count,rows_per_user=2,epsilon=1
    release:histogram,keys=a/b/c,rows_per_user=2,relation=replace,epsilon=1
    release:mean,low=0,high=10,step=1,epsilon=1,delta=1e-6

The first word is a query of ``accounting.queries`` over the column ``value``. ``keys`` are
separated by slashes, several quantiles ``q`` by spaces, and ``count`` is an argument of ``top``. A
dataset is a list of rows [user, value], or of users for a count.

The pair is a worst case for the query's sensitivity. In one dataset, all rows of one user have the
value at one bound of the range, or the same key. The other dataset contains no rows of the user, or
rows with the opposite bound or another key. If ``keys`` are not given, the user's rows have keys
that no other user has, and the numbers of rows that are most likely to be released. Additive noise
has a known law, so the exact layer proves or refutes the claim.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, Final

from accounting.composition.partition_selection_guarantee import most_exposed
from accounting.queries import count_sum_mean_quantile as queries
from accounting.queries.count_sum_mean_quantile import Query, Target
from accounting.queries.release_answer import epsilon_at, plan
from accounting.queries.table_with_rows_per_user import Table, TableScope
from audit.targets.local_and_selection import has_law, law_of
from audit.targets.target import Catalogued, Known, Law, Shifted, read_words, typed
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Mechanism, Relation
from dpcore.sampling.rng import Rng, SeededRng
from dpcore.selection import NoisyThreshold, Selection

_KINDS: Final = {
    each.name: each
    for each in (
        queries.Count,
        queries.Sum,
        queries.Mean,
        queries.Histogram,
        queries.Quantile,
        queries.TopK,
    )
}
_PRICES: Final = ("epsilon", "rho", "delta")
_SCOPES: Final = ("rows_per_user", "relation")
_FIELDS: Final = ("low", "high", "step", "q", "keys", "count")


def read_release(spelling: str, words: str, *, seeded: bool = True) -> Catalogued:
    r"""Build the target that the text ``words`` after "release:" describes."""
    name = words.partition(",")[0].strip()
    kind = _KINDS.get(name, queries.Count)  # unknown names are refused below
    own = [each for each in _FIELDS if each in kind.__dataclass_fields__]
    keys, whole = (*_PRICES, *_SCOPES, *own), ("rows_per_user", "count")
    _, given = read_words(spelling, words, keys, names=_KINDS, owner=f"a {name}", whole=whole)
    price = Target(**{each: given.pop(each) for each in _PRICES if each in given})
    scope = TableScope(
        user="user",
        rows_per_user=given.pop("rows_per_user", 1),
        relation=given.pop("relation", Relation.ADD_REMOVE),
    )
    if "keys" in given:
        given["keys"] = tuple(given["keys"].split("/"))
    if "q" in given:
        given["q"] = tuple(given["q"].split())
    if "column" in kind.__dataclass_fields__:
        given["column"] = "value"
    return target_of(kind(**given), scope, price, spelling=spelling, seeded=seeded)


def target_of(
    query: Query, scope: TableScope, price: Target, *, spelling: str, seeded: bool = True
) -> Catalogued:
    r"""Build a target that releases ``query``, and claims the guarantee that accounting derives."""
    planned = plan(query, scope, price)
    mechanism, parameters = planned.mechanism, planned.privacy_parameters()
    delta = Fraction(parameters.get("delta", 0))
    if "epsilon" not in parameters:
        delta = delta or _DELTA
        parameters["epsilon"] = epsilon_at(planned.guarantee, delta)
    epsilon, delta = (_rounded_up(each) for each in (parameters["epsilon"], delta))

    def run(dataset: Any, n: int, rng: Rng) -> list[Any]:
        value = query.encode(_table(dataset), scope, rng)
        found: list[Any] = [mechanism.release(value, rng=rng) for _ in range(n)]
        if isinstance(mechanism, NoisyThreshold):
            # The total released count of the keys that only one user has; 0 if none is released.
            return [sum(n for key, n in each.items() if key.startswith(_OWN)) for each in found]
        if isinstance(mechanism, Selection) and mechanism.count > 1:
            return [tuple(each.tolist()) for each in found]
        return found

    if isinstance(mechanism, NoisyThreshold):
        worst = _exposed(mechanism, scope.rows_per_user)
    else:
        worst = _worst(query, scope)
    claimed: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "relation": scope.relation}

    def encoded(dataset: Any) -> Any:
        # The exact answers to which noise is added, or the scores.
        found = query.encode(_table(dataset), scope, SeededRng(0))
        return found if isinstance(found, int) else tuple(found.tolist())

    def listed(dataset: Any) -> Law:
        assert isinstance(mechanism, Selection)  # noqa: S101  # chosen below
        return law_of(mechanism, encoded(dataset), dataset)

    noise, law = None, listed
    if isinstance(mechanism, Mechanism):
        noise, law = mechanism.noise, lambda dataset: Shifted(mechanism.noise, encoded(dataset))
    elif not isinstance(mechanism, Selection) or not all(
        has_law(mechanism, encoded(each)) for each in worst
    ):
        return Catalogued.of(spelling, run, seeded=seeded, pair=worst, **claimed)
    own = {
        "laws": lambda pair: (law(pair[0]), law(pair[1])),
        "noise": noise,
        "about": f", of the {query.name} of these rows",
    }
    return Known.of(spelling, run, seeded=seeded, own=own, pair=worst, **claimed)


_OWN: Final = "own"
_DELTA: Final = Fraction(1, 10**6)
_GRID: Final = 10**9


def _rounded_up(number: Fraction) -> Fraction:
    return Fraction(math.ceil(number * _GRID), _GRID)


def _exposed(mechanism: NoisyThreshold, rows: int) -> tuple[list[Any], list[Any]]:
    # Two datasets: without and with rows in keys that only one user has, where the counts are those
    # that are most likely to be released.
    counts = most_exposed(mechanism.mechanism.noise, mechanism.threshold, rows)
    own = [["ada", f"{_OWN}{at}"] for at, count in enumerate(counts) for _ in range(count)]
    return [["eve", "other"]], [["eve", "other"], *own]


def _worst(query: Query, scope: TableScope) -> tuple[list[Any], list[Any]]:
    low: Any
    high: Any
    match query:
        case queries.Histogram(keys=keys) | queries.TopK(keys=keys):
            assert keys is not None  # noqa: S101  # without keys a threshold releases them
            low, high = keys[-1], keys[0]
        case queries.Clipped():
            low, high = (typed(end * query.unit) for end in query.ends)
            if isinstance(query, queries.Sum) and abs(query.ends[0]) > abs(query.ends[1]):
                low, high = high, low
        case _:
            low, high = 0, 1
    rest = [["eve", low]]
    rows = scope.rows_per_user
    others = [["ada", low]] * rows if scope.relation is Relation.REPLACE else []
    if isinstance(query, queries.Count):
        others = []  # the count changes most without these rows
    elif isinstance(query, queries.Sum) and scope.relation is Relation.REPLACE:
        # A sum changes most if the rows move to the other end of the range or, if both ends have
        # the same sign, if they are removed.
        others = others if query.ends[0] < 0 < query.ends[1] else []
    return [*rest, *others], [*rest, *([["ada", high]] * rows)]


def _table(dataset: Any) -> Table:
    import polars as pl

    if not isinstance(dataset, list):
        raise InvalidParameter("dataset", dataset, "must be a list of rows [user, value]")
    rows = [row if isinstance(row, list) else [row, None] for row in dataset]
    if any(len(row) != 2 for row in rows):
        raise InvalidParameter("dataset", dataset, "must contain rows [user, value]")
    columns = {
        "user": [None if row[0] is None else str(row[0]) for row in rows],
        "value": [None if row[1] is None else _decimal(row[1]) for row in rows],
    }
    frame = pl.DataFrame(columns, schema={"user": pl.String, "value": pl.String})
    return Table.of(frame, "dataset")


def _decimal(value: Any) -> str:
    # Convert a fraction in a pair, such as 1/4, to a number for the table.
    text = str(value)
    return str(float(Fraction(text))) if "/" in text and text.replace("/", "").isdigit() else text
