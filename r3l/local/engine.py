"""The local engine: explore, advantages, update, checkpoint, until the last step. Running it again resumes.

The state directory holds everything; ``result.json`` appears last and atomically. It contains no time and no
date, so a killed and resumed run writes the same bytes as an uninterrupted one.
"""

from __future__ import annotations

import copy
import time
from collections import Counter
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from r3l.config import MethodConfig, Run, build_method, load
from r3l.core.method import Method
from r3l.core.seeds import generator
from r3l.core.task import Task
from r3l.core.trajectory import Group
from r3l.local import checkpoint
from r3l.local.batching import rows_of
from r3l.local.session import Session, open_session
from r3l.local.trainer import Trainer
from r3l.panel import describe
from r3l.tracking import (
    append_jsonl,
    commit,
    hardware,
    locked,
    read_jsonl,
    sha256_of,
    versions,
    write_json_atomic,
    write_text_atomic,
)

FINAL_WINDOW = 5  # steps averaged in result.json's "final"; our choice


def train(run: Run, run_dir: Path) -> dict[str, Any]:
    """Train ``run`` in ``run_dir`` (resuming what is there); returns and writes result.json."""
    with locked(run_dir):
        start = checkpoint.latest(run_dir / "checkpoints")
        state = checkpoint.read_state(start, run.fingerprint()) if start else None
        with open_session(run, str(start) if start else run.model) as session:
            write_json_atomic(run_dir / "manifest.json", manifest(run))
            method = build_method(run)
            reference = _reference(run, session, method)
            trainer = Trainer(session.model, method, run.train, reference, run.sampling.temperature)
            totals: Counter[str] = Counter(state["totals"] if state else {})
            if start and state:
                checkpoint.load_optimizer(start, trainer, state["step"])
            _forget_after(run_dir / "metrics.jsonl", trainer.steps_done)
            _loop(run, run_dir, session, method, trainer, totals)
            last = checkpoint.save(run_dir / "checkpoints", trainer, session.tokenizer, run.fingerprint(), dict(totals))
        result = _result(run, run_dir, last, totals)
        write_json_atomic(run_dir / "result.json", result)
        return result


def manifest(run: Run) -> dict[str, Any]:
    """Everything needed to name and repeat a run."""
    return {
        "run": run.model_dump(mode="json"),
        "fingerprint": run.fingerprint(),
        "method_settings": dict(build_method(run).describe()),
        "panel": {
            "train": describe(run.env, run.env_settings.train_panel),
            "test": describe(run.env, run.env_settings.test_panel),
        },
        "versions": versions(),
        "hardware": hardware(),
        "commit": commit(),
    }


def _loop(run: Run, run_dir: Path, session: Session, method: Method, trainer: Trainer, totals: Counter[str]) -> None:
    steps = run.train.steps if method.trains else 0
    if steps == 0:
        return
    tasks = session.package.tasks(run.env_settings.train_panel)
    with _progress() as progress:
        bar = progress.add_task(f"{run.method} seed {run.seed}", total=steps, completed=trainer.steps_done, note="")
        while trainer.steps_done < steps:
            metrics = _step(run, session, method, trainer, tasks)
            totals.update({k: v for k, v in metrics.items() if _is_budget(k)})
            append_jsonl(run_dir / "metrics.jsonl", metrics)
            progress.update(bar, advance=1, note=_note(metrics))
            if not progress.console.is_terminal:
                progress.console.print(f"step {int(metrics['step'])}/{steps}  {_note(metrics)}")
            if trainer.steps_done % run.train.save_every == 0:
                checkpoint.save(run_dir / "checkpoints", trainer, session.tokenizer, run.fingerprint(), dict(totals))


