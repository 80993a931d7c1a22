"""LoRA (2106.09685) by peft: chosen projections compute W x + alpha / rank * B A x, and only A and B train.

peft puts its layers into the modules of the model, so that sampling, training and, with the adapter off, the reference
are one model with one set of frozen weights. A checkpoint holds A and B alone, in the layout that peft's PeftModel
loads. peft is imported where an adapter is made: it brings half of transformers.
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

from r3l.config import model_identity
from r3l.config.tier import LoraConfig
from r3l.core.errors import CheckpointError, ConfigError
from r3l.core.pretrained import pretrained
from r3l.core.seeds import generator
from r3l.files.json_files import read_json
from r3l.files.requirements import require
from r3l.files.writing import write_json_atomic

ADAPTER, CONFIG = "adapter_model.safetensors", "adapter_config.json"  # peft's names
_NAME, _PREFIX = "default", "base_model.model."  # of the adapter in the model; of a PeftModel's tensors


def add(model: Any, config: LoraConfig, seed: int, base: str) -> None:
    """Freeze ``model`` and give it an adapter that changes nothing yet: B is 0, A is drawn at addresses of ``seed``.

    ``base``: the base checkpoint that it was loaded from.

    Raises ConfigError where peft is missing, or the model has no projection of a name in ``targets``.
    """
    require("smol", "LoRA")
    import peft

    projections = {name.rpartition(".")[2] for name, module in model.named_modules() if hasattr(module, "weight")}
    if absent := sorted({*config.targets} - projections):
        left = [name for name in config.targets if name not in absent]
        raise ConfigError(
            f"lora.targets: {model.name_or_path} has no projection {', '.join(absent)}. "
            + (f"An adapter of the others alone: lora.targets=[{','.join(left)}]. " if left else "")
            + "Without one all weights train: lora.rank=0"
        )
    settings = peft.LoraConfig(
        r=config.rank,
        lora_alpha=config.alpha,
        target_modules=[*config.targets],
        base_model_name_or_path=_name(base),
        revision=_digest(base),
    )
    peft.inject_adapter_in_model(settings, model, _NAME)
    for name, layer in _layers(model):
        weight = layer.lora_A[_NAME].weight
        weight.data.copy_(_drawn(seed, name, weight.shape))


def _drawn(seed: int, name: str, shape: Sequence[int]) -> torch.Tensor:
    """A of the projection ``name``, shape (rank, width of its input): as peft and torch draw a linear layer."""
    bound = shape[1] ** -0.5
    return torch.from_numpy(generator(seed, "lora", name).uniform(-bound, bound, tuple(shape)))


def write_start(folder: Path, config: LoraConfig, seed: int, base: str) -> None:
    """Write the adapter that :func:`add` begins with, for an engine that trains elsewhere; no weight is read.

    ``base``: a folder or hub id, of which the configuration alone is read.
    """
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(pretrained(AutoConfig, base))  # type: ignore[no-untyped-call]
    tensors = {}
    for name, module in model.named_modules():
        if name.rpartition(".")[2] in config.targets:
            out, width = module.weight.shape
            tensors[f"{_PREFIX}{name}.lora_A.weight"] = _drawn(seed, name, (config.rank, width)).float()
            tensors[f"{_PREFIX}{name}.lora_B.weight"] = torch.zeros(out, config.rank)
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder, tensors, config.rank, config.alpha, config.targets, _name(base), _digest(base))


def adopt(trained: Path, start: Path) -> None:
    """Give the adapter in ``trained``, which another engine has written, the form of :func:`save`.

    ``start``: that of :func:`write_start`, with which it began. Raises CheckpointError where its tensors are others.
    """
    tensors, first = load_file(trained / ADAPTER), load_file(start / ADAPTER)
    if {name: t.shape for name, t in tensors.items()} != {name: t.shape for name, t in first.items()}:
        raise CheckpointError(
            f"{trained / ADAPTER} has other tensors than {start / ADAPTER}, with which training began: train again"
        )
    save_file({name: t.float() for name, t in tensors.items()}, trained / ADAPTER, metadata={"format": "pt"})
    shutil.copy(start / CONFIG, trained / CONFIG)


def has_adapter(model: Any) -> bool:
    """Whether :func:`add` was here."""
    return hasattr(model, "peft_config")


@contextmanager
def without_adapter(model: Any) -> Iterator[None]:
    """Inside, ``model`` computes with its frozen weights alone."""
    for _, layer in _layers(model):
        layer.enable_adapters(False)
    try:
        yield
    finally:
        for _, layer in _layers(model):
            layer.enable_adapters(True)


def projected(module: Any, hidden_N_H: torch.Tensor) -> torch.Tensor:
    """``module(hidden)``, of peft's layers in three products: on a GPU each operation less is time."""
    if not hasattr(module, "lora_A") or module.disable_adapters:
        return module(hidden_N_H)  # type: ignore[no-any-return]
    a, b = module.lora_A[_NAME].weight, module.lora_B[_NAME].weight
    return module.base_layer(hidden_N_H).addmm_(hidden_N_H @ a.T, b.T, alpha=module.scaling[_NAME])  # type: ignore[no-any-return]


