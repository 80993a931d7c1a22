"""What a run reads beside its settings, as digests: part of its fingerprint and of its manifest.

A name does not say what lies behind it: ``mine`` may hold other weights tomorrow, a task id another game. So the
weights, the task sets, the texts and graders of an environment and the recipe of SFT enter with a digest
or a version.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

from r3l.config.environment import EnvSettings, environment_of
from r3l.config.files import find_class
from r3l.config.model import find_model, locate, recipe_of
from r3l.core.errors import DataError
from r3l.files.digests import digest_of
from r3l.files.json_files import read_json
from r3l.files.paths import cache_folder
from r3l.files.shapes import Digest
from r3l.files.writing import write_json_atomic

# Files of a model's folder that decide what it computes: weights, sizes, words, dialogs. Not where it comes from.
MODEL_FILES = (
    *("model*.safetensors", "adapter*", "pytorch_model*.bin", "*.gguf"),
    *("config.json", "generation_config.json", "tokenizer*", "chat_template*"),
    *("special_tokens_map.json", "added_tokens.json", "vocab*", "merges.txt"),
)
_KEPT = 1 << 26  # bytes; digests of larger files are kept, which take longer than a tenth of a second


def inputs_of(env: str, model: str, settings: EnvSettings, method_code: str) -> dict[str, Any]:
    """The inputs of a run, as JSON has them. Raises ConfigError for an unknown task set or recipe."""
    package = environment_of(env)
    task_sets = (settings.train_task_set, settings.test_task_set)
    inputs: dict[str, Any] = {
        "model": model_identity(model),
        "task_sets": {name: package.task_set_hash(name) for name in task_sets},
        "environment": {"version": package.version, **package.inputs(task_sets)},
        "method": {"version": getattr(find_class("methods", method_code), "version", 1)},
    }
    return inputs | ({"sft": recipe_of(settings.sft)} if settings.sft else {})


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


def _folder_digest(folder: Path) -> str:
    """Over names and digests of the files that decide what a model computes."""
    files = sorted(path for path in folder.iterdir() if any(fnmatch(path.name, pattern) for pattern in MODEL_FILES))
    stats = [path.stat() for path in files]
    digests = [_digest(path, stat.st_mtime_ns, stat.st_size) for path, stat in zip(files, stats, strict=True)]
    lines = (f"{digest}  {path.name}\n" for digest, path in zip(digests, files, strict=True))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


@cache
def _digest(path: Path, changed: int, size: int) -> str:
    """The sha256 of a file, taken once for its path, time and size: in this process, of large files on this machine."""
    if size < _KEPT:
        return digest_of(path)
    kept = cache_folder("digests") / f"{hashlib.sha256(str(path).encode()).hexdigest()}.json"
    key = [str(path), changed, size]
    with suppress(DataError):  # a cache that cannot be read either
        if kept.is_file() and (known := read_json(kept, Digest))["file"] == key:
            return str(known["sha256"])
    digest = digest_of(path)
    with suppress(OSError):  # a cache that cannot be written costs time alone
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_json_atomic(kept, {"file": key, "sha256": digest})
    return digest


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
