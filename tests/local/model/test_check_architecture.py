"""Tiny random models of other architectures: log-probs in sampling and training are those of their own
forward pass."""

import asyncio

import pytest
import torch
import transformers

from r3l.core.errors import ConfigError
from r3l.core.policy import Message, Sampling
from r3l.local.model.check_architecture import check_architecture
from r3l.local.sampling.decoding import PaddedCache
from r3l.local.sampling.policy import LocalPolicy
from r3l.local.training.logprobs import token_logprobs

WINDOW = {"sliding_window": 6}
GROUPED = {"num_key_value_heads": 2, "intermediate_size": 48}
PLAYED = {
    "Llama": GROUPED | {"hidden_act": "gelu"},  # not of the family that the packed forward pass computes
    "Mistral": GROUPED | {"sliding_window": None},
    "Mistral, window": GROUPED | WINDOW,
    "Mixtral, window": GROUPED | WINDOW | {"num_local_experts": 4},
    "Phi3, window": GROUPED | WINDOW,
    "Qwen2, window": GROUPED | WINDOW | {"use_sliding_window": True, "max_window_layers": 1},
    "Gemma2": GROUPED | WINDOW | {"head_dim": 8, "query_pre_attn_scalar": 8, "final_logit_softcapping": 2.0},
    "Gemma3Text": GROUPED | WINDOW | {"head_dim": 8, "query_pre_attn_scalar": 8, "num_hidden_layers": 6},
    "GptOss": GROUPED | WINDOW | {"head_dim": 8, "num_local_experts": 4},
    "Granite": GROUPED | {"logits_scaling": 8.0, "embedding_multiplier": 2.0},
    "Cohere": GROUPED | {"logit_scale": 0.0625},
    "Olmo2": GROUPED,
}
REFUSED = {  # no module `model`, no layers of keys and values alone, none at all
    "GPT2": {"n_embd": 32, "n_layer": 2, "n_head": 4},
    "Qwen3Next": GROUPED
    | {"head_dim": 8, "num_experts": 4, "moe_intermediate_size": 16, "num_hidden_layers": 4},
    "Mamba": {"state_size": 4},
}


def random_model(name, settings, tokenizer):
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "pad_token_id": 0}
    kind = getattr(transformers, f"{name.partition(',')[0]}Config")
    model = transformers.AutoModelForCausalLM.from_config(
        kind(vocab_size=len(tokenizer), **{**sizes, **settings})
    )
    for parameter in model.parameters():
        if parameter.dim() > 1:  # larger than at the start of training: every part of the computation shows
            torch.nn.init.normal_(parameter, std=0.3)
    return model.float().eval()


@pytest.mark.parametrize("name", PLAYED)
def test_log_probs_are_those_of_the_models_own_pass(nano, name):
    """Three dialogs of different lengths, all longer than the window, at temperature 0.7, of two turns."""
    tokenizer = nano[1]
    model = random_model(name, PLAYED[name], tokenizer)
    policy = LocalPolicy(model, tokenizer, 512)
    assert policy.forward_pass == "transformers"
    check_architecture(model)

    async def play(k):
        conversation, found = policy.open(), []
        for turn in range(2):
            conversation.add(Message("user", "You arrive at desk 1. " * (1 + (k + turn) % 3)))
            found.append(await conversation.respond(Sampling(0.7, 4 + k), ("x", k, turn)))
        return found

    async def everyone():
        return await policy.barrier.gather(play, range(3))

    for completions in asyncio.run(everyone()):
        dialog = []
        for completion in completions:
            dialog += [*completion.prompt_ids, *completion.response_ids]
            ids = torch.tensor([dialog])
            count = len(completion.response_ids)
            mask = torch.zeros(ids.shape)
            mask[0, -count:] = 1
            with torch.no_grad():
                logits = model(input_ids=ids).logits[0, -count - 1 : -1].double() / 0.7
                trained = token_logprobs(model, ids, mask, 0.7)[0, -count:]
            own = logits.log_softmax(-1).gather(1, ids[0, -count:, None])[:, 0]
            assert completion.logprobs == pytest.approx(own.tolist(), abs=1e-4)
            assert trained.tolist() == pytest.approx(own.tolist(), abs=1e-4)


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_computed_is_refused(nano, name):
    model = random_model(name, REFUSED[name], nano[1])
    with pytest.raises(ConfigError, match=f"architecture {model.config.model_type!r} .*--server"):
        check_architecture(model)


def test_a_pass_that_differs_from_the_models_own_is_refused(nano):
    """An output scaled in a way that its configuration does not tell."""
    model = random_model("Mistral", PLAYED["Mistral"], nano[1])
    own = model.forward
    model.forward = lambda **inputs: transformers.modeling_outputs.CausalLMOutput(
        logits=own(**inputs).logits / 4
    )
    with pytest.raises(ConfigError, match="'mistral' .*--server"):
        check_architecture(model)


@pytest.mark.parametrize("length", [10, 12])  # of each dialog: prompt, 3 tokens, the second prompt, 3 tokens
def test_a_pass_whose_log_probs_are_no_numbers_is_refused(nano, length):
    model = random_model("Mistral", PLAYED["Mistral"], nano[1])
    own = model.forward

    def forward(input_ids, **inputs):
        found = own(input_ids=input_ids, **inputs)
        if input_ids.shape[1] == length:
            found.logits.fill_(float("nan"))
        return found

    model.forward = forward
    with pytest.raises(ConfigError, match="would differ by nan"):
        check_architecture(model)


@pytest.mark.parametrize("name", ["Mistral, window", "Gemma3Text", "GptOss"])
def test_a_window_is_compared_however_long_it_is(nano, name, monkeypatch):
    model = random_model(name, PLAYED[name] | {"sliding_window": 4096}, nano[1])
    check_architecture(model)
    assert model.config.sliding_window == 4096
    everything = PaddedCache.seen
    monkeypatch.setattr(PaddedCache, "seen", lambda cache, window=None: everything(cache))
    with pytest.raises(ConfigError, match="would differ by"):
        check_architecture(model)
