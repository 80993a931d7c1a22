"""Verification of finished runs: numbers follow from raw lines, files agree and have not changed.

``verify`` computes everything again and then signs the run (``SHA256SUMS``), so that readers of many runs
only need to compare digests.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from r3l.config import Run, environment_of
from r3l.core.errors import ConfigError, DataError, R3LError
from r3l.core.task import Task
from r3l.evaluation.curve import CurvePoint
from r3l.evaluation.episodes import EpisodeRow, Evaluation, scores
from r3l.evaluation.protocols import select_tasks
from r3l.files.digests import SUMS, altered, digest_with_names, recorded_digests, write_digests
from r3l.files.json_files import read_json, read_jsonl, variants
from r3l.runs import trajectory_log
from r3l.runs.manifest import Manifest, TaskSetSummary, run_of
from r3l.runs.metrics import COLLECT_SECONDS
from r3l.runs.result import SCHEMA, Result, RunIdentity, final_scores
from r3l.runs.run_dir import (
    CHECKPOINTS,
    CURVE,
    EPISODES,
    EVALUATION,
    MANIFEST,
    METRICS,
    RESULT,
    has_other_name,
)
from r3l.runs.run_paths import find_further
from r3l.runs.step_metrics import read_metrics, totals

log = logging.getLogger(__name__)
JSON_FILES = (MANIFEST, RESULT, EVALUATION)
JSONL_FILES = (METRICS, EPISODES, CURVE)  # columns where runs are stored
SIGNED = {  # plain lines, or compressed columns in a store
    *JSON_FILES,
    *(path.name for name in (*JSONL_FILES, trajectory_log.FILE) for path in variants(Path(name))),
}


def sign(run_dir: Path) -> None:
    """Write SHA256SUMS, by which later changes of a run's records are noticed.

    It has the sha256 of each file of SIGNED that exists: manifest, result, evaluation, metrics, episodes,
    curve and trajectory log. Checkpoints and other logs are not signed here.
    """
    write_digests(run_dir, SIGNED.intersection(os.listdir(run_dir)))


def check_signed(run_dir: Path) -> dict[str, bytes]:
    """Read a run's records (SIGNED): the bytes of each file by its name.

    Raises DataError if a file does not have the digest that :func:`sign` wrote, or if there are no digests.
    ``run_dir`` may be the folder of a further evaluation.
    """
    recorded = recorded_digests(run_dir)
    if not recorded:
        if not {MANIFEST, EVALUATION}.intersection(os.listdir(run_dir)):
            raise DataError(
                f"{run_dir} holds no run: it has neither {MANIFEST} nor {EVALUATION}; correct the path"
            )
        raise DataError(
            f"{run_dir} has no {SUMS}, by which its files are checked: r3l verify {run_dir} makes it"
        )
    contents: dict[str, bytes] = {}
    wrong = SIGNED.intersection(os.listdir(run_dir)) - {*recorded}  # came after the digests
    for name, digest in recorded.items():
        # Of thousands of runs: a Path would take as long as reading.
        with suppress(OSError), open(f"{run_dir}/{name}", "rb", buffering=0) as file:
            contents[name] = file.read()
        if name not in contents or hashlib.sha256(contents[name]).hexdigest() != digest:
            wrong.add(name)
    if wrong:
        names = ", ".join(sorted(wrong))
        raise DataError(
            f"{run_dir}: {names} changed after the run was evaluated: restore the files from a "
            f"copy (git checkout of a stored run), or evaluate the run again: r3l evaluate {run_dir}"
        )
    return contents


def verify_all(run_dirs: Sequence[Path]) -> None:
    """Verify each run (:func:`verify`), and that none is a copy of another under another name.

    Raises DataError, after all were tried, naming every run that does not pass.
    """
    wrong: list[str] = []
    trained: dict[str, Path] = {}
    for run_dir in run_dirs:
        try:
            verify(run_dir)
        except (R3LError, OSError) as error:
            wrong.append(str(error))
            continue
        digest = training_digest(read_metrics(run_dir))
        if digest:
            before = trained.setdefault(digest, run_dir)
            one = read_json(before / EVALUATION, Evaluation)
            other = read_json(run_dir / EVALUATION, Evaluation)
            if (one["cell"], one["seed"]) != (other["cell"], other["seed"]):
                wrong.append(copy_error(before, run_dir))
    if wrong:
        count = f"{len(wrong)} of {len(run_dirs)} runs do not pass:\n" if len(wrong) > 1 else ""
        raise DataError(count + "\n".join(wrong))


def training_digest(metrics: Sequence[Mapping[str, Any]]) -> str:
    """Hash (sha256) of a training's metrics, timings included; "" if it has none, or without timings.

    No second training takes exactly the same seconds, so equal digests show a copy.
    """
    if not metrics or COLLECT_SECONDS not in metrics[0]:
        return ""
    return hashlib.sha256(json.dumps(metrics, sort_keys=True).encode()).hexdigest()


def copy_error(one: Path, other: Path) -> str:
    """The message for two runs of different names whose training was the same one."""
    return (
        f"{one} and {other} have identical metrics and timings: one of them is a copy of the other under "
        "another name. Delete the copy, and train the run that its name says"
    )


def check_place(run_dir: Path, content: Mapping[str, Any]) -> None:
    """Raise DataError if the directory of a run has another run's name; ``content``: its evaluation.json.

    Only directories of the form TIER/ENV/MODEL/METHOD/seedN are checked: users may name others as they like.
    """
    own = f"{content['cell']}/seed{content['seed']}"
    if has_other_name(run_dir, own):
        raise DataError(
            f"{run_dir} holds the run {own}, as its files say: a copy under another name is not "
            "another run. Delete it, or move it to the directory of that name"
        )


def verify(run_dir: Path) -> None:
    """Compute a run's scores, stop counts, budget and final means again, and compare its files.

    Its checkpoints and its evaluations on further task sets are verified too. Task sets and episodes are
    compared with configs/ if the environment is on this machine. A run without digests is signed: SHA256SUMS
    is written. Raises DataError naming the first file and key that differs.
    """
    # Digests first: they name the file that was changed, where a comparison only names what disagrees.
    if (run_dir / SUMS).is_file():
        check_signed(run_dir)
    run = run_of(run_dir)
    _verify_checkpoints(run_dir)
    _verify_names(run, run_dir)
    check_place(run_dir, read_json(run_dir / EVALUATION, Evaluation))
    _verify_scores(run_dir)
    _verify_training(run, run_dir)
    _verify_episodes(run, run_dir)
    _verify_trajectories(run, run_dir)
    if not (run_dir / SUMS).is_file():
        sign(run_dir)
    for further in find_further(run_dir):
        verify_further(further.parent, run_dir)


def verify_further(folder: Path, run_dir: Path) -> None:
    """Verify the evaluation in ``folder``, of the run in ``run_dir`` on a further task set.

    Names, seed, scores, episodes, task set and weights must agree with the run's files. If the folder has no
    SHA256SUMS, it is written (:func:`sign`). Raises DataError naming the first file and key that differs.
    """
    if (folder / SUMS).is_file():
        check_signed(folder)
    run = run_of(run_dir)
    evaluation = read_json(folder / EVALUATION, Evaluation)
    _verify_identity(run, read_json(run_dir / MANIFEST, Manifest), folder / EVALUATION, evaluation)
    _verify_task_set(run, folder / EVALUATION, evaluation["task_set"])
    weights = read_json(run_dir / RESULT, Result)["checkpoint_sha256"]
    _check_equal(
        folder / EVALUATION, "checkpoint", evaluation["checkpoint"]["sha256"], weights, f"{RESULT} has"
    )
    _verify_scores(folder)
    _verify_episodes(run, folder)
    if not (folder / SUMS).is_file():
        sign(folder)


def _verify_checkpoints(run_dir: Path) -> None:
    """Check the checkpoints' digests; stored runs have no checkpoints."""
    for checkpoint in sorted((run_dir / CHECKPOINTS).glob("step-*")):
        wrong = altered(checkpoint)
        if wrong:
            raise DataError(
                f"{checkpoint}: {', '.join(wrong)} changed after it was written: restore it from a copy, "
                "or give the r3l train command of this run again: it resumes from the last intact "
                "checkpoint"
            )
    result = read_json(run_dir / RESULT, Result)
    if result["checkpoint"] and (run_dir / result["checkpoint"]).is_dir():
        digest = result["checkpoint_sha256"]
        own = digest_with_names(run_dir / result["checkpoint"])
        _check_equal(run_dir / RESULT, "checkpoint_sha256", digest, own, f"{result['checkpoint']} has")


