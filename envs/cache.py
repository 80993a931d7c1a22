"""Where environments keep what they would otherwise compute again."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder(env: str) -> Path:
    """``$R3L_CACHE/<env>``, else ``~/.cache/r3l/<env>``; may be deleted at any time."""
    root = os.environ.get("R3L_CACHE") or "~/.cache/r3l"
    return Path(root).expanduser() / env
