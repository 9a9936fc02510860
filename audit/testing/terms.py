r"""Read ``@pytest.mark.dp``: the spec of the audits of a test, and how many they are."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from audit.spec import AuditSpec

__all__ = ["Terms"]

_RUNS: Final = 20_000
_WORDS: Final = (
    "claim", "epsilon", "delta", "relation", "pair", "pairs", "runs", "audits", "features",
    "floats",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    r"""The terms that the marks of a test state: a spec without its target, and how many audits."""

    spec: AuditSpec
    audits: int

    @classmethod
    def read(cls, *words: Mapping[str, Any]) -> Terms:
        r"""The terms, from the farthest mark to the nearest, which decides each word.

        >>> Terms.read({"runs": 500, "audits": 2}, {"epsilon": 1, "runs": 900}).spec.runs
        900

        Raises :class:`dpcore.errors.InvalidParameter`.
        """
        from audit.claims.claim import Claim
        from audit.features.feature import read_feature
        from audit.spec import AuditSpec
        from dpcore.errors import InvalidParameter
        from dpcore.numbers.parameter import integer

        given = dict(ChainMap(*map(dict, reversed(words))))
        for word, value in given.items():
            if word not in _WORDS:
                raise InvalidParameter(word, value, f"dp takes {', '.join(_WORDS)}")
        for one, other in (("claim", "epsilon"), ("claim", "delta"), ("pairs", "pair")):
            if one in given and other in given:
                raise InvalidParameter(other, given[other], f"is said by {one} already")
        if "epsilon" in given:
            of = {"epsilon": given.pop("epsilon"), "delta": given.pop("delta", 0)}
            given["claim"] = Claim(**of, relation=given.get("relation", "replace"))
        elif "delta" in given:
            raise InvalidParameter("delta", given["delta"], "needs an epsilon beside it")
        audits = integer("audits", given.pop("audits", 1), at_least=1)
        spec = AuditSpec(**{"runs": _RUNS, **given})
        for feature in spec.features:
            read_feature(str(feature))
        return cls(spec=spec, audits=audits)
