"""Scaffolding of a method or an environment: the example of this project, under the user's name."""

from __future__ import annotations

import importlib.util
import keyword
import re
from pathlib import Path

from r3l.config.files import OWN, own_folders
from r3l.core.errors import ConfigError
from r3l.files import paths

EXAMPLE = {"methods": "shortest", "envs": "guess"}  # of examples/


def write_template(kind: str, name: str, folder: Path | None = None) -> list[Path]:
    """Write code, config and test of a new method or environment; returns the three files.

    ``kind`` is methods or envs. The default ``folder`` is the first one of R3L_METHODS or R3L_ENVS, else
    ``mine``. Raises ConfigError for a name that cannot be used, and for a file that exists.
    """
    _check_name(name)
    folder = folder or next(iter(own_folders(kind)), Path("mine"))
    example = EXAMPLE[kind]
    texts = {
        folder / file.replace(example, name): _renamed(
            (paths.EXAMPLES / file).read_text("utf-8"), example, name
        )
        for file in (f"{example}.py", f"{example}.yaml", f"test_{example}.py")
    }
    if present := [str(path) for path in texts if path.exists()]:
        raise ConfigError(f"{', '.join(present)} exists and is not overwritten; choose another name")
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
    return list(texts)


def _check_name(name: str) -> None:
    """Raise ConfigError for a name that cannot be a file, a class and a config, or that is taken."""
    if not name.isidentifier() or not name.isascii() or keyword.iskeyword(name) or len(name) > 50:
        raise ConfigError(
            f"the name {name!r} becomes a Python file and a class, so it must be at most 50 letters, digits and '_', "
            "not begin with a digit, and not be a keyword of Python"
        )
    folders = [folder for kind in OWN for folder in (paths.CONFIGS / kind, *own_folders(kind))]
    taken = any((folder / f"{name}.yaml").is_file() for folder in folders)
    if taken or importlib.util.find_spec(name) is not None:
        raise ConfigError(
            f"the name {name!r} is taken by a method, an environment or a Python module; choose another one"
        )


def _renamed(text: str, example: str, name: str) -> str:
    """``text`` with the example's name replaced where it names a file, a class, a config or is quoted."""
    text = re.sub(r"^label: .*", f"label: {name}", text, flags=re.MULTILINE)
    class_name = name.title().replace("_", "")
    text = re.sub(rf"(class |:){example.capitalize()}\b", rf"\g<1>{class_name}", text)
    before, after = r"(\b(?:env|method|model): |\bsft |\")", r"(?=[\",:}\n]|$)"
    text = re.sub(rf"{before}{example}{after}", rf"\g<1>{name}", text, flags=re.MULTILINE)
    return re.sub(rf"\b{example}(?=\.(?:py|yaml)\b)", name, text)
