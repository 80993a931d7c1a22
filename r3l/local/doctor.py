"""``r3l doctor`` for this engine: does the tier's published model fit on the GPU?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

from r3l.config import ArchitectureConfig, TierConfig, find_model
from r3l.config import gpu_memory as memory
from r3l.config.tier import TierSettings
from r3l.core.method import MethodSettings
from r3l.core.requirements import Finding, checked

FIX = (
    "lower what is largest: train.tokens_per_microbatch (training), train.tasks_per_step, sampling.max_context or "
    "sampling.tokens_per_batch (caches; few runs fill them)"
)


def checks(config: TierConfig) -> Iterator[Finding]:
    """The memory that the tier's model takes, by formula (r3l.config.gpu_memory); no check for a nano model."""
    model = find_model(config.model)
    if model is None:
        return
    plan = memory_plan(model.architecture, config)
    parts = ", ".join(f"{name} {value / memory.GIB:.1f}" for name, value in asdict(plan).items())
    capacity = _gpu_bytes()
    here = "no GPU here" if capacity is None else f"this GPU has {capacity / memory.GIB:.0f}"
    summary = f"{plan.total / memory.GIB:.1f} GiB at most ({parts}); {here}"
    yield checked(f"GPU memory for {config.model!r}", capacity is None or plan.total <= capacity, summary, FIX)


def memory_plan(architecture: ArchitectureConfig, settings: TierSettings) -> memory.InTurns:
    """What a run of these settings takes at most."""
    train, sampling = settings.train, settings.sampling
    dialogs = train.tasks_per_step * int(MethodSettings.model_fields["group_size"].default)
    return memory.in_turns(
        architecture,
        max(train.tokens_per_microbatch, sampling.max_context),
        dialogs * sampling.max_context + (sampling.tokens_per_batch or 0),
        settings.compute_dtype.removesuffix("_anywhere"),
        reference=train.kl_metric_every > 0,
    )


def _gpu_bytes() -> int | None:
    """Bytes of the GPU that the engine takes; None without one."""
    import torch

    return int(torch.cuda.get_device_properties(0).total_memory) if torch.cuda.is_available() else None
