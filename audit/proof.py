r"""The verdict of the exact layer: a noise added to integers keeps a claim, or it does not.

Proven or refuted, never estimated; about the law of the noise. Whether the code that draws it has
that law is for the sample layer to doubt.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Final

from audit.direction import NeverWorse
from audit.exact import Shifted, epsilon_at, hockey_stick, worst_event
from audit.plan import Plan
from audit.report import AuditReport, ExactFinding, ExactWitness, Layer
from audit.target import KnownLaw
from audit.verdict import versions
from dpcore.enclosure import Enclosure
from dpcore.errors import PrecisionExhausted
from dpcore.parameter import rational

__all__ = ["both", "prove"]

_BITS: Final = (64, 256, 1024, 4096)


def prove(target: KnownLaw, plan: Plan) -> AuditReport:
    r"""Decide the claim on this pair, in both directions.

    >>> from audit.claim import Claim
    >>> from audit.target import read_target
    >>> target = read_target("discrete-laplace:scale=2")
    >>> plan = Plan(claim=Claim(epsilon="1/2"), pair=(0, 1))
    >>> prove(target, plan).verdict
    'proven'

    Raises :class:`InvalidParameter` for datasets that do not give integers,
    :class:`accounting.NotDerived` for a noise without a theorem, and
    :class:`PrecisionExhausted` where delta(epsilon) cannot be told from the claimed delta.
    """
    a, b = target.places(plan.pair)
    epsilon, delta = plan.claim.exact
    laws = {"A": Shifted(target.noise, a), "B": Shifted(target.noise, b)}
    found = {}
    for world, other in ("AB", "BA"):
        try:
            reached = _decide(laws[world], laws[other], epsilon, delta)
        except NeverWorse:
            continue
        found[world] = (reached, epsilon_at(laws[world], laws[other], delta))
    # The worse direction; for a symmetric noise both are equal.
    worse = max(found, key=lambda world: (found[world][0].upper, found[world][1].upper))
    reached, needed = found[worse]
    proven = reached.upper <= delta
    return AuditReport(
        target=target.spelling,
        claim=plan.claim,
        pair=plan.pair,
        verdict="proven" if proven else "refuted",
        epsilon_lower=needed.lower_float,
        alpha=rational("alpha", plan.alpha),
        runs_by_world=(0, 0),
        stopped="no runs: both laws are known",
        witness=None if proven else _witness(laws, worse, epsilon),
        exact=ExactFinding(delta=reached, epsilon=needed),
        layers=(_layer(a, b, target.about, proven=proven),),
        versions=versions(),
    )


def _decide(p: Shifted, q: Shifted, epsilon: Fraction, delta: Fraction) -> Enclosure:
    for bits in _BITS:
        reached = hockey_stick(p, q, epsilon, bits=bits)
        if reached.upper <= delta or reached.lower > delta:
            return reached
    raise PrecisionExhausted(f"delta({epsilon}) cannot be told from the claimed delta = {delta}")


def _witness(laws: dict[str, Shifted], world: str, epsilon: Fraction) -> ExactWitness | None:
    p, q = laws[world], laws["A" if world == "B" else "B"]
    event = worst_event(p, q, epsilon)
    if event is None:
        return None
    in_a, in_b = (event.p, event.q) if world == "A" else (event.q, event.p)
    return ExactWitness(
        event=event.words,
        world="A" if world == "A" else "B",
        probability_a=in_a,
        probability_b=in_b,
    )


def _layer(
    a: int | tuple[int, ...], b: int | tuple[int, ...], about: str, *, proven: bool
) -> Layer:
    if not proven:
        proves = "one probability > e^epsilon times the other + delta, both enclosed"
    elif isinstance(a, int) and isinstance(b, int):
        proves = f"for every event, and every pair of integers at distance <= {abs(a - b)}"
    else:
        proves = "for every event, and every pair that moves no coordinate further than this one"
    return Layer(layer="exact", method="enclosed hockey-stick divergence", proves=proves + about)


def both(proven: AuditReport, sampled: AuditReport) -> AuditReport:
    r"""One report of two layers: refuted if either refutes, proven if only the law was doubted."""
    if sampled.error is not None or sampled.verdict == "refuted":
        verdict, witness = sampled.verdict, sampled.witness
    else:
        verdict, witness = proven.verdict, proven.witness
    return replace(
        sampled,
        verdict=verdict,
        witness=witness,
        epsilon_lower=max(proven.epsilon_lower, sampled.epsilon_lower),
        exact=proven.exact,
        layers=(*proven.layers, *sampled.layers),
    )
