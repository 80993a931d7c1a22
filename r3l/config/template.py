"""Scaffolding of a method or an environment: the example of this project, under the user's name."""

from __future__ import annotations

import importlib.util
import inspect
import io
import keyword
import re
import sys
import tokenize
from pathlib import Path

from r3l.config.files import OWN, find_class, own_folders
from r3l.config.method import load_method
from r3l.core.errors import ConfigError
from r3l.files import paths

EXAMPLE = {"methods": "shortest", "envs": "guess"}  # of examples/


# Config and test of a method that begins as a copy of another one.
CONFIG_OF_COPY = """\
method: {name}
label: {name}
extends: {parent}    # its settings, profiles and tuned learning rates hold, unless this file says otherwise
code: "{name}:{class_name}"
sources: {{}}
"""
TEST_OF_COPY = """\
\"\"\"{name}.py trains a step.\"\"\"

from pathlib import Path

import r3l
from r3l.files.json_files import read_jsonl

STEP = {{"train.steps": 1, "train.tasks_per_step": 4, "workers": 0}}


def test_a_step_plays_and_trains(tmp_path, monkeypatch):
    monkeypatch.setenv("R3L_METHODS", str(Path(__file__).parent))
    run_dir = r3l.train("math", "{name}", settings=STEP, run_dir=tmp_path / "run")
    (step,) = read_jsonl(run_dir / "metrics.jsonl")
    assert step["rollouts"] >= 4 and step["tokens/trained"] > 0
"""


def write_template(kind: str, name: str, folder: Path | None = None, parent: str | None = None) -> list[Path]:
    """Write ``NAME.py``, ``NAME.yaml`` and ``test_NAME.py`` of a new method or environment that works.

    ``kind`` is methods or envs. ``folder`` is made if needed; by default it is the first one of R3L_METHODS
    or R3L_ENVS, else ``mine``. ``parent``: the method that is copied; None: the example of this project.
    Returns the three files. Raises ConfigError for a name that cannot be used or is taken, a parent that
    trains nothing, and a file that exists; then nothing is written.
    """
    # The name must be one of a file, a class and a config, and be free.
    words = (name, _class_name(name))
    usable = all(word.isidentifier() and word.isascii() and not keyword.iskeyword(word) for word in words)
    if not usable or len(name) > 50:
        raise ConfigError(
            f"the name {name!r} becomes a Python file and a class, so it must be at most 50 letters, digits "
            "and '_', not begin with a digit, and not be a keyword of Python"
        )
    folders = []
    for each in OWN:
        folders += [paths.CONFIGS / each, *own_folders(each)]
    taken = any((folder / f"{name}.yaml").is_file() for folder in folders)
    if taken or name in sys.modules or importlib.util.find_spec(name) is not None:
        raise ConfigError(
            f"the name {name!r} is taken by a method, an environment or a Python module; choose another one"
        )

    # Write code, config and test.
    folder = folder or next(iter(own_folders(kind)), Path("mine"))
    files = (f"{name}.py", f"{name}.yaml", f"test_{name}.py")
    written = _copy_of_method(name, parent) if parent else _copy_of_example(kind, name)
    texts = {folder / file: text for file, text in zip(files, written, strict=True)}
    present = [str(path) for path in texts if path.exists()]
    if present:
        raise ConfigError(f"{', '.join(present)} exists and is not overwritten; choose another name")
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
    return list(texts)


def _class_name(name: str) -> str:
    """The class of ``name``, such as SecondBest of second_best."""
    return name.title().replace("_", "")


def _copy_of_example(kind: str, name: str) -> list[str]:
    """Code, config and test of the example of ``kind``, under ``name``."""
    example = EXAMPLE[kind]
    texts = []
    for file in (f"{example}.py", f"{example}.yaml", f"test_{example}.py"):
        # Replace the example's name in names of files, classes and configs and in quotes; prose keeps it.
        text = (paths.EXAMPLES / file).read_text("utf-8")
        if file.endswith(".py"):
            text = _with_class(text, example.capitalize(), name)
        text = re.sub(r"^label: .*", f"label: {name}", text, flags=re.MULTILINE)
        text = re.sub(rf":{example.capitalize()}\b", f":{_class_name(name)}", text)
        before = r"(\b(?:env|method|model): |\bsft |\")"
        after = r"(?=[\",:}\n]|$)"
        text = re.sub(rf"{before}{example}{after}", rf"\g<1>{name}", text, flags=re.MULTILINE)
        texts.append(re.sub(rf"\b{example}(?=\.(?:py|yaml)\b)", name, text))
    return texts


def _copy_of_method(name: str, parent: str) -> list[str]:
    """The code of method ``parent`` with its class renamed; a config that extends it, and a test."""
    copied = find_class("methods", load_method(parent).code or "")
    if not copied.trains:
        raise ConfigError(f"method {parent!r} trains nothing; copy one that does, such as grpo")
    code = _with_class(inspect.getsource(inspect.getmodule(copied) or copied), copied.__name__, name)
    words = {"name": name, "parent": parent, "class_name": _class_name(name)}
    return [code, CONFIG_OF_COPY.format(**words), TEST_OF_COPY.format(**words)]


def _with_class(code: str, old: str, name: str) -> str:
    """Python ``code`` whose class ``old`` has the name of ``name``; texts and comments stay as they are.

    A method and its paper often have the name of the class: ``DAPO paper: 0.28`` is still about DAPO. Raises
    ConfigError if the code has the new name already, which then would mean two things.
    """
    new = _class_name(name)
    lines = code.splitlines(keepends=True)
    found = [
        word for word in tokenize.generate_tokens(io.StringIO(code).readline) if word.type == tokenize.NAME
    ]
    if new != old and any(word.string == new for word in found):
        raise ConfigError(
            f"the name {name!r} would become the class {new}, and the code that is copied has another {new}; "
            "choose another name"
        )
    for word in reversed(found):  # from the end, so that earlier places stay right
        if word.string == old:
            row, column = word.start
            line = lines[row - 1]
            lines[row - 1] = line[:column] + new + line[column + len(old) :]
    return "".join(lines)
