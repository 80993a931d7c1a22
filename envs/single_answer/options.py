"""The settings that all single-answer problems have."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from r3l.envs.base.options import Options


class AnswerOptions(Options):
    """Settings of the environment."""

    attempts: int = Field(default=1, ge=1, description="answers before the episode ends (released code: 3)")
    turns: Literal["segments", "whole"] = Field(default="segments", description="what a pivot can point at")
    format_penalty: float = Field(default=0.0, ge=0, description="lost by a response without an answer (RLTF: 0.1)")
