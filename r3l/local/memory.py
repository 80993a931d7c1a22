"""GPU memory: a plan by formula, settings that make a run fit, and explained out-of-memory errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from itertools import product
from typing import Any, TypeVar

import torch

from r3l.config import ArchitectureConfig, Run, TierConfig, build_method, find_model, names
from r3l.config import gpu_memory as memory
from r3l.config.tier import TierSettings, TrainConfig
from r3l.core.errors import ConfigError, EngineError, did_you_mean
from r3l.core.method import Method, MethodSettings
from r3l.files.requirements import Finding, checked

# Share of a GPU for CUDA and fragmentation: our choice (an H100 with room to spare held 4 to 23 % more).
SPARE = 0.1
RANK = 16  # rank of the adapter that is proposed: our choice, TRL's default
SAMPLING_REMEDY = (
    "lower sampling.tokens_per_batch; if that is not enough, train.tasks_per_step or sampling.max_context"
)
TRAINING_REMEDY = "lower train.tokens_per_microbatch, or set train.gradient_checkpointing=true"
NOTHING_FITS = "take a smaller model or a larger GPU, or lower sampling.max_context"

S = TypeVar("S", bound=TierSettings)


def checks(config: TierConfig) -> Iterator[Finding]:
    """Check by formula (r3l.config.gpu_memory) that training the tier's model fits this machine's GPU.

    Yields one finding; none if the model's sizes are unknown (not in configs/models, as at nano). Without a
    GPU it passes.
    """
    model = find_model(config.model)
    if model is None:
        return
    dialogs = int(MethodSettings.model_fields["group_size"].default)
    capacity = gpu_memory()
    found = _report(model.architecture, config, dialogs, capacity)
    here = "no GPU here" if capacity is None else f"this GPU has {capacity / memory.GIB:.0f}"
    summary = f"{found['total_gib']:.1f} GiB at most ({_parts(found['plan_gib'])}); {here}"
    fix = f"`{overrides(found['set'])}`" if found.get("set") else NOTHING_FITS
    yield checked(f"GPU memory for {config.model!r}", found["fits"] is not False, summary, fix)


def report(run: Run, capacity: float | None) -> dict[str, Any]:
    """Plan the GPU memory that ``run`` needs at most, by formula.

    The result has ``run``, ``plan_gib`` (GiB by part), ``total_gib`` and ``fits``. ``capacity``: bytes of the
    GPU; without it ``fits`` is None. With it, the result also has ``gpu_gib`` and ``set``. ``set`` holds the
    settings to change so that the run fits: {} if it fits already, None if no change is enough. If it names
    settings, ``total_gib_then`` is the total after the change. Raises ConfigError unless the run has the
    local engine and its model a file in configs/models.
    """
    model = find_model(run.model)
    method = build_method(run)
    if run.engine != "local":
        raise ConfigError(
            f"this plan is for the local engine; r3l doctor --tier {run.tier} has the one of the tier",
        )
    if model is None:
        raise ConfigError(
            f"--model {run.model}{did_you_mean(run.model, names('models'))}: a memory plan needs sizes; "
            "write a file of configs/models for it",
        )
    dialogs = method.max_rollouts // method.max_rounds
    return {"run": run.cell, **_report(model.architecture, run, dialogs, capacity, method)}


def rendered(found: Mapping[str, Any]) -> str:
    """Text of a memory plan that :func:`report` returned: sizes, whether it fits, what to change."""
    lines = [
        f"{found['run']}: {found['total_gib']:.1f} GiB of GPU memory at most",
        f"  {_parts(found['plan_gib'])}",
    ]
    if found["fits"] is None:
        return "\n".join([*lines, "no GPU here: --gib N says whether it fits one of N GiB"])
    has = f"{found['gpu_gib']:.0f} GiB, of which a tenth stays free for CUDA and fragments"
    if found["fits"]:
        return "\n".join([*lines, f"fits {has}"])
    lines.append(f"does not fit {has}")
    if found["set"] is None:
        return "\n".join([*lines, f"no settings make it fit: {NOTHING_FITS}"])
    lines += [f"fits with {found['total_gib_then']:.1f} GiB as", f"  {overrides(found['set'])}"]
    return "\n".join(lines)


def overrides(changes: Mapping[str, Any]) -> str:
    """``changes`` (setting key -> value) as command-line options: ``--set KEY=VALUE --set ...``."""
    return " ".join(f"--set {key}={str(value).lower()}" for key, value in changes.items())


def gpu_memory() -> float | None:
    """Total memory of this machine's first CUDA GPU in bytes; None without one."""
    return float(torch.cuda.get_device_properties(0).total_memory) if torch.cuda.is_available() else None


def needs_base(train: TrainConfig, method: Method | None) -> bool:
    """True if training needs the base checkpoint's log-probs: for a KL, its metric, or a frozen teacher.

    ``method``: None for one without KL and teacher.
    """
    of_method = method is not None and (method.kl_coef > 0 or method.teacher == "frozen")
    return of_method or train.kl_metric_every > 0


