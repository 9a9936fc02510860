r"""The ``dpcore ledger`` commands: who has spent what, in an SQL database."""

from __future__ import annotations

import json
import sys
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from accounting.cli.arguments import AsJson, read_claim, read_sensitivity, show
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Relation, Scope, Unit
from dpcore.parameter import write_rational

if TYPE_CHECKING:
    from accounting.guarantee import Guarantee
    from accounting.ledger import Ledger

__all__ = ["ledger"]

DAMAGED: Final = 3
_SCHEMA: Final = "dpcore-ledger/1"
_MARGIN: Final = 11

ledger = typer.Typer(
    name="ledger",
    help=(
        "Who has spent what: a privacy budget for each user, charged before each release.\n\n"
        "Exit codes: 0 done, 1 a user cannot pay and nobody was charged, 2 usage or database, "
        "3 the ledger was edited by hand."
    ),
    rich_markup_mode="rich",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    add_completion=False,
)

Database = Annotated[
    str,
    typer.Option("--db", help="A file, sqlite:///file or postgresql://user@host/name."),
]
RelationOption = Annotated[
    str, typer.Option(help="Neighbours differ in one person: replace, or add-remove.")
]


@ledger.command("open")
def open_command(
    *,
    db: Database,
    budget: Annotated[
        str,
        typer.Option(
            help="What each user is promised: epsilon=1, epsilon=1,delta=1e-6 or rho=1/2."
        ),
    ],
    relation: RelationOption = "replace",
    as_json: AsJson = False,
) -> None:
    r"""Make a ledger, or check that the one there has this budget.

    Example: dpcore ledger open --db ledger.db --budget rho=1/2
    """
    from accounting.ledger import Ledger

    promised = read_claim("--budget", budget, _scope(Unit.USER, relation))
    with Ledger.create(db, budget=promised) as book:
        _describe(book, as_json=as_json)


@ledger.command()
def charge(
    *,
    db: Database,
    batch: Annotated[str, typer.Option(help="The name of the release; charged once.")],
    users: Annotated[
        str | None, typer.Option(help="Who takes part: names with commas between.")
    ] = None,
    users_file: Annotated[
        str | None, typer.Option(help="One name a line; - reads standard input.")
    ] = None,
    noise: Annotated[
        str | None, typer.Option(help="The noise of the release, e.g. skellam:variance=400.")
    ] = None,
    sensitivity: Annotated[str, typer.Option(help="What one person moves.")] = "1",
    claim: Annotated[
        str | None, typer.Option(help="A claim that no noise here derives: needs --reason.")
    ] = None,
    reason: Annotated[
        str | None, typer.Option(help="Why the claim is believed; kept with the charge for ever.")
    ] = None,
    skip_exhausted: Annotated[
        bool, typer.Option("--skip-exhausted", help="Leave out who cannot pay, and name them.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    r"""Charge users for a release, all or nobody. Release only after exit code 0.

    Example: dpcore ledger charge --db ledger.db --batch monday --users ada,bob --noise
    discrete-gaussian:sigma_squared=400
    """
    from accounting.ledger import Ledger

    with Ledger.open(db) as book:
        relation = book.budget.scope.relation
        receipt = book.charge(
            _names(users, users_file),
            _guarantee(noise, sensitivity, claim, reason, relation),
            batch=batch,
            skip_exhausted=skip_exhausted,
        )
    if as_json:
        show(
            {
                "schema": _SCHEMA,
                "batch": receipt.batch,
                "charge": receipt.number,
                "digest": receipt.digest,
                "paid": receipt.paid,
                "left_out": list(receipt.left_out),
            }
        )
        return
    lines = [f"charged {receipt.paid} users for {receipt.batch}, charge {receipt.number}"]
    show(lines + [f"left out: {user}" for user in receipt.left_out])


@ledger.command("show")
def show_command(
    *,
    db: Database,
    user: Annotated[str | None, typer.Option(help="One user: spent, remaining, history.")] = None,
    as_json: AsJson = False,
) -> None:
    r"""The budget, how many users and charges, and whether anyone edited the history.

    Example: dpcore ledger show --db ledger.db --user ada
    """
    from accounting.ledger import Ledger

    with Ledger.open(db) as book:
        if user is not None:
            _show_user(book, user, as_json=as_json)
            return
        damages = [str(damage) for damage in book.check()]
        _describe(book, as_json=as_json, damages=damages)
    if damages:
        raise typer.Exit(DAMAGED)


@ledger.command()
def export(*, db: Database) -> None:
    r"""Everything: the budget, then every charge with its users, one JSON document a line.

    Example: dpcore ledger export --db ledger.db
    """
    from accounting.ledger import Ledger

    with Ledger.open(db) as book:
        for record in book.export():
            print(json.dumps(record))


def _describe(book: Ledger, *, as_json: bool, damages: list[str] | None = None) -> None:
    users, charges = book.users(), book.charges()
    if as_json:
        found: dict[str, Any] = {
            "schema": _SCHEMA,
            "filter": book.filter.to_json(),
            "users": users,
            "charges": charges,
        }
        show(found if damages is None else {**found, "damages": damages})
        return
    lines = [
        _line("budget", repr(book.budget)),
        _line("users", str(users)),
        _line("charges", str(charges)),
    ]
    if damages is not None:
        lines += [_line("damaged", damage) for damage in damages] or [_line("history", "whole")]
    show(lines)


def _show_user(book: Ledger, user: str, *, as_json: bool) -> None:
    spent, remaining, history = book.spent(user), book.remaining(user), book.history(user)
    left = {name: write_rational(Fraction(value)) for name, value in remaining.items()}
    if as_json:
        charges = [each.to_json() for each in history]
        show(
            {
                "schema": _SCHEMA,
                "user": user,
                "spent": spent.to_json(),
                "remaining": left,
                "history": charges,
            }
        )
        return
    lines = [_line("user", user), _line("spent", repr(spent))]
    lines += [_line("left", f"{name} {value}") for name, value in left.items()]
    show(lines + [_line(each.made[:10], each.batch) for each in history])


def _names(users: str | None, users_file: str | None) -> list[str]:
    if (users is None) == (users_file is None):
        raise InvalidParameter("--users", users, "give either --users or --users-file")
    if users is not None:
        return [name.strip() for name in users.split(",")]
    if users_file == "-":
        return sys.stdin.read().splitlines()
    path = Path(str(users_file))
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidParameter("--users-file", users_file, f"cannot be read: {error}") from None


def _guarantee(
    noise: str | None, sensitivity: str, claim: str | None, reason: str | None, relation: Relation
) -> Guarantee:
    from accounting.claim import Assumed
    from accounting.guarantee import guarantee
    from dpcore.mechanism import Mechanism
    from dpcore.spelling import read_noise

    if (noise is None) == (claim is None):
        raise InvalidParameter("--noise", noise, "give either --noise, or --claim with --reason")
    scope = Scope(relation=relation)
    if noise is not None:
        moves = read_sensitivity(sensitivity)
        return guarantee(Mechanism(noise=read_noise(noise), sensitivity=moves, scope=scope))
    if reason is None:
        raise InvalidParameter("--reason", reason, "is missing: a stated claim is an assumption")
    return Assumed(read_claim("--claim", str(claim), scope), reason)


def _scope(unit: Unit, relation: str) -> Scope:
    return Scope(unit=unit, relation=relation)  # type: ignore[arg-type]  # read by value


def _line(name: str, value: str) -> str:
    return f"{name.ljust(_MARGIN)}{value}"
