"""What ``r3l doctor`` checks of a tier that this engine trains a published model in: does it fit on the GPU?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

from r3l.config import TierConfig, find_model
from r3l.config import gpu_memory as memory
from r3l.core.check import Check, verdict
from r3l.core.method import MethodSettings

FIX = (
    "by what is largest: lower train.tokens_per_microbatch (training), train.tasks_per_step, sampling.max_context or "
    "sampling.tokens_per_batch (caches; few runs fill them)"
)


def checks(config: TierConfig) -> Iterator[Check]:
    """The memory plan of the tier's model by formula (r3l.config.gpu_memory); nothing for a nano model, which needs
    none."""
    model = find_model(config.model)
    if model is None:
        return
    dialogs = config.train.tasks_per_step * int(MethodSettings.model_fields["group_size"].default)
    rounding = 4 if config.sampling.decoding == "compiled" else 1  # fixed shapes at their largest: r3l.local.kv_cache
    plan = memory.in_turns(
        model.architecture,
        max(config.train.tokens_per_microbatch, config.sampling.max_context),
        dialogs * config.sampling.max_context + rounding * (config.sampling.tokens_per_batch or 0),
        config.compute_dtype,
        reference=config.train.kl_metric_every > 0,
    )
    parts = ", ".join(f"{name} {value / memory.GIB:.1f}" for name, value in asdict(plan).items())
    card = _card()
    here = "no GPU here" if card is None else f"this GPU has {card / memory.GIB:.0f}"
    found = f"{plan.total / memory.GIB:.1f} GiB at most ({parts}); {here}"
    yield verdict(f"GPU memory for {config.model!r}", card is None or plan.total <= card, found, FIX)


def _card() -> int | None:
    """Bytes of the GPU that the engine takes; None without one."""
    import torch

    return int(torch.cuda.get_device_properties(0).total_memory) if torch.cuda.is_available() else None
