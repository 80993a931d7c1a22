"""The checkpoints that SFT makes: weights in memory, and folders on disk with the manifest sft.json.

The finished model's folder is complete or absent. Until then, each finished phase is a checkpoint in the
hidden folder ``.NAME.phases`` next to it, with only the trained weights (of an adapter: A and B, not merged),
so that the next phase goes on from the same numbers whether or not the build was interrupted. A phase of an
adapter, which may take an hour, is kept there before its end too, in ``unfinished`` (r3l.sft.phase_progress).
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NotRequired

import torch
from pydantic import AfterValidator
from typing_extensions import TypedDict

from r3l.config import locate, model_digest
from r3l.config.files import differences
from r3l.config.fingerprint_inputs import edited_texts, environment_inputs
from r3l.config.sft_recipe import SFTConfig, differing_keys
from r3l.config.user_code import user_code
from r3l.core.errors import CheckpointError, DataError
from r3l.files.cleanup import remove_unfinished
from r3l.files.digests import altered, digest_with_names, write_digests
from r3l.files.json_files import read_json
from r3l.files.writing import replacing, write_json_atomic
from r3l.local.checkpoint import last_good, load_model, name_of
from r3l.local.model import lora
from r3l.local.model.precision import MasterWeights, compute_dtype, device_of
from r3l.runs.manifest import hardware, versions
from r3l.runs.provenance import commit
from r3l.sft.nano_model import build_model, build_tokenizer
from r3l.sft.phase_progress import PhaseProgress

log = logging.getLogger(__name__)
MANIFEST = "sft.json"
RECORD = "phase.json"  # the same, of an unfinished build
UNFINISHED = "unfinished"  # folder of a phase that has begun, beside those of the finished ones
WEIGHTS = "model.safetensors"


def _with_phases(recipe: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(recipe.get("phases"), list):
        raise ValueError("a recipe with phases is expected")
    return recipe


class SFTManifest(TypedDict):
    """The content of sft.json: how a base checkpoint was built.

    ``config``: the recipe. ``examples`` (counts by kind; of a sampled phase also of what was played and
    dropped) and ``loss`` (its course) have one entry per finished phase. ``base_digest``: digest of the model
    that it started from (r3l.config.model_digest), set when that is loaded. ``inputs``: what else its examples
    were made of (:func:`inputs_of`). Older builds have neither. The other keys that may be missing are set when
    the model is stored.
    """

    config: Annotated[dict[str, Any], AfterValidator(_with_phases)]  # SFTConfig, as JSON
    examples: list[dict[str, Any]]
    loss: list[list[float]]
    base_digest: NotRequired[str | None]
    inputs: NotRequired[dict[str, Any]]
    command: NotRequired[str]
    parameters: NotRequired[int]
    weights_sha256: NotRequired[str]
    versions: NotRequired[dict[str, str]]
    hardware: NotRequired[dict[str, Any]]
    commit: NotRequired[str | None]


@dataclass(frozen=True)
class SFTModel:
    """A model in training by SFT: a causal LM of transformers (``network``) and its tokenizer.

    ``master_weights``: the trained ones in float32. ``base``: the model it was loaded from; None: new.
    """

    network: Any
    tokenizer: Any
    master_weights: MasterWeights
    base: str | None = None  # the model it was loaded from

    @classmethod
    def load(cls, config: SFTConfig, phase: Path | None = None) -> SFTModel:
        """Load the recipe's model, or the model in ``phase`` (a folder of :meth:`save_phase`).

        The recipe's model is a stored one, of configs/models, a folder or a hub id; with lora.rank > 0 it
        gets a new adapter, or the phase's. It is put on the recipe's device. Raises CheckpointError if
        it cannot be loaded, ConfigError without the device.
        """
        if config.lora.rank or phase is None:
            assert config.model
            network, tokenizer = _load_with_adapter(config.model, config)
            if phase:
                lora.load(phase, network)
        else:
            network, tokenizer = load_model(str(phase.absolute()), torch.device("cpu"))
            # transformers writes how a tokenizer was loaded; as it was before the interruption.
            saved = read_json(phase / "tokenizer_config.json")
            for key in ("is_local", "local_files_only"):
                tokenizer.init_kwargs.pop(key, None)
                tokenizer.init_kwargs |= {key: saved[key]} if key in saved else {}

        # Loaded tensors are parts of a mapped file, where their addresses depend on the file's header, and
        # the rounding of a product depends on the address. In newly allocated memory a resumed build ends in
        # the same bits.
        for parameter in network.parameters():
            parameter.data = parameter.data.clone()
        network.to(device_of(config.device))
        return cls(network, tokenizer, _master_weights(network, config), config.model)

    @classmethod
    def new(cls, texts: Iterable[str], config: SFTConfig) -> SFTModel:
        """A nano model with random weights (the recipe's seed), and a tokenizer trained on ``texts``."""
        tokenizer = build_tokenizer(texts, config.numbered_names)
        network = build_model(tokenizer, config.seed, config.layers, config.hidden_size)
        network.to(device_of(config.device))  # type: ignore[arg-type]
        return cls(network, tokenizer, _master_weights(network, config))

    def save_phase(self, folder: Path, config: SFTConfig) -> None:
        """Write the trained weights into the existing ``folder``, from which :meth:`load` goes on.

        For a model with an adapter it writes only the adapter; otherwise it also writes configuration and
        tokenizer.
        """
        trained = self.master_weights.state_dict()
        if config.lora.rank:
            lora.save(folder, self.network, trained)
        else:
            self.network.save_pretrained(folder, state_dict=trained)
            self.tokenizer.save_pretrained(folder)

    def save(self, out: Path, config: SFTConfig) -> None:
        """Write model and tokenizer to the folder ``out`` in Hugging Face layout, as float32 weights.

        An adapter is merged, and also kept in ``out/lora``.
        """
        network = self.network
        trained = self.master_weights.state_dict()
        if self.base and config.lora.rank:
            # Merged into the float32 weights of the base: those in memory may have been rounded for training.
            adapter = out / "lora"
            adapter.mkdir(exist_ok=True)
            lora.save(adapter, network, trained)
            network, _ = _load_with_adapter(self.base, config)
            lora.load(adapter, network)
            with torch.no_grad():
                trained = lora.merged(network, dict(network.named_parameters()))
        network.save_pretrained(out, state_dict=trained)
        self.tokenizer.save_pretrained(out)

    def sharpen(self, factor: float) -> None:
        """Change the weights so that all logits are multiplied by ``factor``.

        Sampling at temperature T is then what it was at T / factor. Raises KeyError if the final norm does
        not train, as with an adapter.
        """
        with torch.no_grad():
            dict(self.master_weights.named_parameters())["model.norm.weight"].mul_(factor)
        self.master_weights.copy_to_model()


def _load_with_adapter(model: str, config: SFTConfig) -> tuple[Any, Any]:
    network, tokenizer = load_model(model, torch.device("cpu"))
    if config.lora.rank:
        lora.add(network, config.lora, config.seed, locate(model))
    return network, tokenizer


def _master_weights(network: Any, config: SFTConfig) -> MasterWeights:
    """Master weights; the model, which is on its device, computes in the type that a run would have there."""
    # A CPU without bfloat16 would need 150 times as long for such a product as for a float32 one.
    return MasterWeights(network, compute_dtype(config.compute_dtype, network.device))


def finished_model(config: SFTConfig, out: Path) -> SFTManifest | None:
    """The manifest of the finished model of ``config`` in ``out``; None if ``out`` is empty or missing.

    What a killed build of ``out`` was writing is deleted, and the phases of a finished model. Raises DataError
    if ``out`` holds anything else, CheckpointError if the model is damaged.
    """
    remove_unfinished(out.parent, name=out.name)  # others may be building next to it
    remove_unfinished(_phases(out))
    if not (out.exists() and any(out.iterdir())):
        return None
    made = read_json(out / MANIFEST, SFTManifest) if (out / MANIFEST).is_file() else None
    changed = differing_keys(made["config"], config) if made else []
    if made is None or changed:
        why = f"its recipe differs in {', '.join(changed)}" if made else f"it has no {MANIFEST}"
        raise DataError(f"{out} holds another model ({why}); move it away or give another folder with --out")
    _check_base(made, config, out)
    if damaged := altered(out):
        raise CheckpointError(
            f"{out} holds the model of this recipe, but it is damaged ({', '.join(damaged)}); delete it "
            "and build it again"
        )
    shutil.rmtree(_phases(out), ignore_errors=True)  # killed after its last phase
    return made


def load_or_begin(config: SFTConfig, out: Path) -> tuple[SFTManifest, Path | None]:
    """Find the checkpoint after which an interrupted build of the model ``out`` continues.

    Checkpoints are stored next to ``out``, in a folder .NAME.phases. Returns (manifest, folder of the last
    finished phase, or of the unfinished phase after it), or (a new manifest, None) if there is neither. The
    manifest has the new ``config``, with the examples and losses of the finished phases, and the examples of
    an unfinished one. An unfinished phase that is damaged or of another recipe is played and trained again,
    with a warning in the log.

    Raises DataError if the finished phases are of another config (later phases, ``sharpness`` and
    ``sources`` may differ), started from other weights or were made from other inputs, or if ``config`` has
    no phase after them. Raises CheckpointError if all of them are damaged.
    """
    manifest: SFTManifest = {
        "config": config.model_dump(mode="json"),
        "examples": [],
        "loss": [],
        "inputs": inputs_of(config),
    }

    # An interrupted build goes on after its last complete phase, if the recipe was the same up to there.
    last = last_good(_phases(out))
    if last:
        old = read_json(last / RECORD, SFTManifest)
        phases = len(old["loss"])
        if phases >= len(config.phases) or not _same_recipe(old, config, phases):
            raise DataError(
                f"{last}: the {phases} finished phases of {out} are of another configuration; give another "
                f"folder with --out, or delete {last.parent} to begin again"
            )
        _check_base(old, config, last.parent)
        check_inputs(old, config, last.parent)
        manifest = {**old, "config": manifest["config"]}

    # The phase after it may have begun.
    begun = _phases(out) / UNFINISHED
    if not begun.is_dir():
        return manifest, last
    unfinished = read_json(begun / RECORD, SFTManifest) if not altered(begun) else None
    phases = len(manifest["loss"])
    # A build that is killed when the phase has ended may leave its folder.
    if unfinished and len(unfinished["loss"]) < phases:
        return manifest, last
    if unfinished is None or not _same_recipe(unfinished, config, phases + 1):
        why = "of another configuration" if unfinished else "damaged"
        log.warning("%s is %s: phase %d is played and trained again", begun, why, phases + 1)
        return manifest, last
    _check_base(unfinished, config, begun.parent)
    check_inputs(unfinished, config, begun.parent)
    return {**unfinished, "config": manifest["config"]}, begun


def _same_recipe(made: SFTManifest, config: SFTConfig, phases: int) -> bool:
    """True if ``made`` is by ``config`` up to the phase number ``phases``, counted from 1."""
    # Later phases and the final sharpening may differ.
    before = {**made["config"], "phases": made["config"]["phases"][:phases]}
    changed = differing_keys(before, config.model_copy(update={"phases": config.phases[:phases]}))
    return set(changed) <= {"sharpness"}


def _check_base(made: SFTManifest, config: SFTConfig, folder: Path) -> None:
    """Raise DataError if the model from which ``made``, in ``folder``, started has other weights by now.

    Not checked if either digest is not known.
    """
    before = made.get("base_digest")
    now = model_digest(locate(config.model)) if config.model else None
    if before and now and before != now:
        raise DataError(
            f"{folder} was started from {config.model} with the digest {before}, which now has {now}: "
            f"restore that model, or move {folder} away to begin again, or give another folder with --out"
        )


def inputs_of(config: SFTConfig) -> dict[str, Any]:
    """Versions and digests of what decides the examples of a recipe, besides the recipe and its model.

    Keys: ``environment`` (as in a run's manifest), and where they are not empty ``edited_texts`` and
    ``own_code`` (r3l.config). Raises ConfigError for an unknown environment.
    """
    found: dict[str, Any] = {
        "environment": environment_inputs(config.env, (), config.prompts)["environment"],
        "edited_texts": edited_texts(),
        "own_code": user_code(config.env),
    }
    return {key: value for key, value in found.items() if value}


def check_inputs(made: SFTManifest, config: SFTConfig, folder: Path) -> None:
    """Raise DataError if ``made``, in ``folder``, was made from other inputs than this machine has now.

    Not checked for a build of an earlier r3l, which recorded none.
    """
    if "inputs" not in made:
        return
    now = inputs_of(config)
    if changes := [f"{key} {a}, which is {b} now" for key, a, b in differences(made["inputs"], now)]:
        raise DataError(
            f"{folder} was made with {', '.join(changes)}: restore that, or move {folder} away to begin again, "
            "or give another folder with --out"
        )


def store_phase(out: Path, model: SFTModel, config: SFTConfig, manifest: SFTManifest) -> None:
    """Write the checkpoint of the phase that ``manifest`` names last, next to ``out``.

    Of older checkpoints only the newest stays. Raises RunDirectoryError if that cannot be written.
    """
    steps = sum(phase.steps for phase in config.phases[: len(manifest["loss"])])
    with replacing(_phases(out) / name_of(steps)) as folder:
        model.save_phase(folder, config)
        write_json_atomic(folder / RECORD, manifest)
        write_digests(folder)
    for old in sorted(_phases(out).glob("step-*"))[:-2]:
        shutil.rmtree(old)
    shutil.rmtree(_phases(out) / UNFINISHED, ignore_errors=True)


def store_progress(
    out: Path, model: SFTModel, config: SFTConfig, manifest: SFTManifest, progress: PhaseProgress
) -> None:
    """Write the checkpoint of a phase that is not finished, in place of its last one.

    ``manifest`` has its examples already. Raises RunDirectoryError if that cannot be written.
    """
    with replacing(_phases(out) / UNFINISHED) as folder:
        model.save_phase(folder, config)
        progress.save(folder)
        write_json_atomic(folder / RECORD, manifest)
        write_digests(folder)


def store(out: Path, model: SFTModel, config: SFTConfig, manifest: SFTManifest) -> None:
    """Write the finished model, its digests and sft.json to ``out``; delete the checkpoints of its phases.

    The hash of the weights and their origin are added to ``manifest``, which is what sft.json has. Raises
    RunDirectoryError if ``out`` cannot be written.
    """
    with replacing(out) as folder:
        model.save(folder, config)
        manifest["command"] = f"r3l sft {config.name}"
        saved = [p for name, p in model.network.named_parameters() if ".lora_" not in name]  # merged
        manifest["parameters"] = sum(p.numel() for p in saved)
        manifest["weights_sha256"] = digest_with_names(folder / WEIGHTS)
        manifest["versions"] = versions()
        manifest["hardware"] = hardware()
        manifest["commit"] = commit()
        write_json_atomic(folder / MANIFEST, manifest)
        write_digests(folder)
    shutil.rmtree(_phases(out), ignore_errors=True)


def merge_adapter(adapter: Path, out: Path) -> SFTManifest:
    """Write the finished model of a stored ``adapter`` to ``out``, as :func:`store` wrote it; returns its manifest.

    ``adapter``: a folder with a finished model's sft.json and the files of its ``lora``. The published model
    that it adapts must be on this machine. Raises CheckpointError if that cannot be loaded or has other
    weights than in SFT, or if the merged weights are not those that SFT stored; DataError if sft.json
    cannot be read; RunDirectoryError if ``out`` cannot be written.
    """
    manifest = read_json(adapter / MANIFEST, SFTManifest)
    config = SFTConfig.model_validate(manifest["config"])
    model = SFTModel.load(config, adapter)
    with replacing(out) as folder:
        model.save(folder, config)
        if digest_with_names(folder / WEIGHTS) != manifest["weights_sha256"]:
            raise CheckpointError(
                f"{config.model} and the adapter in {adapter} merge to other weights than its {MANIFEST} names: "
                f"restore them (r3l model fetch {config.model}; git checkout {adapter}), or train the model "
                f"again: {manifest['command']} --model {config.model}"
            )
        write_json_atomic(folder / MANIFEST, manifest)
        write_digests(folder)
    return manifest


def _phases(out: Path) -> Path:
    """The folder of the checkpoints of an unfinished build of ``out``."""
    return out.with_name(f".{out.name}.phases")
