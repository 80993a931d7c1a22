"""Models as their weights alone: what transformers' modules compute, save and keep."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config, Qwen3Config

from r3l.local.model.weights import load
from r3l.local.training.adamw import AdamW
from r3l.local.training.logprobs import tree_logprobs

CPU = torch.device("cpu")
SIZES = {
    "vocab_size": 50,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
CONFIGS = {
    "llama": LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True, tie_word_embeddings=False),
    "qwen2": Qwen2Config(**SIZES, tie_word_embeddings=True),
    "qwen3": Qwen3Config(**SIZES, head_dim=16, tie_word_embeddings=False),
}


@pytest.mark.parametrize("kind", CONFIGS)
def test_log_probs_gradients_and_saved_files_are_those_of_transformers_modules(
    kind: str, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(CONFIGS[kind]).save_pretrained(tmp_path / "model")
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.float32)
    ours = load(tmp_path / "model")
    assert ours is not None
    assert [name for name, _ in ours.named_parameters()] == [name for name, _ in theirs.named_parameters()]
    assert set(ours.state_dict()) == set(theirs.state_dict())
    places = [[tensor.data_ptr() % 64 for tensor in model.parameters()] for model in (ours, theirs)]
    assert places[0] == places[1]  # by which kernels round
    ids_B_T = torch.randint(1, 50, (3, 20))
    for model in (ours, theirs):
        tree_logprobs(model, ids_B_T, torch.ones_like(ids_B_T)).sum().backward()
    for (name, our), (_, their) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
        assert torch.equal(our.grad, their.grad), name
    with torch.no_grad():
        log_probs = [tree_logprobs(model, ids_B_T, torch.ones_like(ids_B_T)) for model in (ours, theirs)]
    assert torch.equal(*log_probs)
    shutil.rmtree(tmp_path / "model")  # as a run's checkpoint goes after two later ones
    for name, model in {"ours": ours, "theirs": theirs}.items():
        model.save_pretrained(
            tmp_path / name, state_dict={k: p.detach() for k, p in model.named_parameters()}
        )
    names = sorted(path.name for path in (tmp_path / "theirs").iterdir())
    assert names == sorted(path.name for path in (tmp_path / "ours").iterdir())
    for name in names:
        assert (tmp_path / "ours" / name).read_bytes() == (tmp_path / "theirs" / name).read_bytes(), name


def test_other_positions_and_other_files_are_left_to_transformers(tmp_path: Path) -> None:
    rotary = {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}
    AutoModelForCausalLM.from_config(LlamaConfig(**SIZES, rope_parameters=rotary)).save_pretrained(
        tmp_path / "scaled"
    )
    assert load(tmp_path / "scaled") is None
    AutoModelForCausalLM.from_config(CONFIGS["llama"]).save_pretrained(tmp_path / "bare")
    (tmp_path / "bare" / "generation_config.json").unlink()
    assert load(tmp_path / "bare") is None


def test_weights_in_half_precision_are_computed_with_in_float32(tmp_path: Path) -> None:
    AutoModelForCausalLM.from_config(CONFIGS["llama"]).to(torch.bfloat16).save_pretrained(tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    assert {tensor.dtype for tensor in stored.values()} == {torch.bfloat16}
    model = load(tmp_path)
    assert model is not None and model.dtype == torch.float32
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, stored[name].float()), name


def test_adamw_takes_the_steps_of_torchs_class() -> None:
    torch.manual_seed(0)
    starts = [torch.randn(5, 3), torch.randn(4)]
    options = {"lr": 0.1, "betas": (0.9, 0.95), "weight_decay": 0.01}
    ours, theirs = ([torch.nn.Parameter(start.clone()) for start in starts] for _ in range(2))
    optimizers = (AdamW(ours, **options), torch.optim.AdamW(theirs, **options))
    for _ in range(3):
        gradients = [torch.randn_like(start) for start in starts]
        for parameters, optimizer in zip((ours, theirs), optimizers, strict=True):
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient.clone()
            optimizer.step()
            optimizer.zero_grad()
    for our, their in zip(ours, theirs, strict=True):
        assert torch.equal(our, their)
        for name, value in optimizers[1].state[their].items():
            assert torch.equal(optimizers[0].state[our][name], value), name


def test_rotary_frequencies_in_a_checkpoint_change_nothing(tmp_path: Path) -> None:
    """Checkpoints of Llama 2's time hold them; any other further tensor is refused by its name."""
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(CONFIGS["llama"]).save_pretrained(tmp_path)
    ids_B_T = torch.randint(1, 50, (2, 9))
    ones = torch.ones_like(ids_B_T)
    expected = tree_logprobs(load(tmp_path), ids_B_T, ones)
    state = load_file(tmp_path / "model.safetensors")
    frequencies = {f"model.layers.{k}.self_attn.rotary_emb.inv_freq": torch.full((4,), 3.0) for k in (0, 1)}
    save_file(state | frequencies, tmp_path / "model.safetensors", {"format": "pt"})
    assert torch.equal(tree_logprobs(load(tmp_path), ids_B_T, ones), expected)
    save_file(state | {"model.odd": torch.ones(1)}, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(ValueError, match="model.odd"):
        load(tmp_path)
