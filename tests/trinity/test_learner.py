"""The Learner computes the same numbers as the local engine."""

import asyncio
import copy

import numpy as np
import pytest
import torch

from r3l.config import build_method, resolve
from r3l.core.batching import collate, rows_of, trainable_rows
from r3l.core.policy import FinishReason, Sampling
from r3l.core.seeds import seed_of
from r3l.core.task import Task
from r3l.core.text import Message
from r3l.core.trajectory import Group, Trajectory, TrajectoryKind, Turn
from r3l.local import checkpoint
from r3l.local.sampling.policy import LocalPolicy
from r3l.local.training.logprobs import token_logprobs
from r3l.local.training.trainer import Trainer
from r3l.trinity.learner import Datum, Learner, SampleRequest

SETTINGS = ["method_settings.group_size=4", "train.lr=1e-3"]
SAMPLING = Sampling(0.7, 12)


def run_of(method="r3l", *more):
    return resolve("nano", "alfworld", method, 0, overrides=[*SETTINGS, *more])


@pytest.fixture(params=["all weights", "lora.rank=4"])
def learner(request, tmp_path):
    return Learner(run_of("r3l", *([request.param] if "=" in request.param else [])), tmp_path)


def talk(policy, dialogs=3, turns=3):
    """Completions of several dialogs by the local policy, turn by turn."""

    async def one(i):
        conversation, completions = policy.open(), []
        for t in range(turns):
            text = f"You arrive at desk {i + t}. On the desk {i}, you see a pen 1."
            conversation.add(Message("user", text))
            before = list(conversation._ids)
            completion = await conversation.respond(SAMPLING, ("x", i, t))
            completions.append(([*before, *completion.prompt_ids], completion))
        return completions

    async def everyone():
        return await policy.barrier.gather(one, range(dialogs))

    return asyncio.run(everyone())


def test_the_same_tokens_as_the_local_policy_with_caches_and_without(learner):
    dialogs = talk(LocalPolicy(learner.trainer.model, learner.tokenizer, 1024))
    for turn in range(3):
        # All dialogs in one batch, as waiting requests are; each finds the caches of its previous turn.
        samples = [
            SampleRequest(list(d[turn][0]), 12, 0.7, seed_of("x", i, turn)) for i, d in enumerate(dialogs)
        ]
        for (ids, logprobs), dialog in zip(learner.sample(samples), dialogs, strict=True):
            expected = dialog[turn][1]
            assert tuple(ids) == expected.response_ids
            assert logprobs == pytest.approx(expected.logprobs, abs=3e-5)  # rounding of float32
    fresh = Learner(learner.run, learner.folder.parent)  # has no caches
    (again,) = fresh.sample([SampleRequest(list(dialogs[1][2][0]), 12, 0.7, seed_of("x", 1, 2))])
    assert tuple(again[0]) == dialogs[1][2][1].response_ids


def trajectory(ids, reward):
    turn = Turn("", "", tuple(ids[:4]), tuple(ids[4:]), (-1.0,) * (len(ids) - 4), FinishReason.END)
    return Trajectory(Task("t", "alfworld", "train"), 0, TrajectoryKind.BASE, [turn], reward)


def test_a_step_equals_the_local_trainers(learner):
    """Trinity's trainer sends the gradient of each token's log-prob; it gives the same AdamW update."""
    run, method = learner.run, build_method(learner.run)
    rng = np.random.default_rng(0)
    lengths = (9, 30, 17, 5)
    group = Group(
        Task("t", "alfworld", "train"),
        [trajectory(rng.integers(5, 200, n).tolist(), float(k % 2)) for k, n in enumerate(lengths)],
    )
    rows = trainable_rows(method, rows_of(method, [group]))
    local = Trainer(copy.deepcopy(learner.trainer.model), method, run.train, None, 0.7)
    metrics = local.step(rows)

    forward = learner.forward([Datum(row.ids, row.mask) for row in rows], backward=False)
    data = []
    for row, logprobs in zip(rows, forward, strict=True):
        batch = collate([row], torch.device("cpu"))
        logprobs_1_T = torch.from_numpy(logprobs)[None].requires_grad_()
        method.loss(batch, logprobs_1_T)[0].backward()
        data.append(Datum(row.ids, -logprobs_1_T.grad[0].numpy()))
    learner.forward(data, backward=True)
    assert learner.step(run.train.lr) == pytest.approx(metrics["grad_norm"], rel=1e-5)
    assert learner.steps_done == 1
    for ours, theirs in zip(learner.trainer.model.parameters(), local.model.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=0)


def test_a_learner_resumes_from_its_newest_checkpoint(learner, tmp_path):
    ids, weights = np.arange(5, 25), np.ones(20, dtype=np.float32)
    before = learner.logprobs(ids.tolist(), of_base=False)
    for _ in range(2):
        learner.forward([Datum(ids, weights)], backward=True)
        learner.step(1e-3)
    learner.sync()
    assert learner.logprobs(ids.tolist(), of_base=True) == before
    assert learner.logprobs(ids.tolist(), of_base=False) != before
    saved = learner.save()
    assert saved.name == "step-000002" and checkpoint.last_good(tmp_path / "checkpoints") == saved
    again = Learner(learner.run, tmp_path)
    assert again.steps_done == 2
    for one in (learner, again):
        one.forward([Datum(ids, weights)], backward=True)
        one.step(1e-3)
    ids_1_T = torch.from_numpy(ids)[None]
    with torch.no_grad():
        a, b = (token_logprobs(o.trainer.model, ids_1_T, torch.ones_like(ids_1_T)) for o in (learner, again))
    assert torch.equal(a, b)  # weights and AdamW's state
