"""What a start model was taught: one that was taught another environment than it is to learn in is worth a warning."""

from __future__ import annotations

import json
from pathlib import Path

from r3l.config.environment import EnvConfig
from r3l.config.files import load, names
from r3l.config.model import stored_model
from r3l.config.run import Run, locate, recipe_of


def start_model_warning(run: Run) -> str | None:
    """A sentence where the supervised stage of a run's start model was of another environment; None where it was not,
    or where nothing says what the model was taught."""
    taught = _taught(run)
    if taught is None or _kind(taught) == _kind(run.env):
        return None
    return f"start model {Path(run.model).name} was taught {taught}, not {run.env}: it may not write a usable action"


def _taught(run: Run) -> str | None:
    """The environment that the last supervised stage of a run's start model demonstrated."""
    if run.env_settings.sft:
        return str(recipe_of(run.env_settings.sft)["env"])
    manifest = (stored_model(run.model) or Path(locate(run.model))) / "sft.json"
    if not manifest.is_file():
        return None
    return str(json.loads(manifest.read_text(encoding="utf-8"))["config"]["env"])


def _kind(env: str) -> str:
    """What several environments share: gsm8k, dapo and math are all mathematics."""
    return (load("envs", env, EnvConfig).environment or env) if env in names("envs") else env
