"""dp-accounting's own contract for accountants, run on ours under both relations."""

from __future__ import annotations

import unittest
from importlib import import_module
from typing import Any

import pytest

from accounting.interop.events import accountant

contract = pytest.importorskip(
    "dp_accounting.privacy_accountant_test", reason="the extra 'interop' is not installed"
)


class Mutant:
    """An accountant of ours that names the whole event where a part of it is refused."""

    def __init__(self, ours: Any) -> None:
        self._ours = ours

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ours, name)

    def _maybe_compose(self, event: Any, count: int, do_compose: bool) -> Any:  # its interface
        found = self._ours._maybe_compose(event, count, do_compose)
        return None if found is None else self._ours.CompositionErrorDetails(event, "refused")


def outcome(make: Any) -> unittest.TestResult:
    class Ours(contract.PrivacyAccountantTest):  # type: ignore[misc,name-defined]  # of their wheel
        def _make_test_accountants(self) -> list[Any]:
            return list(make())

    found = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(Ours).run(found)
    return found


def both() -> list[Any]:
    relations = import_module("dp_accounting").NeighboringRelation
    return [accountant(relations.ADD_OR_REMOVE_ONE), accountant(relations.REPLACE_ONE)]


def test_their_contract_holds_under_both_relations() -> None:
    found = outcome(both)
    assert found.testsRun >= 13
    assert (found.failures, found.errors, found.skipped) == ([], [], [])


def test_an_accountant_that_hides_the_offender_is_seen() -> None:
    found = outcome(lambda: [Mutant(each) for each in both()])
    assert found.failures or found.errors
