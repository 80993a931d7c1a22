"""The samples and groups of each method: real ALFWorld engine, scripted policy."""

import numpy as np
import pytest
from exploration import CRITIQUE_SCRIPT, LOSE, WIN, explore, review, shape
from scripted import say

from r3l.config import build_method, names, resolve


@pytest.mark.parametrize("name", ["grpo", "opmd", "gspo", "dapo", "rloo"])
def test_sampling_methods_have_one_group_of_plain_rollouts(name):
    method, groups, counters = explore(name, {"rollout": WIN + LOSE}, group_size=2)
    assert shape(groups) == [("policy", [("base", 1.0), ("base", 0.0)])]
    expected = {"opmd": 0.5, "rloo": 1.0}.get(name, 0.5 / (np.sqrt(0.5) + 1e-6))
    np.testing.assert_allclose(method.advantages(groups[0]), [expected, -expected], rtol=1e-9)
    assert counters["rollouts"] == 2


def test_raft_imitates_successes_and_counts_the_rest():
    method, groups, counters = explore("raft", {"rollout": WIN + LOSE}, group_size=2)
    assert shape(groups) == [("none", [("base", 1.0), ("base", 0.0)]), ("sft", [("base", 1.0)])]
    assert counters["dropped/rejected"] == 1
    _, groups, _ = explore("raft", {"rollout": WIN + LOSE}, group_size=2, rejected="released_dilute")
    kept, silent = groups[1].trajectories
    assert (
        kept.credit_mask().any() and not silent.credit_mask().any()
    )  # audit B-40: takes a place, trains nothing


def test_dapo_penalises_length_and_drops_uniform_groups():
    """Golden: L = 112 -> 0; 312 -> -0.5; 512 and 513 -> -1 (Lmax 512, c 400)."""
    method, groups, _ = explore(
        "dapo", {"rollout": LOSE + LOSE}, group_size=2, overlong_max=512, overlong_cache=400
    )
    assert [method.overlong_penalty(n) for n in (0, 112, 312, 512, 513)] == [0, 0, -0.5, -1, -1]
    assert not method.keep(groups)
    _, groups, _ = explore("dapo", {"rollout": WIN + LOSE}, group_size=2, overlong_max=8, overlong_cache=8)
    length = 2 * len(WIN)  # two response tokens a turn: at or beyond Lmax
    assert groups[0].returns_G().tolist() == [1.0 - min(length / 8, 1.0), -0.5] and method.keep(groups)


def test_dapo_released_counts_observations_and_only_success():
    settings = {"overlong_max": 8, "overlong_cache": 8, "overlong_counts": "all_after_first_prompt"}
    method, groups, _ = explore("dapo", {"rollout": LOSE}, group_size=1, binary_reward=True, **settings)
    (trajectory,) = groups[0].trajectories
    assert len(trajectory.token_ids()) == 6 and groups[0].returns_G().tolist() == [
        -5 / 8
    ]  # 6 tokens less the first prompt


def test_reflect_grpo_retries_failures_from_the_start():
    script = {"rollout": LOSE + WIN + LOSE, "reflection": [review(1)], "retry": WIN}
    method, groups, counters = explore("reflect_grpo", script, group_size=1, reflected_rollouts=2)
    assert shape(groups) == [("policy", [("base", 0.0), ("base", 1.0), ("base", 0.0), ("distilled", 1.0)])]
    assert all(t.trains(0) for t in groups[0].trajectories) and groups[0].trajectories[-1].rescore
    assert counters["reflection/count"] == 1 and method.max_rollouts == 5
    released, groups, _ = explore(
        "reflect_grpo", script, group_size=1, reflected_rollouts=2, retry="released_noop"
    )
    assert [kind for kind, _ in shape(groups)[0][1]] == [
        "base"
    ] * 3  # audit B-2: GRPO with wasted reflections


@pytest.mark.parametrize("name", names("methods"))
def test_the_fair_profile_gives_every_method_one_kl_and_one_budget(name):
    method = build_method(resolve("nano", "alfworld", f"{name}@profile=fair", 0))
    if method.trains:
        assert method.max_rollouts == 8 and method.max_rounds == 1
    assert method.kl_coef == (0.01 if name == "r3l_kl" else 0.0)  # which is the ablation of just that


