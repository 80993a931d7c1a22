"""vLLM itself as the sampler, in the environment of `make vllm` (test_vllm_sampling.py runs this there)."""

import asyncio
import importlib.util
import math

import pytest
import torch
from start_models import START_MODEL

from r3l.config import resolve
from r3l.core.errors import EngineError
from r3l.core.policy import Sampling
from r3l.core.text import Message
from r3l.local.checkpoint import load_model
from r3l.local.engine import train
from r3l.local.preflight import preflight
from r3l.local.sampling.policy import LocalPolicy

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("vllm") is None, reason="no vllm in this environment (make vllm)"
    ),
]
SMALL = ["compute=vllm", "train.tasks_per_step=2", "workers=0", "method_settings.group_size=4"]
SIGHT = (
    "You are in the middle of a room. Looking quickly around you, you see a desk 1, a shelf 2 and a bed 1."
)


def small(env, method, *overrides):
    return resolve("nano", env, method, 0, overrides=[*SMALL, *overrides])


@pytest.fixture(scope="module")
def nano():
    """(model, tokenizer): the stored base checkpoint."""
    return load_model(START_MODEL, torch.device("cpu"))


@pytest.fixture(scope="module")
def started(nano):
    """(policy, weights of the base checkpoint): vLLM, which starts once."""
    from r3l.local.sampling.vllm_sampling import VllmPolicy

    model, tokenizer = nano
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    policy = VllmPolicy(model, tokenizer, small("alfworld", "grpo").sampling, "trajectory")
    yield policy, weights
    policy.close()


@pytest.fixture
def policy(started):
    """vLLM with the weights of the base checkpoint."""
    policy, weights = started
    policy.model.load_state_dict(weights)
    policy.sync_weights()
    policy.take_counts()
    policy.renderer.__dict__.pop("_line_ends", None)
    return policy


def talk(policy, sampling, dialogs=range(5), turns=3):
    """Completions of each dialog and of a fork after its first turn; the dialogs' tokens."""

    async def one(i):
        dialog, completions = policy.open(), []
        for t in range(turns):
            dialog.add(Message("user", f"{SIGHT} You arrive at desk {i + t}." * (1 + i % 2)))
            completions.append(await dialog.respond(sampling, ("x", i, t)))
        fork = dialog.fork(1)
        fork.add(Message("user", "again"))
        completions.append(await fork.respond(sampling, ("fork", i)))
        return completions, dialog._ids

    async def everyone():
        return await policy.barrier.gather(one, dialogs)

    policy.begin()
    return asyncio.run(everyone())


def test_greedy_responses_are_the_local_samplers(nano, policy):
    """Random ones are drawn in another way, from the same distribution."""
    local = LocalPolicy(*nano, policy.max_context)
    for (theirs, _), (ours, _) in zip(
        talk(policy, Sampling(0.0, 24)), talk(local, Sampling(0.0, 24)), strict=True
    ):
        assert [x.response_ids for x in theirs] == [x.response_ids for x in ours]
        assert [x.finish_reason for x in theirs] == [x.finish_reason for x in ours]


def test_logprobs_are_those_of_the_policy_that_acts_and_draws_belong_to_the_address(nano, policy):
    model, sampling = nano[0], Sampling(0.7, 24)
    crowd = talk(policy, sampling)
    for completions, ids in crowd:
        with torch.no_grad():
            logp = torch.log_softmax(model(torch.tensor(ids)[None]).logits[0].double() / 0.7, -1)
        last = completions[2]
        n = len(last.response_ids)
        assert list(last.response_ids) == ids[-n:]
        expected = [logp[k - 1, ids[k]].item() for k in range(len(ids) - n, len(ids))]
        assert last.logprobs == pytest.approx(expected, abs=1e-4)
    assert talk(policy, sampling) == crowd
    alone = talk(policy, sampling, dialogs=[3])[0][0]
    assert [x.response_ids for x in alone] == [x.response_ids for x in crowd[3][0]]
    other = talk(policy, sampling, dialogs=[7])[0][0]
    assert [x.response_ids for x in alone] != [
        x.response_ids for x in other
    ]  # a first one may be equal by chance


def test_first_tokens_are_as_frequent_as_the_model_says(nano, policy):
    """2,000 addresses: the share of a token of probability p is p, within four standard deviations."""
    model, count, temperature = nano[0], 2000, 2.0  # so hot that several tokens are likely

    async def one(i):
        dialog = policy.open()
        dialog.add(Message("user", SIGHT))
        return (await dialog.respond(Sampling(temperature, 1), ("frequency", i))).response_ids[0]

    async def everyone():
        return await policy.barrier.gather(one, range(count))

    policy.begin()
    sampled = asyncio.run(everyone())
    prompt = policy.renderer.opening([Message("user", SIGHT)])
    with torch.no_grad():
        p_V = torch.softmax(model(torch.tensor(prompt)[None]).logits[0, -1].double() / temperature, -1)
    likely = p_V.topk(8)
    assert 0.05 < likely.values[0] < 0.5 and likely.values[7] > 0.002
    for p, token in zip(likely.values.tolist(), likely.indices.tolist(), strict=True):
        assert abs(sampled.count(token) / count - p) < 4 * math.sqrt(p * (1 - p) / count)


def test_a_sync_that_does_nothing_is_refused_after_one_update(monkeypatch, tmp_path):
    """An update at the tier's learning rate is enough to see it, and the preflight needs none."""
    run, given = small("math", "grpo", "train.steps=2"), []

    def first_only(model, weights):
        given.append(weights)
        return weights if len(given) == 1 else {}

    monkeypatch.setattr("r3l.local.model.lora.merged", first_only)
    with pytest.raises(EngineError, match="stale copy"):
        train(run, tmp_path)
    assert len(given) == 2 and not (tmp_path / "result.json").exists()
    given.clear()
    with pytest.raises(EngineError, match="stale copy"):
        preflight(run)
    assert len(given) == 2


def test_a_sound_sampler_passes_the_preflight():
    report = preflight(small("alfworld", "r3l"))
    assert report["tokens"] > 50 and report["logprob_mismatch/max"] < 1e-3
    assert 0 < report["handover/mean"] < 2e-5  # float32; 1.1e-5 with the base checkpoint of 2026-11-25


def test_bfloat16_passes_the_check_of_a_sync():
    """Over tokens from across the vocabulary the two differed by 0.036 nats in the mean: 0.03 are allowed."""
    report = preflight(small("alfworld", "grpo", "compute_dtype=bfloat16_anywhere"))
    assert 0 < report["handover/mean"] < 0.02


def test_an_adapter_is_merged_into_the_weights_that_vllm_samples_with():
    report = preflight(small("alfworld", "grpo", "lora.rank=4"))
    assert 0 < report["handover/mean"] < 2e-5
