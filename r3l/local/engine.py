"""The local engine: collect, batch, update, log, until the last step. Running it again resumes.

The run directory holds everything; ``result.json`` appears last and atomically. It contains no time and no date, so a
killed and resumed run writes the same bytes as an uninterrupted one.
"""

from __future__ import annotations

import copy
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from r3l.config import Run, base_checkpoint_of, build_method, locate
from r3l.core.batching import TrajectoryRow, rows_of
from r3l.core.method import Method
from r3l.core.rollout import RolloutContext
from r3l.core.task import Task, tasks_of_step, with_occurrences
from r3l.core.trajectory import Group
from r3l.core.validation import explored, kept
from r3l.endpoint.judge import judging
from r3l.files.json_files import append_jsonl, read_jsonl
from r3l.files.writing import write_json_atomic
from r3l.local import checkpoint
from r3l.local.model.precision import cast_parameters
from r3l.local.session import Session, check_installed, open_session, pass_wanted
from r3l.local.training.trainer import Trainer
from r3l.runs import metrics as run_metrics
from r3l.runs import steps, trajectory_log
from r3l.runs.manifest import manifest
from r3l.runs.preemption import Preempted, time_limit
from r3l.runs.result import finished_result, result
from r3l.runs.run_dir import CURVE, MANIFEST, METRICS, RESULT, check_owner, forget_after, locked
from r3l.runs.session import progress
from r3l.runs.steps import keeping_batch, recording

log = logging.getLogger(__name__)
Metrics = dict[str, float]
AfterUpdate = Callable[[Session, Path, int], None]  # session, run directory, updates that are done


def train(
    run: Run,
    run_dir: Path,
    loggers: Sequence[str] = (),
    minutes: float | None = None,
    after_update: AfterUpdate | None = None,
) -> dict[str, Any]:
    """Train ``run`` in ``run_dir`` (resuming what is there); returns and writes result.json.

    ``loggers``: viewers that get a copy of the metrics (r3l.runs.loggers). ``after_update`` is called after each update
    (r3l.evaluation.curve plays test tasks then). Raises Preempted at a signal to stop, or after ``minutes``.
    """
    began = time.monotonic()
    check_installed(run)
    if not run_dir.is_dir():
        checkpoint.check_template(run)
    with locked(run_dir):
        if done := finished_result(run, run_dir):
            return done
        check_owner(run_dir, run)
        method = build_method(run)
        if not method.trains:
            checkpoint.find(base_checkpoint_of(run))
            write_json_atomic(run_dir / MANIFEST, manifest(run))
            content = result(run, run_dir, None, {})
            write_json_atomic(run_dir / RESULT, content)
            return content
        start = checkpoint.last_good(run_dir / "checkpoints")
        state = checkpoint.read_state(start, run.fingerprint()) if start else None
        with open_session(run, str(start) if start else base_checkpoint_of(run), trains=True) as session:
            write_json_atomic(run_dir / MANIFEST, manifest(run))
            training = Training(session, method, trainer_of(session, method), run_dir, after_update)
            if start and state:
                training.resume(start, state)
            for name in (METRICS, CURVE, trajectory_log.FILE):
                forget_after(run_dir / name, training.trainer.steps_done)
            if session.model.device.type == "cuda":
                training.trainer.probe_memory(run.sampling.max_context)
            training.history += read_jsonl(run_dir / METRICS)
            resumed_at = training.trainer.steps_done
            try:
                with time_limit(None if minutes is None else began + 60 * minutes - time.monotonic()):
                    training.steps(loggers)
            except Preempted:
                if training.trainer.steps_done > resumed_at:
                    training.save()
                elif minutes is not None:
                    log.warning("no step ended within %g minutes: give more, or lower train.tasks_per_step", minutes)
                raise
            last = training.save()
        content = result(run, run_dir, last, training.totals)
        write_json_atomic(run_dir / RESULT, content)
        return content


def trainer_of(session: Session, method: Method) -> Trainer:
    """The trainer of a session that trains."""
    return Trainer(
        session.model,
        method,
        session.run.train,
        _reference(session, method),
        session.run.sampling.temperature,
        sampler=session.policy.model,
        master_weights=session.master_weights,
        forward=pass_wanted(session.run),
    )


@dataclass(frozen=True)
class Collected:
    """What was played for step ``number``: the groups of each task that trains, and of those that the method refused.

    ``ctx`` has every trajectory and the budget; ``metrics`` are seconds, by phase of sampling and in all, and workers
    that were lost.
    """

    number: int
    tasks: list[list[Group]]
    refused: list[list[Group]]
    ctx: RolloutContext
    metrics: Metrics

    @property
    def groups(self) -> list[Group]:
        """Of all tasks that train."""
        return [group for groups in self.tasks for group in groups]


