"""Prompt texts of the method itself (environments keep theirs beside their code)."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from string import Template

FOLDER = Path(__file__).parent / "prompts"


@cache
def template(name: str) -> Template:
    """The text ``r3l/core/prompts/<name>.txt`` with ``$name`` placeholders."""
    return Template((FOLDER / f"{name}.txt").read_text(encoding="utf-8").strip())
