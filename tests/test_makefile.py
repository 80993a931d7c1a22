"""`make setup` in a clone that was copied or moved: its environment still runs the first one's code."""

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from r3l.files.paths import ROOT


def planned(folder: Path, target: str) -> str:
    """The commands that `make target` would run there."""
    run = subprocess.run(
        ["make", "--no-print-directory", "-n", target], cwd=folder, capture_output=True, text=True, check=True
    )
    return run.stdout


@pytest.fixture
def clone(tmp_path):
    """A folder with the Makefile and an environment that looks installed, with a file of a first clone."""
    folder = tmp_path / "clone"
    venv = folder / ".venv"
    (venv / "bin").mkdir(parents=True)
    shutil.copy(ROOT / "Makefile", folder)
    for name in ("pyproject.toml", "requirements.lock"):
        (folder / name).touch()
        os.utime(folder / name, (0, 0))
    (venv / "pyvenv.cfg").write_text(f"home = /usr/bin\ncommand = /usr/bin/python3 -m venv {venv}\n")
    (venv / ".r3l-installed").touch()
    return folder


def test_an_installed_clone_has_nothing_to_do_but_to_say_what_is_next(clone):
    run = subprocess.run(
        ["make", "--no-print-directory", "setup"], cwd=clone, capture_output=True, text=True, check=True
    )
    assert run.stdout == "\nNext:\n    source .venv/bin/activate\n    r3l demo\n"
    assert "r3l demo" not in planned(clone, "test")  # which needs setup


@pytest.mark.parametrize("how", [shutil.copytree, shutil.move])
def test_a_copied_or_moved_clone_makes_its_environment_again(clone, tmp_path, how):
    other = tmp_path / "other"
    how(clone, other)
    commands = planned(other, "setup")
    assert ".venv belongs to another folder" in commands and "rm -rf .venv" in commands
    assert "requirements.lock" in commands  # and it is installed


@pytest.mark.parametrize("name", ["a b", "it's", "$HOME", "`touch ran`", 'a"b', "$(touch ran)"])
def test_a_clone_may_lie_in_a_folder_of_any_name(clone, tmp_path, name):
    other = tmp_path / name
    shutil.copytree(clone, other)
    (other / ".venv/pyvenv.cfg").write_text(f"home = /usr/bin\ncommand = python -m venv {other}/.venv\n")
    os.utime(other / ".venv/.r3l-installed")
    assert "belongs to another folder" not in planned(other, "setup")
    assert not (other / "ran").exists()
    # The paths in the commands are single words.
    (other / ".venv/pyvenv.cfg").unlink()
    (other / ".venv/.r3l-installed").unlink()
    (line,) = (line for line in planned(other, "setup").splitlines() if "CMAKE_TOOLCHAIN_FILE" in line)
    assert f"CMAKE_TOOLCHAIN_FILE={other}/configs/fast_downward.cmake" in shlex.split(line)
