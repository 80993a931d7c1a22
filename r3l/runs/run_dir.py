"""A run's directory: its files and lock, the run that it holds, and what resuming drops."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NotRequired

from typing_extensions import TypedDict

from r3l.config import Run
from r3l.core.errors import CheckpointError, DataError, RunDirectoryError
from r3l.files import locks
from r3l.files.cleanup import remove_unfinished
from r3l.files.json_files import read_json, read_jsonl, rewrite_jsonl
from r3l.files.redact import masked_message
from r3l.files.writing import is_write_error, write_json_atomic

MANIFEST = "manifest.json"
METRICS = "metrics.jsonl"  # one line per step
CURVE = "curve.jsonl"  # one line per update of evaluation.curve
RESULT = "result.json"
EVALUATION = "evaluation.json"
FAILED = "failed.json"  # the error that ended the last command
LOCK = ".lock"
SHOWN = 3  # differences named in an error


class RecordedRun(TypedDict):
    """The keys of a manifest or result, of any version, that tell which run a directory holds."""

    schema: NotRequired[int]
    fingerprint: str


class StepLine(TypedDict):
    """The key that every line about a step has (metrics, trajectories, curve)."""

    step: int


class Failure(TypedDict):
    """The content of failed.json in a run's directory: the error that ended the run."""

    error: str


@contextmanager
def locked(run_dir: Path) -> Iterator[None]:
    """Lock ``run_dir`` for this process, creating it; an error in the block is recorded in failed.json.

    Raises RunDirectoryError if another process holds it, or if it cannot be written, now or in the block.
    """
    with locks.locked(run_dir, run_dir / LOCK, "--run-dir"):
        try:
            # What earlier commands left: the error they ended with, and what killed processes were writing.
            (run_dir / FAILED).unlink(missing_ok=True)
            remove_unfinished(run_dir, run_dir / "checkpoints")
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
    """True if a process owns the directory."""
    return locks.is_locked(run_dir / LOCK)


def forget_after(path: Path, step: int) -> None:
    """Drop the lines of ``path`` about steps after ``step``, the checkpoint's: those steps will run again."""
    if path.is_file():
        rewrite_jsonl(path, [row for row in read_jsonl(path, StepLine) if row["step"] <= step])


def recorded_fingerprint(run_dir: Path) -> str | None:
    """The fingerprint of the run that a directory holds; None if it holds none."""
    path = run_dir / MANIFEST
    return read_json(path, RecordedRun)["fingerprint"] if path.is_file() else None


def is_stored(run_dir: Path, fingerprint: str) -> bool:
    """True if the directory holds a run that is finished but without checkpoints (stored).

    ``fingerprint`` is compared only with that of result.json. With an evaluation.json it is not
    compared: callers compare it with the manifest's first, if there is a manifest.
    """
    if any((run_dir / "checkpoints").glob("step-*")):
        return False
    if (run_dir / EVALUATION).is_file():
        return True
    path = run_dir / RESULT
    try:
        return path.is_file() and read_json(path, RecordedRun)["fingerprint"] == fingerprint
    except DataError:  # damaged: it will be written again
        return False


def check_owner(run_dir: Path, run: Run) -> None:
    """Raise CheckpointError if training would overwrite what the directory holds.

    That is another run, or the same one, finished but without its checkpoints.
    """
    fingerprint = run.fingerprint()
    recorded = recorded_fingerprint(run_dir)
    other = "choose another directory (--run-dir, --out), or let r3l train rename this one (--set-aside)"
    if recorded not in (None, fingerprint):
        differences = run.differences(read_json(run_dir / MANIFEST, RecordedRun))
        more = [f"and {len(differences) - SHOWN} more"] if len(differences) > SHOWN else []
        raise CheckpointError(
            f"{run_dir / MANIFEST} is of a run with another configuration, {recorded} and not {fingerprint}: "
            f"{'; '.join([*differences[:SHOWN], *more])}. To run this one, {other}"
        )
    if is_stored(run_dir, fingerprint):
        raise CheckpointError(
            f"{run_dir}: this run is already finished (no checkpoints, as in stored runs); training it again "
            f"would overwrite its scores. To do so, {other}"
        )


def move_aside(run_dir: Path, fingerprint: str) -> Path | None:
    """Rename a directory that training would overwrite (:func:`check_owner`); its new path, or None."""
    # The new name has the fingerprint of the run inside; a number is added if several have been set aside.
    recorded = recorded_fingerprint(run_dir)
    if recorded is None or (recorded == fingerprint and not is_stored(run_dir, fingerprint)):
        return None
    target = run_dir.with_name(f"{run_dir.name}.{recorded}")
    number = 1
    while target.exists():
        number += 1
        target = run_dir.with_name(f"{run_dir.name}.{recorded}.{number}")
    run_dir.rename(target)
    return target
