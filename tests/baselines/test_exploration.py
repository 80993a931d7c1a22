"""What each method samples and how it groups it: real ALFWorld engine, a policy that speaks from a script."""

import asyncio
import json

import numpy as np
import pytest
from conftest import make_trajectory
from scripted import TASK, WALKTHROUGH, Scripted, rollout_context, say

from r3l.baselines.critique import Critique, SecondTry
from r3l.baselines.rltf import RLTF
from r3l.config import build_method, names, resolve
from r3l.core.pool import EnvironmentPool
from r3l.core.trajectory import Group
from r3l.envs.registry import find_environment
from r3l.retry import Retry
from r3l.runs.context import progress
from r3l.runs.step_metrics import of_groups

WIN = [say(action) for action in WALKTHROUGH]
LOSE = [say("look"), say("fly")]


def review(pivot, **changes):
    content = {
        "trajectory_summary": "s",
        "root_cause_analysis": "c",
        "trajectory_outcome": "failure",
        "improvement_suggestion": "go on",
        "retry_from_step": pivot,
    }
    return json.dumps(content | changes)


PERFECT = review(None, trajectory_outcome="success", improvement_suggestion=None)


def explore(name, script, **settings):
    """(method, groups, counters) of one task; ``script``: kind of request -> responses in the order of members."""
    method, groups, a = played(name, script, **settings)
    return method, groups, a.counters


def played(name, script, **settings):
    """(method, groups, rollout context) of one task."""
    overrides = [f"method_settings.{key}={json.dumps(value)}" for key, value in settings.items()]
    method = build_method(resolve("nano", "alfworld", name, 0, overrides=overrides))
    pool, policy = EnvironmentPool(find_environment("alfworld"), 0), Scripted(script)
    a = rollout_context(policy, pool)
    groups = asyncio.run(method.explore(TASK, a))
    pool.close()
    return method, groups, a


def shape(groups):
    """(objective, [(kind, reward)]) of each group."""
    return [(g.objective, [(t.kind, t.reward) for t in g.trajectories]) for g in groups]


@pytest.mark.parametrize("name", ["grpo", "opmd", "gspo", "dapo", "rloo"])
def test_sampling_methods_have_one_group_of_plain_rollouts(name):
    method, groups, counters = explore(name, {"rollout": WIN + LOSE}, group_size=2)
    assert shape(groups) == [("policy", [("base", 1.0), ("base", 0.0)])]
    expected = {"opmd": 0.5, "rloo": 1.0}.get(name, 0.5 / (np.sqrt(0.5) + 1e-6))
    np.testing.assert_allclose(method.advantages(groups[0]), [expected, -expected], rtol=1e-9)
    assert counters["rollouts"] == 2


def test_gigpo_compares_turns_that_began_with_one_observation():
    method, groups, _ = explore("gigpo", {"rollout": WIN + LOSE}, group_size=2)
    won, lost = method.advantages(groups[0])
    half = 1 / np.sqrt(2)
    first, last = won[won != 0][:2], won[won != 0][-2:]  # two tokens a turn
    np.testing.assert_allclose(first, [2 * half] * 2, rtol=1e-4)  # better episode, better turn
    np.testing.assert_allclose(last, [half] * 2, rtol=1e-4)  # the winner was alone in the end
    np.testing.assert_allclose(lost[lost != 0][:2], [-2 * half] * 2, rtol=1e-4)


def test_raft_imitates_successes_and_counts_the_rest():
    method, groups, counters = explore("raft", {"rollout": WIN + LOSE}, group_size=2)
    assert shape(groups) == [("none", [("base", 1.0), ("base", 0.0)]), ("sft", [("base", 1.0)])]
    assert counters["dropped/rejected"] == 1
    _, groups, _ = explore("raft", {"rollout": WIN + LOSE}, group_size=2, rejected="released_dilute")
    kept, silent = groups[1].trajectories
    assert kept.credit_mask().any() and not silent.credit_mask().any()  # audit B-40: takes a place, trains nothing


def test_dapo_penalises_length_and_drops_uniform_groups():
    """Golden: L = 112 -> 0; 312 -> -0.5; 512 and 513 -> -1 (Lmax 512, c 400)."""
    method, groups, _ = explore("dapo", {"rollout": LOSE + LOSE}, group_size=2, overlong_max=512, overlong_cache=400)
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


R3L_SCRIPT = {"rollout": LOSE + WIN, "reflection": [review(1), PERFECT], "retry": [say("fly")]}


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


