"""Checks for the trinity engine on a machine that lacks almost everything: each names the fix."""

import venv

import pytest

from r3l.config import EnvConfig, find_model, load
from r3l.config import gpu_memory as memory
from r3l.trinity import doctor


@pytest.fixture
def findings(tmp_path, monkeypatch):
    venv.create(tmp_path / "trinity")
    (tmp_path / "trinity" / "bin" / "trinity").touch()  # an environment whose packages are gone
    (tmp_path / "models" / "Qwen2.5-1.5B-Instruct").mkdir(parents=True)
    monkeypatch.setenv("R3L_TRINITY", str(tmp_path / "trinity"))
    monkeypatch.setenv("R3L_MODELS", str(tmp_path / "models"))
    envs = [load("envs", "alfworld", EnvConfig)]
    return {finding.name: finding for finding in doctor.checks("paper", envs)}


def test_what_is_missing_says_how_to_get_it(findings):
    missing = {name: finding.fix for name, finding in findings.items() if not finding.ok}
    assert missing["trinity-rft (Trinity)"] == "==0.6.0: make trinity"
    assert "trinity-rft[vllm,flash_attn]==0.6.0" in missing["vllm (Trinity)"]
    assert missing["weights of qwen3-4b"].startswith("hf download Qwen/Qwen3-4B")
    assert all(missing.values())
    own = findings["weights of qwen2.5-1.5b"]
    assert own.ok and own.detail.endswith("models/Qwen2.5-1.5B-Instruct")


def test_memory_by_hand():
    a = find_model("qwen2.5-1.5b").architecture
    assert memory.cache_per_token(a) == 2 * 28 * 2 * 128 * 2  # keys and values, layers, heads, size, bytes
    plan = memory.training(a, 1000, gpus=2)
    assert plan.weights + plan.gradients + plan.optimiser == 16 * a.parameters / 2
    assert plan.reference == 0 and memory.training(a, 1000, reference=True).reference == 4 * a.parameters
    logits, kept = 10 * 1000 * 151936, 2 * 1000 * 1536 * 32
    assert memory.activations(a, 1000) == kept + max(logits, 4 * 151936 * 1536 + 80 * 1000 * 1536)
    engine = memory.sampling(a, 80 * memory.GIB, 0.7, 20480)
    assert engine.weights == 2 * a.parameters
    assert engine.dialogs == pytest.approx((56 * memory.GIB - 2 * a.parameters) / (20480 * 28672))
