"""ERL's groups and advantages: a winner, and two failures of which the second attempts win and lose."""

import numpy as np
import pytest
import torch
from exploration import LOSE, WIN, explore, review, shape
from scripted import say

from r3l.config import build_method, resolve
from r3l.core.batching import collate, rows_of
from r3l.core.errors import ConfigError

SCRIPT = {
    "rollout": WIN + LOSE + LOSE,
    "reflection": [review(1), review(1)],
    "retry": [*WIN, say("fly")],
}
ROOT = np.sqrt(0.5)
FIRST = ("policy", [("base", 1.0), ("base", 0.0), ("base", 0.0)])
SECOND = ("policy", [("guided_retry", 1.0), ("guided_retry", 0.0)])
REFLECTIONS = ("policy", [("reflection", 0.0), ("reflection", 0.0)])
A_FIRST, A_SECOND = [2 / np.sqrt(3), -1 / np.sqrt(3), -1 / np.sqrt(3)], [ROOT, -ROOT]


@pytest.mark.parametrize(
    ("settings", "groups", "advantages"),
    [
        (
            {},
            [FIRST, SECOND, REFLECTIONS, ("sft", [("distilled", 1.0)])],
            [A_FIRST, A_SECOND, A_SECOND, None],
        ),
        (
            {"distil": "policy"},
            [FIRST, SECOND, REFLECTIONS, ("policy", [("distilled", 1.0), ("distilled", 0.0)])],
            [A_FIRST, A_SECOND, A_SECOND, [1.0, 0.0]],
        ),
        ({"distil": "none", "train_guided": False}, [FIRST, REFLECTIONS], [A_FIRST, A_SECOND]),
        ({"distil": "none", "reward_reflection": False}, [FIRST, SECOND], [A_FIRST, A_SECOND]),
        ({"train_on": "reflection_only"}, [("none", FIRST[1]), REFLECTIONS], [None, A_SECOND]),
    ],
)
def test_groups_and_golden_advantages(settings, groups, advantages):
    """Standardised: 1 0 0 gives 2 -1 -1 over sqrt 3; two values +-1 over sqrt 2; distilled keep max(r, 0)."""
    method, explored, counters = explore("erl", SCRIPT, group_size=3, **settings)
    assert shape(explored) == groups
    for group, expected in zip(explored, advantages, strict=True):
        if expected is not None:
            np.testing.assert_allclose(method.advantages(group), expected, atol=1e-5)
    assert counters["rollouts"] == 5 <= method.max_rollouts == 6
    assert counters["reflection/count"] == 2


def test_a_retry_starts_over_and_is_distilled_without_the_hint():
    _, (_, second, reflections, distilled), _ = explore("erl", SCRIPT, group_size=3, distil="policy")
    for guided, clean in zip(second.trajectories, distilled.trajectories, strict=True):
        assert (guided.restart_turn, clean.restart_turn) == (0, 0)
        assert [t.response_ids for t in guided.turns] == [t.response_ids for t in clean.turns]
        assert guided.turns[0].prompt_ids != clean.turns[0].prompt_ids
        assert guided.turns[1:] == clean.turns[1:] or len(guided.turns) == 1
        np.testing.assert_array_equal(clean.credit_mask(), clean.response_mask())
        assert clean.rescore and clean.off_policy and not guided.off_policy
    for reflection in reflections.trajectories:
        assert reflection.credit_mask().sum() == 2 and reflection.trains(len(reflection.turns) - 1)


def test_a_reflection_without_retry_is_worth_nothing():
    """The first is no JSON; the second one's retry wins: returns 0 and 1."""
    script = {"rollout": LOSE + LOSE, "reflection": ["oh well", review(0)], "retry": WIN}
    method, groups, _ = explore("erl", script, group_size=2)
    assert shape(groups)[1:] == [
        ("policy", [("guided_retry", 1.0)]),
        REFLECTIONS,
        ("sft", [("distilled", 1.0)]),
    ]
    np.testing.assert_allclose(method.advantages(groups[2]), [-ROOT, ROOT], atol=1e-5)


def test_nothing_to_reflect_on_leaves_grpo():
    method, groups, _ = explore("erl", {"rollout": WIN + WIN}, group_size=2)
    assert shape(groups) == [("policy", [("base", 1.0), ("base", 1.0)])]
    np.testing.assert_array_equal(method.advantages(groups[0]), [0.0, 0.0])


def test_a_critics_text_guides_the_retry_and_does_not_train():
    script = {"rollout": LOSE + LOSE, "retry": [*WIN, say("fly")]}
    _, groups, counters = explore("erl", script, group_size=2, feedback="environment")
    assert [[t.kind for t in g.trajectories] for g in groups] == [
        ["base"] * 2,
        ["guided_retry"] * 2,
        ["distilled"],
    ]
    assert counters["reflection/by_environment"] == 2 and counters["tokens/reflection"] == 0


def test_training_reflections_alone_needs_those_of_the_policy():
    with pytest.raises(ConfigError, match="reflection_only trains what the policy writes: set feedback=self"):
        build_method(resolve("nano", "alfworld", "erl@train_on=reflection_only,feedback=environment", 0))


def test_weights_of_policy_and_imitation_rows():
    """token_mean: each policy token weighs 1 / (all of the step), each imitated one 1 / (all imitated)."""
    method, groups, _ = explore("erl", SCRIPT, group_size=3)
    batch = collate(rows_of(method, groups), torch.device("cpu"))
    policy = 2 * (
        len(WIN) + 2 * len(LOSE) + len(WIN) + 1 + 2
    )  # first, second attempts, reflections: 2 a turn
    weights = batch.weight_B_T[~batch.sft_B]
    assert weights[weights > 0].unique().tolist() == pytest.approx([1 / policy])
    weights = batch.weight_B_T[batch.sft_B]
    assert weights[weights > 0].unique().tolist() == pytest.approx([1 / (2 * len(WIN))])


def test_the_released_profile():
    method = build_method(resolve("nano", "alfworld", "erl@profile=released_code", 0))
    s = method.settings
    assert (s.distil, s.reward_reflection, s.group_size, s.clip_high) == ("policy", True, 4, 0.28)
    assert (method.kl_coef, method.loss_agg) == (0.001, "token_sum")


@pytest.mark.parametrize("name", ["erl", "reflect_grpo"])
def test_an_option_that_would_do_nothing_is_refused(name):
    with pytest.raises(ConfigError, match="reflects on failures alone"):
        resolve("nano", "math", f"{name}@reflect_when=failed_only", 0)
