r"""The ``dpcore ledger`` commands: the spent budget of each user, in an SQL database."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import asdict
from fractions import Fraction
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from accounting.cli import answers
from accounting.cli.composition_options import (
    Batch,
    Releases,
    exactly_one,
    read_names,
    relation_option,
    whole,
)
from dpcore.cli.options import AsJson, argument, command_group, flag, named, option, with_fields
from dpcore.cli.terminal import progress_bar, show
from dpcore.errors import ABSENT, InvalidParameter
from dpcore.mechanism import Relation, Scope, Unit
from dpcore.numbers.parameter import write_rational
from dpcore.numbers.rounding import brief, down, up

if TYPE_CHECKING:
    from accounting.composition.compose import Source
    from accounting.guarantees.stated_guarantees import Assumed, Word
    from accounting.ledger import Ledger


_SCHEMA: Final = "dpcore-ledger/1"
_MARGIN: Final = 11
_INTACT: Final = ("history", "intact")
_CHECKING: Final = "checking the history"
_UP: Final = partial(brief, rounded=up)

ledger = command_group(
    "ledger",
    help=(
        "Keep a privacy budget for each user, charged before each release.\n\n"
        "Open a ledger with the budget of every user. Charge each batch before its noise is "
        "drawn, and release only after exit code 0. A second charge of the same batch costs "
        "nothing and exits with 4: publish the old result again, and do not draw new noise. A "
        "charge cannot be undone. [bold]dpcore ledger show[/bold] checks the whole history; "
        "[bold]dpcore ledger charge[/bold] checks only the first charge, the last charge and the "
        "users to be charged. Do not move the file: copy it with [bold]dpcore ledger "
        "backup[/bold], and activate the copy with [bold]dpcore ledger adopt[/bold].\n\n"
        "Exit code: 0 done; 1 a user has too little budget, and nobody was charged; 2 an invalid "
        "option or database; 3 the ledger is damaged or was edited by hand; 4 the batch was "
        "already charged, and nothing was charged again."
    ),
    no_args_is_help=True,
)

_URL: Final = "The ledger: a file, sqlite:///file or postgresql://user@host/database."
Database = Annotated[str, option("URL", _URL, "--db", "--ledger", default=...)]


@ledger.command("open")
def open_command(
    *,
    db: Database,
    budget: str = option(
        "CLAIM",
        "The budget of each user, e.g. epsilon=1, epsilon=1,delta=1e-6 or rho=1/2.",
        default=...,
    ),
    relation: Relation = relation_option(default=Relation.REPLACE),
    renews: str | None = option(
        "PERIOD",
        "Each calendar year, month or day (UTC) has its own budget: k periods together cost at "
        "most k budgets. (default: one budget for all time)",
    ),
    as_json: AsJson = False,
) -> None:
    r"""Create a ledger, or check that an existing ledger has this budget.

    Example: dpcore ledger open --db ledger.db --budget rho=1/2 --renews year
    """
    from accounting.guarantees.stated_guarantees import read_claim
    from accounting.ledger import Ledger

    with _with_option_names():
        limit = read_claim("--budget", budget, Scope(unit=Unit.USER, relation=relation))
        with Ledger.create(db, budget=limit, renews=renews) as book:
            _describe(book, as_json=as_json)


@ledger.command()
@with_fields
def charge(
    *,
    db: Database,
    batch: str = option("NAME", "The name of the release; a name is charged once.", default=...),
    users: str | None = option(
        "NAMES",
        "The users to charge, separated by commas; with --poisson or --scheme, all users who may "
        "be sampled, not only those in the sample.",
    ),
    users_file: str | None = option(
        "FILE", "The users to charge, one per line; - reads standard input."
    ),
    queries: Batch,
    rows_per_user: str = option(
        "K",
        "The largest number of rows of one user in the batch: --sensitivity and --claim are "
        "for one row, and K rows cost K epsilon, or K^2 rho.",
        default="1",
    ),
    claim: str | None = option(
        "CLAIM", "Instead of --noise: a guarantee, e.g. epsilon=1 or rho=1/2; needs --reason."
    ),
    reason: str | None = option("TEXT", "The reason for the claim; stored with the charge."),
    skip_exhausted: bool = flag("Omit and print users with too little budget.", "--skip-exhausted"),
    repeat_ok: bool = flag(
        "Exit with 0, not 4, if the batch was already charged. Use this only to retry after a "
        "crash that came before any release.",
        "--repeat-ok",
    ),
    as_json: AsJson = False,
) -> None:
    r"""Charge users for a release: all of them, or none. Release only after exit code 0.

    Example: dpcore ledger charge --db ledger.db --batch monday --users ada,bob \
    --noise discrete-gaussian:sigma_squared=400
    """
    from accounting.ledger import AlreadyCharged, BudgetExhausted, Ledger

    exactly_one("--users", users, "--users-file", users_file)
    if users == "-":
        raise InvalidParameter("--users", users, "is not a list of users; use --users-file -")
    people, typed = [name.strip() for name in (users or "").split(",")], "--users"
    if users_file is not None:
        people, typed = read_names("--users-file", users_file, "user"), "--users-file"
    with _with_option_names(typed), Ledger.open(db) as book:
        receipt = book.charge(
            people,
            _cost(queries, claim, reason, book.budget.scope.relation),
            batch=batch,
            rows_per_user=whole("--rows-per-user", rows_per_user, 1),
            skip_exhausted=skip_exhausted,
            repeat_ok=True,
        )
    if as_json:
        found = {"charge" if key == "number" else key: v for key, v in asdict(receipt).items()}
        del found["value"]  # a charge without a release has no value
        show({"schema": _SCHEMA, **found})
    else:
        who, number = _counted(receipt.paid, "user"), f"charge {receipt.number}"
        sentence = f"charged {who} for {receipt.batch}, {number}"
        if receipt.repeated:
            again = "already charged, so nothing was charged again"
            sentence = f"{again}: {number}, {receipt.batch}, covered {who}"
        show([sentence, *(f"left out: {user}" for user in receipt.left_out)])
    if not receipt.paid:
        raise typer.Exit(BudgetExhausted.exit_code)
    if receipt.repeated and not repeat_ok:
        raise typer.Exit(AlreadyCharged.exit_code)


@ledger.command("show")
def show_command(
    *,
    db: Database,
    user: str | None = option("NAME", "Show one user: spent and remaining budget, and charges."),
    as_json: AsJson = False,
) -> None:
    r"""Show the budget, the numbers of users and charges, and whether the history is intact.

    Example: dpcore ledger show --db ledger.db --user ada
    """
    from accounting.ledger import Ledger, LedgerDamaged

    with _with_option_names(), Ledger.open(db) as book:
        with progress_bar(_CHECKING, None):
            damages = [str(damage) for damage in book.check()]
        if user is None:
            _describe(book, as_json=as_json, damages=damages)
            if not (as_json or damages) and book.users():
                _print([("one user", "dpcore ledger show --user NAME: budget spent and left")])
        elif not damages:
            _show_user(book, user, as_json=as_json)
        else:
            # The entries of a user in a damaged ledger cannot be trusted.
            found = {"schema": _SCHEMA, "user": user, "damages": damages}
            show(found) if as_json else _print(_history(damages))
    if damages:
        raise typer.Exit(LedgerDamaged.exit_code)


@ledger.command()
def export(*, db: Database) -> None:
    r"""Print everything as JSON lines: the budget, then every charge with its users.

    Example: dpcore ledger export --db ledger.db
    """
    from accounting.ledger import Ledger

    with _with_option_names(), Ledger.open(db) as book:
        for line in book.export():
            print(line)


@ledger.command()
def backup(
    *,
    source: str = argument("SOURCE", "The ledger's file."),
    destination: Path = argument("DEST", "The copy to write; it must not exist yet."),
) -> None:
    r"""Copy a ledger's file, even while other processes charge it, and check the whole history.

    Example: dpcore ledger backup ledger.db copy.db
    """
    from accounting.ledger import backup

    names = named(url="SOURCE", source="SOURCE", destination="DEST")
    with names, progress_bar(_CHECKING, None):
        charges = backup(source, destination)
    use = f"dpcore ledger adopt --db {quote(str(destination))}"
    _print([("copied", f"{destination}, {_counted(charges)}"), _INTACT, ("to use it", use)])


@ledger.command()
def adopt(*, db: Database) -> None:
    r"""Activate a moved, copied or restored ledger.

    Use it only if no other copy will be charged again: two copies would each spend the whole
    budget. The whole history is checked first.

    Example: dpcore ledger adopt --db ledger.db
    """
    from accounting.ledger import adopt

    with _with_option_names(), progress_bar(_CHECKING, None):
        charges = adopt(db)
    _print([("adopted", _counted(charges)), _INTACT])


def _print(facts: Iterable[answers.Fact]) -> None:
    show(answers.lines(facts, _MARGIN))


def _counted(number: int, what: str = "charge") -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _with_option_names(users: str = "--user") -> AbstractContextManager[None]:
    # Report errors of the ledger under the names of the command's options.
    names = ("budget", "batch", "renews", "relation")
    return named(*names, scope="--relation", url="--db", user=users, users=users)


def _describe(book: Ledger, *, as_json: bool, damages: list[str] | None = None) -> None:
    found: dict[str, Any] = {"users": book.users(), "charges": book.charges()}
    periods = [] if book.renews is None or damages else [*book.periods()]
    together = book.together(len(periods)) if periods else None
    if as_json:
        if book.renews is not None:
            renewed = None if together is None else together.to_json()
            found |= {"renews": book.renews, "periods": periods, "together": renewed}
        found |= {} if damages is None else {"damages": damages}
        show({"schema": _SCHEMA, "filter": book.filter.to_json(), **found})
        return
    budget, relation = _claim_text(book.budget), book.budget.scope.relation.value
    rows = {"budget": budget, "neighbours": relation, **found}
    if book.renews is not None:
        rows["budget"] += f" for each {book.renews} (UTC)"
        ends = " to ".join(dict.fromkeys((periods[0], periods[-1]))) if periods else ""
        rows["periods"] = f"{len(periods)}, {ends}" if periods else "none"
    if together is not None:
        total = _claim_text(together, _UP)
        rows["together"] = f"{total}; each further {book.renews} adds a budget"
    facts = [(name, str(value)) for name, value in rows.items()]
    _print(facts + ([] if damages is None else _history(damages)))


def _history(damages: list[str]) -> list[answers.Fact]:
    return [("damaged", damage) for damage in damages] or [_INTACT]


def _show_user(book: Ledger, user: str, *, as_json: bool) -> None:
    spent, history = book.spent(user), book.history(user)
    left = book.remaining(user)
    totals = {
        period: tuple(map(sum, zip(*(each.amounts for each in charges), strict=True)))
        for period, charges in book.periods(user).items()
        if book.renews is not None
    }
    periods = {period: book.filter.spent(each) for period, each in totals.items()}
    if as_json:
        exact = {name: write_rational(value) for name, value in left.items()}
        found = {"user": user, "spent": spent.to_json(), "remaining": exact}
        if book.renews is not None:
            found["periods"] = {period: each.to_json() for period, each in periods.items()}
        charges = [each.to_json() for each in history]
        show({"schema": _SCHEMA, **found, "history": charges, "damages": []})
        return
    now = "" if book.renews is None else f" this {book.renews}"
    facts = [
        ("user", user if history else f"{user}, never charged"),
        ("spent", f"{_claim_text(spent, _UP)}{now}"),
        *(("left", f"{name}={brief(value, down)}{now}") for name, value in left.items()),
        *((f"in {period}", _claim_text(each, _UP)) for period, each in periods.items()),
    ]
    if periods:
        whole = book.filter.spent(tuple(map(sum, zip(*totals.values(), strict=True))))
        facts.append(("together", _claim_text(whole, _UP)))
    _print([*facts, *((each.made[:10], each.batch) for each in history), _INTACT])


def _claim_text(word: Word | Assumed, write: Callable[[Fraction], str] = str) -> str:
    # The claim in the syntax of --budget.
    from accounting.guarantees.stated_guarantees import Assumed

    claim = word.guarantee if isinstance(word, Assumed) else word
    each = claim.parameters().items()
    exact = {key: write(Fraction(n)) if isinstance(n, str) else n for key, n in each}
    text = ",".join(f"{key}={value}" for key, value in exact.items())
    return f"{text}, assumed: {word.reason}" if isinstance(word, Assumed) else text


def _cost(queries: Batch, claim: str | None, reason: str | None, relation: Relation) -> Source:
    from accounting.guarantees.stated_guarantees import Assumed, read_claim
    from accounting.privacy_curves.release_curve import PrivacyCurve

    exactly_one("--noise", queries.noise, "--claim", claim)
    given = asdict(queries)
    if queries.noise:
        if reason is not None:
            raise InvalidParameter("--reason", reason, "is valid only with --claim")
        whole = Releases(**given, relation=relation).composed()
        (part, times), *more = whole.parts
        return part if isinstance(part, PrivacyCurve) and times == 1 and not more else whole
    for name, values in given.items():
        if values:
            raise InvalidParameter(f"--{name}", " ".join(values), "is valid only with --noise")
    if reason is None:
        must = "must be given with --claim: the reason for the claim"
        raise InvalidParameter("--reason", ABSENT, must)
    with named("reason"):
        return Assumed(read_claim("--claim", str(claim), Scope(relation=relation)), reason)