def _verify_names(run: Run, run_dir: Path) -> None:
    """Check that all files are of one run, with the fingerprint that its configuration gives."""
    manifest = read_json(run_dir / MANIFEST, Manifest)
    evaluation = read_json(run_dir / EVALUATION, Evaluation)
    result = read_json(run_dir / RESULT, Result)

    # The manifest's fingerprint follows from its own configuration and inputs.
    own = run.fingerprint(manifest["inputs"])
    _check_equal(run_dir / MANIFEST, "fingerprint", manifest["fingerprint"], own, "its configuration gives")

    # Result and evaluation have the manifest's names, the same weights and the same task sets.
    _verify_identity(run, manifest, run_dir / EVALUATION, evaluation)
    _verify_identity(run, manifest, run_dir / RESULT, result)
    _check_equal(run_dir / RESULT, "profile", result["profile"], run.profile, f"{MANIFEST} has")
    weights = {"step": result["steps"], "sha256": result["checkpoint_sha256"]}
    _check_equal(run_dir / EVALUATION, "checkpoint", evaluation["checkpoint"], weights, f"{RESULT} has")
    sets = manifest["task_set"]
    for described in filter(None, (sets.get("train"), sets["test"], evaluation["task_set"])):
        _verify_task_set(run, run_dir / EVALUATION, described)


