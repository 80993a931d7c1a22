"""Whole runs through real Ray, Trinity and verl's FSDP2 trainer on CPUs, compared with the local engine's.

Ray is told of GPUs that are not there; tests/verl_hooks replaces what CUDA alone has. The sampler is the
local engine's, so that both runs see the same tokens, or vLLM built for CPUs.
"""

import os
import signal
from pathlib import Path

import psutil
import pytest
from safetensors.torch import load_file
from trinity_runs import assert_same_steps, family, finish, largest_difference, start, wait_for_step
from vllm_server import LIMITS

from r3l.files.json_files import read_jsonl
from r3l.files.paths import ROOT
from r3l.trinity.processes import TrinityEnvironment

TRINITY = Path(os.environ.get("R3L_TRINITY", ROOT / ".venv-trinity"))
HOOKS = os.pathsep.join(map(str, (ROOT / "tests/verl_hooks", ROOT / "tests", ROOT)))
IN_BFLOAT16 = 1e-4  # entropy is of the sampler, to which verl sends its weights in bfloat16
SENT = {"VERL_CPU_SYNC": "float32"}  # GRPO's ratio reads the sampler's log-probs, so its loss would differ
SETTINGS = ("env_settings.test_task_set=one/train",)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (TRINITY / "bin/trinity").is_file() or not TrinityEnvironment(TRINITY).has("verl"),
        reason=f"no verl: {TRINITY} does not have it (make trinity)",
    ),
]


def start_verl(steps, run_dir, method="r3l", settings=(), ranks=1, **variables):
    gpus = ",".join(map(str, range(ranks + 1)))
    more = {"PYTHONPATH": HOOKS, "CUDA_VISIBLE_DEVICES": gpus, "VERL_CPU_RANKS": str(ranks), **variables}
    return start("trinity", steps, run_dir, method, (*SETTINGS, *settings), **more)


def ended(process):
    code, errors = finish(process)
    assert code == 0, errors


@pytest.mark.parametrize(
    ("method", "settings", "ranks", "variables"),
    [
        ("r3l", (), 1, {}),
        ("grpo", (), 2, SENT),  # nothing trains in its first step
        ("r3l_kl", (), 1, {}),
        ("r3l", ("lora.rank=4",), 1, {}),
    ],
    ids=["r3l", "grpo-2-ranks", "kl", "lora"],
)
def test_two_steps_equal_the_local_ones(method, settings, ranks, variables, tmp_path):
    ended(start("local", 2, tmp_path / "local", method, (*SETTINGS, *settings)))
    ended(start_verl(2, tmp_path / "verl", method, settings, ranks, **variables))
    assert_same_steps(tmp_path / "local", tmp_path / "verl", 1e-5 if variables else IN_BFLOAT16)
    name = "adapter_model.safetensors" if settings else "model.safetensors"
    last = [tmp_path / engine / "checkpoints/step-000002" / name for engine in ("local", "verl")]
    assert largest_difference(*last) < 1e-4
    if settings:  # the adapter has learned: its second factors begin at 0
        second = [tensor for key, tensor in load_file(last[1]).items() if "lora_B" in key]
        assert second and all(tensor.abs().max() > 0 for tensor in second)


def test_a_run_that_loses_its_trainer_goes_on_and_equals_the_local_one(tmp_path):
    ended(start("local", 3, tmp_path / "local", settings=SETTINGS))
    process = start_verl(3, tmp_path / "verl")
    wait_for_step(tmp_path / "verl", 1, process)
    (trainer,) = [p for p in family(process) if any(word.startswith("ray::Trainer") for word in p.cmdline())]
    trainer.send_signal(signal.SIGKILL)
    code, errors = finish(process)
    assert code != 0 and "Trinity failed after" in errors
    ended(start_verl(3, tmp_path / "verl"))
    assert_same_steps(tmp_path / "local", tmp_path / "verl", IN_BFLOAT16)
    last = [tmp_path / engine / "checkpoints/step-000003/model.safetensors" for engine in ("local", "verl")]
    assert largest_difference(*last) < 1e-4


def test_a_run_that_cannot_send_its_weights_ends_at_once(tmp_path):
    """Trinity only warns of it: its explorer would wait SYNC_SECONDS, over three hours, for the weights."""
    process = start_verl(2, tmp_path, VERL_CPU_FAULT="weights")
    code, errors = finish(process)
    assert code != 0 and "Trinity failed after 0 of 2 steps" in errors
    assert "NCCL weight sync failed" in errors and "the network card is gone" in errors


def test_vllm_samples_what_verl_trains(tmp_path):
    """Two engines with other arithmetic: log-probs agree, and weights come across after each update."""
    ended(start_verl(4, tmp_path, VERL_CPU_SAMPLER="vllm", **LIMITS))
    rows = read_jsonl(tmp_path / "metrics.jsonl")
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
    # vLLM samples other tokens each time, so a step's attempts can all fail, and then nothing trains in it.
    trained = [row for row in rows if row["grad_norm"] > 0]
    assert trained and trained[0]["step"] < 4  # a later step samples with weights that an update has changed
    for row in rows:
        assert row["weights/behind"] == 0
    for row in trained:
        assert row["logprob_mismatch/mean"] < 0.01
    assert not [p for p in psutil.Process().children(recursive=True) if "vllm" in " ".join(p.cmdline())]
