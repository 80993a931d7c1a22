"""Task: one problem of one environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Task:
    """One problem.

    ``id`` is unique within its environment and stable across machines (panels list ids), ``group`` is
    the stratum that results are reported by (``easy``/``hard``, a task family, ...), ``payload`` is
    whatever the environment needs to start it, JSON-serialisable so that it crosses process borders.
    """

    id: str
    env: str
    split: str
    group: str = ""
    payload: Mapping[str, Any] = field(default_factory=dict)
