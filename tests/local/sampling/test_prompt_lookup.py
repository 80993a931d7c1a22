"""Drafts: what is looked up, how many tokens pay, and that a decoder samples the same with them."""

from collections import defaultdict

import pytest
import torch

from r3l.core.policy import Sampling
from r3l.files.paths import STORED_MODELS
from r3l.local.checkpoint import load_model
from r3l.local.kernels.cpu_kernel_decoder import KernelDecoder
from r3l.local.sampling import policy as policy_module
from r3l.local.sampling import prompt_lookup
from r3l.local.sampling.decoding import GenerationRequest, RequestQueue
from r3l.local.sampling.packed_decoding import PackedDecoder, Storage
from r3l.local.sampling.policy import LocalPolicy
from r3l.local.sampling.prompt_lookup import MOST, PromptLookup


def test_a_draft_is_what_followed_the_longest_known_end(monkeypatch):
    lookup = PromptLookup()
    text = [1, 2, 3, 4, 2, 5]
    lookup.learn(text, 0)
    assert lookup.draft([9, 1, 2], 7) == [3, 4, 2, 5]  # after 1 2; after 2 alone 5 was the last
    assert lookup.draft([9, 2], 7) == [5]
    assert lookup.draft([1, 2], 2) == [3, 4]
    assert lookup.draft([5], 7) == lookup.draft([], 7) == []  # nothing followed yet
    text += [6, 7]
    lookup.learn(text, 6)
    assert lookup.draft([5], 7) == [6, 7]
    monkeypatch.setattr(prompt_lookup, "KNOWN", 3)
    lookup.learn(range(20, 25), 4)  # after 20 to 23, 22 and 23, 23
    assert lookup.draft([23], 7) == lookup.draft([22, 23], 7) == [24]
    assert lookup.draft([5], 7) == []
    lookup.forget()
    assert lookup.draft([23], 7) == []


def test_drafts_are_as_long_as_pays():
    """A pass costs 16 tokens and its own. At first half of the drafts are thought right: with 8 rows 1 token
    in 24, 1.5 in 32 (best) and 1.75 in 40; with 16 rows 1 in 32 and 1.5 in 48, the same. With 18 of 20 right,
    19 / 22 = 0.864 of all: with 8 rows 3.26 tokens in 48, 3.81 in 56 (best), 4.29 in 64."""
    lookup = PromptLookup()
    assert (lookup.best_length(8), lookup.best_length(16)) == (1, 0)
    for right in [True] * 18 + [False] * 2:
        lookup.note(right)
    assert lookup.best_length(8) == 4
    assert lookup.best_length(1000) == 0  # 1 in 1016, 1.86 in 2016
    for _ in range(1000):
        lookup.note(False)
    assert lookup.best_length(1) == 0


@pytest.fixture(scope="module")
def model():
    return load_model(str(STORED_MODELS / "math-1.5m"), torch.device("cpu"), "packed")[0]


def requests(temperature):
    """Twelve responses of 3 to 36 tokens after prompts of 11 to 17; token 7 ends them."""
    return [
        GenerationRequest(
            None,
            list(range(5, 16 + row % 7)),
            Sampling(temperature, max_tokens=3 + 3 * row),
            {7},
            row,
        )
        for row in range(12)
    ]


def sample(decoder, model, asked, lookup=None):
    """Sample all, at most 8 at once, and return the counts."""
    counts = defaultdict(float)
    queue = RequestQueue(asked, budget=8 * 60)
    while queue:
        arguments = (Storage(), model, queue.take_batch(), 0, counts)
        decoder(*arguments, *([lookup] if lookup else [])).run(queue=queue)
    return counts


@pytest.mark.parametrize("temperature", [0, 1.0])
@pytest.mark.parametrize("decoder", [PackedDecoder, KernelDecoder])
@torch.inference_mode()
def test_drafts_change_no_response(model, decoder, temperature, monkeypatch):
    """Right ones, which a first round taught, and wrong ones, also in rows that queued requests take over."""
    plain, drafted, again = requests(temperature), requests(temperature), requests(temperature)
    passes = sample(decoder, model, plain)["forwards"]
    lookup = PromptLookup()
    monkeypatch.setattr(lookup, "best_length", lambda rows: 3)
    first = sample(decoder, model, drafted, lookup)["forwards"]
    second = sample(decoder, model, again, lookup)["forwards"]
    assert first <= passes and second < 0.5 * passes
    for one, *others in zip(plain, drafted, again, strict=True):
        for other in others:
            assert one.ids == other.ids
            assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)
            torch.testing.assert_close(one.state, other.state, atol=1e-4, rtol=1e-4)


@torch.inference_mode()
def test_right_drafts_save_passes(model, monkeypatch):
    """Of 36 tokens the prompt's pass gives one; with drafts of seven, all right, passes give 8, 8, 8, 8, 3."""

    def one():
        return GenerationRequest(None, list(range(5, 20)), Sampling(max_tokens=36), set(), 3)

    plain, drafted = one(), one()
    assert sample(PackedDecoder, model, [plain])["forwards"] == 36
    lookup = PromptLookup()
    monkeypatch.setattr(lookup, "best_length", lambda rows: MOST)
    said = [*plain.pending, *plain.ids]
    monkeypatch.setattr(lookup, "draft", lambda tokens, most: said[len(tokens) : len(tokens) + most])
    assert sample(PackedDecoder, model, [drafted], lookup)["forwards"] == 1 + 5
    assert drafted.ids == plain.ids

    # All wrong: as many passes as without.
    wrong = one()
    monkeypatch.setattr(
        lookup, "draft", lambda tokens, most: [token + 1 for token in said[len(tokens) :]][:most]
    )
    assert sample(PackedDecoder, model, [wrong], lookup)["forwards"] == 36
    assert wrong.ids == plain.ids


def test_a_policy_drafts_for_large_models_and_forgets_between_steps(nano, monkeypatch):
    """So a step depends on no earlier one, and a resumed run on no more than its checkpoint."""
    assert LocalPolicy(*nano, 512)._lookup is None
    monkeypatch.setattr(policy_module, "LARGE", 0)
    policy = LocalPolicy(*nano, 512)
    passes = []
    for new_step in (True, True, False):
        if new_step:
            policy.begin()
        (request,) = asked = [GenerationRequest(None, [5, 6, 7], Sampling(max_tokens=30), set(), 1)]
        policy.sample(asked)
        passes.append(policy.take_counts()["forwards"])
        assert len(request.ids) == 30
    assert passes[0] == passes[1] > passes[2]
