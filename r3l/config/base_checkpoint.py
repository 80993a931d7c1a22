"""The base checkpoint of a run, and a warning if its SFT taught another environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from typing_extensions import TypedDict

from r3l.config.environment import EnvConfig
from r3l.config.files import load, names
from r3l.config.fingerprint_inputs import sft_folder
from r3l.config.model import locate, recipe_of
from r3l.config.run import Run
from r3l.core.errors import ConfigError
from r3l.files.json_files import read_json


class StoredRecipe(TypedDict):
    """The key of a recipe in sft.json that is read here: ``env``, the environment of its demonstrations."""

    env: str


class SFTOrigin(TypedDict):
    """The key of sft.json with the recipe by which a model was made (written by r3l.sft.checkpoint)."""

    config: StoredRecipe


class SFTProgress(SFTOrigin):
    """The keys of sft.json that tell whether it is finished; ``loss`` has one entry per finished phase."""

    loss: list[Any]


def base_checkpoint_of(run: Run) -> str:
    """The model from which a run starts: the folder of its finished SFT, or ``run.model`` without SFT.

    ``run.env_settings.sft`` names the SFT recipe; None: no SFT. Raises ConfigError for an unknown or
    malformed recipe, and if the SFT is missing or not finished.
    """
    name = run.env_settings.sft
    if name is None:
        return run.model
    folder = sft_folder(run.model, name)
    manifest = folder / "sft.json"
    phases = len(recipe_of(name)["phases"])
    if not manifest.is_file() or len(read_json(manifest, SFTProgress)["loss"]) < phases:
        raise ConfigError(
            f"{run.cell} starts from an SFT checkpoint, but there is no finished one in {folder}: make it "
            f"with r3l sft {name} --model {run.model}, or go without: --set env_settings.sft=null"
        )
    return str(folder)


def base_checkpoint_warning(run: Run) -> str | None:
    """A sentence if the SFT of a run's base checkpoint taught another environment than the run's, else None.

    None too if nothing says what the model learned.
    """
    manifest = Path(locate(run.model)) / "sft.json"
    if run.env_settings.sft:
        taught = str(recipe_of(run.env_settings.sft)["env"])
    elif manifest.is_file():
        taught = read_json(manifest, SFTOrigin)["config"]["env"]
    else:  # nothing says what it learned
        return None

    # Compare the packages of the environments: ``math`` for gsm8k and dapo too.
    def package(env: str) -> str:
        configured = load("envs", env, EnvConfig).environment if env in names("envs") else ""
        return configured or env

    if package(taught) == package(run.env):
        return None
    name = Path(run.model).name
    return f"base checkpoint {name} learned {taught} in SFT, not {run.env}: few of its actions may be valid"
