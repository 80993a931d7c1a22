"""Finished runs, read and checked, as the frame that r3l.report.frame describes."""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from r3l.config import hashed
from r3l.config.files import differing
from r3l.core.environment import INVALID_RESPONSES
from r3l.core.errors import DataError, R3LError
from r3l.evaluation.episodes import EpisodeRow, Evaluation
from r3l.evaluation.summary import several_models
from r3l.evaluation.verification import check_place, check_signed, copy_error, training_digest
from r3l.feedback.feedback import FeedbackSource
from r3l.files.json_files import read_json, read_jsonl, read_jsonl_columns, variants
from r3l.report.frame import ALL, BENCH, COLUMNS, CONSTANT_ANSWER, TOKENS, Bench
from r3l.report.labels import question_set
from r3l.runs.manifest import Manifest, read_manifest
from r3l.runs.metrics import FORWARDED_TOKENS, GENERATED_TOKENS, SCORED_TOKENS, TRAINED_TOKENS
from r3l.runs.result import Result
from r3l.runs.run_dir import EPISODES, MANIFEST, METRICS, RESULT
from r3l.runs.run_paths import run_dir_of
from r3l.runs.step_metrics import read_metrics

log = logging.getLogger(__name__)

EPISODE_COLUMNS = ("task", "group", "reward", "success", "stop_reason")
EPISODES_FILES = [path.name for path in variants(Path(EPISODES))]
METRICS_FILES = [path.name for path in variants(Path(METRICS))]
TRUNCATIONS = ("truncated", "context")  # a response, or the complete dialog, outgrew its limit
Row = dict[str, Any]


def read_runs(paths: Iterable[Path], named: Collection[Path] = ()) -> pd.DataFrame:
    """Read the runs of ``paths`` (evaluation.json files), a row per run and task group.

    Rows are sorted by tier, environment, model, method and seed; without ``paths`` there are none. A run
    found in two folders with the same episodes counts once. A damaged run is left out with a warning; its
    error is raised if its path is in ``named`` or if no run is left.

    Raises DataError for runs that cannot be in one table: different task sets, one training under two method
    names, seeds of a method with different tasks, or a run found twice with different episodes.
    """
    runs: list[list[Row]] = []
    damage: list[R3LError | OSError] = []
    for path in paths:
        try:
            runs.append(_read_run(path))
        except (R3LError, OSError) as error:
            if path in named:
                raise
            damage.append(error)
    if damage and not runs:
        raise damage[0]
    for one in damage:
        log.warning("a run is left out: %s", one)

    rows = [row for run in _distinct(runs) for row in run]
    kinds: dict[str, type] = dict.fromkeys(COLUMNS, object)
    kinds |= dict.fromkeys(("seed", "episodes", "steps"), int)
    kinds |= dict.fromkeys(("success", "reward", "rate", *TOKENS), float)
    # A column at a time: pandas takes seconds for thousands of dicts.
    columns = {name: pd.Series([row[name] for row in rows], dtype=kind) for name, kind in kinds.items()}
    return pd.DataFrame(columns).sort_values([*BENCH, "method", "seed"], kind="stable", ignore_index=True)


