"""What the trinity engine needs: GPUs, memory (by formula), versions in its own environment, weights."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from r3l.config import EnvConfig, ModelConfig, gpu_memory, locate, resolve
from r3l.config.gpu_memory import GIB
from r3l.core.errors import ConfigError
from r3l.files.requirements import Finding, checked
from r3l.trinity.config import VERSION
from r3l.trinity.processes import Environment
from r3l.trinity.sizes import planned_models, tokens_per_gpu

CARD = 80.0  # GiB of a GPU to plan for where there is none
USABLE = 0.9  # of a GPU; the rest is for CUDA, NCCL and fragments (Trinity warns at 0.8 or 0.9)
MAKE = "make trinity"
GPU_EXTRA = f"in .venv-trinity: pip install 'trinity-rft[vllm,flash_attn]=={VERSION}'"
VERSIONS = {  # package: versions that go together, how to get them
    "trinity-rft": (f"=={VERSION}", MAKE),
    "ray": (">=2.50", MAKE),
    "verl": (">=0.7.1,<0.9", MAKE),
    "vllm": (">=0.19.1,<=0.23.0", GPU_EXTRA),  # trinity-rft's extra vllm
    "flash-attn": (">=2.8.3", GPU_EXTRA),  # its extra flash_attn; verl's trainer imports it
}
ASK = (
    "import importlib.metadata as m, json; "
    "print(json.dumps({d.metadata['Name']: d.version for d in m.distributions()}))"
)


def checks(tier: str, envs: list[EnvConfig], model: str | None = None) -> Iterator[Finding]:
    """Every check of a tier of this engine, or of one model in it, but for the environments' own."""
    cards = gpus()
    models = [planned for planned in planned_models() if model in (None, planned.model)]
    yield _gpus(cards, models)
    yield from (_memory(tier, envs, each, min(cards) if cards else CARD) for each in models)
    yield from _versions()
    yield from map(_weights, models)


def gpus() -> list[float]:
    """GiB of each GPU of this machine, as nvidia-smi tells them."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    ask = [program, "--query-gpu=gpu_memory.total", "--format=csv,noheader,nounits"]
    done = subprocess.run(ask, capture_output=True, text=True)
    return [float(line) / 1024 for line in done.stdout.split()] if done.returncode == 0 else []


def _gpus(cards: list[float], models: list[ModelConfig]) -> Finding:
    needed = {m.model: m.cluster.gpus_per_node for m in models if m.cluster}
    most = max(needed.values())
    found = f"{len(cards)} of {min(cards):.0f} GiB" if cards else "none here (nvidia-smi)"
    fix = f"a node of {most} GPUs, or fewer gpus_per_node and engines in configs/models"
    return checked("GPUs", len(cards) >= most, found, fix)


def _memory(tier: str, envs: list[EnvConfig], model: ModelConfig, card: float) -> Finding:
    """The plan of the environment with the largest micro-batches, R3L without a reference model."""
    cluster, a = model.cluster, model.architecture
    assert cluster is not None
    runs = [resolve(tier, env.env, "r3l", 0, model.model) for env in envs]
    tokens = max(tokens_per_gpu(run, cluster) for run in runs)
    context = max(run.sampling.max_context for run in runs)
    training = gpu_memory.training(a, tokens, cluster.trainer_gpus, model.dtype)
    sampling = gpu_memory.sampling(
        a, card * GIB, cluster.sampling_memory, context, cluster.tensor_parallel, model.dtype
    )
    parts = ", ".join(f"{name} {size / GIB:.1f}" for name, size in vars(training).items() if size)
    found = (
        f"training on {cluster.trainer_gpus}: {training.total / GIB:.0f} of {card:.0f} GiB a GPU ({parts}); "
        f"sampling on {cluster.engines * cluster.tensor_parallel}: weights {sampling.weights / GIB:.1f}, room "
        f"for {sampling.dialogs:.0f} dialogs of {context} tokens an engine"
    )
    fits = training.total <= USABLE * card * GIB and sampling.dialogs >= 1
    fix = "lower train.tokens_per_microbatch, raise sequence_parallel or tensor_parallel, or take more GPUs"
    return checked(f"memory plan of {model.model} (formula)", fits, found, fix)


def _versions() -> Iterator[Finding]:
    from packaging.specifiers import SpecifierSet

    try:
        python = Environment.find().program("python")
    except ConfigError as error:
        yield Finding("Trinity's environment", False, str(error), f"{MAKE}, or set R3L_TRINITY")
        return
    done = subprocess.run([python, "-c", ASK], capture_output=True, text=True)
    if done.returncode:
        yield Finding("Trinity's environment", False, done.stderr.strip().splitlines()[-1], f"delete it and {MAKE}")
        return
    installed = {name.lower().replace("_", "-"): version for name, version in json.loads(done.stdout).items()}
    for name, (wanted, how) in VERSIONS.items():
        version = installed.get(name)
        right = version is not None and SpecifierSet(wanted).contains(version, prereleases=True)
        yield checked(f"{name} (Trinity)", right, version or "missing", f"{wanted}: {how}")


def _weights(model: ModelConfig) -> Finding:
    from huggingface_hub import try_to_load_from_cache

    where = locate(model.model)
    cached = try_to_load_from_cache(model.hub, "config.json")
    here = Path(where).is_dir() or isinstance(cached, str)
    found = where if Path(where).is_dir() else str(Path(str(cached)).parent) if here else f"{model.hub}: not here"
    name = Path(model.hub).name
    fix = f"hf download {model.hub}, or set R3L_MODELS to a folder that has {name}/"
    return checked(f"weights of {model.model}", here, found, fix)
