"""The packed forward pass equals transformers' own; common beginnings are computed once."""

import asyncio
import copy
import functools

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, Qwen2Config, Qwen3Config

from r3l.config.gpu_memory import LOGITS
from r3l.core.batching import batches_by_prefix
from r3l.core.policy import Sampling
from r3l.core.text import Message
from r3l.local.kernels.cpu_kernel_decoder import KernelTree
from r3l.local.model.forward import has_cpu_kernels, is_of_family
from r3l.local.model.precision import recompute_activations
from r3l.local.sampling.policy import LocalPolicy
from r3l.local.training.logprobs import token_logprobs, tree_logprobs
from r3l.local.training.prefix_tree import BLOCK, PrefixTree

SIZES = {
    "vocab_size": 50,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
}
LONG_CONTEXT = {
    "rope_type": "llama3",
    "rope_theta": 1e4,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
FAMILY = {
    "llama": LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True),
    "llama with scaled positions": LlamaConfig(**SIZES, rope_parameters=LONG_CONTEXT),
    "qwen2": Qwen2Config(**SIZES, tie_word_embeddings=True),
    "qwen2 that pads with a token of dialogs": Qwen2Config(
        **SIZES, pad_token_id=7
    ),  # its embedding is not trained
    "qwen3": Qwen3Config(**SIZES, head_dim=10),
}


def random_model(config):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).double()
    for parameter in model.parameters():  # biases and norms begin at 0 and 1, where a mistake would not show
        parameter.data += 0.3 * torch.randn_like(parameter)
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):  # transformers' own rounds to float32 whatever comes in
            module.forward = functools.partial(in_full, module)
    return model


def in_full(norm, hidden):
    return norm.weight * hidden * torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True) + norm.variance_epsilon)


def rows_of_a_step():
    """Attempts with a common prompt longer than a block, a retry of one of them, a row within another, a
    stranger."""
    draws = np.random.default_rng(0)

    def tokens(count):
        return draws.integers(0, 50, count)

    prompt, attempt = tokens(BLOCK + 7), tokens(30)
    rows = [np.concatenate([prompt, tokens(9)]), np.concatenate([prompt, attempt]), tokens(BLOCK)]
    rows += [
        np.concatenate([prompt, attempt[:21], tokens(80)]),
        prompt[:40],
        np.concatenate([prompt, attempt]),
    ]
    ids_B_T = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.int64)
    mask_B_T = torch.zeros(ids_B_T.shape)
    for k, row in enumerate(rows):
        ids_B_T[k, : len(row)] = torch.from_numpy(row)
        mask_B_T[k, : len(row)] = torch.from_numpy(draws.random(len(row)) < 0.4)
    return ids_B_T, mask_B_T


@pytest.mark.filterwarnings("error")  # a run prints them
@pytest.mark.parametrize(("name", "recompute"), [*((name, False) for name in FAMILY), ("qwen3", True)])
def test_values_and_gradients_are_those_of_padded_rows(name, recompute):
    """In float64 to 1e-10, relative to the largest."""
    model, (ids_B_T, mask_B_T) = random_model(FAMILY[name]).train(), rows_of_a_step()
    assert is_of_family(model.config)
    weights_B_T = torch.linspace(-1, 1, ids_B_T.numel(), dtype=torch.float64).view(ids_B_T.shape)
    results = []
    for compute in (token_logprobs, tree_logprobs):
        if recompute and compute is tree_logprobs:
            recompute_activations(model)
            assert all(layer.gradient_checkpointing for layer in model.model.layers)
        model.zero_grad()
        logprobs_B_T = compute(model, ids_B_T, mask_B_T, 0.7)
        (logprobs_B_T * weights_B_T).sum().backward()
        results.append([logprobs_B_T.detach(), *(parameter.grad.clone() for parameter in model.parameters())])
    for expected, computed in zip(*results, strict=True):
        assert torch.allclose(computed, expected, rtol=0, atol=1e-10 * expected.abs().max().item())


@pytest.mark.parametrize("compute", [token_logprobs, tree_logprobs])
@pytest.mark.parametrize("rows", [1, 7, 100])
def test_logits_in_chunks_of_rows_give_the_same_values_and_gradients(compute, rows, monkeypatch):
    """Also after a hidden state that several tokens follow; and without gradients."""
    model, (ids_B_T, mask_B_T) = random_model(FAMILY["qwen2"]).train(), rows_of_a_step()
    weights_B_T = torch.linspace(-1, 1, ids_B_T.numel(), dtype=torch.float64).view(ids_B_T.shape)

    def results():
        model.zero_grad()
        logprobs_B_T = compute(model, ids_B_T, mask_B_T, 0.7)
        (logprobs_B_T * weights_B_T).sum().backward()
        with torch.no_grad():
            assert torch.equal(compute(model, ids_B_T, mask_B_T, 0.7), logprobs_B_T)
        return [logprobs_B_T.detach(), *(parameter.grad.clone() for parameter in model.parameters())]

    whole = results()
    monkeypatch.setattr("r3l.local.training.logprobs.CHUNK", rows * LOGITS * SIZES["vocab_size"])
    for expected, computed in zip(whole, results(), strict=True):
        assert torch.allclose(computed, expected, rtol=0, atol=1e-12 * expected.abs().max().item())


