"""Errors that a user can cause. Each names what is wrong, where, and the fix; the CLI exits with 2.

Any other exception is a defect of r3l and shows its traceback.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class R3LError(Exception):
    """Base class of the errors that a user can cause; ``str(error)`` is one paragraph for a terminal."""


class ConfigError(R3LError, ValueError):
    """A configuration file, key or value that cannot be used."""


class DataError(R3LError, ValueError):
    """Missing, corrupt or unexpected task data (games, task sets, episode files)."""


class CheckpointError(R3LError, ValueError):
    """A checkpoint that is missing, damaged, or belongs to another run or model."""


class RunDirectoryError(R3LError, OSError):
    """A run directory that cannot be written or is in use by another process."""


class EngineError(R3LError, RuntimeError):
    """An environment engine whose package or version is missing or wrong, or whose process fails."""


class EngineLost(EngineError):
    """An engine that died or hung during an episode, which can be played again on a new one."""


class ContractError(R3LError, TypeError):
    """An environment or a method returned a value of the wrong type, shape or length."""


class NonFiniteError(R3LError, ArithmeticError):
    """An infinite or NaN value, with which training or sampling cannot continue."""


class ReplayMismatch(R3LError, RuntimeError):
    """A task does not replay: the observation after a reset or a rewind differs from the recorded one."""


def check_known(kind: str, name: str, known: Iterable[str]) -> None:
    """Raise ConfigError if ``name`` is not in ``known``; ``kind`` is its noun, such as "method"."""
    names = list(known)
    if name not in names:
        raise ConfigError(unknown(kind, name, names))


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """An error text: ``there is no <kind> 'name'; known: a, b (did you mean 'a'?)``."""
    names = sorted(known)
    return f"there is no {kind} {name!r}; known: {', '.join(names)}{did_you_mean(name, names)}"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The text `` (did you mean 'b'?)`` with the closest ``known`` word, ignoring case.

    Empty if none is close.
    """
    names = {name.casefold(): name for name in known}
    close = get_close_matches(word.casefold(), list(names), n=1)
    return f" (did you mean {names[close[0]]!r}?)" if close else ""


def first_line(error: BaseException) -> str:
    """The first line of an error's message; the name of its type if it has none, as a timeout of httpx."""
    return next(iter(str(error).splitlines()), "") or type(error).__name__
