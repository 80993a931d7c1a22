"""Packed forward pass of Llama-like models: the tokens of all rows side by side, padded only in attention.

From token ids to last hidden states (``hidden_states``), and from these to logits (``vocabulary_logits``).

transformers pads every row to the longest, makes masks and positions again in every layer, repeats keys for
each query head, and computes the last layer even of tokens that are never read. A model of a million
parameters spends most of its time on that: a step of training takes 1.5 to 3.2 times as long by
transformers' pass (results/notebook; on a CPU 1.0 to 1.7 times of it are due to r3l.local.kernels). So the
layers are written out here, on weights of transformers' modules or of r3l.local.model.weights.

In float64 the two passes agree to 1e-10, values and gradients (tests/local/model/test_forward.py); in
float32 they differ by rounding, about 1e-6 in a log-prob. transformers computes all other architectures, and
is the reference.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from r3l.local.cpu import bfloat16_factors
from r3l.local.model.lora import ADAPTER_NAME

Pass = Literal["packed", "transformers"]

# Architectures with RMSNorm, rotary positions, grouped queries and SwiGLU, with or without biases and norms
# of queries and keys.
FAMILY = ("llama", "qwen2", "qwen3")

DIMENSIONS = 8  # a loop of r3l.local.kernels.cpu_attention takes so many: head sizes must be multiples of it
THREADS = 2  # most threads with which the kernels, which use one, are faster than torch's products

# Attention of one layer: (its index, queries (N, H, D), keys and values (N, 2, G, D)) -> (N, H * D), with H
# query heads and G key-value heads.
Attend = Callable[[int, torch.Tensor, torch.Tensor], torch.Tensor]

# Keys and values of one dialog, shape (L, 2, G, T, D): L layers, G key-value heads of size D, T tokens.
DialogCache = torch.Tensor


def cache_shape(config: Any, rows: int, columns: int) -> tuple[int, int, int, int, int, int]:
    """Shape (L, 2, R, G, T, D) of a key-value cache for ``rows`` dialogs (R) of ``columns`` tokens (T).

    L: layers; 2: keys, then values; G: key-value heads; D: size of a head. ``config``: transformers'
    configuration of the model, as in ``model.config``.
    """
    return config.num_hidden_layers, 2, rows, config.num_key_value_heads, columns, head_size(config)


def head_size(config: Any) -> int:
    """Number of dimensions of one attention head; ``config``: transformers' configuration of a model."""
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def pass_of(model: Any, wanted: Pass) -> Pass:
    """``wanted``, but ``transformers`` if the packed pass cannot compute ``model`` (:func:`is_of_family`)."""
    return wanted if is_of_family(model.config) else "transformers"


def is_of_family(config: Any) -> bool:
    """True if the packed pass can compute models of this configuration.

    That is: model type in FAMILY, SiLU, no attention dropout, and full attention (no sliding window) in every
    layer. ``config``: transformers' configuration of a model, as in ``model.config``.
    """
    if config.model_type not in FAMILY or config.hidden_act != "silu" or config.attention_dropout:
        return False
    return set(getattr(config, "layer_types", None) or ["full_attention"]) == {"full_attention"}


def has_cpu_kernels(model: Any) -> bool:
    """True if our compiled CPU attention (r3l.local.kernels) can be used for ``model``.

    It needs a float32 model on a CPU, a head size that is a multiple of DIMENSIONS, at most THREADS torch
    threads, and numba. The caller must have checked :func:`is_of_family`.
    """
    if model.device.type != "cpu" or model.dtype != torch.float32 or head_size(model.config) % DIMENSIONS:
        return False
    return torch.get_num_threads() <= THREADS and importlib.util.find_spec("numba") is not None


