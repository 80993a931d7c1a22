"""A file of configs/protocols/ENV: the rules of a published evaluation, to compare scores with it.

The folder ``question_sets`` serves every environment that is a published set of questions (gsm8k),
``puzzles`` the puzzles that its files name.

A protocol is a layer of settings (r3l.config.resolution), so everything that decides a score is in the run
and its fingerprint; a digest of these settings is part of the run's ``protocol``. Words describe the rest:
the engine's rule of success, and how even a run without deviations differs from the original. They may be
corrected without assigning earlier scores to another protocol.
"""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import Field, field_validator, model_validator

from r3l.config.environment import EnvConfig
from r3l.config.files import Label, Strict, load, validate
from r3l.config.method import source_in
from r3l.core.errors import ConfigError, did_you_mean
from r3l.files import paths
from r3l.files.yaml_files import read_yaml

REQUIRED = (  # keys that decide a score: every protocol sets them, and leaves none to a tier
    *("prompts", "env_settings.test_task_set", "env_settings.max_turns"),
    *("evaluation.tasks", "evaluation.draw", "evaluation.episodes_per_task", "evaluation.temperature"),
    *("sampling.max_tokens", "sampling.max_context"),
)
EXAMPLES = "env_settings.options.examples"
TEST_TASK_SET = "env_settings.test_task_set"
PAPER = "r3l"  # the protocol of the paper's release
QUESTION_SETS = "question_sets"  # folder of the protocols of published sets of questions
DIGITS = 12


class ProtocolConfig(Strict):
    """configs/protocols/<env>/<name>.yaml: the rules of a published evaluation, which decide its score.

    ``label``: its printed name. ``sources``: where the values come from. A file is refused if it has no
    source for ``success``, ``examples`` or a key of ``set``, or if its ``set`` lacks a key of REQUIRED.
    """

    protocol: str
    env: str = Field(description="its folder: an environment, or several with the same rules")
    envs: list[str] = Field(
        [], description="the environments of the folder to which it applies; default: all"
    )
    label: Label
    tier: str = Field("smol", description="tier with the engine, workers and batch; they change no score")
    success: str = Field(description="rule by which an episode counts as solved")
    measure: Literal["success", "reward"] = Field(
        "success", description="the mean that the original reports first"
    )
    differs: list[str] = Field(description="differences of a run without deviations from the original")
    set: dict[str, Any] = Field(description="values of dotted keys of a run, each with a source")
    examples: str = Field(
        "", description="a file in the same folder with few-shot examples, each under `=== TYPE, origin`"
    )
    sources: dict[str, str]

    @field_validator("set")
    @classmethod
    def _complete(cls, value: dict[str, Any]) -> dict[str, Any]:
        missing = [key for key in REQUIRED if key not in value]
        if missing:
            raise ValueError(f"the protocol lacks required keys; add {', '.join(missing)}")
        name = value[TEST_TASK_SET]
        if not isinstance(name, str):
            raise ValueError(f"{TEST_TASK_SET} is {name!r}; write the name of a task set, such as nano/test")
        return value

    @model_validator(mode="after")
    def _sourced(self) -> ProtocolConfig:
        keys = ["success", *self.set]
        if self.examples:
            keys.append(EXAMPLES)
        missing = [key for key in keys if not source_in(self.sources, key)]
        if missing:
            raise ValueError(f"sources has no entry for {', '.join(missing)}")
        return self


class NamedProtocol(NamedTuple):
    """A protocol, the ``path`` of its file, and the ``values`` it sets by dotted keys of a run.

    Few-shot examples are among the values. ``sha256``: over its name, its measure and the values.
    """

    config: ProtocolConfig
    path: Path
    values: dict[str, Any]
    sha256: str

    @property
    def identity(self) -> str:
        """The protocol's name and the start of its sha256, as runs record it: ``react-1a2b3c4d5e6f``."""
        return f"{self.config.protocol}-{self.sha256[:DIGITS]}"