def _read_run(path: Path) -> list[Row]:
    """Read one run as rows, one per group of test tasks.

    Raises DataError for incomplete or inconsistent files.
    """
    # Each file is read once: its digest and its content are of the same bytes. A score on a further task set
    # is in a folder of its own, below the run's.
    folder = path.parent
    run_dir = run_dir_of(path)
    contents = check_signed(folder) if path.is_file() else {}
    of_run = contents if folder == run_dir or not contents else check_signed(run_dir)
    evaluation = read_json(path, Evaluation, contents.get(path.name))
    check_place(run_dir, evaluation)
    name = next((name for name in EPISODES_FILES if name in contents), EPISODES)
    episodes = read_jsonl_columns(folder / name, EpisodeRow, EPISODE_COLUMNS, contents.get(name))

    # Of each group, and of all tasks, how many episodes ended for each reason; "": in no group. The recorded
    # scores must be the scores of the recorded episodes.
    stops: dict[str, Counter[str]] = {ALL: Counter()}
    for (part, reason), count in Counter(
        zip(episodes["group"], episodes["stop_reason"], strict=True)
    ).items():
        for group in {part, ALL} - {""}:
            stops.setdefault(group, Counter())[reason] += count
    recorded = {group: scores["episodes"] for group, scores in evaluation["groups"].items()}
    if {group: of_group.total() for group, of_group in stops.items()} != recorded:
        raise DataError(
            f"{path} does not belong to {name} next to it: evaluate the run again, r3l evaluate {run_dir}"
        )

    manifest = read_manifest(run_dir, of_run.get(MANIFEST))
    result = read_json(run_dir / RESULT, Result, of_run.get(RESULT))
    run = _run_columns(path, run_dir, evaluation, manifest, result)
    metrics = next((of_run[name] for name in METRICS_FILES if name in of_run), None)
    run["metrics_sha256"] = metrics and hashlib.sha256(metrics).hexdigest()

    # A task's score is its mean over its episodes.
    task_E, played_T, of_groups = _tasks_of(tuple(episodes["task"]), tuple(episodes["group"]))
    success_T, reward_T = (
        np.bincount(task_E, np.array(episodes[key], dtype=float)) / played_T for key in ("success", "reward")
    )

    # A row for each group of tasks.
    constant: Any = evaluation["task_set"].get(CONSTANT_ANSWER)
    rows = []
    for group, scores in evaluation["groups"].items():
        tasks, in_group_T = of_groups[group]
        columns = {
            "group": group,
            "episodes": scores["episodes"],
            "success": scores["success"],
            "reward": scores["reward"],
            "stops": stops[group],
            "parse_failures": sum(stops[group][reason] for reason in INVALID_RESPONSES),
            "truncations": sum(stops[group][reason] for reason in TRUNCATIONS),
            "tasks": tasks,
            "task_success": success_T[in_group_T],
            "task_reward": reward_T[in_group_T],
            "constant_answer": constant and constant["answer"],
            "constant_success": constant and constant["success"].get(group),
        }
        rows.append(run | columns)
    return rows


@lru_cache(maxsize=256)  # most runs play the same tasks
def _tasks_of(
    task_E: tuple[str, ...], group_E: tuple[str, ...]
) -> tuple[NDArray[np.int64], NDArray[np.int64], dict[str, tuple[tuple[str, ...], NDArray[np.bool_]]]]:
    """The test tasks of a run, in order of their ids, from the task and the group of each episode.

    Returns the place of each episode's task, the number of episodes of each task, and by group its tasks with
    their mask ``_T``. A task is in the group of its first episode.
    """
    tasks_T, first_T, place_E = np.unique(task_E, return_index=True, return_inverse=True)
    group_T = np.array(group_E, dtype=object)[first_T]
    in_groups = {group: (group_T == group) | (group == ALL) for group in {*group_E, ALL}}
    of_groups = {group: (tuple(tasks_T[in_T].tolist()), in_T) for group, in_T in in_groups.items()}
    return place_E, np.bincount(place_E), of_groups


