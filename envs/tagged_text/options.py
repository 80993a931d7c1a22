"""The settings that environments with tagged responses share."""

from __future__ import annotations

from typing import Literal

from r3l.envs.base.options import Options

from r3l.core.option import option

ResponseFormat = Literal["strict", "released"]


class TaggedOptions(Options):
    """Settings of the environment. ``response_format``: see the readers of its ``dialogue`` module."""

    response_format: ResponseFormat = option(
        "strict", "which responses hold an action (B-42)", "our choice: one reading in training and evaluation"
    )
