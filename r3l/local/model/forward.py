"""The packed forward pass of Llama-like models: the tokens of all rows side by side, padded in attention alone.

transformers pads every row to the longest, makes masks and positions again in every layer, repeats keys for each query
head, and computes the last layer of tokens that nobody reads. A model of a million parameters mostly waits for that: a
step of training takes 1.5 to 3.2 times as long by its pass, of which 1.0 to 1.7 times are saved by
r3l.local.kernels.cpu_kernel_decoder on a CPU (results/notebook). So these layers are written out here, on weights of
transformers' modules or of r3l.local.model.weights.
In float64 the two passes agree to 1e-10, values and gradients (tests/local/model/test_forward.py); in float32 they
differ by rounding, about 1e-6 in a log-prob. Whatever another architecture needs is computed by transformers:
the reference.
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

# RMSNorm, rotary positions, grouped queries and SwiGLU, with or without biases and norms of queries and keys.
FAMILY = ("llama", "qwen2", "qwen3")

DIMENSIONS = 8  # of a head that one loop of r3l.local.kernels.cpu_attention takes: head sizes must be multiples
THREADS = 2  # the kernels compute with one, in about half of the seconds of torch's products with one

# Of a layer: its index, queries (N, H, D), keys and values (N, 2, G, D) -> (N, H * D). G key-value heads.
Attend = Callable[[int, torch.Tensor, torch.Tensor], torch.Tensor]

# Keys and values of one dialog: shape (L, 2, G, T, D), L layers, G key-value heads of size D, T tokens.
DialogCache = torch.Tensor


def cache_shape(config: Any, rows: int, columns: int) -> tuple[int, int, int, int, int, int]:
    """Shape of the caches of ``rows`` dialogs of ``columns`` tokens: (L, 2, R, G, T, D)."""
    return config.num_hidden_layers, 2, rows, config.num_key_value_heads, columns, head_size(config)


def head_size(config: Any) -> int:
    """Numbers in a key or value of one head."""
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def pass_of(model: Any, wanted: Pass) -> Pass:
    """The pass that computes ``model`` where ``wanted`` is asked for: that of transformers where ours cannot."""
    return wanted if is_of_family(model.config) else "transformers"


def is_of_family(config: Any) -> bool:
    """Whether models of this configuration need nothing that the pass below does not compute."""
    if config.model_type not in FAMILY or config.hidden_act != "silu" or config.attention_dropout:
        return False
    return set(getattr(config, "layer_types", None) or ["full_attention"]) == {"full_attention"}


def has_machine_code(model: Any) -> bool:
    """Whether our kernels compute the attention of ``model``, one of the family: float32 on a CPU, in heads of
    whole vectors, by few threads, with numba (environments of other projects' pins have none)."""
    if model.device.type != "cpu" or model.dtype != torch.float32 or head_size(model.config) % DIMENSIONS:
        return False
    return torch.get_num_threads() <= THREADS and importlib.util.find_spec("numba") is not None


def hidden_states(
    model: Any, ids_N: torch.Tensor, positions_N: torch.Tensor, attend: Attend, wanted_W: torch.Tensor | None = None
) -> torch.Tensor:
    """What the vocabulary projection reads of the tokens ``wanted_W`` (indices; None: of all), shape (W, hidden)."""
    decoder = model.model
    # As with transformers, the padding token's embedding gets no gradient.
    hidden = functional.embedding(ids_N, decoder.embed_tokens.weight, model.config.pad_token_id)
    rotation = _rotation(decoder, hidden, positions_N)
    for index, layer in enumerate(decoder.layers):
        wanted = wanted_W if index == len(decoder.layers) - 1 else None
        if layer.gradient_checkpointing and layer.training:
            hidden = checkpoint(_layer, layer, index, hidden, rotation, attend, wanted, use_reentrant=False)
        else:
            hidden = _layer(layer, index, hidden, rotation, attend, wanted)
    return _normed(decoder.norm, hidden)


def attention(
    queries_R_C_H_D: torch.Tensor, keys_R_G_T_D: torch.Tensor, values_R_G_T_D: torch.Tensor, bias: torch.Tensor
) -> torch.Tensor:
    """Attention of C queries a row over T columns, shape (R, C, H * D). ``bias``, -inf where a query sees nothing:
    broadcast to (R, C, T).

    On a CPU as two products: torch's own kernel took 1.1 to 1.3 times as long (results/notebook).
    """
    compute = two_products if queries_R_C_H_D.device.type == "cpu" else torch_kernel
    return compute(queries_R_C_H_D.transpose(1, 2), keys_R_G_T_D, values_R_G_T_D, bias).transpose(1, 2).flatten(2)


def two_products(
    queries_R_H_C_D: torch.Tensor, keys_R_G_T_D: torch.Tensor, values_R_G_T_D: torch.Tensor, bias: torch.Tensor
) -> torch.Tensor:
    """Shape (R, H, C, D). The query heads of a key-value head are further rows of one product: it is read once."""
    rows, heads, count, size = queries_R_H_C_D.shape
    groups, columns = keys_R_G_T_D.shape[1:3]
    grouped = (queries_R_H_C_D * size**-0.5).reshape(rows, groups, -1, size)
    scores = torch.matmul(grouped, keys_R_G_T_D.transpose(2, 3)).view(rows, heads, count, columns)
    scores += bias[:, None].to(scores.dtype)
    return torch.matmul(scores.softmax(-1).view(rows, groups, -1, columns), values_R_G_T_D).view(queries_R_H_C_D.shape)


def torch_kernel(
    queries_R_H_C_D: torch.Tensor, keys_R_G_T_D: torch.Tensor, values_R_G_T_D: torch.Tensor, bias: torch.Tensor
) -> torch.Tensor:
    """The same by torch's kernel. On a GPU those that take a mask know no groups (its own, ``enable_gqa``, would fall
    back to plain operations): the heads of a group ask as further queries where there is one a row, else keys are
    repeated."""
    rows, heads, count, size = queries_R_H_C_D.shape
    queries, keys, values = queries_R_H_C_D, keys_R_G_T_D, values_R_G_T_D
    mask = bias.to(queries.dtype).expand(rows, count, -1)[:, None]
    if count == 1:
        queries = queries.reshape(rows, keys.shape[1], -1, size)
    else:
        keys, values = (states.repeat_interleave(heads // states.shape[1], dim=1) for states in (keys, values))
    return functional.scaled_dot_product_attention(queries, keys, values, attn_mask=mask).reshape(queries_R_H_C_D.shape)


def _layer(
    layer: Any,
    index: int,
    hidden: torch.Tensor,
    rotation: tuple[torch.Tensor, torch.Tensor],
    attend: Attend,
    wanted: torch.Tensor | None,
) -> torch.Tensor:
    attended = attend(index, *_projections(layer.self_attn, _normed(layer.input_layernorm, hidden), rotation))
    if wanted is not None:
        hidden, attended = hidden.index_select(0, wanted), attended.index_select(0, wanted)
    hidden = hidden + projected(layer.self_attn.o_proj, attended)
    normed = _normed(layer.post_attention_layernorm, hidden)
    gated = functional.silu(projected(layer.mlp.gate_proj, normed)) * projected(layer.mlp.up_proj, normed)
    return hidden + projected(layer.mlp.down_proj, gated)


def _projections(
    module: Any, hidden: torch.Tensor, rotation: tuple[torch.Tensor, torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Queries (N, H, D), turned to their positions, and keys with values (N, 2, G, D)."""
    queries, keys, values = (
        projected(projection, hidden).view(len(hidden), -1, module.head_dim)
        for projection in (module.q_proj, module.k_proj, module.v_proj)
    )
    if hasattr(module, "q_norm"):
        queries, keys = _normed(module.q_norm, queries), _normed(module.k_norm, keys)
    heads = queries.shape[1]
    turned = _turned(torch.cat([queries, keys], dim=1), rotation)
    return turned[:, :heads], torch.stack([turned[:, heads:], values], dim=1)


def _rotation(decoder: Any, hidden: torch.Tensor, positions_N: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    cos, sin = decoder.rotary_emb(hidden, positions_N[None])
    return cos[0][:, None], sin[0][:, None]


def _turned(heads: torch.Tensor, rotation: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Rotary positions (RoFormer, 2104.09864), the two halves of a head as transformers pairs them."""
    cos, sin = rotation
    first, second = heads.chunk(2, dim=-1)
    return heads * cos + torch.cat([-second, first], dim=-1) * sin


def _normed(norm: Any, hidden: torch.Tensor) -> torch.Tensor:
    return functional.rms_norm(hidden, (hidden.shape[-1],), norm.weight, norm.variance_epsilon)