RESCUED = {"rollout": LOSE, "reflection": [review(0)], "retry": WIN}
TWO_TRIES = [("policy", ["base"] * 2), ("policy", ["guided_retry"] * 2), ("policy", ["distilled"] * 2)]
IMITATED = [("policy", ["base", "distilled"]), ("policy", ["reflection"]), ("policy", ["guided_retry"])]
PRESETS = [  # method@profile, script, groups (objective, kinds), advantages (None: sft)
    (
        "r3l@profile=fair,group_size=2",
        RESCUED,
        [("policy", ["base", "distilled"]), ("sft", ["reflection", "guided_retry"])],
        [[-0.5, 3.0], None],
    ),
    ("r3l@profile=released_code,group_size=2", RESCUED, IMITATED, [[-0.5, 1.0], [1.0], [1.0]]),
    (  # coerce_pivot off: a pivot written as a string loses the retry (B-16)
        "r3l@profile=released_code,group_size=2",
        {"rollout": LOSE, "reflection": [review("0")]},
        [("policy", ["base"])],
        [[0.0]],
    ),
    (
        "r3l_no_amplification@profile=released_code,group_size=2",
        RESCUED,
        IMITATED,
        [[-0.5, 0.5], [1.0], [1.0]],
    ),
    (
        "r3l_no_reflection@profile=released_code,group_size=2",
        {"rollout": WIN + WIN},
        [("policy", ["base", "base"])],
        [[1.0, 1.0]],  # goes on imitating what is solved
    ),
    ("r3l_no_reflection@group_size=2", {"rollout": WIN + WIN}, [("policy", ["base", "base"])], [[0.0, 0.0]]),
    (
        "gspo@profile=released_code,group_size=1",
        {"rollout": WIN},
        [("policy", ["base"])],
        [[1.0]],
    ),  # raw reward
    ("raft@profile=released_code", {"rollout": LOSE}, [("none", ["base"]), ("sft", ["base"])], [None, None]),
    (
        "reflect_grpo@profile=released_code,group_size=1,reflected_rollouts=1",
        {"rollout": LOSE + LOSE, "reflection": [review(0)]},
        [("policy", ["base", "base"])],
        [[0.0, 0.0]],
    ),
    (
        "reflect_grpo@profile=fair,group_size=1,reflected_rollouts=1",
        {"rollout": LOSE + LOSE, "reflection": [review(0)], "retry": WIN},
        [("policy", ["base", "base", "distilled"])],
        [[-0.57735, -0.57735, 1.154699]],  # rewards 0, 0, 1: mean 1/3, s = 1/sqrt(3)
    ),
    (
        "critique_grpo@profile=released_code,group_size=2",
        CRITIQUE_SCRIPT,
        [("policy", ["base"]), ("policy", ["refined"])],
        [[0.0], [1.0]],
    ),
    (
        "rltf_sd@profile=released_code,group_size=2,feedback=environment",
        {"rollout": LOSE + LOSE, "retry": [*WIN, say("fly")]},
        TWO_TRIES,
        [[0.05, -0.05], [0.5, -0.5], [0.05, -0.05]],
    ),
    (
        "rltf_sd@profile=fair,group_size=2",
        {"rollout": LOSE + LOSE, "critique": [review(0)] * 2, "retry": [*WIN, say("fly")]},
        TWO_TRIES,
        [[0.05, -0.05], [0.5, -0.5], [0.1, 0.0]],  # baseline: the mean first reward, 0
    ),
]


@pytest.mark.parametrize(("name", "script", "groups", "advantages"), PRESETS)
def test_presets_give_the_golden_samples_and_advantages(name, script, groups, advantages):
    method, explored, _ = explore(name, script)
    assert [(g.objective, [t.kind for t in g.trajectories]) for g in explored] == groups
    for group, expected in zip(explored, advantages, strict=True):
        if expected is not None:
            np.testing.assert_allclose(method.advantages(group), expected, atol=2e-6)
