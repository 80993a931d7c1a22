"""Small models of random weights in GGUF files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from r3l.sft.gguf_model import LAYER, OUTSIDE

TOKENS = ["a", "b", "1", "2", "Ġ", "ab", "<|end|>", "[PAD7]"]
SIZES = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


def write_gguf(path: Path, kind: str, split: str) -> dict[str, np.ndarray]:
    """A small model of random weights, laid out as llama.cpp's converter does; what de-quantising must
    give."""
    from gguf import GGMLQuantizationType as Bits
    from gguf import GGUFWriter, quants
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(kind, vocab_size=len(TOKENS), tie_word_embeddings=True, **SIZES)
    writer = GGUFWriter(path, kind)
    for key, value in (
        ("block_count", 2),
        ("context_length", 128),
        ("embedding_length", 64),
        ("head_count", 4),
    ):
        getattr(writer, f"add_{key}")(value)
    writer.add_feed_forward_length(96)
    writer.add_head_count_kv(2)
    writer.add_rope_freq_base(1e6)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(split)
    writer.add_token_list(TOKENS)
    writer.add_token_types([1] * 6 + [3, 5])
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(6)
    writer.add_chat_template("{{ messages[0]['content'] }}<|end|>")
    theirs = {name: gguf for gguf, name in (OUTSIDE | LAYER).items()}
    expected = {}
    for name, parameter in AutoModelForCausalLM.from_config(config).named_parameters():
        weights = parameter.detach().numpy() + np.float32(0.1)  # norms and biases are not all 1 or 0 then
        stem, suffix = name.rsplit(".", 1)
        *_, layer, short = ["", stem] if "layers" not in stem else ["", *stem.split(".", 3)[2:]]
        target = f"blk.{layer}.{theirs[short]}.{suffix}" if layer else f"{theirs[short]}.{suffix}"
        heads = {"self_attn.q_proj": 4, "self_attn.k_proj": 2}.get(short) if kind == "llama" else None
        if weights.ndim == 1:
            expected[name] = weights
            writer.add_tensor(target, weights)
            continue
        packed = quants.quantize(weights, Bits.Q8_0)
        expected[name] = quants.dequantize(packed, Bits.Q8_0)
        if heads:  # rows of a head: first halves and second halves in turn (convert_hf_to_gguf.py, permute)
            packed = packed.reshape(heads, 2, -1, packed.shape[-1]).swapaxes(1, 2).reshape(packed.shape)
        if target == "token_embd.weight":
            writer.add_tensor(target, quants.quantize(weights, Bits.Q4_0), raw_dtype=Bits.Q4_0)
            target = "output.weight"  # the copy with more bits
        writer.add_tensor(target, packed, raw_dtype=Bits.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return expected
