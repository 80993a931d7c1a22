"""Every generated configuration in Trinity itself: its loader refuses unknown keys, its validators wrong values, and
its trainer composes verl's configuration from it."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from r3l.config import build_method, names, resolve
from r3l.files.paths import ROOT
from r3l.trinity.config import Place, as_yaml, trinity_config
from r3l.trinity.sizes import planned_models

PYTHON = Path(os.environ.get("R3L_TRINITY", ROOT / ".venv-trinity")) / "bin" / "python"
MODELS = [config.model for config in planned_models()]
METHODS = [name for name in names("methods") if build_method(resolve("nano", "alfworld", name, 0)).trains]
ENVS = ("alfworld", "webshop", "scienceworld", "dapo", "gsm8k", "math500")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON.is_file(), reason=f"no Trinity: {PYTHON} does not exist (make trinity)"),
]


def validated(folder):
    program = [PYTHON, Path(__file__).with_name("validate_configs.py"), folder]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(program, cwd=folder, env=environment, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stderr[-2000:]
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    return json.loads(line.removeprefix("FOUND "))


def test_every_method_environment_and_model_is_valid(tmp_path):
    expected = {}
    place = Place(tmp_path / "runs", tmp_path / "tasks")
    for env in ENVS:
        for model in MODELS:
            for method in METHODS:
                run = resolve("paper", env, method, 0, model)
                config = trinity_config(run, place)
                name = f"{env}-{model}-{method}.yaml"
                (tmp_path / name).write_text(as_yaml(run, config))
                gpus = config["cluster"]["node_num"] * config["cluster"]["gpu_per_node"]
                engines = config["explorer"]["rollout_model"]["engine_num"]
                expected[name] = {
                    "verl_mini_batch": config["buffer"]["train_batch_size"],
                    "verl_tokens": config["trainer"]["max_token_len_per_gpu"],
                    "verl_lr": run.train.lr,
                    "train_batch_size": config["buffer"]["train_batch_size"],
                    "trainer_gpus": gpus - engines,
                    "rollout_gpus": engines,
                    "max_tokens": run.sampling.max_tokens,
                    "mode": "both",
                    "sync_method": "nccl",
                    "eval_interval": 20,
                    "runners": 32,
                }
    configs = validated(tmp_path)
    assert len(configs) == len(ENVS) * len(MODELS) * len(METHODS)
    assert configs == expected


def test_an_unknown_key_is_an_error_there(tmp_path):
    """Else the test above would prove nothing."""
    run = resolve("paper", "alfworld", "grpo", 0)
    config = trinity_config(run, Place(tmp_path / "runs", tmp_path / "tasks"))
    config["buffer"]["pad_token_id"] = 0  # a key of the released fork
    (tmp_path / "wrong.yaml").write_text(as_yaml(run, config))
    assert "pad_token_id" in validated(tmp_path)["wrong.yaml"]["error"]