def test_r3l_sample_layout_released_code():
    """SFT samples are groups of one with reward 1 and advantage exactly 1; a success in a mixed group too."""
    method, groups, _ = rescue(
        sft_mode="reward1_singleton", amplify_rule="released_code", amplify_all_equal="as_rule", opmd_tau=1.0
    )
    assert shape(groups) == [
        ("policy", [("base", 0.0), ("distilled", 1.0)]),
        ("policy", [("reflection", 0.0)]),
        ("policy", [("guided_retry", 1.0)]),
    ]
    assert [method.advantages(g).tolist() for g in groups] == [[-0.5, 1.0], [1.0], [1.0]]


def test_r3l_released_triggers():
    script = {"rollout": WIN + WIN, "reflection": [PERFECT, review(0, trajectory_outcome="success_but_inefficient")]}
    script["retry"] = WIN
    _, groups, _ = explore("r3l", script, group_size=4)
    assert len(groups) == 1  # solved again, in as many steps: no improvement
    released = {"sft_trigger": "solved_improve_or_shorter", "sft_perfect_reflection": True}
    _, groups, _ = explore("r3l", script, group_size=4, **released)
    assert shape(groups)[1] == ("sft", [("reflection", 0.0)])  # the perfect one; the retry is not shorter


@pytest.mark.parametrize(("trigger", "imitated"), [("solved_improve_or_shorter", 1), ("solved_improve", 0)])
def test_a_shorter_retry_of_a_success_is_imitated_where_that_is_the_rule(trigger, imitated):
    longer = [say("look"), *WIN]
    script = {"rollout": longer, "reflection": [review(0, trajectory_outcome="success_but_inefficient")], "retry": WIN}
    _, groups, _ = explore("r3l", script, group_size=2, sft_trigger=trigger)
    assert len(groups) == 1 + imitated
    script = {"rollout": LOSE, "reflection": [review(0)], "retry": WIN}
    assert len(explore("r3l", script, group_size=2, sft_trigger=trigger)[1]) == 2  # failed, then solved: both rules


def test_the_release_imitates_another_retry_as_if_it_had_been_right():
    """Audit B-15: a retry from turn 1 wins; the one sampled after it fails and has advantage 1 all the same."""
    script = {"rollout": LOSE, "reflection": [review(1)], "retry": [*WIN, say("fly")]}
    released = {"sft_mode": "reward1_singleton", "amplify_rule": "released_code", "amplify_all_equal": "as_rule"}
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


@pytest.mark.parametrize(("samples", "imitated"), [("turn", "resampled"), ("trajectory", "verified")])
def test_the_released_profile_resamples_where_samples_are_turns(samples, imitated):
    run = resolve("paper", "alfworld", "r3l@profile=released_code", 0, overrides=[f"samples={samples}"])
    assert run.method_settings["imitated_retry"] == imitated


def test_r3l_ablations_change_one_thing():
    _, groups, _ = rescue(credit=[])
    assert [t.trainable for t in groups[0].trajectories] == [None, None]
    _, groups, counters = explore("r3l_no_reflection", {"rollout": WIN + LOSE}, group_size=2)
    assert shape(groups) == [("policy", [("base", 1.0), ("base", 0.0)])] and "reflection/count" not in counters
    script = {"rollout": LOSE, "reflection": [review(1)], "retry": WIN}
    _, groups, _ = explore("r3l_from_start", script, group_size=2)
    assert groups[0].trajectories[1].success and groups[0].trajectories[0].trains(0)
    for name, same in (("r3l", False), ("r3l_no_guidance", True)):
        _, groups, _ = explore(name, script, group_size=2, pivot="start", train_on="guided")
        base, guided = groups[0].trajectories
        assert (guided.turns[0].prompt_ids == base.turns[0].prompt_ids) is same


def test_the_oracle_pivot_is_the_environments_review():
    """ALFWorld's scripted reviewer: ``look`` at turn 0 was needless, but the impossible ``fly`` ended the episode."""
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


def test_retries_per_base_keep_the_budget():
    """N = 8: two retries a base leave 2 reflected bases, 4 retries and 2 plain rollouts; 4 leave 1, 4 and 3."""
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


def test_reflect_grpo_retries_failures_from_the_start():
    script = {"rollout": LOSE + WIN + LOSE, "reflection": [review(1)], "retry": WIN}
    method, groups, counters = explore("reflect_grpo", script, group_size=1, reflected_rollouts=2)
    assert shape(groups) == [("policy", [("base", 0.0), ("base", 1.0), ("base", 0.0), ("distilled", 1.0)])]
    assert all(t.trains(0) for t in groups[0].trajectories) and groups[0].trajectories[-1].rescore
    assert counters["reflection/count"] == 1 and method.max_rollouts == 5
    released, groups, _ = explore("reflect_grpo", script, group_size=1, reflected_rollouts=2, retry="released_noop")
    assert [kind for kind, _ in shape(groups)[0][1]] == ["base"] * 3  # audit B-2: GRPO with wasted reflections