def _step(run: Run, session: Session, method: Method, trainer: Trainer, tasks: list[Task]) -> dict[str, float]:
    number = trainer.steps_done + 1
    arena = session.arena((run.seed, "train", number), run.sampling.temperature)
    began = time.perf_counter()
    chosen = tasks_of_step(tasks, run.seed, number, run.train.tasks_per_step)
    explored: list[list[Group]] = session.wait(arena.gather(*[method.explore(t, arena) for t in chosen]))
    groups = [group for of_task in explored for group in of_task]
    middle = time.perf_counter()
    rows = rows_of(method, groups)
    trained = trainer.step(rows)
    seconds = {"seconds/explore": middle - began, "seconds/train": time.perf_counter() - middle}
    return {"step": number, **_episode_metrics(groups), **arena.counters, **trained, **seconds}


def tasks_of_step(tasks: list[Task], seed: int, number: int, count: int) -> list[Task]:
    """The tasks of step ``number`` (from 1): consecutive slices of a shuffle per pass over the panel."""
    order: list[Task] = []
    first, last = (number - 1) * count, number * count
    for epoch in range(first // len(tasks), (last - 1) // len(tasks) + 1):
        order += [tasks[i] for i in generator(seed, "order", epoch).permutation(len(tasks))]
    skip = first - first // len(tasks) * len(tasks)
    return order[skip : skip + count]


def _episode_metrics(groups: list[Group]) -> dict[str, float]:
    """Means over base rollouts (what all methods have in common), and the share of groups without signal."""
    policy = [g for g in groups if g.objective == "policy"]
    base = [t for g in policy for t in g.trajectories if t.kind == "base"]
    metrics = {
        "train/success": sum(t.success for t in base) / len(base),
        "train/reward": sum(t.reward for t in base) / len(base),
        "train/turns": sum(len(t.turns) for t in base) / len(base),
        "groups/policy": len(policy),
        "groups/zero_variance": sum(float(g.rewards().std() == 0) for g in policy),
    }
    for name in sorted({t.task.group for t in base}):
        members = [t for t in base if t.task.group == name]
        metrics[f"train/success/{name}"] = sum(t.success for t in members) / len(members)
    return metrics


def _is_budget(key: str) -> bool:
    totals = ("rollouts", "env_steps", "tokens/", "reflection/", "retry/", "pivot/", "stop/", "rows/")
    return key.startswith(totals)


def _note(metrics: dict[str, float]) -> str:
    seconds = metrics["seconds/explore"] + metrics["seconds/train"]
    rate = metrics.get("tokens/generated", 0) / max(metrics["seconds/explore"], 1e-9)
    return f"success {metrics['train/success']:.2f}  {rate:.0f} tok/s  {seconds:.1f} s/step"


def _progress() -> Progress:
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=console, disable=not console.is_terminal)


def _reference(run: Run, session: Session, method: Method) -> Any | None:
    """A frozen copy of the *starting* model for methods with a KL term."""
    if method.kl_coef == 0:
        return None
    if checkpoint.locate(run.model) == str(session.model.name_or_path):
        return copy.deepcopy(session.model).eval()
    return checkpoint.load_model(run.model, session.model.device)[0].eval()


def _forget_after(path: Path, step: int) -> None:
    """Drop metrics of steps that the checkpoint does not contain; they will be run again."""
    rows = [row for row in read_jsonl(path) if row["step"] <= step]
    if path.is_file():
        write_text_atomic(path, "")
        for row in rows:
            append_jsonl(path, row)


def _result(run: Run, run_dir: Path, last: Path, totals: Counter[str]) -> dict[str, Any]:
    window = read_jsonl(run_dir / "metrics.jsonl")[-FINAL_WINDOW:]
    keys = sorted({k for row in window for k in row if k.startswith("train/")})
    final = {k: sum(row.get(k, 0.0) for row in window) / len(window) for k in keys}
    return {
        "schema": 1,
        "cell": run.cell,
        "tier": run.tier,
        "label": run.label,
        "env": run.env,
        "method": run.method,
        "method_label": load("methods", run.method, MethodConfig).label,
        "model": Path(run.model).name,
        "seed": run.seed,
        "fingerprint": run.fingerprint(),
        "steps": len(read_jsonl(run_dir / "metrics.jsonl")),
        "checkpoint": f"checkpoints/{last.name}",
        "checkpoint_sha256": sha256_of(last),
        "budget": dict(sorted(totals.items())),
        "final": final,
    }
