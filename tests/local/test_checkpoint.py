"""Loading models: a tokenizer must read text as it did when its model was built."""

import pytest
import torch
from tokenizers import Tokenizer

from r3l.core.paths import STORED_MODELS
from r3l.local.checkpoint import load_model
from r3l.sft.nano_model import build_model, build_tokenizer

TEXTS = ["pick b0992 for $29.04", "go to drawer 12", "<think>find mug</think><action>click[b0992]</action>"]


def test_a_saved_tokenizer_reads_as_it_did_before_it_was_saved(tmp_path):
    """transformers 5 loads a Qwen2 model's tokenizer with Qwen2's own word splitting, whatever the file says."""
    corpus = [f"item b{k:04d} costs ${k % 90}.{k % 100:02d}" for k in range(2000)]
    tokenizer = build_tokenizer(corpus)
    build_model(tokenizer, 0).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    _, loaded = load_model(str(tmp_path), torch.device("cpu"))
    for text in (*TEXTS, *corpus[:50]):
        assert loaded.encode(text, add_special_tokens=False) == tokenizer.encode(text, add_special_tokens=False)


@pytest.mark.parametrize("name", sorted(path.name for path in STORED_MODELS.iterdir()))
def test_stored_tokenizers_read_as_their_files_say(name):
    _, loaded = load_model(name, torch.device("cpu"))
    written = Tokenizer.from_file(str(STORED_MODELS / name / "tokenizer.json"))
    for text in TEXTS:
        assert loaded.encode(text, add_special_tokens=False) == written.encode(text, add_special_tokens=False).ids