def hidden_states(
    model: Any,
    ids_N: torch.Tensor,
    positions_N: torch.Tensor,
    attend: Attend,
    wanted_W: torch.Tensor | None = None,
) -> torch.Tensor:
    """Hidden states after the last layer and the final norm, shape (W, hidden size), of chosen tokens.

    ``ids_N``, ``positions_N``: ids and positions of the N tokens, of any number of rows one after another.
    ``attend``: the attention, called once per layer; only it knows which tokens belong to one row.
    ``wanted_W``: indices of the chosen tokens among the N; None: all.
    """
    decoder = model.model
    # As with transformers, the padding token's embedding gets no gradient.
    hidden = functional.embedding(ids_N, decoder.embed_tokens.weight, model.config.pad_token_id)
    # Cosines and sines depend only on positions: once for all layers.
    cos, sin = decoder.rotary_emb(hidden, positions_N[None])
    rotation = (cos[0][:, None], sin[0][:, None])
    for index, layer in enumerate(decoder.layers):
        # The last layer attends over all tokens, but only wanted ones go on after its attention.
        wanted = wanted_W if index == len(decoder.layers) - 1 else None
        if layer.gradient_checkpointing and layer.training:
            hidden = checkpoint(_layer, layer, index, hidden, rotation, attend, wanted, use_reentrant=False)
        else:
            hidden = _layer(layer, index, hidden, rotation, attend, wanted)
    return _normed(decoder.norm, hidden)


