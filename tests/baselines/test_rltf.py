"""RLTF's groups and advantages, and its schedule of self-distillation."""

import numpy as np
import pytest
from conftest import make_trajectory
from exploration import LOSE, WIN, explore, shape
from r3l.baselines.critique import GuidingCritique, SecondTry
from r3l.baselines.rltf import RLTF
from scripted import TASK

from r3l.config import build_method, resolve
from r3l.retry import Retry
from r3l.runs.session import finished_share


@pytest.mark.parametrize(("learn", "extra"), [("sd", "distilled"), ("sft", "distilled"), ("fm", "critique")])
def test_rltf_groups(learn, extra):
    """The critic is the environment's; the first attempt that wins gets no second one."""
    script = {"rollout": WIN + LOSE, "retry": WIN}
    method, groups, counters = explore(f"rltf_{learn}", script, group_size=2, feedback="environment")
    objective = "policy" if learn == "sd" else "sft"
    assert shape(groups)[:2] == [
        ("policy", [("base", 1.0), ("base", 0.0)]),
        ("policy", [("guided_retry", 1.0)]),
    ]
    assert groups[2].objective == objective and [t.kind for t in groups[2].trajectories] == [extra]
    assert groups[0].returns_G().tolist() == [1.0, 0.1]  # r1 + 0.1 r2
    assert counters["critique/by_environment"] == 1 and counters["tokens/critique"] == 0
    if learn == "fm":
        critique = groups[2].trajectories[0]
        assert critique.credit_mask().sum() == 2 and "improvement_suggestion" in critique.turns[-1].response


def rltf_pairs():
    """The golden group: r1 = [1, 0, 0, 0], the first ended there; r2 = [-, 1, 0, 1]."""
    pairs = [SecondTry(make_trajectory(1, 1.0))]
    for second in (1.0, 0.0, 1.0):
        guided, clean = make_trajectory(1, second, "guided_retry"), make_trajectory(1, second, "distilled")
        critique = GuidingCritique("c", make_trajectory(1, 0.0, "critique"))
        pairs.append(SecondTry(make_trajectory(1, 0.0), critique, Retry(guided, clean)))
    return pairs


def test_rltf_golden_advantages():
    paper = RLTF({"learn": "sd"})
    first, second, distilled = paper.groups(TASK, rltf_pairs())
    np.testing.assert_allclose(paper.advantages(first), [0.7, -0.2, -0.3, -0.2])
    np.testing.assert_allclose(paper.advantages(second), [1 / 3, -2 / 3, 1 / 3])
    np.testing.assert_allclose(paper.advantages(distilled), [0.075, -0.025, 0.075])
    released = RLTF({"learn": "sd", "first_turn_baseline": False})
    advantages = released.advantages(released.groups(TASK, rltf_pairs())[2])
    np.testing.assert_allclose(advantages, [1 / 30, -2 / 30, 1 / 30])


def test_rltf_with_one_rollout_has_nothing_to_compare_it_with():
    """N = 1, r1 = 0, r2 = 1: first and second attempts equal their means; A_sd = 0.1 (1 - 0)."""
    method = RLTF({"learn": "sd"})
    advantages = [method.advantages(group).tolist() for group in method.groups(TASK, rltf_pairs()[1:2])]
    assert advantages == [[0.0], [0.0], [0.1]]


def test_rltf_grpo_is_two_turns_and_nothing_beside_them():
    """The golden group again: returns r1 + 0.1 r2 and r2, centred; PPO's clip as in the released preset."""
    script = {"rollout": WIN + LOSE, "retry": WIN}
    method, groups, _ = explore("rltf_grpo", script, group_size=2, feedback="environment")
    assert shape(groups) == [("policy", [("base", 1.0), ("base", 0.0)]), ("policy", [("guided_retry", 1.0)])]
    assert (method.settings.ratio, method.max_rollouts, method.max_samples) == ("ppo", 4, 4)
    first, second = method.groups(TASK, rltf_pairs())
    np.testing.assert_allclose(method.advantages(first), [0.7, -0.2, -0.3, -0.2])
    np.testing.assert_allclose(method.advantages(second), [1 / 3, -2 / 3, 1 / 3])


@pytest.mark.parametrize(("step", "weight"), [(1, 0.0), (2, 0.025), (4, 0.075), (5, 0.1)])
def test_the_weight_of_self_distillation_rises_linearly_over_training(step, weight):
    """Released code: [0, 0.1] at batch b of n (from 0) is 0.1 b / (n - 1); A_sd of the golden group is r2 -
    0.25.
    """
    run = resolve("nano", "math", "rltf_sd@sd_coef_start=0", 0, overrides=["train.steps=5"])
    method = build_method(run)
    distilled = method.groups(TASK, rltf_pairs(), finished_share(run, step))[2]
    np.testing.assert_allclose(method.advantages(distilled), [0.75 * weight, -0.25 * weight, 0.75 * weight])
    assert RLTF({"learn": "sd"}).sd_weight(finished_share(run, step)) == 0.1