CRITIQUE_SCRIPT = {"rollout": LOSE + LOSE, "critique": [review(0), review(0)], "retry": [say("fly"), *WIN]}


def test_critique_grpo_swaps_in_the_best_refinement():
    method, groups, counters = explore("critique_grpo", CRITIQUE_SCRIPT, group_size=2)
    assert shape(groups) == [("policy", [("base", 0.0), ("refined", 1.0)])]
    assert [t.member for t in groups[0].trajectories] == [0, 1]  # always N samples
    assert [t.off_policy for t in groups[0].trajectories] == [False, True]
    z = 0.5 / (np.sqrt(0.5) + 1e-6)
    np.testing.assert_allclose(method.advantages(groups[0]), [-z, z])
    assert counters["critique/by_model"] == 2 and counters["rollouts"] == 4


def test_critique_grpo_released_groups():
    """Audit A-16: the refinement stands alone, so its advantage is its raw reward."""
    method, groups, _ = explore("critique_grpo", CRITIQUE_SCRIPT, group_size=2, refined_group="separate")
    assert shape(groups) == [("policy", [("base", 0.0)]), ("policy", [("refined", 1.0)])]
    assert [method.advantages(g).tolist() for g in groups] == [[0.0], [1.0]]


def test_success_in_training_counts_the_rollout_that_a_refinement_replaced():
    """One of two rollouts won, whatever takes part in the group."""
    script = {"rollout": WIN + LOSE, "critique": [review(0)], "retry": WIN}
    _, groups, a = played("critique_grpo", script, group_size=2)
    assert shape(groups) == [("policy", [("base", 1.0), ("refined", 1.0)])]
    metrics = of_groups(groups, a.trajectories)
    assert metrics["train/success"] == metrics["train/reward"] == metrics[f"train/success/{TASK.group}"] == 0.5
    assert metrics["train/turns"] == (len(WIN) + len(LOSE)) / 2


def test_an_empty_critique_is_counted_and_gets_no_retry():
    script = {"rollout": LOSE, "critique": ["  "]}
    _, groups, counters = explore("critique_grpo", script, group_size=1)
    assert shape(groups) == [("policy", [("base", 0.0)])] and counters["critique/invalid/empty"] == 1


@pytest.mark.parametrize(("learn", "extra"), [("sd", "distilled"), ("sft", "distilled"), ("fm", "critique")])
def test_rltf_groups(learn, extra):
    """The critic is the environment's; the first attempt that wins gets no second one."""
    script = {"rollout": WIN + LOSE, "retry": WIN}
    method, groups, counters = explore(f"rltf_{learn}", script, group_size=2)
    objective = "policy" if learn == "sd" else "sft"
    assert shape(groups)[:2] == [("policy", [("base", 1.0), ("base", 0.0)]), ("policy", [("guided_retry", 1.0)])]
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
        critique = Critique("c", make_trajectory(1, 0.0, "critique"))
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


@pytest.mark.parametrize("learn", ["sd", "fm", "sft"])
@pytest.mark.parametrize("first_turn_baseline", [True, False])
def test_a_second_attempt_that_alone_was_needed_equals_its_mean(learn, first_turn_baseline):
    """r1 = [1, 0], r2 = [-, 1]: R1 = [1, 0.1], mean 0.55; A2 = 1 - 1; A_sd = 0.1 (1 - 0.5), released 0.1 A2."""
    method = RLTF({"learn": learn, "first_turn_baseline": first_turn_baseline})
    groups = method.groups(TASK, rltf_pairs()[:2])
    np.testing.assert_allclose(method.advantages(groups[0]), [0.45, -0.45])
    assert method.advantages(groups[1]).tolist() == [0.0]
    if learn == "sd":
        np.testing.assert_allclose(method.advantages(groups[2]), [0.05 if first_turn_baseline else 0.0])


def test_rltf_with_one_rollout_has_nothing_to_compare_it_with():
    """N = 1, r1 = 0, r2 = 1: first and second attempts equal their means; A_sd = 0.1 (1 - 0)."""
    method = RLTF({"learn": "sd"})
    advantages = [method.advantages(group).tolist() for group in method.groups(TASK, rltf_pairs()[1:2])]
    assert advantages == [[0.0], [0.0], [0.1]]


