"""Corrections: defects that were mended after runs had been stored, and the runs that each concerns.

The name of a correction enters the fingerprint of the runs that it concerns, and of no others: those are made again,
all others stay comparable. A stored run that lacks one is outdated, and tables say so. What concerns every run raises
``SCHEMA_VERSION`` (r3l/config/run.py) instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Values = Mapping[str, Any]  # a dumped Run, of a manifest say


@dataclass(frozen=True)
class Correction:
    """``meaning``: what runs from before it did wrong; ``concerns``: whether a run could come out otherwise."""

    name: str
    meaning: str
    concerns: Callable[[Values], bool]


CORRECTIONS = (
    Correction(
        "rltf_lone_second_attempt",
        "a second attempt that was the only one of its group kept its reward as advantage, where RLTF has 0",
        lambda run: run.get("method_code") == "r3l.baselines.rltf:RLTF",
    ),
    Correction(
        "webshop_pages_in_any_case",
        "two actions such as click[Next >] in a row ended a WebShop episode, where the release lets pages be turned",
        lambda run: run.get("env") == "webshop" and run.get("prompts") != "compact",  # compact pages have no capitals
    ),
)
MEANINGS = {correction.name: correction.meaning for correction in CORRECTIONS}


def corrections_of(run: Values) -> list[str]:
    """The names of the corrections that concern a run."""
    return [correction.name for correction in CORRECTIONS if correction.concerns(run)]


def missing_in(manifest: Values) -> list[str]:
    """The names of the corrections that concern a finished run and are younger than it."""
    return [name for name in corrections_of(manifest["run"]) if name not in manifest.get("corrections", [])]
