"""What WebShop needs beside its packages: the language model that its rewards were pinned to."""

from __future__ import annotations

from r3l.core.check import Check, guarded
from r3l.envs.webshop.nouns import MODEL, VERSION, model_version, nouns


def checks() -> list[Check]:
    """The language model: its version, and that it loads."""
    return [guarded("language model (WebShop)", _model, f"pip install {MODEL}=={VERSION}")]


def _model() -> str:
    return f"{model_version()}; the nouns of 'red cotton shirt': {', '.join(nouns('red cotton shirt'))}"
