"""Reading finished runs: their scores, and how methods compare."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from r3l.core.errors import DataError
from r3l.files.paths import RESULTS

if TYPE_CHECKING:
    import pandas as pd

    from r3l.report.trajectory_view import LoggedTask

IDENTITY = ("tier", "env", "model", "method", "seed")
SCORES = ("group", "episodes", "success", "reward")


def load_results(*folders: Path | str) -> pd.DataFrame:
    """Evaluated runs under ``folders`` (default: ``results``): one row per run and group of test tasks.

    Columns: tier, env, model, method, seed; group (``all``, or a part of the tasks such as ``hard``), success
    (0 to 1), reward, episodes; steps and the training budget (rollouts, env_steps, tokens/generated,
    tokens/trained ...); run_dir. Raises DataError if there is no run.
    """
    import pandas as pd

    from r3l.report.reading import read_runs
    from r3l.runs.run_paths import find_runs

    paths = [path for folder in _folders(folders) for path in find_runs(folder)]
    runs = read_runs(paths)
    spent = pd.DataFrame(list(runs.budget), dtype=float).sort_index(axis=1)
    run_dirs = pd.Series([str(path.parent) for path in runs.path], name="run_dir")
    return pd.concat([runs[[*IDENTITY, *SCORES, "steps"]], spent, run_dirs], axis=1)


def compare(
    method: str,
    against: str | Sequence[str],
    *folders: Path | str,
    group: str = "all",
) -> pd.DataFrame:
    """Compare ``method`` with others, as `r3l compare --offline` does: one row per environment and opponent.

    Runs of the same seed are paired. ``difference_mean`` with its 95 % interval (``difference_low``,
    ``difference_high``) is ``method`` minus opponent, ``p_holm`` its p-value corrected over all rows,
    ``verdict`` the conclusion, ``warnings`` the settings that differ besides the method. ``group``: test
    tasks (``all``, or a part such as ``hard``). A method's runs in an environment are taken from the first of
    ``folders`` (default: ``results``) that has any; :func:`stored_runs` is this project's folder.

    Raises DataError if ``method`` has no evaluated run, or an environment has no such ``group``.
    """
    import pandas as pd

    from r3l.report.compare import compare_methods
    from r3l.report.reading import read_runs
    from r3l.runs.run_paths import first_found, runs_of

    others = [against] if isinstance(against, str) else list(against)
    found = (runs_of(folder, [method, *others]) for folder in _folders(folders))
    rows = compare_methods(read_runs(first_found(found)), method, others, group)
    return pd.DataFrame([row.flat() for row in rows])


def stored_runs() -> Path:
    """The folder with this project's own finished runs, for :func:`load_results` and :func:`compare`.

    Raises DataError in an installed package until they are fetched (`r3l stored fetch`).
    """
    from r3l.evaluation import stored_runs

    return stored_runs.stored_runs()


def trajectories(run_dir: Path | str) -> list[LoggedTask]:
    """The training trajectories that a run logged: at most three tasks of each of three training steps.

    The steps are the first, the middle and the last. ``task.members`` are the group's attempts, each with its
    ``trajectories`` (the attempt, reflections, retries) as dictionaries with text, reward, advantage and
    trained tokens (keys: r3l/runs/trajectory_log.py). A notebook shows a task as a table of its trained
    tokens, and a member turn by turn.

    Raises DataError if the run kept no trajectories or they are damaged. Among stored runs only the runs of
    seed 0 have them.
    """
    from r3l.report.trajectory_view import logged_tasks

    tasks = logged_tasks(Path(run_dir))
    if not tasks:
        raise DataError(f"{run_dir} has no trajectories; among stored runs only the runs of seed 0 have some")
    return tasks


def _folders(given: Sequence[Path | str]) -> list[Path]:
    return [Path(folder) for folder in given or [RESULTS]]
