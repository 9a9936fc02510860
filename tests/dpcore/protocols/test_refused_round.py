r"""Tests of refused rounds: the sum may be revealed, so the error carries the record to charge."""

from __future__ import annotations

import copy
import pickle
from fractions import Fraction
from typing import Any

import pytest

from dpcore import DiscreteLaplace
from dpcore.laws.polya_difference import PolyaDifference
from dpcore.protocols.noisy_sums import AggregatedSum
from dpcore.protocols.run_protocol import RoundRefused, run
from dpcore.secure_aggregation.masked_aggregation import MaskedAggregation, Step
from dpcore.secure_aggregation.messages import AggregationRefused
from tests.support.dpcore.mutants import mutated

SHARE = DiscreteLaplace(scale=2).share(4)
PURE = AggregatedSum(users=4, precision=2, threshold=60, share=SHARE)
PEOPLE = {"ann": 1, "bob": "1/2", "eve": Fraction(0), "joe": 0.5}


def parts(users: int, modulus: int, dropouts: int = 0) -> MaskedAggregation:
    return MaskedAggregation(users=users, dropouts=dropouts, coordinates=1, modulus=modulus)


def too_few_reply(play: Any = run, **more: Any) -> AggregationRefused:
    r"""Of four inputs in the sum, two users reply; three replies are necessary."""
    silent = {"bob": Step.UNMASK, "joe": Step.UNMASK}
    with pytest.raises(AggregationRefused) as refused:
        play(PURE, PEOPLE, parts(4, PURE.modulus, dropouts=1), batch="b", vanish=silent, **more)
    return refused.value


def carries_what_it_may_have_shown(refused: AggregationRefused) -> bool:
    # ann colludes: the sum is hidden by the shares of the three others.
    release = getattr(refused, "release", None)
    return (
        release is not None
        and release.mechanism.noise == PolyaDifference(shape="3/4", scale=2)
        and release.mechanism.sensitivity.amount == PURE.precision
        and (release.participants, release.honest) == (tuple(PEOPLE), Fraction(3, 4))
        and release.batch == "b"
    )


def test_a_round_that_is_refused_leaves_a_record_to_charge() -> None:
    refused = too_few_reply(colluding=["ann"])
    assert isinstance(refused, RoundRefused)
    assert carries_what_it_may_have_shown(refused)
    cause = refused.__cause__
    assert type(cause) is AggregationRefused
    assert (refused.message, refused.sender) == (cause.message, cause.sender)
    assert refused.message == "the step UnmaskReply"
    tail = "; charge its release, and draw fresh noise for the next round"
    assert str(refused) == f"{cause}{tail}"
    # An error that is sent to another process keeps its record.
    unpickled = pickle.loads(pickle.dumps(refused))  # noqa: S301 - these bytes are our own
    for twin in (copy.copy(refused), unpickled):
        assert carries_what_it_may_have_shown(twin)
        assert str(twin) == str(refused)
    # Users who vanish before the input are not in the record.
    gone = {"ann": Step.INPUT, "bob": Step.UNMASK}
    masked = parts(4, PURE.modulus, dropouts=1)
    with pytest.raises(RoundRefused) as caught:
        run(PURE, PEOPLE, masked, batch="b", vanish=gone)
    assert caught.value.release.participants == ("bob", "eve", "joe")
    assert caught.value.release.mechanism == PURE.mechanism(3)


@pytest.mark.parametrize(
    "edit",
    [
        ("except AggregationRefused", "except ZeroDivisionError"),
        ("mechanism=protocol.mechanism(crowd.honest)", "mechanism=protocol.mechanism(4)"),
        ("participants=crowd.present,\n            honest=Fraction(1)", "honest=Fraction(1)"),
    ],
    ids=["no record", "everyone's noise", "nobody in it"],
)
def test_a_refused_round_without_its_record_is_seen(edit: tuple[str, str]) -> None:
    assert not carries_what_it_may_have_shown(too_few_reply(mutated(run, *edit), colluding=["ann"]))
