"""Checks of installed packages: the extras of pyproject.toml, and the findings of `r3l doctor`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version

from r3l.core.errors import ConfigError, DataError, R3LError
from r3l.files.paths import is_checkout

DISTRIBUTION = "r3l"


@dataclass(frozen=True)
class Finding:
    """The result of a check by `r3l doctor`. ``name``: what is checked. ``detail``: what was found.

    ``fix``: how to correct it; empty if ``ok``.
    """

    name: str
    ok: bool
    detail: str
    fix: str = ""


def checked(name: str, ok: bool, detail: str, fix: str) -> Finding:
    """A finding, with ``fix`` only if it is not ``ok``."""
    return Finding(name, ok, detail, "" if ok else fix)


def guarded(name: str, find: Callable[[], str], fix: str) -> Finding:
    """A finding whose detail is what ``find`` returns; if ``find`` raises, it is not ok and has the error.

    Only R3LError, ImportError and OSError are caught. ``fix``: how to correct it; a DataError says it itself.
    """
    try:
        return Finding(name, True, find())
    except DataError as error:
        return Finding(name, False, f"DataError: {error}", "get the data as it says")
    except (R3LError, ImportError, OSError) as error:
        return Finding(name, False, f"{type(error).__name__}: {error}", fix)


def packages(extra: str) -> list[str]:
    """Names of the packages that an extra of pyproject.toml installs; [] if r3l itself is not installed."""
    from packaging.requirements import Requirement

    if not _is_installed(DISTRIBUTION):
        return []
    found: list[str] = []
    for requirement in map(Requirement, requires(DISTRIBUTION) or []):
        if requirement.marker and requirement.marker.evaluate({"extra": extra}):
            found.append(requirement.name)
    return found


def missing(extra: str) -> list[str]:
    """Packages of an extra that are not installed; [] if r3l itself is not."""
    return [name for name in packages(extra) if not _is_installed(name)]


def require(extra: str, purpose: str) -> None:
    """Raise ConfigError, with the command that installs them, if packages of an extra are missing.

    ``purpose``: what they are needed for, in words.
    """
    if lacking := missing(extra):
        verb = "is" if len(lacking) == 1 else "are"
        raise ConfigError(
            f"{purpose} needs packages of the extra {extra!r}, and {', '.join(lacking)} {verb} not "
            f"installed: {install(extra)}"
        )


def install(extra: str) -> str:
    """The shell command that installs an extra, in a checkout or for an installed wheel."""
    if extra == "verifiers":  # it needs an older openai than r3l, which pip refuses
        command = f"uv pip install '{DISTRIBUTION}[verifiers]' --overrides <(echo 'openai>=3.57,<4')"
        return "make verifiers" if is_checkout() else command
    return f"pip install -e '.[{extra}]'" if is_checkout() else f"pip install '{DISTRIBUTION}[{extra}]'"


def _is_installed(name: str) -> bool:
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True
