"""Names that become folders and files: checked before anything is read or written under them."""

from __future__ import annotations

from r3l.core.errors import ConfigError

LONGEST = 200  # bytes; file systems allow 255, and a name gets a suffix here and there


def is_folder_name(name: str) -> bool:
    """Whether ``name`` can be one folder or file, and nothing but that: no path, nothing that cannot be seen."""
    plain = name.isprintable() and name == name.strip() and "/" not in name
    return plain and name not in ("", ".", "..") and len(name.encode()) <= LONGEST


def folder_name(kind: str, name: str) -> str:
    """``name`` itself. Raises ConfigError unless it can be one folder; ``kind`` says of what."""
    if not is_folder_name(name):
        raise ConfigError(
            f"{kind} {name!r} becomes a folder, so it must be 1 to {LONGEST} visible characters without a slash, and "
            "neither '.' nor '..'; give it another name"
        )
    return name


def path_name(kind: str, name: str) -> str:
    """``name`` itself, several names with slashes between them, such as ``nano/test``. Raises ConfigError."""
    for part in name.split("/"):
        if not is_folder_name(part):
            raise ConfigError(f"{kind} {name!r} must be names with slashes between them; {part!r} is none")
    return name
