"""Local engine: collect, batch, update, log and save, until the last step. Running it again resumes.

``train`` opens the run directory, ``train_model`` loads or resumes, ``run_steps`` is the training loop.

The run directory holds everything; ``result.json`` appears last and atomically. That file has no time and no
date, so a killed and resumed run writes the same bytes as an uninterrupted one.
"""

from __future__ import annotations

import copy
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from r3l.config import Run, base_checkpoint_of, build_method, locate
from r3l.core.batching import TrajectoryRow, rows_of
from r3l.core.method import Method
from r3l.core.method_validation import explore_checked, keep_checked
from r3l.core.rollout import RolloutContext
from r3l.core.task import Task, tasks_of_step, with_occurrences
from r3l.core.trajectory import Group, unique
from r3l.endpoint.judge import judging
from r3l.files.json_files import append_jsonl, read_jsonl
from r3l.files.writing import write_json_atomic
from r3l.local import checkpoint
from r3l.local.memory import needs_base
from r3l.local.model.precision import cast_parameters
from r3l.local.session import LocalSession, check_installed, forward_pass_of_run, open_session
from r3l.local.training.trainer import Trainer
from r3l.runs import step_metrics, steps, trajectory_log
from r3l.runs.loggers import Log
from r3l.runs.manifest import manifest
from r3l.runs.metrics import COLLECT_SECONDS, TRAIN_SECONDS
from r3l.runs.preemption import Preempted, TimeLimit, time_limit
from r3l.runs.result import Result, finished_result, result
from r3l.runs.run_dir import (
    CHECKPOINTS,
    CURVE,
    MANIFEST,
    METRICS,
    RESULT,
    check_owner,
    check_recorded_curve,
    forget_after,
    locked,
)
from r3l.runs.session import finished_share
from r3l.runs.steps import Metrics, keeping_batch, recording

log = logging.getLogger(__name__)
AfterUpdate = Callable[[LocalSession, Path, int], None]  # session, run directory, number of updates done


def train(
    run: Run,
    run_dir: Path,
    loggers: Sequence[str | Log] = (),
    minutes: float | None = None,
    after_update: AfterUpdate | None = None,
) -> Result:
    """Train ``run`` in ``run_dir``, or resume it there; writes result.json and returns its content.

    A run that is finished already is returned at once. ``loggers``: services that get a copy of the metrics
    (r3l.runs.loggers). ``after_update(session, run_dir, number of updates)`` is called after each update, and
    for the last one again when resuming. ``minutes``: time limit of this process; None: none. Raises
    Preempted at a signal to stop or at the limit, after saving the complete steps; ConfigError or
    CheckpointError, before any work, if the run cannot start; RunDirectoryError if another process holds
    ``run_dir`` or it cannot be written; CheckpointError or DataError if it holds another run or damaged
    files; EngineError or NonFiniteError if a step fails (see :func:`collect` and :func:`update`).
    """
    # Checks before the directory is made: a run that cannot start leaves none. A run with a manifest has
    # passed them.
    began = time.monotonic()
    check_installed(run)
    if not (run_dir / MANIFEST).is_file():
        checkpoint.check_start(run)
    done = finished_result(run, run_dir)  # once for a finished run: it reads all weights
    if done is None:
        check_owner(run_dir, run)  # a stored run, or another one, stays as it is
    with locked(run_dir):
        # A directory belongs to one configuration; its run is finished, interrupted or new.
        if done := done or finished_result(run, run_dir):
            return done
        check_owner(run_dir, run)

        # Train, or for a method that trains nothing check that the base checkpoint exists.
        method = build_method(run)
        totals: Counter[str] = Counter()  # rollouts, tokens and the like, summed over the run's steps
        if method.trains:
            last = train_model(run, method, totals, run_dir, loggers, TimeLimit(began, minutes), after_update)
        else:
            checkpoint.find(base_checkpoint_of(run))
            write_json_atomic(run_dir / MANIFEST, manifest(run))
            last = None

        # Last of all: a directory with result.json is finished.
        content = result(run, run_dir, last, totals)
        write_json_atomic(run_dir / RESULT, content)
        return content


