"""Files of episodes that another program wrote: is the score over the tasks that it names?

A mean over episodes is a score on a task set only if every task was played equally often. Where tasks were
played more than once, it can also be tested whether an outcome depends on the order, the batch or the worker
of an episode.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from r3l.core.errors import ConfigError, DataError
from r3l.core.seeds import generator
from r3l.core.text import counted
from r3l.files.csv_files import csv_lines
from r3l.files.json_files import read_jsonl, read_text
from r3l.stats.comparison import adjusted
from r3l.stats.intervals import Interval, task_interval

ORDER = "position in the file"
CONDITIONS = ("batch", "worker", "seed")  # columns that are tested if the file has them
PERMUTATIONS = 9_999  # our choice: p-values down to 1e-4
ALPHA = 0.05
NAMED = 5  # tasks named in a message


class PlayedEpisode(BaseModel):
    """One episode in a file of another program: the columns that are read. Others are ignored.

    ``conditions``: values of batch, worker and seed, as far as the file has them. Numbers are read as text
    in text columns, "1.0" and "0.0" as true and false, empty ``turns`` and ``stop_reason`` as None. Raises
    pydantic's ValidationError for any other value.
    """

    model_config = ConfigDict(extra="ignore", coerce_numbers_to_str=True)

    task: str = Field(min_length=1)
    success: bool
    turns: int | None = Field(None, ge=0)
    stop_reason: str | None = None
    conditions: dict[str, str] = Field(default_factory=dict)  # batch, worker, ...: what may not matter

    @field_validator("success", mode="before")
    @classmethod
    def _number_as_truth(cls, value: Any) -> Any:
        """Read the texts 1.0 and 0.0 as true and false, as some programs write them; others are left."""
        if value == "1.0":
            return True
        if value == "0.0":
            return False
        return value

    @field_validator("turns", "stop_reason", mode="before")
    @classmethod
    def _empty_is_missing(cls, value: Any) -> Any:
        return None if value == "" else value


@dataclass(frozen=True)
class Dependence:
    """Result of a permutation test: do outcomes of the same task depend on the condition ``on``?

    ``on``: ``position in the file``, batch, worker or seed. ``p``: two-sided p-value, outcomes permuted
    within each task, with Holm's correction over the tests of one file. ``tasks``: number of tasks with both
    outcomes; only these tell anything.
    """

    on: str
    tasks: int
    p: float


@dataclass(frozen=True)
class EpisodeCheck:
    """Findings of `r3l verify episodes` in a file of episodes.

    - ``tasks``: number of tasks in the task set, or in the file if ``named`` is False: no set was given.
    - ``plays``: number of played tasks by number of episodes: {1: 134} for 134 tasks played once each.
    - ``missing``, ``unknown``: tasks never played, and ids that the set does not have.
    - ``fewer``, ``repeated``: tasks played less often, and more often, than the number of times that most
      tasks were played; of several such numbers the largest.
    - ``success``: mean over played tasks of each task's mean, with its interval; ``over_episodes``: mean over
      all episodes, unknown tasks included.
    - ``bounds``: success over the task set if all missing tasks had failed, or succeeded.
    - ``stops``: number of episodes by stop reason.
    - ``at_limit``: (episodes with as many turns as the limit, successes among them, longer episodes); None
      without turns or limit.
    - ``dependence``: the tests; [] if no task was played with both outcomes.
    """

    episodes: int
    tasks: int
    named: bool
    plays: dict[int, int]
    missing: list[str]
    unknown: list[str]
    fewer: list[str]
    repeated: list[str]
    over_episodes: float
    success: Interval
    bounds: tuple[float, float]
    stops: dict[str, int]
    at_limit: tuple[int, int, int] | None
    dependence: list[Dependence]

    @property
    def wrong(self) -> bool:
        """True if tasks are unknown or not played equally often: the mean is no score of the task set."""
        return bool(self.missing or self.unknown or self.fewer or self.repeated)

    def as_json(self) -> dict[str, Any]:
        """All fields as JSON values, for ``--json``."""
        return asdict(self)

    def lines(self) -> list[str]:
        """The findings in sentences, one per line, for the terminal; at most NAMED ids of each kind."""
        # The lines of every check: counts, success, endings, turn limit.
        where = "of the task set" if self.named else "in the file (name --task-set to find missing ones)"
        played = []
        for times, tasks in self.plays.items():
            often = "once" if times == 1 else f"{times} times"
            played.append(f"{counted(tasks, 'task')} {often}")
        bounds = "none"
        if self.success.low is not None:
            bounds = f"{self.success.low:.3f} to {self.success.high:.3f}"
        lines = [
            f"{counted(self.episodes, 'episode')} of {counted(self.tasks, 'task')} {where}: {', '.join(played)}",
            f"success {self.success.mean:.3f} over tasks (95 % interval {bounds}), "
            f"{self.over_episodes:.3f} over episodes",
        ]
        if self.stops:
            ordered = sorted(self.stops.items(), key=lambda pair: (-pair[1], pair[0]))
            lines.append("how they ended: " + ", ".join(f"{reason} {count}" for reason, count in ordered))
        if self.at_limit:
            at, solved, beyond = self.at_limit
            lines.append(
                f"{at} episodes reached the turn limit, {solved} of them solved; {beyond} are longer"
            )
        # Tasks that make the mean no score of the task set, and what it could be at worst and best.
        wrong = {
            "never played": self.missing,
            "not in the task set": self.unknown,
            "played less often than most": self.fewer,
            "played more often than most": self.repeated,
        }
        for what, ids in wrong.items():
            if ids:
                more = f" and {len(ids) - NAMED} more" if len(ids) > NAMED else ""
                lines.append(f"{what}: {', '.join(ids[:NAMED])}{more}")
        if self.missing:
            lines.append(
                f"over the complete task set success is between {self.bounds[0]:.3f} (if all tasks that were "
                f"never played fail) and {self.bounds[1]:.3f}"
            )
        # The tests, or why there are none.
        for test in self.dependence:
            verdict = "depend" if test.p < ALPHA else "are not shown to depend"
            lines.append(
                f"outcomes of the same task {verdict} on the {test.on} (p = {test.p:.3g}; "
                f"{counted(test.tasks, 'task')} with both outcomes)"
            )
        if not self.dependence:
            lines.append("whether the order matters cannot be tested: no task was played with both outcomes")
        return lines


def read_episodes(path: Path, columns: Mapping[str, str] | None = None) -> list[PlayedEpisode]:
    """Read a file with one line per episode: CSV with a header if its name ends in ``.csv``, else JSONL.

    ``columns``: name of a field of PlayedEpisode, or batch, worker or seed -> its column in the file, such as
    ``{"task": "gamefile"}``; by default both have one name. Raises ConfigError for another name, DataError
    naming file, line, column, value and fix if the file is missing or empty, a value is wrong, or a line of
    CSV has not as many columns as the header.
    """
    columns = dict(columns or {})
    known = [*(name for name in PlayedEpisode.model_fields if name != "conditions"), *CONDITIONS]
    for name, column in columns.items():
        if name not in known:
            raise ConfigError(
                f"--column {name}={column}: there is no {name!r}; choose from {', '.join(known)}"
            )
    if not path.is_file():
        raise DataError(
            f"{path} is not a file; name a file with one line per episode (JSONL, or CSV with a header)"
        )
    if path.suffix == ".csv":
        rows: Sequence[tuple[str, Mapping[str, Any]]] = csv_lines(path, read_text(path))
    else:
        rows = [(f"{path}, line {number}", row) for number, row in enumerate(read_jsonl(path), 1)]
    if not rows:
        raise DataError(
            f"{path} has no episodes; name a file with one line per episode (JSONL, or CSV with a header)"
        )

    episodes = []
    for where, row in rows:
        fields = {name: row.get(columns.get(name, name)) for name in known}
        conditions = {
            name: str(fields.pop(name)) for name in CONDITIONS if fields.get(name) not in (None, "")
        }
        try:
            episodes.append(PlayedEpisode.model_validate({**fields, "conditions": conditions}))
        except ValidationError as error:
            wrong = error.errors()[0]
            name = str(wrong["loc"][0])
            source = columns.get(name, name)
            fix = "correct it"
            if source not in row:
                fix = f"name the column that holds it (--column {name}=COLUMN)"
            raise DataError(
                f"{where}: column {source!r} has value {row.get(source)!r}: {wrong['msg']}; {fix}"
            ) from error
    return episodes


def check_episodes(
    episodes: Sequence[PlayedEpisode], task_ids: Sequence[str] | None = None, max_turns: int | None = None
) -> EpisodeCheck:
    """Count how often each task was played, compute the success rate, and test what else success depends on.

    ``task_ids``: all tasks of the task set; None: only the tasks that the episodes name. A path such as
    ``/data/valid_seen/pick-7/trial_1/game.tw-pddl`` names the task ``valid_seen/pick-7/trial_1``.
    ``max_turns``: the turn limit, if known; then episodes with as many and with more turns are counted.

    The tests (:class:`Dependence`) ask whether attempts at the same task succeed more often at some positions
    in the file, or under some condition. Raises DataError if there are no episodes or no tasks, or if no
    episode names a task of the task set.
    """
    if not episodes:
        raise DataError("there are no episodes to check; give a file with at least one")
    ids = list(dict.fromkeys(task_ids if task_ids is not None else (row.task for row in episodes)))
    if not ids:
        raise DataError("the task set has no tasks; name the task set that was played")
    by_path = {tuple(task.split("/")): task for task in ids}
    outcomes: dict[str, list[int]] = defaultdict(list)  # indices in the file of a task's episodes
    unknown = Counter[str]()
    for place, row in enumerate(episodes):
        task = _named_task(row.task, by_path)
        if task is None:
            unknown[row.task] += 1
        else:
            outcomes[task].append(place)

    # Once, twice, ...: most tasks say how often each should have been played. If as many were played once as
    # twice, episodes are more likely missing than played in addition.
    plays = Counter(len(outcomes[task]) for task in ids if outcomes[task])
    usual = max(plays, key=lambda times: (plays[times], times), default=0)
    solved = np.array([row.success for row in episodes], float)
    means = [fmean(solved[outcomes[task]]) for task in ids if outcomes[task]]
    if not means:
        raise DataError(
            f"none of the {len(episodes)} episodes is of the task set: the file has {next(iter(unknown))!r}, "
            f"the set {ids[0]!r}. Name the task set that was played, or the column of ids (--column "
            "task=COLUMN)"
        )
    missing = [task for task in ids if not outcomes[task]]
    found = sum(means)
    limit = None
    if max_turns is not None and any(row.turns is not None for row in episodes):
        at = [row for row in episodes if row.turns == max_turns]
        limit = (
            len(at),
            sum(row.success for row in at),
            sum((row.turns or 0) > max_turns for row in episodes),
        )
    return EpisodeCheck(
        episodes=len(episodes),
        tasks=len(ids),
        named=task_ids is not None,
        plays=dict(sorted(plays.items())),
        missing=missing,
        unknown=sorted(unknown),
        fewer=[task for task in ids if 0 < len(outcomes[task]) < usual],
        repeated=[task for task in ids if len(outcomes[task]) > usual],
        over_episodes=float(solved.mean()),
        success=task_interval(means),
        bounds=(found / len(ids), (found + len(missing)) / len(ids)),
        stops=dict(Counter(row.stop_reason for row in episodes if row.stop_reason)),
        at_limit=limit,
        dependence=_dependences(episodes, solved, [places for places in outcomes.values() if places]),
    )


def _named_task(given: str, by_path: Mapping[tuple[str, ...], str]) -> str | None:
    """The task whose id is the path ``given``, else the longest part of it that is one's; None if none."""
    parts = tuple(part for part in given.replace("\\", "/").split("/") if part)
    for length in range(len(parts), 0, -1):
        for start in range(len(parts) - length + 1):
            task = by_path.get(parts[start : start + length])
            if task:
                return task
    return by_path.get(tuple(given.split("/")))


