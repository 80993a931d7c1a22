"""Which clones of the releases the user has named, at which commit."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from r3l.core.errors import ConfigError
from r3l.original.clones import R3L, RLTF, check_commit, folder_of

RELEASES = (R3L, RLTF)


@dataclass(frozen=True)
class Clones:
    """Folders by the name of their release; ``source`` says what they are."""

    folders: dict[str, Path]
    source: str


def find(checked: bool) -> Clones:
    """Those that the variables name. ``checked``: they must be git clones at the pinned commits, without changes.

    Raises ConfigError where no variable is set, or a folder is not what it must be.
    """
    named = [release for release in RELEASES if os.environ.get(release.variable)]
    if not named:
        raise ConfigError(
            f"this needs a clone of a release, or of both: {' ; '.join(release.how() for release in RELEASES)}"
        )
    folders = {release.name: folder_of(release) for release in named}
    if not checked:
        pins = ", ".join(f"{release.name} {release.commits[0]}" for release in named)
        source = f"ran on files of the pinned commits ({pins}), not on git clones, so no commit was checked"
        return Clones(folders, source)
    commits = [f"{release.name} {check_commit(release, folders[release.name])[:12]}" for release in named]
    return Clones(folders, f"ran on git clones: {', '.join(commits)}")
