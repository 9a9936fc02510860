r"""Results as JSON: the one writer of infinities, of proven intervals and of whole documents."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from dpcore.numbers.enclosure import Enclosure


def json_number(value: float) -> float | str:
    r"""A number, or "inf": JSON has no infinity, and no reader takes a word for a large number.

    >>> json_number(0.5), json_number(float("inf")), json_number(-0.0)
    (0.5, 'inf', 0.0)
    """
    return value + 0.0 if math.isfinite(value) else "inf"


def json_ends(value: Enclosure) -> list[float | str]:
    r"""[lower, upper], floats rounded outwards.

    >>> json_ends(Enclosure(0.25, float("inf")))
    [0.25, 'inf']
    """
    return [json_number(value.lower_float), json_number(value.upper_float)]


def json_text(document: Mapping[str, Any]) -> str:
    r"""The document, with a newline at its end; what JSON lacks as text.

    >>> json_text({"runs": 5})
    '{\n  "runs": 5\n}\n'
    """
    return json.dumps(document, indent=2, default=str, allow_nan=False) + "\n"
