"""LoRA (2106.09685) by peft: chosen projections compute W x + alpha / rank * B A x, and only A and B train.

peft puts its layers into the modules of the model. So sampling, training and, with the adapter off, the
reference are one model with one set of frozen weights. A checkpoint holds only A and B, in the layout that
peft's PeftModel loads. peft is imported only to make an adapter, since it imports half of transformers.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig

from r3l.config import model_digest
from r3l.config.tier import LoraConfig
from r3l.core.errors import CheckpointError, ConfigError
from r3l.core.pretrained import pretrained
from r3l.core.seeds import generator
from r3l.files.json_files import read_json
from r3l.files.requirements import require
from r3l.files.writing import write_json_atomic

ADAPTER = "adapter_model.safetensors"  # peft's names
CONFIG = "adapter_config.json"
ADAPTER_NAME = "default"  # the adapter's key in peft's dictionaries (lora_A, lora_B, scaling, peft_config)
_PREFIX = "base_model.model."  # of the names of a PeftModel's tensors


def add(model: Any, config: LoraConfig, seed: int, base: str) -> None:
    """Freeze ``model`` and add a new LoRA adapter to it, in place; only the adapter is trainable then.

    The adapter changes no output yet: B is 0, A is drawn by ``seed``. ``base``: folder or hub id that
    ``model`` was loaded from; its name and digest are stored with the adapter, so that :func:`load` can
    refuse an adapter of another model. Raises ConfigError if peft is missing, or if ``model`` lacks a
    projection that ``config.targets`` names.
    """
    require("smol", "LoRA")
    import peft

    target_modules(model, config)
    settings = peft.LoraConfig(
        r=config.rank,
        lora_alpha=config.alpha,
        target_modules=[*config.targets],
        base_model_name_or_path=_name(base),
        revision=model_digest(base),
    )
    peft.inject_adapter_in_model(settings, model, ADAPTER_NAME)

    # A from our own seed address, since peft draws it from torch's global generator.
    for name, layer in _layers(model):
        weight = layer.lora_A[ADAPTER_NAME].weight
        weight.data.copy_(_drawn(seed, name, weight.shape))


def without_weights(base: str) -> Any:
    """The model ``base``, a folder or hub id, on the meta device; only its configuration is read."""
    from transformers import AutoModelForCausalLM

    config = pretrained(AutoConfig, base)
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]


def target_modules(model: Any, config: LoraConfig) -> dict[str, Any]:
    """The modules of ``model`` with a weight that ``config.targets`` name, by their full names.

    Raises ConfigError if ``model`` lacks one of the targets.
    """
    # peft skips targets that the model lacks as long as it finds one; the adapter would be smaller.
    weighted = {name: module for name, module in model.named_modules() if hasattr(module, "weight")}
    targeted = {name: m for name, m in weighted.items() if name.rpartition(".")[2] in config.targets}
    if absent := sorted({*config.targets} - {name.rpartition(".")[2] for name in targeted}):
        left = [name for name in config.targets if name not in absent]
        raise ConfigError(
            f"lora.targets: {model.name_or_path} has no projection {', '.join(absent)}. "
            + (f"An adapter of only the others: lora.targets=[{','.join(left)}]. " if left else "")
            + "Without one all weights train: lora.rank=0"
        )
    return targeted


def _drawn(seed: int, name: str, shape: Sequence[int]) -> torch.Tensor:
    """Initial matrix A of the projection ``name``, shape (rank, input width), drawn as linear layers are."""
    bound = shape[1] ** -0.5
    return torch.from_numpy(generator(seed, "lora", name).uniform(-bound, bound, tuple(shape)))


def write_start(folder: Path, config: LoraConfig, seed: int, base: str) -> None:
    """Write a new, untrained LoRA adapter for the model ``base`` into ``folder``, which is made if needed.

    It has the numbers that :func:`add` would give it with this ``seed``, for an engine that trains in other
    processes. ``base``: a folder or hub id; only its configuration is read, no weights. Raises ConfigError,
    before anything is written, if the model lacks a projection that ``config.targets`` names.
    """
    tensors = {}
    for name, module in target_modules(without_weights(base), config).items():
        out, width = module.weight.shape
        tensors[f"{_PREFIX}{name}.lora_A.weight"] = _drawn(seed, name, (config.rank, width)).float()
        tensors[f"{_PREFIX}{name}.lora_B.weight"] = torch.zeros(out, config.rank)
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder, tensors, config.rank, config.alpha, config.targets, _name(base), model_digest(base))


def adopt(trained: Path, start: Path) -> None:
    """Rewrite the adapter in the folder ``trained``, saved by another engine, in the form of :func:`save`.

    Its tensors become float32, and its configuration is copied from ``start``, the folder of the untrained
    adapter (:func:`write_start`). Raises CheckpointError if their tensors differ in names or shapes.
    """
    tensors = load_file(trained / ADAPTER)
    first = load_file(start / ADAPTER)
    if {name: t.shape for name, t in tensors.items()} != {name: t.shape for name, t in first.items()}:
        raise CheckpointError(
            f"{trained / ADAPTER} has other tensors than {start / ADAPTER}, with which training began: train "
            "again"
        )
    save_file({name: t.float() for name, t in tensors.items()}, trained / ADAPTER, metadata={"format": "pt"})
    shutil.copy(start / CONFIG, trained / CONFIG)


def has_adapter(model: Any) -> bool:
    """True if :func:`add` has given ``model`` an adapter."""
    return hasattr(model, "peft_config")


@contextmanager
def without_adapter(model: Any) -> Iterator[None]:
    """In the block ``model`` computes without its LoRA adapter, as its base checkpoint does.

    Does nothing to a model that has no adapter.
    """
    for _, layer in _layers(model):
        layer.enable_adapters(False)
    try:
        yield
    finally:
        for _, layer in _layers(model):
            layer.enable_adapters(True)


def merged(model: Any, weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """New weights, by name, that need no LoRA adapter: W + alpha / rank * B A instead of each adapted W.

    ``weights``: weights of ``model`` by name. The result has the base checkpoint's names; ``model`` itself
    stays as it is. Computed in float64 and rounded once, so that the bytes are the same on every machine.
    """
    own = {name: weight for name, weight in weights.items() if ".lora_" not in name}
    plain = {name.replace(".base_layer.", "."): weight for name, weight in own.items()}
    for name, layer in _layers(model):
        base = plain[f"{name}.weight"]
        a = layer.lora_A[ADAPTER_NAME].weight
        b = layer.lora_B[ADAPTER_NAME].weight
        total = base.double() + layer.scaling[ADAPTER_NAME] * (b.detach().double() @ a.detach().double())
        plain[f"{name}.weight"] = total.to(base.dtype)
    return plain


def save(folder: Path, model: Any, trained: Mapping[str, torch.Tensor]) -> None:
    """Write a LoRA adapter into ``folder``, in the layout that peft's PeftModel loads.

    ``folder`` must exist; its old adapter is replaced. ``trained``: the adapter's tensors, by their names in
    ``model``. It writes settings of ``model`` too: rank, alpha, targets, name and digest of the base
    checkpoint.
    """
    by_peft = {_PREFIX + name.replace(f".{ADAPTER_NAME}.", "."): tensor for name, tensor in trained.items()}
    tensors = {name: tensor.contiguous() for name, tensor in by_peft.items()}
    own = model.peft_config[ADAPTER_NAME]
    base = own.base_model_name_or_path
    _write(folder, tensors, own.r, own.lora_alpha, own.target_modules, base, own.revision)


def _write(
    folder: Path,
    tensors: Mapping[str, torch.Tensor],
    rank: int,
    alpha: int,
    targets: Collection[str],
    base: str | None,
    digest: str | None,
) -> None:
    """Write an adapter in peft's layout; not by peft, which writes targets in the order of a set."""
    save_file(dict(tensors), folder / ADAPTER, metadata={"format": "pt"})
    settings = {"r": rank, "lora_alpha": alpha, "target_modules": sorted(targets)}
    of_base = {"base_model_name_or_path": base, "revision": digest}
    write_json_atomic(folder / CONFIG, {"peft_type": "LORA", "task_type": "CAUSAL_LM"} | settings | of_base)