def train_model(
    run: Run,
    method: Method,
    totals: Counter[str],
    run_dir: Path,
    loggers: Sequence[str | Log],
    limit: TimeLimit,
    after_update: AfterUpdate | None,
) -> Path:
    """Load the model or resume from the last checkpoint, run the remaining steps, and save.

    Returns the folder of the last checkpoint. Writes the manifest, drops lines of the logs that are newer
    than the checkpoint, and adds rollouts, tokens and the like to ``totals``. At a stop (Preempted) it saves
    the steps that are complete first.
    """
    # Load the weights: of the last good checkpoint when resuming, else of the base checkpoint.
    start = checkpoint.last_good(run_dir / CHECKPOINTS)
    state = checkpoint.read_state(start, run.fingerprint()) if start else None
    if state:
        check_recorded_curve(run_dir, run.evaluation.curve, state["step"])
    with open_session(run, str(start) if start else base_checkpoint_of(run), trains=True) as session:
        write_json_atomic(run_dir / MANIFEST, manifest(run))
        trainer = trainer_of(session, method)

        # Resume: the optimiser and the totals go back to the checkpoint's step, and lines that the stopped
        # process wrote after it are dropped, since their steps run again. Every draw is seeded by the step's
        # address, so no generator has a state to restore, and the steps come out the same.
        if start and state:
            checkpoint.load_trainer(start, trainer, state["step"])
            session.policy.sync_weights()  # load_trainer has loaded a sampler whose weights lag behind
            totals.update(state["totals"])
        for name in (METRICS, CURVE, trajectory_log.FILE):
            forget_after(run_dir / name, trainer.steps_done)
        resumed_at = trainer.steps_done

        # Too little GPU memory shows now, not in the middle of the run.
        if session.model.device.type == "cuda":
            trainer.probe_memory(run.sampling.max_context)

        try:
            with time_limit(limit.seconds_left()):
                run_steps(session, method, trainer, totals, run_dir, loggers, limit, after_update)
        except Preempted:  # while sampling: the steps before are complete, so keep them
            if trainer.steps_done > resumed_at:
                save_checkpoint(session, trainer, totals, run_dir)
            limit.warn_if_too_short()
            raise
        return save_checkpoint(session, trainer, totals, run_dir)


def run_steps(
    session: LocalSession,
    method: Method,
    trainer: Trainer,
    totals: Counter[str],
    run_dir: Path,
    loggers: Sequence[str | Log],
    limit: TimeLimit,
    after_update: AfterUpdate | None,
) -> None:
    """The training loop over the remaining steps: collect, batch, update, log, save now and then.

    Changes the weights of ``trainer``, adds to ``totals``, and writes metrics, trajectories and checkpoints
    into ``run_dir``. The last checkpoint is left to the caller. Raises Preempted at a stop, and what
    :func:`collect` and :func:`update` raise.
    """
    run = session.run
    tasks = session.package.tasks(run.env_settings.train_task_set)
    history: list[Mapping[str, float]] = [*read_jsonl(run_dir / METRICS)]  # of the steps that are done
    saved = time.monotonic()
    with recording(run, run_dir, loggers, trainer.steps_done) as record:
        # The stopped process may have saved its last update before its test tasks were all played.
        if trainer.steps_done and after_update:
            after_update(session, run_dir, trainer.steps_done)
        while trainer.steps_done < run.train.steps:
            # Collect: the method explores each task of the step, with the weights of the last sync.
            collected = collect(session, method, tasks, trainer.steps_done + 1, history)

            # Batch: teachers score, then groups become rows of tokens with advantages and weights.
            scoring = score(session, trainer, collected.groups)
            rows = rows_of(method, collected.groups, run.samples)

            # Update. Rows with a number that is not finite are kept in a file for inspection.
            with keeping_batch(run, collected.number, run_dir, rows):
                update_metrics = scoring | update(session, trainer, rows)

            # Log: one line of metrics.jsonl, and of some steps the trajectories.
            metrics = log_step(session, method, collected, rows, update_metrics, totals, run_dir)
            record(metrics)
            history.append(metrics)
            limit.step_ended()
            if after_update:
                after_update(session, run_dir, trainer.steps_done)

            # Save every so many steps, or minutes where steps are long.
            due = time.monotonic() - saved >= 60 * run.train.save_minutes
            if due or trainer.steps_done % run.train.save_every == 0:
                save_checkpoint(session, trainer, totals, run_dir)
                saved = time.monotonic()


