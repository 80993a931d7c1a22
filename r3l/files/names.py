"""Names that become folders and files, and labels that are printed: checked before anything is done under them."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator

from r3l.core.errors import ConfigError

LONGEST_LABEL = 100  # characters; our choice, a line of a terminal
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


def _label(text: str) -> str:
    if text.isprintable() and text == text.strip() and 0 < len(text) <= LONGEST_LABEL:
        return text
    raise ValueError(f"a label must be one line of 1 to {LONGEST_LABEL} visible characters")


# What a thing is called in print. Each medium escapes what it would read as markup: r3l.report.render, .figures.style
Label = Annotated[str, AfterValidator(_label)]
