"""A Trinity monitor that leaves plain lines: what the explorer and the trainer report of each step."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trinity.common.config import Config
from trinity.utils.monitor import Monitor

from r3l.files.json_files import append_jsonl

FILE = "steps-{role}.jsonl"  # in the monitor's folder; a file a role, since they are two processes


class LinesMonitor(Monitor):
    """``{"step": n, name: value, ...}``, a line a call. Finite numbers only, as JSON has no others."""

    def __init__(self, project: str, group: str, name: str, role: str, config: Config = None) -> None:
        super().__init__(project, name, role, config)
        self.file = Path(config.monitor.cache_dir) / FILE.format(role=role)
        self.file.parent.mkdir(parents=True, exist_ok=True)

    def log(self, data: Mapping[str, Any], step: int, commit: bool = False) -> None:
        """Add a line."""
        append_jsonl(self.file, {"step": step, **{name: float(value) for name, value in data.items()}})

    def close(self) -> None:
        """Nothing is open."""
