"""Critique-GRPO's samples: which refinement replaces its rollout."""

import numpy as np
from exploration import CRITIQUE_SCRIPT, LOSE, WIN, explore, played, review, shape
from scripted import TASK

from r3l.runs.steps import group_metrics


def test_critique_grpo_swaps_in_the_best_refinement():
    method, groups, counters = explore("critique_grpo", CRITIQUE_SCRIPT, group_size=2)
    assert shape(groups) == [("policy", [("base", 0.0), ("refined", 1.0)])]
    assert [t.member for t in groups[0].trajectories] == [0, 1]  # always N samples
    assert [t.off_policy for t in groups[0].trajectories] == [False, True]
    z = 0.5 / (np.sqrt(0.5) + 1e-6)
    np.testing.assert_allclose(method.advantages(groups[0]), [-z, z])
    assert counters["critique/by_model"] == 2 and counters["rollouts"] == 4


def test_success_in_training_counts_the_rollout_that_a_refinement_replaced():
    """The success rate counts the two rollouts, not the refinement."""
    script = {"rollout": WIN + LOSE, "critique": [review(0)], "retry": WIN}
    _, groups, a = played("critique_grpo", script, group_size=2)
    assert shape(groups) == [("policy", [("base", 1.0), ("refined", 1.0)])]
    metrics = group_metrics(groups, a.trajectories)
    assert (
        metrics["train/success"] == metrics["train/reward"] == metrics[f"train/success/{TASK.group}"] == 0.5
    )
    assert metrics["train/turns"] == (len(WIN) + len(LOSE)) / 2


def test_an_empty_critique_is_counted_and_gets_no_retry():
    script = {"rollout": LOSE, "critique": ["  "]}
    _, groups, counters = explore("critique_grpo", script, group_size=1)
    assert shape(groups) == [("policy", [("base", 0.0)])] and counters["critique/invalid/empty"] == 1
