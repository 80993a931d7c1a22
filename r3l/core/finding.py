"""Finding: what ``r3l doctor`` says of one thing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from r3l.core.errors import DataError, R3LError


@dataclass(frozen=True)
class Finding:
    """``fix``: what to do; empty where ``ok``."""

    name: str
    ok: bool
    detail: str
    fix: str = ""


def checked(name: str, ok: bool, detail: str, fix: str) -> Finding:
    """A finding with ``fix`` where it is not ``ok``."""
    return Finding(name, ok, detail, "" if ok else fix)


def guarded(name: str, find: Callable[[], str], fix: str) -> Finding:
    """What ``find`` returns. It starts foreign code: a typed error or missing import of it is the finding."""
    try:
        return Finding(name, True, find())
    except DataError as error:
        return Finding(name, False, f"DataError: {error}", "get the data as it says")
    except (R3LError, ImportError, OSError) as error:
        return Finding(name, False, f"{type(error).__name__}: {error}", fix)