@dataclass
class Training:
    """A run under way in ``run_dir``. ``totals``: rollouts, tokens and the like, added up over its steps; ``history``:
    the metrics of the steps that are done."""

    session: Session
    method: Method
    trainer: Trainer
    run_dir: Path
    after_update: AfterUpdate | None = None
    totals: Counter[str] = field(default_factory=Counter)
    history: list[Mapping[str, float]] = field(default_factory=list)

    @property
    def run(self) -> Run:
        """The run that is trained."""
        return self.session.run

    def resume(self, path: Path, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint and its state file."""
        checkpoint.load_trainer(path, self.trainer, state["step"])
        self.session.policy.sync_weights()  # a sampler that lags behind has been loaded
        self.totals.update(state["totals"])

    def steps(self, loggers: Sequence[str]) -> None:
        """Collect, batch, update, log."""
        run, method = self.run, self.method
        last = run.train.steps
        tasks = self.session.package.tasks(run.env_settings.train_task_set)
        saved = time.monotonic()
        with recording(run, self.run_dir, loggers, self.trainer.steps_done) as record:
            while self.trainer.steps_done < last:
                collected = collect(self.session, method, tasks, self.trainer.steps_done + 1, self.history)
                rows = rows_of(method, collected.groups, run.samples)
                with keeping_batch(run, collected.number, self.run_dir, rows):
                    updated = self.update(rows)
                record(metrics := self.log(collected, rows, updated))
                self.history.append(metrics)
                if self.after_update:
                    self.after_update(self.session, self.run_dir, self.trainer.steps_done)
                due = time.monotonic() - saved >= 60 * run.train.save_minutes
                if due or self.trainer.steps_done % run.train.save_every == 0:
                    self.save()
                    saved = time.monotonic()

    def update(self, rows: Sequence[TrajectoryRow]) -> Metrics:
        """One optimiser step, handed to the sampler when its turn comes; metrics."""
        began = time.perf_counter()
        self.session.policy.release()
        metrics = self.trainer.step(rows)
        if self.trainer.steps_done % self.run.train.sync_interval == 0:
            self.trainer.sync()
            metrics |= self.session.policy.sync_weights()
        metrics["seconds/train"] = time.perf_counter() - began
        every = self.run.train.kl_metric_every
        if every and self.trainer.steps_done % every == 0:
            metrics["kl_to_start"] = self.trainer.kl_to_reference([row for row in rows if row.mask.any()])
        return metrics

    def log(self, collected: Collected, rows: Sequence[TrajectoryRow], updated: Metrics) -> Metrics:
        """All metrics of a step; of some steps also trajectories, for readers."""
        ctx = collected.ctx
        if collected.number in trajectory_log.logged_steps(self.run.train.steps):
            for line in trajectory_log.lines(self.method, collected.tasks, ctx.played(), self.session.tokenizer.decode):
                append_jsonl(
                    self.run_dir / trajectory_log.FILE, {"step": collected.number, "method": self.run.method, **line}
                )
        metrics = {
            "step": collected.number,
            **steps.of_groups(collected.groups, ctx.played(), len(collected.refused)),
            **steps.of_rows(rows),
            **ctx.counters,
            **collected.metrics,
            **updated,
        }
        self.totals.update(run_metrics.totals([metrics]))
        return run_metrics.with_rates(metrics)

    def save(self) -> Path:
        """A checkpoint of the last step."""
        folder = self.run_dir / "checkpoints"
        return checkpoint.save(folder, self.trainer, self.session.tokenizer, self.run.fingerprint(), dict(self.totals))


def collect(
    session: Session, method: Method, tasks: Sequence[Task], number: int, history: Sequence[Mapping[str, float]] = ()
) -> Collected:
    """Play step ``number`` of ``tasks``, the task set that trains. ``history``: the metrics of the steps before.

    A method with several rounds gets further tasks in place of refused ones (DAPO's dynamic sampling); if the rounds
    run out, the batch stays smaller.
    """
    run, began = session.run, time.perf_counter()
    ctx = session.rollout_context((run.seed, "train", number), run.sampling.temperature)
    ctx.progress = progress(run, number)
    ctx.history = history
    accepted: list[list[Group]] = []
    refused: list[list[Group]] = []
    count, lost_before = run.train.tasks_per_step, session.pool.lost
    drawn: Counter[str] = Counter()
    for extra in range(method.max_rounds):
        batch = tasks_of_step(tasks, run.seed, number, count, extra)[: count - len(accepted)]
        batch = with_occurrences(batch, drawn)
        ctx.counters["sampling_rounds"] += 1
        for groups in session.wait(_explored(session, method, ctx, batch)):
            (accepted if kept(method, groups) else refused).append(groups)
        if len(accepted) >= count:
            break
    metrics = {key: value for key, value in session.policy.take_counts().items() if key.startswith("seconds/")}
    metrics |= {"seconds/collect": time.perf_counter() - began, "dropped/workers": session.pool.lost - lost_before}
    return Collected(number, accepted, refused, ctx, metrics)


async def _explored(session: Session, method: Method, ctx: RolloutContext, tasks: Sequence[Task]) -> list[list[Group]]:
    async with judging(session.run, ctx):
        return await session.gather(lambda task: explored(method, task, ctx), tasks)


def _reference(session: Session, method: Method) -> Any | None:
    """The *starting* model, for a KL in the loss or in the metrics: a frozen copy, or the model itself where an adapter
    is all that trains."""
    run = session.run
    if method.kl_coef == 0 and run.train.kl_metric_every == 0:
        return None
    if run.lora.rank:
        return session.model
    start = base_checkpoint_of(run)
    if locate(start) == str(session.model.name_or_path):
        return copy.deepcopy(session.model).eval()
    reference = checkpoint.load_model(start, session.model.device, pass_wanted(run))[0].eval()
    cast_parameters(reference, session.model.dtype)
    return reference
