"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import threading
from pathlib import Path


def write_atomic(path: Path, content: bytes) -> None:
    """Write and rename, so that a reader sees the old file or the whole new one, also where the writer is killed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
