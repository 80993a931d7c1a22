"""How far the runs of a workflow are, read from their own directories, and how long the rest takes."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from r3l.config import Run
from r3l.files.json_files import read_json, read_jsonl
from r3l.runs.metrics import COLLECT_SECONDS, TRAIN_SUCCESS, step_seconds
from r3l.runs.places import PLAYED, evaluation_of, validation_evaluation
from r3l.runs.run_dir import METRICS
from r3l.workflow.jobs import LOGS
from r3l.workflow.status import State, Status, expected_seconds, learnt_times, status_of

Split = Literal["test", "validation"]
EVALUATIONS = {"test": evaluation_of, "validation": validation_evaluation}
START = 10.0  # seconds of a job before its first episode: imports, a model; our estimate
UNKNOWN = 60.0  # seconds of a run of which nothing is known; any number, until a run has made steps


@dataclass(frozen=True)
class Progress:
    """A run and how far it is.

    ``success``: of its evaluation where it is evaluated, else of the last step's base rollouts; None: no step yet.
    ``evaluated``: episodes of the evaluation played, of ``episodes`` (0: not known yet). ``pace``: seconds of a step;
    None: unknown. ``split``: whose tasks the evaluation plays.
    """

    status: Status
    success: float | None
    evaluated: int
    episodes: int
    pace: float | None
    split: Split = "test"

    @property
    def name(self) -> str:
        """As people say it; with the model where it is not the environment's own."""
        run = self.status.run
        return f"{run.env} {run.method} seed {run.seed}"

    @property
    def done(self) -> bool:
        """Whether it is trained and evaluated."""
        return self.status.state is State.DONE

    @property
    def log(self) -> Path | None:
        """The log of its latest job; None: it has none."""
        path = self.status.path.relative_to(LOGS.parent).with_suffix(".log")
        logs = [log for rule in ("train", "evaluate") if (log := LOGS / rule / path).is_file()]
        return max(logs, key=lambda log: log.stat().st_mtime, default=None)


class Follower:
    """Looks at ``runs``, by their directories under ``results``; times are learnt from ``known`` ones.

    ``split``: whose tasks the evaluation plays that they end with.
    """

    def __init__(self, runs: Mapping[str, Run], results: Path, known: Iterable[Path], split: Split = "test") -> None:
        benches = {(run.tier, run.env) for run in runs.values()}
        folders = [folder for folder in known if folder.parts[-5:-3] in benches]
        self._folders = {results / path: run for path, run in runs.items()}
        self._times = learnt_times(folders)
        self._rollout = _seconds_per_rollout(folders)
        self._results = results
        self._split = split

    def look(self) -> list[Progress]:
        """Every run as it is now."""
        return [self._progress(run, folder) for folder, run in self._folders.items()]

    def seconds_left(self, seen: Sequence[Progress], cores: int) -> float:
        """Until all are done, with ``cores`` at work: what is left at the pace of this machine, which runs that have
        made steps show."""
        slowdown = self._slowdown(seen)
        left = [self._left(progress, slowdown) for progress in seen]
        together = sum(seconds * progress.status.run.threads for seconds, progress in zip(left, seen, strict=True))
        return max([together / cores, *left])

    def _left(self, progress: Progress, slowdown: float) -> float:
        status, run = progress.status, progress.status.run
        if progress.done:
            return 0.0
        if progress.pace is None:
            training = slowdown * self._expected(run) if status.planned else 0.0
        else:
            training = progress.pace * (status.planned - status.steps)
        rollout = self._rollout.get((run.tier, run.env), 0.0)
        return training + START * _starts_left(status) + slowdown * rollout * (progress.episodes - progress.evaluated)

    def _slowdown(self, seen: Sequence[Progress]) -> float:
        """This machine's seconds for one of those that times were learnt on; 1 before there are steps."""
        paced = [(progress.status, progress.pace) for progress in seen if progress.pace is not None]
        expected = sum(self._expected(status.run) for status, _ in paced)
        return sum(pace * status.planned for status, pace in paced) / expected if paced else 1.0

    def _expected(self, run: Run) -> float:
        return expected_seconds(run, self._times) or UNKNOWN

    def _progress(self, run: Run, folder: Path) -> Progress:
        status, evaluation = status_of(run, folder, self._times), EVALUATIONS[self._split](folder, run)
        if status.state in (State.DONE, State.TRAINED):  # which of them is said of the test tasks
            status = replace(status, state=State.DONE if evaluation.is_file() else State.TRAINED)
        if status.state is State.DONE:
            every = read_json(evaluation)["groups"]["all"]
            return Progress(status, every["success"], every["episodes"], every["episodes"], None, self._split)
        rows = read_jsonl(folder / METRICS) if status.steps else []
        success = rows[-1][TRAIN_SUCCESS] if rows else None
        pace = sum(map(step_seconds, rows)) / len(rows) if rows else None
        played = [] if status.steps < status.planned else read_jsonl(evaluation.with_name(PLAYED))
        evaluated = sum(len(line["episodes"]) for line in played)
        return Progress(status, success, evaluated, self._episodes(run), pace, self._split)

    def _episodes(self, run: Run) -> int:
        """Of the evaluation; 0 until the workflow has checked the task sets."""
        path = self._results / "task_sets" / run.tier / f"{run.env}.json"
        tasks: int = read_json(path)["task_sets"][self._split]["tasks"] if path.is_file() else 0
        return tasks * run.evaluation.episodes_per_task


def _starts_left(status: Status) -> int:
    """How many of a run's two jobs, training and evaluation, are still to start."""
    if status.state is State.RUNNING:
        return int(status.steps < status.planned)
    return 1 if status.state is State.TRAINED else 2


def cores_of(text: str) -> int:
    """What snakemake takes ``--cores`` for."""
    return len(os.sched_getaffinity(0)) if text == "all" else int(text)


def _seconds_per_rollout(folders: Iterable[Path]) -> dict[tuple[str, str], float]:
    """Of collecting, by (tier, environment)."""
    seconds: dict[tuple[str, str], float] = defaultdict(float)
    rollouts: dict[tuple[str, str], float] = defaultdict(float)
    for folder in folders:
        bench = folder.parts[-5], folder.parts[-4]
        for row in read_jsonl(folder / METRICS):
            seconds[bench] += row[COLLECT_SECONDS]
            rollouts[bench] += row["rollouts"]
    return {bench: seconds[bench] / count for bench, count in rollouts.items() if count}
