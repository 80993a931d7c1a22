"""Paths of runs and evaluations in a results folder: tier/env/model/method/seedN."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from r3l.config import Run
from r3l.config.tuning import validation_task_set
from r3l.core.errors import DataError
from r3l.files.paths import STORED
from r3l.runs.run_dir import EVALUATION, MANIFEST

FURTHER = "evaluations"  # folder in a run's directory: evaluations on further task sets
CURVES = "curves"  # in results/stored: runs that were also scored on the way (evaluation.curve)
HINT_GAP = "hint_gap"  # in results/stored: runs from further base checkpoints of ALFWorld
PLAYED = "episodes.played.jsonl"  # finished batches of an evaluation under way
TRANSCRIPTS = "transcripts.jsonl.gz"  # an evaluation's episodes as text; not stored


def evaluation_folder(run_dir: Path, task_set: str, test_task_set: str) -> Path:
    """Folder of a run's evaluation on ``task_set``, whether or not it exists.

    That is ``run_dir`` if ``task_set`` is the run's ``test_task_set``, else ``evaluations/TASK_SET`` in it.
    """
    return run_dir if task_set == test_task_set else run_dir / FURTHER / task_set


def validation_evaluation(run_dir: Path, run: Run) -> Path:
    """Path of a run's evaluation.json on its validation task set, whether or not the file exists.

    Raises ConfigError if the run has no validation task set.
    """
    return evaluation_folder(run_dir, validation_task_set(run), run.env_settings.test_task_set) / EVALUATION


@cache  # a report asks for that of every run several times
def run_dir_of(evaluation: Path) -> Path:
    """The run directory to which an evaluation.json belongs, on the test task set or a further one.

    A folder above it that is called ``evaluations`` is a run's only if a manifest is beside it: a user's
    results may have this name.
    """
    if FURTHER not in evaluation.parts:
        return evaluation.parent
    folders = list(evaluation.parents)
    # A task set's name has up to three parts (NAME/SPLIT/GROUP): FURTHER is so many folders above the file's.
    for folder, above in zip(folders[1:4], folders[2:5], strict=False):
        if folder.name == FURTHER and (above / MANIFEST).is_file():
            return above
    return folders[0]


def named_evaluation(path: Path) -> Path:
    """Path of the evaluation.json on the test tasks in the run directory ``path``.

    The path of an evaluation.json is returned as it is, even if it does not exist. Raises DataError for a
    directory without one, for another file, and if there is nothing at the path.
    """
    if path.name == EVALUATION and not path.is_dir():
        return path
    if not path.exists():
        raise DataError(f"{path} is missing")
    if not path.is_dir():
        raise DataError(f"{path} is no run: name the directory of a run, or its {EVALUATION}")
    if (path / EVALUATION).is_file():
        return path / EVALUATION
    if (path / MANIFEST).is_file():
        raise DataError(f"{path} holds a run that is not evaluated: r3l evaluate {path}")
    raise DataError(f"{path} is not the directory of a run; for a folder with many runs: --results {path}")


def find_further(run_dir: Path) -> list[Path]:
    """Every evaluation.json of a run on a task set besides its test task set, sorted; [] without any."""
    return sorted((run_dir / FURTHER).glob(f"**/{EVALUATION}"))


def find_runs(results: Path, may_be_none: bool = False) -> list[Path]:
    """The evaluation.json of each run under ``results``, on its test task set, sorted by path.

    Raises DataError if there is none, unless ``may_be_none``. ``results`` has a folder for each tier; if no
    run is found so, it may be one of these folders, or an environment's, a model's or a method's: its runs
    are found too, with absolute paths.
    """
    # Try one depth after the other: a results folder is four folders above a seed's, a method's none.
    runs: list[Path] = []
    for above in (4, 3, 2, 1, 0):
        folder = results if above == 4 else results.absolute()
        paths = folder.glob("/".join(["*"] * above + ["seed*", EVALUATION]))
        runs = sorted(path for path in paths if path.parent.name[4:].isdigit())
        runs = [path for path in runs if run_dir_of(path) == path.parent]
        if runs:
            break
    if not runs and not may_be_none:
        raise DataError(_without_runs(results))
    return runs


def _without_runs(results: Path) -> str:
    """Why no evaluated run was found under ``results``, and what to do."""
    trained = sorted(path.parent for path in results.glob(f"*/*/*/*/seed*/{MANIFEST}"))
    if trained:
        return f"no run under {results} is evaluated yet: r3l evaluate {trained[0]}"

    # A checkout's own results lie in its folder results, in which a user's runs are looked for.
    found = {path.parent for path in results.glob(f"**/{EVALUATION}")}
    others = sorted(path for path in found if STORED not in path.absolute().parents)
    if others:
        first = ", ".join(map(str, others[:3])) + (", ..." if len(others) > 3 else "")
        return (
            f"no run under {results} in a folder such as nano/ENV/MODEL/METHOD/seed0, but evaluations in "
            f"folders of other names ({first}): name these, as in `r3l report {others[0]}`"
        )
    own = f"; this project's own: --results {results / STORED.name}" if found else ""
    return f"no evaluation.json under {results}; make runs: `r3l run`, or `r3l train` and `r3l evaluate`{own}"


class RunCell(NamedTuple):
    """Tier, environment, model and method of a run: its path in a results folder without the seed."""

    tier: str
    env: str
    model: str
    method: str


def cell_of(evaluation: Path) -> RunCell:
    """Tier, environment, model and method of a run, from its path.

    ``evaluation`` ends in tier/env/model/method/seedN/evaluation.json.
    """
    return RunCell(*evaluation.parts[-6:-2])


def runs_of(
    results: Path,
    methods: Collection[str],
    tier: str | None = None,
    envs: Collection[str] | None = None,
    may_be_none: bool = False,
) -> list[Path]:
    """The evaluation.json of each run of ``methods`` under ``results``, sorted as by :func:`find_runs`.

    ``tier`` None: all tiers; ``envs`` None or empty: all environments. [] if no such run exists. Raises
    DataError if ``results`` has no run at all, unless ``may_be_none``.
    """
    chosen: list[Path] = []
    for path in find_runs(results, may_be_none):
        cell = cell_of(path)
        if cell.method in methods and cell.tier == (tier or cell.tier) and cell.env in (envs or [cell.env]):
            chosen.append(path)
    return chosen


def first_found(found: Iterable[list[Path]]) -> list[Path]:
    """Merge the evaluation.json paths of several results folders, a list each, preferred folder first.

    All runs of one tier, environment and method, whatever their model, come from the first folder that has
    any of them; later ones are dropped.
    """
    chosen: list[Path] = []
    known: set[tuple[str, str, str]] = set()
    for paths in found:
        cells = {path: cell_of(path) for path in paths}
        chosen += [path for path, cell in cells.items() if (cell.tier, cell.env, cell.method) not in known]
        known |= {(cell.tier, cell.env, cell.method) for cell in cells.values()}
    return chosen


def each_run(found: Iterable[list[Path]]) -> list[Path]:
    """Merge the evaluation.json paths of several results folders, a list each, preferred folder first.

    A run (tier, environment, model, method, seed) that several folders have comes from the first of them.
    """
    chosen: dict[tuple[str, ...], Path] = {}
    for path in (path for paths in found for path in paths):
        chosen.setdefault((*cell_of(path), path.parent.name), path)
    return list(chosen.values())
