"""The settings of mathematics."""

from __future__ import annotations

from typing import Literal

from r3l.envs.single_answer.options import AnswerOptions

from r3l.core.option import option

Extraction = Literal["strict", "flexible", "released"]


class MathOptions(AnswerOptions):
    """``extraction``: which rule reads the answer in a response (``r3l.envs.single_answer.extraction``).

    ``released``, of both: ``r3l.envs.math.released``, defects included.
    """

    extraction: Extraction = option(
        "strict", "how the answer is read", "our choice: one rule in training and evaluation"
    )
    grader: Literal["ours", "released"] = option(
        "ours", "who compares it with the gold one", "our choice: the released one rejects right answers (docs/math.md)"
    )
