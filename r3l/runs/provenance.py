"""Provenance of a run: the checkout's commit, and the digest of its pre-registration."""

from __future__ import annotations

import subprocess

from r3l.core.errors import ConfigError
from r3l.files.digests import file_sha256
from r3l.files.paths import ROOT, is_checkout

PREREGISTRATION = ROOT / "docs" / "preregistration.md"
DIRTY = "-dirty"


def commit() -> str | None:
    """The checkout's commit (12 hex digits), with ``-dirty`` if files differ from it; None without git.

    None also in an installed wheel.
    """
    if not is_checkout():
        return None
    describe = ["git", "describe", "--always", f"--dirty={DIRTY}", "--abbrev=12", "--exclude=*"]
    try:
        done = subprocess.run(describe, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def is_dirty(commit: str | None) -> bool:
    """True if ``commit``, as in a manifest, is of a tree with uncommitted changes; False for None."""
    return commit is not None and commit.endswith(DIRTY)


def check_clean(purpose: str) -> None:
    """Raise ConfigError if the checkout has uncommitted changes: such runs cannot be repeated.

    ``purpose``: clause of the message that says for what a clean checkout is needed. Passes without a
    checkout or git.
    """
    if is_dirty(found := commit()):
        raise ConfigError(
            f"{ROOT} has uncommitted changes ({found}), and {purpose}: such runs cannot be repeated. "
            "Commit or stash the changes (git status lists them), or work in a clean clone"
        )


def preregistration_sha256() -> str | None:
    """The sha256 of docs/preregistration.md as it is now; None if it is missing."""
    return file_sha256(PREREGISTRATION) if PREREGISTRATION.is_file() else None