def load(folder: Path, model: Any, packaged: str | None = None) -> None:
    """Load the LoRA adapter in ``folder`` into ``model``, which has one already (:func:`add`).

    ``packaged``: digest of the file from which the base checkpoint was made, which earlier adapters have
    instead of the digest of its folder. Raises CheckpointError if the adapter was trained on a base
    checkpoint with another digest, DataError if its configuration cannot be read.
    """
    config = read_json(folder / CONFIG)
    revision = model.peft_config[ADAPTER_NAME].revision
    if config["revision"] not in (revision, packaged or revision):
        raise CheckpointError(
            f"{folder} is an adapter of the base checkpoint {config['base_model_name_or_path']} with the "
            f"digest {config['revision']}, but that in {model.name_or_path} has {revision}: restore it, or "
            "train again"
        )
    names = {_PREFIX + name.replace(f".{ADAPTER_NAME}.", "."): name for name, _ in model.named_parameters()}
    tensors = load_file(folder / ADAPTER)
    model.load_state_dict({names[name]: tensor for name, tensor in tensors.items()}, strict=False)


def _layers(model: Any) -> Iterator[tuple[str, Any]]:
    """Layers of peft in ``model``, each with the name of the projection that it replaces."""
    return ((name, module) for name, module in model.named_modules() if hasattr(module, "lora_A"))


def _name(base: str) -> str:
    """Name of a base checkpoint: of its folder, without the path, or its hub id."""
    return Path(base).name if Path(base).is_dir() else base
