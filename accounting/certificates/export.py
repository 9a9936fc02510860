r"""Export a certificate to NIST SP 800-226 and OpenDP formats.

Both formats are for human readers; ``dpcore verify`` checks the certificate itself. Fields that are
not in a certificate, such as the publisher, are marked :data:`OPEN`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any, Final

from accounting.certificates.canonical_text import claim_in_words, rounds_in_words
from accounting.certificates.verify_certificate import KERNEL, Verdict
from dpcore.numbers.rounding import up

OPEN: Final = "to be completed"
r"""The value of fields that a certificate does not contain."""

_DIGITS: Final = 9
_UNITS: Final = {
    "contribution": "one contribution (a record); the contributions of a person are protected one "
    "by one, not together",
    "user": "one user, with all contributions",
}
_RELATIONS: Final = {
    "replace": "datasets are adjacent if one unit is replaced by another (bounded)",
    "add-remove": "datasets are adjacent if one unit is added or removed (unbounded)",
}
_VARIANTS: Final = (
    ("pure", "Pure DP", ("epsilon",)),
    ("epsilon", "Approximate DP", ("epsilon", "delta")),
    ("zcdp", "Zero-concentrated DP", ("rho",)),
    ("delta", "Approximate DP", ("epsilon", "delta")),
    ("renyi", "Renyi DP", ()),
)


def registry_entry(document: Mapping[str, Any], verdict: Verdict) -> dict[str, Any]:
    r"""A draft tier-2 entry for https://registry.opendp.org, for a curator to complete."""
    unit, relation = document["scope"]["unit"], document["scope"]["relation"]
    variant, parameters = _guarantee(document["claims"])
    rounds = sum(part["rounds"] for part in document["parts"])
    loss = {
        "privacy_unit": _UNITS.get(unit, unit),
        "privacy_unit_details": _RELATIONS.get(relation, relation),
        "privacy_parameters": parameters,
        "privacy_parameters_details": "; ".join(_claims(document)),
    }
    basic = dict.fromkeys(("name", "description", "intended_use", "data_product_type"), OPEN)
    more = dict.fromkeys(("data_product_region", "publication_date"), OPEN)
    model: dict[str, Any] = dict.fromkeys(("model_name", "data_source_type", "access_type"), OPEN)
    model["release_type"] = "One release" if rounds == 1 else "Many releases"
    return {
        "url_slug": OPEN,
        "status": "Draft",
        "tier": 2,
        "deployment": {
            "basic": {**basic, **more, "data_curators": [OPEN]},
            "dp_variant": {"variant_name": variant},
            "privacy_loss": loss,
            "deployment_model": model,
            "accounting": {"composition": "; ".join(_theorems(document))},
            "implementation": {"mechanisms": "; ".join(_mechanisms(document))},
            "administrative": {"registry_authors": [OPEN], "notes": _checked(document, verdict)},
        },
    }


def nist_lines(document: Mapping[str, Any], verdict: Verdict) -> list[tuple[str, str]]:
    r"""Pairs (component, text) of a certificate, with the components of NIST SP 800-226."""
    unit, relation = document["scope"]["unit"], document["scope"]["relation"]
    variant, parameters = _guarantee(document["claims"])
    values = ", ".join(f"{name} = {value}" for name, value in parameters.items())
    return [
        ("privacy parameters", values or "; ".join(_claims(document))),
        ("unit of privacy", _UNITS.get(unit, unit)),
        ("neighboring datasets", _RELATIONS.get(relation, relation)),
        ("definition", variant),
        *(("guarantee", text) for text in _claims(document)),
        *(("mechanism", text) for text in _mechanisms(document)),
        *(("composition", text) for text in _theorems(document)),
        *(("assumption", text) for text in document["assumptions"]),
        ("verification", _checked(document, verdict)),
        ("trust model", OPEN),
        ("data collection exposure", OPEN),
        ("access control", OPEN),
    ]


def yaml_lines(value: Mapping[str, Any], margin: str = "") -> Iterator[str]:
    r"""Lines of YAML for nested mappings, lists of strings and scalars. Strings are quoted."""
    for key, inner in value.items():
        if isinstance(inner, Mapping):
            yield f"{margin}{key}:"
            yield from yaml_lines(inner, margin + "  ")
        elif isinstance(inner, list):
            yield f"{margin}{key}:"
            yield from (f"{margin}  - {json.dumps(each)}" for each in inner)
        else:
            yield f"{margin}{key}: {_scalar(inner)}"


def _scalar(value: object) -> str:
    # YAML 1.1 reads 1e-06 as text.
    text = json.dumps(value)
    return text.replace("e", ".0e", 1) if isinstance(value, float) and "." not in text else text


def _guarantee(claims: list[Mapping[str, Any]]) -> tuple[str, dict[str, float]]:
    # The strongest stated variant, with its upper bounds rounded up.
    for quantity, variant, names in _VARIANTS:
        for claim in claims:
            if claim["quantity"] == quantity:
                ends = {name: claim.get(name, claim.get("upper")) for name in names}
                return variant, {
                    name: float(up(Fraction(end), _DIGITS)) for name, end in ends.items()
                }
    return "Custom", {}


def _claims(document: Mapping[str, Any]) -> list[str]:
    return [claim_in_words(claim) for claim in document["claims"]]


def _mechanisms(document: Mapping[str, Any]) -> list[str]:
    return [rounds_in_words([part]) for part in document["parts"]]


def _theorems(document: Mapping[str, Any]) -> list[str]:
    return list(dict.fromkeys(claim["theorem"] for claim in document["claims"]))


def _checked(document: Mapping[str, Any], verdict: Verdict) -> str:
    how = "proven by an integer kernel" if verdict.proof == KERNEL else "compared with an estimate"
    found = how if verdict.holds else "NOT verified"
    made = document["software"]
    return f"certificate {document['digest']} of {made['name']} {made['version']}: {found}"
