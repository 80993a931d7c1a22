"""Packed forward pass of Llama-like models: the tokens of all rows side by side, padded only in attention.

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
from typing import Any, Literal

import torch
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from r3l.local.model.lora import projected

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
    """Shape (L, 2, R, G, T, D) of the keys and values of ``rows`` dialogs (R) with ``columns`` tokens (T).

    L: layers; 2: keys, values; G: key-value heads; D: size of a head.
    """
    return config.num_hidden_layers, 2, rows, config.num_key_value_heads, columns, head_size(config)


def head_size(config: Any) -> int:
    """Size of a key or value of one head."""
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def pass_of(model: Any, wanted: Pass) -> Pass:
    """Forward pass of ``model``: the ``wanted`` one, or transformers' if the packed one cannot be used."""
    return wanted if is_of_family(model.config) else "transformers"


def is_of_family(config: Any) -> bool:
    """True if the packed pass computes everything that models of this configuration need.

    ``config``: transformers' configuration of a model, as in ``model.config``.
    """
    if config.model_type not in FAMILY or config.hidden_act != "silu" or config.attention_dropout:
        return False
    return set(getattr(config, "layer_types", None) or ["full_attention"]) == {"full_attention"}


def has_machine_code(model: Any) -> bool:
    """True if our compiled CPU kernels can compute the attention of ``model``, which is :func:`is_of_family`.

    They need float32 on a CPU, head sizes that are multiples of DIMENSIONS, few threads, and numba, which is
    missing in environments with the pins of other projects.
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
    """Last hidden states, after the final norm, of the tokens ``wanted_W``, shape (W, hidden).

    ``ids_N``, ``positions_N``: the N tokens and their positions. ``attend``: attention in each layer.
    ``wanted_W``: indices among the N tokens; None: all.
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
    """Attention of C queries per row over T columns, shape (R, C, H * D).

    R: rows; H: query heads, in groups that share one of G key-value heads; D: size of a head. ``bias``: -inf
    in columns that a query does not see, else 0; it broadcasts to (R, C, T).
    """
    # On a CPU torch's own kernel took 1.1 to 1.3 times as long as two products (results/notebook).
    compute = two_products if queries_R_C_H_D.device.type == "cpu" else torch_kernel
    attended_R_H_C_D = compute(queries_R_C_H_D.transpose(1, 2), keys_R_G_T_D, values_R_G_T_D, bias)
    return attended_R_H_C_D.transpose(1, 2).flatten(2)


def two_products(
    queries_R_H_C_D: torch.Tensor,
    keys_R_G_T_D: torch.Tensor,
    values_R_G_T_D: torch.Tensor,
    bias: torch.Tensor,
) -> torch.Tensor:
    """Attention by two matrix products with a softmax in between, shape (R, H, C, D).

    Shapes and ``bias`` are those of :func:`attention`.
    """
    rows, heads, count, size = queries_R_H_C_D.shape
    # Query heads of one key-value head are rows of the same product, so keys and values are read once.
    groups, columns = keys_R_G_T_D.shape[1:3]
    grouped = (queries_R_H_C_D * size**-0.5).reshape(rows, groups, -1, size)
    scores = torch.matmul(grouped, keys_R_G_T_D.transpose(2, 3)).view(rows, heads, count, columns)
    scores += bias[:, None].to(scores.dtype)
    weights = scores.softmax(-1).view(rows, groups, -1, columns)
    return torch.matmul(weights, values_R_G_T_D).view(queries_R_H_C_D.shape)


def torch_kernel(
    queries_R_H_C_D: torch.Tensor,
    keys_R_G_T_D: torch.Tensor,
    values_R_G_T_D: torch.Tensor,
    bias: torch.Tensor,
) -> torch.Tensor:
    """Attention by torch's kernel, shape (R, H, C, D).

    Shapes and ``bias`` are those of :func:`attention`.
    """
    # GPU kernels that take a mask have no key-value groups (``enable_gqa`` would fall back to plain
    # operations). With one query a row the heads of a group become more queries of one head; with several,
    # keys and values are repeated.
    rows, heads, count, size = queries_R_H_C_D.shape
    queries = queries_R_H_C_D
    keys = keys_R_G_T_D
    values = values_R_G_T_D
    mask = bias.to(queries.dtype).expand(rows, count, -1)[:, None]
    if count == 1:
        queries = queries.reshape(rows, keys.shape[1], -1, size)
    else:
        repeats = heads // keys.shape[1]
        keys = keys.repeat_interleave(repeats, dim=1)
        values = values.repeat_interleave(repeats, dim=1)
    attended = functional.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
    return attended.reshape(queries_R_H_C_D.shape)


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
    queries, keys, values = (
        projected(projection, normed).view(len(normed), -1, module.head_dim)
        for projection in (module.q_proj, module.k_proj, module.v_proj)
    )
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
    hidden = hidden + projected(module.o_proj, attended)

    # SwiGLU.
    normed = _normed(layer.post_attention_layernorm, hidden)
    gated = functional.silu(projected(layer.mlp.gate_proj, normed)) * projected(layer.mlp.up_proj, normed)
    return hidden + projected(layer.mlp.down_proj, gated)


def _normed(norm: Any, hidden: torch.Tensor) -> torch.Tensor:
    """RMSNorm with the weights of a module."""
    return functional.rms_norm(hidden, (hidden.shape[-1],), norm.weight, norm.variance_epsilon)
