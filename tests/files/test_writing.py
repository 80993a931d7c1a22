"""Folders are replaced at once: killed anywhere, the old one or the new one is there, complete."""

import errno
import os
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import save_file

from r3l.core.errors import DataError, RunDirectoryError
from r3l.files.cleanup import remove_unfinished
from r3l.files.locks import is_locked, locked
from r3l.files.paths import ROOT
from r3l.files.writing import replacing

CONTENT = {"old": {"a": "1", "b": "2"}, "new": {"a": "3", "c": "4"}}

KILLED = """
import shutil, sys
from pathlib import Path
from kills import deaths
from r3l.files import writing
from r3l.files.cleanup import remove_unfinished
from files.test_writing import CONTENT, content, fill

top = Path(sys.argv[1])
if sys.argv[2] == "nfs":
    writing.RENAME_EXCHANGE = 1 << 20  # an unknown flag: EINVAL, as on a file system that cannot exchange names

def fresh():
    shutil.rmtree(top, ignore_errors=True)
    fill(top / "out", "old")

def work():
    with writing.replacing(top / "out") as folder:
        fill(folder, "new")

seen = []
for number in deaths(work, top, fresh):
    if sys.argv[2] != "nfs":
        assert content(top / "out") in CONTENT.values(), number
    remove_unfinished(top)
    assert content(top / "out") in CONTENT.values(), number
    assert sorted(path.name for path in top.iterdir()) == ["out"], number
    seen.append(content(top / "out") == CONTENT["new"])
assert seen[0] is False and seen[-1] is True and seen == sorted(seen) and len(seen) > 5, seen
"""


def fill(folder, name):
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in CONTENT[name].items():
        (folder / file).write_text(text)


def content(folder):
    return {path.name: path.read_text() for path in folder.iterdir()}


@pytest.mark.parametrize("disk", ["exchange", "nfs"])
def test_a_writer_killed_at_any_write_leaves_the_old_folder_or_the_new_one(tmp_path, disk):
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    command = [sys.executable, "-c", KILLED, str(tmp_path / "top"), disk]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("there", [None, {}, "old"])
def test_a_folder_is_replaced_or_made(tmp_path, there):
    out = tmp_path / "deep" / "out"
    if there is not None:
        out.mkdir(parents=True)
    if there == "old":
        fill(out, "old")
    with replacing(out) as folder:
        fill(folder, "new")
    assert content(out) == CONTENT["new"] and [path.name for path in out.parent.iterdir()] == ["out"]


@pytest.mark.parametrize("mask", [0o022, 0o002, 0o077])
def test_a_new_folder_has_the_mode_that_the_user_has_set(tmp_path, mask):
    """Others of a group read a catalogue or a model that one of them has built.

    Its files too: safetensors makes its own readable by their owner alone.
    """
    before = os.umask(mask)
    try:
        with replacing(tmp_path / "out") as folder:
            (folder / "lora").mkdir()
            for path in (folder / "a", folder / "lora" / "b"):
                save_file({"x": np.zeros(1, np.float32)}, path)
    finally:
        os.umask(before)
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o777 & ~mask
    for name in ("a", "lora/b"):
        assert (tmp_path / "out" / name).stat().st_mode & 0o777 == 0o666 & ~mask


@pytest.mark.parametrize("there", [None, {}, "old"])
def test_a_link_to_a_folder_stays_one(tmp_path, there):
    """As to a larger disk; what it leads to is replaced, even where that is not there yet."""
    disk = tmp_path / "disk"
    link = tmp_path / "out"
    link.symlink_to(disk)
    if there is not None:
        disk.mkdir()
    if there == "old":
        fill(disk, "old")
    with replacing(link) as folder:
        fill(folder, "new")
    assert link.is_symlink() and content(disk) == CONTENT["new"] == content(link)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["disk", "out"]


def test_what_goes_wrong_leaves_the_old_folder_and_says_why(tmp_path):
    out = tmp_path / "out"
    fill(out, "old")
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    rust = Exception("Error while serializing: I/O error: No space left on device (os error 28)")
    for error in (full, rust):
        refused = pytest.raises(
            RunDirectoryError, match=r"out cannot be written .*No space .*re-run to resume"
        )
        with refused, replacing(out) as folder:
            fill(folder, "new")
            raise error
    for error in (DataError("a bad row"), ValueError("a defect"), FileNotFoundError(2, "none", "/elsewhere")):
        with pytest.raises(type(error)) as raised, replacing(out):
            raise error
        assert raised.value is error
    assert content(out) == CONTENT["old"] and [path.name for path in tmp_path.iterdir()] == ["out"]
    with pytest.raises(RunDirectoryError, match="is a file, not a directory"), replacing(out / "a"):
        pytest.fail("work began")


def test_one_process_holds_a_path_and_leaves_nothing_next_to_it(tmp_path):
    out = tmp_path / "deep" / "out.json"
    held = f"""
from pathlib import Path
from r3l.files.locks import locked
with locked(Path({str(out)!r})):
    print("held", flush=True)
    input()
"""
    other = subprocess.Popen(
        [sys.executable, "-c", held], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert other.stdout.readline() == "held\n"
    lock = out.with_name(".out.json.lock")
    assert is_locked(lock)
    refused = pytest.raises(RunDirectoryError, match=r"out.json is in use by another process; .* --run-dir")
    with refused, locked(out, option="--run-dir", wait=0):
        raise AssertionError
    assert lock.exists()
    other.communicate("\n")
    assert other.returncode == 0 and not is_locked(lock) and not list(out.parent.iterdir())
    with locked(out):
        assert is_locked(lock)
    assert not list(out.parent.iterdir())


def test_leftovers_of_another_file_whose_name_begins_alike_stay(tmp_path):
    child = subprocess.Popen(["true"])
    child.wait()
    own, other = (tmp_path / f".{name}.{child.pid}.7.tmp" for name in ("a", "a.b"))
    own.touch()
    other.touch()
    remove_unfinished(tmp_path, name="a")
    assert not own.exists() and other.exists()
