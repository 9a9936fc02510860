r"""What a certificate says in words: the claim, the noise and the rounds of a line of a verdict.

For a document whose form was read and found right; nothing here checks anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

__all__ = ["claim_in_words", "decimal_of", "rounds_in_words"]

# Anybody may have written the document: a line stays short, however long that is.
_MOST_PARTS: Final = 3
_MOST_LETTERS: Final = 60


def claim_in_words(claim: Mapping[str, Any]) -> str:
    r"""What a claim says, as it is written.

    >>> claim_in_words({"quantity": "epsilon", "delta": "1/10", "lower": "0.1", "upper": "0.2"})
    'epsilon in [0.1, 0.2] at delta 1/10'
    >>> claim_in_words({"quantity": "pure", "epsilon": "1/2"})
    'pure epsilon 1/2'
    """
    quantity = claim["quantity"]
    match quantity:
        case "pure":
            return f"pure epsilon {_short(claim['epsilon'])}"
        case "zcdp":
            return f"zCDP rho {_short(claim['rho'])}"
    at = {"epsilon": "delta", "delta": "epsilon", "renyi": "order"}[quantity]
    name = "Renyi divergence" if quantity == "renyi" else quantity
    ends = f"{_short(claim['lower'])}, {_short(claim['upper'])}"
    return f"{name} in [{ends}] at {at} {_short(claim[at])}"


def rounds_in_words(parts: Sequence[Mapping[str, Any]]) -> str:
    r"""Every kind of round: the noise, the sensitivity, and how many there are.

    >>> law = {"law": "skellam", "variance": "400"}
    >>> move = {"norm": "absolute", "amount": 2}
    >>> rounds_in_words([{"noise": law, "sensitivity": move, "honest": "1", "rounds": 10}])
    '10 rounds of skellam:variance=400 (sensitivity 2)'
    """
    more = len(parts) - _MOST_PARTS
    rest = [f"{more:,} kinds more"] if more > 0 else []
    return " and ".join([*map(_of_one, parts[:_MOST_PARTS]), *rest])


def decimal_of(value: Fraction) -> str:
    r"""A number that was written as a decimal, as it was written.

    >>> decimal_of(Fraction("0.4999981")), decimal_of(Fraction("0.1") ** 9), decimal_of(Fraction(2))
    ('0.4999981', '0.000000001', '2')
    """
    if 10**_MOST_LETTERS % value.denominator:
        return _short(value)
    places = 0
    while (value * 10**places).denominator != 1:
        places += 1
    whole = str(int(value * 10**places)).rjust(places + 1, "0")
    return f"{whole[:-places]}.{whole[-places:]}" if places else whole


def _of_one(part: Mapping[str, Any]) -> str:
    rounds = part["rounds"]
    count = f"{rounds:,} round{'s' * (rounds != 1)} of"
    if "noise" not in part:
        held = (key for key in ("epsilon", "delta", "rho") if key in part)
        return f"{count} a stated claim ({_pairs(part, held)})"
    noise, amount = part["noise"], part["sensitivity"]["amount"]
    law = f"{noise['law']}:{_pairs(noise, (key for key in noise if key != 'law'))}"
    moved = f"a box of {len(amount)} numbers" if isinstance(amount, Sequence) else str(amount)
    honest = "" if part["honest"] == "1" else f", share of the honest {_short(part['honest'])}"
    if "sampling" in part:
        rate = _short(part["sampling"]["rate"])
        members = part["sampling"].get("members", 1)
        group = "" if members == 1 else f", groups of {members}"
        return f"{count} {law} (sensitivity {moved}, a sample of rate {rate}{group}{honest})"
    if "correlated" in part:
        run = part["correlated"]
        return (
            f"{count} {law} (sensitivity {moved}, correlated over {run['rounds']:,} rounds by "
            f"{run['strategy']}{honest})"
        )
    return f"{count} {law} (sensitivity {moved}{honest})"


def _pairs(values: Mapping[str, Any], keys: Iterable[str]) -> str:
    return ",".join(f"{key}={_short(values[key])}" for key in keys)


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]}..."
