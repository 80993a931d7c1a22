"""The local engine: explore, advantages, update, checkpoint, until the last step. Running it again resumes.

The state directory holds everything; ``result.json`` appears last and atomically. It contains no time and no
date, so a killed and resumed run writes the same bytes as an uninterrupted one.
"""

from __future__ import annotations

import copy
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from r3l import accounting, trajectories
from r3l.config import Run, build_method, locate
from r3l.core.method import Method
from r3l.core.rollout import Arena
from r3l.core.seeds import generator
from r3l.core.task import Task
from r3l.core.trajectory import Group
from r3l.local import checkpoint
from r3l.local.batching import rows_of
from r3l.local.precision import lower
from r3l.local.session import Session, open_session
from r3l.local.trainer import Trainer
from r3l.panel import describe
from r3l.preemption import Preempted
from r3l.sinks import Log, open_sinks
from r3l.tracking import (
    append_jsonl,
    commit,
    hardware,
    locked,
    read_jsonl,
    rewrite_jsonl,
    sha256_of,
    versions,
    write_json_atomic,
)

FINAL_WINDOW = 5  # steps averaged in result.json's "final"; our choice


def train(run: Run, run_dir: Path, sinks: Sequence[str] = ()) -> dict[str, Any]:
    """Train ``run`` in ``run_dir`` (resuming what is there); returns and writes result.json.

    ``sinks``: viewers that get a copy of the metrics (r3l.sinks).
    """
    with locked(run_dir):
        start = checkpoint.latest(run_dir / "checkpoints")
        state = checkpoint.read_state(start, run.fingerprint()) if start else None
        with open_session(run, str(start) if start else run.model, trains=True) as session:
            write_json_atomic(run_dir / "manifest.json", manifest(run))
            trainer = _trainer(run, session)
            totals: Counter[str] = Counter(state["totals"] if state else {})
            if start and state:
                checkpoint.load_trainer(start, trainer, state["step"])
            for name in ("metrics.jsonl", trajectories.FILE):
                _forget_after(run_dir / name, trainer.steps_done)
            with open_sinks(sinks, run_dir, run.model_dump(mode="json")) as log:
                try:
                    _loop(run, run_dir, session, trainer, totals, log)
                except Preempted:
                    if trainer.steps_done:
                        _save(run, run_dir, session, trainer, totals)
                    raise
            last = _save(run, run_dir, session, trainer, totals)
        result = _result(run, run_dir, last, totals)
        write_json_atomic(run_dir / "result.json", result)
        return result


def _trainer(run: Run, session: Session) -> Trainer:
    method = build_method(run)
    sampler = copy.deepcopy(session.model) if run.train.sync_interval > 1 else session.model
    session.policy.model = sampler
    reference = _reference(run, session, method)
    return Trainer(
        session.model, method, run.train, reference, run.sampling.temperature, sampler, masters=session.masters
    )


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


def _loop(run: Run, run_dir: Path, session: Session, trainer: Trainer, totals: Counter[str], log: Log) -> None:
    steps = run.train.steps if trainer.method.trains else 0
    if steps == 0:
        return
    tasks = session.package.tasks(run.env_settings.train_panel)
    with _progress() as progress:
        bar = progress.add_task(f"{run.method} seed {run.seed}", total=steps, completed=trainer.steps_done, note="")
        while trainer.steps_done < steps:
            metrics = _step(run, run_dir, session, trainer, tasks)
            totals.update({k: v for k, v in metrics.items() if accounting.is_total(k)})
            append_jsonl(run_dir / "metrics.jsonl", metrics)
            log(metrics)
            progress.update(bar, advance=1, note=_note(metrics))
            if not progress.console.is_terminal:
                progress.console.print(f"step {int(metrics['step'])}/{steps}  {_note(metrics)}")
            if trainer.steps_done % run.train.save_every == 0:
                _save(run, run_dir, session, trainer, totals)


def _save(run: Run, run_dir: Path, session: Session, trainer: Trainer, totals: Counter[str]) -> Path:
    return checkpoint.save(run_dir / "checkpoints", trainer, session.tokenizer, run.fingerprint(), dict(totals))


