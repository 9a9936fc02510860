r"""The script that runs the code of an entry in the environment of the entry.

The script needs only the standard library, and reads a JSON document per line of standard input:

- the first document is ``{"code": ...}``, the code of an entry; the answer is ``{"claimed": ...}``;
- every other document is ``{"dataset": ..., "n": ..., "seed": ...}``; the answer consists of n
  outputs, one per line.

The code defines ``output(dataset)``, which returns one output, or ``outputs(dataset, n)``, which
returns a list or array of n outputs. The code may also define ``claimed()``, which returns the
claim that the package computes. Text that the package prints goes to standard error.
"""

from __future__ import annotations

import json
import os
import random
import sys
from typing import Any


def plain(value: Any) -> Any:
    r"""Convert an array or number of a library such as numpy to JSON types."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError("an output is a " + type(value).__name__ + ", which JSON cannot represent")


def answer(names: dict[str, Any], request: dict[str, Any]) -> str:
    r"""Return n outputs as lines, after seeding the global generators of random and numpy."""
    random.seed(request["seed"])
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(request["seed"] % 2**32)
    dataset, n = request["dataset"], request["n"]
    if "outputs" in names:
        found = list(names["outputs"](dataset, n))
    else:
        found = [names["output"](dataset) for _ in range(n)]
    return "".join(json.dumps(each, default=plain) + "\n" for each in found)


def main() -> None:
    r"""Answer requests from standard input until it ends."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    names: dict[str, Any] = {}
    for line in sys.stdin:
        request = json.loads(line)
        if "code" in request:
            # Running the code of an entry, in its own environment, is the purpose of the worker.
            exec(compile(request["code"], "<entry>", "exec"), names)  # noqa: S102 - see above
            claimed = names["claimed"]() if "claimed" in names else None
            out.write(json.dumps({"claimed": claimed}) + "\n")
        else:
            out.write(answer(names, request))
        out.flush()


if __name__ == "__main__":
    main()
