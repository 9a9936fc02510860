r"""The canonical text of a certificate, its digest, required assumptions, and summaries in words.

The code that writes certificates and the code that checks them share this module.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import count
from typing import Any, Final

SCHEMA: Final = "dpcore-certificate/1"

THEOREMS: Final = {
    "epsilon": "privacy losses of independent rounds add (Koskela, Jalko and Honkela 2020)",
    "delta": "privacy losses of independent rounds add (Koskela, Jalko and Honkela 2020)",
    "renyi": "Renyi divergences of independent rounds add (Mironov 2017, Proposition 1)",
    "zcdp": "rhos of independent rounds add (Bun and Steinke 2016, Lemma 1.7)",
    "pure": "largest losses of rounds add (Dwork and Roth 2014, Theorem 3.16)",
}
"""The composition theorem of each quantity."""

_ALWAYS: Final = (
    "noise: every draw is fresh, independent and exactly of the law stated",
    "sensitivity: neighbouring data move each query by no more than declared, under the scope",
    "rounds: each round keeps its law and sensitivity whatever was released before",
)
_REALS: Final = ("gaussian", "laplace")
_NOT_STATED: Final = ("claim", "rounds")
# The document is not trusted, so the length of descriptions is limited.
_MOST_PARTS: Final = 3
_MOST_LETTERS: Final = 60
_IDEAL: Final = "secure aggregation: ideal; nobody sees more of a round than its noisy sum"


def canonical(document: Mapping[str, Any]) -> bytes:
    r"""The ASCII bytes that are hashed: JSON with sorted keys, no spaces, no field ``digest``."""
    kept = {key: value for key, value in document.items() if key != "digest"}
    return json.dumps(kept, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def digest_of(document: Mapping[str, Any]) -> str:
    r"""The SHA-256 of the canonical text. It is not a signature, since anyone can recompute it."""
    return f"sha256:{hashlib.sha256(canonical(document)).hexdigest()}"


def ascii_text(text: str) -> str:
    r"""Escape all characters except printable ASCII, because certificates contain no others."""
    escaped = (
        each if each.isascii() and each.isprintable() else ascii(each)[1:-1] for each in text
    )
    return "".join(escaped)


def required_assumptions(document: Mapping[str, Any]) -> tuple[str, ...]:
    r"""The assumptions that ``document`` must list, given its scope and its kinds of rounds."""
    parts, unit = document["parts"], document["scope"]["unit"]
    found = [*_ALWAYS]
    for part in parts:
        if "claim" in part:
            stated = (f"{k} {v}" for k, v in sorted(part.items()) if k not in _NOT_STATED)
            found.append(f"claim: {part['claim']} with {', '.join(stated)} is stated, not derived")
            continue
        if part["noise"].get("law") in _REALS:
            found.append(
                "noise on the reals: what code adds in floats is taken to follow the law exactly"
            )
        if "sampling" in part:
            found.append(
                f"samples: in each round every {unit} takes part with chance "
                f"{part['sampling']['rate']}, drawn anew, independently, and kept secret"
            )
            if "members" in part["sampling"]:
                found.append(
                    f"groups: {part['sampling']['members']} {unit}s differ at most, all of them "
                    "added or all removed"
                )
        if "correlated" in part:
            found.append(_correlated(part["correlated"], unit))
        if part.get("honest", "1") != "1":
            found.append(
                f"honest parties: they added {part['honest']} of the planned noise, which is the "
                "law stated"
            )
            found.append(_IDEAL)
    rounds = sum(part["rounds"] for part in parts)
    returning = f"returning {unit}s: one {unit} takes part in at most {rounds} rounds"
    unique = f"unique {unit}s: one {unit} takes part in one round"
    return tuple(dict.fromkeys([*found, unique if rounds == 1 else returning]))


def _correlated(run: Mapping[str, Any], unit: str) -> str:
    more = run.get("bands", " ".join(run.get("coefficients", ())))
    strategy = f"{run['strategy']} {more}".rstrip()
    return (
        f"correlated noise: {strategy} over {run['rounds']} rounds, "
        f"counted as one here; one {unit} takes part in at most {run['most']} of them, any two at "
        f"least {run['apart']} apart; all that is released follows from C x plus the noise"
    )


# -- words -----------------------------------------------------------------------------------------


def claim_in_words(claim: Mapping[str, Any]) -> str:
    r"""A claim as text."""
    quantity = claim["quantity"]
    if quantity == "pure":
        return f"pure epsilon {_short(claim['epsilon'])}"
    if quantity == "zcdp":
        return f"zCDP rho {_short(claim['rho'])}"
    at = {"epsilon": "delta", "delta": "epsilon", "renyi": "order"}[quantity]
    name = "Renyi divergence" if quantity == "renyi" else quantity
    ends = f"{_short(claim['lower'])}, {_short(claim['upper'])}"
    return f"{name} in [{ends}] at {at} {_short(claim[at])}"


def rounds_in_words(parts: Sequence[Mapping[str, Any]]) -> str:
    r"""A short text: the noise, sensitivity and number of rounds of the first three ``parts``."""
    more = len(parts) - _MOST_PARTS
    rest = [f"{more:,} more kinds"] if more > 0 else []
    return " and ".join([*map(_of_one, parts[:_MOST_PARTS]), *rest])


def decimal_of(value: Fraction) -> str:
    r"""Format a number of at most 60 decimals exactly, or else as a fraction of limited length."""
    if 10**_MOST_LETTERS % value.denominator:
        return _short(value)
    places = next(k for k in count() if 10**k % value.denominator == 0)
    return with_decimals(int(value * 10**places), places)


def with_decimals(scaled: int, places: int) -> str:
    r"""Format the decimal number ``scaled / 10**places`` with exactly ``places`` decimals."""
    text = str(scaled).rjust(places + 1, "0")
    return f"{text[:-places]}.{text[-places:]}" if places else text


def _of_one(part: Mapping[str, Any]) -> str:
    rounds = part["rounds"]
    count = f"{rounds:,} round{'s' * (rounds != 1)} of"
    if "noise" not in part:
        held = (key for key in ("epsilon", "delta", "rho") if key in part)
        return f"{count} a stated claim ({_pairs(part, held)})"
    noise, amount = part["noise"], part["sensitivity"]["amount"]
    law = f"{noise['law']}:{_pairs(noise, (key for key in noise if key != 'law'))}"
    box = isinstance(amount, Sequence)
    details = [f"sensitivity {f'box of {len(amount)} bounds' if box else amount}"]
    if "sampling" in part:
        details.append(f"a sample of rate {_short(part['sampling']['rate'])}")
        if part["sampling"].get("members", 1) > 1:
            details.append(f"groups of {part['sampling']['members']}")
    if "correlated" in part:
        run = part["correlated"]
        details.append(f"correlated over {run['rounds']:,} rounds with strategy {run['strategy']}")
    if part["honest"] != "1":
        details.append(f"honest share {_short(part['honest'])}")
    return f"{count} {law} ({', '.join(details)})"


def _pairs(values: Mapping[str, Any], keys: Iterable[str]) -> str:
    return ",".join(f"{key}={_short(values[key])}" for key in keys)


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]}..."
