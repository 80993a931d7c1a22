"""A GGUF file as a float32 model of transformers and its tokenizer.

transformers de-quantises the weights. What it does not carry over is how text is cut before byte-pair merges: the
file names that in ``tokenizer.ggml.pre``, and without it digits after two blanks get other tokens than in training.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import pre_tokenizers

from r3l.core.errors import ConfigError, DataError

# By the file's ``tokenizer.ggml.pre``. Source: llama.cpp, llama-vocab.cpp (its regular expressions for that name).
_SPLITS = {
    "smollm": lambda: pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
}


def load_gguf(path: Path) -> tuple[Any, Any]:
    """(model, tokenizer), float32.

    Raises ConfigError without the extra ``smol``, DataError for an unknown splitting.
    """
    try:
        import accelerate  # noqa: F401 - transformers asks for it
        from gguf import GGUFReader
    except ModuleNotFoundError as error:
        raise ConfigError(f"reading {path.name} needs the package {error.name}: pip install '.[smol]'") from error
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    fields = GGUFReader(path).fields
    split = str(fields["tokenizer.ggml.pre"].contents())
    if split not in _SPLITS:
        raise DataError(f"{path}: tokenizer.ggml.pre is {split!r}; known: {', '.join(_SPLITS)}: add it to {__name__}")
    where = {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}
    tokenizer = AutoTokenizer.from_pretrained(**where)
    tokenizer.backend_tokenizer.pre_tokenizer = _SPLITS[split]()
    dense = GgufConfig(dequantize=True)
    model = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32, quantization_config=dense)
    return model, tokenizer
