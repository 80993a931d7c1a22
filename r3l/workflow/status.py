"""How far a grid of runs is: done, running, stopped, failed, missing, and how long the rest may take."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any, Literal

from filelock import FileLock, Timeout
from rich.table import Table

from r3l.config import Run
from r3l.runs.files import FAILED, read_json, read_jsonl
from r3l.runs.metrics import step_seconds

State = Literal["done", "trained", "running", "failed", "stopped", "other", "missing"]
STATES: dict[State, str] = {
    "done": "trained and evaluated",
    "trained": "not evaluated yet",
    "running": "a process is at work",
    "failed": "ended by an error; the same command goes on",
    "stopped": "killed between; the same command goes on",
    "other": "the directory holds a run of another configuration",
    "missing": "not begun",
}
Key = tuple[str, str, str]  # tier, environment, method


@dataclass(frozen=True)
class Status:
    """A run of the grid. ``steps`` done of ``planned``; ``left``: expected seconds on one core, None: unknown."""

    run: Run
    path: Path
    state: State
    steps: int
    planned: int
    left: float | None
    error: str = ""

    def as_json(self) -> dict[str, Any]:
        """The row that ``r3l status --json`` prints."""
        row = {"env": self.run.env, "method": self.run.method, "seed": self.run.seed, "path": str(self.path)}
        return row | {k: getattr(self, k) for k in ("state", "steps", "planned", "left", "error")}


def survey(runs: Mapping[str, Run], results: Path, known: Iterable[Path] = ()) -> list[Status]:
    """The state of ``runs``, by their directories under ``results``; times are learnt there and in ``known``."""
    folders = {results / path: run for path, run in runs.items()}
    times = learnt_times([*folders, *known])
    return [_status(run, folder, times) for folder, run in folders.items()]


def _status(run: Run, folder: Path, times: Mapping[Key, float]) -> Status:
    state, error = _state(run, folder)
    planned = run.train.steps if run.method != "zero_shot" else 0
    lines = [] if state in ("missing", "other") else read_jsonl(folder / "metrics.jsonl")
    whole = _seconds(lines) / len(lines) * planned if lines else expected_seconds(run, times)
    left = 0.0 if state == "done" else None if whole is None else whole * (1 - len(lines) / max(planned, 1))
    return Status(run, folder, state, len(lines), planned, left, error)


def _state(run: Run, folder: Path) -> tuple[State, str]:
    manifest = folder / "manifest.json"
    if _locked(folder):
        return "running", ""
    if not manifest.is_file():
        return ("failed", _error(folder)) if (folder / FAILED).is_file() else ("missing", "")
    if read_json(manifest)["fingerprint"] != run.fingerprint():
        return "other", ""
    if (folder / "evaluation.json").is_file():
        return "done", ""
    if (folder / FAILED).is_file():
        return "failed", _error(folder)
    return ("trained" if (folder / "result.json").is_file() else "stopped"), ""


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
    found: dict[Key, list[float]] = defaultdict(list)
    for folder in folders:
        if (folder / "result.json").is_file():
            result = read_json(folder / "result.json")
            found[result["tier"], result["env"], result["method"]].append(
                _seconds(read_jsonl(folder / "metrics.jsonl"))
            )
    return {key: mean(seconds) for key, seconds in found.items()}


def expected_seconds(run: Run, times: Mapping[Key, float]) -> float | None:
    """As the same method took in this environment, else its other methods on average; None: nothing is known."""
    if (run.tier, run.env, run.method) in times:
        return times[run.tier, run.env, run.method]
    others = [seconds for (*place, _), seconds in times.items() if place == [run.tier, run.env] and seconds]
    return mean(others) if others else None


def _seconds(lines: Sequence[Mapping[str, float]]) -> float:
    return sum(map(step_seconds, lines))


def render(found: Sequence[Status]) -> Table:
    """Methods by environments, a mark a seed; what is left below."""
    envs = list(dict.fromkeys(s.run.env for s in found))
    shown = Table(title=f"{_count(found, 'done')} of {len(found)} runs done", caption=summary(found))
    shown.add_column("method")
    for env in envs:
        shown.add_column(env)
    for method in dict.fromkeys(s.run.method for s in found):
        cells = [[s for s in found if (s.run.method, s.run.env) == (method, env)] for env in envs]
        shown.add_row(method, *(_cell(statuses) for statuses in cells))
    return shown


def _cell(statuses: Sequence[Status]) -> str:
    """``3 of 5``, then what the others do."""
    if not statuses:
        return ""
    others = Counter(_phrase(s) for s in statuses if s.state != "done")
    text = ", ".join(f"{n} {phrase}" if n > 1 else phrase for phrase, n in others.items())
    return f"{_count(statuses, 'done')} of {len(statuses)}" + (f"; {text}" if text else "")


def _phrase(status: Status) -> str:
    if status.state in ("running", "stopped", "failed") and status.planned:
        return f"{status.state} at {status.steps}/{status.planned}"
    return status.state


def summary(found: Sequence[Status]) -> str:
    """What the states mean and how much work is left."""
    states = [f"{_count(found, s)} {s} ({meaning})" for s, meaning in STATES.items() if _count(found, s)]
    unknown = sum(s.left is None for s in found)
    left = sum(s.left or 0 for s in found)
    time = f"about {left / 60:.0f} minutes of one core left" if left else "nothing left" if not unknown else ""
    if unknown:
        time += f"{'; ' if time else ''}{unknown} runs of unknown length"
    return f"{'; '.join(states)}. Training: {time}"


def _count(found: Sequence[Status], state: State) -> int:
    return sum(s.state == state for s in found)