def _run_columns(
    path: Path, run_dir: Path, evaluation: Evaluation, manifest: Manifest, result: Result
) -> Row:
    """The columns of a run that all groups of its test tasks share; ``path``: its evaluation.json."""
    tier = evaluation["tier"]
    env = evaluation["env"]
    task_set = evaluation["task_set"]
    # A method without retries has no feedback to learn from.
    method = manifest["run"]["method_settings"]
    feedback_author: str | None = None if method.get("retries") == 0 else method.get("feedback")
    if feedback_author == FeedbackSource.JUDGE:
        feedback_author = f"judge {manifest['run'].get('judge', {}).get('model')}"

    # Remarks that a reader needs: on the task set, the base checkpoint, the server that played, and episodes
    # that ended by an error inside the environment, in test and in training.
    agent = evaluation.get("agent")
    remarks = [task_set.get("warning"), manifest.get("start_model_warning"), agent and several_models(agent)]
    name = f"{evaluation['method_label']}, seed {evaluation['seed']}"
    requests = evaluation.get("requests", {})
    if cut := requests.get("cut_prompts"):
        remarks.append(
            f"in the test of {name} the server cut the prompts of {cut} of {requests['requests']} responses"
        )
    if failed := evaluation["stops"].get("env_failed"):
        remarks.append(
            f"{failed} of {evaluation['episodes']} test episodes of {name} ended by an error in the "
            "environment and count as not solved"
        )
    if dropped := result["budget"].get("env_failed"):
        remarks.append(
            f"{dropped:.0f} of {result['budget'].get('rollouts', 0):.0f} rollouts in the training of {name} "
            "ended by an error in the environment and are in no group"
        )
    return {
        "tier": tier,
        "model": evaluation["model"],
        "method": evaluation["method"],
        "seed": evaluation["seed"],
        "cell": evaluation["cell"],
        "fingerprint": evaluation["fingerprint"],
        "env": env if path.parent == run_dir else question_set(tier, env, task_set["name"]),
        "tier_label": evaluation["label"],
        # Runs of earlier versions have another word.
        "label": evaluation["method_label"].replace("start model", "base checkpoint"),
        "feedback": feedback_author,
        "task_set": task_set["name"],
        "task_set_sha256": task_set["sha256"],
        "task_set_tasks": task_set["tasks"],
        "warning": "; ".join(remark for remark in remarks if remark),
        "steps": result["steps"],
        "rate": manifest["run"].get("train", {}).get("lr"),
        **(
            token_counts(result["budget"], manifest["run"]) if result["steps"] else dict.fromkeys(TOKENS, 0.0)
        ),
        "preregistration": (manifest.get("preregistration_sha256") or "")[:12] or None,
        "path": path,
        "run_dir": run_dir,
        "agent": agent,
        "manifest": manifest,
        "budget": {name: float(count) for name, count in result["budget"].items()},
    }


def token_counts(budget: Mapping[str, float], run: Mapping[str, Any]) -> dict[str, float | None]:
    """Tokens that a training sampled, scored and trained, by the columns TOKENS; None: not recorded.

    ``budget``: its counters. ``run``: the manifest's entry ``run``. A run of a version that did not count
    scored tokens has 0 of them if its method scores no context, else None; a KL adds the tokens of every row
    of the updates once.
    """
    settings = run.get("method_settings", {})
    train = run.get("train", {})
    # The pass that trains also rescores distilled retries, unless the sampler's weights are others.
    in_same_pass = run.get("engine", "local") == "local" and train.get("sync_interval", 1) == 1
    rescores = settings.get("rescore_distilled", False) and settings.get("retries") != 0
    scored = budget.get(SCORED_TOKENS)
    if scored is None and "teacher" not in settings and (in_same_pass or not rescores):
        scored = 0.0
    if settings.get("kl", "none") != "none" and settings.get("kl_coef", 0) > 0:
        forwarded = budget.get(FORWARDED_TOKENS)
        scored = None if scored is None or forwarded is None else scored + forwarded
    counts = (budget.get(GENERATED_TOKENS), scored, budget.get(TRAINED_TOKENS))
    return dict(zip(TOKENS, counts, strict=True))


def _settings_of(run: Row) -> dict[str, Any]:
    """The settings that decide a run's result, without its seed."""
    settings = hashed(run["manifest"]["run"])
    settings.pop("seed", None)
    return settings


