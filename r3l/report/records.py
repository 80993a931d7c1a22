"""Finished runs as the report sees them: evaluation, episodes, result and metrics of one run directory."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from r3l.config import feedback_source
from r3l.core.errors import DataError
from r3l.evaluation.episodes import EpisodeRow, Evaluation, GroupScore
from r3l.evaluation.verification import check_place, check_signed, copy_error, training_digest
from r3l.feedback.feedback import FeedbackSource
from r3l.files.json_files import read_json, read_jsonl
from r3l.report.labels import question_set
from r3l.runs.manifest import Manifest
from r3l.runs.metrics import faults, read_metrics
from r3l.runs.result import Result
from r3l.runs.run_dir import MANIFEST, RESULT
from r3l.runs.run_paths import run_dir_of

log = logging.getLogger(__name__)

Bench = tuple[str, str, str]  # tier, environment, model
GROUP_ORDER = ("easy", "hard", "all")  # other groups stand before "all", by name


@dataclass(frozen=True)
class Record:
    """One evaluated run: what its files say, ``episodes`` and ``metrics`` line by line.

    Of an evaluation on a question set ``env`` is that set's name in print, so that it is a bench of its own.
    ``evaluation``, ``result``, ``manifest``: as written. ``feedback``: whose it read (r3l.report.feedback).
    """

    path: Path
    tier: str
    tier_label: str
    env: str
    model: str
    method: str
    method_label: str
    seed: int
    task_set: Mapping[str, Any]
    groups: Mapping[str, GroupScore]
    evaluation: Evaluation
    result: Result
    manifest: Mapping[str, Any]
    episodes: Sequence[Mapping[str, Any]]
    metrics: list[dict[str, float]]
    feedback: str | None = None

    @property
    def bench(self) -> Bench:
        """What may be compared: (tier, env, model)."""
        return self.tier, self.env, self.model

    @property
    def warnings(self) -> str:
        """What a reader of its scores must know, of its task set and of its base checkpoint."""
        return "; ".join(filter(None, [self.task_set.get("warning"), self.manifest.get("start_model_warning")]))

    @property
    def fingerprint(self) -> str:
        return str(self.evaluation["fingerprint"])

    @property
    def counts(self) -> dict[str, float]:
        """The budget of its training, and the faults on the way, which are in no result."""
        return {**self.result["budget"], **faults(self.metrics)}

    def successes(self, group: str) -> list[float]:
        """1.0 or 0.0 for every episode of ``group``."""
        return [float(e["success"]) for e in self.episodes if group in ("all", e["group"])]

    @cached_property
    def played(self) -> frozenset[str]:
        """The ids of the tasks that it was evaluated on: all of the task set, or what ``-n`` chose."""
        return frozenset(episode["task"] for episode in self.episodes)

    def task_scores(self, group: str, metric: str = "success") -> dict[str, float]:
        """Success (or reward) of each task of ``group`` (or all), averaged over its episodes."""
        scores: dict[str, list[float]] = defaultdict(list)
        for episode in self.episodes:
            if group in ("all", episode["group"]):
                scores[episode["task"]].append(float(episode[metric]))
        return {task: sum(values) / len(values) for task, values in sorted(scores.items())}


def load(paths: Iterable[Path], named: Collection[Path] = ()) -> list[Record]:
    """Read runs by their evaluation.json; checks that what is compared was measured on one task set.

    A run that lies in two places with the same episodes counts once; where they differ nobody can say which is meant.
    One whose files are damaged is left out with a warning. Raises DataError where it is one of those that are
    ``named``, or none is left, and where a run is a copy of another method's or seed's.
    """
    first: dict[Bench, Record] = {}
    mates: dict[tuple[Any, ...], Record] = {}
    seen: dict[tuple[Any, ...], Record] = {}
    copies: list[Path] = []
    clashes: list[tuple[Path, Path]] = []
    trained: dict[str, Record] = {}
    for record in _readable(paths, named):
        other = first.setdefault(record.bench, record)
        if record.task_set["sha256"] != other.task_set["sha256"]:
            raise DataError(
                f"{record.path} was measured on task set {_task_set(record)} and {other.path} on {_task_set(other)}; "
                "they cannot stand in one table: evaluate both on one task set"
            )
        _note_training(trained, record)
        same = seen.setdefault((*record.bench, record.method, record.seed), record)
        if same is not record:
            equal = record.fingerprint == same.fingerprint and record.episodes == same.episodes
            copies += [record.path] if equal else []
            clashes += [] if equal else [(same.path, record.path)]
            continue
        mate = mates.setdefault((*record.bench, record.method), record)
        if record.played != mate.played:
            raise DataError(
                f"{record.path} has episodes of {len(record.played)} tasks and {mate.path} of "
                f"{len(mate.played)} or of other ones; seeds of one method cannot be averaged then: evaluate both "
                "with the same evaluation.tasks (-n)"
            )
    if clashes:
        raise DataError(_clash(clashes))
    if copies:
        log.warning("%d runs lie in two places with the same episodes and count once: %s ...", len(copies), copies[0])
    return list(seen.values())


def _readable(paths: Iterable[Path], named: Collection[Path]) -> list[Record]:
    read, errors = [], []
    for path in paths:
        try:
            read.append(_load(path))
        except (DataError, OSError) as error:
            if path in named:
                raise
            errors.append(error)
    if errors and not read:
        raise errors[0]
    for damage in errors:
        log.warning("a run is left out: %s", damage)
    return read


def _note_training(trained: dict[str, Record], record: Record) -> None:
    """Note the training of ``record``. Raises DataError where that of another run is the same, seconds and all."""
    if not (digest := training_digest(record.metrics)):
        return
    other = trained.setdefault(digest, record)
    if (other.evaluation["cell"], other.seed) != (record.evaluation["cell"], record.seed):
        raise DataError(copy_error(other.path.parent, record.path.parent))


def _clash(clashes: Sequence[tuple[Path, Path]]) -> str:
    a, b = clashes[0]
    more = f" (and {len(clashes) - 1} more such pairs)" if len(clashes) > 1 else ""
    return (
        f"{a.parent} and {b.parent} are the same method and seed{more}, but their episodes differ: name the runs that "
        "are meant by their directories, in place of the whole folder, as in r3l table table1 "
        "results/nano/alfworld/alfworld-1.5m-hints/my_method/seed* --results results/stored"
    )


def renamed(records: Iterable[Record], names: Mapping[str, str]) -> list[Record]:
    """``records`` with the benchmarks of ``names`` (environment -> name in print) in ``env``."""
    return [replace(record, env=names.get(record.env, record.env)) for record in records]


def _load(path: Path) -> Record:
    evaluation, folder, run_dir = read_json(path, Evaluation), path.parent, run_dir_of(path)
    check_signed(folder)
    check_place(run_dir, evaluation)
    manifest, env = read_json(run_dir / MANIFEST, Manifest), evaluation["env"]
    episodes = read_jsonl(folder / "episodes.jsonl", EpisodeRow)
    if Counter({"all": len(episodes), **Counter(e["group"] for e in episodes if e["group"])}) != _counts(evaluation):
        raise DataError(f"{path} is not of the episodes beside it: evaluate the run again, r3l evaluate {run_dir}")
    source = feedback_source(manifest["run"].get("method_settings", {}))  # a run may be older than a section
    teacher = source and source.value
    if source is FeedbackSource.JUDGE:
        settings: Mapping[str, Any] = manifest["run"]
        teacher = f"judge {settings['judge']['model']}"
    if folder != run_dir:
        env = question_set(evaluation["tier"], env, evaluation["task_set"]["name"])
    return Record(
        path=path,
        tier_label=evaluation["label"],
        env=env,
        method_label=evaluation["method_label"].replace("start model", "base checkpoint"),  # runs of earlier versions
        tier=evaluation["tier"],
        model=evaluation["model"],
        method=evaluation["method"],
        seed=evaluation["seed"],
        task_set=evaluation["task_set"],
        groups=evaluation["groups"],
        evaluation=evaluation,
        result=read_json(run_dir / RESULT, Result),
        manifest=manifest,
        episodes=episodes,
        metrics=read_metrics(run_dir),
        feedback=teacher,
    )


def _counts(evaluation: Mapping[str, Any]) -> Counter[str]:
    """Episodes of each group."""
    return Counter({name: of_group["episodes"] for name, of_group in evaluation["groups"].items()})


def _task_set(record: Record) -> str:
    return f"{record.task_set['name']} ({record.task_set['sha256'][:12]})"


def by_method(records: Sequence[Record], methods: Sequence[str] = ()) -> dict[str, list[Record]]:
    """Records of one bench by method, in the order of ``methods`` (else by name), seeds in order."""
    wanted = methods or sorted({r.method for r in records}, key=lambda m: (m != "zero_shot", m))
    return {m: sorted((r for r in records if r.method == m), key=lambda r: int(r.seed)) for m in wanted}


def pairs(ours: Sequence[Record], theirs: Sequence[Record]) -> tuple[list[Record], list[Record]]:
    """Those that share a seed and played the same tasks, in the order of ``ours``. A warning names one that played
    others."""
    by_seed = {record.seed: record for record in theirs}
    twins = [(record, by_seed[record.seed]) for record in ours if record.seed in by_seed]
    for one, other in twins:
        if one.played != other.played:
            log.warning("%s and %s are not compared: they played other tasks (-n)", one.path.parent, other.path.parent)
    same = [(one, other) for one, other in twins if one.played == other.played]
    return [one for one, _ in same], [other for _, other in same]


def scores_S_T(seeds: Sequence[Record], group: str = "all", metric: str = "success") -> NDArray[np.float64]:
    """One row a seed, one column a task: every seed of a method has the same tasks (checked when loading)."""
    return np.array([list(record.task_scores(group, metric).values()) for record in seeds])


def groups(records: Sequence[Record]) -> list[str]:
    """The groups of a bench in the order of the report."""
    names = {name for record in records for name in record.groups}
    known = [name for name in GROUP_ORDER[:-1] if name in names]
    return [*known, *sorted(names - set(GROUP_ORDER)), "all"]