def merged(model: Any, weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """``weights`` of ``model`` under the names of its base checkpoint, W + alpha / rank * B A in place of W.

    Computed in float64 and rounded once, so that whole models of one adapter are the same bytes on other machines.
    """
    plain = {name.replace(".base_layer.", "."): weight for name, weight in weights.items() if ".lora_" not in name}
    for name, layer in _layers(model):
        base, a, b = plain[f"{name}.weight"], layer.lora_A[_NAME].weight, layer.lora_B[_NAME].weight
        whole = base.double() + layer.scaling[_NAME] * (b.detach().double() @ a.detach().double())
        plain[f"{name}.weight"] = whole.to(base.dtype)
    return plain


def save(folder: Path, model: Any, trained: Mapping[str, torch.Tensor]) -> None:
    """Write the adapter, whose tensors are ``trained`` by the names of ``model``, and what it is an adapter of."""
    tensors = {_PREFIX + name.replace(f".{_NAME}.", "."): tensor.contiguous() for name, tensor in trained.items()}
    own = model.peft_config[_NAME]
    _write(folder, tensors, own.r, own.lora_alpha, own.target_modules, own.base_model_name_or_path, own.revision)


def _write(
    folder: Path,
    tensors: Mapping[str, torch.Tensor],
    rank: int,
    alpha: int,
    targets: Collection[str],
    base: str | None,
    digest: str | None,
) -> None:
    """In peft's layout, but not by peft, which writes targets in the order of a set."""
    save_file(dict(tensors), folder / ADAPTER, metadata={"format": "pt"})
    settings = {"r": rank, "lora_alpha": alpha, "target_modules": sorted(targets)}
    of_base = {"base_model_name_or_path": base, "revision": digest}
    write_json_atomic(folder / CONFIG, {"peft_type": "LORA", "task_type": "CAUSAL_LM"} | settings | of_base)


def load(folder: Path, model: Any) -> None:
    """Put the adapter in ``folder`` into ``model``. Raises CheckpointError where it is of another base checkpoint."""
    stated, found = read_json(folder / CONFIG), model.peft_config[_NAME].revision
    if stated["revision"] != found:
        raise CheckpointError(
            f"{folder} is an adapter of the base checkpoint {stated['base_model_name_or_path']} with the digest "
            f"{stated['revision']}, but that in {model.name_or_path} has {found}: restore it, or train again"
        )
    names = {_PREFIX + name.replace(f".{_NAME}.", "."): name for name, _ in model.named_parameters()}
    tensors = load_file(folder / ADAPTER)
    model.load_state_dict({names[name]: tensor for name, tensor in tensors.items()}, strict=False)


def _layers(model: Any) -> Iterator[tuple[str, Any]]:
    """peft's layers in ``model``, by the names of the projections that they stand for."""
    return ((name, module) for name, module in model.named_modules() if hasattr(module, "lora_A"))


def _name(base: str) -> str:
    """Of a base checkpoint: its folder's, wherever that lies, or its hub id."""
    return Path(base).name if Path(base).is_dir() else base


def _digest(base: str) -> str | None:
    """Of a base checkpoint's folder, or its revision on the hub."""
    identity = model_identity(base)
    return identity.get("sha256") or identity.get("revision")
