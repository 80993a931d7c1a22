"""``r3l doctor --tier paper`` on a machine that has next to nothing: each line says how to get what is missing."""

import json
import venv

import pytest
from program import Program

from r3l.config import find_model
from r3l.config import gpu_memory as memory
from r3l.trinity import doctor


@pytest.fixture(scope="module")
def checks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("doctor")
    venv.create(folder / "trinity")
    (folder / "trinity" / "bin" / "trinity").touch()  # an environment whose packages are gone
    (folder / "models" / "Qwen2.5-1.5B-Instruct").mkdir(parents=True)
    own = {"R3L_TRINITY": str(folder / "trinity"), "R3L_MODELS": str(folder / "models")}
    own |= {"HF_HOME": str(folder / "hub"), "ALFWORLD_DATA": str(folder), "R3L_WEBSHOP": "", "R3L_MATH": str(folder)}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in own.items():
            patch.setenv(name, value)
        code, stdout, stderr = Program("r3l.cli", "doctor", "--tier", "paper", "--json", folder=folder).wait()
    assert code == 2 and "Traceback" not in stderr
    return {check["name"]: check for check in json.loads(stdout)["checks"]}


def test_what_is_missing_says_how_to_get_it(checks):
    missing = {name: check["fix"] for name, check in checks.items() if not check["ok"]}
    assert missing["trinity-rft (Trinity)"] == "==0.6.0: make trinity"
    assert "trinity-rft[vllm,flash_attn]==0.6.0" in missing["vllm (Trinity)"]
    assert missing["weights of qwen3-4b"].startswith("hf download Qwen/Qwen3-4B")
    assert missing["ALFWorld engine"] == "get the data as it says"
    assert "alfworld-download" in checks["ALFWorld engine"]["detail"]
    assert "r3l catalogue build" in checks["WebShop engine"]["detail"]
    assert "docs/environments.md" in checks["DAPO engine"]["detail"]
    assert all(missing.values())


def test_weights_in_a_folder_of_ones_own_are_found(checks):
    assert checks["weights of qwen2.5-1.5b"]["ok"]
    assert checks["weights of qwen2.5-1.5b"]["detail"].endswith("models/Qwen2.5-1.5B-Instruct")


def test_memory_plan_of_every_model_stands_there(checks):
    plans = [check for name, check in checks.items() if name.startswith("memory plan of ")]
    assert len(plans) >= 5
    assert all(check["ok"] for check in plans) or doctor.gpus()  # 80 GiB are assumed where there is no GPU


def test_an_environment_that_is_not_there(monkeypatch, tmp_path):
    monkeypatch.setenv("R3L_TRINITY", str(tmp_path))
    (check,) = doctor._versions()
    assert not check.ok and check.fix == "make trinity, or set R3L_TRINITY"


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
