"""A new method is one file and one config, outside the package, and gets a row."""

import json
import os
import subprocess
import sys

from r3l.config import ROOT

CODE = '''
"""Best of N: imitate the shortest success of a group."""

import numpy as np
import torch
from pydantic import Field

from r3l.core.method import MethodSettings, TrainedMethod
from r3l.core.rollout import play_group
from r3l.core.trajectory import Group


class Settings(MethodSettings):
    group_size: int = Field(4, ge=1)


class Shortest(TrainedMethod[Settings]):
    Settings = Settings
    max_rollouts = 4

    async def explore(self, task, arena):
        tried = await play_group(arena, task, self.settings.group_size)
        best = sorted((t for t in tried if t.success), key=lambda t: len(t.turns))[:1]
        return [Group(task, tried, "none")] + [Group(task, [t], "sft") for t in best]

    def advantages(self, group):
        return np.zeros(len(group.trajectories))

    def surrogate(self, batch, logprobs_B_T):
        return torch.zeros_like(logprobs_B_T), {}
'''
CONFIG = """
method: shortest
label: Shortest success
code: "shortest:Shortest"
settings: {group_size: 4}
sources: {settings.group_size: "an example"}
"""


def test_a_method_from_outside_gets_a_row(tmp_path):
    assert len(CODE.strip().splitlines()) <= 30
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "shortest.py").write_text(CODE)
    (mine / "shortest.yaml").write_text(CONFIG)
    environment = os.environ | {"R3L_METHODS": str(mine), "PYTHONPATH": str(ROOT)}

    def r3l(*arguments):
        command = [sys.executable, "-m", "r3l.cli", *map(str, arguments), "--json"]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    overrides = ["train.tasks_per_step=2", "train.steps=1"]
    options = [part for override in overrides for part in ("--set", override)]
    r3l("train", "--method", "shortest", *options)
    r3l("evaluate", "results/nano/alfworld/nano/shortest/seed0")
    rows = r3l("table", "table1", "--rows", "zero_shot,shortest", "--seeds-planned", 1)["rows"]
    (row,) = [row for row in rows if (row["method"], row["group"]) == ("shortest", "all")]
    assert (row["label"], row["episodes"], row["rollouts"]) == ("Shortest success", 200, 8)
    assert row["seeds_done"] == 1 and row["mean"] is not None
    missing = [row for row in rows if row["method"] == "zero_shot"]
    assert {(row["seeds_done"], row["verdict"], row["mean"]) for row in missing} == {(0, "incomplete", None)}
    assert "shortest" in {row["method"] for row in r3l("methods")["methods"]}