def attention(
    queries_R_C_H_D: torch.Tensor,
    keys_R_G_T_D: torch.Tensor,
    values_R_G_T_D: torch.Tensor,
    bias: torch.Tensor,
) -> torch.Tensor:
    """Scaled dot-product attention of C queries per row over T keys and values, shape (R, C, H * D).

    R: rows; H: query heads, of which H / G neighbours share one of G key-value heads; D: size of a head.
    ``bias``: added to the scores: -inf for keys that a query must not see, else 0; it broadcasts to (R, C,
    T).
    """
    queries = queries_R_C_H_D.transpose(1, 2)
    keys = keys_R_G_T_D
    values = values_R_G_T_D
    rows, heads, count, size = queries.shape
    groups, columns = keys.shape[1:3]
    if queries.device.type == "cpu":
        # Two matrix products: torch's own kernel took 1.1 to 1.3 times as long (results/notebook). Query
        # heads of one key-value head are rows of the same product, so keys and values are read once.
        grouped = (queries * size**-0.5).reshape(rows, groups, -1, size)
        scores = torch.matmul(grouped, keys.transpose(2, 3)).view(rows, heads, count, columns)
        scores += bias[:, None].to(scores.dtype)
        weights = scores.softmax(-1).view(rows, groups, -1, columns)
        attended = torch.matmul(weights, values).view(rows, heads, count, size)
    else:
        # GPU kernels that take a mask have no key-value groups (``enable_gqa`` would fall back to plain
        # operations). With one query a row the heads of a group become more queries of one head; with
        # several, keys and values are repeated.
        mask = bias.to(queries.dtype).expand(rows, count, -1)[:, None]
        if count == 1:
            queries = queries.reshape(rows, groups, -1, size)
        else:
            keys = keys.repeat_interleave(heads // groups, dim=1)
            values = values.repeat_interleave(heads // groups, dim=1)
        attended = functional.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
        attended = attended.reshape(rows, heads, count, size)
    return attended.transpose(1, 2).flatten(2)


def _layer(
    layer: Any,
    index: int,
    hidden: torch.Tensor,
    rotation: tuple[torch.Tensor, torch.Tensor],
    attend: Attend,
    wanted: torch.Tensor | None,
) -> torch.Tensor:
    """One transformer layer: attention, then the MLP, each added to its input."""
    # Queries, keys and values of the normed input.
    module = layer.self_attn
    normed = _normed(layer.input_layernorm, hidden)
    heads_of_tokens = (len(normed), -1, module.head_dim)  # (N, heads, D)
    queries = apply_linear(module.q_proj, normed).view(heads_of_tokens)
    keys = apply_linear(module.k_proj, normed).view(heads_of_tokens)
    values = apply_linear(module.v_proj, normed).view(heads_of_tokens)
    if hasattr(module, "q_norm"):
        queries = _normed(module.q_norm, queries)
        keys = _normed(module.k_norm, keys)

    # Rotary positions (RoFormer, 2104.09864): the two halves of a head are paired as in transformers.
    heads = queries.shape[1]
    cos, sin = rotation
    both = torch.cat([queries, keys], dim=1)
    first, second = both.chunk(2, dim=-1)
    rotated = both * cos + torch.cat([-second, first], dim=-1) * sin
    states_N_2_G_D = torch.stack([rotated[:, heads:], values], dim=1)

    # Attention over all tokens; from here on, only wanted ones are computed.
    attended = attend(index, rotated[:, :heads], states_N_2_G_D)
    if wanted is not None:
        hidden = hidden.index_select(0, wanted)
        attended = attended.index_select(0, wanted)
    hidden = hidden + apply_linear(module.o_proj, attended)

    # SwiGLU.
    normed = _normed(layer.post_attention_layernorm, hidden)
    gate = functional.silu(apply_linear(layer.mlp.gate_proj, normed))
    gated = gate * apply_linear(layer.mlp.up_proj, normed)
    return hidden + apply_linear(layer.mlp.down_proj, gated)


def _normed(norm: Any, hidden: torch.Tensor) -> torch.Tensor:
    """RMSNorm with the weights of a module."""
    return functional.rms_norm(hidden, (hidden.shape[-1],), norm.weight, norm.variance_epsilon)


def apply_linear(module: Any, hidden_N_H: torch.Tensor) -> torch.Tensor:
    """Hidden states (N, H) through the linear layer ``module``, shape (N, output size).

    ``module`` may be peft's LoRA layer: then the adapter's product is added, unless the adapter is off.
    """
    if not hasattr(module, "lora_A") or module.disable_adapters:
        return module(hidden_N_H)  # type: ignore[no-any-return]
    # Three products, and not peft's own forward: each further operation costs GPU time.
    a = module.lora_A[ADAPTER_NAME].weight
    b = module.lora_B[ADAPTER_NAME].weight
    output: torch.Tensor = module.base_layer(hidden_N_H)
    return output.addmm_(hidden_N_H @ a.T, b.T, alpha=module.scaling[ADAPTER_NAME])


class Projection(NamedTuple):
    """The last linear layer, from hidden states (H) to logits (V): weights (V, H) and bias (V,) or None.

    In float32, or float64 for a float64 model. Logits are multiplied by ``scale``; then
    ``cap * tanh(logits / cap)`` keeps them within ``cap`` (0: no cap).
    """

    weight_V_H: torch.Tensor
    bias_V: torch.Tensor | None = None
    scale: float = 1.0
    cap: float = 0.0


def vocabulary_projection(model: Any) -> Projection:
    """Vocabulary projection of ``model`` in float32 at least, with its configuration's scale and cap."""
    head = model.lm_head
    config = model.config
    dtype = torch.promote_types(head.weight.dtype, torch.float32)
    # As in transformers: Cohere's models have a factor, Granite's a divisor, Gemma-2's a cap.
    scale = getattr(config, "logit_scale", None) or 1.0 / (getattr(config, "logits_scaling", None) or 1.0)
    cap = getattr(config, "final_logit_softcapping", None) or 0.0
    return Projection(head.weight.to(dtype), None if head.bias is None else head.bias.to(dtype), scale, cap)


def vocabulary_logits(hidden: torch.Tensor, projection: Projection) -> torch.Tensor:
    """Logits (..., V) of hidden states (..., H), in the type of ``projection``: float32 at least."""
    # Hidden states in bfloat16 come with weights rounded to it, so their products are exact in float32.
    weight_V_H, bias_V, scale, cap = projection
    with bfloat16_factors(hidden.dtype == torch.bfloat16):
        logits = torch.nn.functional.linear(hidden.to(weight_V_H.dtype), weight_V_H, bias_V)
    logits = logits * scale if scale != 1 else logits
    return cap * torch.tanh(logits / cap) if cap else logits


def sampled_logits(model: Any, hidden_B_H: torch.Tensor) -> torch.Tensor:
    """Logits (B, V) of hidden states, for sampling: float32, or float64 for a float64 model.

    bfloat16 on a GPU has a faster product without a backward pass; all else is :func:`vocabulary_logits`.
    """
    head = model.lm_head
    # bfloat16 factors are multiplied as they are, a fifth of a token's time less; sums are float32 anyway.
    if hidden_B_H.is_cuda and hidden_B_H.dtype == torch.bfloat16 and head.bias is None:
        return torch.mm(hidden_B_H, head.weight.T, out_dtype=torch.float32)
    return vocabulary_logits(hidden_B_H, vocabulary_projection(model))
