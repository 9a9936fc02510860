r"""The form of a certificate: canonical text, digest, and the assumptions that its parts imply.

Both sides of a certificate read this file, for it is the format and computes no number.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["SCHEMA", "THEOREMS", "ascii_text", "canonical", "digest_of", "required_assumptions"]

SCHEMA: Final = "dpcore-certificate/1"

THEOREMS: Final = {
    "epsilon": "privacy losses of independent rounds add (Koskela, Jalko and Honkela 2020)",
    "delta": "privacy losses of independent rounds add (Koskela, Jalko and Honkela 2020)",
    "renyi": "Renyi divergences of independent rounds add (Mironov 2017, Proposition 1)",
    "zcdp": "rhos of independent rounds add (Bun and Steinke 2016, Lemma 1.7)",
    "pure": "largest losses of rounds add (Dwork and Roth 2014, Theorem 3.16)",
}
"""What each quantity rests on, beyond the law of one round."""

_ALWAYS: Final = (
    "noise: every draw is fresh, independent and exactly of the law stated",
    "sensitivity: neighbouring data move each query by no more than declared, under the scope",
    "rounds: each round keeps its law and sensitivity whatever was released before",
)
_REALS: Final = ("gaussian", "laplace")
_IDEAL: Final = "secure aggregation: ideal; nobody sees more of a round than its noisy sum"


def canonical(document: Mapping[str, Any]) -> bytes:
    r"""The one spelling that the digest is of: sorted keys, no spaces, ASCII, no digest.

    >>> canonical({"b": 1, "a": "x", "digest": "gone"})
    b'{"a":"x","b":1}'
    """
    kept = {key: value for key, value in document.items() if key != "digest"}
    return json.dumps(kept, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def digest_of(document: Mapping[str, Any]) -> str:
    r"""SHA-256 of the canonical text. No signature: whoever edits the text can compute it anew.

    >>> digest_of({})[:15]
    'sha256:44136fa3'
    """
    return f"sha256:{hashlib.sha256(canonical(document)).hexdigest()}"


def ascii_text(text: str) -> str:
    r"""Text as a certificate may hold it: what is not plain ASCII is escaped.

    >>> ascii_text("g\u2009=\n1")
    'g\\u2009=\\n1'
    """
    return (
        "".join(
            each if each.isascii() and each.isprintable() else repr(each)[1:-1] for each in text
        )
        .encode("ascii", "backslashreplace")
        .decode()
    )


def required_assumptions(document: Mapping[str, Any]) -> tuple[str, ...]:
    r"""What must be among the assumptions of a certificate with this scope and these parts.

    >>> scope = {"unit": "user", "relation": "replace"}
    >>> required_assumptions({"scope": scope, "parts": [{"noise": {}, "rounds": 8}]})[-1]
    'returning users: one user takes part in at most 8 rounds'
    """
    parts = document["parts"]
    found = [*_ALWAYS]
    for part in parts:
        if "claim" in part:
            stated = ", ".join(
                f"{key} {value}" for key, value in sorted(part.items()) if key not in _NOT_STATED
            )
            found.append(f"claim: {part['claim']} with {stated} is stated, not derived")
            continue
        if part["noise"].get("law") in _REALS:
            found.append(
                "noise on the reals: what code adds in floats is taken to follow the law exactly"
            )
        if "sampling" in part:
            found.append(
                f"samples: in each round every {document['scope']['unit']} takes part with chance "
                f"{part['sampling']['rate']}, drawn anew, independently, and kept secret"
            )
            if "members" in part["sampling"]:
                found.append(
                    f"groups: {part['sampling']['members']} {document['scope']['unit']}s differ at "
                    "most, all of them added or all removed"
                )
        if "correlated" in part:
            found.append(_correlated(part["correlated"], document["scope"]["unit"]))
        if part.get("honest", "1") != "1":
            found.append(
                f"honest parties: they added {part['honest']} of the planned noise, which is the "
                "law stated"
            )
            found.append(_IDEAL)
    rounds = sum(part["rounds"] for part in parts)
    unit = document["scope"]["unit"]
    if rounds == 1:
        found.append(f"unique {unit}s: one {unit} takes part in one round")
    else:
        found.append(f"returning {unit}s: one {unit} takes part in at most {rounds} rounds")
    return tuple(dict.fromkeys(found))


def _correlated(run: Mapping[str, Any], unit: str) -> str:
    more = run.get("bands", " ".join(run.get("coefficients", ())))
    strategy = f"{run['strategy']} {more}".rstrip()
    return (
        f"correlated noise: {strategy} over {run['rounds']} rounds, "
        f"counted as one here; one {unit} takes part in at most {run['most']} of them, any two at "
        f"least {run['apart']} apart; all that is released follows from C x plus the noise"
    )


_NOT_STATED: Final = ("claim", "rounds")
