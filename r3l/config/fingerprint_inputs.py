"""Everything that a run reads in addition to its settings, as digests for its fingerprint and its manifest.

A name does not identify its content: ``mine`` may have other weights tomorrow, and a task id another game.
So the fingerprint has a digest or a version of the weights, the task sets, the texts and graders of the
environment, and the SFT recipe.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

from huggingface_hub import constants

from r3l.config.environment import EnvSettings, environment_of
from r3l.config.files import find_class
from r3l.config.model import find_model, locate, recipe_of
from r3l.core.environment import Style
from r3l.feedback import prompt_templates
from r3l.files.digests import digest_of_all, file_sha256
from r3l.files.names import is_folder_name
from r3l.files.paths import cache_folder

# Files of a model's folder that decide what it computes: weights, sizes, vocabulary, dialogs. Not its
# origin.
MODEL_FILES = (
    *("model*.safetensors", "adapter*", "pytorch_model*.bin", "*.gguf"),
    *("config.json", "generation_config.json", "tokenizer*", "chat_template*"),
    *("special_tokens_map.json", "added_tokens.json", "vocab*", "merges.txt"),
)
# Digests of r3l/feedback/prompts, the texts with which the stored runs were made. Their fingerprints have none
# of these, so only a text with another digest enters a fingerprint.
STORED_RUNS_SHA256 = {
    "critique": "4957073cae6bb33e2c70793b12d4a69192875eb8882748c2d8f3bacb8ca2ab10",
    "guidance_compact": "71edd758c55818017ece3dc9b7d3edb7e460038d2ea74d98409671f02abbf1e1",
    "guidance_critique": "cd218381d7b1e87bdf142929509a9d256959540292b4ce2a96d5a4daf83637c7",
    "guidance_full": "1f738b12e8154bf849495fa982ec1b2b1f59e7bce6d9f5b61606c57cf273a279",
    "guidance_solution": "34302b44874cc34e59c9c555e5427963d6ddca9e8c352a58b7a03b3e4c28179e",
    "reflection_compact": "9466c75e0c36ec8234c696e9207bc4d68b32435704246bf8113b29236978de49",
    "reflection_lines": "d111e54d3fdc8f74084267f4e78facb947b003e26f45245bba2c3fbe20853148",
    "reflection_request": "cbb6a536ad339efdea9af73e25699d9ed5e884045f82ad268000c82b89b9a42a",
    "reflection_system": "e8bc07a6a0932c403bdd143341a6582ea03f4097c7c7ecefa56853bd826dfcd3",
}


def fingerprint_inputs(
    env: str, model: str, settings: EnvSettings, method_code: str, prompts: Style
) -> dict[str, Any]:
    """Digests and versions of what a run reads, as JSON values; they enter its fingerprint.

    Keys: ``model`` (:func:`model_identity`), ``task_sets`` (digest of the training and of the test task set),
    ``environment`` (version, digests of its files and of prompts that may be edited) and ``method`` (version
    of its code); with edited texts of r3l/feedback/prompts ``edited_texts`` (their digests); with SFT also
    ``sft`` (the recipe) and ``sft_model`` (digest of its result, None before it is made). ``prompts``: the
    style; files of prompts count only under ``full``. Raises ConfigError for an unknown environment, task
    set or recipe.
    """
    inputs: dict[str, Any] = {
        "model": model_identity(model),
        **environment_inputs(env, (settings.train_task_set, settings.test_task_set), prompts),
        "method": {"version": getattr(find_class("methods", method_code), "version", 1)},
    }
    if edited := edited_texts():
        inputs["edited_texts"] = edited
    if settings.sft is None:
        return inputs
    made = sft_folder(model, settings.sft)
    return inputs | {
        "sft": recipe_of(settings.sft),
        "sft_model": _folder_digest(made) if made.is_dir() else None,
    }


def environment_inputs(env: str, task_sets: Sequence[str], prompts: Style) -> dict[str, Any]:
    """The part of :func:`fingerprint_inputs` that decides what an episode on these task sets is.

    Raises ConfigError for an unknown environment or task set.
    """
    package = environment_of(env)
    # The full prompts are texts that may be edited; compact ones are code, which the version covers.
    texts = package.prompt_texts() if prompts == "full" else {}
    return {
        "task_sets": {name: package.task_set_hash(name) for name in task_sets},
        "environment": {"version": package.version, **package.inputs(task_sets)}
        | ({"prompts": digest_of_all(texts)} if texts else {}),
    }


@cache  # a process reads each text once too (r3l.feedback.prompt_templates)
def edited_texts() -> dict[str, str]:
    """Digests (sha256), by name, of the texts of r3l/feedback/prompts that are not those of the stored runs.

    {} if all are. Cached for the process.
    """
    digests = {name: file_sha256(prompt_templates.PROMPTS / f"{name}.txt") for name in STORED_RUNS_SHA256}
    return {name: digest for name, digest in digests.items() if digest != STORED_RUNS_SHA256[name]}


def base_weights(inputs: Mapping[str, Any]) -> str | None:
    """An identity of the base checkpoint in ``inputs`` (:func:`fingerprint_inputs`), for comparing runs.

    It is the digest of its weights; for a model of the hub the revision, or without a known revision the
    name. None if the base checkpoint is the result of an SFT that is not made yet.
    """
    if "sft" in inputs:
        return None if inputs["sft_model"] is None else str(inputs["sft_model"])
    model: dict[str, str | None] = inputs["model"]
    return model.get("sha256") or model.get("revision") or model.get("name")


def model_identity(model: str) -> dict[str, str | None]:
    """Identity of a model: ``sha256`` of its folder or packaged file, else a hub's ``name`` and ``revision``.

    ``revision`` is the commit in this machine's cache, and None if the cache does not have the model.
    """
    config = find_model(model)
    if config and config.packaged:
        return {"sha256": config.packaged.sha256}
    folder = Path(locate(model))
    if folder.is_dir():
        return {"sha256": _folder_digest(folder.resolve())}
    # A hub id. The revision is the commit that the cache has as ``main``. The cache is the folder from which
    # transformers loads: HF_HUB_CACHE, HF_HOME or XDG_CACHE_HOME, variables expanded.
    hub = str(folder)
    ref = Path(constants.HF_HUB_CACHE) / f"models--{hub.replace('/', '--')}" / "refs" / "main"
    revision = ref.read_text(encoding="utf-8").strip() if ref.is_file() else ""
    return {"name": hub, "revision": revision or None}  # a killed download may leave an empty file


def model_digest(model: str) -> str | None:
    """Digest of a model's folder or packaged file, or its revision on the hub; None if that is not known."""
    identity = model_identity(model)
    return identity.get("sha256") or identity.get("revision")


