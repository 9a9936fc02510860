r"""Read ``@pytest.mark.dp``: the claim, the pairs, and how many runs and audits."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from audit.claims.claim import Claim
    from audit.claims.curve_claim import CurveClaim
    from dpcore.mechanism import Relation

__all__ = ["Terms"]

_RUNS: Final = 20_000
_WORDS: Final = (
    "claim", "epsilon", "delta", "relation", "pair", "pairs", "runs", "audits", "features",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    r"""The terms that the marks of a test state; the nearest mark decides each word."""

    claim: Claim | CurveClaim | None
    pairs: tuple[tuple[Any, Any], ...]
    runs: int
    audits: int
    relation: Relation | str = "replace"
    features: tuple[str, ...] = ()

    @classmethod
    def read(cls, *words: Mapping[str, Any]) -> Terms:
        r"""The terms, from the farthest mark to the nearest.

        >>> Terms.read({"runs": 500, "audits": 2}, {"epsilon": 1, "runs": 900}).runs
        900

        Raises :class:`dpcore.errors.InvalidParameter`.
        """
        from audit.claims.claim import Claim
        from audit.claims.curve_claim import CurveClaim, read_claim
        from audit.outputs.features.feature import read_feature
        from audit.search.pairs import read_pairs
        from dpcore.errors import InvalidParameter
        from dpcore.numbers.parameter import integer

        given = dict(ChainMap(*map(dict, reversed(words))))
        for word, value in given.items():
            if word not in _WORDS:
                raise InvalidParameter(word, value, f"dp takes {', '.join(_WORDS)}")
        for one, other in (("claim", "epsilon"), ("claim", "delta"), ("pairs", "pair")):
            if one in given and other in given:
                raise InvalidParameter(other, given[other], f"is said by {one} already")
        claim: Claim | CurveClaim | None = None
        relation = given.get("relation", "replace")
        if "claim" in given:
            text = given["claim"]
            if not isinstance(text, Claim | CurveClaim):
                text = read_claim(str(text), relation)
            claim = text
        elif "epsilon" in given:
            claim = Claim(epsilon=given["epsilon"], delta=given.get("delta", 0), relation=relation)
        elif "delta" in given:
            raise InvalidParameter("delta", given["delta"], "needs an epsilon beside it")
        features = given.get("features", ())
        if isinstance(features, str):
            raise InvalidParameter("features", features, f"must be a list, [{features!r}]")
        pairs = given.get("pairs", [given["pair"]] if "pair" in given else None)
        return cls(
            claim=claim,
            pairs=()
            if pairs is None
            else read_pairs("pairs" if "pairs" in given else "pair", pairs),
            runs=integer("runs", given.get("runs", _RUNS), at_least=1),
            audits=integer("audits", given.get("audits", 1), at_least=1),
            relation=relation,
            features=tuple(read_feature(name).name for name in features),
        )
