"""Tree-GRPO: branches of a rollout on the real engine, and advantages by hand."""

from dataclasses import replace

import numpy as np
import pytest
from conftest import make_trajectory
from exploration import LOSE, WIN, explore, played, shape
from r3l.baselines.grpo import GRPO
from r3l.baselines.tree_grpo import TreeGRPO
from scripted import say

from r3l.core.trajectory import Group

FLY = say("fly")  # an invalid action, which ends an episode


def leaves(*rewards_of_trees):
    trees = [
        replace(make_trajectory(1, r), member=m)
        for m, rewards in enumerate(rewards_of_trees)
        for r in rewards
    ]
    return Group(trees[0].task, trees)


def test_golden_advantages_among_the_task_and_within_trees():
    """Rewards 1 0 0 | 0 0 0. Task: mean 1/6, s = 1/sqrt(6). First tree: mean 1/3, s = 1/sqrt(3)."""
    group = leaves([1.0, 0.0, 0.0], [0.0, 0.0, 0.0])
    task = [2.041241, *[-0.408248] * 5]
    tree = [1.154701, *[-0.577350] * 2, 0.0, 0.0, 0.0]
    np.testing.assert_allclose(TreeGRPO({"levels": "task"}).advantages(group), task, atol=1e-5)
    np.testing.assert_allclose(TreeGRPO({"levels": "tree"}).advantages(group), tree, atol=1e-5)
    np.testing.assert_allclose(TreeGRPO({}).advantages(group), np.add(task, tree), atol=1e-5)


def test_trees_of_one_leaf_are_grpo():
    """Three trees of one leaf each: nothing to compare within a tree."""
    group = leaves([1.0], [0.0], [0.0])
    np.testing.assert_array_equal(TreeGRPO({}).advantages(group), GRPO({}).advantages(group))


def test_equal_leaves_have_no_advantage():
    np.testing.assert_array_equal(TreeGRPO({}).advantages(leaves([1.0, 1.0], [1.0])), [0.0, 0.0, 0.0])


@pytest.mark.parametrize(
    ("size", "trees", "sizes"), [(4, 2, [2, 2]), (5, 2, [3, 2]), (2, 3, [1, 1]), (3, 1, [3])]
)
def test_a_task_has_n_leaves_whatever_the_number_of_trees(size, trees, sizes):
    script = {"rollout": LOSE * len(sizes), "retry": [FLY] * size}
    method, (group,), counters = explore("tree_grpo", script, group_size=size, trees=trees)
    members = [leaf.member for leaf in group.trajectories]
    assert [members.count(m) for m in range(len(sizes))] == sizes
    assert counters["rollouts"] == size == method.max_rollouts == method.max_samples
    assert counters["reflection/count"] == counters["critique/by_model"] == 0


def test_a_branch_is_the_rollout_up_to_its_turn_and_reads_no_hint():
    """The winner's branches end at once. Their prompts are the rollout's, so they are on-policy."""
    script = {"rollout": WIN, "retry": [FLY] * 3}
    _, (group,), _ = explore("tree_grpo", script, group_size=4, trees=1)
    base, *branches = group.trajectories
    assert shape([group]) == [("policy", [("base", 1.0), *[("guided_retry", 0.0)] * 3])]
    for branch in branches:
        turn = branch.restart_turn
        assert branch.turns[:turn] == base.turns[:turn] and len(branch.turns) == turn + 1
        assert branch.turns[turn].prompt_ids == base.turns[turn].prompt_ids
        assert branch.turns[turn].observation == base.turns[turn].observation
        assert not branch.off_policy and not branch.rescore
    assert len({(b.member, b.attempt) for b in group.trajectories}) == 4


def test_branches_begin_at_every_turn_equally_often():
    """Sixty branches of a rollout of two turns: 30 at each, five deviations are 19."""
    _, (group,), _ = explore("tree_grpo", {"rollout": LOSE, "retry": [FLY] * 60}, group_size=61, trees=1)
    turns = [leaf.restart_turn for leaf in group.trajectories[1:]]
    assert set(turns) == {0, 1} and abs(turns.count(0) - 30) <= 19


def test_shared_turns_train_in_every_leaf_or_in_none():
    """Under R3L's rule the rollout trains from its first branch, and a branch its own turn."""
    script = {"rollout": WIN, "retry": [FLY] * 2}
    _, (trained,), _ = explore("tree_grpo", script, group_size=3, trees=1)
    for leaf in trained.trajectories:
        np.testing.assert_array_equal(leaf.credit_mask(), leaf.response_mask())
    _, (masked,), _ = explore("tree_grpo", script, group_size=3, trees=1, shared_prefix="masked")
    base, *branches = masked.trajectories
    assert base.trainable == range(min(b.restart_turn for b in branches), len(WIN))
    assert [b.credit_mask().sum() for b in branches] == [2, 2]


def test_a_seed_repeats_its_branches():
    script = {"rollout": WIN, "retry": [FLY] * 3}
    turns = [
        [t.restart_turn for t in played("tree_grpo", script, group_size=4, trees=1)[1][0].trajectories]
        for _ in range(2)
    ]
    assert turns[0] == turns[1]
