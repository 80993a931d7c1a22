"""Turn samples: one response in its full context, for templates that drop earlier thoughts; their
gradients."""

import asyncio
import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import make_trajectory
from local.sampling.test_policy import plain_logprobs
from r3l.baselines.gigpo import GiGPO

from r3l.algorithm import R3L
from r3l.core.batching import collate, rows_of, rows_to_score
from r3l.core.environment import StopReason
from r3l.core.policy import Sampling
from r3l.core.text import Message
from r3l.core.trajectory import Group, Trajectory, TrajectoryKind, Turn
from r3l.local.sampling.policy import LocalPolicy
from r3l.local.training import logprobs as logprobs_module
from r3l.local.training.logprobs import token_logprobs, trajectory_logprobs

# As Qwen3's: of earlier answers only what follows "]" is shown.
FORGETFUL = (
    "{% for m in messages %}<|{{ m.role }}|>\n"
    "{{ m.content.split(']')[-1] if m.role == 'assistant' else m.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)


def talk(policy, turns=3, texts=None):
    """Completions of one dialog; with ``texts`` these are its responses, instead of sampled ones."""

    async def one():
        conversation, completions = policy.open(), []
        for t in range(turns):
            conversation.add(Message("user", f"You arrive at desk {t}."))
            if texts:
                completions.append(conversation.append_text(texts[t]))
            else:
                completions.append(await conversation.respond(Sampling(1.0, 6), ("x", t)))
        return completions, conversation

    return asyncio.run(one())


def as_trajectory(task, completions, first=0):
    turns = [Turn.of(c, f"see {k}", f"act {k}") for k, c in enumerate(completions)]
    return Trajectory(
        task, 0, TrajectoryKind.BASE, turns, 1.0, True, StopReason.SUCCESS, trainable=range(first, len(turns))
    )


def whole_contexts(trajectory):
    """The same dialog as turn samples of an append-only template have it."""
    turns, context = [], ()
    for turn in trajectory.turns:
        context += turn.prompt_ids
        turns.append(Turn(**{**turn.__dict__, "prompt_ids": context}))
        context += turn.response_ids
    return Trajectory(**{**trajectory.__dict__, "turns": turns})


@pytest.mark.parametrize(
    ("kind", "loss_agg"), [(R3L, "traj_mean"), (R3L, "token_mean"), (R3L, "token_sum"), (GiGPO, "traj_mean")]
)
def test_with_an_append_only_template_both_kinds_of_samples_have_one_gradient(nano, loss_agg, kind):
    """Every method's token weights and advantages are those of the trajectory."""
    model, tokenizer = nano
    method = kind({"loss_agg": loss_agg})
    completions, _ = talk(LocalPolicy(model, tokenizer, 512))
    won = as_trajectory(make_trajectory(1).task, completions, first=1)
    lost = Trajectory(**{**won.__dict__, "turns": won.turns[:2], "reward": 0.0, "trainable": None})
    gradients = []
    for samples, members in (
        ("trajectory", [won, lost]),
        ("turn", [whole_contexts(won), whole_contexts(lost)]),
    ):
        twin = copy.deepcopy(model).train()
        rows = rows_of(method, [Group(won.task, members)], samples)
        assert len(rows) == (2 if samples == "trajectory" else 5)
        batch = collate([row for row in rows if row.mask.any()], torch.device("cpu"))
        loss, _ = method.loss(batch, token_logprobs(twin, batch.ids_B_T, batch.mask_B_T))
        gradients.append(torch.autograd.grad(loss, list(twin.parameters()), allow_unused=True))
    for a, b in zip(*gradients, strict=True):
        assert (a is None and b is None) or torch.allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("forward_pass", ["packed", "transformers"])
@pytest.mark.parametrize("samples", ["trajectory", "turn"])
def test_scores_of_trajectories_are_the_log_probs_of_sampling(nano, samples, forward_pass):
    """Log-probs of trainable tokens, in the order of the trajectories, whatever shares a micro-batch."""
    model, tokenizer = nano
    completions, _ = talk(LocalPolicy(model, tokenizer, 512, samples=samples))
    whole = as_trajectory(make_trajectory(1).task, completions, first=1)
    first, none = (replace(whole, turns=whole.turns[:2], trainable=trains) for trains in (None, range(0)))
    trajectories = [first, none, whole]
    found = trajectory_logprobs(model, trajectories, samples, 1.0, 64, forward_pass)
    for trajectory, logprobs in zip(trajectories, found, strict=True):
        assert logprobs == pytest.approx(trajectory.old_logprobs()[trajectory.credit_mask() > 0], abs=1e-4)


def test_scores_by_transformers_keep_the_budget_with_padding(nano, monkeypatch):
    """Each row is computed in full there, so a common beginning counts once per row."""
    model, tokenizer = nano
    completions, _ = talk(LocalPolicy(model, tokenizer, 512))
    whole = as_trajectory(make_trajectory(1).task, completions, first=1)
    longest = len(rows_to_score([whole], "trajectory")[0].ids)
    sizes = []

    def measured(model, ids_B_T, *arguments):
        sizes.append(ids_B_T.numel())
        return token_logprobs(model, ids_B_T, *arguments)

    monkeypatch.setattr(logprobs_module, "token_logprobs", measured)
    trajectory_logprobs(model, [whole] * 6, "trajectory", 1.0, 2 * longest, "transformers")
    assert sizes == [2 * longest] * 3


def test_advantages_of_two_types_share_a_batch(nano):
    """A method may return 1 for one member and 0.5 for another."""
    model, tokenizer = nano
    completions, _ = talk(LocalPolicy(model, tokenizer, 512))
    row, *_ = rows_to_score([as_trajectory(make_trajectory(1).task, completions, first=1)], "trajectory")
    batch = collate([replace(row, advantage=np.int64(1)), replace(row, advantage=0.5)], torch.device("cpu"))
    assert batch.advantages_B_T[:, 0].tolist() == [1.0, 0.5]


def test_a_template_that_drops_thoughts_is_rendered_again_at_every_turn(nano):
    model, tokenizer = nano
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.chat_template = FORGETFUL
    responses = ["mug 1 ] desk 1", "pen 2 ] mug 1", "desk 1"]
    turn, _ = talk(LocalPolicy(model, tokenizer, 512, samples="turn"), texts=responses)
    prompts = [tokenizer.decode(c.prompt_ids) for c in turn]
    assert "desk 1" in prompts[1] and "]" not in prompts[1] and "]" not in prompts[2]
    appended, _ = talk(LocalPolicy(model, tokenizer, 512), texts=responses)
    joined = tokenizer.decode([i for c in appended[:2] for i in (*c.prompt_ids, *c.response_ids)])
    assert "]" in joined  # which is what appending would have sampled from


def test_a_thought_in_the_marks_of_the_model_is_read_and_not_rendered_again(nano):
    responses = ["[THINK]pen 2[/THINK]mug 1", "desk 1"]
    turn, _ = talk(LocalPolicy(*nano, 512, samples="turn"), 2, responses)
    assert turn[0].text == "<think>pen 2</think>mug 1"
    prompt = nano[1].decode(turn[1].prompt_ids)
    assert "mug 1" in prompt and "pen 2" not in prompt


@pytest.mark.parametrize("template", [None, FORGETFUL])
def test_turn_sampling_reuses_what_it_can_and_samples_the_same(nano, template):
    model, tokenizer = nano
    tokenizer = copy.deepcopy(tokenizer)
    if template:
        tokenizer.chat_template = template
    cached, uncached = (
        LocalPolicy(model, tokenizer, 512, use_cache=k, samples="turn") for k in (True, False)
    )
    (a, _), (b, _) = talk(cached), talk(uncached)
    assert [x.response_ids for x in a] == [x.response_ids for x in b]
    assert [x.prompt_ids for x in a] == [x.prompt_ids for x in b]
    assert cached.take_counts()["encoded"] < uncached.take_counts()["encoded"]
    for completion in a:  # the log-probs are those of one plain forward pass over the sample
        ids = [*completion.prompt_ids, *completion.response_ids]
        expected = plain_logprobs(model, ids, len(completion.response_ids))
        assert completion.logprobs == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("samples", ["trajectory", "turn"])
def test_forks_and_appended_responses(nano, samples):
    """A fork goes on as the dialog stood; an appended response gets this dialog's own prompt."""
    model, tokenizer = nano
    policy = LocalPolicy(model, tokenizer, 512, samples=samples)
    completions, conversation = talk(policy)
    twin = conversation.fork(2)
    twin.add(Message("user", "You arrive at desk 2."))
    assert twin.append_completion(completions[2]) == completions[2].prompt_ids
    guided = conversation.fork(2)
    guided.add(Message("user", "Hint: a mug 1. You arrive at desk 2."))
    assert guided.append_completion(completions[2]) != completions[2].prompt_ids
