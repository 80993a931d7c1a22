"""Warm start of the nano model: supervised steps on scripted episodes, reviews of them, and guided retries.

Pretraining is not the experiment: the built model is stored under results/stored/models/nano and used by default.
It learns the protocol's format and to act, reflect and retry, from agents that err; the prompts are rendered by
the same code that renders them when sampling.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from pydantic import Field
from rich.console import Console

from r3l.config import CONFIGS, Strict, validate
from r3l.core.demonstration import Demonstration, Step
from r3l.core.environment import Dialogue, Message, Stop
from r3l.core.errors import DataError
from r3l.core.pool import find_package
from r3l.core.render import ChatRenderer
from r3l.core.seeds import generator
from r3l.local.checkpoint import load_model
from r3l.local.nano import build_model, build_tokenizer
from r3l.reflection import Report, parse_reflection
from r3l.retry import guidance_text, with_guidance
from r3l.templates import template
from r3l.tracking import commit, hardware, read_json, sha256_of, versions, write_json_atomic

Part = tuple[list[Message], str, bool]  # messages, response, trained?


class Phase(Strict):
    """Houses demonstrated in one manner, and the supervised steps on them (AdamW anew, cosine schedule)."""

    first_task: int = Field(ge=0)
    tasks: int = Field(ge=1)
    variants: int = Field(ge=1, description="demonstrations of each task")
    manner: dict[str, float] = Field(description="how the environment's scripted agents err; its own keys")
    steps: int = Field(ge=1)
    decay_steps: int = Field(ge=1, description="length of the cosine; may be longer than the phase")
    warmup_steps: int = Field(ge=0)
    lr: float = Field(gt=0)


class WarmstartConfig(Strict):
    """configs/warmstart/<name>.yaml."""

    name: str
    env: str
    seed: int
    max_turns: int = Field(ge=1)
    threads: int = Field(ge=1)
    tokens_per_step: int = Field(ge=1)
    prompt_weight: float = Field(ge=0, le=1, description="weight of prompt tokens (response tokens weigh 1)")
    retry_share: float = Field(ge=0, le=1, description="share of tokens from guided retries")
    phases: list[Phase] = Field(min_length=1)
    sources: dict[str, str]


@dataclass(frozen=True)
class Lesson:
    """A tokenised dialog. ``weight``: 1 on responses to imitate, 0 on others, less on prompts. Shape (T,).

    Prompts are learnt too: texts that name a thing again teach a small model to copy names early.
    """

    ids: np.ndarray
    weight: np.ndarray


def load_config(name: str) -> WarmstartConfig:
    """Read configs/warmstart/<name>.yaml."""
    path = CONFIGS / "warmstart" / f"{name}.yaml"
    return validate(WarmstartConfig, yaml.safe_load(path.read_text(encoding="utf-8")), str(path))


def build(name: str, out: Path, workers: int = 2) -> dict[str, Any]:
    """Build the warm-started model ``name`` into ``out``; returns its manifest.

    ``out`` is written after every phase; a build that was cut off goes on after its last whole phase.
    """
    config = load_config(name)
    torch.set_num_threads(config.threads)
    console = Console(stderr=True)
    manifest = _begun(config, out)
    model, tokenizer = load_model(str(out), torch.device("cpu")) if manifest["loss"] else (None, None)
    for phase in config.phases[len(manifest["loss"]) :]:
        console.print(f"playing {phase.tasks} x {phase.variants} demonstrations")
        documents = [d for chunk in _in_workers(config, phase, workers) for d in chunk]
        if tokenizer is None:
            tokenizer = build_tokenizer(_texts(documents))
            model = build_model(tokenizer, config.seed)
        lessons = _lessons(ChatRenderer(tokenizer), documents, config)
        manifest["lessons"].append(
            {k: {"lessons": len(v), "tokens": sum(len(x.ids) for x in v)} for k, v in lessons.items()}
        )
        console.print(f"lessons: {manifest['lessons'][-1]}")
        done = sum(p.steps for p in config.phases[: len(manifest["loss"])])
        manifest["loss"].append(fit(model, lessons, config, phase, done, console))
        _store(out, model, tokenizer, manifest)
    return manifest


def _begun(config: WarmstartConfig, out: Path) -> dict[str, Any]:
    """The manifest in ``out`` if its phases are this config's first ones, else a new one for an empty folder."""
    new: dict[str, Any] = {"config": config.model_dump(mode="json"), "lessons": [], "loss": []}
    if not out.exists() or not any(out.iterdir()):
        return new
    path = out / "warmstart.json"
    old = read_json(path) if path.is_file() else new
    phases = len(old["loss"])
    if not 0 < phases < len(config.phases):
        raise DataError(f"{out} already holds a model; move it away or give another folder with --out")
    if _without_phases(old["config"], phases) != _without_phases(new["config"], phases):
        raise DataError(f"{path}: its {phases} finished phases are of another configuration; move {out} away")
    if old["weights_sha256"] != sha256_of(out / "model.safetensors"):
        raise DataError(f"{out / 'model.safetensors'} is not the one that {path.name} describes; move {out} away")
    return {**new, "lessons": old["lessons"], "loss": old["loss"]}


