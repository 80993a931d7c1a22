"""Checkpoints: a model (Hugging Face layout) or an adapter, with the optimiser's state. Loading of models."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import huggingface_hub
import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors.torch import load_file, save_file
from transformers import AutoConfig
from transformers.utils import logging as transformers_logging
from typing_extensions import TypedDict

from r3l.chat.renderer import ChatRenderer
from r3l.config import Run, base_checkpoint_of, find_model, locate, names, trains
from r3l.core.errors import CheckpointError, ConfigError, DataError, did_you_mean
from r3l.core.pretrained import UNLOADABLE, load_tokenizer, pretrained
from r3l.files.digests import SUMS, altered, digest_with_names, write_digests
from r3l.files.json_files import Number, read_json
from r3l.files.paths import STORED_MODELS
from r3l.files.writing import check_room, replacing, write_json_atomic
from r3l.local.model import lora, weights
from r3l.local.model.forward import Pass
from r3l.local.training.trainer import Trainer
from r3l.runs.check_chat_template import try_dialogs

transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # r3l shows its own progress
log = logging.getLogger(__name__)
MANIFESTS = ("sft.json", "source.json")  # of stored and fetched models, with the digest of the weights
HUB = 10.0  # seconds to wait for the hub's first answer; our choice
SMALL_FILES = 16 << 20  # bytes of a checkpoint without tensors; a published tokenizer takes 11 MB
OPTIMIZER = "optimizer.safetensors"
SAMPLER = "sampler.safetensors"
TEACHER = "teacher.safetensors"
STATE = "trainer.json"


class ModelManifest(TypedDict):
    """The part of a model's manifest (sft.json, source.json) that is checked when the model is loaded.

    ``weights_sha256``: digest of model.safetensors.
    """

    weights_sha256: str


class TrainerState(TypedDict):
    """Content of trainer.json in a checkpoint.

    ``step``: updates so far; ``fingerprint``: the run's; ``totals``: rollouts, tokens and other counts.
    """

    step: int
    fingerprint: str
    totals: dict[str, Number]


def find(model: str) -> str:
    """Folder or hub id of ``model`` (a stored or configured name, a folder, or a hub id), after checking it.

    Raises CheckpointError, saying how to get it, if there is no such model or its configuration cannot be
    read. Loads no weights; a hub model's configuration is downloaded unless it is cached.
    """
    # An unknown name: asking the hub for it would take a minute of retries.
    location = locate(model)
    if "/" not in location:
        stored = sorted(p.name for p in STORED_MODELS.iterdir()) if STORED_MODELS.is_dir() else []
        configured = names("models")
        raise CheckpointError(
            f"there is no stored model {model!r}{did_you_mean(model, [*stored, *configured])}; "
            f"`r3l sft {model}` trains it if configs/sft or R3L_ENVS has that name. Otherwise give one of "
            f"the stored ones ({', '.join(stored) or 'none'}) or of configs/models ({', '.join(configured)}), a "
            "folder, or a hub id"
        )
    # A packaged model that is not fetched yet, an adapter, a file, or a folder that does not exist.
    config = find_model(model)
    if config and config.packaged and not Path(location).is_dir():
        raise CheckpointError(f"model {model!r} is not in {location} yet: r3l model fetch {model}")
    if not (Path(location) / "config.json").exists() and (Path(location) / lora.CONFIG).is_file():
        raise CheckpointError(
            f"{location} holds an adapter and no model: r3l export model RUN_DIR FOLDER makes one of a "
            "run's, peft's merge_and_unload of any other"
        )
    if Path(location).is_file():
        raise CheckpointError(
            f"{location} is a file, and a model is a folder in Hugging Face layout; serve a GGUF file with "
            "llama.cpp, and evaluate it by --server URL"
        )
    if not Path(location).exists() and (location.count("/") > 1 or location.startswith(("/", ".", "~"))):
        raise CheckpointError(
            f"there is no folder {location}; give one in Hugging Face layout, or a hub id (OWNER/NAME)"
        )
    # A folder or a hub model, whose configuration can be read.
    with _loading(model, location):
        if not Path(location).exists():
            _check_hub(location)
        config = pretrained(AutoConfig, location).get_text_config()
        padding = getattr(config, "pad_token_id", None)
        size = getattr(config, "vocab_size", None)
        if padding is not None and size is not None and padding >= size:
            raise ValueError(
                f"pad_token_id in its config.json is {padding}, but the vocabulary has the ids 0 to "
                f"{size - 1}; set it to null, or resize the embeddings"
            )
    return location


def _check_hub(model: str) -> None:
    """Raises ConnectionError if the hub cannot be reached and ``model`` is not cached.

    One request only: transformers tries five times, which takes half a minute.
    """
    offline = huggingface_hub.constants.HF_HUB_OFFLINE
    if offline or isinstance(huggingface_hub.try_to_load_from_cache(model, "config.json"), str):
        return
    # Not by huggingface-hub's own client, whose errors are httpx's before version 2, and later httpx2's.
    try:
        httpx2.head(huggingface_hub.hf_hub_url(model, "config.json"), timeout=HUB)
    except httpx2.TransportError as error:
        raise ConnectionError(
            f"there is no such folder, the hub cannot be reached ({error}), and the model is not cached"
        ) from error


def load_model(model: str, device: torch.device, forward_pass: Pass = "transformers") -> tuple[Any, Any]:
    """Load a model in float32, without its dropout, and its tokenizer: (model, tokenizer).

    ``model``: a stored or configured name, a folder, or a hub id. ``forward_pass``: the forward pass that it
    is for: with ``packed`` it is our CausalLM (r3l.local.model.weights) if that has the architecture, else,
    and with ``transformers``, transformers' class. Raises CheckpointError if it cannot be loaded, or if its
    files differ from the digests stored with them; DataError if its sft.json or source.json cannot be read.
    """
    location = find(model)

    # A stored, fetched or trained model has digests in its folder; any other is taken as it is.
    folder = Path(location)
    wrong = altered(folder) if (folder / SUMS).is_file() else []
    for manifest in (folder / name for name in MANIFESTS):
        if not manifest.is_file():
            continue
        recorded = read_json(manifest, ModelManifest)["weights_sha256"]
        if not (folder / weights.WEIGHTS).is_file():
            wrong.append(f"{weights.WEIGHTS} is missing, and {manifest.name} has its digest")
        elif digest_with_names(folder / weights.WEIGHTS) != recorded:
            wrong.append(f"{weights.WEIGHTS} has another digest than in {manifest.name}")
    if wrong:
        raise CheckpointError(
            f"model {folder} is damaged: {', '.join(wrong)}. Restore it (git checkout of a stored one, `r3l "
            "model fetch` of a packaged one); a run's own checkpoint is made again by `r3l train`, from "
            "the last good one"
        )

    with _loading(model, location):
        tokenizer = load_tokenizer(location)
        network: Any = weights.load(Path(location)) if forward_pass != "transformers" else None
        if network is None:
            from transformers import AutoModelForCausalLM  # takes a second and a half, with torch's compiler

            config = _without_dropout(pretrained(AutoConfig, location))
            network = pretrained(AutoModelForCausalLM, location, config=config, dtype=torch.float32)
    network.to(device)
    return network, tokenizer


def _without_dropout(config: Any) -> Any:
    """``config`` of transformers, in which every rate of a dropout is 0.

    With dropout the log-probs of training would not be those of sampling, and a resumed run would draw others.
    """
    for part in {id(part): part for part in (config, config.get_text_config())}.values():
        for key, value in list(vars(part).items()):
            if "drop" in key and isinstance(value, float):
                setattr(part, key, 0.0)
    return config


def check_template(run: Run, model: str | None = None, task_set: str | None = None) -> None:
    """Check, without loading weights, that ``run`` can play with its base checkpoint, or with ``model``.

    Renders dialogs of the first task of ``task_set`` (None: of the run's own) with the model's chat template.
    Raises CheckpointError if the model does not exist; ConfigError if its chat template cannot render them,
    or if it has fewer positions than ``sampling.max_context``.
    """
    model = model or base_checkpoint_of(run)
    location = find(model)
    with _loading(model, location):
        tokenizer = load_tokenizer(location)
        positions = getattr(pretrained(AutoConfig, location), "max_position_embeddings", None)
    try_dialogs(run, ChatRenderer(tokenizer), task_set=task_set)
    if positions and run.sampling.max_context > positions:
        raise ConfigError(
            f"sampling.max_context is {run.sampling.max_context} tokens, but {model} has positions for "
            f"{positions} (max_position_embeddings in its config.json); set "
            f"sampling.max_context={positions}, and sampling.max_tokens, which is "
            f"{run.sampling.max_tokens}, so that prompt and response fit"
        )


def check_start(run: Run) -> None:
    """Check, without loading weights, that ``run`` can begin: :func:`check_template`, and ``lora.targets``.

    Raises ConfigError too if the base checkpoint lacks a projection that the run's adapter should have.
    """
    check_template(run)
    if run.lora.rank and trains(run):
        base = base_checkpoint_of(run)
        location = find(base)
        with _loading(base, location):
            network = lora.without_weights(location)
        lora.target_modules(network, run.lora)


@contextmanager
def _loading(model: str, location: str) -> Iterator[None]:
    """Turn errors of transformers and the hub into a CheckpointError with their reason on one line."""
    try:
        yield
    except UNLOADABLE as error:
        # The first line of an OSError or ValueError says enough. Others need their type, and those of the
        # hub's strict dataclasses their second line, which has the reason.
        lines = str(error).splitlines() or [""]
        reason = lines[0]
        if not isinstance(error, (OSError, ValueError)):
            count = 2 if isinstance(error, StrictDataclassError) else 1
            reason = f"{type(error).__name__}: {' '.join(lines[:count])}"
        raise CheckpointError(
            f"model {model!r} cannot be loaded from {location!r}: {reason.rstrip('.')}. Give a stored "
            "model's name, a folder in Hugging Face layout, or a hub id that is cached or can be "
            "downloaded"
        ) from error


def name_of(step: int) -> str:
    """Folder name of the checkpoint after ``step`` updates: ``step-000100``."""
    return f"step-{step:06d}"


def last_good(folder: Path) -> Path | None:
    """The newest checkpoint in ``folder`` whose files match their digests; None if there is no checkpoint.

    Newer ones that are damaged are renamed to ``damaged-step-...``, with a warning in the log. Raises
    CheckpointError if all are damaged: the user decides whether to start over.
    """
    # A checkpoint that was cut off while being written never got its final name: damage happened later.
    damaged: dict[Path, list[str]] = {}
    good: Path | None = None
    for checkpoint in sorted(folder.glob("step-*"), reverse=True):
        wrong = altered(checkpoint)
        if not wrong:
            good = checkpoint
            break
        damaged[checkpoint] = wrong
    if not damaged:
        return good

    # Rename the damaged ones, so that no later call takes them for checkpoints. If no good one is left,
    # nothing is renamed: training from the start is the user's decision.
    named = "; ".join(f"{bad.name}: {', '.join(files)}" for bad, files in damaged.items())
    if good is None:
        raise CheckpointError(
            f"every checkpoint in {folder} is damaged ({named}): restore files from a copy, "
            f"or delete {folder} to train from the start"
        )
    for bad in damaged:
        aside = bad.with_name(f"damaged-{bad.name}")
        shutil.rmtree(aside, ignore_errors=True)
        bad.rename(aside)
    log.warning("damaged, kept as damaged-*: %s; going on from %s", named, good.name)
    return good


def save(folder: Path, trainer: Trainer, tokenizer: Any, fingerprint: str, totals: dict[str, float]) -> Path:
    """Write the trainer's present state to ``folder/step-NNNNNN`` and return that path.

    It has the model and its tokenizer, or with LoRA the adapter alone; the optimiser's state; the weights of
    a sampler or an averaging teacher that differ from the model's; ``fingerprint`` of the run, and
    ``totals``, its counts so far. If it exists already, nothing is written. One earlier checkpoint is kept,
    older ones are deleted.

    Raises RunDirectoryError if it cannot be written (all earlier ones stay), and FileNotFoundError if the
    folder that holds ``folder`` is gone.
    """
    final = folder / name_of(trainer.steps_done)
    if final.is_dir():
        return final
    folder.mkdir(exist_ok=True)  # not its parents: a run's directory that was deleted stays deleted

    # Collect the tensors: trained weights, the optimiser's state, the weights of a sampler that lags behind,
    # and of a teacher that averages.
    trained = trainer.master_weights.state_dict()
    tensors = {OPTIMIZER: optimizer_state(trainer)}
    if trainer.sampler is not trainer.model:
        own = {name: p for name, p in trainer.sampler.named_parameters() if p.requires_grad}
        tensors[SAMPLER] = {name: p.detach().contiguous() for name, p in own.items()}
    if trainer.average is not None:
        tensors[TEACHER] = {name: weight.contiguous() for name, weight in trainer.average.weights.items()}
    size = sum(tensor.nbytes for of_file in (trained, *tensors.values()) for tensor in of_file.values())
    check_room(folder, SMALL_FILES + size)

    # Digests last; only a complete checkpoint gets its final name.
    with replacing(final) as temporary:
        if lora.has_adapter(trainer.model):  # the rest of the model equals the base checkpoint
            lora.save(temporary, trainer.model, trained)
        else:
            trainer.model.save_pretrained(temporary, state_dict=trained)
            tokenizer.save_pretrained(temporary)
        for name, content in tensors.items():
            save_file(content, temporary / name)
        state = {"step": trainer.steps_done, "fingerprint": fingerprint, "totals": totals}
        write_json_atomic(temporary / STATE, state)
        write_digests(temporary)
    for old in sorted(folder.glob("step-*"))[:-2]:
        shutil.rmtree(old)
    return final


def optimizer_state(trainer: Trainer) -> dict[str, torch.Tensor]:
    """The state of the trainer's AdamW, by ``INDEX.NAME``: number of the parameter, and AdamW's name.

    The tensors are the optimiser's own, not copies.
    """
    return {
        f"{index}.{name}": value.contiguous()
        for index, parameter in enumerate(trainer.master_weights.parameters)
        for name, value in trainer.optimizer.state.get(parameter, {}).items()
    }


def restore_optimizer(trainer: Trainer, tensors: Mapping[str, torch.Tensor]) -> None:
    """Give the trainer's AdamW the state that :func:`optimizer_state` returned."""
    parameters = list(trainer.master_weights.parameters)
    for key, value in tensors.items():
        index, _, name = key.partition(".")
        parameter = parameters[int(index)]
        # AdamW keeps its step count on the CPU, the moments on the device of the weights.
        state = trainer.optimizer.state.setdefault(parameter, {})
        state[name] = value if name == "step" else value.to(parameter.device)


def read_state(checkpoint: Path, fingerprint: str) -> TrainerState:
    """Read trainer.json of a checkpoint: step, fingerprint, totals.

    Raises CheckpointError if it cannot be read, or if its fingerprint is not ``fingerprint``, the one of the
    run.
    """
    path = checkpoint / STATE
    try:
        state = read_json(path, TrainerState)
    except (OSError, DataError) as error:
        raise CheckpointError(
            f"{path} cannot be read ({error}); delete {checkpoint} to go on without it",
        ) from error
    if state["fingerprint"] != fingerprint:
        raise CheckpointError(
            f"{path}: fingerprint {state['fingerprint']} is of another configuration than this run's "
            f"{fingerprint}; choose another --run-dir or delete {checkpoint.parent.parent}"
        )
    return state


def load_trainer(checkpoint: Path, trainer: Trainer, step: int) -> None:
    """Restore everything but the model's own weights from a checkpoint: ``trainer`` continues after ``step``.

    It restores the optimiser's state and, if the trainer has them, the weights of a separate sampler and of
    an averaging teacher. The digests of the files must have been checked (:func:`last_good`).
    """
    restore_optimizer(trainer, load_file(checkpoint / OPTIMIZER))
    if trainer.sampler is not trainer.model:
        # Not strict: frozen weights are not stored, and tied ones once.
        trainer.sampler.load_state_dict(load_file(checkpoint / SAMPLER), strict=False)
    if trainer.average is not None:
        for name, weight in load_file(checkpoint / TEACHER).items():
            trainer.average.weights[name].copy_(weight)
    trainer.steps_done = step
