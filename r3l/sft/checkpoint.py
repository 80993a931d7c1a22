"""The checkpoint that SFT makes: its weights in memory, its folder on disk with the manifest sft.json."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from r3l.config import locate
from r3l.core.errors import DataError
from r3l.files.digests import sha256_of, write_digests
from r3l.files.json_files import read_json
from r3l.files.shapes import SFTUnderWay
from r3l.files.writing import write_json_atomic
from r3l.local.checkpoint import load_model
from r3l.local.model import lora
from r3l.local.model.precision import MasterWeights, device_of
from r3l.runs.manifest import hardware, versions
from r3l.runs.provenance import commit
from r3l.sft.nano_model import build_model, build_tokenizer
from r3l.sft.recipe import SFTConfig

MANIFEST, WEIGHTS = "sft.json", "model.safetensors"


@dataclass(frozen=True)
class SFTModel:
    """A causal LM of transformers in training, with its tokenizer and float32 weights."""

    network: Any
    tokenizer: Any
    master_weights: MasterWeights
    base: str | None = None  # what it was loaded from

    @classmethod
    def load(cls, model: str, config: SFTConfig) -> SFTModel:
        """A model that is there: stored, of configs/models, a folder or a hub id; with a fresh adapter where one is
        taught."""
        network, tokenizer = _with_adapter(model, config)
        network.to(device_of(config.device))
        return cls(network, tokenizer, _master_weights(network, config), model)

    @classmethod
    def new(cls, texts: Iterable[str], config: SFTConfig) -> SFTModel:
        """A nano model with random weights, its tokenizer trained on ``texts``."""
        tokenizer = build_tokenizer(texts, config.numbered_names)
        device = device_of(config.device)
        network = build_model(tokenizer, config.seed, config.layers, config.hidden_size).to(device)  # type: ignore[arg-type]
        return cls(network, tokenizer, _master_weights(network, config))

    def save(self, out: Path, config: SFTConfig) -> None:
        """Write the whole model, an adapter merged into the float32 weights of its base; beside it the adapter."""
        trained, network = self.master_weights.state_dict(), self.network
        if self.base and config.lora.rank:
            adapter = out / "lora"
            adapter.mkdir(exist_ok=True)
            lora.save(adapter, network, trained)
            network, _ = _with_adapter(self.base, config)
            lora.load(adapter, network)
            with torch.no_grad():
                trained = lora.merged(network, dict(network.named_parameters()))
        network.save_pretrained(out, state_dict=trained)
        self.tokenizer.save_pretrained(out)

    def sharpen(self, factor: float) -> None:
        """Multiply all logits by ``factor``: sampling at temperature T is from then on what it was at T / factor."""
        with torch.no_grad():
            dict(self.master_weights.named_parameters())["model.norm.weight"].mul_(factor)
        self.master_weights.copy_to_model()


def _with_adapter(model: str, config: SFTConfig) -> tuple[Any, Any]:
    network, tokenizer = load_model(model, torch.device("cpu"))
    if config.lora.rank:
        lora.add(network, config.lora, config.seed, locate(model))
    return network, tokenizer


def _master_weights(network: Any, config: SFTConfig) -> MasterWeights:
    """In the type that the recipe names: nothing is decoded here, so that a CPU's bfloat16 pays too."""
    return MasterWeights(network, getattr(torch, config.compute_dtype))


def begun(config: SFTConfig, out: Path) -> dict[str, Any]:
    """The manifest in ``out`` if its phases are this config's first ones, else a new one for an empty folder."""
    new: dict[str, Any] = {"config": config.model_dump(mode="json"), "examples": [], "loss": []}
    if not out.exists() or not any(out.iterdir()):
        return new
    path = out / MANIFEST
    old = read_json(path, SFTUnderWay) if path.is_file() else new
    phases = len(old["loss"])
    if not 0 < phases < len(config.phases):
        raise DataError(f"{out} already holds a model; move it away or give another folder with --out")
    if _of_first_phases(old["config"], phases) != _of_first_phases(new["config"], phases):
        raise DataError(f"{path}: its {phases} finished phases are of another configuration; move {out} away")
    if old["weights_sha256"] != sha256_of(out / WEIGHTS):
        raise DataError(f"{out / WEIGHTS} is not the one that {path.name} describes; move {out} away")
    return {**new, "examples": old["examples"], "loss": old["loss"]}


def _of_first_phases(config: dict[str, Any], count: int) -> dict[str, Any]:
    """What the first ``count`` phases depend on."""
    return {**config, "phases": config["phases"][:count], "sharpness": None, "sources": None}


def store(out: Path, model: SFTModel, manifest: dict[str, Any]) -> None:
    """Write weights, tokenizer and ``manifest``, which gets their hash and origin, and the digests of all files."""
    out.mkdir(parents=True, exist_ok=True)
    model.save(out, SFTConfig.model_validate(manifest["config"]))
    manifest |= {
        "command": f"r3l sft {manifest['config']['name']}",
        "parameters": sum(p.numel() for p in model.network.parameters()),
        "weights_sha256": sha256_of(out / WEIGHTS),
        "versions": versions(),
        "hardware": hardware(),
        "commit": commit(),
    }
    write_json_atomic(out / MANIFEST, manifest)
    write_digests(out)