def test_rows_without_a_scored_token_cost_nothing(nano):
    ids_B_T = torch.ones(2, 5, dtype=torch.int64)
    assert not tree_logprobs(nano[0], ids_B_T, torch.zeros(2, 5)).any()
    first_alone = torch.tensor([[1.0, 0, 0, 0, 0]] * 2)  # nothing stands before it
    assert not tree_logprobs(nano[0], ids_B_T, first_alone).any()
    assert tree_logprobs(nano[0], ids_B_T[:, :0], torch.zeros(2, 0)).shape == (
        2,
        0,
    )  # a prompt that had no room


def test_a_tree_by_hand():
    rows = [np.array(row) for row in ([1, 2, 4], [7], [1, 2, 3, 5], [1, 2, 3])]
    tree = PrefixTree(rows, torch.device("cpu"))
    assert tree.ids_N.tolist() == [1, 2, 3, 5, 4, 7]  # in the order 123, 1235, 124, 7
    assert tree.positions_N.tolist() == [0, 1, 2, 3, 2, 0]
    assert [path.tolist() for path in tree.paths] == [[0, 1, 4], [5], [0, 1, 2, 3], [0, 1, 2]]


def test_parts_count_what_is_shared_once():
    """1235 adds one token to 123, 124 one more: 5 in all; 7 would be the sixth."""
    rows = [np.array(row) for row in ([1, 2, 4], [7], [1, 2, 3, 5], [1, 2, 3])]
    assert batches_by_prefix(rows, 6) == [[3, 2, 0, 1]]
    assert batches_by_prefix(rows, 5) == [[3, 2, 0], [1]]
    assert batches_by_prefix(rows, 2) == [[3], [2], [0], [1]]  # a longer row stands alone


def test_other_architectures_keep_their_own_forward_pass(nano):
    sliding = Qwen2Config(**SIZES, use_sliding_window=True, sliding_window=16, max_window_layers=1)
    assert not is_of_family(AutoModelForCausalLM.from_config(sliding).config)
    for other in ({"hidden_act": "gelu"}, {"attention_dropout": 0.1}):
        assert not is_of_family(AutoModelForCausalLM.from_config(LlamaConfig(**SIZES, **other)).config)
    gpt2 = AutoModelForCausalLM.from_config(GPT2Config(vocab_size=50, n_embd=8, n_layer=1, n_head=2))
    assert not is_of_family(gpt2.config) and LocalPolicy(gpt2, nano[1], 64).forward_pass == "transformers"


@pytest.mark.parametrize("machine_code", [True, False])
def test_a_group_encodes_its_prompt_once_and_samples_as_if_each_did(nano, machine_code, monkeypatch):
    """Four members of two tasks: two prompts are encoded, and the tokens are those of transformers' forward
    pass."""
    model, tokenizer = nano
    monkeypatch.setattr("r3l.local.model.forward.has_cpu_kernels", lambda model: machine_code)

    def sampled(forward_pass):
        policy = LocalPolicy(model, tokenizer, 512, forward_pass=forward_pass)

        async def member(k):
            conversation, completions = policy.open(), []
            for turn in range(3):
                conversation.add(Message("user", f"You arrive at desk {turn and k} {k % 2}." * (1 + k % 2)))
                completions.append(await conversation.respond(Sampling(1.0, 8), ("x", k, turn)))
            return completions

        async def everyone():
            return await policy.barrier.gather(member, range(4))

        return asyncio.run(everyone()), policy.take_counts()

    (packed, counts), (padded, counts_padded) = sampled("packed"), sampled("transformers")
    for a, b in zip(packed, padded, strict=True):
        assert [x.response_ids for x in a] == [x.response_ids for x in b]
        assert [x.logprobs for x in a] == [pytest.approx(x.logprobs, abs=1e-5) for x in b]
    prompts = [len(a[0].prompt_ids) for a in packed]
    assert counts["encoded"] == counts_padded["encoded"] - prompts[0] - prompts[1]


def test_machine_code_is_for_float32_on_a_cpu_and_heads_of_whole_vectors(nano):
    model = nano[0]
    assert has_cpu_kernels(model)
    assert not has_cpu_kernels(copy.deepcopy(model).double())
    assert not has_cpu_kernels(AutoModelForCausalLM.from_config(Qwen2Config(**SIZES)))  # heads of 6


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", [LlamaConfig, Qwen2Config, Qwen3Config])
def test_machine_code_trains_as_float64_does(kind):
    """Log-probs and gradients of a step's rows, as near as torch's products in float32 come."""
    sizes = SIZES | {"hidden_size": 64, "num_attention_heads": 8}
    model, rows = random_model(kind(**sizes, head_dim=8)).train(), rows_of_a_step()
    exact = gradients(model, *rows, PrefixTree)
    assert has_cpu_kernels(model.float())
    of_torch, of_machine_code = (
        gradients(model, *rows, tree_class) for tree_class in (PrefixTree, KernelTree)
    )
    for expected, usual, computed in zip(exact, of_torch, of_machine_code, strict=True):
        usual_error, error = ((x - expected).abs().max() / expected.abs().max() for x in (usual, computed))
        assert error < min(5 * usual_error + 1e-6, 1e-3)


def gradients(model, ids_B_T, mask_B_T, tree_class):
    model.zero_grad()
    logprobs_B_T = tree_logprobs(model, ids_B_T, mask_B_T, 0.7, tree_class)
    logprobs_B_T.sum().backward()
    return [logprobs_B_T.detach(), *(parameter.grad.clone() for parameter in model.parameters())]
