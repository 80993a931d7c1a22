"""Where what would otherwise be computed or fetched again is kept."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder(name: str) -> Path:
    """``$R3L_CACHE/<name>`` (an environment's, or ``models``), else ``~/.cache/r3l/<name>``; may always be deleted."""
    root = os.environ.get("R3L_CACHE") or "~/.cache/r3l"
    return Path(root).expanduser() / name
