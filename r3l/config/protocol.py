"""A file of configs/protocols/ENV: how an environment is played for a score that can be compared with a published one.

``question_sets`` has those of every environment that is a published set of questions (gsm8k), ``puzzles`` those of the
puzzles that they name.

It is a layer of settings (r3l.config.resolution), so everything that decides a score stands in the run and in its
fingerprint; their digest is part of the run's ``protocol``. What is not a setting, such as the engine's own rule of
success, and what even a run without deviations does otherwise than the original, it says in words, which may be
corrected without making earlier scores another protocol's.
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
from r3l.core.errors import ConfigError, unknown
from r3l.files import paths
from r3l.files.yaml_files import read_yaml

STATED = (  # what every protocol says, so that nothing of it is left to a tier
    *("prompts", "env_settings.test_task_set", "env_settings.max_turns"),
    *("evaluation.tasks", "evaluation.draw", "evaluation.episodes_per_task", "evaluation.temperature"),
    *("sampling.max_tokens", "sampling.max_context"),
)
EXAMPLES = "env_settings.options.examples"
TEST_TASK_SET = "env_settings.test_task_set"
PAPER = "r3l"  # the protocol of the paper's release
QUESTION_SETS = "question_sets"  # whose protocols serve every environment that is a published set
DIGITS = 12


class ProtocolConfig(Strict):
    """configs/protocols/<env>/<name>.yaml."""

    protocol: str
    env: str = Field(description="its folder: an environment, or several that are played alike")
    envs: list[str] = Field([], description="which of those it is about; default: all")
    label: Label
    tier: str = Field("smol", description="whose engine, workers and batch are used; they change no score")
    success: str = Field(description="when an episode counts as solved")
    measure: Literal["success", "reward"] = Field("success", description="what the original reports first: a mean of")
    differs: list[str] = Field(description="what a run without deviations still does otherwise than the original")
    set: dict[str, Any] = Field(description="dotted keys of a run, each with a source")
    examples: str = Field(
        "", description="a file beside this one with few-shot examples, each under `=== TYPE, origin`"
    )
    sources: dict[str, str]

    @field_validator("set")
    @classmethod
    def _complete(cls, value: dict[str, Any]) -> dict[str, Any]:
        if missing := [key for key in STATED if key not in value]:
            raise ValueError(f"a protocol says all that decides a score; add {', '.join(missing)}")
        return value

    @model_validator(mode="after")
    def _sourced(self) -> ProtocolConfig:
        if missing := [
            key
            for key in ("success", *self.set, *([EXAMPLES] if self.examples else []))
            if not source_in(self.sources, key)
        ]:
            raise ValueError(f"sources has nothing of {', '.join(missing)}")
        return self


class NamedProtocol(NamedTuple):
    """A protocol with the file that states it, all that it sets (few-shot examples too), and a sha256 of that."""

    config: ProtocolConfig
    path: Path
    values: dict[str, Any]
    sha256: str

    @property
    def identity(self) -> str:
        """What a run calls it: ``react-1a2b3c4d5e6f``."""
        return f"{self.config.protocol}-{self.sha256[:DIGITS]}"


def is_question_set(env: str) -> bool:
    """Whether an environment is named after a published set of questions (gsm8k), which tier smol plays."""
    config = load("envs", env, EnvConfig)
    return "smol" in config.tiers and config.tiers["smol"].test_task_set == f"{env}/test"


def _folder(env: str) -> Path:
    folder = QUESTION_SETS if is_question_set(env) else load("envs", env, EnvConfig).environment or env
    return paths.CONFIGS / "protocols" / folder


def protocols(env: str) -> list[str]:
    """The names of the protocols of an environment."""
    found = {path.stem: _read(path) for path in sorted(_folder(env).glob("*.yaml"))}
    return [name for name, config in found.items() if env in (config.envs or [env])]


def _read(path: Path) -> ProtocolConfig:
    config = validate(ProtocolConfig, read_yaml(path), str(path))
    if (config.protocol, config.env) != (path.stem, path.parent.name):
        raise ConfigError(f"{path}: it is called {config.env}/{config.protocol}; make that and its place one")
    return config


@lru_cache(maxsize=32)  # an evaluation asks often: every answer is of one reading
def load_protocol(env: str, name: str) -> NamedProtocol:
    """Raises ConfigError where there is no such file, or where it is not whole."""
    if name not in (known := protocols(env)):
        raise ConfigError(unknown("protocol", name, known) if known else f"environment {env!r} has no protocols")
    path = _folder(env) / f"{name}.yaml"
    config = _read(path)
    values = config.set | {TEST_TASK_SET: config.set[TEST_TASK_SET].replace("{env}", env)}
    if config.examples:
        values |= {EXAMPLES: _examples((path.parent / config.examples).read_text(encoding="utf-8"))}
    decides = {"protocol": name, "measure": config.measure, "set": values}
    return NamedProtocol(config, path, values, hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest())


def _examples(text: str) -> dict[str, list[str]]:
    """The examples of each task type."""
    found: dict[str, list[str]] = {}
    for part in text.split("=== ")[1:]:
        heading, _, example = part.partition("\n")
        found.setdefault(heading.partition(",")[0], []).append(example)
    return found


def protocol_of(env: str, identity: str) -> NamedProtocol:
    """The protocol that a run names. Raises ConfigError where its file is another one now."""
    found = load_protocol(env, identity.rpartition("-")[0])
    if found.identity != identity:
        raise ConfigError(
            f"{found.path} changed after the run with {identity} was begun: now it is {found.identity}; restore the "
            "file, or evaluate in another folder with --out"
        )
    return found
