"""The settings that all single-answer problems have."""

from __future__ import annotations

from typing import Literal

from r3l.envs.base.options import Options

from r3l.core.option import option


class AnswerOptions(Options):
    """Settings of the environment."""

    attempts: int = option(1, "answers before the episode ends", "our choice: one (released code: 3, B-26)", ge=1)
    turns: Literal["segments", "whole"] = option(
        "segments", "what a pivot can point at: a line of a response, or all of it", "our choice (released code: whole)"
    )
    format_penalty: float = option(0.0, "lost by a response without an answer", "our choice: none (RLTF: 0.1)", ge=0)
