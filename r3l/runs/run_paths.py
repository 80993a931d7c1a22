"""Where runs and evaluations lie under a results folder."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import NamedTuple

from r3l.config import Run
from r3l.config.tuning import validation_task_set
from r3l.core.errors import DataError
from r3l.runs.run_dir import EVALUATION, MANIFEST

FURTHER = "evaluations"  # in a run: its scores on further task sets
PLAYED = "episodes.played.jsonl"  # while an evaluation is under way
TRANSCRIPTS = "transcripts.jsonl.gz"  # what was said in its episodes, a line each; for readers, not stored


def evaluation_folder(run_dir: Path, task_set: str, test_task_set: str) -> Path:
    """Where the evaluation of a run on ``task_set`` lies: that on its test task set in the run's own folder."""
    return run_dir if task_set == test_task_set else run_dir / FURTHER / task_set


def evaluation_of(run_dir: Path, run: Run) -> Path:
    """Where a run's score on its test task set lies."""
    return run_dir / EVALUATION


def validation_evaluation(run_dir: Path, run: Run) -> Path:
    """Where a run's score on its validation task set lies. Raises ConfigError where there is no such task set."""
    return evaluation_folder(run_dir, validation_task_set(run), run.env_settings.test_task_set) / EVALUATION


def run_dir_of(evaluation: Path) -> Path:
    """The run that an evaluation.json is about (see :func:`evaluation_folder`)."""
    folders = list(evaluation.parents)
    further = (above for folder, above in zip(folders[1:3], folders[2:4], strict=False) if folder.name == FURTHER)
    return next(further, folders[0])


def named_evaluation(path: Path) -> Path:
    """The evaluation.json of a run's directory; a file is taken as one. Raises DataError for another directory."""
    if not path.is_dir() or (path / EVALUATION).is_file():
        return path / EVALUATION if path.is_dir() else path
    if (path / MANIFEST).is_file():
        raise DataError(f"{path} holds a run that is not evaluated: r3l evaluate {path}")
    raise DataError(f"{path} is not the directory of a run; of a folder with many runs: --results {path}")


def find_further(run_dir: Path) -> list[Path]:
    """Every evaluation.json of a run on a further task set."""
    return sorted((run_dir / FURTHER).glob(f"**/{EVALUATION}"))


def find_runs(results: Path, may_be_none: bool = False) -> list[Path]:
    """Every evaluation.json of a run under ``results`` (tier/env/model/method/seedN).

    Raises DataError when there is none, unless that ``may_be_none``.
    """
    paths = [path for path in results.glob("*/*/*/*/seed*/evaluation.json") if path.parent.name[4:].isdigit()]
    runs = sorted(path for path in paths if path.relative_to(results).parts[0] != FURTHER)
    if not runs and not may_be_none:
        raise DataError(f"no evaluation.json under {results}; make runs: `r3l run`, or `r3l train` and `r3l evaluate`")
    return runs


class Cell(NamedTuple):
    """What a run is of, read from where it lies."""

    tier: str
    env: str
    model: str
    method: str


def cell_of(evaluation: Path) -> Cell:
    """That of tier/env/model/method/seedN/evaluation.json."""
    return Cell(*evaluation.parts[-6:-2])


def runs_of(
    results: Path,
    methods: Collection[str],
    tier: str | None = None,
    envs: Collection[str] | None = None,
    may_be_none: bool = False,
) -> list[Path]:
    """The evaluation.json of each run of ``methods`` under ``results``. None: of every tier, in every environment.

    Raises DataError where ``results`` has no run at all, unless that ``may_be_none``.
    """
    cells = {path: cell_of(path) for path in find_runs(results, may_be_none)}
    return [
        path
        for path, cell in cells.items()
        if cell.method in methods and cell.tier == (tier or cell.tier) and cell.env in (envs or [cell.env])
    ]


def first_found(found: Iterable[list[Path]]) -> list[Path]:
    """Of runs found in several folders: those of a method in an environment from the first folder that has any."""
    chosen: list[Path] = []
    for paths in found:
        known = {_compared(path) for path in chosen}
        chosen += [path for path in paths if _compared(path) not in known]
    return chosen


def _compared(evaluation: Path) -> tuple[str, str, str]:
    cell = cell_of(evaluation)
    return cell.tier, cell.env, cell.method
