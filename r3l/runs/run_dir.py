"""A run's directory: its files and lock, the run that it holds, and what resuming drops."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NotRequired

from typing_extensions import TypedDict

from r3l.config import Run
from r3l.core.errors import CheckpointError, ConfigError, DataError, RunDirectoryError
from r3l.files import locks
from r3l.files.cleanup import remove_unfinished
from r3l.files.digests import SUMS
from r3l.files.json_files import read_json, read_jsonl, rewrite_jsonl
from r3l.files.redact import masked_message
from r3l.files.writing import is_write_error, write_json_atomic

MANIFEST = "manifest.json"
METRICS = "metrics.jsonl"  # one line per step
CURVE = "curve.jsonl"  # one line per update of evaluation.curve
RESULT = "result.json"
EVALUATION = "evaluation.json"
EPISODES = "episodes.jsonl"  # one line per episode of the evaluation
CHECKPOINTS = "checkpoints"  # folder; a folder step-NNNNNN for each
FAILED = "failed.json"  # the error that ended the last command
LOCK = ".lock"
SHOWN = 3  # differences named in an error


class RecordedRun(TypedDict):
    """The keys of a manifest or result, of any version, that tell which run a directory holds."""

    schema: NotRequired[int]
    fingerprint: str


class StepLine(TypedDict):
    """The key that every line about a step has (metrics, trajectories, curve): its number, from 1."""

    step: int


class Failure(TypedDict):
    """The content of failed.json in a run's directory: the error that ended the run."""

    error: str


@contextmanager
def locked(run_dir: Path) -> Iterator[None]:
    """Lock ``run_dir`` for this process while the block runs; creates it if it is missing.

    Deletes an earlier failed.json and unfinished files of killed processes before the block. An error in the
    block is recorded in failed.json and raised; a stop signal (Preempted) and Ctrl-C are not recorded.

    Raises RunDirectoryError if another process holds it, or if it cannot be written, now or in the block.
    """
    with locks.locked(run_dir, run_dir / LOCK, "--run-dir or --out"):
        try:
            # Remains of earlier commands: the error that ended them, and their unfinished files.
            (run_dir / FAILED).unlink(missing_ok=True)
            remove_unfinished(run_dir, run_dir / CHECKPOINTS)
            yield
        except Exception as error:
            # For `r3l run status`. A deleted directory is not made again; a full disk may refuse this too.
            with suppress(OSError):
                if run_dir.is_dir():
                    failure: Failure = {"error": masked_message(f"{type(error).__name__}: {error}")}
                    write_json_atomic(run_dir / FAILED, failure)
            if not is_write_error(error, run_dir):
                raise
            raise RunDirectoryError(
                f"run directory {run_dir} was deleted or can no longer be written ({error}); restore "
                "it or free the disk, then re-run: training resumes from the last checkpoint that is "
                "there"
            ) from error


def is_locked(run_dir: Path) -> bool:
    """True if a process has locked the directory (:func:`locked`)."""
    return locks.is_locked(run_dir / LOCK)


def forget_after(path: Path, step: int) -> None:
    """Delete the lines of the JSON-lines file ``path`` about steps after the checkpoint's ``step``.

    Those steps will run again. A missing file stays missing. Raises DataError for a damaged line.
    """
    if path.is_file():
        rewrite_jsonl(path, [row for row in read_jsonl(path, StepLine) if row["step"] <= step])


def check_recorded_curve(run_dir: Path, curve: Sequence[int], step: int) -> None:
    """Raise ConfigError if curve.jsonl does not have the updates of ``curve`` up to the checkpoint's ``step``.

    Earlier updates cannot be played any more. Update ``step`` itself may be missing: its test tasks can be
    played when the run resumes. Raises DataError for a damaged line.
    """
    path = run_dir / CURVE
    recorded = [row["step"] for row in read_jsonl(path, StepLine) if row["step"] <= step]
    if recorded not in ([u for u in curve if u <= step], [u for u in curve if u < step]):
        raise ConfigError(
            f"{path} has updates {recorded} up to the checkpoint of update {step}, and evaluation.curve names "
            f"{list(curve)}: resume with the curve that the run began with ({run_dir / MANIFEST} has it), or "
            "train in another directory (--run-dir)"
        )


def recorded_fingerprint(run_dir: Path) -> str | None:
    """The fingerprint of the run that a directory holds, from its manifest; None without a manifest.

    Raises DataError for a damaged manifest.
    """
    path = run_dir / MANIFEST
    return read_json(path, RecordedRun)["fingerprint"] if path.is_file() else None


