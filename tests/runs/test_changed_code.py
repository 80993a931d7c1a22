"""An evaluation of a run whose environment has changed: refused, since its scores would be of another one."""

import re

import pytest

from r3l.config import environment_of, resolve
from r3l.core.errors import ConfigError
from r3l.evaluation.evaluate import evaluate_run
from r3l.local.engine import train

SETTINGS = [
    "evaluation.tasks=2",
    "workers=0",
    "threads=1",
    "prompts=full",
    "sampling.max_context=2048",
    "env_settings.max_turns=2",
]


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    """A finished run that has not been evaluated."""
    folder = tmp_path_factory.mktemp("run")
    train(resolve("nano", "webshop", "zero_shot", 0, overrides=SETTINGS), folder)
    return folder


def test_an_edited_prompt_is_refused(run_dir, tmp_path, monkeypatch):
    package = environment_of("webshop")
    texts = package.prompt_texts()
    name = sorted(texts)[0]
    edited = tmp_path / name
    edited.write_text(texts[name].read_text() + "Think twice.\n")
    monkeypatch.setattr(type(package), "prompt_texts", lambda _: texts | {name: edited})
    message = rf"{re.escape(str(run_dir))}: environment 'webshop' is another one than in this run: "
    with pytest.raises(ConfigError, match=message + r"environment\.prompts was [0-9a-f]+ and is [0-9a-f]+"):
        evaluate_run(run_dir)


def test_another_version_and_other_tasks_are_refused(run_dir, monkeypatch):
    package = environment_of("webshop")
    monkeypatch.setattr(type(package), "version", package.version + 1)
    monkeypatch.setattr(type(package), "task_set_hash", lambda _, name: f"new {name}")
    with pytest.raises(ConfigError) as raised:
        evaluate_run(run_dir, "nano/validation")
    version = package.version
    assert f"environment.version was {version - 1} and is {version}" in str(raised.value)
    assert re.search(r"task_sets\.nano/test was [0-9a-f]+ and is new nano/test", str(raised.value))
    assert "r3l train" in str(raised.value)


def test_the_same_environment_is_played(run_dir):
    assert evaluate_run(run_dir)["episodes"] == 2
