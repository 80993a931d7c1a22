"""The base checkpoint of a run, and a warning if its SFT taught another environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from typing_extensions import TypedDict

from r3l.config.environment import EnvConfig
from r3l.config.files import load, names, shown_path
from r3l.config.fingerprint_inputs import sft_folder
from r3l.config.model import locate, recipe_of
from r3l.config.run import Run
from r3l.config.sft_recipe import differing_keys, load_config
from r3l.config.user_recipe import user_recipe
from r3l.core.errors import ConfigError
from r3l.files.json_files import read_json
from r3l.files.paths import STORED_ADAPTERS


class StoredRecipe(TypedDict):
    """The key of a recipe in sft.json that is read here: ``env``, the environment of its demonstrations."""

    env: str


class SFTOrigin(TypedDict):
    """The key of sft.json with the recipe by which a model was made (written by r3l.sft.checkpoint)."""

    config: StoredRecipe


class SFTProgress(TypedDict):
    """The keys of sft.json that tell what is finished: the recipe, and ``loss``, one entry per phase."""

    config: dict[str, Any]
    loss: list[Any]


def base_checkpoint_of(run: Run) -> str:
    """The model from which a run starts: the folder of its finished SFT, or ``run.model`` without SFT.

    ``run.env_settings.sft`` names the SFT recipe; None: no SFT. Raises ConfigError for an unknown or
    malformed recipe, and if the SFT is missing, not finished, or of a recipe that was changed since.
    """
    name = run.env_settings.sft
    if name is None:
        return run.model
    folder = sft_folder(run.model, name)
    manifest = folder / "sft.json"
    phases = len(recipe_of(name)["phases"])
    made = read_json(manifest, SFTProgress) if manifest.is_file() else None
    if made is None or len(made["loss"]) < phases:
        stored = (STORED_ADAPTERS / folder.name / "sft.json").is_file()
        fetch = f"fetch the stored one with r3l model fetch {folder.name}, " if stored else ""
        raise ConfigError(
            f"{run.cell} starts from an SFT checkpoint, but there is no finished one in {folder}: {fetch}make it "
            f"with r3l sft {name} --model {run.model}, or go without: --set env_settings.sft=null"
        )

    # The run's fingerprint has the recipe as it is now. The folder is named after the model it started from,
    # which the recipe need not name.
    changed = [key for key in differing_keys(made["config"], load_config(name)) if key != "model"]
    if changed:
        recipe = f"the recipe of {name}" if user_recipe(name) else shown_path("sft", name)
        raise ConfigError(
            f"{manifest}: {run.cell} starts from this SFT checkpoint, but its recipe differs from "
            f"{recipe} in {', '.join(changed)}. Restore these keys, or move {folder} away and "
            f"make the checkpoint again: r3l sft {name} --model {run.model}"
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
