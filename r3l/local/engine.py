"""The local engine: explore, advantages, update, checkpoint, until the last step. Running it again resumes.

The state directory holds everything; ``result.json`` appears last and atomically. It contains no time and no
date, so a killed and resumed run writes the same bytes as an uninterrupted one.
"""

from __future__ import annotations

import copy
import logging
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from r3l.config import Run, build_method, locate, start_of
from r3l.core.batching import rows_of
from r3l.core.method import Method
from r3l.core.rollout import RolloutContext
from r3l.core.task import Task, tasks_of_step
from r3l.core.trajectory import Group
from r3l.local import checkpoint
from r3l.local.precision import lower
from r3l.local.session import Session, open_session
from r3l.local.trainer import Trainer
from r3l.runs import metrics as run_metrics
from r3l.runs import step_metrics
from r3l.runs import trajectory_log as trajectories
from r3l.runs.files import METRICS, append_jsonl, forget_after, locked, write_json_atomic
from r3l.runs.manifest import manifest
from r3l.runs.preemption import Preempted, time_limit
from r3l.runs.recorder import recording
from r3l.runs.result import result

log = logging.getLogger(__name__)


def train(run: Run, run_dir: Path, loggers: Sequence[str] = (), minutes: float | None = None) -> dict[str, Any]:
    """Train ``run`` in ``run_dir`` (resuming what is there); returns and writes result.json.

    ``loggers``: viewers that get a copy of the metrics (r3l.runs.loggers). After ``minutes`` an order to stop comes
    (Preempted).
    """
    began = time.monotonic()
    with locked(run_dir):
        start = checkpoint.latest(run_dir / "checkpoints")
        state = checkpoint.read_state(start, run.fingerprint()) if start else None
        with open_session(run, str(start) if start else start_of(run), trains=True) as session:
            write_json_atomic(run_dir / "manifest.json", manifest(run))
            trainer = trainer_of(run, session)
            totals: Counter[str] = Counter(state["totals"] if state else {})
            if start and state:
                checkpoint.load_trainer(start, trainer, state["step"])
            for name in (METRICS, trajectories.FILE):
                forget_after(run_dir / name, trainer.steps_done)
            if session.model.device.type == "cuda" and trainer.method.trains:
                trainer.probe_memory(run.sampling.max_context)
            before = trainer.steps_done
            try:
                with time_limit(None if minutes is None else began + 60 * minutes - time.monotonic()):
                    _loop(run, run_dir, session, trainer, totals, loggers)
            except Preempted:
                if trainer.steps_done > before:
                    _save(run, run_dir, session, trainer, totals)
                elif minutes is not None:
                    log.warning("no step ended within %g minutes: give more, or lower train.tasks_per_step", minutes)
                raise
            last = _save(run, run_dir, session, trainer, totals)
        found = result(run, run_dir, last, totals)
        write_json_atomic(run_dir / "result.json", found)
        return found


def trainer_of(run: Run, session: Session) -> Trainer:
    """The trainer of a session that trains, and the weights that its policy samples with."""
    method = build_method(run)
    sampler = copy.deepcopy(session.model) if run.train.sync_interval > 1 else session.model
    session.policy.model = sampler
    reference = _reference(run, session, method)
    return Trainer(
        session.model,
        method,
        run.train,
        reference,
        run.sampling.temperature,
        sampler,
        master_weights=session.master_weights,
    )


def _loop(
    run: Run, run_dir: Path, session: Session, trainer: Trainer, totals: Counter[str], loggers: Sequence[str]
) -> None:
    steps = run.train.steps if trainer.method.trains else 0
    if steps == 0:
        return
    tasks = session.package.tasks(run.env_settings.train_task_set)
    with recording(run, run_dir, loggers, trainer.steps_done) as record:
        while trainer.steps_done < steps:
            metrics = _step(run, run_dir, session, trainer, tasks)
            totals.update(run_metrics.totals([metrics]))
            record(metrics)
            if trainer.steps_done % run.train.save_every == 0:
                _save(run, run_dir, session, trainer, totals)


def _save(run: Run, run_dir: Path, session: Session, trainer: Trainer, totals: Counter[str]) -> Path:
    return checkpoint.save(run_dir / "checkpoints", trainer, session.tokenizer, run.fingerprint(), dict(totals))


def _step(run: Run, run_dir: Path, session: Session, trainer: Trainer, tasks: list[Task]) -> dict[str, float]:
    number = trainer.steps_done + 1
    ctx = session.rollout_context((run.seed, "train", number), run.sampling.temperature)
    session.policy.meter.clear()
    session.pool.lost = 0
    began = time.perf_counter()
    explored, dropped = explore(run, session, trainer.method, tasks, number, ctx)
    groups = [group for of_task in explored for group in of_task]
    middle = time.perf_counter()
    rows = rows_of(trainer.method, groups, run.samples)
    trained = trainer.step(rows)
    if trainer.steps_done % run.train.sync_interval == 0:
        trainer.sync()
    seconds = {"seconds/collect": middle - began, "seconds/train": time.perf_counter() - middle}
    if number in trajectories.kept_steps(run.train.steps):
        for line in trajectories.lines(trainer.method, explored, ctx.explored, session.tokenizer.decode):
            append_jsonl(run_dir / trajectories.FILE, {"step": number, "method": run.method, **line})
    every = run.train.kl_metric_every
    if every and number % every == 0:
        trained["kl_to_start"] = trainer.kl_to_reference([row for row in rows if row.mask.any()])
    phases = {k: v for k, v in session.policy.meter.items() if k.startswith("seconds/")}
    metrics = {
        "step": number,
        **step_metrics.of_groups(groups, ctx.explored, len(dropped)),
        **step_metrics.of_rows(rows),
        **ctx.counters,
        "dropped/workers": session.pool.lost,
        **trained,
        **seconds,
        **phases,
    }
    return run_metrics.with_rates(metrics)


def explore(
    run: Run, session: Session, method: Method, tasks: list[Task], number: int, ctx: RolloutContext
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
        ctx.counters["sampling_rounds"] += 1
        explored = session.spread(ctx, lambda lane, task: method.explore(task, lane), chosen)
        for groups in explored:
            (kept if method.keep(groups) else dropped).append(groups)
        if len(kept) >= count:
            break
    return kept, dropped


def _reference(run: Run, session: Session, method: Method) -> Any | None:
    """A frozen copy of the *starting* model, for a KL in the loss or in the metrics."""
    if method.kl_coef == 0 and run.train.kl_metric_every == 0:
        return None
    start = start_of(run)
    if locate(start) == str(session.model.name_or_path):
        return copy.deepcopy(session.model).eval()
    reference = checkpoint.load_model(start, session.model.device)[0].eval()
    lower(reference, session.model.dtype)
    return reference
