"""Runs whose user code has changed since they began: they are set aside, never resumed or overwritten."""

from __future__ import annotations

import logging
import shlex
from pathlib import Path

from r3l.config import Run, names, train_command, validate
from r3l.config.files import differences
from r3l.config.fingerprint_inputs import environment_inputs
from r3l.config.run import SCHEMA_VERSION
from r3l.config.user_code import changed_files, user_code
from r3l.core.errors import ConfigError
from r3l.files.json_files import read_json
from r3l.runs.manifest import Manifest, read_manifest
from r3l.runs.run_dir import MANIFEST, RecordedRun, locked, move_aside

log = logging.getLogger(__name__)


def set_aside_changed(run_dir: Path, run: Run) -> None:
    """Rename ``run_dir``, with a warning, if it holds the same run made by other versions of user code.

    The run then starts again, and does not mix results of two versions. Any other directory is not changed,
    also one without a manifest. Raises DataError for a damaged manifest, ConfigError for settings in it that
    are not valid, RunDirectoryError if another process holds the directory.
    """
    path = run_dir / MANIFEST
    if not path.is_file() or read_json(path, RecordedRun).get("schema") != SCHEMA_VERSION:
        return
    # With the code that the directory recorded, the fingerprint is its own unless settings differ too: then
    # it is another run.
    manifest = read_json(path, Manifest)
    recorded = validate(Run, manifest["run"], str(path))
    with_recorded_code = run.model_copy(update={"own_code": recorded.own_code})
    if with_recorded_code.fingerprint() != manifest["fingerprint"]:
        return
    if changed := changed_files(recorded.own_code, run.own_code):
        with locked(run_dir):
            aside = move_aside(run_dir, run.fingerprint())
        log.warning(
            "code changed since this run: %s; the earlier run is kept in %s", ", ".join(changed), aside
        )


def check_unchanged_environment(run: Run, run_dir: Path) -> None:
    """Raise ConfigError if the environment is no longer the one with which ``run``, in ``run_dir``, was made.

    A user's environment: its files have changed, or no folder of R3L_ENVS contains it. Any environment: its
    version, its packages, its prompts or the tasks of the run differ from the manifest's. ``run``: read from
    that manifest. Raises DataError if the manifest is damaged.
    """
    manifest = read_manifest(run_dir)
    recorded = {kind: files for kind, files in run.own_code.items() if kind == "envs"}
    if recorded and run.env not in names("envs"):
        # Shell lines that set R3L_METHODS and R3L_ENVS as they were when the run was made.
        folders = manifest.get("own_folders", {})
        hint = "; ".join(f"export {variable}={shlex.quote(value)}" for variable, value in folders.items())
        raise ConfigError(
            f"{run_dir}: environment {run.env!r} is a user's, and R3L_ENVS does not have it: "
            f"{hint or 'set R3L_ENVS to its folder'}"
        )
    if changed := changed_files(recorded, user_code(run.env)):
        raise ConfigError(
            f"{run_dir}: code changed since this run: {', '.join(changed)}. The scores would be of a "
            "different environment: restore the files, or repeat the r3l train command, which sets this "
            "run aside"
        )
    task_sets = (run.env_settings.train_task_set, run.env_settings.test_task_set)
    now = environment_inputs(run.env, task_sets, run.prompts)
    then = {part: manifest["inputs"].get(part, {}) for part in now}
    if changes := [f"{key} was {a} and is {b}" for key, a, b in differences(then, now)]:
        raise ConfigError(
            f"{run_dir}: environment {run.env!r} is another one than in this run: {', '.join(changes)}. The "
            "scores would not be this run's: restore what changed, or make the run again in another "
            f"directory: {train_command(run)} --run-dir DIRECTORY"
        )
