"""Prompt templates of methods; environments have theirs in their own folders."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from string import Template

PROMPTS = Path(__file__).parent / "prompts"


@cache
def template(name: str) -> Template:
    """The text of ``r3l/feedback/prompts/<name>.txt`` as a Template with ``$name`` placeholders; cached.

    Blanks at both ends are removed. Raises FileNotFoundError for an unknown name.
    """
    return Template((PROMPTS / f"{name}.txt").read_text(encoding="utf-8").strip())
