"""Finished runs as one tidy DataFrame: a row for each run and each group of its test tasks. Tables and figures are
views of it.

The columns of a row:

- ``tier``, ``env``, ``model``, ``method``, ``seed``: the run. ``env`` of a score on a question set is the set's printed
  name, so that runs on different questions are never averaged.
- ``tier_label``, ``label``: printed names of the tier and of the method.
- ``feedback``: who was set to write the reflections or critiques of training (``self``, ``environment``, ``judge
  NAME``); None: the method reads none.
- ``task_set``, ``task_set_sha256``: the test tasks. ``warning``: what a reader must know of them and of the base
  checkpoint; empty: nothing. ``constant_answer``, ``constant_success``: the best answer that ignores the problem, and
  its success in [0, 1]; None where it was not measured.
- ``group``: the test tasks of this row, ``all`` or a part of them such as ``easy``. ``episodes``: how many were played.
- ``success``, ``reward``: means over those episodes. ``stops``: how many of them ended for each reason.
  ``parse_failures``, ``truncations``: those that ended by an invalid response; by a response or a dialog over its
  limit.
- ``tasks``: ids of the tasks in order, a tuple. ``task_success``, ``task_reward``: arrays ``_T`` of each task's mean
  over its episodes. Stacked over seeds they are the score matrix ``_S_T`` of r3l.stats.intervals, as in rliable.
- ``steps``: updates. Every counter of r3l.runs.metrics by its own name (``rollouts``, ``tokens/generated`` ...): its
  sum over training; NaN: never counted.
- ``preregistration``: first digits of the sha256 of docs/preregistration.md when the run was made; None: before it.
- ``record``: the files of the run as read (r3l.report.records.Record).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from r3l.report.records import Bench, Record, load
from r3l.stats.intervals import Interval, wilson_bounds

log = logging.getLogger(__name__)

BENCH = ["tier", "env", "model"]  # runs that may be compared agree in these
ALL = "all"  # the group of all test tasks
GROUP_ORDER = ("easy", "hard")  # further groups follow by name, then "all"
CONSTANT_ANSWER = "constant_answer_baseline"  # key of a task set
PARSE_FAILURES = ("format", "inadmissible", "truncated")  # stop reasons
TRUNCATIONS = ("truncated", "context")  # a response, or the whole dialog, outgrew its limit
COLUMNS = (
    *(*BENCH, "method", "seed", "tier_label", "label", "feedback"),
    *("task_set", "task_set_sha256", "warning", "constant_answer", "constant_success"),
    *("group", "episodes", "success", "reward", "stops", "parse_failures", "truncations", "tasks", "task_success"),
    *("task_reward", "steps", "preregistration", "record"),
)


def read_runs(paths: Iterable[Path], named: Collection[Path] = ()) -> pd.DataFrame:
    """Read the runs of ``paths`` (evaluation.json files). Raises DataError as r3l.report.records.load does."""
    return frame_of(load(paths, named))


def frame_of(records: Iterable[Record]) -> pd.DataFrame:
    rows: list[dict[str, Any]] = []
    for record in records:
        written_under = record.manifest.get("preregistration_sha256")
        run = {
            **{key: getattr(record, key) for key in (*BENCH, "method", "tier_label", "feedback")},
            "seed": int(record.seed),
            "label": record.method_label,
            "task_set": record.task_set["name"],
            "task_set_sha256": record.task_set["sha256"],
            "warning": record.warnings,
            "steps": record.result["steps"],
            "preregistration": written_under and written_under[:12],
            "record": record,
            **record.result["budget"],
        }
        constant = record.task_set.get(CONSTANT_ANSWER)
        for group, scores in record.groups.items():
            episodes = [episode for episode in record.episodes if group in (ALL, episode["group"])]
            by_task: dict[str, list[tuple[float, float]]] = {}
            for episode in episodes:
                by_task.setdefault(episode["task"], []).append((float(episode["success"]), float(episode["reward"])))
            # Python's sum, for its last digits: stored tables hold what it gives.
            means = [[sum(part) / len(part) for part in zip(*by_task[task], strict=True)] for task in sorted(by_task)]
            success_T, reward_T = np.array(means).T
            stops = Counter(episode["stop_reason"] for episode in episodes)
            rows.append(
                run
                | {
                    "group": group,
                    **{key: scores[key] for key in ("episodes", "success", "reward")},
                    "stops": stops,
                    "parse_failures": sum(stops[reason] for reason in PARSE_FAILURES),
                    "truncations": sum(stops[reason] for reason in TRUNCATIONS),
                    "tasks": tuple(sorted(by_task)),
                    "task_success": success_T,
                    "task_reward": reward_T,
                    "constant_answer": constant and constant["answer"],
                    "constant_success": constant and constant["success"].get(group),
                }
            )
    counters = sorted({key for row in rows for key in row} - {*COLUMNS})
    runs = pd.DataFrame(rows, columns=[*COLUMNS, *counters], dtype=object)
    numbers = dict.fromkeys(("seed", "episodes"), int) | dict.fromkeys(("success", "reward", *counters), float)
    return runs.astype(numbers).copy()  # in one piece: pandas warns of frames that many insertions made


def whole(runs: pd.DataFrame) -> pd.DataFrame:
    """One row a run: that of all its test tasks."""
    return runs[runs.group == ALL]


def benches(runs: pd.DataFrame) -> list[Bench]:
    """Each (tier, env, model) of ``runs``, in order."""
    return sorted(set(zip(*(runs[key] for key in BENCH), strict=True)))


def of_bench(runs: pd.DataFrame, bench: Bench) -> pd.DataFrame:
    tier, env, model = bench
    return runs[(runs.tier == tier) & (runs.env == env) & (runs.model == model)]


def groups(runs: pd.DataFrame) -> list[str]:
    """The task groups of a bench in the order of the report."""
    names = set(runs.group)
    known = [name for name in GROUP_ORDER if name in names]
    return [*known, *sorted(names - {*GROUP_ORDER, ALL}), ALL]


def by_method(runs: pd.DataFrame, methods: Sequence[str] = ()) -> dict[str, pd.DataFrame]:
    """The runs of one bench by method, in the order of ``methods`` (default: the base checkpoint, then by name), with
    their seeds in order."""
    ordered = runs.sort_values("seed", kind="stable")
    wanted = methods or sorted(set(runs.method), key=lambda method: (method != "zero_shot", method))
    return {method: ordered[ordered.method == method] for method in wanted}


def common_seeds(ours: pd.DataFrame, theirs: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The rows of both, all of one group, whose seed the other has too, in the order of ``ours``. Runs of one seed that
    played different tasks are left out, with a warning."""
    twins = theirs.drop_duplicates("seed", keep="last").set_index("seed", drop=False)
    ours = ours[ours.seed.isin(twins.index)]
    theirs = twins.loc[ours.seed]
    same = [one == other for one, other in zip(ours.tasks, theirs.tasks, strict=True)]
    for one, other, equal in zip(ours.record, theirs.record, same, strict=True):
        if not equal:
            one_run, other_run = one.path.parent, other.path.parent
            log.warning("%s and %s are not compared: they played other tasks (-n)", one_run, other_run)
    return ours[same], theirs[same]


def one_run_interval(run: pd.Series) -> Interval:
    """Wilson's interval of one run's success over its episodes: it says how exactly this run was measured, not how
    another seed would end."""
    low, high = wilson_bounds(run.success, run.episodes)
    return Interval(float(run.success), low, high, 1, f"Wilson, {run.episodes} tasks")


def total(runs: pd.DataFrame, counter: str) -> float:
    """The sum of a counter over runs; 0 where none counted it."""
    return float(runs[counter].fillna(0).sum()) if counter in runs else 0.0


def scores_S_T(runs: pd.DataFrame, metric: str = "success") -> NDArray[np.float64]:
    """One row a seed, one column a task, of rows of one bench, method and group; ``metric``: success or reward."""
    return np.stack(list(runs[f"task_{metric}"]))