def memory_plan(
    a: ArchitectureConfig, settings: TierSettings, dialogs: int, method: Method | None = None
) -> memory.InTurns:
    """The most GPU memory (bytes, by part) that a run with these settings needs, by formula.

    One process samples and trains in turn. ``a``: sizes of the model. ``dialogs``: number of dialogs per task
    that are played at once. ``method``: as for :func:`needs_base`.
    """
    train = settings.train
    sampling = settings.sampling
    cached = train.tasks_per_step * dialogs * sampling.max_context
    return memory.in_turns(
        a,
        max(train.tokens_per_microbatch, sampling.max_context),
        sampling.max_context,
        cached + min(sampling.tokens_per_batch or cached, cached),
        settings.compute_dtype.removesuffix("_anywhere"),
        reference=needs_base(train, method),
        lora=settings.lora,
        checkpointing=train.gradient_checkpointing,
        lagging=train.sync_interval > 1,
        averaging=method is not None and method.teacher == "average",
    )


def settings_that_fit(
    a: ArchitectureConfig, settings: TierSettings, dialogs: int, capacity: float, method: Method | None = None
) -> dict[str, Any] | None:
    """Cheapest changes of settings (key -> value) with which a run fits a GPU of ``capacity`` bytes.

    {} if it fits already, None if no changes suffice. The keys, from the cheapest: sampling.tokens_per_batch,
    train.tokens_per_microbatch, train.gradient_checkpointing, train.tasks_per_step, lora.rank. A tenth of the
    memory is left free. ``dialogs``, ``method``: as for :func:`memory_plan`.
    """
    train = settings.train
    longest = settings.sampling.max_context
    sampled = settings.sampling.tokens_per_batch or train.tasks_per_step * dialogs * longest
    # From the most expensive to the cheapest: an adapter and fewer tasks a step change the training;
    # checkpointing, a smaller micro-batch and fewer tokens sampled at once only cost time. product() varies
    # the last one first, so the first combination that fits is the cheapest.
    choices: dict[str, list[Any]] = {
        "lora.rank": [settings.lora.rank] if settings.lora.rank else [0, RANK],
        "train.tasks_per_step": halved(train.tasks_per_step, 1),
        "train.gradient_checkpointing": [True] if train.gradient_checkpointing else [False, True],
        "train.tokens_per_microbatch": halved(train.tokens_per_microbatch, longest),
        "sampling.tokens_per_batch": halved(sampled, longest),
    }
    first = [of_key[0] for of_key in choices.values()]
    for values in product(*choices.values()):
        pairs = zip(choices, values, first, strict=True)
        changes = {key: value for key, value, usual in pairs if value != usual}
        if memory_plan(a, changed(settings, changes), dialogs, method).total <= (1 - SPARE) * capacity:
            return changes
    return None


def halved(value: int, least: int) -> list[int]:
    """[value, value // 2, value // 4, ...] as long as they are at least ``least``; always has ``value``."""
    values = [value]
    while values[-1] // 2 >= least:
        values.append(values[-1] // 2)
    return values


def changed(settings: S, changes: Mapping[str, Any]) -> S:
    """A copy of ``settings`` with ``changes``: new values by key of the form SECTION.NAME, as ``lora.rank``.

    Values are not validated. Raises ValueError for a key of another form, AttributeError for an unknown
    section.
    """
    for key, value in changes.items():
        section, name = key.split(".")
        of_section = getattr(settings, section).model_copy(update={name: value})
        settings = settings.model_copy(update={section: of_section})
    return settings


@contextmanager
def out_of_memory_explained(doing: str, remedy: str) -> Iterator[None]:
    """Turn torch's out-of-memory error in the block into an EngineError that says what to do.

    ``doing``: what the block does ("in sampling ..."), ``remedy``: which setting to change, both as parts of
    the message.
    """
    try:
        yield
    except torch.OutOfMemoryError as error:
        reason = str(error).partition(".")[0]
        raise EngineError(
            f"out of GPU memory {doing} ({reason}); {remedy} (--set KEY=VALUE). `r3l doctor memory` finds "
            "settings that fit"
        ) from error


def _report(
    a: ArchitectureConfig,
    settings: TierSettings,
    dialogs: int,
    capacity: float | None,
    method: Method | None = None,
) -> dict[str, Any]:
    """The plan of :func:`report`; ``dialogs``, ``method``: as for :func:`memory_plan`."""
    plan = memory_plan(a, settings, dialogs, method)
    in_gib = {name: value / memory.GIB for name, value in asdict(plan).items()}
    found: dict[str, Any] = {"plan_gib": in_gib, "total_gib": plan.total / memory.GIB, "fits": None}
    if capacity is None:
        return found
    changes = settings_that_fit(a, settings, dialogs, capacity, method)
    found |= {"gpu_gib": capacity / memory.GIB, "fits": changes == {}, "set": changes}
    if changes:
        then = memory_plan(a, changed(settings, changes), dialogs, method)
        found["total_gib_then"] = then.total / memory.GIB
    return found


def _parts(plan: Mapping[str, float]) -> str:
    """The parts of a memory plan in words, in GiB."""
    stays = ", ".join(f"{name} {plan[name]:.1f}" for name in ("weights", "optimiser", "gradients"))
    return f"{stays}; in turns training {plan['training']:.1f} and sampling's caches {plan['caches']:.1f}"
