"""Llama-like models as bare weights, with transformers' names and order; r3l.local.model.forward computes.

The packed forward pass needs nothing else of a model, and importing transformers' modules takes a second and
a half, as long as torch itself. (Its configuration and tokenizer classes, which are used here, import fast.)
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoConfig, GenerationConfig

from r3l.core.pretrained import pretrained
from r3l.local.model.forward import head_size, is_of_family

WEIGHTS = "model.safetensors"
GENERATION = "generation_config.json"


class CausalLM(nn.Module):
    """Weights of a causal language model, with the part of transformers' interface that the engine uses.

    It has no forward pass: r3l.local.model.forward computes with its weights.
    """

    def __init__(self, folder: Path, config: Any) -> None:
        """Load model.safetensors of ``folder`` as float32.

        Raises ValueError if its tensors have other names or shapes than ``config`` implies.
        """
        super().__init__()
        self.config = config
        self.name_or_path = str(folder)
        self.config.dtype = torch.float32
        self._generation = pretrained(GenerationConfig, folder)
        self.model = _Decoder(config)
        self.lm_head = _Weights(config.vocab_size, config.hidden_size)

        # Float32 tensors stay in the memory that load_file maps, as with transformers: the rounding of a
        # product depends on the address.
        # Checkpoints of Llama 2's time hold the rotary frequencies too, which follow from the configuration.
        state = {
            name: tensor.to(torch.float32)
            for name, tensor in load_file(folder / WEIGHTS).items()
            if not name.endswith("rotary_emb.inv_freq")
        }
        if config.tie_word_embeddings:
            state["lm_head.weight"] = state["model.embed_tokens.weight"]
        try:
            self.load_state_dict(state, assign=True)
        except RuntimeError as error:  # names and shapes
            raise ValueError(f"{folder / WEIGHTS}: {' '.join(str(error).split())[:300]}") from error
        if config.tie_word_embeddings:
            self.lm_head.weight = self.model.embed_tokens.weight
        self.model.rotary_emb = _Rotation(config)

    @property
    def device(self) -> torch.device:
        """Device of the vocabulary projection; all weights are on the same one."""
        return self.lm_head.weight.device

    @property
    def dtype(self) -> torch.dtype:
        """Type of the vocabulary projection's weights, in which the model computes."""
        return self.lm_head.weight.dtype

    def gradient_checkpointing_enable(self) -> None:
        """Keep only each layer's input in the forward pass; the backward pass computes the rest again."""
        for layer in self.model.layers:
            # torch's stubs know no attribute of a class.
            layer.gradient_checkpointing = True  # type: ignore[assignment]

    def save_pretrained(self, folder: Path, state_dict: dict[str, torch.Tensor]) -> None:
        """Write the model into ``folder`` in Hugging Face layout, without tokenizer.

        ``state_dict``: the weights to write, by name, instead of this object's; tied ones only once.
        """
        self.config.save_pretrained(folder)
        self._generation.save_pretrained(folder)
        save_file(state_dict, folder / WEIGHTS, metadata={"format": "pt"})


def load(folder: Path) -> CausalLM | None:
    """The model in ``folder`` as a CausalLM, float32 on the CPU, in evaluation mode.

    None if the folder lacks model.safetensors or generation_config.json, or if the packed pass cannot compute
    its architecture; the caller then loads it by transformers. Raises ValueError if the tensors do not fit
    the configuration.
    """
    if not all((folder / name).is_file() for name in (WEIGHTS, GENERATION)):
        return None
    config = pretrained(AutoConfig, folder)
    # Only rotary positions as in RoFormer: _Rotation has no scaling for longer dialogs.
    plain_positions = (getattr(config, "rope_parameters", None) or {}).get("rope_type") == "default"
    return CausalLM(folder, config).eval() if is_of_family(config) and plain_positions else None


class _Weights(nn.Module):
    """Weights of an embedding, the vocabulary projection or a norm, on the meta device until loaded."""

    bias = None

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(shape, device="meta"))


class _Decoder(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.embed_tokens = _Weights(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(_Layer(config) for _ in range(config.num_hidden_layers))
        self.norm = _Norm(config.hidden_size, config)
        self.rotary_emb: nn.Module


class _Layer(nn.Module):
    gradient_checkpointing = False

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.self_attn = _SelfAttention(config)
        self.mlp = _MLP(config)
        self.input_layernorm = _Norm(config.hidden_size, config)
        self.post_attention_layernorm = _Norm(config.hidden_size, config)


class _SelfAttention(nn.Module):
    """Projections of one attention layer, with the biases and norms that the model type has."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.head_dim = head_size(config)
        kind = config.model_type
        hidden = config.hidden_size
        queries = config.num_attention_heads * self.head_dim
        states = config.num_key_value_heads * self.head_dim
        biased = kind == "qwen2" or getattr(config, "attention_bias", False)
        self.q_proj = nn.Linear(hidden, queries, biased, "meta")
        self.k_proj = nn.Linear(hidden, states, biased, "meta")
        self.v_proj = nn.Linear(hidden, states, biased, "meta")
        self.o_proj = nn.Linear(queries, hidden, kind != "qwen2" and biased, "meta")
        if kind == "qwen3":
            self.q_norm = _Norm(self.head_dim, config)
            self.k_norm = _Norm(self.head_dim, config)


class _MLP(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        hidden = config.hidden_size
        between = config.intermediate_size
        biased = getattr(config, "mlp_bias", False)
        self.gate_proj = nn.Linear(hidden, between, biased, "meta")
        self.up_proj = nn.Linear(hidden, between, biased, "meta")
        self.down_proj = nn.Linear(between, hidden, biased, "meta")


class _Norm(_Weights):
    def __init__(self, size: int, config: Any) -> None:
        super().__init__(size)
        self.variance_epsilon = config.rms_norm_eps


class _Rotation(nn.Module):
    """Cosines and sines of rotary positions (RoFormer, 2104.09864), computed as transformers does."""

    inv_freq: torch.Tensor

    def __init__(self, config: Any) -> None:
        super().__init__()
        size = head_size(config)
        powers = torch.arange(0, size, 2, dtype=torch.int64).to(dtype=torch.float) / size
        frequencies = 1.0 / (config.rope_parameters["rope_theta"] ** powers)
        self.register_buffer("inv_freq", frequencies, persistent=False)

    def forward(self, hidden: torch.Tensor, positions_B_T: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(cosines, sines) of the positions, shape (B, T, head size) each, in the type of ``hidden``."""
        angles = positions_B_T[..., None].float() * self.inv_freq
        both_halves = torch.cat([angles, angles], dim=-1)
        return both_halves.cos().to(hidden.dtype), both_halves.sin().to(hidden.dtype)