def model_name(model: str, identity: Mapping[str, Any] | None = None) -> str:
    """The name of a model under results/ and in tables.

    ``identity``: :func:`model_identity`, as a manifest has it. A name of configs/models or of a stored model
    identifies it. The last part of a path or hub id does not (``final``, ``checkpoint-500``): eight digits of
    the weights' digest, or of the hub id's, are appended. The revision of a hub id is only in the
    fingerprint, since the name is needed before the model is downloaded.
    """
    if is_folder_name(model):
        return model
    identity = identity or model_identity(model)
    digest = identity.get("sha256") or hashlib.sha256(str(identity["name"]).encode()).hexdigest()
    return f"{Path(model).name}-{digest[:8]}"


def sft_folder(model: str, name: str) -> Path:
    """The folder, in the cache, of the model that `r3l sft NAME` makes from ``model``; it need not exist.

    ``model``: a name of configs/models, a folder or a hub id.
    """
    return cache_folder("models") / f"{model_name(model)}-{name}"


def _folder_digest(folder: Path) -> str:
    """A digest of the names and contents of MODEL_FILES in a folder."""
    # A folder such as tokenizer_old, which somebody keeps beside the model, is no part of it.
    of_model = [path for path in folder.iterdir() if path.is_file()]
    files = [path for path in of_model if any(fnmatch(path.name, pattern) for pattern in MODEL_FILES)]
    return digest_of_all({path.name: path for path in files})


def fetch(model: str) -> None:
    """Download a hub's model into the cache unless it is there; nothing happens for any other model.

    Called before a run's fingerprint is computed, which contains the revision: otherwise it would differ
    between the command that downloads the model and the one that resumes the run. Errors are ignored here,
    since loading the model reports them.
    """
    identity = model_identity(model)
    if "revision" in identity and identity["revision"] is None and "/" in str(identity["name"]):
        from huggingface_hub import snapshot_download

        with suppress(OSError, ValueError):
            snapshot_download(str(identity["name"]), allow_patterns=list(MODEL_FILES))
