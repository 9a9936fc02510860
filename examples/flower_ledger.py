r"""A Flower strategy that charges a ledger before each round and stops if a budget is exhausted.

pip install flwr

Wrap the strategy that clips, adds noise and aggregates, and state the cost of one round for each of
its clients::

    strategy = ChargedStrategy(
        DifferentialPrivacyServerSideFixedClipping(FedAvg(), 1.1, 1.0, 10), ledger=ledger, cost=cost
    )
    strategy.start(grid=grid, initial_arrays=arrays, num_rounds=100)

The cost is stated, not derived, because Flower samples noise in floats; use ``Assumed``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flwr.serverapp.strategy import Strategy

from accounting import Guarantee, Ledger
from accounting.ledger import BudgetExhausted


class ChargedStrategy(Strategy):  # type: ignore[misc]  # Flower's types are not checked here
    r"""``strategy``, with ``cost`` charged to every client of a round before its training.

    If the ledger refuses a round, ``stopped`` is its error; then no client trains any more, and the
    model does not change.
    """

    def __init__(self, strategy: Any, *, ledger: Ledger, cost: Guarantee) -> None:
        self.strategy, self.ledger, self.cost = strategy, ledger, cost
        self.stopped: BudgetExhausted | None = None

    def configure_train(
        self, server_round: int, arrays: Any, config: Any, grid: Any
    ) -> Iterable[Any]:
        r"""Charge all clients of the round and return its messages, or no message if refused."""
        if self.stopped is not None:
            return []
        messages = list(self.strategy.configure_train(server_round, arrays, config, grid))
        users = [f"node-{message.metadata.dst_node_id}" for message in messages]
        try:
            if users:
                self.ledger.charge(users, self.cost, batch=f"round {server_round}")
        except BudgetExhausted as error:
            self.stopped = error
            return []
        return messages

    def aggregate_train(self, server_round: int, replies: Iterable[Any]) -> Any:
        r"""Call the wrapped strategy."""
        return self.strategy.aggregate_train(server_round, replies)

    def configure_evaluate(
        self, server_round: int, arrays: Any, config: Any, grid: Any
    ) -> Iterable[Any]:
        r"""Call the wrapped strategy; the clients' evaluation results are not private."""
        messages: Iterable[Any] = self.strategy.configure_evaluate(
            server_round, arrays, config, grid
        )
        return messages

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Any]) -> Any:
        r"""Call the wrapped strategy."""
        return self.strategy.aggregate_evaluate(server_round, replies)

    def summary(self) -> None:
        r"""Call the wrapped strategy."""
        self.strategy.summary()
