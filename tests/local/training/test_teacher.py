"""Teachers on the local engine: whose weights score which tokens, and their share in the gradient."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from r3l.baselines.sdpo import SDPO
from r3l.baselines.teacher_gated import TeacherGated

from r3l.config import TrainConfig
from r3l.config.tier import LoraConfig
from r3l.core.batching import rows_of
from r3l.core.policy import FinishReason
from r3l.core.task import Task
from r3l.core.trajectory import Group, Trajectory, TrajectoryKind, Turn
from r3l.local import checkpoint
from r3l.local.model import lora
from r3l.local.model.precision import AveragedWeights
from r3l.local.training import trainer as trainer_module
from r3l.local.training.logprobs import token_logprobs
from r3l.local.training.trainer import Trainer
from r3l.runs.steps import teacher_metrics

CONFIG = TrainConfig(steps=1, tasks_per_step=1, lr=1e-2, tokens_per_microbatch=16)
TASK = Task("t", "train", {})


def rollout(model, reward, second, hint=(5, 6)):
    """Two turns of two tokens, with the model's log-probs; the teacher reads ``hint`` first."""
    prompts, responses = [(3, 4), (8,)], [(10, 11), (12, second)]
    ids = [i for pair in zip(prompts, responses, strict=True) for part in pair for i in part]
    logprobs = scored(model, ids)
    turns = [
        Turn(
            "",
            "",
            prompts[0],
            responses[0],
            tuple(logprobs[2:4]),
            FinishReason.END,
            "a",
            teacher_prompt_ids=(*hint, 3, 4),
        ),
        Turn("", "", prompts[1], responses[1], tuple(logprobs[5:7]), FinishReason.END, "b"),
    ]
    return Trajectory(TASK, 0, TrajectoryKind.BASE, turns, reward, bool(reward))


def scored(model, ids):
    ids_1_T = torch.tensor([ids])
    with torch.no_grad():
        return token_logprobs(model, ids_1_T, torch.ones_like(ids_1_T))[0].tolist()


def under_hint(model, second):
    """Log-probs of the four sampled tokens after the hint, by one plain pass."""
    found = scored(model, [5, 6, 3, 4, 10, 11, 8, 12, second])
    return [*found[4:6], *found[7:9]]


def said(t):
    return [value for turn in t.turns for value in turn.teacher_logprobs]


@pytest.fixture
def models(nano):
    """The policy, and other weights."""
    other = copy.deepcopy(nano[0])
    with torch.no_grad():
        for p in other.parameters():
            p.add_(0.05 * torch.randn_like(p, generator=None))
    return copy.deepcopy(nano[0]), other


def test_whose_weights_score(models):
    """live: the sampler's; frozen: the base checkpoint's; average: (1 - rate) base + rate x new weights."""
    model, other = models
    base = copy.deepcopy(model)
    lagging = Trainer(model, SDPO({}), CONFIG, sampler=other)
    frozen = Trainer(model, SDPO({}), CONFIG, reference=other, teacher="frozen")
    for trainer, expected in ((lagging, other), (frozen, other), (Trainer(model, SDPO({}), CONFIG), model)):
        t = rollout(model, 1.0, 13)
        counts = trainer.score_teachers([t, t], "trajectory", 100)
        assert said(t) == pytest.approx(under_hint(expected, 13), abs=1e-5)
        assert counts == {"tokens/scored": 2 * 9, "dropped/teacher_context": 0}

    averaging = Trainer(model, SDPO({}), CONFIG, teacher="average", teacher_rate=0.25)
    with torch.no_grad():
        for p, q in zip(model.parameters(), other.parameters(), strict=True):
            p.copy_(q)
    averaging.average.update()
    mixed = copy.deepcopy(base)
    with torch.no_grad():
        for p, q in zip(mixed.parameters(), other.parameters(), strict=True):
            p.mul_(0.75).add_(q, alpha=0.25)
    t = rollout(model, 1.0, 13)
    averaging.score_teachers([t], "trajectory", 100)
    assert said(t) == pytest.approx(under_hint(mixed, 13), abs=1e-5)
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), other.parameters(), strict=True))


def test_of_an_adapter_the_average_has_its_matrices(nano):
    model = copy.deepcopy(nano[0])
    lora.add(model, LoraConfig(rank=2, alpha=4), 0, "alfworld-1.5m-hints")
    average = Trainer(model, SDPO({}), CONFIG, teacher="average", teacher_rate=0.5).average
    assert average.weights and all(".lora_" in name for name in average.weights)


def test_a_context_that_is_too_long_is_counted_and_says_nothing(nano):
    t = rollout(nano[0], 1.0, 13)
    counts = Trainer(copy.deepcopy(nano[0]), SDPO({}), CONFIG).score_teachers([t], "trajectory", 8)
    assert counts == {"tokens/scored": 0, "dropped/teacher_context": 1}
    assert not t.teacher_gap().any() and not t.awaits_teacher


