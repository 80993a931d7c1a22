"""The base checkpoints of the nano tier, as its configuration has them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from r3l.config import resolve
from r3l.files.paths import STORED_MODELS


@cache
def start_model(env: str = "alfworld") -> str:
    """The name of the base checkpoint of ``env``."""
    return Path(resolve("nano", env, "zero_shot", 0).model).name


START_MODEL = start_model()
START_FOLDER = STORED_MODELS / START_MODEL


def cell(env: str, method: str) -> str:
    """Where the runs of ``method`` lie: nano/env/base checkpoint/method."""
    return resolve("nano", env, method, 0).cell