def _step(run: Run, run_dir: Path, session: Session, trainer: Trainer, tasks: list[Task]) -> dict[str, float]:
    number = trainer.steps_done + 1
    arena = session.arena((run.seed, "train", number), run.sampling.temperature)
    session.policy.meter.clear()
    session.pool.lost = 0
    began = time.perf_counter()
    explored, dropped = _explore(run, session, trainer.method, tasks, number, arena)
    groups = [group for of_task in explored for group in of_task]
    middle = time.perf_counter()
    rows = rows_of(trainer.method, groups, run.samples)
    trained = trainer.step(rows)
    if trainer.steps_done % run.train.sync_interval == 0:
        trainer.sync()
    seconds = {"seconds/explore": middle - began, "seconds/train": time.perf_counter() - middle}
    if number in trajectories.kept_steps(run.train.steps):
        for line in trajectories.lines(trainer.method, explored, arena.explored, session.tokenizer.decode):
            append_jsonl(run_dir / trajectories.FILE, {"step": number, "method": run.method, **line})
    every = run.train.kl_metric_every
    if every and number % every == 0:
        trained["kl_to_start"] = trainer.kl_to_reference([row for row in rows if row.mask.any()])
    phases = {k: v for k, v in session.policy.meter.items() if k.startswith("seconds/")}
    metrics = {
        "step": number,
        **accounting.of_groups(groups, dropped),
        **accounting.of_rows(rows),
        **arena.counters,
        "dropped/workers": session.pool.lost,
        **trained,
        **seconds,
        **phases,
    }
    return metrics | {f"rate/{k}": v for k, v in accounting.rates(metrics).items() if v is not None}


def _explore(
    run: Run, session: Session, method: Method, tasks: list[Task], number: int, arena: Arena
) -> tuple[list[list[Group]], list[list[Group]]]:
    """The groups of each task of a step, and those that the method refused.

    A method with several rounds gets further tasks in place of refused ones (DAPO's dynamic sampling); if the rounds
    run out, the batch stays smaller.
    """
    kept: list[list[Group]] = []
    dropped: list[list[Group]] = []
    count = run.train.tasks_per_step
    for extra in range(method.max_rounds):
        chosen = tasks_of_step(tasks, run.seed, number, count, extra)[: count - len(kept)]
        arena.counters["sampling_rounds"] += 1
        explored = session.wait(arena.gather(*[method.explore(task, arena) for task in chosen]))
        for groups in explored:
            (kept if method.keep(groups) else dropped).append(groups)
        if len(kept) >= count:
            break
    return kept, dropped


def tasks_of_step(tasks: list[Task], seed: int, number: int, count: int, extra: int = 0) -> list[Task]:
    """The tasks of step ``number`` (from 1): consecutive slices of a shuffle per pass over the panel.

    Extra rounds draw from a shuffle of their own, so that the slices of later steps do not depend on them.
    """
    if extra:
        return [tasks[i] for i in generator(seed, "extra", number, extra).permutation(len(tasks))[:count]]
    order: list[Task] = []
    first, last = (number - 1) * count, number * count
    for epoch in range(first // len(tasks), (last - 1) // len(tasks) + 1):
        order += [tasks[i] for i in generator(seed, "order", epoch).permutation(len(tasks))]
    skip = first - first // len(tasks) * len(tasks)
    return order[skip : skip + count]


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
    """A frozen copy of the *starting* model, for a KL in the loss or in the metrics."""
    if method.kl_coef == 0 and run.train.kl_metric_every == 0:
        return None
    if locate(run.model) == str(session.model.name_or_path):
        return copy.deepcopy(session.model).eval()
    reference = checkpoint.load_model(run.model, session.model.device)[0].eval()
    lower(reference, session.model.dtype)
    return reference


def _forget_after(path: Path, step: int) -> None:
    """Drop lines of steps that the checkpoint does not contain; they will be run again."""
    if path.is_file():
        rewrite_jsonl(path, [row for row in read_jsonl(path) if row["step"] <= step])


def _result(run: Run, run_dir: Path, last: Path, totals: Counter[str]) -> dict[str, Any]:
    metrics = read_jsonl(run_dir / "metrics.jsonl")
    return {
        "schema": 1,
        "cell": run.cell,
        "tier": run.tier,
        "label": run.label,
        "env": run.env,
        "method": run.method,
        "method_label": run.method_label,
        "profile": run.profile,
        "model": Path(run.model).name,
        "seed": run.seed,
        "fingerprint": run.fingerprint(),
        "steps": len(metrics),
        "checkpoint": f"checkpoints/{last.name}",
        "checkpoint_sha256": sha256_of(last),
        "budget": dict(sorted(totals.items())),
        "final": final_scores(metrics),
    }


def final_scores(metrics: list[dict[str, float]]) -> dict[str, float]:
    """Means of the training scores over the last steps."""
    window = metrics[-FINAL_WINDOW:]
    keys = sorted({k for row in window for k in row if k.startswith("train/")})
    return {k: sum(row.get(k, 0.0) for row in window) / len(window) for k in keys}
