"""The paper's released code, which this project is compared with, in the user's clone of it.

No part of it is copied into the project; an environment variable names the folder of the clone.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from r3l.core.errors import ConfigError


@dataclass(frozen=True)
class Repository:
    """A public git repository, of which the user may have a clone.

    ``variable``: the environment variable that names the clone's folder. ``commits``: those that the audit
    (docs/audit.md) read, possibly abbreviated; users check out the first one.
    """

    name: str
    variable: str
    url: str
    commits: tuple[str, ...]

    def how(self) -> str:
        """The shell commands that clone the repository and set ``variable``, for messages; runs nothing."""
        folder = Path(self.url).stem
        checkout = f"git clone {self.url} && git -C {folder} checkout {self.commits[0]}"
        return f"{checkout} && export {self.variable}=$PWD/{folder}"


R3L = Repository(
    name="R3L",
    variable="R3L_RELEASE",
    url="https://github.com/shiweijiezero/R3L",
    commits=("d503f6c", "633c9ae87c92c3d3acc4"),
)


def folder_of(release: Repository) -> Path:
    """The folder of the user's clone, absolute, from the environment variable ``release.variable``.

    Raises ConfigError, which shows how to clone it, if the variable is not set or names no directory.
    """
    value = os.environ.get(release.variable)
    if not value:
        raise ConfigError(f"this needs a clone of the {release.name} release: {release.how()}")
    if not Path(value).is_dir():
        raise ConfigError(
            f"{release.variable} is {value}, which is not a directory; clone the release: {release.how()}"
        )
    return Path(value).absolute()


def blobs_of(release: Repository, folder: Path, path: str) -> set[str]:
    """Ids (SHA-1) of the git blobs that the file ``path`` has in the commits ``release.commits``.

    ``folder``: the user's clone, which git is asked in. Empty if it is no git clone, or if none of the
    commits has the file.
    """
    names = [f"{commit}:{path}" for commit in release.commits]
    git = ("git", "-C", str(folder), "rev-parse", "--verify", "--quiet")
    found = [subprocess.run([*git, name], capture_output=True, text=True, check=False) for name in names]
    return {ran.stdout.strip() for ran in found if not ran.returncode}