def _distinct(runs: Iterable[list[Row]]) -> list[list[Row]]:
    """``runs`` without copies: runs that another folder holds with the same episodes. A warning counts them.

    Another warning names seeds of one method whose settings differ, since ``--set`` does not change its name.
    Raises DataError for runs that cannot be in one table, as :func:`read_runs` says.
    """
    first: dict[Bench, Row] = {}
    trained: dict[str, Row] = {}
    known: dict[tuple[Any, ...], Row] = {}
    methods: dict[tuple[Any, ...], Row] = {}
    distinct: list[list[Row]] = []
    copies: list[tuple[Path, Path]] = []  # folders with the same episodes
    clashes: list[tuple[Path, Path]] = []  # with different ones: which is meant is ambiguous
    settings: dict[tuple[Any, ...], dict[str, Any]] = {}  # of each method's first run
    unlike: dict[tuple[Path, Path], list[str]] = {}  # two seeds of a method, and the settings that differ
    for rows in runs:
        run = next(row for row in rows if row["group"] == ALL)
        bench = (run["tier"], run["env"], run["model"])
        other = first.setdefault(bench, run)
        if run["task_set_sha256"] != other["task_set_sha256"]:
            on = [f"{one['task_set']} ({one['task_set_sha256'][:12]})" for one in (run, other)]
            raise DataError(
                f"{run['path']} was measured on task set {on[0]} and {other['path']} on {on[1]}; "
                "they cannot be in one table: evaluate both on one task set"
            )

        # No second training has the same metrics, seconds included.
        digest = run["metrics_sha256"]
        other = trained.setdefault(digest, run) if digest else run
        renamed = (other["cell"], other["seed"]) != (run["cell"], run["seed"])
        if renamed and training_digest(read_metrics(run["run_dir"])):
            raise DataError(copy_error(other["path"].parent, run["path"].parent))

        # One run in two folders counts once if its episodes are the same.
        same = known.setdefault((*bench, run["method"], run["seed"]), run)
        if same is not run:
            folders = same["path"].parent, run["path"].parent
            equal = run["fingerprint"] == same["fingerprint"]
            equal = equal and read_jsonl(folders[0] / EPISODES) == read_jsonl(folders[1] / EPISODES)
            (copies if equal else clashes).append(folders)
            continue

        # With -n seeds of a method may draw other tasks, but as many of them by the same rule.
        mate = methods.setdefault((*bench, run["method"]), run)
        draws = [one["manifest"]["run"].get("evaluation", {}).get("draw", "first") for one in (run, mate)]
        as_many = draws[0] == draws[1] != "first" and len(run["tasks"]) == len(mate["tasks"])
        if run["tasks"] != mate["tasks"] and not as_many:
            raise DataError(
                f"{run['path']} has episodes of {len(run['tasks'])} tasks and {mate['path']} of "
                f"{len(mate['tasks'])} or of other ones; seeds of one method cannot be averaged then: "
                "evaluate both with the same evaluation.tasks (-n)"
            )
        ours = _settings_of(run)
        theirs = settings.setdefault((*bench, run["method"]), ours)
        if changed := differing(ours, theirs):
            unlike[mate["path"].parent, run["path"].parent] = changed
        distinct.append(rows)
    for (one, other_seed), keys in unlike.items():
        averaged = "%s and %s are seeds of one method but differ in %s; their mean is of different settings"
        log.warning(averaged, one, other_seed, ", ".join(keys))
    if clashes:
        a, b = clashes[0]
        more = f" (and {len(clashes) - 1} more such pairs)" if len(clashes) > 1 else ""
        raise DataError(
            f"{a} and {b} are the same method and seed{more}, but their episodes differ: name the runs that "
            "are meant by their directories, instead of the complete folder, as in r3l table table1 "
            "results/nano/alfworld/alfworld-1.5m-plain/my_method/seed* --results results/stored"
        )
    if copies:
        once = "%d runs are in two places with the same episodes and count once: %s ..."
        log.warning(once, len(copies), copies[0][1])
    return distinct
