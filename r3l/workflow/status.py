"""How far a grid of runs is, read from their directories: the state of each, its score, and the time that is left."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from statistics import mean
from typing import Any, Literal

from filelock import FileLock, Timeout

from r3l.config import Run
from r3l.core.errors import DataError
from r3l.files.json_files import read_json, read_jsonl
from r3l.files.shapes import CheckedTaskSets
from r3l.runs.metrics import TRAIN_SUCCESS, step_seconds
from r3l.runs.run_dir import FAILED, METRICS, RESULT, recorded_fingerprint
from r3l.runs.run_paths import PLAYED, evaluation_of, validation_evaluation
from r3l.workflow.plan import LOGS

Split = Literal["test", "validation"]
EVALUATIONS = {"test": evaluation_of, "validation": validation_evaluation}
UNKNOWN = 60.0  # seconds of a training of which nothing is known yet; any number, until a run has made steps


class State(StrEnum):
    """What has become of a run."""

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
    State.DAMAGED: "a file there cannot be read",
    State.OTHER: "the directory holds a run of another configuration",
    State.MISSING: "not begun",
}
Key = tuple[str, str, str]  # tier, environment, method


@dataclass(frozen=True)
class Status:
    """A run of the grid: ``steps`` done of ``planned``.

    ``seconds_left``: expected of its training, on this run's threads; None: unknown. ``success``: of its evaluation
    where it is evaluated, else of the last step's base rollouts. ``played``: episodes of the evaluation so far, of
    ``episodes`` (0: not known yet), on the tasks of ``split``.
    """

    run: Run
    path: Path
    state: State
    steps: int
    planned: int
    seconds_left: float | None
    error: str = ""
    success: float | None = None
    played: int = 0
    episodes: int = 0
    split: Split = "test"

    @property
    def name(self) -> str:
        return f"{self.run.env} {self.run.method} seed {self.run.seed}"

    @property
    def log(self) -> Path | None:
        """The log of its latest job, if any."""
        path = self.path.relative_to(LOGS.parent).with_suffix(".log")
        logs = [log for rule in ("train", "evaluate") if (log := LOGS / rule / path).is_file()]
        return max(logs, key=lambda log: log.stat().st_mtime, default=None)

    def as_json(self) -> dict[str, Any]:
        row = {"env": self.run.env, "method": self.run.method, "seed": self.run.seed, "path": str(self.path)}
        return row | {key: getattr(self, key) for key in ("state", "steps", "planned", "seconds_left", "error")}


def survey(
    runs: Mapping[str, Run], results: Path, times: Mapping[Key, float] | None = None, split: Split = "test"
) -> list[Status]:
    """The status of ``runs``, by their directories under ``results``.

    ``times``: see :func:`learned_times`; by default learned from the runs themselves. ``split``: the tasks that the
    evaluation plays.
    """
    folders = {results / path: run for path, run in runs.items()}
    known = learned_times(folders) if times is None else times
    return [_read(run, folder, known, split, results) for folder, run in folders.items()]


def seconds_left(statuses: Sequence[Status], cores: int) -> float:
    """The expected time until all are trained, with ``cores`` at work."""
    left = [UNKNOWN if status.seconds_left is None else status.seconds_left for status in statuses]
    work = sum(seconds * status.run.threads for seconds, status in zip(left, statuses, strict=True))
    return max([work / cores, *left])


def learned_times(folders: Iterable[Path]) -> dict[Key, float]:
    """Mean seconds of a finished training by (tier, environment, method)."""
    seconds: dict[Key, list[float]] = defaultdict(list)
    for folder in folders:
        if (folder / RESULT).is_file():
            with suppress(DataError, OSError):  # the run's own status says it
                result = read_json(folder / RESULT)
                key = result["tier"], result["env"], result["method"]
                seconds[key].append(sum(map(step_seconds, read_jsonl(folder / METRICS))))
    return {key: mean(values) for key, values in seconds.items()}


def expected_seconds(run: Run, times: Mapping[Key, float]) -> float | None:
    """The same method's time in this environment, else the mean of the other methods there; None: unknown."""
    if (run.tier, run.env, run.method) in times:
        return times[run.tier, run.env, run.method]
    others = [seconds for (*place, _), seconds in times.items() if place == [run.tier, run.env] and seconds]
    return mean(others) if others else None


def _read(run: Run, folder: Path, times: Mapping[Key, float], split: Split, results: Path) -> Status:
    """The status of one run: a file that cannot be read is its error, and no other run's."""
    try:
        return _status(run, folder, times, split, results)
    except (DataError, OSError) as error:
        return Status(run, folder, State.DAMAGED, 0, run.train.steps, None, str(error), split=split)


def _status(run: Run, folder: Path, times: Mapping[Key, float], split: Split, results: Path) -> Status:
    evaluation = EVALUATIONS[split](folder, run)
    state, error = _state(run, folder, evaluation)
    planned = run.train.steps if run.method != "zero_shot" else 0
    if state is State.DONE:
        scores = read_json(evaluation)["groups"]["all"]
        episodes = scores["episodes"]
        return Status(run, folder, state, planned, planned, 0.0, error, scores["success"], episodes, episodes, split)
    rows = [] if state in (State.MISSING, State.OTHER) else read_jsonl(folder / METRICS)
    total = mean(map(step_seconds, rows)) * planned if rows else expected_seconds(run, times)
    left = 0.0 if not planned else None if total is None else total * (1 - len(rows) / planned)
    success = rows[-1].get(TRAIN_SUCCESS) if rows else None
    played = read_jsonl(evaluation.with_name(PLAYED)) if len(rows) >= planned else []
    count = sum(len(line["episodes"]) for line in played)
    return Status(
        run, folder, state, len(rows), planned, left, error, success, count, _episodes(run, results, split), split
    )


def _state(run: Run, folder: Path, evaluation: Path) -> tuple[State, str]:
    """A run's state, and its error where it has failed."""
    failed = str(read_json(folder / FAILED)["error"]) if (folder / FAILED).is_file() else ""
    if _locked(folder):
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


def _episodes(run: Run, results: Path, split: Split) -> int:
    """Episodes of the evaluation; 0 until the workflow has checked the task sets."""
    path = results / "task_sets" / run.tier / f"{run.env}.json"
    tasks: int = (
        read_json(path, CheckedTaskSets)["task_sets"].get(split, {"tasks": 0})["tasks"] if path.is_file() else 0
    )
    return tasks * run.evaluation.episodes_per_task


def _locked(folder: Path) -> bool:
    """Whether a process owns the directory."""
    path = folder / ".lock"
    if not path.is_file():
        return False
    try:
        with FileLock(path, timeout=0):
            return False
    except Timeout:
        return True
