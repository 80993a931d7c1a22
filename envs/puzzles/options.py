"""The settings of puzzles."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from r3l.envs.single_answer.options import AnswerOptions


class PuzzleOptions(AnswerOptions):
    """``verifier``: ours, strict, or RLTF's released one with its defects (docs/puzzles.md)."""

    verifier: Literal["ours", "released"] = Field(default="ours", description="what grades an answer")