def is_question_set(env: str) -> bool:
    """Whether an environment is a published set of questions, such as gsm8k, with the set's own name.

    That is: its test task set in tier smol is ``<env>/test``. Raises ConfigError for an unknown environment.
    """
    config = load("envs", env, EnvConfig)
    return "smol" in config.tiers and config.tiers["smol"].test_task_set == f"{env}/test"


def _folder(env: str) -> Path:
    """The folder of an environment's protocols."""
    folder = QUESTION_SETS if is_question_set(env) else load("envs", env, EnvConfig).environment or env
    return paths.CONFIGS / "protocols" / folder


def protocols(env: str) -> list[str]:
    """The sorted names of the protocols that apply to an environment; [] if there are none.

    Raises ConfigError for an unknown environment, and for a malformed file of its folder.
    """
    found = {path.stem: _read(path) for path in sorted(_folder(env).glob("*.yaml"))}
    return [name for name, config in found.items() if not config.envs or env in config.envs]


def _read(path: Path) -> ProtocolConfig:
    """Read and validate a file. Raises ConfigError."""
    config = validate(ProtocolConfig, read_yaml(path), str(path))
    if (config.protocol, config.env) != (path.stem, path.parent.name):
        raise ConfigError(
            f"{path}: keys env and protocol are {config.env}/{config.protocol}; they must be as its path"
        )
    return config


@lru_cache(maxsize=32)  # a run evaluates by one reading of the file, however often it needs the protocol
def load_protocol(env: str, name: str) -> NamedProtocol:
    """Read the protocol ``name`` of an environment, with its few-shot examples; cached for the process.

    Raises ConfigError if it does not apply to the environment, or if its file is incomplete.
    """
    known = protocols(env)
    if not known:
        raise ConfigError(f"environment {env!r} has no protocols")
    if name not in known:
        files = sorted((paths.CONFIGS / "protocols").glob("*/*.yaml"))
        elsewhere = [file for file in files if file.stem.casefold() == name.casefold()]
        others = "".join(f"; {file.parent.name} has {file.stem!r}" for file in elsewhere)
        raise ConfigError(
            f"environment {env!r} has no protocol {name!r}{others}; known there: {', '.join(known)}"
            f"{did_you_mean(name, known)}"
        )
    path = _folder(env) / f"{name}.yaml"
    config = _read(path)

    # The values, with few-shot examples from their file; the digest is over all that decides a score.
    values = config.set | {TEST_TASK_SET: config.set[TEST_TASK_SET].replace("{env}", env)}
    if config.examples:
        values |= {EXAMPLES: _examples(path, path.parent / config.examples)}
    decides = {"protocol": name, "measure": config.measure, "set": values}
    digest = hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()
    return NamedProtocol(config, path, values, digest)


def _examples(protocol: Path, path: Path) -> dict[str, list[str]]:
    """The few-shot examples of each task type. Raises ConfigError unless ``path`` is a text file."""
    wrong = f"{protocol}: key 'examples' names {path}, which"
    if not path.is_file():  # a pipe or device may never end
        what = "no regular file" if path.exists() else "missing"
        raise ConfigError(f"{wrong} is {what}; correct it")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{wrong} is not UTF-8 ({error.reason}, byte {error.start}); convert it") from error
    found: dict[str, list[str]] = {}
    for part in text.split("=== ")[1:]:
        heading, _, example = part.partition("\n")
        found.setdefault(heading.partition(",")[0], []).append(example)
    return found


def protocol_of(env: str, identity: str) -> NamedProtocol:
    """The protocol with the ``identity`` (name and digest) that a run records.

    Raises ConfigError if its file sets other values now, or is gone.
    """
    found = load_protocol(env, identity.rpartition("-")[0])
    if found.identity != identity:
        raise ConfigError(
            f"{found.path} changed after the run with {identity} started: now it is {found.identity}; "
            f"restore the file, or play again in another folder: r3l evaluate {env} --protocol "
            f"{found.config.protocol} --out FOLDER, with the same model"
        )
    return found
