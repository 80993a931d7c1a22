"""Sampling with caches equals sampling from scratch; forks share, close forgets."""

import asyncio
import json
from os.path import commonprefix

import pytest
import torch

from r3l.core.policy import FinishReason, Sampling
from r3l.core.pretrained import load_tokenizer
from r3l.core.text import Message
from r3l.local.sampling.policy import LocalPolicy

SAMPLING = Sampling(1.0, 8)


def talk(policy, dialogs=5, turns=3):
    async def one(i):
        conversation, completions = policy.open(), []
        for t in range(turns):
            conversation.add(Message("user", f"You arrive at desk {i + t}." * (1 + i % 2)))
            completions.append(await conversation.respond(SAMPLING, ("x", i, t)))
        twin = conversation.fork(1)
        twin.add(Message("user", "again"))
        completions.append(await twin.respond(SAMPLING, ("fork", i)))
        after = conversation.fork(turns)  # as a reflection does: the last sampled token is encoded here first
        after.add(Message("user", "Reflect."))
        completions.append(await after.respond(SAMPLING, ("after", i)))
        return completions, conversation, twin

    async def everyone():
        return await policy.barrier.gather(one, range(dialogs))

    return asyncio.run(everyone())


def test_cache_changes_nothing_and_encodes_each_token_once(nano):
    model, tokenizer = nano
    cached, uncached = LocalPolicy(model, tokenizer, 512), LocalPolicy(model, tokenizer, 512, use_cache=False)
    with_cache, without = talk(cached), talk(uncached)
    for (a, conversation, twin), (b, _, _) in zip(with_cache, without, strict=True):
        assert [x.response_ids for x in a] == [x.response_ids for x in b]
        for x, y in zip(a, b, strict=True):
            assert x.logprobs == pytest.approx(y.logprobs, abs=1e-5)
        # everything but the last sampled token has been encoded exactly once
        assert conversation.encoded == len(conversation._ids) - 1
        assert twin.encoded == len(twin._ids) - 1
    # Prompts, and the last sampled token where a dialog goes on, unless it has gone on before (the twin's).
    prompts = sum(len(x.prompt_ids) for completions, _, _ in with_cache for x in completions)
    continued = sum(len(completions) - 2 for completions, _, _ in with_cache)
    a, b = cached.take_counts(), uncached.take_counts()
    assert a["encoded"] == prompts + continued < b["encoded"]
    assert cached.take_counts() == {}


async def after_one_turn(policy):
    conversation = policy.open()
    conversation.add(Message("user", "You arrive at desk 1."))
    await conversation.respond(SAMPLING, ("x", 0))
    return conversation


@pytest.mark.parametrize("samples", ["trajectory", "turn"])
def test_a_response_that_did_not_fit_leaves_the_dialog_as_it_was(nano, samples):
    """A shorter response to the same message then follows it once, as if nothing had been tried before."""

    async def dialog(policy, tries):
        conversation = await after_one_turn(policy)
        conversation.add(Message("user", "On the desk 1, you see a mug 1."))
        for _ in range(tries):
            full = await conversation.respond(Sampling(1.0, 600), ("full",))
            assert full.finish_reason is FinishReason.CONTEXT
        return await conversation.respond(SAMPLING, ("x", 1)), conversation._ids

    def sampled(tries):
        policy = LocalPolicy(*nano, 512, samples=samples)
        return asyncio.run(policy.barrier.gather(lambda _: dialog(policy, tries), range(1)))

    assert sampled(2) == sampled(0)


@pytest.mark.parametrize("samples", ["trajectory", "turn"])
def test_a_full_dialog_can_be_forked(nano, samples):
    """A reflection on an episode that ended with a full context continues its dialog."""

    async def last(policy, full):
        conversation = await after_one_turn(policy)
        if full:
            conversation.add(Message("user", "On the desk 1, you see a mug 1."))
            await conversation.respond(Sampling(1.0, 600), ("full",))
        fork = conversation.fork(1)
        fork.add(Message("user", "What went wrong?"))
        return await fork.respond(SAMPLING, ("x", 1))

    def sampled(full):
        policy = LocalPolicy(*nano, 512, samples=samples)
        return asyncio.run(policy.barrier.gather(lambda _: last(policy, full), range(1)))

    assert sampled(full=True) == sampled(full=False)


@pytest.mark.parametrize("samples", ["trajectory", "turn"])
def test_a_fresh_prompt_encodes_what_differs_from_the_one_before(nano, samples):
    """The second prompt has the first and an answer to it, written as it was sampled; the third shares its
    beginning with both. Each turn is told as the one that it is."""

    def sampled(use_cache):
        policy = LocalPolicy(*nano, 512, samples=samples, use_cache=use_cache)
        first, asked = Message("user", "You arrive at desk 1."), []
        policy.barrier._serve = lambda requests: asked.extend(requests) or policy._serve(requests)

        async def one():
            dialog = policy.open()
            dialog.add(first)
            completions = [await dialog.respond(SAMPLING, ("x", 0))]
            answer = Message("assistant", completions[0].text)
            for turn, messages in enumerate([[first, answer, Message("user", "go on")], [first]], 1):
                dialog = dialog.restarted()
                for message in messages:
                    dialog.add(message)
                completions.append(await dialog.respond(SAMPLING, ("x", turn)))
            return completions

        return asyncio.run(one()), policy.take_counts(), [request.turn for request in asked]

    (a, counts, turns), (b, whole, _) = sampled(True), sampled(False)
    assert [x.response_ids for x in a] == [x.response_ids for x in b]
    assert [x.prompt_ids for x in a] == [x.prompt_ids for x in b]
    for x, y in zip(a, b, strict=True):
        assert x.logprobs == pytest.approx(y.logprobs, abs=1e-5)
    assert turns == [1, 2, 3]
    first, second, third = (list(x.prompt_ids) for x in a)
    assert third == first and whole["encoded"] == len(first) + len(second) + len(third)
    encoded_before = first + list(a[0].response_ids)[:-1]
    same = len(commonprefix([encoded_before, second]))
    assert counts["encoded"] == len(first) + len(second) - same + 1


