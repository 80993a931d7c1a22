"""Progress of a grid of runs, read from their directories: state, score and remaining time of each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from pathlib import Path
from statistics import mean
from typing import Any, Literal

from r3l.config import Run, trains
from r3l.core.errors import DataError
from r3l.evaluation.episodes import EpisodeBatch, Evaluation
from r3l.files.json_files import read_json, read_jsonl
from r3l.runs.metrics import COLLECT_SECONDS, TRAIN_SECONDS, TRAIN_SUCCESS
from r3l.runs.result import Result
from r3l.runs.run_dir import EVALUATION, FAILED, RESULT, Failure, is_locked, recorded_fingerprint
from r3l.runs.run_paths import PLAYED, validation_evaluation
from r3l.runs.step_metrics import read_columns, read_metrics, step_seconds
from r3l.workflow.plan import LOGS
from r3l.workflow.task_sets import CheckedTaskSets

Split = Literal["test", "validation"]


class State(StrEnum):
    """State of a run in `r3l run status`; :data:`MEANINGS` explains them."""

    DONE = "done"
    TRAINED = "trained"
    RUNNING = "running"
    FAILED = "failed"
    STOPPED = "stopped"
    DAMAGED = "damaged"
    OTHER = "other"
    MISSING = "missing"


MEANINGS = {
    State.DONE: "trained and evaluated",
    State.TRAINED: "not evaluated yet",
    State.RUNNING: "a process is at work",
    State.FAILED: "ended with an error; re-run to resume",
    State.STOPPED: "killed; re-run to resume",
    State.DAMAGED: "one of its files cannot be read",
    State.OTHER: "the directory holds a run of another configuration",
    State.MISSING: "not started",
}
Key = tuple[str, str, str]  # tier, environment, method
Times = Callable[[], Mapping[Key, float]]  # expected training seconds


@dataclass(frozen=True)
class Status:
    """How far a planned run is: ``steps`` done of ``planned``, in its directory ``path``.

    ``seconds_left``: expected remaining seconds of training on this run's threads, None if unknown.
    ``error``: the error that ended its last command, else ''. ``success``: success rate of the evaluation if
    that is finished, else of the last training step's base rollouts (no retries), None before the first step.
    ``episodes_done``: episodes of the evaluation so far, of ``episodes`` (0: not known yet), on the tasks of
    ``split``, ``test`` or ``validation``. ``state``: see :data:`MEANINGS`.
    """

    run: Run
    path: Path
    state: State
    steps: int
    planned: int
    seconds_left: float | None
    error: str = ""
    success: float | None = None
    episodes_done: int = 0
    episodes: int = 0
    split: Split = "test"

    @property
    def name(self) -> str:
        """Environment, method and seed in words: ``alfworld r3l seed 0``."""
        return f"{self.run.env} {self.run.method} seed {self.run.seed}"

    @property
    def log(self) -> Path | None:
        """The latest log of a job of the run in results/logs, to train or to evaluate; None without one."""
        path = self.path.relative_to(LOGS.parent).with_suffix(".log")
        logs = [LOGS / rule / path for rule in ("train", "evaluate")]
        present = [log for log in logs if log.is_file()]
        return max(present, key=lambda log: log.stat().st_mtime, default=None)

    def as_json(self) -> dict[str, Any]:
        """The status as JSON values: env, method, seed, path, state, steps, planned, seconds_left, error."""
        return {
            "env": self.run.env,
            "method": self.run.method,
            "seed": self.run.seed,
            "path": str(self.path),
            "state": self.state,
            "steps": self.steps,
            "planned": self.planned,
            "seconds_left": self.seconds_left,
            "error": self.error,
        }


def survey(
    runs: Mapping[str, Run], results: Path, times: Times | None = None, split: Split = "test"
) -> list[Status]:
    """The status of ``runs``, in their order, read from their directories below ``results``.

    ``runs``: by directory below ``results``. A damaged file affects only its own run, whose state is then
    ``damaged``. ``times`` gives expected seconds as :func:`learned_times` does, by default learned from the
    runs themselves; it is called at most once, if a run has not begun. ``split``: the task set, test or
    validation, whose evaluation finishes a run.
    """
    folders = {results / path: run for path, run in runs.items()}
    known = cache(times or (lambda: learned_times(folders)))
    statuses: list[Status] = []
    for folder, run in folders.items():
        try:
            statuses.append(_status(run, folder, known, split, results))
        except (DataError, OSError) as error:
            status = Status(run, folder, State.DAMAGED, 0, _planned(run), None, str(error), split=split)
            statuses.append(status)
    return statuses


def seconds_left(statuses: Sequence[Status], cores: int) -> float | None:
    """Expected seconds until all runs are trained, on ``cores`` cores; None if unknown for one of them.

    It is the work of all runs divided by the cores, but at least the time of the longest run. Failed and
    damaged runs do not count, since a workflow at work does not start them again.
    """
    # One run never uses more cores than it has threads.
    work = 0.0
    longest = 0.0
    for status in statuses:
        if status.state in (State.FAILED, State.DAMAGED):
            continue
        if status.seconds_left is None:
            return None
        work += status.seconds_left * status.run.threads
        longest = max(longest, status.seconds_left)
    return max(work / cores, longest)


def learned_times(folders: Iterable[Path]) -> dict[Key, float]:
    """Mean training seconds of the finished runs in ``folders``, by (tier, environment, method).

    ``folders``: directories of runs; those without a result, or with a damaged one, are left out.
    """
    seconds: dict[Key, list[float]] = defaultdict(list)
    for folder in folders:
        if (folder / RESULT).is_file():
            with suppress(DataError, OSError):  # reported by the run's own status
                result = read_json(folder / RESULT, Result)
                key = result["tier"], result["env"], result["method"]
                kept = read_columns(folder)
                steps = zip(kept[COLLECT_SECONDS], kept[TRAIN_SECONDS], strict=True)
                seconds[key].append(sum((collect or 0) + (train or 0) for collect, train in steps))
    return {key: mean(values) for key, values in seconds.items()}


def expected_seconds(run: Run, times: Mapping[Key, float]) -> float | None:
    """Expected training seconds of ``run``, from the ``times`` of finished runs; None if unknown.

    It is the mean time of its method in its environment, else the mean over the other methods of that
    environment that train.
    """
    if (run.tier, run.env, run.method) in times:
        return times[run.tier, run.env, run.method]
    others = []
    for (tier, env, _), seconds in times.items():
        if (tier, env) == (run.tier, run.env) and seconds:
            others.append(seconds)
    return mean(others) if others else None


def _status(run: Run, folder: Path, times: Times, split: Split, results: Path) -> Status:
    """The status of one run. Raises DataError or OSError if a file cannot be read.

    ``times`` is called only for a run that has not begun: it reads the metrics of all others.
    """
    evaluation = evaluation_of(folder, run, split)
    state, error = _state(run, folder, evaluation)
    planned = _planned(run)
    status = Status(run, folder, state, 0, planned, seconds_left=None, error=error, split=split)
    if state is State.DONE:
        scores = read_json(evaluation, Evaluation)["groups"]["all"]
        return replace(
            status,
            steps=planned,
            seconds_left=0.0,
            success=scores["success"],
            episodes_done=scores["episodes"],
            episodes=scores["episodes"],
        )

    # Training: finished steps, and the time left at their mean, or at the mean of other runs before the first
    # one.
    rows = [] if state in (State.MISSING, State.OTHER) else read_metrics(folder)
    total = mean(map(step_seconds, rows)) * planned if rows else expected_seconds(run, times())
    left: float | None = 0.0
    if planned:
        left = None if total is None else total * (1 - len(rows) / planned)

    # Evaluation: finished episodes. Their number is known once the workflow has checked the task sets.
    batches = read_jsonl(evaluation.with_name(PLAYED), EpisodeBatch) if len(rows) >= planned else []
    episodes_done = sum(len(batch["episodes"]) for batch in batches)
    tasks = 0
    checked = results / "task_sets" / run.tier / f"{run.env}.json"
    if checked.is_file():
        task_sets = read_json(checked, CheckedTaskSets)["task_sets"]
        tasks = task_sets[split]["tasks"] if split in task_sets else 0
    return replace(
        status,
        steps=len(rows),
        seconds_left=left,
        success=rows[-1].get(TRAIN_SUCCESS) if rows else None,
        episodes_done=episodes_done,
        episodes=tasks * run.evaluation.episodes_per_task,
    )


def _planned(run: Run) -> int:
    """Number of updates of a run; 0 if its method trains nothing."""
    return run.train.steps if trains(run) else 0


def evaluation_of(run_dir: Path, run: Run, split: Split) -> Path:
    """Path of a run's evaluation.json on its test or validation task set; it need not exist.

    Raises ConfigError if it has no validation task set.
    """
    return run_dir / EVALUATION if split == "test" else validation_evaluation(run_dir, run)


def _state(run: Run, folder: Path, evaluation: Path) -> tuple[State, str]:
    """The state of a run, and the error that ended its last command, if any."""
    failed = read_json(folder / FAILED, Failure)["error"] if (folder / FAILED).is_file() else ""
    if is_locked(folder):
        return State.RUNNING, ""
    fingerprint = recorded_fingerprint(folder)
    if fingerprint is None:
        return (State.FAILED if failed else State.MISSING), failed
    if fingerprint != run.fingerprint():
        return State.OTHER, ""
    if evaluation.is_file():
        return State.DONE, ""
    if failed:
        return State.FAILED, failed
    return (State.TRAINED if (folder / RESULT).is_file() else State.STOPPED), ""
