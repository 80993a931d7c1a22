"""Fresh runs compared with the stored runs of the same cell and seed: did this machine reproduce them?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from r3l.files.json_files import read_jsonl
from r3l.report.frame import all_tasks
from r3l.report.reading import read_runs
from r3l.runs.run_dir import EPISODES, EVALUATION
from r3l.stats.comparison import Verdict, interval_verdict
from r3l.stats.intervals import task_interval

Row = dict[str, Any]


def reproduction(evaluations: Iterable[Path], stored: Path) -> list[Row]:
    """Compare runs with the stored runs of the same name in ``stored``; one row each.

    ``evaluations``: their evaluation.json files, in any folder: a run's own files say which run it is.
    ``verdict``: "not stored", or as in :func:`compare_runs`. Raises DataError for damaged files.
    """
    rows: list[Row] = []
    for _, fresh in all_tasks(read_runs(evaluations)).iterrows():
        run = f"{fresh.cell}/seed{fresh.seed}"
        row: Row = {"run": run, "episodes": int(fresh.episodes), "success": float(fresh.success)}
        path = stored / run / EVALUATION
        if path.is_file():
            rows.append(row | compare_runs(fresh, all_tasks(read_runs([path])).iloc[0]))
        else:
            rows.append(row | {"verdict": "not stored"})
    return rows


def compare_runs(fresh: pd.Series, old: pd.Series) -> Row:
    """Compare a run with the stored run of the same name, both given as rows of r3l.report.frame.

    ``stored_success``: test success of the stored run, always given. ``equal``: number of episodes that agree
    in every stored field, the transcript's hash included. ``verdict``: "another configuration"; "identical";
    "within the interval" or "outside the interval", which is the 95 % interval of the stored run's success
    over its tasks (``interval``, see r3l.stats.intervals.task_interval); "too few tasks for an interval".
    ``differs``: sentences on versions of packages and on hardware that differ or that one of the runs did not
    record; they may explain a difference.
    Keys that do not apply are missing.
    """
    row: Row = {"stored_success": float(old.success)}
    if fresh.fingerprint != old.fingerprint:
        return row | {"verdict": "another configuration"}
    row["equal"] = equal_episodes(*(read_jsonl(run.path.parent / EPISODES) for run in (fresh, old)))
    if row["equal"] == old.episodes == fresh.episodes:
        return row | {"verdict": "identical"}

    # What may explain the difference, and whether chance in one run's episodes can.
    differs = [
        f"{name} {fresh.manifest[part].get(name, 'not recorded')}, "
        f"stored {old.manifest[part].get(name, 'not recorded')}"
        for part in ("versions", "hardware")
        for name in sorted({*fresh.manifest[part], *old.manifest[part]})
        if fresh.manifest[part].get(name) != old.manifest[part].get(name)
    ]
    interval = task_interval(old.task_success)
    match interval_verdict(interval, float(fresh.success)):
        case Verdict.INCOMPLETE:
            verdict = "too few tasks for an interval"
        case Verdict.INCONCLUSIVE:
            verdict = "within the interval"
        case _:
            verdict = "outside the interval"
    return row | {"interval": [interval.low, interval.high], "verdict": verdict, "differs": differs}


def equal_episodes(fresh: Sequence[Mapping[str, Any]], old: Sequence[Mapping[str, Any]]) -> int:
    """Number of stored episodes, ``old``, that were reproduced.

    A reproduced episode equals, in every stored field, the fresh one of the same task and ``member`` (number
    of the attempt at the task).
    """
    by_key = {(episode["task"], episode["member"]): episode for episode in fresh}
    twins = [(episode, by_key.get((episode["task"], episode["member"]), {})) for episode in old]
    return sum(episode.items() <= twin.items() for episode, twin in twins)


def lines(rows: Iterable[Row]) -> list[str]:
    """One line of text for each row of :func:`reproduction`."""
    return [f"{row['run']}: {sentence(row)}" for row in rows]


def sentence(row: Row) -> str:
    """The verdict of one row of :func:`reproduction` in words, with both scores if episodes differ."""
    if row["verdict"] == "not stored":
        return "there is no stored run of it"
    if row["verdict"] == "another configuration":
        return "the stored run has another configuration"
    if row["verdict"] == "identical":
        return f"identical to the stored run in all {row['episodes']} episodes"
    low, high = row["interval"]
    if low is None:
        where = f"stored {row['stored_success']:.3f} ({row['verdict']})"
    else:
        where = f"{row['verdict'].removesuffix(' the interval')} its interval "
        where += f"({row['stored_success']:.3f}, {low:.3f} to {high:.3f})"
    because = f"; {', '.join(row['differs'])}" if row["differs"] else ""
    return (
        f"{row['equal']} of {row['episodes']} episodes equal the stored run's; success {row['success']:.3f}, "
        f"{where}{because}"
    )
