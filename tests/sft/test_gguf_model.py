"""GGUF files become models in Hugging Face layout; unknown and damaged ones are refused."""

import random

import numpy as np
import pytest
import torch
from gguf_files import write_gguf

from r3l.core.errors import DataError
from r3l.local.checkpoint import load_model
from r3l.sft.gguf_model import convert


@pytest.mark.parametrize(("kind", "split"), [("qwen2", "qwen2"), ("llama", "smollm")])
def test_a_gguf_file_becomes_a_model(tmp_path, kind, split):
    expected = write_gguf(tmp_path / "a.gguf", kind, split)
    parameters = convert(tmp_path / "a.gguf", tmp_path / "model", "tiny")
    model, tokenizer = load_model(str(tmp_path / "model"), torch.device("cpu"))
    state = {name: weights.detach().numpy() for name, weights in model.named_parameters()}
    assert parameters == sum(weights.size for weights in expected.values())
    assert state.keys() == expected.keys() and all(
        np.array_equal(state[name], expected[name]) for name in expected
    )
    assert (model.config.rope_parameters["rope_theta"], model.config.num_key_value_heads) == (1e6, 2)
    assert (model.config.model_type, model.generation_config.eos_token_id) == (kind, 6)
    assert tokenizer.encode("ab12 <|end|>") == [5, 2, 3, 4, 6] and len(tokenizer) == 7
    assert tokenizer.apply_chat_template([{"role": "user", "content": "ab"}], tokenize=False) == "ab<|end|>"


def test_another_tokenizer_is_refused(tmp_path):
    write_gguf(tmp_path / "a.gguf", "qwen2", "tekken")
    with pytest.raises(DataError, match="architecture 'qwen2' with tokenizer 'tekken' is not known"):
        convert(tmp_path / "a.gguf", tmp_path / "model", "tiny")


def test_a_damaged_gguf_file_is_refused_in_one_sentence(tmp_path):
    """Cut off anywhere, with bytes of its header or its tensors' places changed, or of other sizes than it
    says."""
    write_gguf(tmp_path / "a.gguf", "qwen2", "qwen2")
    intact = (tmp_path / "a.gguf").read_bytes()
    draw = random.Random(0)
    contents = [b"", b"GGUF", *(intact[: len(intact) * k // 8] for k in range(1, 8))]
    for _ in range(40):
        k = draw.randrange(4, 2000)
        contents.append(intact[:k] + draw.randbytes(4) + intact[k + 4 :])
    block_count = intact.index(b"qwen2.block_count") + len("qwen2.block_count") + 4
    contents.append(intact[:block_count] + (3).to_bytes(4, "little") + intact[block_count + 4 :])
    refused = 0
    for content in contents:
        (tmp_path / "b.gguf").write_bytes(content)
        try:
            convert(tmp_path / "b.gguf", tmp_path / "model", "tiny")
        except DataError as error:
            refused, last = refused + 1, str(error)
            assert "b.gguf" in last
    assert refused >= 12 and "3 layers, its tensors are of 2" in last