def _dependences(
    episodes: Sequence[PlayedEpisode], solved: np.ndarray, by_task: Sequence[Sequence[int]]
) -> list[Dependence]:
    """Permutation tests of whether outcomes depend on the position in the file, and on each condition.

    If only the task matters, outcomes of one task are exchangeable, so the statistic is compared with its
    values after outcomes were permuted within tasks. A residual is an outcome minus its task's mean. The
    statistic for the position is the absolute covariance of position and residual; for a condition it is the
    sum, over the condition's values, of the squared sum of residuals.
    """
    telling = [places for places in by_task if len({*solved[places]}) == 2]
    if not telling:
        return []
    place_N = np.concatenate(telling)
    task_N = np.repeat(np.arange(len(telling)), [len(places) for places in telling])
    residual_N = solved[place_N] - np.repeat(
        [solved[places].mean() for places in telling], np.bincount(task_N)
    )

    # One indicator column per value; the position is a single column.
    columns: dict[str, np.ndarray] = {ORDER: (place_N - place_N.mean())[:, None] / len(episodes)}
    for name in CONDITIONS:
        values = [episodes[place].conditions.get(name) for place in place_N]
        if None not in values and len({*values}) > 1:
            levels = sorted({*values}, key=str)
            columns[name] = np.array([[value == level for level in levels] for value in values], float)

    # Permute within tasks: sort random keys within each task. The same permutations serve all tests.
    random = generator("episode check", len(episodes))
    exceeding = Counter(dict.fromkeys(columns, 1))
    observed = {name: float(((residual_N @ column_NV) ** 2).sum()) for name, column_NV in columns.items()}
    for _ in range(PERMUTATIONS):
        permuted_N = residual_N[np.lexsort((random.random(len(place_N)), task_N))]
        for name, column_NV in columns.items():
            exceeding[name] += ((permuted_N @ column_NV) ** 2).sum() >= observed[name] - 1e-9
    p_values = adjusted([exceeding[name] / (PERMUTATIONS + 1) for name in columns], "holm")
    return [Dependence(name, len(telling), p) for name, p in zip(columns, p_values, strict=True)]
