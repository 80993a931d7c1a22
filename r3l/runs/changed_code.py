"""A run whose own code has been edited since is another run: it is set aside, never resumed or overwritten."""

from __future__ import annotations

import logging
from pathlib import Path

from r3l.config import Run, validate
from r3l.config.run import SCHEMA_VERSION
from r3l.config.user_code import changed_files, user_code
from r3l.core.errors import ConfigError
from r3l.files.json_files import read_json
from r3l.files.shapes import Recorded, check_whole
from r3l.runs.run_dir import MANIFEST, locked, move_aside

log = logging.getLogger(__name__)


def changed_since(run_dir: Path, run: Run) -> list[str]:
    """The files of one's own in which ``run`` differs from the one in ``run_dir``; [] where more does, or nothing."""
    path = run_dir / MANIFEST
    manifest = read_json(path, Recorded) if path.is_file() else {}
    if manifest.get("schema") != SCHEMA_VERSION:
        return []
    check_whole(path, manifest)
    recorded = validate(Run, manifest["run"], str(path))
    only_code = run.model_copy(update={"own_code": recorded.own_code}).fingerprint() == manifest["fingerprint"]
    return changed_files(recorded.own_code, run.own_code) if only_code else []


def set_aside_changed(run_dir: Path, run: Run) -> None:
    """Rename ``run_dir`` where it holds a run of other code, and say so."""
    if changed := changed_since(run_dir, run):
        with locked(run_dir):
            aside = move_aside(run_dir, run.fingerprint())
        log.warning("code changed since this run: %s; the earlier run is kept in %s", ", ".join(changed), aside)


def check_environment(run: Run, run_dir: Path) -> None:
    """Raises ConfigError where the environment's code is no longer that of the run in ``run_dir``."""
    recorded = {kind: files for kind, files in run.own_code.items() if kind == "envs"}
    if changed := changed_files(recorded, user_code(run.env)):
        raise ConfigError(
            f"{run_dir}: code changed since this run: {', '.join(changed)}. Scores would be of another environment: "
            "restore the files, or repeat the r3l train command, which sets this run aside"
        )
