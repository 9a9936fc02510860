r"""The ``dpcore release`` commands: a private statistic of a CSV or Parquet file."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from accounting.cli.releases import NEIGHBOURS, exact, whole
from dpcore.command.input_file import read_text
from dpcore.command.options import AsJson, argument, command_group, named, option, with_fields
from dpcore.command.terminal import fact, show
from dpcore.errors import ABSENT, InvalidParameter
from dpcore.mechanism import Relation
from dpcore.numbers.parameter import rational, write_rational
from dpcore.numbers.rounding import down
from dpcore.sampling.rng import SYSTEM, SeededRng

if TYPE_CHECKING:
    from accounting.ledger import Ledger, Receipt
    from accounting.queries.query import Query, Target
    from accounting.queries.release import Released
    from accounting.queries.table import TableScope
    from accounting.theorems.filter import Filter

_SCHEMA: Final = "dpcore-release/1"
_MOST_NAMES: Final = 1 << 28  # bytes of a file of keys or users
_MARGIN: Final = 16
_QUERIES: Final = ("count", "sum", "mean", "histogram", "quantile", "top")

release = command_group(
    "release",
    help=(
        "Release a count, sum, mean, histogram, quantile or top keys of a CSV or Parquet file.\n\n"
        "How far one user moves the answer follows from --rows-per-user and --relation. With "
        "--ledger the users pay, and the released value is stored: a second call with the same "
        "--batch returns it and costs nothing.\n\n"
        "Exit code: 0 done; 1 a user cannot pay, and nothing was read or charged; 2 a wrong "
        "option, or a table that cannot be read as asked; 3 the ledger is damaged."
    ),
    no_args_is_help=True,
)

_FILE: Final = "The table: a file that ends in .csv or .parquet."


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseOptions:
    r"""Options of every query: rows per user, target and ledger, as written."""

    user: str = option("COLUMN", "The column with the user of each row.", default=...)
    rows_per_user: str = option(
        "K", "The most rows of one user that are used; a keyed hash chooses them.", default="1"
    )
    relation: Annotated[
        Relation | None,
        option(
            "WORD",
            f"{NEIGHBOURS} (default: that of the ledger, or add-remove)",
            "--relation",
            default=...,
            case_sensitive=False,
        ),
    ] = None
    epsilon: str | None = option("EPSILON", "What the release costs: a pure epsilon, e.g. 1/2.")
    rho: str | None = option("RHO", "Instead of --epsilon: zero-concentrated DP, e.g. 0.01.")
    delta: str = option("DELTA", "With --epsilon: the delta of the guarantee.", default="0")
    ledger: str | None = option(
        "URL", "The ledger whose users pay, e.g. year.db.", "--ledger", "--db"
    )
    batch: str | None = option(
        "NAME", "The name of the release in the ledger; required with --ledger."
    )
    users_file: str | None = option(
        "FILE", "The users who pay, one name per line; under add-remove all who were asked."
    )
    confidence: str = option("LEVEL", "The confidence of intervals.", default="0.95")
    seed: str | None = option("N", "Seed: the same seed draws the same numbers, NOT PRIVATE.")
    dry_run: bool = option(
        "", "Read the header only, and print the noise and the cost.", "--dry-run", default=False
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    r"""A numeric column and its public range."""

    column: str = option("COLUMN", "The column of numbers.", default=...)
    clip: tuple[str, str] = option(
        "LOW HIGH", "Numbers are clipped to this range, which is public.", default=...
    )
    step: str = option("STEP", "Numbers are rounded to multiples of this step.", default="1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    r"""The options of all queries, for ``plan``."""

    column: str | None = option("COLUMN", "The column of numbers or keys.")
    clip: Annotated[
        tuple[str, str] | None,
        option("LOW HIGH", "The public range of the numbers.", "--clip", default=...),
    ] = None
    step: str = option("STEP", "Numbers are rounded to multiples of this step.", default="1")
    q: str = option("Q", "Which quantile.", "-q", default="1/2")
    keys: str | None = option("FILE", "The keys, one per line.")
    unknown_keys: bool = option("", "Keys come from the data.", "--unknown-keys", default=False)
    k: str = option("K", "How many keys top chooses.", "-k", default="1")


@release.command()
@with_fields
def count(
    file: str = argument("FILE", _FILE), *, asked: ReleaseOptions, as_json: AsJson = False
) -> None:
    r"""Release the number of rows.

    Example: dpcore release count visits.csv --user user_id --rows-per-user 3 --epsilon 1/2
    """
    _run("count", file, asked, {}, as_json=as_json)


@release.command("sum")
@with_fields
def sum_command(
    file: str = argument("FILE", _FILE),
    *,
    numbers: Numbers,
    asked: ReleaseOptions,
    as_json: AsJson = False,
) -> None:
    r"""Release the sum of a column.

    Example: dpcore release sum visits.csv --column amount --clip 0 200 --step 0.01 \
    --user user_id --rho 0.01
    """
    _run("sum", file, asked, _numbers(numbers), as_json=as_json)


@release.command()
@with_fields
def mean(
    file: str = argument("FILE", _FILE),
    *,
    numbers: Numbers,
    asked: ReleaseOptions,
    as_json: AsJson = False,
) -> None:
    r"""Release the mean of a column: a noisy sum over a noisy count.

    Example: dpcore release mean visits.csv --column amount --clip 0 200 --user user_id --epsilon 1
    """
    _run("mean", file, asked, _numbers(numbers), as_json=as_json)


@release.command()
@with_fields
def quantile(
    file: str = argument("FILE", _FILE),
    *,
    numbers: Numbers,
    asked: ReleaseOptions,
    q: str = option("Q", "Which quantile: 1/2 for the median.", "-q", default="1/2"),
    as_json: AsJson = False,
) -> None:
    r"""Release a quantile of a column, chosen from a grid over its range.

    Example: dpcore release quantile visits.csv --column amount --clip 0 200 --step 1/2 -q 0.9 \
    --user user_id --epsilon 1/2
    """
    _run("quantile", file, asked, {**_numbers(numbers), "q": q}, as_json=as_json)


@release.command()
@with_fields
def histogram(
    file: str = argument("FILE", _FILE),
    *,
    asked: ReleaseOptions,
    column: str = option("COLUMN", "The column of keys.", default=...),
    keys: str | None = option("FILE", "The keys to count, one per line; - reads standard input."),
    unknown_keys: bool = option(
        "",
        "Release the keys whose noisy count reaches a threshold; needs --delta.",
        "--unknown-keys",
        default=False,
    ),
    as_json: AsJson = False,
) -> None:
    r"""Release the number of rows per key.

    Example: dpcore release histogram visits.csv --column city --keys cities.txt --user user_id \
    --rows-per-user 3 --epsilon 1
    """
    given = {"column": column, "keys": keys, "unknown_keys": unknown_keys}
    _run("histogram", file, asked, given, as_json=as_json)


@release.command()
@with_fields
def top(
    file: str = argument("FILE", _FILE),
    *,
    asked: ReleaseOptions,
    column: str = option("COLUMN", "The column of keys.", default=...),
    keys: str = option("FILE", "The keys to choose from, one per line.", default=...),
    k: str = option("K", "How many keys to choose.", "-k", default="1"),
    as_json: AsJson = False,
) -> None:
    r"""Release the most frequent keys, in order, without their counts.

    Example: dpcore release top visits.csv --column city --keys cities.txt -k 3 --user user_id \
    --epsilon 1
    """
    _run("top", file, asked, {"column": column, "keys": keys, "k": k}, as_json=as_json)


@release.command()
@with_fields
def plan(
    query: str = argument("QUERY", f"One of {', '.join(_QUERIES)}."),
    file: str = argument("FILE", _FILE),
    *,
    planned: Planned,
    asked: ReleaseOptions,
    as_json: AsJson = False,
) -> None:
    r"""Show the noise, its standard error and the privacy cost; only the header is read.

    Example: dpcore release plan sum visits.csv --column amount --clip 0 200 --user user_id \
    --rho 0.01
    """
    if query not in _QUERIES:
        raise InvalidParameter("QUERY", query, f"must be one of {', '.join(_QUERIES)}")
    given: dict[str, Any] = {}
    if query in ("sum", "mean", "quantile"):
        if planned.clip is None:
            raise InvalidParameter("--clip", ABSENT, "must be given: the range is public")
        low, high = planned.clip
        given |= {"low": low, "high": high, "step": planned.step}
        given |= {"q": planned.q} if query == "quantile" else {}
    if query in ("histogram", "top"):
        given["keys"] = planned.keys
        given |= {"k": planned.k} if query == "top" else {"unknown_keys": planned.unknown_keys}
    if query != "count":
        if planned.column is None:
            raise InvalidParameter("--column", ABSENT, "must be given")
        given["column"] = planned.column
    _run(query, file, asked, given, as_json=as_json, dry=True)


def _numbers(numbers: Numbers) -> dict[str, Any]:
    low, high = numbers.clip
    return {"column": numbers.column, "low": low, "high": high, "step": numbers.step}


def _run(
    name: str,
    file: str,
    asked: ReleaseOptions,
    given: dict[str, Any],
    *,
    as_json: bool,
    dry: bool = False,
) -> None:
    from accounting.ledger import BudgetExhausted
    from accounting.queries import release as releasing
    from accounting.queries.release import plan as planning
    from accounting.queries.table import Table

    options = dict.fromkeys(("low", "high", "clip"), "--clip")
    options |= {key: f"--{key}" for key in ("epsilon", "rho", "delta", "step", "batch", "seed")}
    options |= {"url": "--ledger", "q": "-q", "keys": "--keys", "column": "--column", "count": "-k"}
    options |= {"users": "--users-file", "table": "FILE", "confidence": "--confidence"}
    options |= {"rows_per_user": "--rows-per-user", "scope": "--relation", "user": "--user"}
    options |= {"budget": "--ledger"}
    with named(**options), ExitStack() as stack:
        query, target = _query(name, given), _target(asked)
        users = (
            None if asked.users_file is None else _lines("--users-file", asked.users_file, "user")
        )
        book = None if asked.ledger is None else stack.enter_context(_opened(asked.ledger))
        table, scope = Table.open(file), _scope(asked, book)
        table.require(scope.user, *query.columns)
        if dry or asked.dry_run:
            planned = planning(query, scope, target)
            charge = None if book is None else _planned_charge(planned, book, users)
            _show(planned, charge, as_json=as_json)
            if charge is not None and not charge.document["fits"]:
                raise typer.Exit(BudgetExhausted.exit_code)
            return
        rng = SYSTEM if asked.seed is None else SeededRng(whole("--seed", asked.seed))
        found = releasing(
            query,
            table,
            scope,
            target,
            ledger=book,
            batch=asked.batch,
            users=users,
            confidence=rational("--confidence", asked.confidence),
            rng=rng,
        )
        _show(found, None if found.receipt is None else _paid(found.receipt), as_json=as_json)


def _opened(url: str) -> Ledger:
    from accounting.ledger import Ledger

    return Ledger.open(url)


def _scope(asked: ReleaseOptions, book: Ledger | None) -> TableScope:
    from accounting.queries.table import TableScope

    own = Relation.ADD_REMOVE if book is None else book.budget.scope.relation
    return TableScope(
        user=asked.user,
        rows_per_user=whole("--rows-per-user", asked.rows_per_user, 1),
        relation=asked.relation or own,
    )


def _target(asked: ReleaseOptions) -> Target:
    from accounting.queries.query import Target

    return Target(epsilon=asked.epsilon, rho=asked.rho, delta=asked.delta)


def _query(name: str, given: dict[str, Any]) -> Query:
    from accounting.queries import query as queries

    kinds = {"count": queries.Count, "sum": queries.Sum, "mean": queries.Mean}
    kinds |= {"quantile": queries.Quantile, "histogram": queries.Histogram, "top": queries.TopK}
    fields = dict(given)
    if name in ("histogram", "top"):
        unknown = fields.pop("unknown_keys", False)
        path = fields["keys"]
        if (path is None) != unknown:
            raise InvalidParameter("--keys", path or ABSENT, "give either --keys or --unknown-keys")
        fields["keys"] = None if path is None else tuple(_lines("--keys", path, "key"))
    if name == "top":
        fields["count"] = whole("-k", fields.pop("k"), 1)
    made: Query = kinds[name](**fields)
    return made


def _lines(argument: str, path: str, what: str) -> list[str]:
    if path != "-" and not Path(path).exists():
        raise InvalidParameter(argument, path, f"must be a file with one {what} per line")
    text = read_text(argument, path, most=_MOST_NAMES, stdin=True)
    if not text.strip():
        raise InvalidParameter(argument, path, "is empty")
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]


class _Charge(NamedTuple):
    r"""What a release costs in a ledger: for a JSON document, and as lines of text."""

    document: dict[str, Any]
    lines: list[tuple[str, str]]


def _paid(receipt: Receipt) -> _Charge:
    document = {"charge": receipt.number, "users": receipt.paid}
    return _Charge(document, [(name, str(value)) for name, value in document.items()])


def _show(found: Released, charge: _Charge | None, *, as_json: bool) -> None:
    promise = found.promise()
    if as_json:
        many = isinstance(found.value, dict)
        ends = found.interval
        interval = {k: _ends(e) for k, e in ends.items()} if many else _ends(ends)
        guarantee = {word: exact(number) for word, number in promise.items()}
        document = {
            "schema": _SCHEMA,
            "query": found.query.name,
            ("values" if many else "value"): _number(found.value),
            "standard_error": found.standard_error,
            "interval": interval,
            "confidence": exact(found.confidence),
            "noise": found.noise,
            "guarantee": {**guarantee, **found.scope.scope.to_json()},
            "rows_per_user": found.scope.rows_per_user,
            "charge": None if charge is None else charge.document,
            "repeated": found.repeated,
            "private": found.private,
            "note": found.answer.note,
        }
        show(document)
        return
    relation = found.scope.scope.relation.value
    said = ", ".join(f"{word}={_decimal(number)}" for word, number in promise.items())
    lines = [*_values(found), ("noise", found.noise), ("guarantee", f"{said} ({relation} a user)")]
    if found.standard_error is not None:
        lines.append(("standard error", f"{found.standard_error:.6g}"))
    lines += [("note", found.answer.note)] if found.answer.note else []
    lines += [] if charge is None else charge.lines
    if found.repeated:
        lines.append(("repeated", "released before: nothing was paid or drawn"))
    if not found.private:
        lines.append(("not private", "a seed drew the noise: never publish this"))
    show([fact(name, text, margin=_MARGIN) for name, text in lines])


def _values(found: Released) -> list[tuple[str, str]]:
    value, ends = found.value, found.interval
    if value is None:
        return [("plan", f"{found.query.name}, {found.target.text}; nothing was read or drawn")]
    if isinstance(value, dict):
        cells = [(key, n, ends[key]) for key, n in value.items()]
        return [(key, f"{_decimal(n)} ({_between(e)})") for key, n, e in cells] or [
            ("keys", "none")
        ]
    if isinstance(value, list):
        return [("keys", ", ".join(value))]
    rest = "" if ends is None else f" ({_between(ends)})"
    return [(found.query.name, f"{_decimal(value)}{rest}")]


def _between(ends: Any) -> str:
    return " to ".join(map(_decimal, ends))


def _decimal(number: Any) -> str:
    return f"{float(number):.12g}"


def _number(value: Any) -> Any:
    if isinstance(value, Fraction):
        return int(value) if value.denominator == 1 else float(value)
    return value


def _ends(ends: Any) -> Any:
    return None if ends is None else [_number(end) for end in ends]


def _planned_charge(planned: Released, book: Ledger, users: list[str] | None) -> _Charge:
    r"""What each user would pay; without ``users``, only a user never charged is looked at."""
    from accounting.ledger.request import cost

    keeper = book.filter
    price, _ = cost(keeper, planned.mechanism)
    fits = keeper.admits((0,) * len(keeper.limits), price)
    document = {"costs": _exact(keeper, price.costs)}
    lines = [("costs", keeper.format_cost(price))]
    if users is None:
        lines.append(("budget", f"{keeper.format(keeper.budgets, down)} before any charge"))
    else:
        left = zip(*(book.remaining(user).values() for user in users), strict=True)
        least = tuple(map(min, left))
        document["least_left"] = _exact(keeper, least)
        lines.append(("least left", keeper.format(least, down)))
        fits = fits and not book.exhausted(users, planned.mechanism)
    if not fits:
        who = "every user" if users is None else "a user"
        lines.append(("does not fit", f"{who} has too little left: the release would be refused"))
    return _Charge({**document, "fits": fits}, lines)


def _exact(keeper: Filter, amounts: Sequence[Fraction]) -> dict[str, str]:
    return dict(zip(keeper.counters, map(write_rational, amounts), strict=True))
