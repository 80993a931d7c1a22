"""How mathematics talks: the problem, and for real models how to answer."""

from __future__ import annotations

from r3l.envs.math.arithmetic import critic
from r3l.envs.single_answer.engine import AnswerDialogue, AnswerOptions

SYSTEM = (
    "Solve the problem. Reason step by step, one step a line, between <think> and </think>. "
    "Then give the final answer alone, as \\boxed{answer}, between <answer> and </answer>."
)


def create(style: str, max_turns: int, options: AnswerOptions) -> AnswerDialogue:
    """The text side under ``options``."""
    return AnswerDialogue("mathematics", SYSTEM, style, max_turns, options, critic)
