"""Folders that environment variables name."""

from __future__ import annotations

import os
from pathlib import Path

from r3l.core.errors import ConfigError

# Variables with a folder that must exist. (The cache of R3L_CACHE is made when it is needed.)
NAMED = ("R3L_MODELS", "R3L_MATH", "R3L_WEBSHOP", "R3L_RELEASE", "R3L_TRINITY")


def expanded(folder: str) -> Path:
    """A folder that an environment variable names, with its ``~`` and ``$VARIABLE`` expanded.

    Where no shell sets the variable (a container's file, a job's settings), they are still in it.
    """
    return Path(os.path.expandvars(folder)).expanduser()


def existing_folder(variable: str, folder: Path) -> Path:
    """``folder``, which ``variable`` names. Raises ConfigError if it is not a directory."""
    if not folder.is_dir():
        raise ConfigError(
            f"{variable} names {folder}, which is not a directory; correct the variable, unset it, or make "
            "the directory"
        )
    return folder


def named_folder(variable: str) -> Path | None:
    """The folder, absolute, that an environment variable names; None if it is not set or empty.

    Raises ConfigError if it is not a directory.
    """
    value = os.environ.get(variable)
    return existing_folder(variable, expanded(value).absolute()) if value else None


def check_named_folders() -> None:
    """Raise ConfigError if a variable of NAMED names no directory, whether a run reads it or not.

    For without its folder of models, a run would silently load the hub's.
    """
    for variable in NAMED:
        named_folder(variable)