def is_evaluated(run_dir: Path) -> bool:
    """Whether ``run_dir`` holds a finished evaluation; its digests are written last."""
    return (run_dir / EVALUATION).is_file() and (run_dir / SUMS).is_file()


def has_other_name(run_dir: Path, directory: str) -> bool:
    """True if the path ``run_dir`` names another run than ``directory``, a run's TIER/ENV/MODEL/METHOD/seedN.

    The last five parts of ``run_dir`` are compared. False if they begin with another tier or do not end
    with ``seed`` and a number: users may name such directories as they like.
    """
    own = tuple(directory.split("/"))
    parts = run_dir.parts
    name = (parts if len(parts) >= len(own) else run_dir.absolute().parts)[-len(own) :]
    return name[0] == own[0] and re.fullmatch(r"seed\d+", name[-1]) is not None and name != own


def check_owner(run_dir: Path, run: Run) -> None:
    """Raise CheckpointError if training in ``run_dir`` would overwrite finished work, or be refused later.

    It would if the directory holds another run, or this run finished but without its checkpoints, or is named
    as another run. Raises DataError for a damaged manifest.
    """
    fingerprint = run.fingerprint()
    other = "choose another directory (--run-dir, --out), or let r3l train rename this one (--set-aside)"
    recorded = _fingerprints(run_dir)
    if not recorded and has_other_name(run_dir, run.directory):
        raise CheckpointError(
            f"{run_dir} is named as another run than {run.directory}, so its scores would be taken for that "
            "run's; name the directory of this run, or one of another form (--run-dir, --out)"
        )
    for path, found in recorded.items():
        if found != fingerprint:
            # Name the settings that differ, so that the user sees which of the two runs is meant.
            named = ""
            if path.name == MANIFEST:  # it has the settings
                differences = run.differences(read_json(path, RecordedRun))
                more = [f"and {len(differences) - SHOWN} more"] if len(differences) > SHOWN else []
                named = f": {'; '.join([*differences[:SHOWN], *more])}"
            raise CheckpointError(
                f"{path} is of a run with another configuration, {found} and not {fingerprint}{named}. "
                f"To run this one, {other}"
            )
    if _is_finished_without_checkpoints(run_dir, recorded):
        raise CheckpointError(
            f"{run_dir}: this run is already finished (no checkpoints, as in stored runs); training it again "
            f"would overwrite its scores. To do so, {other}"
        )


def move_aside(run_dir: Path, fingerprint: str) -> Path | None:
    """Rename ``run_dir`` if training would overwrite it (see :func:`check_owner`); returns the new path.

    ``fingerprint``: fingerprint of the run to be trained. The new name ends in the fingerprint of the run
    inside (and a number if that exists). None: nothing was renamed. Raises DataError if its manifest is
    damaged.
    """
    recorded = _fingerprints(run_dir)
    others = [found for found in recorded.values() if found != fingerprint]
    if not others and not _is_finished_without_checkpoints(run_dir, recorded):
        return None
    # The new name has the fingerprint of the run inside; a number is added if several have been set aside.
    name = f"{run_dir.name}.{others[0] if others else fingerprint}"
    target = run_dir.with_name(name)
    number = 1
    while target.exists():
        number += 1
        target = run_dir.with_name(f"{name}.{number}")
    run_dir.rename(target)
    return target


def _fingerprints(run_dir: Path) -> dict[Path, str]:
    """The fingerprint in each file of a directory that tells which run it is of.

    Scores count too, since settings may have changed after a run whose manifest is gone. A damaged result or
    evaluation is left out: it is written again. Raises DataError for a damaged manifest.
    """
    found: dict[Path, str] = {}
    for path in (run_dir / MANIFEST, run_dir / RESULT, run_dir / EVALUATION):
        if path.is_file():
            try:
                found[path] = read_json(path, RecordedRun)["fingerprint"]
            except DataError:
                if path.name == MANIFEST:
                    raise
    return found


def _is_finished_without_checkpoints(run_dir: Path, recorded: Collection[Path]) -> bool:
    """True if a directory has a result or scores, but no weights to resume from, as stored runs do.

    ``recorded``: the files of :func:`_fingerprints`.
    """
    has_scores = not {run_dir / RESULT, run_dir / EVALUATION}.isdisjoint(recorded)
    return has_scores and not any((run_dir / CHECKPOINTS).glob("step-*"))
