"""Paths of the package's data, in a checkout or in an installed wheel.

A checkout has them at its top, a wheel in ``r3l/data`` and ``r3l/envs`` (setup.py). A wheel has no stored
runs: those come as an archive (r3l.evaluation.stored_runs).
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from r3l.core.named_folders import expanded

PACKAGE = Path(__file__).resolve().parents[1]
ROOT = PACKAGE.parent  # the top of a checkout, or the folder of an installed wheel
_CHECKOUT = (ROOT / "pyproject.toml").is_file() and (ROOT / "Snakefile").is_file()
_DATA = ROOT if _CHECKOUT else PACKAGE / "data"

CONFIGS = _DATA / "configs"
ENVS = (ROOT if _CHECKOUT else PACKAGE) / "envs"
EXAMPLES = _DATA / "examples"
SNAKEFILE = _DATA / "Snakefile"
WORKFLOW = _DATA / "workflow"  # rules and profiles
STORED = _DATA / "results" / "stored"  # this project's own results
STORED_MODELS = STORED / "models"
STORED_ADAPTERS = STORED / "adapters"  # LoRA adapters of SFT, without the published model that they adapt
PUBLISHED = STORED / "published"
RELEASE = _DATA / "build" / "release.json"  # in a wheel of `make dist`: the archive of stored runs


def is_checkout() -> bool:
    """True if the package runs from a checkout of the project, not from an installed wheel."""
    return _CHECKOUT


RESULTS = Path("results")  # default folder of runs
KEPT = STORED if is_checkout() else RESULTS / "stored"  # default folder of what is to be kept


def regular(path: Path) -> Path:
    """``path``; raises OSError if it is a pipe or a device, which may never end when it is read."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return path


def cache_folder(name: str) -> Path:
    """The cache folder ``$R3L_CACHE/<name>``, by default in ~/.cache/r3l; it may be deleted at any time.

    The folder is not made.
    """
    return expanded(os.environ.get("R3L_CACHE") or "~/.cache/r3l") / name
