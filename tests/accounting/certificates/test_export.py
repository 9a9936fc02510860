r"""Tests of `accounting.certificates.export`: NIST SP 800-226 and the deployments registry."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest

from accounting.certificates.certify import Certificate
from accounting.certificates.export import OPEN, nist_lines, registry_entry, yaml_lines
from accounting.certificates.verify_certificate import Verdict, verify
from tests.accounting.certificates.test_certify import resealed
from tests.support.run_command import typed

VECTORS = Path(__file__).parents[2] / "vectors" / "certificates"
NAMES = ("one_gaussian", "thousand_laplaces", "returning_users")


@pytest.mark.parametrize("name", NAMES)
def test_a_registry_entry_is_yaml_and_states_the_proven_claims(name: str) -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    document = json.loads((VECTORS / f"{name}.json").read_text())
    entry = registry_entry(document, Verdict(findings=()))
    assert yaml.safe_load("\n".join(yaml_lines(entry))) == entry
    found = entry["deployment"]
    claims = {claim["quantity"]: claim for claim in document["claims"]}
    parameters = found["privacy_loss"]["privacy_parameters"]
    if "pure" in claims:
        assert found["dp_variant"]["variant_name"] == "Pure DP"
        assert Fraction(str(parameters["epsilon"])) >= Fraction(claims["pure"]["epsilon"])
    else:
        assert Fraction(str(parameters["epsilon"])) >= Fraction(claims["epsilon"]["upper"])
        assert Fraction(str(parameters["delta"])) >= Fraction(claims["epsilon"]["delta"])
    # Keys and values of the registry's schema, as of August 2026.
    assert set(found) <= {
        "basic", "dp_variant", "privacy_loss", "deployment_model", "accounting", "implementation",
        "administrative",
    }  # fmt: skip
    assert set(found["basic"]) == {
        "name", "data_curators", "description", "intended_use", "data_product_type",
        "data_product_region", "publication_date",
    }  # fmt: skip
    assert found["deployment_model"]["release_type"] in ("One release", "Many releases")


def test_a_changed_certificate_is_reported_as_changed() -> None:
    document = json.loads((VECTORS / "one_gaussian.json").read_text())
    assert "NOT" not in dict(nist_lines(document, verify(json.dumps(document))))["verification"]
    document["claims"][0]["upper"] = "0.18920733"
    bad = Certificate.from_text(json.dumps(resealed(document)))
    rows = dict(nist_lines(bad.to_json(), verify(bad)))
    assert "NOT verified" in rows["verification"]
    assert rows["trust model"] == OPEN


def test_the_formats_of_verify(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = VECTORS / "one_gaussian.json"
    text = typed(capsys, "verify", path, "--format", "nist")
    assert text.code == 0
    assert "unit of privacy" in text.out
    assert "epsilon = 0.18920734" in text.out
    assert typed(capsys, "verify", path, "--format", "registry").out.startswith("url_slug:")
    forms = (["--format", "json"], ["--json"])
    found, same = (typed(capsys, "verify", path, *form) for form in forms)
    assert found.json == same.json
    other = tmp_path / "c.json"
    other.write_text('{"schema": "dpcore-budget/1"}')
    assert typed(capsys, "verify", other, "--format", "nist").code == 2
