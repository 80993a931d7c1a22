"""The settings of ScienceWorld's engine."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from r3l.envs.base.options import Options


class ScienceWorldOptions(Options):
    """Settings of the environment.

    ``reward``: ``score`` is the final score / 100, a failure (-100) counting 0. ``max_delta_released`` is the
    largest increase of a single step / 100, as the released code has it by mistake (audit B-9).
    ``step_limit`` counts the simulator's time, not actions: looking and impossible actions take none, ``wait`` 11.
    """

    reward: Literal["score", "max_delta_released"] = "score"
    step_limit: int = Field(default=30, ge=1, description="released code: envStepLimit=30 (audit 3.4)")
