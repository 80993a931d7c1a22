"""Check: one finding of ``r3l doctor``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from r3l.core.errors import DataError, R3LError


@dataclass(frozen=True)
class Check:
    """One finding; ``fix`` is empty where ``ok``."""

    name: str
    ok: bool
    found: str
    fix: str = ""


def checked(name: str, ok: bool, found: str, fix: str) -> Check:
    """A finding with ``fix`` where it is not ``ok``."""
    return Check(name, ok, found, "" if ok else fix)


def guarded(name: str, find: Callable[[], str], fix: str) -> Check:
    """What ``find`` returns. It starts foreign code: a typed error or missing import of it is the finding."""
    try:
        return Check(name, True, find())
    except DataError as error:
        return Check(name, False, f"DataError: {error}", "get the data as it says")
    except (R3LError, ImportError, OSError) as error:
        return Check(name, False, f"{type(error).__name__}: {error}", fix)
