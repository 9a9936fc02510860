r"""``dpcore budget calibrate --rounds most`` and ``--poisson most``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from accounting.cli.options import between, exact, whole
from accounting.cli.releases import SCHEMA, Releases, assumed, lines, rate_of
from dpcore.command.options import named
from dpcore.command.progress import progress_bar
from dpcore.errors import InvalidParameter
from dpcore.mechanism import Relation
from dpcore.numbers.parameter import rational
from dpcore.numbers.rounding import exactly

if TYPE_CHECKING:
    from accounting.release.curve import OneRelease

__all__ = ["most_of"]


def most_of(
    noise: str,
    epsilon: str,
    delta: str,
    sensitivity: str,
    rounds: str,
    poisson: str,
    relation: Relation | None,
    *,
    as_json: bool,
) -> dict[str, Any] | list[str]:
    r"""The most rounds, or the largest rate, that keep the promise; as a document or in lines."""
    from accounting.budget.most import largest_rate, most_rounds

    if rounds == poisson:
        raise InvalidParameter("--poisson", poisson, "must be a rate: --rounds is looked for")
    at, limit = rational("--epsilon", epsilon), rational("--delta", delta)
    given = None if poisson == "most" or rate_of(poisson) == 1 else [poisson]
    if poisson == "most" and relation is Relation.REPLACE:
        reason = "must be add-remove where the largest rate is looked for"
        raise InvalidParameter("--relation", relation.value, reason)
    one = Releases(noise=[noise], sensitivity=[sensitivity], poisson=given, relation=relation)
    ((asked, _),), total = one.described(), one.composed()
    part = cast("OneRelease", total.parts[0][0])  # one release is composed
    options = {"epsilon": "--epsilon", "delta": "--delta", "noise": "--noise"}
    with progress_bar("bounds of delta", None), named(**options):
        if rounds == "most":
            what, found = "rounds", most_rounds(part, epsilon=at, delta=limit)
        else:
            what, found = (
                "rate",
                largest_rate(
                    asked.noise,
                    rounds=whole("--rounds", rounds, 1),
                    epsilon=at,
                    delta=limit,
                    sensitivity=asked.sensitivity,
                ),
            )
    if as_json:
        head = {"schema": SCHEMA, "looked_for": what, "assumptions": list(total.assumptions)}
        target = {"epsilon": exact(at), "delta": exact(limit)}
        return {**head, "target": target, "noise": noise, **found.to_json()}
    facts = [
        (what, f"at most {exactly(found.value)} keep epsilon = {epsilon}, delta = {delta}"),
        ("kept", f"delta({epsilon}) is {between(found.found)}"),
    ]
    if found.more is not None and found.found_more is not None:
        said = "breaks it" if found.most else "is not shown to keep it"
        at_more = between(found.found_more)
        facts.append(("more", f"{exactly(found.more)} {said}: delta({epsilon}) is {at_more}"))
    return lines([*facts, *assumed(total)])