def test_a_sample_does_not_depend_on_who_shares_the_batch(nano):
    """The longest dialog has 80 tokens or so: 100 hold one or two dialogs, so five take several batches."""
    together, apart = (LocalPolicy(*nano, 512, tokens_per_batch=budget) for budget in (10_000, 100))
    crowd, split = talk(together), talk(apart)
    small, large = apart.take_counts(), together.take_counts()
    assert small["forwards"] > large["forwards"] and small["encoded"] == large["encoded"]
    alone = talk(together, dialogs=1)
    for (a, *_), (b, *_) in [*zip(crowd, split, strict=True), (crowd[0], alone[0])]:
        assert [x.response_ids for x in a] == [x.response_ids for x in b]
        for x, y in zip(a, b, strict=True):
            assert x.logprobs == pytest.approx(y.logprobs, abs=1e-5)


def test_logprobs_are_those_of_a_plain_forward_pass(nano):
    model, tokenizer = nano
    for completions, conversation, twin in talk(LocalPolicy(model, tokenizer, 512)):
        for dialog, last in ((conversation, completions[2]), (twin, completions[3])):
            expected = plain_logprobs(model, dialog._ids, len(last.response_ids))
            assert last.logprobs == pytest.approx(expected, abs=1e-5)


def plain_logprobs(model, ids, count):
    """Log-probs of the last ``count`` of ``ids``, by one forward pass of transformers."""
    ids = torch.tensor(ids)
    with torch.no_grad():
        logp = torch.log_softmax(model(ids[None]).logits[0].double(), -1)
    return logp[len(ids) - count - 1 : -1].gather(1, ids[-count:, None]).squeeze(1).tolist()


def test_temperature_zero_is_greedy_and_context_is_respected(nano):
    model, tokenizer = nano

    async def once(policy, sampling, address):
        conversation = policy.open()
        conversation.add(Message("user", "desk 1"))
        return await conversation.respond(sampling, address)

    policy = LocalPolicy(model, tokenizer, 512)
    greedy = [asyncio.run(once(policy, Sampling(0.0, 4), ("g", i))) for i in range(3)]
    assert len({g.response_ids for g in greedy}) == 1
    tight = LocalPolicy(model, tokenizer, 6)
    assert asyncio.run(once(tight, Sampling(1.0, 8), ("c",))).finish_reason == "context"


def test_every_declared_end_ends_a_turn(nano, tmp_path):
    """Also the ends in generation_config.json; the template's own end then follows with the next message."""
    model, tokenizer = nano
    tokenizer.save_pretrained(tmp_path)
    ends = list(range(1, len(tokenizer), 5))
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
    policy = LocalPolicy(model, load_tokenizer(str(tmp_path)), 512)
    written = policy.renderer.end_id
    assert policy.renderer.end_ids == set(ends) > {written}
    ended = 0
    for completions, *_ in talk(policy):
        for k, completion in enumerate(completions[:3]):
            *inner, last = completion.response_ids
            assert not set(inner) & set(ends)
            assert (completion.finish_reason == "end") == (last in ends)
            if k < 2:
                assert (completions[k + 1].prompt_ids[0] == written) == (last != written)
            ended += last in ends and last != written
    assert ended >= 5


def test_lines_continue_one_response_and_forks_continue_it_too(nano):
    model, tokenizer = nano
    policy = LocalPolicy(model, tokenizer, 512)
    policy.renderer.__dict__["_line_ends"] = frozenset(
        range(1, 300, 3)
    )  # as if every third token ended a line
    line = Sampling(1.0, 12, stop="line")

    async def respond():
        dialog = policy.open()
        dialog.add(Message("user", "desk 1"))
        lines = [await dialog.respond(line, ("lines", k)) for k in range(6)]
        fork = dialog.fork(2)  # all of it is encoded: goes on without a new message
        again = [await fork.respond(line, ("lines", k)) for k in range(2, 6)]
        return dialog, lines, again

    dialog, lines, again = asyncio.run(respond())
    assert [x.finish_reason for x in lines].count("line") >= 4
    assert [x.prompt_ids for x in lines[1:]] == [()] * 5
    sampled = [i for x in lines for i in x.response_ids]
    assert dialog._ids[-len(sampled) :] == sampled
    expected = plain_logprobs(model, dialog._ids, len(sampled))
    assert [p for x in lines for p in x.logprobs] == pytest.approx(expected, abs=1e-5)
    assert [x.response_ids for x in again] == [x.response_ids for x in lines[2:]]


def test_only_a_large_model_returns_what_its_dialogs_free(nano, monkeypatch):
    """A small one would pay for the pages again at every step."""
    asked = []
    monkeypatch.setattr("r3l.local.sampling.policy.return_freed_memory", lambda: asked.append(1))
    talk(LocalPolicy(*nano, 512), dialogs=1, turns=1)
    assert not asked
    monkeypatch.setattr("r3l.local.sampling.policy.LARGE", 1000)
    policy = LocalPolicy(*nano, 512)
    talk(policy, dialogs=1, turns=1)
    assert len(asked) == 3  # a turn, its fork's, and the reflection's
