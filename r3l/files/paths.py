"""Where the package's data lies.

In a checkout at its top, in a wheel below ``r3l/data`` and ``r3l/envs`` (setup.py). Of the stored results a
wheel has no runs: those come as an archive (r3l.evaluation.stored_runs).
"""

from __future__ import annotations

import os
from pathlib import Path

from r3l.core.errors import ConfigError

PACKAGE = Path(__file__).resolve().parents[1]
ROOT = PACKAGE.parent  # the top of a checkout, or what a wheel was installed into
_CHECKOUT = (ROOT / "pyproject.toml").is_file() and (ROOT / "Snakefile").is_file()
_DATA = ROOT if _CHECKOUT else PACKAGE / "data"

CONFIGS = _DATA / "configs"
ENVS = (ROOT if _CHECKOUT else PACKAGE) / "envs"
EXAMPLES = _DATA / "examples"
SNAKEFILE = _DATA / "Snakefile"
WORKFLOW = _DATA / "workflow"  # rules and profiles
STORED = _DATA / "results" / "stored"  # what this project has measured itself
STORED_MODELS = STORED / "models"
PUBLISHED = STORED / "published"
RELEASE = _DATA / "build" / "release.json"  # only in a wheel of `make dist`: where the archive of stored runs lies


def is_checkout() -> bool:
    """Whether this is a checkout of the project, not an installed wheel."""
    return _CHECKOUT


def checkout() -> Path:
    """The top of the checkout. Raises ConfigError in an installed wheel."""
    if not is_checkout():
        raise ConfigError(
            f"{ROOT} is not a checkout of this project, and this command needs one: clone it and run `make setup` there"
        )
    return ROOT


RESULTS = Path("results")  # where runs go by default
KEPT = STORED if is_checkout() else RESULTS / "stored"  # what is to be kept


def cache_folder(name: str) -> Path:
    """``$R3L_CACHE/<name>`` (an environment's, or ``models``), else ``~/.cache/r3l/<name>``; may always be
    deleted.
    """
    root = os.environ.get("R3L_CACHE") or "~/.cache/r3l"
    return Path(root).expanduser() / name
