"""Names that become folders and files: checked before anything is done under them."""

from __future__ import annotations

from r3l.core.errors import ConfigError

LONGEST = 200  # bytes; file systems allow 255, and a name gets a suffix here and there


def is_folder_name(name: str) -> bool:
    """True if ``name`` can name one folder: 1 to LONGEST (200) bytes of visible characters, without a slash.

    Blanks are allowed inside, not at the ends; ``.`` and ``..`` are not allowed.
    """
    plain = name.isprintable() and name == name.strip() and "/" not in name
    return plain and name not in ("", ".", "..") and len(name.encode()) <= LONGEST


def folder_name(kind: str, name: str) -> str:
    """Return ``name``. Raises ConfigError unless it can be one folder; ``kind`` names it in the message."""
    if not is_folder_name(name):
        raise ConfigError(
            f"{kind} {name!r} becomes a folder, so it must be 1 to {LONGEST} visible characters without a "
            "slash, and neither '.' nor '..'; give it another name"
        )
    return name