@dataclass(frozen=True)
class Collected:
    """Trajectories of one step, before the update.

    ``number``: the step, from 1. ``tasks``: groups of each task that trains; ``refused``: groups of each
    task that the method dropped (for example because all of its rewards are equal). ``ctx``: has every
    trajectory, and counters of what was spent. ``metrics``: ``seconds/collect`` (in all),
    ``seconds/PHASE`` of sampling, ``dropped/workers`` (environment processes that were lost).
    """

    number: int
    tasks: list[list[Group]]
    refused: list[list[Group]]
    ctx: RolloutContext
    metrics: Metrics

    @property
    def groups(self) -> list[Group]:
        """The groups of all tasks that train, in one list."""
        return [group for groups in self.tasks for group in groups]


def collect(
    session: LocalSession,
    method: Method,
    tasks: Sequence[Task],
    number: int,
    history: Sequence[Mapping[str, float]] = (),
) -> Collected:
    """Let the method sample the trajectories of step ``number`` (from 1) on tasks drawn from ``tasks``.

    ``tasks``: the training set; ``train.tasks_per_step`` of them are drawn by seed. ``history``: metrics of
    the earlier steps, for methods that adapt. A method with several sampling rounds gets further tasks in
    place of refused ones (DAPO's dynamic sampling); if the rounds run out, the batch stays smaller. Raises
    EngineError if more than half of the step's rollouts ended in the environment's own error.
    """
    run = session.run
    began = time.perf_counter()
    session.policy.take_counts()  # of an evaluation since the last step, which samples with the same policy
    ctx = session.rollout_context((run.seed, "train", number), run.sampling.temperature)
    ctx.progress = finished_share(run, number)
    ctx.history = history
    ctx.tasks = tasks
    accepted: list[list[Group]] = []
    refused: list[list[Group]] = []
    count = run.train.tasks_per_step
    lost_before = session.pool.lost
    drawn: Counter[str] = Counter()  # a task that is drawn again in a step gets its own noise

    async def explore(batch: Sequence[Task]) -> list[list[Group]]:
        async with judging(run, ctx):
            return await session.gather(lambda task: explore_checked(method, task, ctx), batch)

    # Sample in rounds until enough tasks are accepted; most methods have one round and accept every task.
    for extra in range(method.max_rounds):
        batch = tasks_of_step(tasks, run.seed, number, count, extra)[: count - len(accepted)]
        batch = with_occurrences(batch, drawn)
        ctx.counters["sampling_rounds"] += 1
        for groups in session.wait(explore(batch)):
            if keep_checked(method, groups):
                accepted.append(groups)
            else:
                refused.append(groups)
        if len(accepted) >= count:
            break

    # Refuse to train on a broken environment, and measure.
    steps.check_failed_episodes(run, number, ctx.played())
    counts = session.policy.take_counts()
    metrics = {key: value for key, value in counts.items() if key.startswith("seconds/")}
    metrics[COLLECT_SECONDS] = time.perf_counter() - began
    metrics["dropped/workers"] = session.pool.lost - lost_before
    return Collected(number, accepted, refused, ctx, metrics)


def score(session: LocalSession, trainer: Trainer, groups: Sequence[Group]) -> Metrics:
    """Compute teachers' log-probs of the trajectories that have a teacher, and store them there.

    Returns counts, ``seconds/score`` and measures of the hints as metrics; {} without such a trajectory. The
    policy frees GPU memory that only sampling needs.
    """
    taught = unique([t for group in groups for t in group.trajectories if t.taught])
    if not taught:
        return {}
    session.policy.release()
    began = time.perf_counter()
    longest = session.run.sampling.max_context
    counts = trainer.score_teachers(taught, session.run.samples, longest)
    seconds = {"seconds/score": time.perf_counter() - began} if counts else {}
    return counts | seconds | steps.teacher_metrics(taught, session.tokenizer)


