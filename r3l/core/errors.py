"""The errors a user can cause. Each names what is wrong, where, and how to fix it; the CLI exits with 2.

Everything else that goes wrong is a defect of ours and shows its traceback.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class R3LError(Exception):
    """Root of all typed errors. ``str(error)`` is one paragraph fit for a terminal."""


class ConfigError(R3LError, ValueError):
    """A configuration file, key or value that cannot be used."""


class DataError(R3LError, ValueError):
    """Missing, corrupt or unexpected task data (games, task sets, episode files)."""


class CheckpointError(R3LError, ValueError):
    """A checkpoint that is missing, damaged, or belongs to another run or model."""


class RunDirectoryError(R3LError, OSError):
    """A run directory that cannot be written or is in use by another process."""


class EngineError(R3LError, RuntimeError):
    """An environment engine whose package, version or process is not what we need."""


class EngineLost(EngineError):
    """An engine or its process died or hung in the middle of an episode, which can be played again on a new one."""


class ContractError(R3LError, TypeError):
    """What an environment or a method returned that cannot be used: another type, shape or length."""


class NonFiniteError(R3LError, ArithmeticError):
    """A number that training or sampling cannot go on with: infinite, or not a number."""


class ReplayMismatch(R3LError, RuntimeError):
    """A restored pivot whose observation differs from the one recorded in the base trajectory."""


def check_known(kind: str, name: str, known: Iterable[str]) -> None:
    """Raise ConfigError for a name that is none of ``known``; ``kind`` says of what."""
    names = list(known)
    if name not in names:
        raise ConfigError(unknown(kind, name, names))


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """``there is no <kind> 'name'; known: a, b (did you mean 'a'?)``."""
    names = sorted(known)
    return f"there is no {kind} {name!r}; known: {', '.join(names)}{did_you_mean(name, names)}"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`` (did you mean ...?)``, or nothing where no known word is close."""
    close = get_close_matches(word, list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
