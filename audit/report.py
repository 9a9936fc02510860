r"""What leaves the building after an audit: a frozen report, and its JSON.

JSON, schema ``dpcore-audit/1``. Every key is always there; null where it does not apply.

    schema          "dpcore-audit/1"
    target          as it was written
    claim           {"epsilon", "delta": exact, as text; "relation"}
    pair            [dataset A, dataset B]
    verdict         "refuted", "not_refuted", "proven"; null when the target failed
    epsilon_lower   a number; "inf" where no epsilon holds. Of the sample layer: exceeds the true
                    epsilon with probability at most alpha. Of the exact layer: proven.
    alpha           the false-alarm level of the sample layer
    p_value         of the claim, for a number of runs fixed beforehand
    e_value         of the claim, for --sequential: the largest wealth so far
    runs            runs drawn, both worlds together
    runs_by_world   {"a", "b"}
    stopped         why no more runs were drawn
    witness         {"event", "world", "inside_a", "runs_a", "inside_b", "runs_b"}: counts, or for
                    the exact layer {"event", "world", "probability_a", "probability_b"}: [lower,
                    upper]
    resolution      an always-revealing output of this probability would have been seen in 95 of 100
                    audits; null: too few runs to count on refuting anything
    exact           {"delta", "epsilon": [lower, upper] at the claim, the worse direction}
    layers          [{"layer", "method", "proves"}]
    seed            repeats the audit
    repeatable      whether the target keeps to the randomness it is given; false also for one
                    that takes none: then the seed repeats only the audit's own coins
    error           {"reason", "dataset", "run"} when the target failed
    warnings        a list of sentences
    versions        {"dpcore", "python", "numpy"}
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal, TypeAlias

from audit.claim import Claim
from audit.errors import TargetFailed
from audit.event import Witness
from dpcore.enclosure import Enclosure
from dpcore.parameter import RationalLike

__all__ = ["SCHEMA", "AuditReport", "ExactFinding", "ExactWitness", "Layer", "Verdict"]

SCHEMA: Final = "dpcore-audit/1"

Verdict: TypeAlias = Literal["refuted", "not_refuted", "proven"]

_EXIT_CODES: Final[dict[Verdict | None, int]] = {
    "not_refuted": 0,
    "proven": 0,
    "refuted": 1,
    None: TargetFailed.exit_code,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    r"""One layer that ran: its method, and what its result proves under which assumption."""

    layer: Literal["exact", "sample"]
    method: str
    proves: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactWitness:
    r"""The event that is hardest on the claim, with its proven probability in each world."""

    event: str
    world: Literal["A", "B"]
    probability_a: Enclosure
    probability_b: Enclosure

    def to_json(self) -> dict[str, Any]:
        r"""The fields by name, probabilities as [lower, upper]."""
        return {
            "event": self.event,
            "world": self.world,
            "probability_a": _ends(self.probability_a),
            "probability_b": _ends(self.probability_b),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactFinding:
    r"""Of the worse direction: the smallest delta at the claimed epsilon, and the other way."""

    delta: Enclosure
    epsilon: Enclosure

    def to_json(self) -> dict[str, Any]:
        r"""Both as [lower, upper]."""
        return {"delta": _ends(self.delta), "epsilon": _ends(self.epsilon)}


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    r"""What was observed or proven about one claim on one pair of datasets; see the module.

    >>> report = AuditReport(
    ...     target="f.py:f",
    ...     claim=Claim(epsilon=1),
    ...     pair=(0, 1),
    ...     verdict="refuted",
    ...     epsilon_lower=1.25,
    ...     alpha="0.05",
    ...     runs_by_world=(5, 5),
    ...     stopped="all 10 runs",
    ... )
    >>> report.to_json()["verdict"], report.exit_code
    ('refuted', 1)
    """

    target: str
    claim: Claim
    pair: tuple[Any, Any]
    verdict: Verdict | None
    epsilon_lower: float
    alpha: RationalLike
    runs_by_world: tuple[int, int]
    stopped: str
    p_value: float | None = None
    e_value: float | None = None
    witness: Witness | ExactWitness | None = None
    resolution: float = math.inf
    exact: ExactFinding | None = None
    layers: tuple[Layer, ...] = ()
    seed: int | None = None
    repeatable: bool = True
    error: TargetFailed | None = None
    warnings: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def runs(self) -> int:
        r"""Runs tested, both worlds together."""
        return sum(self.runs_by_world)

    @property
    def exit_code(self) -> int:
        r"""0 not refuted or proven, 1 refuted, 3 the target failed."""
        return _EXIT_CODES[self.verdict]

    def to_json(self) -> dict[str, Any]:
        r"""The report as plain values, the keys of the module's schema."""
        error = self.error
        return {
            "schema": SCHEMA,
            "target": self.target,
            "claim": self.claim.to_json(),
            "pair": list(self.pair),
            "verdict": self.verdict,
            "epsilon_lower": _number(self.epsilon_lower),
            "alpha": float(self.alpha),
            "p_value": self.p_value,
            "e_value": self.e_value,
            "runs": self.runs,
            "runs_by_world": dict(zip("ab", self.runs_by_world, strict=True)),
            "stopped": self.stopped,
            "witness": None if self.witness is None else self.witness.to_json(),
            "resolution": self.resolution if math.isfinite(self.resolution) else None,
            "exact": None if self.exact is None else self.exact.to_json(),
            "layers": [asdict(layer) for layer in self.layers],
            "seed": self.seed,
            "repeatable": self.repeatable,
            "error": None
            if error is None
            else {"reason": error.reason, "dataset": error.dataset, "run": error.run},
            "warnings": list(self.warnings),
            "versions": self.versions,
        }

    def to_text(self) -> str:
        r"""The JSON document, with a newline at its end."""
        return json.dumps(self.to_json(), indent=2, default=str, allow_nan=False) + "\n"


def _number(value: float) -> float | str:
    # JSON has no infinity; a string says it and no reader mistakes it for a large number.
    # Adding 0 turns -0.0 into 0.0.
    return value + 0.0 if math.isfinite(value) else "inf"


def _ends(value: Enclosure) -> list[float | str]:
    return [_number(value.lower_float), _number(value.upper_float)]
