"""Files of the adapter tests in a folder that R3L_ENVS names, with YAML files for them."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest
import yaml

from r3l.config import environment_of
from r3l.processes.worker import RecordedEnvironment

ADAPTERS = {
    "gymnasium": "r3l.envs.adapters.gymnasium:Gymnasium",
    "openenv": "r3l.envs.adapters.openenv:OpenEnv",
    "verifiers": "r3l.envs.adapters.verifiers:Verifiers",
}
# Each has an environment of its own: `make openenv`, `make verifiers`, which run these tests there.
OPTIONAL = ("openenv", "verifiers")
collect_ignore = [f"test_{name}.py" for name in OPTIONAL if importlib.util.find_spec(name) is None]
SPLITS = {"train": [0, 40], "test": [40, 60]}


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write NAME.yaml for an adapter and its arguments, as a user does; returns the name."""
    folder = tmp_path / "mine"
    shutil.copytree(Path(__file__).with_name("mine"), folder)
    monkeypatch.setenv("R3L_ENVS", str(folder))
    monkeypatch.chdir(tmp_path)

    def write(name, code, max_turns=4, **arguments):
        tier = {
            "train_task_set": "train",
            "test_task_set": "test",
            "max_turns": max_turns,
            "model": "math-1.5m",
        }
        content = {"env": name, "label": name, "tiers": {"nano": tier}, "sources": {}}
        content |= {"code": ADAPTERS.get(code, code), "arguments": {"splits": SPLITS} | arguments}
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(content))
        return name

    return write


@pytest.fixture
def begin():
    """Start task ``index`` of the split `train`: (recorded engine, messages before the first response)."""
    opened = []

    def begin(name, index=0, style="compact"):
        package = environment_of(name)
        task = package.tasks("train")[index]
        opened.append(RecordedEnvironment(package.create({})))
        first = opened[-1].reset(task)
        return opened[-1], [(m.role, m.content) for m in package.dialogue(style, 4).opening(task, first)]

    yield begin
    for environment in opened:
        environment.engine.close()
