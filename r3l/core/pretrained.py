"""All calls of transformers' ``from_pretrained``, which here never runs code from a model's folder.

By default transformers asks on the terminal whether to run such code, and does so when answered with ``y``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from huggingface_hub.errors import StrictDataclassError
from transformers import AutoTokenizer, PreTrainedTokenizerFast

# Exceptions that transformers raises for a folder that is damaged, inconsistent or of an unknown kind.
UNLOADABLE = (
    *(OSError, ValueError, LookupError, AttributeError, TypeError, RuntimeError, AssertionError, ImportError),
    StrictDataclassError,
)


def pretrained(kind: Any, where: str | Path, **options: Any) -> Any:
    """Load the model, tokenizer or config at ``where`` by ``kind.from_pretrained``; ``options`` are its own.

    Raises ValueError for a model with its own code (never run) and for an unreadable tokenizer.json;
    another model that cannot be loaded raises one of UNLOADABLE, this module's tuple of exceptions.
    """
    try:
        return kind.from_pretrained(where, trust_remote_code=False, **options)
    except ValueError as error:
        if "trust_remote_code" not in str(error):
            raise
        raise ValueError(
            "it has its own Python code (auto_map), which r3l never runs; use a model of an architecture "
            "that transformers knows. If this is one, delete auto_map from its config.json and "
            "tokenizer_config.json"
        ) from error
    except Exception as error:
        if type(error) is not Exception:
            raise
        raise ValueError(f"tokenizer.json: {error}") from error  # tokenizers has no error class


def load_tokenizer(where: str) -> Any:
    """Load the tokenizer of the model in folder ``where`` (or a hub id).

    If tokenizer_config.json names the class PreTrainedTokenizerFast or TokenizersBackend, as in this
    project's own models, the tokenizer is exactly what its file defines; otherwise AutoTokenizer loads it.
    (For some architectures, such as Qwen2, AutoTokenizer of transformers 5 replaces the word splitting in the
    file by its own, which would split the numbers of our models.) Raises ValueError if tokenizer_config.json
    is not a JSON object, and what :func:`pretrained` raises.
    """
    path = Path(where) / "tokenizer_config.json"
    config = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    if not isinstance(config, dict):
        raise ValueError(f"{path} is not a JSON object")
    own = config.get("tokenizer_class") in ("TokenizersBackend", "PreTrainedTokenizerFast")
    return pretrained(PreTrainedTokenizerFast if own else AutoTokenizer, where)
