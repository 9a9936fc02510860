r"""A Flower strategy that charges a ledger before each round, and stops when nobody can pay.

pip install flwr

Wrap the strategy that clips, adds noise and aggregates; say what one round costs each of its
clients::

    strategy = ChargedStrategy(
        DifferentialPrivacyServerSideFixedClipping(FedAvg(), 1.1, 1.0, 10), ledger=ledger, cost=cost
    )
    strategy.start(grid=grid, initial_arrays=arrays, num_rounds=100)

The cost is stated, not derived: Flower samples noise in floats, so it carries ``Assumed``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flwr.serverapp.strategy import Strategy

from accounting import Guarantee, Ledger
from accounting.ledger import BudgetExhausted


class ChargedStrategy(Strategy):  # type: ignore[misc]  # Flower's types are not checked here
    r"""``strategy``, with ``cost`` charged to every client of a round before it is asked to train.

    ``stopped`` holds the ledger's refusal once a round could not be paid; no client is then asked
    any more, and the model stays as it is.
    """

    def __init__(self, strategy: Any, *, ledger: Ledger, cost: Guarantee) -> None:
        self.strategy, self.ledger, self.cost = strategy, ledger, cost
        self.stopped: BudgetExhausted | None = None

    def configure_train(
        self, server_round: int, arrays: Any, config: Any, grid: Any
    ) -> Iterable[Any]:
        r"""The messages of the round, once all of its clients have paid."""
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
        r"""As the strategy does."""
        return self.strategy.aggregate_train(server_round, replies)

    def configure_evaluate(
        self, server_round: int, arrays: Any, config: Any, grid: Any
    ) -> Iterable[Any]:
        r"""As the strategy does: what clients report of the evaluation is not private."""
        messages: Iterable[Any] = self.strategy.configure_evaluate(
            server_round, arrays, config, grid
        )
        return messages

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Any]) -> Any:
        r"""As the strategy does."""
        return self.strategy.aggregate_evaluate(server_round, replies)

    def summary(self) -> None:
        r"""As the strategy does."""
        self.strategy.summary()