def _verify_identity(run: Run, manifest: Manifest, path: Path, content: RunIdentity) -> None:
    """Check that ``content`` of the file ``path`` has the names, seed and fingerprint of the manifest's run."""
    inputs = manifest["inputs"]
    expected = {
        "cell": run.cell_of(inputs),
        "model": run.model_name(inputs),
        "fingerprint": run.fingerprint(inputs),
        "tier": run.tier,
        "label": run.label,
        "env": run.env,
        "method": run.method,
        "method_label": run.method_label,
        "seed": run.seed,
    }
    found: Mapping[str, Any] = content
    for key, value in expected.items():
        _check_equal(path, key, found[key], value, f"{MANIFEST} has")


def _verify_task_set(run: Run, path: Path, described: TaskSetSummary) -> None:
    """Check that the task set in configs/ is still the one that the run used."""
    if not _is_here(run.env):
        return
    committed = environment_of(run.env).task_set_hash(described["name"])
    _check_equal(path, f"task_set {described['name']}", described["sha256"], committed, "configs/ has")


def _verify_scores(folder: Path) -> None:
    """Compute the scores of evaluation.json again from episodes.jsonl."""
    evaluation = read_json(folder / EVALUATION, Evaluation)
    episodes = read_jsonl(folder / EPISODES, EpisodeRow)
    stops = Counter(e["stop_reason"] for e in episodes)
    _check_equal(folder / EVALUATION, "episodes", evaluation["episodes"], len(episodes))
    if not episodes:
        raise DataError(f"{folder / EPISODES} has no episodes, so there is no score: evaluate the run again")
    _check_equal(folder / EVALUATION, "groups", evaluation["groups"], scores(episodes))
    _check_equal(folder / EVALUATION, "stops", evaluation["stops"], dict(stops))


