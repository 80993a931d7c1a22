"""Finished runs as one tidy DataFrame: a row for each run and each group of its test tasks. Tables and
figures are views of it.

The columns of a row:

- ``tier``, ``env``, ``model``, ``method``, ``seed``: the run. ``env`` of a score on a question set is the
  set's printed name, so that runs on different questions are never averaged.
- ``tier_label``, ``label``: printed names of the tier and of the method.
- ``feedback``: who was set to write the reflections or critiques of training (``self``, ``environment``,
  ``judge NAME``); None: the method reads none.
- ``task_set``, ``task_set_sha256``, ``task_set_tasks``: name, digest and number of the test tasks.
  ``warning``: what a reader must know of them and of the base checkpoint; empty: nothing.
  ``constant_answer``, ``constant_success``: the best answer that ignores the problem, and its success in [0,
  1]; None where it was not measured.
- ``group``: the test tasks of this row, ``all`` or a part of them such as ``easy``. ``episodes``: how many
  were played.
- ``success``, ``reward``: means over those episodes. ``stops``: how many of them ended for each reason.
  ``parse_failures``: how many ended by an invalid response; ``truncations``: by a response or a dialog over
  its limit.
- ``tasks``: ids of the tasks in order, a tuple. ``task_success``, ``task_reward``: arrays ``_T`` of each
  task's mean over its episodes. Stacked over seeds they are the score matrix ``_S_T`` of r3l.stats.intervals,
  as in rliable.
- ``steps``: updates; 0 for a base checkpoint. ``rate``: the learning rate; NaN if the manifest is older than
  it. ``generated_tokens``, ``scored_tokens``, ``trained_tokens``:
  token counts of training (r3l.report.reading.token_counts); NaN: not recorded.
- ``budget``: every counter of r3l.runs.metrics that training counted (``rollouts``, ``tokens/generated``
  ...), its sum by its name. Metrics of single updates: r3l.report.updates.
- ``preregistration``: first digits of the sha256 of docs/preregistration.md when the run was made; None:
  before it.
- ``path``: the evaluation.json; ``run_dir``: the run's directory, on whose metrics ``metrics_sha256`` is the
  digest (None: nothing was trained). ``cell``, ``fingerprint``, ``agent`` (who played, if a server did),
  ``manifest``: as the files say.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

log = logging.getLogger(__name__)

Bench = tuple[str, str, str]
BENCH = ["tier", "env", "model"]  # runs that may be compared agree in these
ALL = "all"  # the group of all test tasks
GROUP_ORDER = ("easy", "hard")  # further groups follow by name, then "all"
CONSTANT_ANSWER = "constant_answer_baseline"  # key of a task set
TOKENS = ("generated_tokens", "scored_tokens", "trained_tokens")
COLUMNS = (
    *(*BENCH, "method", "seed", "tier_label", "label", "feedback"),
    *("task_set", "task_set_sha256", "task_set_tasks", "warning", "constant_answer", "constant_success"),
    *("group", "episodes", "success", "reward", "stops", "parse_failures", "truncations"),
    *("tasks", "task_success", "task_reward", "steps", "rate", *TOKENS, "preregistration"),
    *("path", "run_dir", "metrics_sha256", "cell", "fingerprint", "agent", "manifest", "budget"),
)


def with_further(runs: pd.DataFrame, further: pd.DataFrame) -> pd.DataFrame:
    """A frame of ``runs`` and of the runs in ``further`` that they lack.

    Two runs are the same if tier, environment, model, method and seed are. A training that was repeated on
    another processor may end differently, so ``runs`` are preferred.
    """
    keys = [*BENCH, "method", "seed"]
    known = {*runs[keys].itertuples(index=False, name=None)}
    new = [key not in known for key in further[keys].itertuples(index=False, name=None)]
    return pd.concat([runs, further[pd.Series(new, index=further.index, dtype=bool)]], ignore_index=True)


def all_tasks(runs: pd.DataFrame) -> pd.DataFrame:
    """The rows about all test tasks, one for each run, without those about single task groups."""
    return runs[runs.group == ALL]


def by_bench(runs: pd.DataFrame) -> dict[Bench, pd.DataFrame]:
    """The rows of each (tier, env, model) of ``runs``, sorted by these names."""
    return {(tier, env, model): rows for (tier, env, model), rows in runs.groupby(BENCH)}


def groups(runs: pd.DataFrame) -> list[str]:
    """The task groups in ``runs`` of one (tier, environment, model): easy, hard, others by name, all.

    ``all`` is always there, even if ``runs`` is empty.
    """
    names = {*runs.group}
    known = [name for name in GROUP_ORDER if name in names]
    return [*known, *sorted(names - {*GROUP_ORDER, ALL}), ALL]


def by_method(runs: pd.DataFrame, methods: Sequence[str] = ()) -> dict[str, pd.DataFrame]:
    """The runs of one (tier, environment, model) by method.

    Methods are in the order of ``methods``; by default the base checkpoint first, then by name. A method
    without runs gets an empty frame.
    """
    of_methods = dict(iter(runs.groupby("method", sort=False)))
    wanted = methods or sorted(of_methods, key=lambda method: (method != "zero_shot", method))
    return {method: of_methods.get(method, runs.iloc[:0]) for method in wanted}


def common_seeds(ours: pd.DataFrame, theirs: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The rows of both methods, all of one task group, at the seeds that both have, in the order of ``ours``.

    Runs of one seed that played different tasks are left out, with a warning. Raises ValueError if one of the
    frames has a seed twice.
    """
    places, twins = common_places(ours, theirs)
    return ours.iloc[places], theirs.iloc[twins]


def common_places(ours: pd.DataFrame, theirs: pd.DataFrame) -> tuple[list[int], list[int]]:
    """The places of the rows of :func:`common_seeds` in both frames."""
    for rows in (ours, theirs):
        if repeated := [*rows.seed[rows.seed.duplicated()]]:
            raise ValueError(f"a row a seed is needed, found seed {repeated[0]} twice")
    twins = {seed: k for k, seed in enumerate(theirs.seed)}
    paths = list(theirs.path)
    tasks = list(theirs.tasks)
    pairs: list[tuple[int, int]] = []
    for k, (seed, path, played) in enumerate(zip(ours.seed, ours.path, ours.tasks, strict=True)):
        twin = twins.get(seed)
        if twin is None:
            continue
        if played == tasks[twin]:
            pairs.append((k, twin))
        else:
            log.warning(
                "%s and %s are not compared: they played other tasks (-n)", path.parent, paths[twin].parent
            )
    return [k for k, _ in pairs], [twin for _, twin in pairs]


def scores_S_T(runs: pd.DataFrame, metric: str = "success") -> NDArray[np.float64]:
    """``metric`` (success or reward) by seed and task, shape (S, T), in the order of rows and of task ids.

    ``runs``: rows of one (tier, environment, model), method and group. Raises ValueError for no rows, or if
    they differ in their number of tasks.
    """
    return np.stack(list(runs[f"task_{metric}"]))
