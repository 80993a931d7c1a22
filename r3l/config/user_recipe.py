"""The SFT recipe of a user's environment, which has no file: few values of it differ by environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from r3l.config.environment import EnvConfig
from r3l.config.files import load, own_folders
from r3l.files.names import is_folder_name

USER_RECIPE: dict[str, Any] = {
    "seed": 0,
    "threads": 1,
    "tokens_per_step": 4000,
    "prompt_weight": 0.25,
    "retry_share": 0.3,
    "phases": [
        {
            "first_task": 0,
            "tasks": 4000,
            "variants": 1,
            "steps": 200,
            "decay_steps": 200,
            "warmup_steps": 20,
            "lr": 2e-3,
            "error_rates": {"low": 0.2, "high": 0.6, "systematic": 0.5, "overlook": 0.0},
        }
    ],
    "sources": {"*": "our choice: minutes on 2 cores, a third of configs/sft/math-1.5m.yaml"},
}


def user_recipe(env: str) -> dict[str, Any] | None:
    """The values of the recipe that `r3l sft ENV` follows; None unless ``env`` is in the user's folders.

    Raises ConfigError if the environment's file is malformed.
    """
    if user_folder(env) is None:
        return None
    tiers = load("envs", env, EnvConfig).tiers
    max_turns = tiers["nano"].max_turns if "nano" in tiers else 10
    return {"name": env, "env": env, "max_turns": max_turns} | USER_RECIPE


def user_folder(env: str) -> Path | None:
    """The first folder of R3L_ENVS that has a file of environment ``env``; None if none has."""
    if is_folder_name(env):
        for folder in own_folders("envs"):
            if (folder / f"{env}.yaml").is_file():
                return folder
    return None