def _verify_training(run: Run, run_dir: Path) -> None:
    """Compute result.json again from metrics.jsonl; check the curve's updates, and its end."""
    result = read_json(run_dir / RESULT, Result)
    metrics = read_metrics(run_dir)
    schema = result["schema"]  # final means follow the rule of their time
    if schema not in (1, SCHEMA):
        raise DataError(
            f"{run_dir / RESULT}: 'schema' is {schema}, and this version of r3l knows 1 to {SCHEMA}: the "
            "file was changed (restore it: git checkout), or a later version wrote it (verify it with that)"
        )
    _check_equal(run_dir / RESULT, "steps", result["steps"], len(metrics))
    _check_equal(run_dir / RESULT, "budget", result["budget"], dict(totals(metrics)))
    _check_equal(run_dir / RESULT, "final", result["final"], final_scores(metrics, schema))

    # A point after the last update was played with the weights, tasks and seeds of the evaluation.
    points = {point["step"]: point for point in read_jsonl(run_dir / CURVE, CurvePoint)}
    _check_equal(run_dir / CURVE, "updates", sorted(points), list(run.evaluation.curve), f"{MANIFEST} has")
    evaluation = read_json(run_dir / EVALUATION, Evaluation)
    last = points.get(run.train.steps)
    if last and last["task_set"] == evaluation["task_set"]["name"]:
        _check_equal(run_dir / CURVE, "groups", last["groups"], evaluation["groups"], f"{EVALUATION} has")


def _verify_episodes(run: Run, run_dir: Path) -> None:
    """Check that there is an episode of every task of the task set, in its order."""
    name = read_json(run_dir / EVALUATION, Evaluation)["task_set"]["name"]
    known = _tasks(run.env, name)
    if known is None:
        return
    each = range(run.evaluation.episodes_per_task)
    wanted = [(task.id, k, task.group) for task in select_tasks(run, known) for k in each]
    played = [(e["task"], e["member"], e["group"]) for e in read_jsonl(run_dir / EPISODES, EpisodeRow)]
    _check_equal(run_dir / EPISODES, "number of lines", len(played), len(wanted), f"task set {name} has")
    for ours, theirs in zip(played, wanted, strict=True):
        _check_equal(run_dir / EPISODES, "task, member, group", ours, theirs, f"task set {name} has")


def _verify_trajectories(run: Run, run_dir: Path) -> None:
    """Check that logged trajectories are of this run's method, tasks and updates."""
    path = run_dir / trajectory_log.FILE
    lines = read_jsonl(path, trajectory_log.TrajectoryLine)
    tasks = _tasks(run.env, run.env_settings.train_task_set) if lines else ()
    known = None if tasks is None else {task.id for task in tasks}
    steps = range(1, run.train.steps + 1)
    for line in lines:
        _check_equal(path, "method", line["method"], run.method, f"{MANIFEST} has")
        if (known is not None and line["task"] not in known) or line["step"] not in steps:
            raise DataError(f"{path}: task {line['task']!r} or step {line['step']} is not in this run")


@cache
def _is_here(env: str) -> bool:
    """Whether the code of an environment is on this machine; if not, one warning says that it is needed."""
    try:
        environment_of(env)
    except ConfigError as error:
        log.warning("task sets of %s are not checked: %s", env, error)
        return False
    return True


@cache
def _tasks(env: str, task_set: str) -> tuple[Task, ...] | None:
    """A task set's tasks without their payloads; None if its data, code or packages are not on this machine.

    Cached: loading takes seconds.
    """
    if not _is_here(env):
        return None
    try:
        environment_of(env).check_installed()
    except ConfigError as error:
        log.warning("tasks of %s are not checked: %s", task_set, error)
        return None
    try:
        return tuple(replace(task, payload={}) for task in environment_of(env).tasks(task_set))
    except DataError as error:  # for example published games, which a user downloads
        log.warning("tasks of %s are not checked: %s", task_set, error)
        return None


def _check_equal(
    path: Path, key: str, value: Any, other: Any, what: str = "the run's raw lines give"
) -> None:
    """Raise DataError if two values differ; ``what`` names the source of the second."""

    def short(value: Any) -> str:
        text = repr(value)
        return text if len(text) < 200 else text[:200] + "..."

    if not _equal(value, other):
        raise DataError(
            f"{path}: {key!r} is {short(value)}, but {what} {short(other)}; one of the files was changed: "
            "restore it (git checkout), or evaluate the run again"
        )


def _equal(one: Any, other: Any) -> bool:
    """Equality up to the last digits of fractions: Python's sum() rounds differently since 3.12."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    if isinstance(one, float) and isinstance(other, float):
        both_nan = math.isnan(one) and math.isnan(other)
        return both_nan or math.isclose(one, other, rel_tol=1e-12, abs_tol=1e-12)
    return bool(one == other)
