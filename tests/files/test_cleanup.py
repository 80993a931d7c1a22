"""What killed processes leave is removed by the next; what a live one holds stays."""

import os
import subprocess
import tempfile
import time

import pytest
from filelock import FileLock

from r3l.files.cleanup import DAY, LOCK, remove_unused, temporary_folder
from r3l.runs.run_dir import locked


@pytest.fixture
def dead():
    """The id of a process that has ended."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def test_what_a_killed_run_was_writing_is_removed_when_its_directory_is_taken(tmp_path, dead):
    checkpoints = tmp_path / "checkpoints"
    gone = [checkpoints / f".step-000002.{dead}.tmp", tmp_path / f".result.json.{dead}.7.tmp"]
    kept = [
        checkpoints / f".step-000004.{os.getpid()}.tmp",
        checkpoints / "step-000001",
        tmp_path / ".mine.tmp",
    ]
    for path in (*gone, *kept):
        path.mkdir(parents=True)
        (path / "model.safetensors").touch()
    with locked(tmp_path):
        assert not [path for path in gone if path.exists()] and all(path.exists() for path in kept)


def test_temporary_folders_of_killed_processes_are_removed_and_those_in_use_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    killed, used, young, other = (
        tmp_path / name for name in ("r3l-x-killed", "r3l-x-used", "r3l-x-young", "other")
    )
    for folder in (killed, used, young, other):
        folder.mkdir()
        (folder / LOCK).touch()
        if folder is not young:
            os.utime(folder / LOCK, (0, 0))
    with FileLock(used / LOCK):
        os.utime(used / LOCK, (0, 0))
        with temporary_folder("r3l-x-") as mine:
            assert sorted(tmp_path.iterdir()) == sorted([mine, used, young, other])
        assert sorted(tmp_path.iterdir()) == sorted([used, young, other])


def test_cached_files_that_were_not_used_for_days_are_removed_at_the_first_look_of_a_day(tmp_path):
    old, recent = tmp_path / "aa" / "old.json", tmp_path / "bb" / "recent.json"

    def make(age_of_look):
        for path, days in ((old, 31), (recent, 29)):
            path.parent.mkdir(exist_ok=True)
            path.touch()
            os.utime(path, (time.time() - days * DAY,) * 2)
        if age_of_look:
            os.utime(tmp_path / ".looked", (time.time() - age_of_look * DAY,) * 2)
        remove_unused(tmp_path, days=30)
        return old.exists(), recent.exists()

    assert make(age_of_look=0) == (False, True)
    assert make(age_of_look=0.9) == (True, True)
    assert make(age_of_look=1.1) == (False, True)
