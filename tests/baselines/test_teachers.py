"""SDPO, SDAR, RLSD, AgentOPSD: hints, masks, and golden values by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import make_trajectory
from exploration import LOSE, WIN, explore
from r3l.baselines.sdpo import SDPO
from r3l.baselines.teacher_gated import TeacherGated

from r3l.config import build_method, resolve
from r3l.config.run import hashed
from r3l.core.batching import collate, rows_of
from r3l.core.trajectory import Group

CPU = torch.device("cpu")
LN3 = math.log(3)
HALF = math.sqrt(0.5)  # |A| of a success and a failure


def taught(gaps, reward):
    """A trajectory whose k-th turn has two tokens with the k-th pair of D."""
    t = make_trajectory(len(gaps), reward)
    t.trainable = None
    t.turns[0] = replace(t.turns[0], teacher_prompt_ids=(7, 100))
    t.set_teacher_logprobs([-0.5 + d for pair in gaps for d in pair])
    return t


def gradient(method, old, new, teacher):
    """d loss / d log p of each of the tokens, over its weight."""
    t = make_trajectory(1)
    turn = replace(
        t.turns[0], response_ids=tuple(range(len(old))), logprobs=tuple(old), teacher_prompt_ids=(7, 100)
    )
    t.turns, t.trainable = [turn], None
    t.set_teacher_logprobs(teacher)
    batch = collate(rows_of(method, [Group(t.task, [t, t])]), CPU)  # equal rewards: A = 0
    logprobs = torch.tensor([[0.0, *new]] * 2, requires_grad=True)
    loss, _ = method.loss(batch, logprobs)
    (found,) = torch.autograd.grad(loss, logprobs)
    return (found / batch.weight_B_T)[0, 1:].tolist()


# Hints


def hints(name, script, **settings):
    _, (group,), counters = explore(name, script, **settings)
    return [t.hint for t in group.trajectories], group, counters


def test_the_teacher_sees_a_solved_sibling_and_a_rollout_without_a_hint_does_not_train():
    found, group, counters = hints("sdpo", {"rollout": WIN + LOSE + LOSE}, group_size=3)
    assert found[0] == "" and found[1] == found[2] and found[1].startswith("Hint: go to microwave 1, ")
    assert [t.taught for t in group.trajectories] == [False, True, True]
    assert [float(t.credit_mask().sum()) for t in group.trajectories] == [0, 4, 4]
    assert counters["teacher/by_solution"] == 2 and "teacher/by_feedback" not in counters
    assert [t.hint_kind for t in group.trajectories] == [None, "solution", "solution"]
    for t in group.trajectories[1:]:
        # Only the first prompt differs: the hint is in it.
        assert t.turns[0].teacher_prompt_ids != t.turns[0].prompt_ids
        assert all(turn.teacher_prompt_ids is None for turn in t.turns[1:])


def test_two_winners_teach_each_other():
    found, group, _ = hints("sdpo", {"rollout": WIN + WIN}, group_size=2)
    assert found[0] == found[1] != "" and all(t.taught for t in group.trajectories)


@pytest.mark.parametrize(
    ("sees", "expected"),
    [
        ("feedback", ["", "Hint: go to cabinet 1"]),
        ("solution", ["", "Hint: go to microwave 1"]),
        ("nothing", ["", ""]),
    ],
)
def test_what_the_teacher_sees(sees, expected):
    found, _, _ = hints("sdar", {"rollout": WIN + LOSE}, group_size=2, teacher_sees=sees)
    assert all(
        text.startswith(start) and bool(text) == bool(start)
        for text, start in zip(found, expected, strict=True)
    )


def test_without_a_solution_feedback_is_the_hint():
    found, group, counters = hints("sdpo", {"rollout": LOSE + LOSE}, group_size=2)
    assert found == ["Hint: go to cabinet 1"] * 2 and counters["teacher/by_feedback"] == 2
    assert [t.hint_kind for t in group.trajectories] == ["feedback", "feedback"]


def test_advantages_wait_for_the_teacher():
    """The engine scores before: to forget it is an error, not a teacher that says nothing."""
    method, groups, _ = explore("rlsd", {"rollout": WIN + LOSE}, group_size=2)
    with pytest.raises(ValueError, match="the teacher's log-probs have not been scored"):
        method.step_advantages(groups)


# Golden values


@pytest.mark.parametrize(
    ("old", "new", "teacher", "expected"),
    [
        (-1.0, -1.0, -0.5, -0.5),  # the teacher finds the token likelier: up
        (-2.0, -2.0, -3.0, 1.0),  # less likely: down
        (-3.0, -2.0, -2.5, 1.0),  # l - lT = 0.5, ratio e > 2: times 2
    ],
)
def test_sdpo(old, new, teacher, expected):
    assert gradient(SDPO({}), [old], [new], [teacher]) == pytest.approx([expected], rel=1e-6)


def test_sdpo_without_a_ratio():
    assert gradient(SDPO({"max_ratio": None}), [-3.0], [-2.0], [-2.5]) == pytest.approx([0.5])


OLD = [-1.0, -2.0, -0.5, -3.0]
TEACHER = [-0.8, -2.2, -0.5, -1.0]  # D: 0.2, -0.2, 0, 2


def test_sdars_teacher_is_in_its_gate_alone():
    """-0.01 sigmoid(5 D): of D = 1/5, -1/5, 0, 2 that of 1, -1, 0, 10. All four tokens are pulled up."""
    found = gradient(TeacherGated({"mode": "sdar"}), OLD, OLD, TEACHER)
    gates = [0.7310586, 0.2689414, 0.5, 0.9999546]
    assert found == pytest.approx([-0.01 * gate for gate in gates], rel=1e-5)


@pytest.mark.parametrize("teacher", [TEACHER, OLD, [-9.0, -0.1, -7.0, -0.2]])
def test_no_teacher_is_in_the_gradient_of_sdars_baseline(teacher):
    """Its release calls it GRPO + OPSD: gate_beta 0, so every gate is 1/2, whatever the teacher says."""
    found = gradient(TeacherGated({"mode": "sdar", "gate_beta": 0.0}), OLD, OLD, teacher)
    assert found == pytest.approx([-0.005] * 4, rel=1e-6)


def test_the_plain_reverse_kl_follows_the_teacher_both_ways():
    found = gradient(TeacherGated({"mode": "ungated"}), OLD, OLD, TEACHER)
    assert found == pytest.approx([-0.002, 0.002, 0.0, -0.02], rel=1e-5, abs=1e-9)


@pytest.mark.parametrize(
    ("progress", "mix"),
    [(0.0, 0.5), (1 / 3, 0.25), (2 / 3, 0.0), (1.0, 0.0)],
)
def test_rlsd(progress, mix):
    """A = +-sqrt(1/2). exp(D) of a success, exp(-D) of a failure, within 0.8 and 1.2."""
    won, lost = taught([(0.1, 0.5)], 1.0), taught([(0.1, -0.5)], 0.0)
    group = Group(won.task, [won, lost], progress=progress)
    of_won, of_lost = TeacherGated({"mode": "rlsd"}).advantages(group)
    weights = np.array([[math.exp(0.1), 1.2], [math.exp(-0.1), 1.2]])
    expected = np.array([[HALF], [-HALF]]) * ((1 - mix) + mix * weights)
    np.testing.assert_allclose([of_won[1:], of_lost[1:]], expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("gaps", "reward", "weights"),
    [
        # V: 1/2, 3/4, 1/2; increments +-1/4, z = +-1.
        ([(LN3, 0.0), (-LN3, 0.0)], 1.0, [1.2, 0.8]),
        ([(LN3, 0.0), (-LN3, 0.0)], 0.0, [0.8, 1.2]),
        # V: 1/2, 3/4, 3/4, 3/4; z = sqrt 2, -1 / sqrt 2 twice.
        ([(LN3, 0.0), (0.0, 0.0), (1.0, -1.0)], 1.0, [1.2, 0.8585787, 0.8585787]),
    ],
)
def test_agentopsd(gaps, reward, weights):
    """In a group of one success and one failure V_0 is 1/2; turns get A (1/2 + weight / 2)."""
    one, other = taught(gaps, reward), make_trajectory(1, 1 - reward)
    found, of_other = TeacherGated({"mode": "agentopsd"}).advantages(Group(one.task, [one, other]))
    sign = 1 if reward else -1
    per_turn = found.reshape(len(gaps), 3)
    assert not per_turn[:, 0].any() and (per_turn[:, 1] == per_turn[:, 2]).all()
    expected = [sign * HALF * (0.5 + 0.5 * weight) for weight in weights]
    np.testing.assert_allclose(per_turn[:, 1], expected, rtol=1e-5)
    np.testing.assert_allclose(of_other[1:], [-sign * HALF] * 2, rtol=1e-5)  # no teacher: A


def test_a_long_turn_overflows_nothing():
    """400 tokens at -2 nats: the belief is 0 to the last bit that counts, without a warning."""
    one, other = taught([(-800.0, 0.0), (0.0, 0.0)], 1.0), make_trajectory(1, 0.0)
    with np.errstate(all="raise"):
        found, _ = TeacherGated({"mode": "agentopsd"}).advantages(Group(one.task, [one, other]))
    assert np.isfinite(found).all()


LN9999 = math.log(9999)  # the logit of 0.9999


@pytest.mark.parametrize(
    ("prior", "wins", "size", "gaps", "reward", "weights"),
    [
        # Success rate 1/2, ten times it is cut to 0.9999. V: 0.9999, 0.9999, 1/2, 3/4; increments 0, -0.4999,
        # 1/4, mean -0.0833, deviation 0.311767; z = 0.267192, -1.336279, 1.069087.
        ("released", 1, 2, [0.0, -LN9999, LN3], 1.0, [1.053438, 0.8, 1.2]),
        ("released", 1, 2, [0.0, -LN9999, LN3], 0.0, [0.946562, 1.2, 0.8]),
        # One success of 16: V_0 is 5/8. V: 5/8, 1/2, 3/4, 3/4; increments -1/8, 1/4, 0, mean 1/24, deviation
        # sqrt(7 / 288); z = -1.069038, 1.336297, -0.267259.
        ("released", 1, 16, [math.log(3 / 5), LN3, 0.0], 1.0, [0.8, 1.2, 0.946549]),
        # V: 1/2, 3/4, 3/4, 3/4, although one of four succeeds; z = sqrt 2, -1 / sqrt 2 twice.
        ("half", 1, 4, [LN3, 0.0, 0.0], 1.0, [1.2, 0.858579, 0.858579]),
        # Success rate 1/4. V: 1/4, 1/2, 3/4, 3/4; increments 1/4, 1/4, 0; z = 1 / sqrt 2 twice, -sqrt 2.
        ("success_rate", 1, 4, [LN3, LN3, 0.0], 1.0, [1.141421, 1.141421, 0.8]),
    ],
)
def test_where_agentopsds_belief_starts(prior, wins, size, gaps, reward, weights):
    """Turns get A (1/2 + weight / 2), of z cut to 1 +- 0.2."""
    one = taught([(gap, 0.0) for gap in gaps], reward)
    others = [1.0] * int(wins - reward) + [0.0] * int(size - wins - (1 - reward))
    group = Group(one.task, [one, *(make_trajectory(1, other) for other in others)])
    found, *_ = TeacherGated({"mode": "agentopsd", "belief_prior": prior}).advantages(group)
    mean = wins / size
    deviation = math.sqrt(size * mean * (1 - mean) / (size - 1))
    advantage = (reward - mean) / deviation
    expected = [advantage * (0.5 + 0.5 * weight) for weight in weights]
    np.testing.assert_allclose(found.reshape(len(gaps), 3)[:, 1], expected, rtol=2e-5)


def test_the_released_prior_is_that_of_the_environments_that_pay_ten():
    """The default is the success rate, and no run that was made before the option changes its fingerprint."""
    priors = {
        env: resolve("nano", env, "agentopsd@profile=released_code", 0).method_settings["belief_prior"]
        for env in ("alfworld", "webshop", "math", "scienceworld")
    }
    assert priors == {
        "alfworld": "released",
        "webshop": "released",
        "math": "success_rate",
        "scienceworld": "success_rate",
    }
    run = resolve("nano", "alfworld", "agentopsd@feedback=environment", 0)
    assert run.method_settings["belief_prior"] == "success_rate"
    assert "belief_prior" not in hashed(run.model_dump(mode="json"))["method_settings"]


@pytest.mark.parametrize("mode", ["rlsd", "agentopsd"])
def test_a_silent_teacher_leaves_grpo(mode):
    won, lost = taught([(0.0, 0.0), (0.0, 0.0)], 1.0), taught([(0.0, 0.0)], 0.0)
    method = TeacherGated({"mode": mode})
    of_won, of_lost = method.advantages(Group(won.task, [won, lost]))
    np.testing.assert_allclose(of_won[[1, 2, 4, 5]], HALF, rtol=1e-5)
    np.testing.assert_allclose(of_lost[1:], -HALF, rtol=1e-5)


def test_a_row_that_a_teacher_has_scored_trains_without_an_advantage():
    """All rewards are equal, so GRPO has nothing to learn; SDAR's teacher has."""
    t = taught([(0.1, 0.2)], 0.0)
    rows = rows_of(TeacherGated({"mode": "sdar"}), [Group(t.task, [t, make_trajectory(1)])])
    assert [row.no_signal for row in rows] == [False, True]


def test_the_released_profiles():
    for name, mode in (("sdar", "sdar"), ("rlsd", "rlsd"), ("agentopsd", "agentopsd")):
        method = build_method(resolve("nano", "alfworld", f"{name}@profile=released_code", 0))
        s = method.settings
        assert (s.mode, method.kl_coef, method.loss_agg) == (mode, 0.01, "microbatch_released")
    sdpo = build_method(resolve("nano", "alfworld", "sdpo@profile=released_code", 0))
    assert (sdpo.teacher, sdpo.teacher_rate, sdpo.settings.max_ratio) == ("average", 0.05, 2.0)
