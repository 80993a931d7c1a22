"""SFT: steps on scripted episodes, reflections on them, and guided retries.

It teaches the protocol's format, and to act, reflect and retry, from experts that err
(``r3l.sft.examples``) and from the model's own attempts (``r3l.sft.own_attempts``). Nano models are made by
it and stored under results/stored/models, since pretraining is not the experiment; a published language model
goes through it before RL. The optimiser step is the one of RL (``r3l.local.training.trainer``).
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from r3l.chat.renderer import ChatRenderer
from r3l.config import as_path, environment_of, locate, model_digest
from r3l.config.sft_recipe import (
    ExampleKind,
    SampledPhase,
    ScriptedPhase,
    SFTConfig,
    SFTPhase,
    load_config,
)
from r3l.core.batching import Row
from r3l.core.errors import ConfigError, DataError
from r3l.core.method import Batch, LossAggregation
from r3l.core.seeds import generator
from r3l.files.locks import locked
from r3l.local.checkpoint import optimizer_state, restore_optimizer
from r3l.local.cpu import keep_freed_memory, threads
from r3l.local.training.trainer import Trainer
from r3l.processes.progress import progress
from r3l.runs.gpu_locks import reserved_gpu
from r3l.sft import demonstrations, own_attempts
from r3l.sft.checkpoint import (
    SFTManifest,
    SFTModel,
    check_inputs,
    finished_model,
    load_or_begin,
    store,
    store_phase,
    store_progress,
)
from r3l.sft.examples import Document, SFTExample, render
from r3l.sft.optimizer import muon_of
from r3l.sft.phase_progress import Examples, PhaseProgress

FINAL_LR = 0.05  # share of a phase's learning rate at the end of its cosine; our choice
SAVE_EVERY = 600.0  # seconds between checkpoints within a phase; our choice


def build(name: str, out: Path, workers: int = 2, base: str | None = None) -> SFTManifest:
    """Make the base checkpoint of recipe ``name`` (configs/sft) in ``out``; returns its manifest.

    ``base``: model to start from instead of the recipe's. ``workers``: processes that play the examples. A
    finished phase is kept (r3l.sft.checkpoint), and with an adapter the state of an unfinished one every ten
    minutes, so an interrupted build resumes there; ``out`` appears when all phases are finished. If it holds
    the recipe's finished model, that is left as it is. Waits for a GPU, unless the recipe's device is cpu.

    Raises ConfigError for an unknown recipe, an environment without experts, a new nano model whose first
    phase is sampled, or a chat template that fails; CheckpointError if the model to start from cannot be
    loaded, or the finished one is damaged; DataError if ``out`` holds anything else, a sampled phase kept no
    reflection, or no example of a phase can be drawn; RunDirectoryError if another process builds there or
    the disk is full.
    """
    config = load_config(name).model_copy(update={"model": as_path(base)} if base else {})
    environment_of(config.env).demonstrator(config.task_sets)  # without experts: an error now
    scripted = [phase for phase in config.phases if isinstance(phase, ScriptedPhase)]
    if not config.model and (config.phases[0] not in scripted or scripted[0].critiqued):
        raise ConfigError(
            f"recipe {name}: a new nano model cannot begin with its own attempts; give the first phase "
            "variants and error_rates instead of attempts or critiqued, or start from a model (--model)"
        )
    with locked(out), threads(config.threads):
        # A finished model is never built again.
        if made := finished_model(config, out):
            check_inputs(made, config, out)
            print(f"{out} already holds the model of this recipe", file=sys.stderr)
            return made

        # Resume: the weights of the last checkpoint. Begin: the recipe's model, or with the first phase a
        # new nano model.
        manifest, last = load_or_begin(config, out)
        with reserved_gpu(config.device):
            model = SFTModel.load(config, last) if last or config.model else None
            if config.model and not last:
                manifest["base_digest"] = model_digest(locate(config.model))

            # One demonstration, rendered in every taught form, finds what the model's chat template refuses.
            if model and scripted:
                renderer = ChatRenderer(model.tokenizer)  # checks the template before anything is played
                one_task = scripted[0].model_copy(update={"tasks": 1})
                _render_all(renderer, demonstrations.play(config, one_task, workers=0), config)

            # Each phase: play, train, and keep its checkpoint. A phase that was interrupted has been played.
            so_far = PhaseProgress.load(last) if last else None
            for number in range(len(manifest["loss"]), len(config.phases)):
                if so_far is None:
                    model, examples, counts = _played(model, config, number, workers)
                    manifest["examples"].append(counts)
                    so_far = PhaseProgress(examples)
                assert model is not None
                # All weights of a nano model train for minutes; those of a published one would fill the disk.
                save = partial(store_progress, out, model, config, manifest) if config.lora.rank else None
                manifest["loss"].append(fit(model, so_far, config, number, save))
                so_far = None
                if number < len(config.phases) - 1:
                    store_phase(out, model, config, manifest)

            # The finished model; a nano model's logits may be scaled first.
            assert model is not None
            if config.sharpness != 1:
                model.sharpen(config.sharpness)
            store(out, model, config, manifest)
    return manifest


def _played(
    model: SFTModel | None, config: SFTConfig, number: int, workers: int
) -> tuple[SFTModel, Examples, dict[str, Any]]:
    """Play phase ``number`` (from 0); returns (the model, its examples by kind, their counts).

    Without ``model`` a new one is made, whose tokenizer is trained on the demonstrations. Examples above the
    token limit are left out and counted. Raises DataError if no example can be drawn.
    """
    phase = config.phases[number]
    counts: dict[str, Any] = {}
    if isinstance(phase, SampledPhase):
        # The model's own reflections that helped, as it is now.
        assert model is not None
        played, counts = own_attempts.play_sampled(model, config, number, workers)
        print(f"phase {number + 1}: {own_attempts.sentence(counts)}", file=sys.stderr)
    else:
        documents = demonstrations.play(config, phase, workers)
        model = model or SFTModel.new(demonstrations.texts(documents), config)
        played = _render_all(ChatRenderer(model.tokenizer), documents, config)
        if phase.critiqued:
            reflections, counts = own_attempts.play_critiqued(model, config, number, workers)
            print(f"phase {number + 1}: {own_attempts.sentence(counts)}", file=sys.stderr)
            played += reflections

    # By kind, without those that are too long.
    examples: dict[ExampleKind, list[SFTExample]] = {kind: [] for kind in ExampleKind}
    for kind, example in played:
        if config.max_tokens is None or len(example.ids) <= config.max_tokens:
            examples[kind].append(example)
    for kind, of_kind in examples.items():
        if of_kind:
            tokens = sum(len(example.ids) for example in of_kind)
            counts[kind] = {"examples": len(of_kind), "tokens": tokens}
    too_long = len(played) - sum(len(of_kind) for of_kind in examples.values())
    if too_long:
        counts["too_long"] = too_long
    if not any(examples[kind] for kind, share in config.shares_of(phase).items() if share):
        left = ", ".join(kind for kind, of_kind in examples.items() if of_kind)
        reasons = [f"the share of {left} examples is 0"] if left else []
        if too_long:
            reasons.append(f"{too_long} of {len(played)} exceed max_tokens ({config.max_tokens})")
        raise DataError(
            f"recipe {config.name}, phase {number + 1}: no example can be drawn: {' and '.join(reasons)}. In "
            "the recipe, raise max_tokens or leave it out, or change retry_share, reflection_share or "
            "hinted_share so that these examples get a share"
        )
    return model, examples, counts


def _render_all(
    renderer: ChatRenderer, documents: Iterable[Document], config: SFTConfig
) -> list[tuple[ExampleKind, SFTExample]]:
    """Tokenised documents with their kinds, in order."""
    stop = config.dialogue().stop
    return [(kind, render(renderer, exchanges, config.prompt_weight, stop)) for kind, exchanges in documents]


def fit(
    model: SFTModel,
    so_far: PhaseProgress,
    config: SFTConfig,
    number: int,
    save: Callable[[PhaseProgress], None] | None = None,
) -> list[float]:
    """Train ``model`` for the steps of phase ``number`` (from 0) that are left; returns the course of its loss.

    The loss is a weighted mean over tokens (nats), averaged over windows of a tenth of the phase, at most 100
    steps; steps after the last full window are left out. ``so_far``: the phase's examples, for :func:`draw`,
    and its steps before an interruption; steps are added to it. ``save`` is called with it at first and then
    every SAVE_EVERY seconds, between steps. Changes the weights; shows progress; malloc keeps freed memory
    from then on. Raises NonFiniteError or EngineError as Trainer.step does.
    """
    # Large tensors would fetch new pages again and again: a fifth of a 0.5B model's processor time (notebook
    # of 2026-11-30). After loading, as in r3l.local.session.
    keep_freed_memory()
    phase = config.phases[number]
    steps_before = sum(earlier.steps for earlier in config.phases[:number])
    settings = config.optimizer_settings(phase)
    trainer = Trainer(
        model.network,
        WeightedCrossEntropy(),
        settings,
        master_weights=model.master_weights,
        forward_pass="packed",
    )
    if config.optimizer == "muon":
        trainer.optimizer = muon_of(model.master_weights, settings)
    restore_optimizer(trainer, so_far.optimizer)
    window = min(100, max(1, phase.steps // 10))
    losses = so_far.losses
    label = f"SFT steps on {sum(map(len, so_far.examples.values()))} examples"
    saved = -math.inf
    with progress(label, phase.steps, done=len(losses)) as advance:
        for step in range(len(losses), phase.steps):
            if save and time.monotonic() - saved > SAVE_EVERY:
                so_far.optimizer = optimizer_state(trainer)
                save(so_far)
                saved = time.monotonic()
            # The step is counted over all phases: its address decides which examples are drawn.
            rows = rows_of(draw(so_far.examples, config, phase, steps_before + step))
            losses.append(trainer.step(rows, lr=phase.lr * _lr_share(step, phase))["loss"])
            advance(f"loss {np.mean(losses[-window:]):.4f}")
    full = range(0, len(losses) - window + 1, window)
    return [round(float(np.mean(losses[first : first + window])), 4) for first in full]


class WeightedCrossEntropy:
    """The loss of SFT, in the form that the trainer takes from a method: -sum(weight * log p) (nats)."""

    kl_coef = 0.0
    loss_agg: LossAggregation = "token_mean"

    def loss(self, batch: Batch, logprobs_B_T: torch.Tensor) -> tuple[torch.Tensor, Mapping[str, float]]:
        """The loss of a micro-batch, -sum(weight * log p) over its tokens (nats), and no metrics."""
        return -(batch.weight_B_T * logprobs_B_T).sum(), {}


def rows_of(examples: Sequence[SFTExample]) -> list[Row]:
    """The rows of one step for the trainer; their weights are scaled to a sum of 1 over all predicted tokens.

    So the loss of the step is a weighted mean over tokens.
    """
    total = sum(float(x.weight[1:].sum()) for x in examples)  # the first token is never predicted
    return [
        Row(
            ids=x.ids,
            mask=(x.weight > 0).astype(np.float32),
            weight=x.weight / np.float32(total),
            old_logprobs=np.zeros_like(x.weight),
            teacher_logprobs=np.zeros_like(x.weight),
            advantage=1.0,
            sft=True,
        )
        for x in examples
    ]


def _lr_share(step: int, phase: SFTPhase) -> float:
    """Share of the phase's learning rate at ``step``: linear warm-up, then a cosine down to FINAL_LR.

    After ``decay_steps`` it stays there.
    """
    if step < phase.warmup_steps:
        return (step + 1) / phase.warmup_steps
    done = (step - phase.warmup_steps) / max(phase.decay_steps - phase.warmup_steps, 1)
    return FINAL_LR + (1 - FINAL_LR) * 0.5 * (1 + math.cos(math.pi * min(done, 1)))


def draw(examples: Examples, config: SFTConfig, phase: SFTPhase, step: int) -> list[SFTExample]:
    """Draw the examples of a step of ``phase``, with replacement.

    ``examples``: by kind. Each kind is drawn until it has its share of the recipe's ``tokens_per_step``; a
    kind without examples is left out. The draw is seeded by the recipe's seed and ``step``, which counts from
    0 over all phases.
    """
    rng = generator(config.seed, "warmstart", step)  # a fixed label: another draws other examples
    batch: list[SFTExample] = []
    for kind, share in config.shares_of(phase).items():
        tokens = 0
        while examples[kind] and tokens < share * config.tokens_per_step:
            batch.append(examples[kind][int(rng.integers(len(examples[kind])))])
            tokens += len(batch[-1].ids)
    return batch
