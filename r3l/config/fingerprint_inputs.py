"""What a run reads beside its settings, as digests: part of its fingerprint and of its manifest.

A name does not say what lies behind it: ``mine`` may hold other weights tomorrow, a task id another game. So the
weights, the task sets, the texts and graders of an environment and the recipe of SFT enter with a digest
or a version.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from r3l.config.environment import EnvSettings, environment_of
from r3l.config.files import find_class
from r3l.config.model import find_model, locate, recipe_of
from r3l.core.environment import Style
from r3l.files.digests import digest_of_all
from r3l.files.names import is_folder_name
from r3l.files.paths import cache_folder

# Files of a model's folder that decide what it computes: weights, sizes, words, dialogs. Not where it comes from.
MODEL_FILES = (
    *("model*.safetensors", "adapter*", "pytorch_model*.bin", "*.gguf"),
    *("config.json", "generation_config.json", "tokenizer*", "chat_template*"),
    *("special_tokens_map.json", "added_tokens.json", "vocab*", "merges.txt"),
)


def fingerprint_inputs(env: str, model: str, settings: EnvSettings, method_code: str, prompts: Style) -> dict[str, Any]:
    """The inputs of a run, as JSON has them. Raises ConfigError for an unknown task set or recipe."""
    package = environment_of(env)
    task_sets = (settings.train_task_set, settings.test_task_set)
    texts = package.prompt_texts() if prompts == "full" else {}  # compact ones are code, which a version stands for
    inputs: dict[str, Any] = {
        "model": model_identity(model),
        "task_sets": {name: package.task_set_hash(name) for name in task_sets},
        "environment": {"version": package.version, **package.inputs(task_sets)}
        | ({"prompts": digest_of_all(texts)} if texts else {}),
        "method": {"version": getattr(find_class("methods", method_code), "version", 1)},
    }
    if settings.sft is None:
        return inputs
    made = sft_folder(model, settings.sft)
    return inputs | {"sft": recipe_of(settings.sft), "sft_model": _folder_digest(made) if made.is_dir() else None}


def base_weights(inputs: Mapping[str, Any]) -> str | None:
    """The digest of the weights that a run with these inputs starts from, or their revision on the hub."""
    if "sft" in inputs:
        return None if inputs["sft_model"] is None else str(inputs["sft_model"])
    model: dict[str, str | None] = inputs["model"]
    return model.get("sha256") or model.get("revision") or model.get("name")


def model_identity(model: str) -> dict[str, str | None]:
    """Which weights a model is: the sha256 of its folder, of the packaged file that it is made from, or its name on the
    hub with the revision that the cache of this machine has; ``revision`` is None where there is none."""
    config = find_model(model)
    if config and config.packaged:
        return {"sha256": config.packaged.sha256}
    folder = Path(locate(model))
    if folder.is_dir():
        return {"sha256": _folder_digest(folder.resolve())}
    return {"name": str(folder), "revision": _cached_revision(str(folder))}


def model_name(model: str, identity: Mapping[str, Any] | None = None) -> str:
    """What a model is called under results/ and in tables. ``identity``: that of a manifest.

    A name of configs/models, or of a stored model, says which it is. The last part of a path or of a hub id does not
    (``final``, ``checkpoint-500``): it gets eight digits of the weights' digest, or of the id, whose revision stands in
    the fingerprint alone because a plan must know the place of what nobody has fetched yet.
    """
    if is_folder_name(model):
        return model
    identity = identity or model_identity(model)
    digest = identity.get("sha256") or hashlib.sha256(str(identity["name"]).encode()).hexdigest()
    return f"{Path(model).name}-{digest[:8]}"


def sft_folder(model: str, name: str) -> Path:
    """Where `r3l sft NAME` keeps what it made of a model of configs/models, a folder or a hub id."""
    return cache_folder("models") / f"{model_name(model)}-{name}"


def _folder_digest(folder: Path) -> str:
    """Over names and digests of the files that decide what a model computes."""
    files = [path for path in folder.iterdir() if any(fnmatch(path.name, pattern) for pattern in MODEL_FILES)]
    return digest_of_all({path.name: path for path in files})


def fetch(model: str) -> None:
    """Have a hub's model in the cache before it is used, so that its revision is known when its run's fingerprint is
    taken: else the run that downloads it would have another one than when it resumes. Loading says what is wrong."""
    identity = model_identity(model)
    if "revision" in identity and identity["revision"] is None and "/" in str(identity["name"]):
        from huggingface_hub import snapshot_download

        with suppress(OSError, ValueError):
            snapshot_download(str(identity["name"]), allow_patterns=list(MODEL_FILES))


def _cached_revision(hub: str) -> str | None:
    """The commit of the hub's repository that its cache here has as ``main``."""
    cache_of_hub = os.environ.get("HF_HUB_CACHE") or Path(os.environ.get("HF_HOME", "~/.cache/huggingface"), "hub")
    ref = Path(cache_of_hub).expanduser() / f"models--{hub.replace('/', '--')}" / "refs" / "main"
    return ref.read_text(encoding="utf-8").strip() if ref.is_file() else None
