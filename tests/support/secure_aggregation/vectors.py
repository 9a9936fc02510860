r"""The test vectors of masked aggregation: the messages and sums of seeded rounds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dpcore.secure_aggregation.masked_aggregation import Step
from dpcore.secure_aggregation.messages import (
    TYPES,
)
from dpcore.secure_aggregation.round_parameters import Neighbourhood
from tests.support.secure_aggregation.recorded_round import GRAPHS, Rehearsal, rehearse

PATH = Path(__file__).parents[2] / "vectors" / "masked_aggregation.json"
ROUNDS: dict[str, dict[str, Any]] = {
    "no dropouts": {"seed": 1},
    "one dropout before the input": {"seed": 2, "vanish": {"eve": Step.INPUT}},
    "one dropout at each of two steps": {
        "seed": 3,
        "dropouts": 2,
        "modulus": 2**62,
        "coordinates": 2,
        "vanish": {"bob": Step.INPUT, "joe": Step.UNMASK},
    },
    "one dropout before the shares": {"seed": 4, "modulus": 2, "vanish": {"ann": Step.SHARES}},
    "four neighbours for each user": {
        "seed": 5,
        "vanish": {"eve": Step.INPUT},
        **GRAPHS["neighbours"],
    },
    "a ring": {
        "seed": 8,
        "dropouts": 2,
        "names": ("ann", "bob", "eve", "joe", "mia", "uli", "zoë"),
        "neighbourhood": Neighbourhood(neighbours=2, threshold=2),
        "vanish": {"bob": Step.SHARES, "joe": Step.UNMASK},
    },
}


def good(play: Rehearsal, how: dict[str, Any]) -> dict[str, Any]:
    terms, total = play.terms, play.total
    assert total is not None
    messages = [
        {"type": data[1], "user": name, "bytes": data.hex()}
        for step in Step
        for table in (play.given[step] if step > Step.KEYS else {}, play.sent[step])
        for name, data in table.items()
    ]
    graph = how.get("neighbourhood")
    return {
        "seed": how["seed"],
        "vanish": {name: step.name for name, step in how.get("vanish", {}).items()},
        "round": {f: getattr(terms, f) for f in ("users", "dropouts", "coordinates", "modulus")}
        | {f: getattr(graph, f) for f in ("neighbours", "threshold") if graph is not None}
        | {"name": "rehearsal", "identifier": terms.identifier.hex()},
        "server": play.own.private.hex(),
        "enrolled": {n: pair.private.hex() for n, pair in play.enrolled.items()},
        "inputs": {n: values.tolist() for n, values in play.inputs.items()},
        "messages": messages,
        "sum": total.sum.tolist(),
        "participants": list(total.participants),
    }


def vectors() -> dict[str, Any]:
    return {
        "types": {str(code): kind.__name__ for code, kind in enumerate(TYPES, start=1)},
        "rounds": {name: good(rehearse(**how), how) for name, how in ROUNDS.items()},
    }


if __name__ == "__main__":
    PATH.write_text(json.dumps(vectors(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
