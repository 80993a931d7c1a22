"""GiGPO against hand-computed values: episodes compared with each other, turns with turns from the same
state.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import make_trajectory
from r3l.baselines.gigpo import GiGPO, states
from r3l.baselines.grpo import GRPO

from r3l.core.batching import collate, rows_of
from r3l.core.trajectory import Group

WON, LOST = (
    make_trajectory(3, 1.0),
    make_trajectory(2),
)  # both see "see 0", then "see 1"; the winner also "see 2"
GROUP = Group(WON.task, [WON, LOST])
HALF = {"gamma": 0.5}


def by_turn(method, group):
    """The advantage of each turn; checks that its two tokens have it and that prompts have none."""
    out = []
    for advantages_T in method.advantages(group):
        rows = advantages_T.reshape(-1, 3)  # a prompt token and two of the response
        assert not rows[:, 0].any() and (rows[:, 1] == rows[:, 2]).all()
        out.append(rows[:, 1].tolist())
    return out


def test_a_turns_advantage_is_added_to_its_episodes():
    """Discounted returns: 1/4 1/2 1 and 0 0. Means at "see 0": 1/8, at "see 1": 1/4; "see 2" has no other
    turn.
    """
    won, lost = by_turn(GiGPO({**HALF, "normalisation": "none"}), GROUP)
    np.testing.assert_allclose(won, [0.5 + 0.125, 0.5 + 0.25, 0.5])
    np.testing.assert_allclose(lost, [-0.5 - 0.125, -0.5 - 0.25])


def test_both_levels_are_divided_by_their_deviation():
    """Two values standardise to +-1/sqrt 2, however far apart they are."""
    half = 1 / np.sqrt(2)
    won, lost = by_turn(GiGPO(HALF), GROUP)
    np.testing.assert_allclose(won, [2 * half, 2 * half, half], rtol=1e-4)
    np.testing.assert_allclose(lost, [-2 * half, -2 * half], rtol=1e-4)


def test_omega_weighs_turns_and_none_leaves_grpo():
    won, _ = by_turn(GiGPO({**HALF, "normalisation": "none", "omega": 2.0}), GROUP)
    np.testing.assert_allclose(won, [0.5 + 0.25, 0.5 + 0.5, 0.5])
    won, lost = by_turn(GiGPO({"omega": 0.0}), GROUP)
    expected = GRPO({}).advantages(GROUP)
    np.testing.assert_allclose([*won, *lost], [expected[0]] * 3 + [expected[1]] * 2, rtol=1e-6)


def test_a_rollout_that_comes_back_to_a_state_is_compared_with_itself():
    """A, B, A with reward 1: returns 1/4 1/2 1. The two visits of A differ by 3/4: the later one did
    better.
    """
    seen = [replace(turn, observation=text) for turn, text in zip(WON.turns, "ABA", strict=True)]
    (turns,) = by_turn(GiGPO({**HALF, "normalisation": "none"}), Group(WON.task, [replace(WON, turns=seen)]))
    np.testing.assert_allclose(turns, [1 - 3 / 8, 1, 1 + 3 / 8])  # an episode without others keeps its return


def test_between_lines_of_a_response_the_state_is_what_was_written():
    lines = [
        replace(turn, observation="" if k else "2 + 2?", response=f"{k}\n")
        for k, turn in enumerate(WON.turns)
    ]
    assert states(replace(WON, turns=lines)) == ["2 + 2?", "2 + 2?0\n", "2 + 2?0\n1\n"]


def test_the_first_observation_may_be_empty():
    turns = [replace(WON.turns[0], observation=""), *WON.turns[1:]]
    assert states(replace(WON, turns=turns)) == ["", "see 1", "see 2"]


@pytest.mark.parametrize("samples", ["trajectory", "turn"])
def test_rows_and_batches_carry_the_advantage_of_each_token(samples):
    rows = rows_of(GiGPO({**HALF, "normalisation": "none"}), [GROUP], samples)
    batch = collate(rows, torch.device("cpu"))
    of_tokens = batch.advantages_B_T[batch.mask_B_T > 0]
    expected = np.repeat([0.625, 0.75, 0.5, -0.625, -0.75], 2)
    np.testing.assert_allclose(of_tokens, expected)
    means = [0.625, -0.6875] if samples == "trajectory" else [0.625, 0.75, 0.5, -0.625, -0.75]
    assert [row.mean_advantage for row in rows] == pytest.approx(means)


def test_a_row_without_signal_has_zero_advantage_on_every_trained_token():
    """Equal rewards, but the winner of the longer way gets less for its first turn."""
    quick, slow = make_trajectory(1, 1.0), make_trajectory(2, 1.0)
    rows = rows_of(GiGPO({"normalisation": "none"}), [Group(quick.task, [quick, slow])])
    assert [row.no_signal for row in rows] == [False, False]
    rows = rows_of(GiGPO({"normalisation": "none"}), [Group(quick.task, [quick, make_trajectory(1, 1.0)])])
    assert [row.no_signal for row in rows] == [True, True]
