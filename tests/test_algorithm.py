"""R3L's samples: the retries, their trainable turns, and what is imitated."""

import numpy as np
import pytest
from conftest import make_trajectory
from exploration import LOSE, PERFECT, R3L_SCRIPT, WIN, explore, review, shape
from scripted import Scripted, rollout_context, say

from r3l.algorithm import R3L


def test_r3l_sample_layout_paper():
    """A failed base retried from turn 1 without success, a solved base with a perfect reflection."""
    method, groups, counters = explore("r3l", R3L_SCRIPT, group_size=4)
    assert shape(groups) == [("policy", [("base", 0.0), ("distilled", 0.0), ("base", 1.0)])]
    base, distilled, solved = groups[0].trajectories
    assert (base.trainable, solved.trainable, distilled.trainable) == (range(1, 2), None, range(1, 2))
    np.testing.assert_allclose(method.advantages(groups[0]), [-1 / 3, -1 / 3, 3.0])
    assert counters["retry/count"] == 1 and counters["reflection/valid"] == 2
    assert counters["rollouts"] == 3 <= method.max_rollouts


def rescue(**settings):
    """A failed base whose retry from the start wins."""
    script = {"rollout": LOSE, "reflection": [review(0)], "retry": WIN}
    return explore("r3l", script, group_size=2, **settings)


def test_r3l_imitates_verified_improvements():
    method, groups, _ = rescue()
    assert shape(groups) == [
        ("policy", [("base", 0.0), ("distilled", 1.0)]),
        ("sft", [("reflection", 0.0), ("guided_retry", 1.0)]),
    ]
    np.testing.assert_allclose(method.advantages(groups[0]), [-0.5, 3.0])
    reflection = groups[1].trajectories[0]
    assert reflection.credit_mask().sum() == 2  # of the dialog only the reflection's own two tokens


def test_r3l_released_triggers():
    script = {
        "rollout": WIN + WIN,
        "reflection": [PERFECT, review(0, trajectory_outcome="success_but_inefficient")],
    }
    script["retry"] = WIN
    _, groups, _ = explore("r3l", script, group_size=4)
    assert len(groups) == 1  # solved again, in as many steps: no improvement
    released = {"sft_trigger": "solved_improve_or_shorter", "sft_perfect_reflection": True}
    _, groups, _ = explore("r3l", script, group_size=4, **released)
    assert shape(groups)[1] == ("sft", [("reflection", 0.0)])  # the perfect one; the retry is not shorter


def test_the_release_imitates_another_retry_as_if_it_had_been_right():
    """Audit B-15: a retry from turn 1 wins; the one sampled after it fails and has advantage 1 all the
    same.
    """
    script = {"rollout": LOSE, "reflection": [review(1)], "retry": [*WIN, say("fly")]}
    released = {
        "sft_mode": "reward1_singleton",
        "amplify_rule": "released_code",
        "amplify_all_equal": "as_rule",
    }
    method, groups, counters = explore("r3l", script, group_size=2, imitated_retry="resampled", **released)
    assert shape(groups) == [
        ("policy", [("base", 0.0), ("distilled", 1.0)]),
        ("policy", [("reflection", 0.0)]),
        ("policy", [("guided_retry", 0.0)]),
    ]
    (imitated,) = groups[2].trajectories
    assert (method.advantages(groups[2]).tolist(), imitated.trainable) == ([1.0], range(1, 2))
    assert counters["rollouts"] == 3 == method.max_rollouts  # paid for, and no retry of the method
    assert (counters["retry/count"], counters["retry/success"]) == (1, 1)


def test_r3l_ablations_change_one_thing():
    _, groups, _ = rescue(credit=[])
    assert [t.trainable for t in groups[0].trajectories] == [None, None]
    _, groups, counters = explore("r3l_no_reflection", {"rollout": WIN + LOSE}, group_size=2)
    assert (
        shape(groups) == [("policy", [("base", 1.0), ("base", 0.0)])] and "reflection/count" not in counters
    )
    script = {"rollout": LOSE, "reflection": [review(1)], "retry": WIN}
    _, groups, _ = explore("r3l_from_start", script, group_size=2)
    assert groups[0].trajectories[1].success and groups[0].trajectories[0].trains(0)
    for name, same in (("r3l", False), ("r3l_no_guidance", True)):
        _, groups, _ = explore(name, script, group_size=2, pivot="start", train_on="guided")
        base, guided = groups[0].trajectories
        assert (guided.turns[0].prompt_ids == base.turns[0].prompt_ids) is same


def test_the_oracle_pivot_is_the_environments_review():
    """ALFWorld's scripted reviewer: ``look`` at turn 0 was needless, but the impossible ``fly`` ended the
    episode.
    """
    script = {"rollout": LOSE, "reflection": [review(0)], "retry": [say("fly")]}
    _, groups, counters = explore("r3l_oracle_pivot", script, group_size=2)
    assert groups[0].trajectories[1].restart_turn == groups[0].trajectories[1].trainable.start == 1
    assert counters["pivot/with_oracle"] == 1 and counters["pivot/oracle_agrees"] == 0


