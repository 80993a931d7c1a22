"""Where a run's code and plan come from: the checkout's commit, and the pre-registration that it has."""

from __future__ import annotations

import subprocess

from r3l.core.errors import ConfigError
from r3l.files.digests import digest_of
from r3l.files.paths import ROOT, is_checkout

PREREGISTRATION = ROOT / "docs" / "preregistration.md"
DIRTY = "-dirty"


def commit() -> str | None:
    """The checkout's commit, or None where there is none; ``-dirty`` when files differ from it."""
    if not is_checkout():
        return None
    describe = ["git", "describe", "--always", f"--dirty={DIRTY}", "--abbrev=12", "--exclude=*"]
    try:
        done = subprocess.run(describe, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def is_dirty(commit: str | None) -> bool:
    """Whether a manifest's ``commit`` says that the code was not that of the commit."""
    return commit is not None and commit.endswith(DIRTY)


def check_clean(purpose: str) -> None:
    """Raises ConfigError where files of the checkout differ from its commit: nobody could repeat what it makes."""
    if is_dirty(found := commit()):
        raise ConfigError(
            f"{ROOT} has changes that are in no commit ({found}), and {purpose}: nobody could repeat such runs. Commit "
            "or stash them (git status lists them), or work in a clean clone"
        )


def preregistration_sha256() -> str | None:
    """The sha256 of docs/preregistration.md as it is now; None where there is none."""
    return digest_of(PREREGISTRATION) if PREREGISTRATION.is_file() else None
