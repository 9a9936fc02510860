r"""Charge an OpenDP measurement to a ledger, then release it, until the budget is exhausted.

pip install 'dpcore[peers]'
python examples/opendp_ledger.py

OpenDP derives the cost of a measurement, so the charge records it as assumed by dpcore, with the
reason. The ledger refuses the third query before OpenDP draws anything.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from fractions import Fraction
from importlib.metadata import version
from typing import Any

import opendp.prelude as dp

from accounting import Assumed, Ledger, Pure, ZCdp
from accounting.ledger import BudgetExhausted
from dpcore.mechanism import Relation, Scope, Unit

USER = Scope(unit=Unit.USER, relation=Relation.ADD_REMOVE)


def release(
    ledger: Ledger, measurement: Any, value: Any, *, users: Iterable[str], batch: str, d_in: int = 1
) -> Any:
    r"""Charge ``measurement.map(d_in)`` to every user, then measure ``value``.

    Raises :class:`BudgetExhausted`, and draws nothing, if a user has too little budget left.
    """
    loss, measure = Fraction(measurement.map(d_in)), measurement.output_measure
    pure = measure == dp.max_divergence()
    if not pure and measure != dp.zero_concentrated_divergence():
        raise ValueError(f"output_measure = {measure}: must be max or zero-concentrated divergence")
    claim: Pure | ZCdp = Pure(loss, scope=USER) if pure else ZCdp(loss, scope=USER)
    reason = f"OpenDP {version('opendp')} maps a distance of {d_in} to this"
    ledger.charge(users, Assumed(claim, reason), batch=batch)
    return measurement(value)


def main() -> None:
    r"""Release two counts with epsilon = 1/2 and try a third, with a budget of epsilon = 1."""
    dp.enable_features("contrib")
    space = dp.atom_domain(T=int), dp.absolute_distance(T=int)
    count = dp.m.make_laplace(*space, scale=2.0)
    with (
        tempfile.TemporaryDirectory() as folder,
        Ledger.create(f"{folder}/ledger.db", budget=Pure(1, scope=USER)) as ledger,
    ):
        for day in ("monday", "tuesday", "wednesday"):
            try:
                released = release(ledger, count, 42, users=["ada", "bob"], batch=day)
                left = ledger.remaining("ada")["epsilon"]
                print(f"{day}: released {released}, ada has epsilon = {left} left")
            except BudgetExhausted as error:
                print(f"{day}: not released: {error}")


if __name__ == "__main__":
    main()
