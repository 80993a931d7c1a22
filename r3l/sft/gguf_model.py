"""A GGUF file as a folder in Hugging Face layout: float32 weights, configuration, tokenizer.

The package gguf reads the file through a memory map and de-quantises tensor by tensor. transformers reads GGUF too, but
its header three times, which takes minutes at 150,000 tokens, and cuts the text of some models at other places than
they were trained with.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE

from r3l.core.errors import DataError
from r3l.files.requirements import require
from r3l.processes.progress import tracked

WEIGHTS = "model.safetensors"
CONTROL, USER_DEFINED, UNUSED = 3, 4, 5  # types of a token: gguf.TokenType
Field = Callable[[str], Any]

# transformers' names of a decoder's weights, by GGUF's. Source: gguf's own tables (gguf.TENSOR_NAMES).
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
SPECIAL = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}  # GGUF's names of tokens, by transformers'
EMBEDDINGS, OUTPUT = "token_embd.weight", "output.weight"


def _smollm() -> tuple[Any, Any]:
    digits = pre_tokenizers.Digits(individual_digits=True)
    return None, pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])


def _qwen2() -> tuple[Any, Any]:
    from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

    words = pre_tokenizers.Split(Regex(PRETOKENIZE_REGEX), behavior="isolated")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return normalizers.NFC(), pre_tokenizers.Sequence([words, byte_level])


# (normaliser, how text is cut before byte-pair merges) by the file's ``tokenizer.ggml.pre``.
# Source: llama.cpp, llama-vocab.cpp (its regular expressions for that name).
SPLITS = {"smollm": _smollm, "qwen2": _qwen2}


def convert(path: Path, out: Path, label: str) -> int:
    """Write the model in ``path`` to the folder ``out``; the number of its parameters.

    Input and output embeddings are one matrix, as these models were trained. A file that has two copies of it, in
    different numbers of bits, says so by ``output.weight``: that copy, which has more bits, serves as both.

    Raises ConfigError without the extra ``smol``, DataError for an architecture or tokenizer that is not known here.
    """
    require("smol", f"reading {path.name}")
    from gguf import GGUFReader
    from transformers import GenerationConfig

    reader = GGUFReader(path)

    def field(name: str) -> Any:
        return reader.fields[name].contents() if name in reader.fields else None

    kind, split = field("general.architecture"), field("tokenizer.ggml.pre")
    if kind not in ("llama", "qwen2") or split not in SPLITS:
        raise DataError(f"{path}: architecture {kind!r} with tokenizer {split!r} is not known: add it to {__name__}")
    config = _config(kind, field)
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    tensors[EMBEDDINGS] = tensors.pop(OUTPUT, tensors[EMBEDDINGS])
    state = {
        _name(name): _weights(name, tensor, config) for name, tensor in tracked(tensors.items(), f"{label}: tensors")
    }
    config.save_pretrained(out)
    _tokenizer(field, *SPLITS[split]()).save_pretrained(out)
    GenerationConfig.from_model_config(config).save_pretrained(out)
    save_file(state, out / WEIGHTS, metadata={"format": "pt"})
    return sum(weights.size for weights in state.values())


def _config(kind: str, field: Field) -> Any:
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


def _name(name: str) -> str:
    """``blk.3.attn_q.bias`` -> ``model.layers.3.self_attn.q_proj.bias``."""
    *place, tensor, suffix = name.split(".")
    return f"model.layers.{place[1]}.{LAYER[tensor]}.{suffix}" if place else f"{OUTSIDE[tensor]}.{suffix}"


def _weights(name: str, tensor: Any, config: Any) -> np.ndarray:
    """A tensor in float32. Llama's queries and keys lie in GGUF with the halves of each head's rotation interleaved."""
    from gguf import dequantize

    weights: np.ndarray = np.array(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}.get(name.split(".")[-2])
    if config.model_type != "llama" or heads is None:
        return weights
    halves = weights.reshape(heads, -1, 2, *weights.shape[1:]).swapaxes(1, 2)
    return np.ascontiguousarray(halves.reshape(weights.shape))


def _tokenizer(field: Field, normalizer: Any, split: Any) -> Any:
    """Byte-level BPE. Entries without use, which pad the vocabulary to the model's width, are left out."""
    from transformers import PreTrainedTokenizerFast

    tokens, kinds = field("tokenizer.ggml.tokens"), field("tokenizer.ggml.token_type")
    merges = [tuple(merge.split(" ")) for merge in field("tokenizer.ggml.merges")]
    vocabulary = {token: i for i, (token, kind) in enumerate(zip(tokens, kinds, strict=True)) if kind != UNUSED}
    core = Tokenizer(BPE(vocabulary, merges))
    core.normalizer, core.pre_tokenizer, core.decoder = normalizer, split, decoders.ByteLevel()
    for token, kind in zip(tokens, kinds, strict=True):
        if kind in (CONTROL, USER_DEFINED):
            core.add_tokens([AddedToken(token, special=kind == CONTROL, normalized=False)])
    ids = {name: field(f"tokenizer.ggml.{key}_token_id") for name, key in SPECIAL.items()}
    special = {f"{name}_token": tokens[i] for name, i in ids.items() if i is not None}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, **special)  # type: ignore[no-untyped-call]
    tokenizer.chat_template = field("tokenizer.chat_template")
    return tokenizer
