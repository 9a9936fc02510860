r"""The ``dpcore release`` commands: a private statistic of a CSV or Parquet file."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import typer

from accounting.cli import answers
from accounting.cli.composition_options import exactly_one, read_names, relation_option, whole
from dpcore.cli.options import (
    AsJson,
    argument,
    command_group,
    flag,
    named,
    option,
    share,
    with_fields,
)
from dpcore.cli.terminal import progress_bar, show
from dpcore.mechanism import Relation
from dpcore.numbers.enclosure import round_down, round_up
from dpcore.numbers.parameter import write_rational
from dpcore.numbers.rounding import down, exactly, up
from dpcore.sampling.rng import SYSTEM, SeededRng

if TYPE_CHECKING:
    from accounting.ledger import Ledger
    from accounting.queries.count_sum_mean_quantile import Query
    from accounting.queries.release_answer import Released

_SCHEMA: Final = "dpcore-release/1"
_MARGIN: Final = 16
_SHOWN: Final = 12
_FILE: Final = "The table: a .csv or .parquet file."

release = command_group(
    "release",
    help=(
        "Release a count, sum, mean, histogram, quantile or the top keys of a CSV or Parquet "
        "file.\n\n"
        "The sensitivity to one user follows from --rows-per-user and --relation. With "
        "--ledger the users are charged, and the released value is stored: a second call with the "
        "same --batch returns it and costs nothing.\n\n"
        "Exit code: 0 done; 1 a user has too little budget, and nobody was charged; 2 an invalid "
        "option or table; 3 the ledger is damaged."
    ),
    no_args_is_help=True,
)
plan = command_group(
    "plan",
    help=(
        "Show the noise, the standard error of the answer and the privacy cost; only the header of "
        "the table is read.\n\n"
        "Example: [bold]dpcore release plan sum visits.csv --column amount --clip 0 200 --user "
        "user_id --rho 0.01[/bold]"
    ),
    no_args_is_help=True,
)
release.add_typer(plan)


# -- the queries, with their options as written ----------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseOptions:
    r"""Options of every query: rows per user, target and ledger."""

    user: str = option("COLUMN", "The column with the user of each row.", default=...)
    rows_per_user: str = option(
        "K", "Count at most K rows of each user, chosen uniformly.", default="1"
    )
    relation: Relation | None = relation_option("the relation of the ledger, or add-remove")
    epsilon: str | None = option("EPSILON", "The epsilon of the release; pure DP without --delta.")
    rho: str | None = option("RHO", "Instead of --epsilon: the rho of zCDP, e.g. 0.01.")
    delta: str = option("DELTA", "With --epsilon: the delta of the guarantee.", default="0")
    ledger: str | None = option("URL", "The ledger to charge, e.g. year.db.", "--ledger", "--db")
    batch: str | None = option("NAME", "With --ledger: the name of the release.")
    users_file: str | None = option(
        "FILE",
        "File of users to charge, one name per line; under add-remove, list all invited users.",
    )
    confidence: str = option("LEVEL", "The level of intervals, e.g. 0.9 or 90%.", default="0.95")
    seed: str | None = option("N", "Seed: equal seeds give equal noise, which is NOT PRIVATE.")
    dry_run: bool = flag("Read only the header, and print the noise and the cost.", "--dry-run")

    def query(self, queries: Any) -> Any:
        r"""The query that these options describe; ``queries`` is the module of the queries."""
        raise NotImplementedError


class Count(ReleaseOptions):
    r"""Release the number of rows.

    Example: dpcore release count visits.csv --user user_id --rows-per-user 3 --epsilon 1/2
    """

    def query(self, queries: Any) -> Any:
        return queries.Count()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sum(ReleaseOptions):
    r"""Release the sum of a column.

    Example: dpcore release sum visits.csv --column amount --clip 0 200 --step 0.01 \
    --user user_id --rho 0.01
    """

    column: str = option("COLUMN", "The column of numbers.", default=...)
    clip: tuple[str, str] = option(
        "LOW HIGH", "Numbers are clipped to this public range.", default=...
    )
    step: str = option("STEP", "Numbers are rounded to multiples of this step.", default="1")

    def query(self, queries: Any) -> Any:
        return queries.Sum(**self._range())

    def _range(self) -> dict[str, str]:
        low, high = self.clip
        return {"column": self.column, "low": low, "high": high, "step": self.step}


class Mean(Sum):
    r"""Release the mean of a column: a noisy sum divided by a noisy count.

    Example: dpcore release mean visits.csv --column amount --clip 0 200 --user user_id --epsilon 1
    """

    def query(self, queries: Any) -> Any:
        return queries.Mean(**self._range())


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantile(Sum):
    r"""Release one or several quantiles of a column, chosen from a grid over its range.

    Example: dpcore release quantile visits.csv --column amount --clip 0 200 --step 1/2 -q 0.9 \
    --user user_id --epsilon 1/2
    """

    q: list[str] | None = option(
        "Q",
        "The quantile, e.g. 1/2 for the median; repeat it for several quantiles, in increasing "
        "order, which share the budget equally. (default: 1/2)",
        "-q",
    )

    def query(self, queries: Any) -> Any:
        return queries.Quantile(**self._range(), q=tuple(self.q or ["1/2"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram(ReleaseOptions):
    r"""Release the number of rows per key.

    Example: dpcore release histogram visits.csv --column city --keys cities.txt --user user_id \
    --rows-per-user 3 --epsilon 1
    """

    column: str = option("COLUMN", "The column of keys.", default=...)
    keys: str | None = option("FILE", "The keys to count, one per line; - reads standard input.")
    unknown_keys: bool = flag(
        "Release the keys whose noisy count reaches a threshold; needs --delta.", "--unknown-keys"
    )

    def query(self, queries: Any) -> Any:
        exactly_one("--keys", self.keys, "--unknown-keys", self.unknown_keys or None)
        keys = None if self.keys is None else tuple(read_names("--keys", self.keys, "key"))
        return queries.Histogram(column=self.column, keys=keys)


@dataclass(frozen=True, slots=True, kw_only=True)
class Top(ReleaseOptions):
    r"""Release the most frequent keys, in order, without their counts.

    Example: dpcore release top visits.csv --column city --keys cities.txt -k 3 --user user_id \
    --epsilon 1
    """

    column: str = option("COLUMN", "The column of keys.", default=...)
    keys: str = option("FILE", "The keys to choose from, one per line.", default=...)
    k: str = option("K", "Number of keys to choose.", "-k", default="1")

    def query(self, queries: Any) -> Any:
        keys = tuple(read_names("--keys", self.keys, "key"))
        return queries.TopK(column=self.column, keys=keys, count=whole("-k", self.k, 1))


def _register(kind: type[ReleaseOptions], *, dry: bool) -> None:
    def command(
        file: str = argument("FILE", _FILE), *, options: Any, as_json: AsJson = False
    ) -> None:
        _run(file, options, as_json=as_json, dry=dry or options.dry_run)

    text = kind.__doc__ or ""
    if dry:
        text = text.replace("Release ", "Plan a release of ", 1)
        text = text.replace("dpcore release ", "dpcore release plan ")
    command.__doc__ = text
    command.__annotations__["options"] = kind
    (plan if dry else release).command(kind.__name__.lower())(with_fields(command))


for _kind in (Count, Sum, Mean, Quantile, Histogram, Top):
    for _dry in (False, True):
        _register(_kind, dry=_dry)


# -- running and printing ---------------------------------------------------------------------

_OPTIONS: Final = {
    **dict.fromkeys(("low", "high", "clip"), "--clip"),
    **dict.fromkeys(("url", "budget"), "--ledger"),
    "q": "-q",
    "count": "-k",
    "users": "--users-file",
    "table": "FILE",
    "scope": "--relation",
}
_SAME: Final = (
    *("epsilon", "rho", "delta", "step", "batch", "seed", "keys", "column", "confidence", "user"),
    "rows_per_user",
)


def _run(file: str, options: ReleaseOptions, *, as_json: bool, dry: bool) -> None:
    from accounting import ledger
    from accounting.ledger.errors import BudgetExhausted
    from accounting.queries import count_sum_mean_quantile as queries
    from accounting.queries.release_answer import plan as planning
    from accounting.queries.release_answer import release as releasing
    from accounting.queries.table_with_rows_per_user import Table, TableScope

    path, url, seed = options.users_file, options.ledger, options.seed
    with named(*_SAME, **_OPTIONS), ExitStack() as stack:
        query = options.query(queries)
        target = queries.Target(epsilon=options.epsilon, rho=options.rho, delta=options.delta)
        users = None if path is None else read_names("--users-file", path, "user")
        book = None if url is None else stack.enter_context(ledger.Ledger.open(url))
        table = Table.open(file)
        usual = Relation.ADD_REMOVE if book is None else book.budget.scope.relation
        scope = TableScope(
            user=options.user,
            rows_per_user=whole("--rows-per-user", options.rows_per_user, 1),
            relation=options.relation or usual,
        )
        table.require(scope.user, argument="user")
        table.require(*query.columns)
        charge: _Charge | None = None
        if dry:
            found = planning(query, scope, target)
            charge = None if book is None else _planned_charge(found, book, users)
        else:
            rng = SYSTEM if seed is None else SeededRng(whole("--seed", seed))
            paid: Any = {"ledger": book, "batch": options.batch, "users": users}
            sure = share("--confidence", options.confidence)
            with progress_bar("reading the table", None):
                found = releasing(query, table, scope, target, confidence=sure, rng=rng, **paid)
            if found.receipt is not None:
                number, count = found.receipt.number, found.receipt.paid
                lines = [("charged", f"{count} users, as charge number {number}")]
                charge = {"charge": number, "users": count}, lines
        _show(found, charge, as_json=as_json)
        if charge is not None and not charge[0].get("fits", True):
            raise typer.Exit(BudgetExhausted.exit_code)


_Charge: TypeAlias = tuple[dict[str, Any], list[answers.Fact]]
"""The cost of a release in a ledger: the JSON document and the lines of text."""


def _show(found: Released, charge: _Charge | None, *, as_json: bool) -> None:
    parameters, scope = found.privacy_parameters(), found.scope.scope
    if as_json:
        many, ends = isinstance(found.value, dict), found.interval
        interval = {k: _ends(e) for k, e in ends.items()} if many else _ends(ends)
        guarantee = {word: answers.exact(number) for word, number in parameters.items()}
        document = {
            "schema": _SCHEMA,
            "query": found.query.name,
            ("values" if many else "value"): _number(found.value),
            "standard_error": found.standard_error,
            "interval": interval,
            "confidence": answers.exact(found.confidence),
            "noise": found.noise,
            "guarantee": {**guarantee, **scope.to_json()},
            "rows_per_user": found.scope.rows_per_user,
            "charge": None if charge is None else charge[0],
            "repeated": found.repeated,
            "private": found.private,
            "note": found.note,
        }
        show(document)
        return
    limits = ", ".join(f"{word}={_decimal(number, up)}" for word, number in parameters.items())
    lines = [
        *_values(found),
        ("noise", found.noise + _steps(found.query)),
        ("guarantee", f"{limits} ({scope.relation.value} a user)"),
    ]
    if found.standard_error is not None:
        lines.append(("standard error", up(Fraction(found.standard_error), 6)))
    lines += [("note", found.note)] if found.note else []
    lines += [] if charge is None else charge[1]
    if found.repeated:
        lines.append(("repeated", "released before: nothing was charged or drawn"))
    if not found.private:
        lines.append(("not private", "the noise was drawn from a seed: never publish this"))
    show(answers.lines(lines, _MARGIN))


def _values(found: Released) -> list[tuple[str, str]]:
    value, ends = found.value, found.interval
    if value is None:
        return [("plan", f"{found.query.name}, {found.target.text}; nothing was read or drawn")]
    if isinstance(value, dict):
        cells = [(key, f"{_decimal(n)}{_interval(found, ends[key])}") for key, n in value.items()]
        return cells or [("keys", "none")]
    if isinstance(value, list):
        return [("keys", ", ".join(value))]
    return [(found.query.name, f"{_decimal(value)}{_interval(found, ends)}")]


def _steps(query: Query) -> str:
    # Added noise is drawn in steps, while the answer and its standard error are not in steps.
    from accounting.queries.count_sum_mean_quantile import Additive

    step = Fraction(query.unit) if isinstance(query, Additive) else Fraction(1)
    return "" if step == 1 else f", in steps of {exactly(step)}"


def _interval(found: Released, ends: Any) -> str:
    if ends is None:
        return ""
    low, high = ends
    level = down(100 * found.confidence, _SHOWN)
    return f" ({level}% interval: {_decimal(low)} to {_decimal(high, up)})"


def _decimal(number: Any, rounded: Callable[[Fraction, int], str] = down) -> str:
    # All digits of a number with a finite decimal form; otherwise rounded to the safe side.
    text = exactly(Fraction(number))
    return rounded(Fraction(number), _SHOWN) if "/" in text else text


def _number(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _number(each) for key, each in value.items()}
    if isinstance(value, Fraction):
        return int(value) if value.denominator == 1 else float(value)
    return value


def _ends(ends: Any) -> Any:
    # Ends that are not floats are rounded to floats on the safe side.
    if ends is None:
        return None
    sides = zip(ends, (round_down, round_up), strict=True)
    return [n if isinstance(n := _number(end), int) else side(end) for end, side in sides]


def _planned_charge(planned: Released, book: Ledger, users: list[str] | None) -> _Charge:
    # The cost, and whether it fits the budgets of `users`, or that of a user who was never charged.
    from accounting.ledger.charge_request import cost

    def exact(amounts: Iterable[Fraction]) -> dict[str, str]:
        return dict(zip(keeper.counters, map(write_rational, amounts), strict=True))

    keeper = book.filter
    price, _ = cost(keeper, planned.mechanism)
    fits = keeper.admits((0,) * len(keeper.limits), price)
    document, lines = {"costs": exact(price.costs)}, [("costs", keeper.format_cost(price))]
    if users is None:
        rest = "before any charge; --users-file FILE shows the remainder"
        lines.append(("budget", f"{keeper.format(keeper.budgets, down)} {rest}"))
    else:
        left = zip(*(book.remaining(user).values() for user in users), strict=True)
        least = tuple(map(min, left))
        document["least_left"] = exact(least)
        lines.append(("least left", keeper.format(least, down)))
        fits = fits and not book.exhausted(users, planned.mechanism)
    if not fits:
        who = "every user" if users is None else "a user"
        lines.append(("does not fit", f"{who} has too little budget: the release would be refused"))
    return {**document, "fits": fits}, lines
