"""The settings of mathematics."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from r3l.envs.single_answer.options import AnswerOptions


class MathOptions(AnswerOptions):
    """``extraction``: which rule reads the answer in a response (``r3l.envs.single_answer.extraction``).

    ``grader``: ours, or ``released``, whose defects are in ``r3l.envs.math.released``.
    """

    extraction: Literal["strict", "flexible"] = Field(default="strict", description="how the answer is read")
    grader: Literal["ours", "released"] = Field(default="ours", description="who compares it with the gold one")