def test_random_pivots_are_addressed_and_uniform():
    from r3l.retry import choose_pivot

    a = rollout_context(Scripted([]), None)
    pivots = []
    for member in range(400):
        base = make_trajectory(4)
        base.member = member
        pivots.append(choose_pivot("random", 0, None, base, a))
        assert pivots[-1] == choose_pivot("random", 3, 2, base, a)
    assert set(pivots) == {0, 1, 2, 3} and max(abs(pivots.count(k) - 100) for k in range(4)) < 45  # 5 sd


def test_random_pivots_of_several_retries_are_drawn_apart():
    """Four retries of an attempt of two turns: not all from the same one. The first is what it was alone."""
    script = {"rollout": LOSE * 8, "reflection": [review(0)] * 40, "retry": [say("fly")] * 40}
    _, groups, _ = explore("r3l_random_pivot", script, group_size=8, retries=4)
    _, alone, _ = explore("r3l_random_pivot", script, group_size=2)
    pivots = [t.restart_turn for t in groups[0].trajectories if t.kind == "distilled"]
    assert len(pivots) == 4 and len(set(pivots)) == 2
    assert pivots[0] == alone[0].trajectories[1].restart_turn


def test_options_that_would_do_nothing_are_refused():
    with pytest.raises(ValueError, match="retries is 8, .* must be below group_size, 8"):
        R3L({"retries": 8, "group_size": 8})
    with pytest.raises(ValueError, match="baseline is 'logavgexp', but standardised"):
        R3L({"advantage": "standardised", "baseline": "logavgexp"})


def test_retries_per_base_keep_the_budget():
    """N = 8: two retries per base give 2 bases, 4 retries and 2 plain rollouts; four give 1, 4 and 3."""
    for retries, bases in ((0, 8), (2, 4), (4, 4)):
        script = {"rollout": LOSE * 8, "reflection": [review(0)] * 4, "retry": [say("fly")] * 4}
        _, groups, counters = explore("r3l", script, group_size=8, retries=retries)
        kinds = [t.kind for t in groups[0].trajectories]
        assert (kinds.count("base"), kinds.count("distilled")) == (bases, 8 - bases)
        assert counters["rollouts"] == 8
        members = [t.member for t in groups[0].trajectories if t.kind == "base"]
        assert sorted(members) == list(range(bases))


def test_a_base_without_retry_can_be_replaced():
    script = {"rollout": LOSE + WIN, "reflection": ["nonsense"]}
    _, groups, counters = explore("r3l", script, group_size=2, missing_retry="resample_base")
    assert shape(groups) == [("policy", [("base", 0.0), ("base", 1.0)])]
    assert counters["reflection/invalid/no_json"] == 1


def test_each_advantage_says_how_it_came_about():
    """Mean 0.5; with amplification as in the paper, and of GRPO's advantages (deviation 0.383)."""
    returns_G = np.array([1.0, 0.6, 0.2, 0.2])
    paper = R3L({}).explained_advantages(returns_G)
    assert [round(a, 6) for a, _ in paper] == [3.0, 0.3, -0.3, -0.3]
    assert [how for _, how in paper[:3]] == [
        "alpha = 3, for the largest reward of the group",
        "3 x (r - mean = 0.60 - 0.50)",
        "r - mean = 0.20 - 0.50",
    ]
    amplified = R3L({"advantage": "standardised", "reward_max": "env_max", "alpha": 2.0})
    assert "(0.60 - 0.50) / 0.38" in amplified.explained_advantages(returns_G)[1][1]


@pytest.mark.parametrize(("progress", "kinds"), [(1 / 3, ["base", "distilled"]), (0.34, ["base", "base"])])
def test_attempts_are_reflected_on_until_a_share_of_training(progress, kinds):
    """Afterwards a task costs as many plain rollouts as it has members."""
    script = {"rollout": LOSE + LOSE, "reflection": [review(0)], "retry": WIN}
    _, groups, _ = explore("r3l", script, progress=progress, group_size=2, retries_until=0.3334)
    assert [kind for kind, _ in shape(groups)[0][1]] == kinds


@pytest.mark.parametrize(("progress", "advantages"), [(1 / 3, [-0.5, 3.0]), (0.34, [-0.5, 0.5])])
def test_advantages_are_amplified_until_a_share_of_training(progress, advantages):
    script = {"rollout": LOSE, "reflection": [review(0)], "retry": WIN}
    method, groups, _ = explore("r3l", script, progress=progress, group_size=2, amplify_until=0.3334)
    np.testing.assert_allclose(method.advantages(groups[0]), advantages)