def update(session: LocalSession, trainer: Trainer, rows: Sequence[TrajectoryRow]) -> Metrics:
    """One optimiser update from ``rows``; returns its metrics with ``seconds/train``.

    Every ``train.sync_interval`` updates the sampler gets the new weights; every ``train.kl_metric_every``
    updates ``kl_to_start`` is measured, the KL to the base checkpoint (nats). Raises NonFiniteError for a NaN
    or infinite number, EngineError out of GPU memory.
    """
    config = session.run.train
    began = time.perf_counter()
    session.policy.release()  # GPU memory that only sampling needs
    metrics = trainer.step(rows)
    if trainer.steps_done % config.sync_interval == 0:
        trainer.sync()
        metrics |= session.policy.sync_weights()
    metrics[TRAIN_SECONDS] = time.perf_counter() - began
    if config.kl_metric_every and trainer.steps_done % config.kl_metric_every == 0:
        metrics["kl_to_start"] = trainer.kl_to_reference([row for row in rows if row.mask.any()])
    return metrics


def log_step(
    session: LocalSession,
    method: Method,
    collected: Collected,
    rows: Sequence[TrajectoryRow],
    update_metrics: Metrics,
    totals: Counter[str],
    run_dir: Path,
) -> Metrics:
    """Gather all metrics of a step in one dict, which the caller writes as a line of metrics.jsonl.

    Adds the counts among them to ``totals``. If the step is one of the few whose trajectories are logged,
    they are appended to the trajectory log in ``run_dir``.
    """
    run = session.run
    ctx = collected.ctx
    if collected.number in trajectory_log.logged_steps(run.train.steps):
        step = {"step": collected.number, "method": run.method}
        for line in trajectory_log.lines(method, collected.tasks, ctx.played(), session.tokenizer.decode):
            append_jsonl(run_dir / trajectory_log.FILE, step | line)
    metrics = {
        "step": collected.number,
        **steps.group_metrics(collected.groups, ctx.played(), len(collected.refused)),
        **steps.row_metrics(rows),
        **ctx.counters,
        **collected.metrics,
        **update_metrics,
    }
    totals.update(step_metrics.totals([metrics]))
    return step_metrics.with_rates(metrics)


def save_checkpoint(session: LocalSession, trainer: Trainer, totals: Counter[str], run_dir: Path) -> Path:
    """Write a checkpoint of the present state unless that step has one already; returns its folder."""
    fingerprint = session.run.fingerprint()
    return checkpoint.save(run_dir / CHECKPOINTS, trainer, session.tokenizer, fingerprint, dict(totals))


def trainer_of(session: LocalSession, method: Method) -> Trainer:
    """A new trainer for the session's model, with the options of its run.

    Loads the base checkpoint as reference model if the method or a metric needs its log-probs. Raises
    CheckpointError if it cannot be loaded.
    """
    run = session.run

    # The cheapest way to the base checkpoint: with LoRA the same model with its adapter off; in a new run a
    # copy of the loaded weights, which are the base's; in a resumed run its files.
    reference: Any | None = None
    if needs_base(run.train, method):
        base = base_checkpoint_of(run)
        if run.lora.rank:
            reference = session.model
        elif locate(base) == str(session.model.name_or_path):
            reference = copy.deepcopy(session.model).eval()
        else:
            reference = checkpoint.load_model(base, session.model.device, forward_pass_of_run(run))[0].eval()
            cast_parameters(reference, session.model.dtype)
    return Trainer(
        session.model,
        method,
        run.train,
        reference,
        run.sampling.temperature,
        sampler=session.policy.model,
        master_weights=session.master_weights,
        forward_pass=forward_pass_of_run(run),
        teacher=method.teacher,
        teacher_rate=method.teacher_rate,
    )
