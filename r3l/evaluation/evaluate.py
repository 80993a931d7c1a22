"""Evaluation of a run: its last checkpoint on every task of a task set, without reflection or guidance.

Batches that were played before a stop are not played again.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from typing_extensions import TypedDict

from r3l.config import Run, base_checkpoint_of, environment_of, locate, train_command, trains
from r3l.config.fingerprint_inputs import base_weights
from r3l.core.errors import CheckpointError, ConfigError, DataError
from r3l.core.task import Task, shared_problems
from r3l.endpoint.options import ANSWERED_BY, models_in
from r3l.evaluation.episodes import Evaluation, PlayedEpisodes, play_all, scores
from r3l.evaluation.protocols import protocol_entry, select_tasks
from r3l.evaluation.served_model import ServedModel, open_served_session
from r3l.evaluation.verification import verify, verify_further
from r3l.files.digests import SUMS, digest_with_names
from r3l.files.json_files import read_json
from r3l.files.writing import write_json_atomic, write_text_atomic
from r3l.local.checkpoint import STATE, find
from r3l.local.session import open_session
from r3l.runs.changed_code import check_unchanged_environment
from r3l.runs.manifest import TaskSetSummary, describe_task_set, run_of
from r3l.runs.result import Result
from r3l.runs.run_dir import CHECKPOINTS, EPISODES, EVALUATION, MANIFEST, RESULT, locked
from r3l.runs.run_paths import PLAYED, evaluation_folder
from r3l.runs.session import PlaySession

log = logging.getLogger(__name__)
TRAINED_ON = "trained_on.json"  # in an exported model


def check_has_checkpoint(run_dir: Path) -> None:
    """Raise CheckpointError, with the command that trains it again, if a finished run has no checkpoint at all.

    Stored runs have none. Nothing happens for a run that did not train, or that is not finished.
    """
    if not (run_dir / RESULT).is_file() or read_json(run_dir / RESULT, Result)["checkpoint"] is None:
        return
    if not any((run_dir / CHECKPOINTS).glob("step-*")):
        raise CheckpointError(
            f"{run_dir} has no checkpoint: stored runs are kept without. Make the run again in another "
            f"directory, and evaluate that: {train_command(run_of(run_dir))} --run-dir DIRECTORY"
        )


def checkpoint_of(run_dir: Path) -> str | None:
    """The folder or hub id of the weights to evaluate: a run's last checkpoint, else its base checkpoint.

    The latter is for a run that trained nothing. None if the model was at a server. Raises CheckpointError if
    the weights do not have the digest in result.json.
    """
    check_has_checkpoint(run_dir)
    result = read_json(run_dir / RESULT, Result)
    if result["checkpoint_sha256"] is None:
        return None
    if result["checkpoint"] is None:
        run = run_of(run_dir)
        if base_weights(run.inputs()) != result["checkpoint_sha256"]:
            raise CheckpointError(
                f"{locate(base_checkpoint_of(run))} is no longer the model of {run_dir}: its digest is not "
                f"the one in {run_dir / RESULT}. Put the model back, or make the run again in another "
                f"directory, and evaluate that: {train_command(run)} --run-dir DIRECTORY"
            )
        return find(base_checkpoint_of(run))
    checkpoint = run_dir / result["checkpoint"]
    if not checkpoint.is_dir() or digest_with_names(checkpoint) != result["checkpoint_sha256"]:
        raise CheckpointError(
            f"{checkpoint} is not the checkpoint that {run_dir / RESULT} names by its digest: it was "
            "damaged, changed or deleted. Give the r3l train command of this run again: it resumes from "
            "the last intact checkpoint, and says what to do if there is none"
        )
    return str(checkpoint)


class TrainedOn(TypedDict):
    """The content of trained_on.json in an exported model: names of its training sets, by environment."""

    task_sets: dict[str, list[str]]


def trained_on(run: Run) -> list[tuple[str, str]]:
    """Environment and name of each task set on which ``run`` trained, or an earlier run that made its model.

    Raises DataError if the trained_on.json of an exported model cannot be read.
    """
    trained = [(run.env, run.env_settings.train_task_set)] if trains(run) else []
    # A model that a run made is RUN_DIR/checkpoints/step-N, a link to it, or an export of it.
    model = Path(locate(run.model)).resolve()
    if model.parent.name == CHECKPOINTS and (model.parent.parent / MANIFEST).is_file():
        trained += trained_on(run_of(model.parent.parent))
    elif (model / TRAINED_ON).is_file():
        for env, names in read_json(model / TRAINED_ON, TrainedOn)["task_sets"].items():
            trained += [(env, name) for name in names]
    elif (model / STATE).is_file():
        log.warning(
            "%s was copied out of a run's directory, so its training tasks are not known here and scores on "
            "them are not marked; name the checkpoint in its run, or export it: r3l export model",
            model,
        )
    return list(dict.fromkeys(trained))


def training_warning(run: Run, tasks: Sequence[Task]) -> str:
    """A warning if some of ``tasks`` are problems on which ``run`` trained, or the run that made its model.

    "" if not. Training sets whose data is not on this machine are not compared, which is logged.
    """
    sentences = []
    for env, name in trained_on(run):
        try:
            seen = shared_problems(tasks, environment_of(env).tasks(name))
        except (ConfigError, DataError) as error:
            log.warning(
                "the tasks played are not compared with the training tasks, %s of %s: %s", name, env, error
            )
            continue
        if seen:
            sentences.append(
                f"{len(seen)} of {len(tasks)} tasks are training tasks of this model ({env} {name})"
            )
    return "; ".join(sentences)


def evaluate_run(run_dir: Path, task_set: str | None = None, served: ServedModel | None = None) -> Evaluation:
    """Play the test tasks of a run whose training is finished; return the content of evaluation.json.

    Writes episodes.jsonl, evaluation.json and their digests into ``run_dir``, and transcripts.jsonl.gz, which
    is for reading and has no digest; for another ``task_set`` than the run's own test task set, into a folder
    below it (r3l.runs.run_paths). Episodes that an earlier, stopped call played are not played again.
    ``served``: a model behind a server that samples instead of the checkpoint. Raises an R3LError if run,
    model or tasks are not as recorded, ConfigError if a server played the run and ``served`` is None.
    """
    run = run_of(run_dir)
    check_unchanged_environment(run, run_dir)
    name = task_set or run.env_settings.test_task_set
    described = describe_task_set(run.env, name)
    protocol = protocol_entry(run, name)  # a changed protocol file is an error now, before anything is played
    out = evaluation_folder(run_dir, name, run.env_settings.test_task_set)
    if not served:
        check_has_checkpoint(run_dir)  # before the lock, whose file would stay in a stored run
    with locked(out):
        result = read_json(run_dir / RESULT, Result)
        opened: AbstractContextManager[PlaySession]
        if served:
            opened = open_served_session(run, served)
        else:
            checkpoint = checkpoint_of(run_dir)
            if checkpoint is None:
                raise ConfigError(f"{run_dir} has no checkpoint: a server played it; give --server")
            opened = open_session(run, checkpoint)
        with opened as session:
            tasks = select_tasks(run, session.package.tasks(name))
            trained = training_warning(run, tasks)
            if trained:
                described["warning"] = "; ".join(filter(None, [described.get("warning"), trained]))
            # Batches of an earlier call count only if all of this is the same. A tokenizer's revision on the
            # hub is known only now that it is loaded.
            evaluated: dict[str, str | None] = {
                "checkpoint": result["checkpoint_sha256"],
                "task_set": described["sha256"],
                "run": run.fingerprint(),
                **(served.identity if served else {}),
            }
            played = play_all(session, tasks, out / PLAYED, evaluated)
            conditions = session.conditions()

        evaluation = _evaluation(run, result, described, played)
        if conditions:  # a server's
            evaluation["agent"] = conditions | {"answered_by": models_in(played.counts)}
            evaluation["tokens"]["prompt"] = played.counts.pop("prompt", 0)
            requests = {k: v for k, v in played.counts.items() if not k.startswith(ANSWERED_BY)}
            evaluation["requests"] = dict(sorted(requests.items()))
        if protocol:
            turns = sum(episode["turns"] for episode in played.episodes)
            evaluation["protocol"] = protocol["protocol"]
            evaluation["turns"] = {"all": turns, "impossible": played.impossible}

        # Without its digests the folder counts as not evaluated until all files are new and verified.
        (out / SUMS).unlink(missing_ok=True)
        lines = "".join(json.dumps(episode, sort_keys=True) + "\n" for episode in played.episodes)
        write_text_atomic(out / EPISODES, lines)
        write_json_atomic(out / EVALUATION, evaluation)
        if out == run_dir:
            verify(run_dir)
        else:
            verify_further(out, run_dir)
        (out / PLAYED).unlink()
        return evaluation


def _evaluation(run: Run, result: Result, task_set: TaskSetSummary, played: PlayedEpisodes) -> Evaluation:
    """The content of evaluation.json, without what only a server or a protocol adds."""
    return {
        "schema": result["schema"],
        "cell": result["cell"],
        "tier": result["tier"],
        "label": result["label"],
        "env": result["env"],
        "method": result["method"],
        "method_label": result["method_label"],
        "model": result["model"],
        "seed": result["seed"],
        "fingerprint": result["fingerprint"],
        "task_set": task_set,
        "temperature": run.evaluation.temperature,
        "episodes": len(played.episodes),
        "checkpoint": {"step": result["steps"], "sha256": result["checkpoint_sha256"]},
        "groups": scores(played.episodes),
        "stops": dict(sorted(Counter(e["stop_reason"] for e in played.episodes).items())),
        "tokens": {"generated": played.generated},
    }
