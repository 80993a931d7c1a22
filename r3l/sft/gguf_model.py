"""Conversion of a GGUF file to a folder in Hugging Face layout: float32 weights, configuration, tokenizer.

The package gguf reads the file through a memory map and dequantises tensor by tensor. transformers reads
GGUF too, but it reads the header three times, which takes minutes at 150,000 tokens, and pre-tokenises the
text of some models differently from their training.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE

from r3l.core.errors import DataError, R3LError
from r3l.files.requirements import require
from r3l.processes.progress import tracked

WEIGHTS = "model.safetensors"
# Types of a token: gguf.TokenType
CONTROL = 3
USER_DEFINED = 4
UNUSED = 5
Field = Callable[[str], Any]  # value of a header field by its name, or None

# GGUF's names of a decoder's weights, and transformers' names. Source: gguf's own tables (gguf.TENSOR_NAMES).
OUTSIDE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}
LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
SPECIAL = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}  # transformers' name: GGUF's name
EMBEDDINGS = "token_embd.weight"
OUTPUT = "output.weight"


def _smollm() -> tuple[Any, Any]:
    digits = pre_tokenizers.Digits(individual_digits=True)
    return None, pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])


def _qwen2() -> tuple[Any, Any]:
    from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

    words = pre_tokenizers.Split(Regex(PRETOKENIZE_REGEX), behavior="isolated")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return normalizers.NFC(), pre_tokenizers.Sequence([words, byte_level])


# (normaliser, pre-tokeniser) by the file's ``tokenizer.ggml.pre``.
# Source: llama.cpp, llama-vocab.cpp (its regular expressions for that name).
SPLITS = {"smollm": _smollm, "qwen2": _qwen2}


def convert(path: Path, out: Path, label: str) -> int:
    """Write the model in the GGUF file ``path`` to folder ``out``; returns its number of parameters.

    ``label``: name for the progress bar. Raises ConfigError without the extra ``smol``, DataError for an
    unknown architecture or tokenizer, and for a file whose header, tensors or vocabulary do not fit together.
    """
    require("smol", f"reading {path.name}")
    try:
        return _convert(path, out, label)
    except R3LError:
        raise
    except Exception as error:
        # gguf, numpy and tokenizers check nothing in advance, and tokenizers raises a bare Exception.
        if isinstance(error, OSError) and error.filename is not None:  # the folder ``out``
            raise
        raise DataError(
            f"{path} is damaged, or not a GGUF file that r3l can read ({type(error).__name__}: "
            f"{' '.join(str(error).split())[:200]}); delete it and get it again"
        ) from error


def _convert(path: Path, out: Path, label: str) -> int:
    """See :func:`convert`. Raises the libraries' errors for a damaged file."""
    from gguf import GGUFReader
    from transformers import GenerationConfig

    reader = GGUFReader(path)

    def field(name: str) -> Any:
        return reader.fields[name].contents() if name in reader.fields else None

    kind = field("general.architecture")
    split = field("tokenizer.ggml.pre")
    if kind not in ("llama", "qwen2") or split not in SPLITS:
        raise DataError(
            f"{path}: architecture {kind!r} with tokenizer {split!r} is not known; add the pair to "
            f"{__name__} to read it"
        )
    config = _config(kind, field)
    tensors = {tensor.name: tensor for tensor in reader.tensors}

    # Input and output embeddings are one matrix in these models. A file may hold two copies of it in
    # different numbers of bits; output.weight is the one with more bits, and serves as both.
    tensors[EMBEDDINGS] = tensors.pop(OUTPUT, tensors[EMBEDDINGS])

    # Names: ``blk.3.attn_q.bias`` -> ``model.layers.3.self_attn.q_proj.bias``.
    state: dict[str, np.ndarray] = {}
    for name, tensor in tracked(tensors.items(), f"{label}: tensors"):
        *block, part, suffix = name.split(".")
        target = f"model.layers.{block[1]}.{LAYER[part]}" if block else OUTSIDE[part]
        state[f"{target}.{suffix}"] = _weights(part, tensor, config)
    # A header that does not fit the tensors would only be found when the model is loaded.
    blocks = {name.split(".")[2] for name in state if name.startswith("model.layers.")}
    if blocks != {str(k) for k in range(config.num_hidden_layers)}:
        raise ValueError(
            f"its header has {config.num_hidden_layers} layers, its tensors are of {len(blocks)}"
        )
    embeddings = state["model.embed_tokens.weight"].shape
    if embeddings != (config.vocab_size, config.hidden_size):
        raise ValueError(f"its embeddings are {embeddings}, its header says {config.vocab_size} tokens")
    config.save_pretrained(out)
    _tokenizer(field, *SPLITS[split]()).save_pretrained(out)
    GenerationConfig.from_model_config(config).save_pretrained(out)
    save_file(state, out / WEIGHTS, metadata={"format": "pt"})
    return sum(weights.size for weights in state.values())


