"""Tests of the server's view: masked inputs are uniform, after unmasking uniform given the sum."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from scipy.stats import chisquare

from dpcore.numbers.arrays import Integers
from dpcore.sampling.rng import SeededRng
from dpcore.secure_aggregation import user as masked_user
from dpcore.secure_aggregation.keys_and_masks import (
    agreements,
    mask,
    mask_key,
    self_mask_key,
    subtract,
)
from dpcore.secure_aggregation.masked_aggregation import Step
from dpcore.secure_aggregation.messages import MaskedInput
from dpcore.secure_aggregation.round_parameters import Neighbourhood
from tests.alpha_budget import buy_alpha
from tests.support.dpcore.mutants import mutated
from tests.support.secure_aggregation.recorded_round import Rehearsal, rehearse, take_step

M = 5
COUNT = 20_000
NAMES = ("ann", "bob", "eve")
INPUTS = {
    "ann": np.full(COUNT, 4),
    "bob": np.zeros(COUNT, dtype=np.int64),
    "eve": np.full(COUNT, 1),
}


def played(
    vanish: dict[str, Step],
    seed: int,
    inputs: dict[str, Integers] = INPUTS,
    neighbourhood: Neighbourhood | None = None,
) -> Rehearsal:
    return rehearse(
        names=tuple(inputs),
        inputs=inputs,
        neighbourhood=neighbourhood,
        modulus=M,
        coordinates=COUNT,
        vanish=vanish,
        seed=seed,
    )


def arrived(play: Rehearsal) -> dict[str, Integers]:
    return {n: body.values for n, body in play.full[Step.INPUT].arrived.items()}


def without_self_masks(play: Rehearsal) -> dict[str, Integers]:
    seeds = {n: play.after[Step.SHARES][n].seed for n in arrived(play)}
    return {
        n: subtract(y, mask(self_mask_key(seeds[n], play.terms, n), count=COUNT, modulus=M), M)
        for n, y in arrived(play).items()
    }


def p_value(rows: list[Integers]) -> float:
    cells = np.zeros(COUNT, dtype=np.int64)
    for row in rows:
        cells = cells * M + row
    return float(chisquare(np.bincount(cells, minlength=M ** len(rows))).pvalue)


NO_SELF = ("add(inputs, self_mask, terms.modulus)", "inputs")
NO_PAIRS = ("_agreements(state.masking, public)", "{}")


def test_masked_inputs_are_jointly_uniform(monkeypatch: pytest.MonkeyPatch) -> None:
    alpha = buy_alpha("masked aggregation: view before unmasking", "1e-9")
    assert p_value(list(arrived(played({}, 11)).values())) > alpha
    monkeypatch.setattr(masked_user, "masked", mutated(masked_user.masked, *NO_SELF))
    assert p_value(list(arrived(played({}, 11)).values())) < alpha


def test_after_unmasking_inputs_are_uniform_given_their_sum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alpha = buy_alpha("masked aggregation: view after unmasking", "1e-9")
    rows = without_self_masks(played({}, 12))
    assert set((rows["ann"] + rows["bob"] + rows["eve"]) % M) == {
        0
    }  # 4 + 0 + 1: the sum, at every coordinate
    for left_out in NAMES:
        assert p_value([rows[n] for n in NAMES if n != left_out]) > alpha / 3
    # The mutant also gives the correct sum: only the view differs.
    monkeypatch.setattr(masked_user, "masked", mutated(masked_user.masked, *NO_PAIRS))
    bare = played({}, 12)
    assert bare.total is not None
    assert bare.total.sum.tolist() == [0] * COUNT
    assert p_value([without_self_masks(bare)[n] for n in NAMES[:2]]) < alpha / 3


def without_pair_masks(play: Rehearsal, name: str, row: Integers, other: str) -> Integers:
    r"""Return a row of ``name`` minus the mask it shares with ``other``, from ``other``'s key."""
    private = play.after[Step.SHARES][other].masking.private
    public = play.server[Step.SHARES].keys[name].masking
    secret = agreements(private, {name: public})[name]
    pair = mask(mask_key(secret, play.terms, name, other), count=COUNT, modulus=M)
    return (row - pair if name < other else row + pair) % M


def late_input(seed: int) -> Integers:
    r"""Return Bob's late masked input, minus the masks from his revealed key."""
    play = played({"bob": Step.INPUT}, seed)
    state, data = play.after[Step.SHARES]["bob"], play.given[Step.INPUT]["bob"]
    _, message = take_step(Step.INPUT, state, data, INPUTS["bob"], SeededRng(0))
    row = play.server[Step.INPUT].channels["bob"].receive(message, MaskedInput).values
    for other in ("ann", "eve"):
        row = without_pair_masks(play, "bob", row, other)
    return np.asarray(row)


def test_a_late_input_stays_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    # This is the purpose of the self mask: without it the server would learn Bob's zeros.
    alpha = buy_alpha("masked aggregation: an input that came too late", "1e-9")
    assert p_value([late_input(14)]) > alpha
    monkeypatch.setattr(masked_user, "masked", mutated(masked_user.masked, *NO_SELF))
    assert (late_input(14) == INPUTS["bob"]).all()


RING = Neighbourhood(neighbours=2, threshold=2)
FOUR = {**INPUTS, "joe": np.full(COUNT, 2)}


def test_colluding_users_see_the_sum_of_each_separated_group() -> None:
    # This is why the graph must stay connected without colluding users and dropouts.
    alpha = buy_alpha("masked aggregation: colluding users on a ring", "1e-9")
    play = played({}, 16, FOUR, RING)
    bare, near = without_self_masks(play), play.server[Step.KEYS].near
    together, apart = 0, 0
    for pair in combinations(FOUR, 2):
        rows = {}
        for name, row in bare.items():
            if name not in pair:
                for other in set(pair) & set(near[name]):
                    row = without_pair_masks(play, name, row, other)  # noqa: PLW2901 - taken off one by one
                rows[name] = row
        one, two = rows
        if two in near[one]:
            together += 1
            assert p_value([rows[one]]) > alpha / 4
            assert set((rows[one] + rows[two]) % M) == set((FOUR[one] + FOUR[two]) % M)
        else:
            apart += 1
            assert all((rows[name] == FOUR[name]).all() for name in rows)
    assert (together, apart) == (4, 2)
