"""How mathematics talks: the problem, and for real models how to answer."""

from __future__ import annotations

from r3l.envs.math.arithmetic import first_wrong_line
from r3l.envs.math.options import MathOptions
from r3l.envs.single_answer.dialogue import AnswerDialogue, Subject

from r3l.core.environment import Style

SYSTEM = (
    "Solve the problem. Reason step by step, one step a line, between <think> and </think>. "
    "Then give the final answer alone, as \\boxed{answer}, between <answer> and </answer>."
)
SUBJECT = Subject("mathematics", SYSTEM, first_wrong_line)


def create(style: Style, max_turns: int, options: MathOptions) -> AnswerDialogue:
    """The text side under ``options``."""
    if style == "released":
        from r3l.envs.math.released_dialogue import ReleasedMathDialogue

        return ReleasedMathDialogue(SUBJECT, style, max_turns, options)
    return AnswerDialogue(SUBJECT, style, max_turns, options)
