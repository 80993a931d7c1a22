"""Checks for the trinity engine: GPUs, memory (by formula), package versions in its environment, weights."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from r3l.config import EnvConfig, ModelConfig, gpu_memory, locate, resolve
from r3l.config.gpu_memory import GIB
from r3l.core.errors import ConfigError
from r3l.files.requirements import Finding, checked
from r3l.trinity.config import VERSION
from r3l.trinity.processes import TrinityEnvironment
from r3l.trinity.sizes import planned_models, tokens_per_gpu

CARD = 80.0  # GiB per GPU to plan with if this machine has no GPU
USABLE = 0.9  # share of a GPU; the rest is for CUDA, NCCL and fragmentation (Trinity warns at 0.8 or 0.9)
COLOCATED = 0.25  # share of vLLM on the GPU that it shares with verl (Trinity 0.6.0, config_validator.py)
OVERFULL = 1.5  # largest micro-batch, of the limit (verl 0.8, seqlen_balancing.py; four rows of 0.73 limits)
MAKE = "`make trinity`"
VERSIONS = {  # package: compatible versions, how to install them
    "trinity-rft": (f"=={VERSION}", MAKE),
    "ray": (">=2.50", MAKE),
    # verl 0.7 scales micro-batches by their rows, so that our sums over a step would be wrong.
    "verl": (">=0.8,<0.9", MAKE),
    "peft": (">=0.19,<0.21", MAKE),  # with 0.21 verl saves empty adapters
    "vllm": (">=0.19.1,<=0.23.0", f"{MAKE} on a machine with GPUs"),  # trinity-rft's extra vllm
    # Its extra flash_attn. Without it verl trains with torch's attention, and not by sequence_parallel.
    "flash-attn": (">=2.8.3", "`make flash`, or plan sequence_parallel: 1 in configs/models"),
}
LIST_PACKAGES = (
    "import importlib.metadata as m, json; "
    "print(json.dumps({d.metadata['Name']: d.version for d in m.distributions()}))"
)


def checks(tier: str, envs: list[EnvConfig], model: str | None = None) -> Iterator[Finding]:
    """Check GPUs, memory plans, package versions and weights for a tier on Trinity; yields the findings.

    They are for each model with GPUs planned in configs/models, or only for ``model``. ``envs``: the tier's
    environments; the length of their dialogs decides the memory, and they are not checked themselves. If no
    GPUs are planned for ``model``, there are only a failed finding that says so and the package versions.
    """
    cards, none = gpus()
    models = [planned for planned in planned_models() if model in (None, planned.model)]
    if not models:
        fix = (
            f"take one of {', '.join(planned.model for planned in planned_models())}, or give it a `cluster`"
        )
        yield Finding("GPUs", False, f"configs/models plans none for {model!r}", fix)
        yield from _versions()
        return
    most = max(planned.cluster.gpus_per_node for planned in models if planned.cluster)
    found = f"{len(cards)} of {min(cards):.0f} GiB" if cards else none
    fix = f"a node of {most} GPUs, or fewer gpus_per_node and engines in configs/models"
    yield checked("GPUs", len(cards) >= most, found, fix)
    yield from (_memory(tier, envs, each, min(cards) if cards else CARD) for each in models)
    yield from (_one_card(tier, envs, each, max(cards) if cards else CARD) for each in models)
    yield from _versions()
    yield from map(weights, models)


def gpus() -> tuple[list[float], str]:
    """([total memory of each GPU of this machine in GiB], the reason if there is none), by nvidia-smi."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return [], "none here (no nvidia-smi)"
    command = [program, "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return [], f"none: nvidia-smi says {(done.stdout + done.stderr).strip()!r}"
    return [float(line) / 1024 for line in done.stdout.split()], "none here (nvidia-smi)"


def _memory(tier: str, envs: list[EnvConfig], model: ModelConfig, card: float) -> Finding:
    """Memory plan for the environment with the largest micro-batches; R3L, so without a reference model."""
    cluster = model.cluster
    architecture = model.architecture
    assert cluster is not None
    # Training memory grows with the micro-batch, sampling memory with the context: plan for the largest
    # of each.
    runs = [resolve(tier, env.env, "r3l", 0, model.model) for env in envs]
    tokens = max(tokens_per_gpu(run, cluster) for run in runs)
    context = max(run.sampling.max_context for run in runs)
    # verl balances micro-batches by workload, so that one may exceed the limit: four rows of 12,000 tokens
    # under a limit of 16,384 make three micro-batches, one of 24,000.
    largest = math.ceil(OVERFULL * tokens)
    training = gpu_memory.training(architecture, largest, cluster.trainer_gpus, model.dtype)
    sampling = gpu_memory.sampling(
        architecture, card * GIB, cluster.sampling_memory, context, cluster.tensor_parallel, model.dtype
    )
    parts = ", ".join(f"{name} {size / GIB:.1f}" for name, size in vars(training).items() if size)
    found = (
        f"training on {cluster.trainer_gpus}: {training.total / GIB:.0f} of {card:.0f} GiB a GPU ({parts}); "
        f"sampling on {cluster.engines * cluster.tensor_parallel}: weights {sampling.weights / GIB:.1f}, "
        f"room for {sampling.dialogs:.0f} dialogs of {context} tokens an engine"
    )
    fits = training.total <= USABLE * card * GIB and sampling.dialogs >= 1
    fix = "lower train.tokens_per_microbatch, raise sequence_parallel or tensor_parallel, or take more GPUs"
    return checked(f"memory plan of {model.model} (formula)", fits, found, fix)


def _one_card(tier: str, envs: list[EnvConfig], model: ModelConfig, card: float) -> Finding:
    """Plans for a single GPU, by formula: verl and vLLM share it, or the local engine uses it in turns.

    Trinity's mode `colocate` gives vLLM a quarter of the GPU. No run uses this mode: as these plans show,
    training and sampling of this tier's dialogs seldom fit one GPU together.
    """
    from r3l.local.memory import overrides, report  # imports torch, which takes a second

    # Together: each needs its memory at the same time.
    runs = [resolve(tier, env.env, "r3l@engine=local", 0, model.model) for env in envs]
    tokens = max(max(run.train.tokens_per_microbatch, run.sampling.max_context) for run in runs)
    largest = math.ceil(OVERFULL * tokens)
    training = gpu_memory.training(model.architecture, largest, 1, model.dtype).total / GIB
    sampling = COLOCATED * card
    together = "fits" if training + sampling <= USABLE * card else "does not fit"

    # In turns: the plan of the environment that needs most, and the settings with which it fits.
    plan = max((report(run, card * GIB) for run in runs), key=lambda plan: plan["total_gib"])
    if plan["fits"]:
        in_turns = f"{plan['total_gib']:.0f} GiB, fits"
    elif plan["set"]:
        in_turns = f"{plan['total_gib_then']:.0f} GiB with {overrides(plan['set'])}"
    else:
        in_turns = f"{plan['total_gib']:.0f} GiB, does not fit"
    found = (
        f"of {card:.0f} GiB: colocated, training {training:.0f} and sampling {sampling:.0f} GiB, {together}; "
        f"--engine local, {in_turns}"
    )
    return Finding(f"{model.model} on one GPU (formula)", True, found)


def _versions() -> Iterator[Finding]:
    """Check the packages of VERSIONS in Trinity's environment; one finding if that is missing or broken."""
    from packaging.specifiers import SpecifierSet

    try:
        python = TrinityEnvironment.find().program("python")
    except ConfigError as error:
        yield Finding("Trinity's environment", False, str(error), f"{MAKE}, or set R3L_TRINITY")
        return
    # Ask that environment's own Python, since this process runs in another one.
    done = subprocess.run([python, "-c", LIST_PACKAGES], capture_output=True, text=True)
    if done.returncode:
        error_line = (done.stderr.strip() or f"{python} ended with {done.returncode}").splitlines()[-1]
        yield Finding("Trinity's environment", False, error_line, f"delete it and {MAKE}")
        return

    installed = {name.lower().replace("_", "-"): version for name, version in json.loads(done.stdout).items()}
    for name, (wanted, how) in VERSIONS.items():
        version = installed.get(name)
        matches = version is not None and SpecifierSet(wanted).contains(version, prereleases=True)
        yield checked(f"{name} (Trinity)", matches, version or "missing", f"{wanted}: {how}")


def weights(model: ModelConfig) -> Finding:
    """Check whether the weights of ``model`` are on this machine: where, or how to get them.

    Nothing is downloaded; of the Hugging Face cache only config.json is looked up.
    """
    from huggingface_hub import try_to_load_from_cache

    # A local folder comes first, then the Hugging Face cache.
    folder = locate(model.model)
    cached = try_to_load_from_cache(model.hub, "config.json")
    if Path(folder).is_dir():
        found = folder
    elif isinstance(cached, str):
        found = str(Path(cached).parent)
    else:
        found = None
    fix = f"`hf download {model.hub}`, or set R3L_MODELS to a folder that has {Path(model.hub).name}/"
    return checked(f"weights of {model.model}", found is not None, found or f"{model.hub}: not here", fix)