def test_with_a_row_per_turn_each_turn_has_its_own_context(nano):
    t = rollout(nano[0], 1.0, 13)
    whole = replace(t.turns[1], prompt_ids=(3, 4, 10, 11, 8), teacher_prompt_ids=(5, 6, 3, 4, 10, 11, 8))
    t.turns[1] = whole
    Trainer(copy.deepcopy(nano[0]), SDPO({}), CONFIG).score_teachers([t], "turn", 100)
    assert said(t) == pytest.approx(under_hint(nano[0], 13), abs=1e-5)


def step(nano, method, every=1, monkeypatch=None):
    """(metrics, trainer) after one update on a success and a failure with teachers."""
    trainer = Trainer(copy.deepcopy(nano[0]), method, CONFIG)
    members = [rollout(nano[0], 1.0, 13), rollout(nano[0], 0.0, 14)]
    trainer.score_teachers(members, "trajectory", 100)
    gaps = [t.teacher_gap()[t.response_mask() > 0].mean() for t in members]
    return trainer.step(rows_of(method, [Group(TASK, members)])), trainer, gaps


def test_what_the_teacher_says_of_successes_and_of_failures(nano):
    metrics, _, (won, lost) = step(nano, TeacherGated({"mode": "sdar"}))
    assert metrics["teacher/gap_success"] == pytest.approx(won, abs=1e-4)
    assert metrics["teacher/gap_failure"] == pytest.approx(lost, abs=1e-4)
    assert metrics["teacher/gap_difference"] == pytest.approx(won - lost, abs=1e-4)


def read(model, reward, gaps, hint_kind, trainable=None):
    """A rollout with a teacher's D of its four tokens, which reads a hint of this kind."""
    t = rollout(model, reward, 13)
    sampled = [value for turn in t.turns for value in turn.logprobs]
    t.set_teacher_logprobs([value + gap for value, gap in zip(sampled, gaps, strict=True)])
    return replace(t, hint_kind=hint_kind, trainable=trainable)


def gaps_of(model, members):
    """The metrics of D, with what an update on ``members`` makes of the weights."""
    method = TeacherGated({"mode": "sdar"})
    trainer = Trainer(copy.deepcopy(model), method, CONFIG)
    metrics = trainer.step(rows_of(method, [Group(TASK, members)]))
    return {name: value for name, value in metrics.items() if "/gap_" in name}, metrics, trainer


@pytest.mark.parametrize(
    ("cases", "expected"),
    [
        # SDPO's mixture: with equal hints successes are ahead, over all hints they are behind.
        (
            [
                (1.0, (-0.2, -0.4, -0.2, -0.4), "solution", None),
                (0.0, (-0.5, -0.5, -0.5, -0.5), "solution", None),
                (0.0, (0.1, 0.3, 0.1, 0.3), "feedback", None),
            ],
            {
                "gap_success": -0.3,
                "gap_failure": -0.15,
                "gap_difference": -0.15,
                "gap_success_by_solution": -0.3,
                "gap_failure_by_solution": -0.5,
                "gap_difference_by_solution": 0.2,
                "gap_difference_same_task": 0.2,
                "gap_failure_by_feedback": 0.2,
            },
        ),
        # Feedback alone: nothing to compare.
        (
            [(0.0, (0.1, 0.1, 0.3, 0.3), "feedback", None), (0.0, (1.0,) * 4, "feedback", None)],
            {"gap_failure": 0.6, "gap_failure_by_feedback": 0.6},
        ),
        # A mean over trained tokens: four of -0.5 and two of 0.4; a hint of another kind counts in none.
        (
            [
                (0.0, (-0.5,) * 4, "solution", None),
                (0.0, (0.4, 0.4, 9.0, 9.0), "solution", range(1)),
                (1.0, (0.3,) * 4, None, None),
            ],
            {
                "gap_success": 0.3,
                "gap_failure": -0.2,
                "gap_difference": 0.5,
                "gap_failure_by_solution": -0.2,
            },
        ),
    ],
)
def test_what_it_says_by_kind_of_hint(nano, cases, expected):
    found, _, _ = gaps_of(nano[0], [read(nano[0], *case) for case in cases])
    named = {name.removeprefix("teacher/"): value for name, value in found.items()}
    assert named == pytest.approx(expected, abs=1e-4)


def test_a_teacher_that_knows_the_task_alone_tells_no_attempts_apart(nano):
    """D is 0.4 in one task and -0.2 in the other, whatever the attempt: 0.2 over all, 0 within tasks."""
    method = TeacherGated({"mode": "sdar"})
    groups = []
    for name, gap, rewards in (("easy", 0.4, (1.0, 1.0, 0.0)), ("hard", -0.2, (1.0, 0.0, 0.0))):
        members = [read(nano[0], reward, (gap,) * 4, "solution") for reward in rewards]
        task = Task(name, "train", {})
        groups.append(Group(task, [replace(t, task=task) for t in members]))
    metrics = Trainer(copy.deepcopy(nano[0]), method, CONFIG).step(rows_of(method, groups))
    assert metrics["teacher/gap_difference"] == pytest.approx(0.2, abs=1e-4)
    assert metrics["teacher/gap_difference_same_task"] == pytest.approx(0, abs=1e-4)


