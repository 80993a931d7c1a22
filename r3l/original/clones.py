"""The release that the project is compared with, and where the user has a clone of it.

Nothing of it is part of the project: what needs it reads the clone that an environment variable names.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from r3l.core.errors import ConfigError


@dataclass(frozen=True)
class Release:
    """A public repository. ``commits``: those that the audit read, or their beginnings; the first is cloned."""

    name: str
    variable: str
    url: str
    commits: tuple[str, ...]

    def how(self) -> str:
        folder = Path(self.url).stem
        checkout = f"git clone {self.url} && git -C {folder} checkout {self.commits[0]}"
        return f"{checkout} && export {self.variable}=$PWD/{folder}"


R3L = Release("R3L", "R3L_RELEASE", "https://github.com/shiweijiezero/R3L", ("d503f6c", "633c9ae87c92c3d3acc4"))


def folder_of(release: Release) -> Path:
    """The folder that the variable names. Raises ConfigError saying how to clone where there is none."""
    value = os.environ.get(release.variable)
    if not value:
        raise ConfigError(f"this needs a clone of the {release.name} release: {release.how()}")
    if not Path(value).is_dir():
        raise ConfigError(
            f"{release.variable} is {value}, which is not a directory; clone the release: {release.how()}"
        )
    return Path(value).absolute()


def blobs_of(release: Release, folder: Path, path: str) -> set[str]:
    """The ids that git has of a file in the commits of the release, as far as the folder is a clone with them."""
    names = [f"{commit}:{path}" for commit in release.commits]
    git = ("git", "-C", str(folder), "rev-parse", "--verify", "--quiet")
    found = [subprocess.run([*git, name], capture_output=True, text=True, check=False) for name in names]
    return {ran.stdout.strip() for ran in found if not ran.returncode}
