"""The extras of pyproject.toml: packages that only some environments and verbs need."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version

from r3l.core.errors import ConfigError
from r3l.files.paths import is_checkout

DISTRIBUTION = "r3l"


def packages(extra: str) -> list[str]:
    """What the extra brings, as the installed metadata name it."""
    return list(_packages(extra))


def missing(extra: str) -> list[str]:
    """Those packages of the extra that are not installed."""
    return [name for name in packages(extra) if not _is_installed(name)]


def require(extra: str, purpose: str) -> None:
    """Raises ConfigError, with the command that installs them, where packages of the extra are missing."""
    if lacking := missing(extra):
        verb = "is" if len(lacking) == 1 else "are"
        raise ConfigError(
            f"{purpose} needs packages of the extra {extra!r}, and {', '.join(lacking)} {verb} not installed: "
            f"{install(extra)}"
        )


def install(extra: str) -> str:
    """The command that installs an extra."""
    return f"pip install -e '.[{extra}]'" if is_checkout() else f"pip install '{DISTRIBUTION}[{extra}]'"


def _packages(extra: str) -> Iterator[str]:
    from packaging.requirements import Requirement

    for requirement in map(Requirement, (_is_installed(DISTRIBUTION) and requires(DISTRIBUTION)) or []):
        if requirement.marker and requirement.marker.evaluate({"extra": extra}):
            yield requirement.name


def _is_installed(name: str) -> bool:
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True
