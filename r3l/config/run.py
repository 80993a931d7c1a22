"""A Run: one cell with its seed, fully resolved, its fingerprint, and the weights that it starts from."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from r3l.config.corrections import corrections_of
from r3l.config.environment import EnvTierConfig, environment_of
from r3l.config.feedback import feedback_source, in_words_of_fingerprints
from r3l.config.model import find_model, stored_model
from r3l.config.profile import ProfileName
from r3l.config.tier import TierSettings
from r3l.core.errors import ConfigError
from r3l.core.feedback import FeedbackSource
from r3l.files import paths
from r3l.files.cache import cache_folder
from r3l.files.names import folder_name, is_folder_name
from r3l.files.paths import STORED_MODELS
from r3l.files.yaml_files import read_yaml

SCHEMA_VERSION = 2  # raise when a change of code makes all old results incomparable (some: r3l.config.corrections)

UNHASHED_FIELDS = {"label", "method_label", "workers", "device", "forward", "model", "rate_source"}  # model: by weights
UNHASHED = {  # keys that change no result, and those of the environment that are counted elsewhere, resolved
    "train": ("save_every", "gradient_checkpointing"),
    "env_settings": ("model", "set", "validation_task_set", "further_test_task_sets"),
    "judge": ("concurrency", "deadline"),
}

UNHASHED_VALUES: dict[str, dict[str, Any]] = {  # options younger than stored runs, at the value which those ran with
    "sampling": {"engine": "torch"},
    "method_settings": {
        "reflection_schema": "strict",
        "sd_coef_start": None,
        "imitated_retry": "verified",
        "replay": "whole",
    },
}


class Run(TierSettings):
    """One cell with its seed, fully resolved: what the manifest stores and the fingerprint hashes."""

    tier: str
    label: str
    env: str
    method: str
    method_label: str
    profile: ProfileName
    model: str
    seed: int = Field(ge=0, lt=2**63)
    env_settings: EnvTierConfig
    method_code: str
    method_settings: dict[str, Any]  # all of them, defaults included
    rate_source: str = Field("", description="profile tuned: the file in which the learning rate was chosen")
    own_code: dict[str, dict[str, str]] = Field({}, description="digests of the user's own files (r3l.config.own_code)")

    @property
    def cell(self) -> str:
        """``tier/env/model/method``, the run's place under results/; a variant may name a task set.

        Raises ConfigError where one of them cannot be a folder.
        """
        parts = {"tier": self.tier, "environment": self.env, "model": Path(self.model).name}
        parts["method"] = self.method.replace("/", "-")
        return "/".join(folder_name(kind, name) for kind, name in parts.items())

    @property
    def directory(self) -> str:
        """``tier/env/model/method/seedN``: its directory under results/. Raises as :attr:`cell`."""
        return f"{self.cell}/seed{self.seed}"

    def fingerprint(self, corrections: Sequence[str] | None = None) -> str:
        """Hash of everything that determines the result: never a path, a date, or a worker count.

        A stored model enters with the hash of its weights, task sets and a user's own code with theirs: rebuilt or
        edited, they are other runs.
        ``corrections``: those that the code had, by default all that concern this run (r3l.config.corrections).
        """
        values = self.model_dump(mode="json", exclude=UNHASHED_FIELDS)
        values |= {"model": Path(self.model).name, "weights": weights_of(self.model), "schema": SCHEMA_VERSION}
        package = environment_of(self.env)
        task_sets = (self.env_settings.train_task_set, self.env_settings.test_task_set)
        values["task_sets"] = [package.task_set_hash(task_set) for task_set in task_sets]
        if self.env_settings.sft:
            values["sft"] = recipe_of(self.env_settings.sft)
        if names := corrections_of(values) if corrections is None else list(corrections):
            values["corrections"] = names
        return hashlib.sha256(json.dumps(hashed(values), sort_keys=True).encode()).hexdigest()[:16]


def hashed(run: Mapping[str, Any]) -> dict[str, Any]:
    """A dumped run, of a manifest say, less the keys that change no result."""
    values = {key: dict(value) if isinstance(value, dict) else value for key, value in run.items()}
    if feedback_source(values.get("method_settings", {})) is not FeedbackSource.JUDGE:
        values.pop("judge", None)
    if not values.get("own_code"):  # there is none: as in runs from before it was hashed
        values.pop("own_code", None)
    values["method_settings"] = in_words_of_fingerprints(values.get("method_settings", {}))
    for section, keys in UNHASHED.items():
        for key in keys:
            values.get(section, {}).pop(key, None)
    for section, younger in UNHASHED_VALUES.items():
        inside = values.get(section, {})
        values[section] = {key: value for key, value in inside.items() if younger.get(key, ...) != value}
    return values


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


def sft_folder(model: str, name: str) -> Path:
    """Where `r3l sft NAME` keeps what it made of a model of configs/models, a folder or a hub id."""
    return cache_folder("models") / f"{Path(model).name}-{name}"


def start_of(run: Run) -> str:
    """The model that a run starts from: that of its supervised stage, where it has one, else its own.

    Raises ConfigError where the stage is not finished.
    """
    name = run.env_settings.sft
    if name is None:
        return run.model
    folder = sft_folder(run.model, name)
    manifest = folder / "sft.json"
    phases = len(recipe_of(name)["phases"])
    if not manifest.is_file() or len(json.loads(manifest.read_text(encoding="utf-8"))["loss"]) < phases:
        raise ConfigError(
            f"{run.cell} starts from a supervised stage, whose model is not (whole) in {folder}: make it with r3l "
            f"sft {name} --model {run.model}, or go without: --set env_settings.sft=null"
        )
    return str(folder)


def recipe_of(name: str) -> dict[str, Any]:
    """configs/sft/<name>.yaml as it stands, without sources."""
    path = paths.CONFIGS / "sft" / f"{name}.yaml"
    if not is_folder_name(name) or not path.is_file():
        raise ConfigError(f"env_settings.sft is {name!r}, but there is no {path}; correct it, or set it to null")
    return {key: value for key, value in read_yaml(path).items() if key != "sources"}


def weights_of(model: str) -> str | None:
    """The sha256 of a stored or packaged model's weights as its manifest or config states it; None for others."""
    config = find_model(model)
    if config and config.packaged:
        return config.packaged.sha256
    path = (stored_model(model) or STORED_MODELS / model) / "sft.json"
    return str(json.loads(path.read_text(encoding="utf-8"))["weights_sha256"]) if path.is_file() else None
