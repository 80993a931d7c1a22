"""A run's directory: the files in it, the lock on it, whose it is, and what is dropped when a run resumes."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from r3l.config import Run
from r3l.core.errors import CheckpointError, DataError, R3LError, RunDirectoryError
from r3l.files.cleanup import remove_unfinished
from r3l.files.json_files import read_json, read_jsonl, rewrite_jsonl
from r3l.files.redact import masked
from r3l.files.shapes import Recorded
from r3l.files.writing import write_json_atomic

MANIFEST = "manifest.json"
METRICS = "metrics.jsonl"  # a line a step
CURVE = "curve.jsonl"  # a line for each update of evaluation.curve
RESULT = "result.json"
EVALUATION = "evaluation.json"
FAILED = "failed.json"  # the error that ended the last command there
DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)  # a write's error, which names no file
SHOWN = 3  # differences that an error names
LOCK_WAIT = 1.0  # seconds: who only asks whether a directory is in use holds it for a moment


@contextmanager
def locked(run_dir: Path) -> Iterator[None]:
    """Own ``run_dir``: create it, check that it can be written, keep others out; note the error it is left with."""
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        lock = FileLock(run_dir / ".lock", timeout=LOCK_WAIT)
        lock.acquire()
    except Timeout as error:
        raise RunDirectoryError(
            f"run directory {run_dir} is in use by another process; wait for it or choose another --run-dir"
        ) from error
    except OSError as error:
        raise RunDirectoryError(
            f"run directory {run_dir} cannot be written ({error}); choose another with --run-dir"
        ) from error
    try:
        (run_dir / FAILED).unlink(missing_ok=True)
        remove_unfinished(run_dir, run_dir / "checkpoints")
        yield
    except Exception as error:
        _note_failure(run_dir, error)
        if isinstance(error, OSError) and not isinstance(error, R3LError) and _is_of(run_dir, error):
            raise RunDirectoryError(
                f"run directory {run_dir} was deleted or can no longer be written ({error}); restore it or free the "
                "disk, then re-run: training resumes from the last checkpoint that is there"
            ) from error
        raise
    finally:
        lock.release()


def _note_failure(run_dir: Path, error: Exception) -> None:
    """For `r3l run status`. A deleted directory is not made again; a full disk's error matters more than its note."""
    with suppress(OSError):
        if run_dir.is_dir():
            write_json_atomic(run_dir / FAILED, {"error": masked(f"{type(error).__name__}: {error}")})


def _is_of(run_dir: Path, error: OSError) -> bool:
    """Whether a file of ``run_dir``, or a write that names none, has failed."""
    if error.filename is None:
        return error.errno in DISK
    return Path(str(error.filename)).absolute().is_relative_to(run_dir.absolute())


def forget_after(path: Path, step: int) -> None:
    """Drop lines of steps that the checkpoint does not contain; they will be run again."""
    if path.is_file():
        rewrite_jsonl(path, [row for row in read_jsonl(path) if row["step"] <= step])


def recorded_fingerprint(run_dir: Path) -> str | None:
    """The fingerprint of the run that a directory holds; None where it holds none."""
    path = run_dir / MANIFEST
    return str(read_json(path, Recorded)["fingerprint"]) if path.is_file() else None


def is_stored(run_dir: Path, fingerprint: str) -> bool:
    """Whether this run is there, finished or with scores, but without checkpoints, as stored runs are."""
    if any((run_dir / "checkpoints").glob("step-*")):
        return False
    if (run_dir / EVALUATION).is_file():
        return True
    path = run_dir / RESULT
    try:
        return path.is_file() and bool(read_json(path, Recorded)["fingerprint"] == fingerprint)
    except DataError:  # damaged, and written again
        return False


def check_owner(run_dir: Path, run: Run) -> None:
    """Raises CheckpointError where training would write over a run that is there: another one, as the manifest says, or
    this one, finished, with nothing left to resume from."""
    fingerprint, recorded = run.fingerprint(), recorded_fingerprint(run_dir)
    other = (
        "choose another directory (--run-dir, in r3l evaluate --out), or have r3l train rename this one (--set-aside)"
    )
    if recorded not in (None, fingerprint):
        differences = run.differences(read_json(run_dir / MANIFEST, Recorded))
        more = [f"and {len(differences) - SHOWN} more"] if len(differences) > SHOWN else []
        raise CheckpointError(
            f"{run_dir / MANIFEST} is of a run with another configuration, {recorded} and not {fingerprint}: "
            f"{'; '.join([*differences[:SHOWN], *more])}. To run this one {other}"
        )
    if is_stored(run_dir, fingerprint):
        raise CheckpointError(
            f"{run_dir} holds this very run, finished, without its checkpoints (stored runs have none): its scores are "
            f"there, and training it again would write over them. To do so {other}"
        )


def move_aside(run_dir: Path, fingerprint: str) -> Path | None:
    """Rename a directory that training this run would write over (:func:`check_owner`); its new place, or None."""
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
