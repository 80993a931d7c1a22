"""How mathematics talks: the problem, and for real models how to answer."""

from __future__ import annotations

from envs.answers import AnswerDialogue, AnswerOptions
from envs.math.arithmetic import critic

SYSTEM = (
    "Solve the problem. Reason step by step, one step a line, between <think> and </think>. "
    "Then give the final answer alone, as \\boxed{answer}, between <answer> and </answer>."
)


def create(style: str, max_turns: int, options: AnswerOptions) -> AnswerDialogue:
    """The text side; found by ``envs.package``."""
    return AnswerDialogue("mathematics", SYSTEM, style, max_turns, options, critic)