def test_the_kind_of_hint_changes_nothing_but_its_own_metrics(nano):
    """Every other metric and every trained weight is the same to the bit."""
    cases = [(1.0, (0.1, 0.3, -0.1, 0.7), "solution"), (0.0, (0.2, -0.3, 0.1, 0.9), "feedback")]
    updates = []
    for known in (True, False):
        members = [read(nano[0], reward, gaps, kind if known else None) for reward, gaps, kind in cases]
        updates.append(gaps_of(nano[0], members)[1:])
    (with_kinds, first), (without, second) = updates
    added = {"teacher/gap_success_by_solution", "teacher/gap_failure_by_feedback"}
    without.pop("teacher/gap_difference_same_task")  # of unknown kinds, so a pair; not of two kinds
    untimed = {name for name in without if not name.startswith("seconds/")}
    assert with_kinds.keys() - without.keys() == added
    assert {name: with_kinds[name] for name in untimed} == {name: without[name] for name in untimed}
    for p, q in zip(first.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(p, q)


def test_the_teachers_share_in_the_gradient(nano):
    """All of SDPO's gradient; of SDAR's a part; of SDAR's baseline, whose gates are all 1/2, nothing."""
    sdpo, _, _ = step(nano, SDPO({}))
    assert sdpo["teacher/grad_share"] == 1 and "teacher/grad_cosine" not in sdpo
    sdar, _, _ = step(nano, TeacherGated({"mode": "sdar", "teacher_coef": 1.0}))
    assert 0 < sdar["teacher/grad_share"] < 1 and -1 < sdar["teacher/grad_cosine"] < 1
    baseline, _, _ = step(nano, TeacherGated({"mode": "sdar", "gate_beta": 0.0, "teacher_coef": 1.0}))
    assert baseline["teacher/grad_share"] == pytest.approx(0, abs=1e-10)


@pytest.mark.parametrize("mode", ["rlsd", "agentopsd"])
def test_a_teacher_in_the_advantages_has_its_share_too(nano, mode):
    """Its term is the gradient minus GRPO's."""
    metrics, trainer, _ = step(nano, TeacherGated({"mode": mode, "mix": 1.0}))
    plain, _, _ = step(nano, TeacherGated({"mode": mode, "mix": 0.0}))
    assert 0 < metrics["teacher/grad_share"] < 0.5
    assert plain["teacher/grad_share"] == pytest.approx(0, abs=1e-10)


def test_measuring_the_share_changes_no_weight(nano, monkeypatch):
    method = TeacherGated({"mode": "sdar"})
    measured, first, _ = step(nano, method)
    monkeypatch.setattr(trainer_module, "SHARE_EVERY", 2)
    second = Trainer(copy.deepcopy(nano[0]), method, CONFIG)
    second.steps_done = 1
    members = [rollout(nano[0], 1.0, 13), rollout(nano[0], 0.0, 14)]
    second.score_teachers(members, "trajectory", 100)
    unmeasured = second.step(rows_of(method, [Group(TASK, members)]))
    assert "teacher/grad_share" in measured and "teacher/grad_share" not in unmeasured
    assert all(
        torch.equal(p, q) for p, q in zip(first.model.parameters(), second.model.parameters(), strict=True)
    )


def test_a_resumed_teacher_has_the_same_average(nano, tmp_path):
    method = SDPO({})
    trainer = Trainer(copy.deepcopy(nano[0]), method, CONFIG, teacher="average", teacher_rate=0.5)
    members = [rollout(nano[0], 1.0, 13), rollout(nano[0], 0.0, 14)]
    for t in members:
        t.set_teacher_logprobs([-1.0, -2.0, -3.0, -4.0])
    trainer.step(rows_of(method, [Group(TASK, members)]))
    saved = checkpoint.save(tmp_path, trainer, nano[1], "f", {})
    again = checkpoint.load_model(str(saved), torch.device("cpu"))[0]
    resumed = Trainer(again, method, CONFIG, teacher="average", teacher_rate=0.5)
    checkpoint.load_trainer(saved, resumed, 1)
    differs = False
    for name, weight in trainer.average.weights.items():
        assert torch.equal(weight, resumed.average.weights[name])
        differs |= not torch.equal(weight, trainer.master_weights.state_dict()[name])
    assert differs
    assert isinstance(resumed.average, AveragedWeights)


def test_a_hint_is_looked_for_in_the_tokens(nano):
    """Without the hint's tokens in the prompt the count falls to 0, although the trajectory names a hint."""
    _, tokenizer = nano
    hint = "On the desk 1, you see a mug 1"
    t = rollout(nano[0], 1.0, 13, hint=tuple(tokenizer.encode(hint, add_special_tokens=False)))
    t.hint = hint
    assert teacher_metrics([t], tokenizer) == {"teacher/contexts": 1, "teacher/with_feedback": 1}
    t.turns[0] = replace(t.turns[0], teacher_prompt_ids=t.turns[0].prompt_ids)
    assert teacher_metrics([t], tokenizer) == {"teacher/contexts": 1, "teacher/with_feedback": 0}
    assert np.isfinite(t.old_logprobs()).all()
