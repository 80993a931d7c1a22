"""How far a grid of runs is: done, running, stopped, failed, missing, and how long the rest may take."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from statistics import mean
from typing import Any

from filelock import FileLock, Timeout

from r3l.config import Run
from r3l.files.json_files import read_json, read_jsonl
from r3l.runs.metrics import step_seconds
from r3l.runs.run_dir import FAILED, METRICS, recorded_fingerprint


class State(StrEnum):
    """What has become of a run."""

    DONE = "done"
    TRAINED = "trained"
    RUNNING = "running"
    FAILED = "failed"
    STOPPED = "stopped"
    OTHER = "other"
    MISSING = "missing"


MEANINGS = {
    State.DONE: "trained and evaluated",
    State.TRAINED: "not evaluated yet",
    State.RUNNING: "a process is at work",
    State.FAILED: "ended by an error; re-run to resume",
    State.STOPPED: "killed; re-run to resume",
    State.OTHER: "the directory holds a run of another configuration",
    State.MISSING: "not begun",
}
Key = tuple[str, str, str]  # tier, environment, method


@dataclass(frozen=True)
class Status:
    """A run of the grid. ``steps`` done of ``planned``; ``seconds_left``: expected, on one core;
    None: unknown."""

    run: Run
    path: Path
    state: State
    steps: int
    planned: int
    seconds_left: float | None
    error: str = ""

    def as_json(self) -> dict[str, Any]:
        """The row that ``r3l run --status --json`` prints."""
        row = {"env": self.run.env, "method": self.run.method, "seed": self.run.seed, "path": str(self.path)}
        return row | {k: getattr(self, k) for k in ("state", "steps", "planned", "seconds_left", "error")}


def survey(runs: Mapping[str, Run], results: Path, known: Iterable[Path] = ()) -> list[Status]:
    """The state of ``runs``, by their directories under ``results``; times are learnt there and in ``known``."""
    folders = {results / path: run for path, run in runs.items()}
    times = learnt_times([*folders, *known])
    return [status_of(run, folder, times) for folder, run in folders.items()]


def status_of(run: Run, folder: Path, times: Mapping[Key, float]) -> Status:
    """The state of ``run`` in its directory ``folder``; ``times``: see :func:`learnt_times`."""
    state, error = _state(run, folder)
    planned = run.train.steps if run.method != "zero_shot" else 0
    rows = [] if state in (State.MISSING, State.OTHER) else read_jsonl(folder / METRICS)
    seconds = _seconds(rows) / len(rows) * planned if rows else expected_seconds(run, times)
    if state is State.DONE:
        seconds_left: float | None = 0.0
    else:
        seconds_left = None if seconds is None else seconds * (1 - len(rows) / max(planned, 1))
    return Status(run, folder, state, len(rows), planned, seconds_left, error)


def _state(run: Run, folder: Path) -> tuple[State, str]:
    if _locked(folder):
        return State.RUNNING, ""
    fingerprint = recorded_fingerprint(folder)
    if fingerprint is None:
        return (State.FAILED, _error(folder)) if (folder / FAILED).is_file() else (State.MISSING, "")
    if fingerprint != run.fingerprint():
        return State.OTHER, ""
    if (folder / "evaluation.json").is_file():
        return State.DONE, ""
    if (folder / FAILED).is_file():
        return State.FAILED, _error(folder)
    return (State.TRAINED if (folder / "result.json").is_file() else State.STOPPED), ""


def _error(folder: Path) -> str:
    return str(read_json(folder / FAILED)["error"])


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


def learnt_times(folders: Iterable[Path]) -> dict[Key, float]:
    """Mean seconds of a finished training by (tier, environment, method)."""
    seconds: dict[Key, list[float]] = defaultdict(list)
    for folder in folders:
        if (folder / "result.json").is_file():
            result = read_json(folder / "result.json")
            key = result["tier"], result["env"], result["method"]
            seconds[key].append(_seconds(read_jsonl(folder / METRICS)))
    return {key: mean(values) for key, values in seconds.items()}


def expected_seconds(run: Run, times: Mapping[Key, float]) -> float | None:
    """As the same method took in this environment, else its other methods on average; None: nothing is known."""
    if (run.tier, run.env, run.method) in times:
        return times[run.tier, run.env, run.method]
    others = [seconds for (*place, _), seconds in times.items() if place == [run.tier, run.env] and seconds]
    return mean(others) if others else None


def _seconds(rows: Iterable[Mapping[str, float]]) -> float:
    return sum(map(step_seconds, rows))