def test_rltf_grpo_is_two_turns_and_nothing_beside_them():
    """The golden group again: returns r1 + 0.1 r2 and r2, centred; PPO's clip as in the released preset."""
    script = {"rollout": WIN + LOSE, "retry": WIN}
    method, groups, _ = explore("rltf_grpo", script, group_size=2)
    assert shape(groups) == [("policy", [("base", 1.0), ("base", 0.0)]), ("policy", [("guided_retry", 1.0)])]
    assert (method.settings.ratio, method.max_rollouts, method.max_samples) == ("ppo", 4, 4)
    first, second = method.groups(TASK, rltf_pairs())
    np.testing.assert_allclose(method.advantages(first), [0.7, -0.2, -0.3, -0.2])
    np.testing.assert_allclose(method.advantages(second), [1 / 3, -2 / 3, 1 / 3])


@pytest.mark.parametrize(("step", "weight"), [(1, 0.0), (2, 0.025), (4, 0.075), (5, 0.1)])
def test_the_weight_of_self_distillation_rises_linearly_over_training(step, weight):
    """Released code: [0, 0.1] at batch b of n (from 0) is 0.1 b / (n - 1); A_sd of the golden group is r2 - 0.25."""
    run = resolve("nano", "math", "rltf_sd@sd_coef_start=0", 0, overrides=["train.steps=5"])
    method = build_method(run)
    distilled = method.groups(TASK, rltf_pairs(), progress(run, step))[2]
    np.testing.assert_allclose(method.advantages(distilled), [0.75 * weight, -0.25 * weight, 0.75 * weight])
    assert RLTF({"learn": "sd"}).sd_weight(progress(run, step)) == 0.1


def test_a_training_of_one_step_begins_where_the_schedule_does():
    assert progress(resolve("nano", "math", "rltf_sd", 0, overrides=["train.steps=1"]), 1) == 0.0


def test_rltf_sft_keeps_only_second_attempts_that_were_right():
    groups = RLTF({"learn": "sft"}).groups(TASK, rltf_pairs())
    assert [t.reward for t in groups[2].trajectories] == [1.0, 1.0]


def test_a_lone_rltf_failure_has_no_empty_groups():
    pairs = [SecondTry(make_trajectory(1, 0.0))]
    assert [isinstance(g, Group) for g in RLTF({"learn": "fm"}).groups(TASK, pairs)] == [True]


@pytest.mark.parametrize("name", names("methods"))
def test_the_fair_profile_gives_every_method_one_kl_and_one_budget(name):
    method = build_method(resolve("nano", "alfworld", f"{name}@profile=fair", 0))
    if method.trains:
        assert method.max_rollouts == 8 and method.max_rounds == 1
    assert method.kl_coef == (0.01 if name == "r3l_kl" else 0.0)  # which is the ablation of just that


PRESETS = [  # method@profile, script, groups (objective, kinds), advantages (None: sft)
    (
        "r3l@profile=fair,group_size=2",
        {"rollout": LOSE, "reflection": [review(0)], "retry": WIN},
        [("policy", ["base", "distilled"]), ("sft", ["reflection", "guided_retry"])],
        [[-0.5, 3.0], None],
    ),
    (
        "r3l@profile=released_code,group_size=2",
        {"rollout": LOSE, "reflection": [review(0)], "retry": WIN},
        [("policy", ["base", "distilled"]), ("policy", ["reflection"]), ("policy", ["guided_retry"])],
        [[-0.5, 1.0], [1.0], [1.0]],
    ),
    (  # coerce_pivot off: a pivot written as a string loses the retry (B-16)
        "r3l@profile=released_code,group_size=2",
        {"rollout": LOSE, "reflection": [review("0")]},
        [("policy", ["base"])],
        [[0.0]],
    ),
    (
        "r3l_no_amplification@profile=released_code,group_size=2",
        {"rollout": LOSE, "reflection": [review(0)], "retry": WIN},
        [("policy", ["base", "distilled"]), ("policy", ["reflection"]), ("policy", ["guided_retry"])],
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
    ),  # A is the raw reward
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
        [("policy", ["base"] * 2), ("policy", ["guided_retry"] * 2), ("policy", ["distilled"] * 2)],
        [[0.05, -0.05], [0.5, -0.5], [0.05, -0.05]],
    ),
    (
        "rltf_sd@profile=fair,group_size=2",
        {"rollout": LOSE + LOSE, "critique": [review(0)] * 2, "retry": [*WIN, say("fly")]},
        [("policy", ["base"] * 2), ("policy", ["guided_retry"] * 2), ("policy", ["distilled"] * 2)],
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
