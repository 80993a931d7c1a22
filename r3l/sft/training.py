"""Warm start: supervised steps on scripted episodes, reviews of them, and guided retries.

It teaches the protocol's format and to act, reflect and retry, from agents that err (``r3l.sft.examples``). A nano
model is made by it (and stored under results/stored/models, since pretraining is not the experiment); a published
language model goes through it before RL.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import yaml
from pydantic import Field

from r3l.config import ComputeDtype, Device, Strict, sft_folder, validate
from r3l.core.batching import packed
from r3l.core.environment import Dialogue
from r3l.core.errors import DataError
from r3l.core.paths import CONFIGS, STORED_MODELS
from r3l.core.render import ChatRenderer
from r3l.core.seeds import generator
from r3l.envs.registry import find_environment
from r3l.local.checkpoint import load_model
from r3l.local.precision import MasterWeights, compute_dtype, device_of, keep_activations_out, vocabulary_logits
from r3l.reflection import GuidanceForm
from r3l.runs.files import read_json, sha256_of, write_json_atomic
from r3l.runs.manifest import commit, hardware, versions
from r3l.runs.progress import progress, tracked
from r3l.sft.examples import Part, SFTExample, documents_of, render
from r3l.sft.nano_model import build_model, build_tokenizer


class Phase(Strict):
    """Houses demonstrated in one error rates, and the supervised steps on them (AdamW anew, cosine schedule)."""

    first_task: int = Field(ge=0)
    tasks: int = Field(ge=1)
    variants: int = Field(ge=1, description="demonstrations of each task")
    error_rates: dict[str, float] = Field(description="how the environment's scripted agents err; its own keys")
    steps: int = Field(ge=1)
    decay_steps: int = Field(ge=1, description="length of the cosine; may be longer than the phase")
    warmup_steps: int = Field(ge=0)
    lr: float = Field(gt=0)


class SFTConfig(Strict):
    """configs/sft/<name>.yaml."""

    name: str
    env: str
    seed: int
    max_turns: int = Field(ge=1)
    threads: int = Field(ge=1)
    tokens_per_step: int = Field(ge=1)
    model: str | None = Field(
        None, description="what is taught, as `r3l train --model`; none: a nano model, made first"
    )
    prompts: Literal["compact", "released"] = "compact"
    guidance: GuidanceForm = Field("suggestion", description="what of a review guides a retry, as R3L's option")
    max_tokens: int | None = Field(None, ge=1, description="of a SFT example; longer ones are left out, and counted")
    tokens_per_microbatch: int | None = Field(
        None, ge=1, description="of one forward and backward pass, padding counted; none: a quarter of a step"
    )
    gradient_checkpointing: bool = False
    device: Device = "cpu"
    compute_dtype: ComputeDtype = "float32"
    prompt_weight: float = Field(ge=0, le=1, description="weight of prompt tokens (response tokens weigh 1)")
    retry_share: float = Field(ge=0, le=1, description="share of tokens from guided retries")
    review_share: float = Field(0, ge=0, le=1, description="share of tokens from reviews; compact ones end an episode")
    phases: list[Phase] = Field(min_length=1)
    sources: dict[str, str]


def load_config(name: str) -> SFTConfig:
    """Read configs/sft/<name>.yaml."""
    path = CONFIGS / "sft" / f"{name}.yaml"
    return validate(SFTConfig, yaml.safe_load(path.read_text(encoding="utf-8")), str(path))


def place_of(name: str, model: str | None = None) -> Path:
    """Where the model that ``name`` builds lies by default: nano models in the repository, others in the cache."""
    base = model or load_config(name).model
    return sft_folder(base, name) if base else STORED_MODELS / name


def build(name: str, out: Path, workers: int = 2, base: str | None = None) -> dict[str, Any]:
    """Build the warm-started model ``name`` into ``out``; returns its manifest. ``base`` is taught in place of its own.

    ``out`` is written after every phase; a build that was cut off goes on after its last whole phase.
    """
    config = load_config(name).model_copy(update={"model": base} if base else {})
    torch.set_num_threads(config.threads)
    device = device_of(config.device)
    manifest = _begun(config, out)
    start = str(out) if manifest["loss"] else config.model
    model, tokenizer = load_model(start, device) if start else (None, None)
    master_weights = None
    for phase in config.phases[len(manifest["loss"]) :]:
        documents = [d for chunk in _in_workers(config, phase, workers) for d in chunk]
        if tokenizer is None:
            tokenizer = build_tokenizer(_texts(documents))
            model = build_model(tokenizer, config.seed)
        master_weights = master_weights or MasterWeights(model, compute_dtype(config.compute_dtype, device))
        examples = _lessons(ChatRenderer(tokenizer), documents, config)
        manifest["examples"].append(_counted(examples, len(documents)))
        done = sum(p.steps for p in config.phases[: len(manifest["loss"])])
        manifest["loss"].append(fit(model, master_weights, examples, config, phase, done))
        _store(out, model, master_weights, tokenizer, manifest)
    return manifest


def _counted(examples: Mapping[str, Sequence[SFTExample]], documents: int) -> dict[str, Any]:
    found: dict[str, Any] = {
        k: {"examples": len(v), "tokens": sum(len(x.ids) for x in v)} for k, v in examples.items() if v
    }
    left_out = documents - sum(len(v) for v in examples.values())
    return found | ({"too_long": left_out} if left_out else {})


def _begun(config: SFTConfig, out: Path) -> dict[str, Any]:
    """The manifest in ``out`` if its phases are this config's first ones, else a new one for an empty folder."""
    new: dict[str, Any] = {"config": config.model_dump(mode="json"), "examples": [], "loss": []}
    if not out.exists() or not any(out.iterdir()):
        return new
    path = out / "sft.json"
    old = read_json(path) if path.is_file() else new
    phases = len(old["loss"])
    if not 0 < phases < len(config.phases):
        raise DataError(f"{out} already holds a model; move it away or give another folder with --out")
    if _without_phases(old["config"], phases) != _without_phases(new["config"], phases):
        raise DataError(f"{path}: its {phases} finished phases are of another configuration; move {out} away")
    if old["weights_sha256"] != sha256_of(out / "model.safetensors"):
        raise DataError(f"{out / 'model.safetensors'} is not the one that {path.name} describes; move {out} away")
    return {**new, "examples": old["examples"], "loss": old["loss"]}


