"""The settings of puzzles."""

from __future__ import annotations

from typing import Literal

from r3l.envs.single_answer.options import AnswerOptions

from r3l.core.option import option


class PuzzleOptions(AnswerOptions):
    """``verifier``: ours, strict, or the released one with its defects (r3l.envs.puzzles.released)."""

    verifier: Literal["ours", "released"] = option(
        "ours", "what grades an answer", "our choice: the released one has defects (docs/puzzles.md)"
    )