def _config(kind: str, field: Field) -> Any:
    """transformers' configuration of architecture ``kind`` (llama, qwen2), from the fields of the header."""
    from transformers import AutoConfig
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    special = {f"{name}_token_id": field(f"tokenizer.ggml.{key}_token_id") for name, key in SPECIAL.items()}
    return AutoConfig.for_model(
        kind,
        architectures=[MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[kind]],
        dtype="float32",
        vocab_size=len(field("tokenizer.ggml.tokens")),
        hidden_size=field(f"{kind}.embedding_length"),
        intermediate_size=field(f"{kind}.feed_forward_length"),
        num_hidden_layers=field(f"{kind}.block_count"),
        num_attention_heads=field(f"{kind}.attention.head_count"),
        num_key_value_heads=field(f"{kind}.attention.head_count_kv"),
        rms_norm_eps=field(f"{kind}.attention.layer_norm_rms_epsilon"),
        rope_theta=field(f"{kind}.rope.freq_base"),
        max_position_embeddings=field(f"{kind}.context_length"),
        tie_word_embeddings=True,
        **{name: token for name, token in special.items() if token is not None},
    )


def _weights(part: str, tensor: Any, config: Any) -> np.ndarray:
    """A tensor in float32, in the layout of transformers. ``part``: its name in LAYER or OUTSIDE."""
    from gguf import dequantize

    weights: np.ndarray = np.array(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)

    # GGUF interleaves the two halves of each head's rotary embedding in Llama's queries and keys.
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}.get(part)
    if config.model_type != "llama" or heads is None:
        return weights
    halves = weights.reshape(heads, -1, 2, *weights.shape[1:]).swapaxes(1, 2)
    return np.ascontiguousarray(halves.reshape(weights.shape))


def _tokenizer(field: Field, normalizer: Any, split: Any) -> Any:
    """Byte-level BPE tokenizer.

    Unused entries, which pad the vocabulary to the model's width, are left out.
    """
    from transformers import PreTrainedTokenizerFast

    # Vocabulary and merges, then tokens that are never split: control tokens, and the user's own.
    tokens = field("tokenizer.ggml.tokens")
    kinds = field("tokenizer.ggml.token_type")
    merges = [tuple(merge.split(" ")) for merge in field("tokenizer.ggml.merges")]
    used = [(i, token) for i, (token, kind) in enumerate(zip(tokens, kinds, strict=True)) if kind != UNUSED]
    vocabulary = {token: i for i, token in used}
    core = Tokenizer(BPE(vocabulary, merges))
    core.normalizer = normalizer
    core.pre_tokenizer = split
    core.decoder = decoders.ByteLevel()
    for token, kind in zip(tokens, kinds, strict=True):
        if kind in (CONTROL, USER_DEFINED):
            core.add_tokens([AddedToken(token, special=kind == CONTROL, normalized=False)])
    # Their roles, by which transformers finds end, padding and so on.
    ids = {name: field(f"tokenizer.ggml.{key}_token_id") for name, key in SPECIAL.items()}
    special = {f"{name}_token": tokens[i] for name, i in ids.items() if i is not None}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, **special)  # type: ignore[no-untyped-call]
    tokenizer.chat_template = field("tokenizer.chat_template")
    return tokenizer
