"""vLLM as the sampler: what is refused here, and its own tests in the environment of `make vllm`."""

import importlib
import importlib.util
import os
import subprocess
from pathlib import Path

import pytest

from r3l.config import resolve
from r3l.core.errors import ConfigError
from r3l.files.paths import ROOT
from r3l.local.engine import train

VLLM = "compute=vllm"
PYTHON = Path(os.environ.get("R3L_VLLM", ROOT / ".venv-vllm")) / "bin" / "python"


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("engine=trinity", "Trinity-RFT has its own vLLM"),
        ("sampling.temperature=2.5", "temperatures up to 2"),
        ("evaluation.temperature=2.5", "temperatures up to 2"),
    ],
)
def test_what_cannot_be_is_refused_when_the_run_is_resolved(setting, reason):
    resolve("nano", "alfworld", "grpo", 0, overrides=[setting])
    with pytest.raises(ConfigError, match=f"compute is 'vllm', but .*{reason}"):
        resolve("nano", "alfworld", "grpo", 0, overrides=[VLLM, setting])


@pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="vllm is installed here")
def test_without_vllm_a_run_is_refused_before_it_has_a_directory(tmp_path):
    run = resolve("nano", "alfworld", "grpo", 0, overrides=[VLLM])
    with pytest.raises(ConfigError, match="vLLM is not installed for .*make vllm"):
        train(run, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON.is_file(), reason="make vllm, or R3L_VLLM=/path/to/environment")
def test_in_the_environment_of_vllm():
    folder = Path(__file__).with_name("vllm")
    path = os.pathsep.join(map(str, (ROOT, ROOT / "tests")))
    program = [PYTHON, "-m", "pytest", "-x", "-m", "slow", folder]
    done = subprocess.run(
        program, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout and "skipped" not in done.stdout
