"""A made-up clone of the release: files of the same shape at the same places, in our own words
(released/clone.txt)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from r3l.released import texts as release_texts
from r3l.released.texts import FOLDER

FILES = Path(__file__).parent / "released" / "clone.txt"


def write(folder: Path) -> None:
    """Each part of clone.txt is a file, whose path stands in the line before it."""
    for part in FILES.read_text(encoding="utf-8").split("=== ")[1:]:
        name, _, text = part.partition("\n")
        path = folder / FOLDER / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def commit(folder: Path) -> str:
    """Everything in the folder as one commit."""
    git = ["git", "-C", str(folder), "-c", "user.name=x", "-c", "user.email=x@y.example"]
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "all"]):
        subprocess.run([*git, *arguments], check=True)
    done = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """The folder of the made-up clone, whose commit is the pinned one."""
    folder = tmp_path / "R3L"
    write(folder)
    monkeypatch.setattr(release_texts, "COMMITS", (commit(folder),))
    monkeypatch.setenv("R3L_RELEASE", str(folder))
    for cached in (release_texts.read, release_texts._strings):
        cached.cache_clear()
    yield folder
    for cached in (release_texts.read, release_texts._strings):
        cached.cache_clear()
