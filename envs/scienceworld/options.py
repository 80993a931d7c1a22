"""The settings of ScienceWorld."""

from __future__ import annotations

from typing import Literal

from r3l.envs.tagged_text.options import TaggedOptions

from r3l.core.option import option


class ScienceWorldOptions(TaggedOptions):
    """Settings of the environment.

    ``reward``: ``score`` is the final score / 100, a failure (-100) counting 0. ``max_delta_released`` is the
    largest increase of a single step / 100, as the released code has it by mistake (audit B-9); the look around with
    which an episode starts is no step.
    ``step_limit``: looking and impossible actions take no time, ``wait`` takes 11.
    """

    reward: Literal["score", "max_delta_released"] = option(
        "score", "what an episode is worth (B-9)", "the simulator's final score"
    )
    step_limit: int = option(
        30, "the simulator's time, which is not actions", "released code: envStepLimit=30 (audit 3.4)", ge=1
    )