def _without_phases(config: dict[str, Any], after: int) -> dict[str, Any]:
    """What the first ``after`` phases depend on."""
    return {**config, "phases": config["phases"][:after], "sources": None}


def _store(out: Path, model: Any, master_weights: MasterWeights, tokenizer: Any, manifest: dict[str, Any]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(out, state_dict=master_weights.state_dict())
    tokenizer.save_pretrained(out)
    facts = {
        "command": f"r3l sft {manifest['config']['name']}",
        "parameters": sum(p.numel() for p in model.parameters()),
        "weights_sha256": sha256_of(out / "model.safetensors"),
        "versions": versions(),
        "hardware": hardware(),
        "commit": commit(),
    }
    manifest.update(facts)
    write_json_atomic(out / "sft.json", manifest)


def _lessons(
    renderer: ChatRenderer, documents: Iterable[tuple[str, list[Part]]], config: SFTConfig
) -> dict[str, list[SFTExample]]:
    examples: dict[str, list[SFTExample]] = {"episode": [], "retry": [], "review": []}
    stop = _dialogue(config).stop
    for kind, parts in documents:
        example = render(renderer, parts, config.prompt_weight, stop)
        if config.max_tokens is None or len(example.ids) <= config.max_tokens:
            examples[kind].append(example)
    return examples


def _dialogue(config: SFTConfig) -> Dialogue:
    return find_environment(config.env).dialogue(config.prompts, config.max_turns)


def _in_workers(config: SFTConfig, phase: Phase, workers: int) -> Iterator[list[tuple[str, list[Part]]]]:
    """Demonstrations as untokenised documents, in a fixed order whatever the number of workers."""
    size, end = 16, phase.first_task + phase.tasks
    jobs = [(config, phase, range(s, min(s + size, end))) for s in range(phase.first_task, end, size)]
    with get_context("spawn").Pool(workers) as pool:
        yield from tracked(pool.imap(_documents, jobs), "demonstrations", len(jobs))


def _documents(job: tuple[SFTConfig, Phase, range]) -> list[tuple[str, list[Part]]]:
    config, phase, indices = job
    package, dialogue = find_environment(config.env), _dialogue(config)
    found: list[tuple[str, list[Part]]] = []
    for demonstration in package.demonstrations(indices, phase.variants, config.max_turns, phase.error_rates):
        found += documents_of(dialogue, demonstration, config.guidance)
    return found


def _texts(documents: Iterable[tuple[str, list[Part]]]) -> Iterator[str]:
    for _, parts in documents:
        for messages, response, _ in parts:
            yield from (m.content for m in messages)
            yield response


def fit(
    model: Any,
    master_weights: MasterWeights,
    examples: dict[str, list[SFTExample]],
    config: SFTConfig,
    phase: Phase,
    done: int,
) -> list[float]:
    """The supervised steps of a phase (``done`` came before it); mean losses of a tenth of it, at most 100 steps."""
    model.train()
    if config.gradient_checkpointing:
        keep_activations_out(model)
    window = min(100, max(1, phase.steps // 10))
    optimizer = torch.optim.AdamW(master_weights.parameters, lr=phase.lr, betas=(0.9, 0.95), weight_decay=0.01)
    recent, curve = [], []
    label = f"supervised steps on {sum(map(len, examples.values()))} examples"
    with progress(label, phase.steps) as advance:
        for step in range(phase.steps):
            for group in optimizer.param_groups:
                group["lr"] = phase.lr * _schedule(step, phase)
            batch = _draw(examples, config, done + step)
            optimizer.zero_grad(set_to_none=True)
            loss = _backward(model, master_weights, batch, config.tokens_per_microbatch)
            torch.nn.utils.clip_grad_norm_(master_weights.parameters, 1.0)
            optimizer.step()
            master_weights.publish()
            recent.append(loss)
            if (step + 1) % window == 0:
                curve.append(round(float(np.mean(recent)), 4))
                recent = []
            advance(f"loss {curve[-1]:.4f}" if curve else "")
    return curve


def _schedule(step: int, phase: Phase) -> float:
    if step < phase.warmup_steps:
        return (step + 1) / phase.warmup_steps
    done = (step - phase.warmup_steps) / max(phase.decay_steps - phase.warmup_steps, 1)
    return 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * done))


def _draw(examples: dict[str, list[SFTExample]], config: SFTConfig, step: int) -> list[SFTExample]:
    """About ``tokens_per_step`` tokens, drawn by address."""
    rng = generator(config.seed, "warmstart", step)
    chosen: list[SFTExample] = []
    shares = {"retry": config.retry_share, "review": config.review_share}
    for kind, share in {"episode": 1 - sum(shares.values()), **shares}.items():
        tokens = 0
        while examples[kind] and tokens < share * config.tokens_per_step:
            chosen.append(examples[kind][int(rng.integers(len(examples[kind])))])
            tokens += len(chosen[-1].ids)
    return chosen


def _parts(batch: Sequence[SFTExample], budget: int | None) -> list[list[SFTExample]]:
    """Lessons by length, in parts that are padded together: of ``budget`` tokens, else a quarter each."""
    if budget:
        return [[batch[k] for k in part] for part in packed([len(x.ids) for x in batch], budget)]
    ordered = sorted(batch, key=lambda x: len(x.ids))
    size = max(1, len(ordered) // 4)
    return [ordered[i : i + size] for i in range(0, len(ordered), size)]


def _backward(model: Any, master_weights: MasterWeights, batch: Sequence[SFTExample], budget: int | None) -> float:
    """Weighted token-mean cross entropy over the batch."""
    total = sum(float(x.weight[1:].sum()) for x in batch)
    loss_sum = 0.0
    for part in _parts(batch, budget):
        width = max(len(x.ids) for x in part)
        ids = torch.zeros(len(part), width, dtype=torch.int64)
        weight = torch.zeros(len(part), width)
        for row, example in enumerate(part):
            ids[row, : len(example.ids)] = torch.from_numpy(example.ids.astype(np.int64))
            weight[row, : len(example.ids)] = torch.from_numpy(example.weight)
        ids, weight = ids.to(model.device), weight.to(model.device)
        hidden = model.model(input_ids=ids[:, :-1], use_cache=False).last_hidden_state
        wanted = weight[:, 1:] > 0
        logits = vocabulary_logits(model, hidden[wanted])
        losses = torch.nn.functional.cross_entropy(logits, ids[:, 1:][wanted], reduction="none")
        loss = (losses * weight[:, 1:][wanted]).sum() / total
        torch.autograd.backward(loss)
        master_weights.collect()
        loss_sum += loss.item()
    return loss_sum