def _without_phases(config: dict[str, Any], after: int) -> dict[str, Any]:
    """What the first ``after`` phases depend on."""
    return {**config, "phases": config["phases"][:after], "sources": None}


def _store(out: Path, model: Any, tokenizer: Any, manifest: dict[str, Any]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    facts = {
        "command": f"r3l warmstart {manifest['config']['name']}",
        "parameters": sum(p.numel() for p in model.parameters()),
        "weights_sha256": sha256_of(out / "model.safetensors"),
        "versions": versions(),
        "hardware": hardware(),
        "commit": commit(),
    }
    manifest.update(facts)
    write_json_atomic(out / "warmstart.json", manifest)


def _lessons(
    renderer: ChatRenderer, documents: Iterable[tuple[str, list[Part]]], config: WarmstartConfig
) -> dict[str, list[Lesson]]:
    lessons: dict[str, list[Lesson]] = {"episode": [], "retry": []}
    stop = _dialogue(config).stop
    for kind, parts in documents:
        lessons[kind].append(render(renderer, parts, config.prompt_weight, stop))
    return lessons


def _dialogue(config: WarmstartConfig) -> Dialogue:
    return find_package(config.env).dialogue({"style": "compact", "max_turns": config.max_turns})


def _in_workers(config: WarmstartConfig, phase: Phase, workers: int) -> Iterator[list[tuple[str, list[Part]]]]:
    """Demonstrations as untokenised documents, in a fixed order whatever the number of workers."""
    size, end = 16, phase.first_task + phase.tasks
    jobs = [(config, phase, range(s, min(s + size, end))) for s in range(phase.first_task, end, size)]
    with get_context("spawn").Pool(workers) as pool:
        yield from pool.imap(_documents, jobs)


def _documents(job: tuple[WarmstartConfig, Phase, range]) -> list[tuple[str, list[Part]]]:
    config, phase, indices = job
    package, dialogue = find_package(config.env), _dialogue(config)
    found: list[tuple[str, list[Part]]] = []
    for demonstration in package.demonstrations(indices, phase.variants, config.max_turns, phase.manner):  # type: ignore[attr-defined]
        found.append(("episode", episode_parts(dialogue, demonstration)))
        if demonstration.retry:
            found.append(("retry", retry_parts(dialogue, demonstration)))
    return found


def episode_parts(dialogue: Dialogue, d: Demonstration) -> list[Part]:
    """The episode, then the reflection on it, all to be imitated."""
    prompts = _prompts(dialogue, d, d.steps)
    parts = [(m, s.response, s.imitate) for m, s in zip(prompts, d.steps, strict=True)]
    feedback = dialogue.closing(d.reward, d.success, len(d.steps), d.error)
    request = template("reflection_compact").substitute(feedback=feedback)
    return [*parts, ([Message("user", request)], _as_json(d.review), True)]


def retry_parts(dialogue: Dialogue, d: Demonstration) -> list[Part]:
    """The prefix (context only), the hint at the pivot, and what followed under it."""
    pivot = int(d.review["retry_from_step"])
    steps = (*d.steps[:pivot], *d.retry)
    report = parse_reflection(_as_json(d.review), len(d.steps))
    assert isinstance(report, Report)
    hint = with_guidance(guidance_text(report, "suggestion"), "user_turn")
    parts: list[Part] = []
    for k, (messages, step) in enumerate(zip(_prompts(dialogue, d, steps), steps, strict=True)):
        shown, _ = hint(messages) if k == pivot else (messages, messages)
        parts.append((shown, step.response, k >= pivot))
    return parts


def _prompts(dialogue: Dialogue, d: Demonstration, steps: Sequence[Step]) -> Iterator[list[Message]]:
    actions: list[str] = []
    for step in steps:
        if actions:
            message = dialogue.following(d.first, actions, step.now)
            yield [] if message is None else [message]
        else:
            yield dialogue.opening(d.task, d.first)
        actions.append(step.action)


def _as_json(review: Any) -> str:
    return json.dumps(dict(review))


def _texts(documents: Iterable[tuple[str, list[Part]]]) -> Iterator[str]:
    for _, parts in documents:
        for messages, response, _ in parts:
            yield from (m.content for m in messages)
            yield response


def render(renderer: ChatRenderer, parts: Sequence[Part], prompt_weight: float, stop: Stop = "end") -> Lesson:
    """Token ids and weights of a document, piece by piece as a live dialog would be."""
    ids: list[int] = []
    weight: list[float] = []
    for messages, response, trained in parts:
        ended = bool(ids) and ids[-1] == renderer.end_id
        prompt = renderer.following(messages, ended) if ids else renderer.opening(messages)
        answer = renderer.response(response, stop)
        ids += prompt + answer
        weight += [prompt_weight] * len(prompt) + [float(trained)] * len(answer)
    return Lesson(np.asarray(ids, dtype=np.int32), np.asarray(weight, dtype=np.float32))


def fit(
    model: Any, lessons: dict[str, list[Lesson]], config: WarmstartConfig, phase: Phase, done: int, console: Console
) -> list[float]:
    """The supervised steps of a phase (``done`` came before it); the mean loss of each hundred steps."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=phase.lr, betas=(0.9, 0.95), weight_decay=0.01)
    began, recent, curve = time.perf_counter(), [], []
    for step in range(phase.steps):
        for group in optimizer.param_groups:
            group["lr"] = phase.lr * _schedule(step, phase)
        batch = _draw(lessons, config, done + step)
        optimizer.zero_grad(set_to_none=True)
        loss = _backward(model, batch)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        recent.append(loss)
        if (step + 1) % 100 == 0:
            curve.append(round(float(np.mean(recent)), 4))
            recent = []
            minutes = (time.perf_counter() - began) / 60
            console.print(f"step {step + 1}/{phase.steps}  loss {curve[-1]:.4f}  {minutes:.1f} min")
    return curve


def _schedule(step: int, phase: Phase) -> float:
    if step < phase.warmup_steps:
        return (step + 1) / phase.warmup_steps
    done = (step - phase.warmup_steps) / max(phase.decay_steps - phase.warmup_steps, 1)
    return 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * done))


def _draw(lessons: dict[str, list[Lesson]], config: WarmstartConfig, step: int) -> list[Lesson]:
    """About ``tokens_per_step`` tokens, drawn by address."""
    rng = generator(config.seed, "warmstart", step)
    chosen: list[Lesson] = []
    for kind, share in (("episode", 1 - config.retry_share), ("retry", config.retry_share)):
        tokens = 0
        while lessons[kind] and tokens < share * config.tokens_per_step:
            chosen.append(lessons[kind][int(rng.integers(len(lessons[kind])))])
            tokens += len(chosen[-1].ids)
    return chosen


def _backward(model: Any, batch: Sequence[Lesson]) -> float:
    """Weighted token-mean cross entropy over the batch, in four padded parts by length."""
    total = sum(float(x.weight[1:].sum()) for x in batch)
    ordered = sorted(batch, key=lambda x: len(x.ids))
    size = max(1, len(ordered) // 4)
    loss_sum = 0.0
    for part in [ordered[i : i + size] for i in range(0, len(ordered), size)]:
        width = max(len(x.ids) for x in part)
        ids = torch.zeros(len(part), width, dtype=torch.int64)
        weight = torch.zeros(len(part), width)
        for row, lesson in enumerate(part):
            ids[row, : len(lesson.ids)] = torch.from_numpy(lesson.ids.astype(np.int64))
            weight[row, : len(lesson.ids)] = torch.from_numpy(lesson.weight)
        hidden = model.model(input_ids=ids[:, :-1], use_cache=False).last_hidden_state
        wanted = weight[:, 1:] > 0
        logits = model.lm_head(hidden[wanted])
        losses = torch.nn.functional.cross_entropy(logits, ids[:, 1:][wanted], reduction="none")
        loss = (losses * weight[:, 1:][wanted]).sum() / total
        torch.autograd.backward(loss)
        loss_sum += loss.item()
    return loss_sum
