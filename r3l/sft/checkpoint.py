"""The checkpoint that SFT makes: weights in memory, and a folder on disk with the manifest sft.json."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NotRequired

import torch
from pydantic import AfterValidator
from typing_extensions import TypedDict

from r3l.config import locate
from r3l.core.errors import DataError
from r3l.files.digests import sha256_of, write_digests
from r3l.files.json_files import read_json
from r3l.files.writing import write_json_atomic
from r3l.local.checkpoint import load_model
from r3l.local.model import lora
from r3l.local.model.precision import MasterWeights, device_of
from r3l.runs.manifest import hardware, versions
from r3l.runs.provenance import commit
from r3l.sft.nano_model import build_model, build_tokenizer
from r3l.sft.recipe import SFTConfig

MANIFEST = "sft.json"
WEIGHTS = "model.safetensors"


def _with_phases(recipe: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(recipe.get("phases"), list):
        raise ValueError("a recipe with phases is expected")
    return recipe


class SFTManifest(TypedDict):
    """sft.json. ``examples`` and ``loss`` have one entry per finished phase; the rest is set when it is
    stored.
    """

    config: Annotated[dict[str, Any], AfterValidator(_with_phases)]  # SFTConfig, as JSON
    examples: list[dict[str, Any]]
    loss: list[list[float]]
    command: NotRequired[str]
    parameters: NotRequired[int]
    weights_sha256: NotRequired[str]
    versions: NotRequired[dict[str, str]]
    hardware: NotRequired[dict[str, Any]]
    commit: NotRequired[str | None]


@dataclass(frozen=True)
class SFTModel:
    """A transformers causal LM in training, with its tokenizer and float32 master weights."""

    network: Any
    tokenizer: Any
    master_weights: MasterWeights
    base: str | None = None  # the model it was loaded from

    @classmethod
    def load(cls, model: str, config: SFTConfig) -> SFTModel:
        """An existing model (stored, of configs/models, a folder or a hub id), with a fresh adapter if
        lora.rank > 0.
        """
        network, tokenizer = _load_with_adapter(model, config)
        network.to(device_of(config.device))
        return cls(network, tokenizer, _master_weights(network, config), model)

    @classmethod
    def new(cls, texts: Iterable[str], config: SFTConfig) -> SFTModel:
        """A nano model with random weights and a tokenizer trained on ``texts``."""
        tokenizer = build_tokenizer(texts, config.numbered_names)
        network = build_model(tokenizer, config.seed, config.layers, config.hidden_size)
        network.to(device_of(config.device))  # type: ignore[arg-type]
        return cls(network, tokenizer, _master_weights(network, config))

    def save(self, out: Path, config: SFTConfig) -> None:
        """Write the model to ``out`` in Hugging Face layout. An adapter is merged, and kept in ``out/lora``
        too.
        """
        trained, network = self.master_weights.state_dict(), self.network
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
        """Multiply all logits by ``factor``: sampling at temperature T then equals the old sampling at T /
        factor.
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
    """Master weights whose model computes in the recipe's dtype, on a CPU too: SFT samples nothing."""
    return MasterWeights(network, getattr(torch, config.compute_dtype))


def load_or_begin(config: SFTConfig, out: Path) -> SFTManifest:
    """The manifest of an interrupted build of this config in ``out``, or a new one if ``out`` is empty.

    Raises DataError if ``out`` holds a finished model, or finished phases that this config would not repeat.
    """
    new: SFTManifest = {"config": config.model_dump(mode="json"), "examples": [], "loss": []}
    if not out.exists() or not any(out.iterdir()):
        return new
    path = out / MANIFEST
    old = read_json(path, SFTManifest) if path.is_file() else new
    phases = len(old["loss"])
    if not 0 < phases < len(config.phases):
        raise DataError(f"{out} already holds a model; move it away or give another folder with --out")

    # A phase depends on the recipe up to it: later phases, the final sharpening and the sources may differ.
    def deciding(recipe: dict[str, Any]) -> dict[str, Any]:
        return {**recipe, "phases": recipe["phases"][:phases], "sharpness": None, "sources": None}

    if deciding(old["config"]) != deciding(new["config"]):
        raise DataError(f"{path}: its {phases} finished phases are of another configuration; move {out} away")
    if old.get("weights_sha256") != sha256_of(out / WEIGHTS):
        raise DataError(f"{out / WEIGHTS} is not the file that {path.name} describes; move {out} away")
    return {**new, "examples": old["examples"], "loss": old["loss"]}


def store(out: Path, model: SFTModel, manifest: SFTManifest) -> None:
    """Write weights, tokenizer, digests and ``manifest``, to which the weights' hash and their origin are
    added.
    """
    out.mkdir(parents=True, exist_ok=True)
    model.save(out, SFTConfig.model_validate(manifest["config"]))
    manifest["command"] = f"r3l sft {manifest['config']['name']}"
    manifest["parameters"] = sum(p.numel() for p in model.network.parameters())
    manifest["weights_sha256"] = sha256_of(out / WEIGHTS)
    manifest["versions"] = versions()
    manifest["hardware"] = hardware()
    manifest["commit"] = commit()
    write_json_atomic(out / MANIFEST, manifest)
    write_digests(out)
