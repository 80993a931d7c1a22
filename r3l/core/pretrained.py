"""The one door to transformers' ``from_pretrained``: code that lies in a model's folder never runs.

Asked for nothing, transformers asks on the terminal whether to run it; answered with ``y`` it does.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from huggingface_hub.errors import StrictDataclassError
from transformers import AutoTokenizer, PreTrainedTokenizerFast

# What transformers raises at a folder that is damaged, contradicts itself or names what it does not know.
UNLOADABLE = (
    *(OSError, ValueError, LookupError, AttributeError, TypeError, RuntimeError, AssertionError, ImportError),
    StrictDataclassError,
)


def pretrained(kind: Any, where: str | Path, **options: Any) -> Any:
    """``kind.from_pretrained(where)``. Raises ValueError where the model needs code of its own, and UNLOADABLE."""
    try:
        return kind.from_pretrained(where, trust_remote_code=False, **options)
    except ValueError as error:
        if "trust_remote_code" not in str(error):
            raise
        raise ValueError(
            "it has Python code of its own (auto_map), which r3l never runs; use a model of an architecture that "
            "transformers knows, or delete auto_map from its config.json and tokenizer_config.json where it is one"
        ) from error


def load_tokenizer(where: str) -> Any:
    """The tokenizer as its file has it.

    For some architectures (Qwen2 is one) AutoTokenizer of transformers 5 puts its own word splitting in place of the
    file's, which is right for models of the hub but not for one with a tokenizer of its own: numbers fell apart.
    """
    path = Path(where) / "tokenizer_config.json"
    config = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    if not isinstance(config, dict):
        raise ValueError(f"{path} is not a JSON object")
    own = config.get("tokenizer_class") in ("TokenizersBackend", "PreTrainedTokenizerFast")
    return pretrained(PreTrainedTokenizerFast if own else AutoTokenizer, where)
