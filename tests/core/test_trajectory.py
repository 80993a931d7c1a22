"""Masks: no prefix token of a retry ever carries gradient; every suffix response token does."""

import numpy as np
import pytest
from conftest import make_trajectory, make_turn
from hypothesis import given
from hypothesis import strategies as st

from r3l.core.trajectory import Turn
from r3l.credit import assign_pivotal_credit
from r3l.retry import distil


def trained_turns(trajectory):
    mask, turns, at = trajectory.credit_mask(), [], 0
    for k, turn in enumerate(trajectory.turns):
        at += len(turn.prompt_ids)
        if mask[at : at + len(turn.response_ids)].any():
            turns.append(k)
        at += len(turn.response_ids)
    return turns


@pytest.mark.parametrize(("pivot", "expected"), [(2, [2, 3, 4]), (0, [0, 1, 2, 3, 4]), (5, []), (9, [])])
def test_golden_mask_of_five_turns(pivot, expected):
    assert trained_turns(make_trajectory(5, pivot=pivot)) == expected


def test_tokens_and_logprobs_in_order():
    t = make_trajectory(2)
    assert t.token_ids().tolist() == [100, 0, 1, 101, 10, 11]
    assert t.response_mask().tolist() == [0, 1, 1, 0, 1, 1]
    assert t.old_logprobs().tolist() == [0, -0.5, -0.5, 0, -0.5, -0.5]


def test_a_turn_refuses_unequal_lengths():
    with pytest.raises(ValueError, match="2 response ids but 1 log-probs"):
        Turn("o", "r", (1,), (2, 3), (-1.0,), "end")


@given(st.integers(1, 12), st.data())
def test_pivotal_credit_on_base_and_retry(turns, data):
    pivot = data.draw(st.integers(0, turns - 1))
    base = make_trajectory(turns)
    guided = make_trajectory(data.draw(st.integers(pivot, 15)), kind="guided_retry", pivot=pivot)
    distilled = distil(guided, base)
    assign_pivotal_credit(base, distilled, pivot)
    for trajectory in (base, distilled):
        mask, at = trajectory.credit_mask(), 0
        for k, turn in enumerate(trajectory.turns):
            assert not mask[at : at + len(turn.prompt_ids)].any()  # prompts never
            at += len(turn.prompt_ids)
            assert (mask[at : at + len(turn.response_ids)] == float(k >= pivot)).all()
            at += len(turn.response_ids)


def test_distillation_swaps_only_the_pivot_prompt():
    base = make_trajectory(3)
    guided = make_trajectory(4, kind="guided_retry", pivot=1)
    hinted = make_turn(1)
    guided.turns[1] = Turn(**{**hinted.__dict__, "prompt_ids": (900, 901, 101)})
    clean = distil(guided, base)
    assert clean.kind == "distilled"
    assert clean.turns[1].prompt_ids == base.turns[1].prompt_ids
    assert clean.turns[1].response_ids == guided.turns[1].response_ids
    assert clean.turns[0] == guided.turns[0] and clean.turns[2:] == guided.turns[2:]
    assert guided.turns[1].prompt_ids == (900, 901, 101)  # the guided sample keeps its guidance
    np.testing.assert_array_equal(clean.token_ids()[:3], base.token_ids()[:3])
