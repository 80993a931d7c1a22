"""The engine on GPUs, with stand-ins for `trinity` and `ray` (tests/trinity/standin.py).

Configuration, run directory, resuming, and export and evaluation of the weights are real.
"""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import save_file

from r3l.config import resolve
from r3l.core.errors import CheckpointError, ConfigError, EngineError
from r3l.evaluation.evaluate import evaluate_run
from r3l.files.digests import digest_with_names
from r3l.files.json_files import read_jsonl
from r3l.files.paths import STORED_MODELS
from r3l.runs.gpu_locks import VISIBLE
from r3l.trinity import verl
from r3l.trinity.engine import train

STANDIN = Path(__file__).with_name("standin.py")
SETTINGS = ["train.steps=5", "train.save_every=2", "train.tasks_per_step=2"]


def run_of(*overrides, model="qwen2.5-1.5b", seed=0):
    return resolve("nano", "alfworld", "grpo@engine=trinity", seed, model, [*SETTINGS, *overrides])


def program(path, text):
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Eight visible GPU ids, and a virtual environment whose programs are stand-ins."""
    folder = tmp_path / "environment" / "bin"
    folder.mkdir(parents=True)
    program(folder / "trinity", f'#!/bin/sh\nexec {sys.executable} {STANDIN} "$@"\n')
    (tmp_path / "environment/lib/python3.11/site-packages/flash_attn").mkdir(parents=True)
    ray = '#!/bin/sh\necho "$@"\necho Ray runtime started.\n[ "$1" = status ] || exec sleep 600\n'
    program(folder / "ray", ray)
    monkeypatch.setenv("R3L_TRINITY", str(folder.parent))
    monkeypatch.setenv(VISIBLE, "0,1,2,3,4,5,6,7")
    for name in ("RAY_ADDRESS", "SLURM_JOB_ID", "STANDIN_FAILS_AT"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_a_run_leaves_the_files_of_a_local_run_and_can_be_evaluated(machine, monkeypatch):
    run, run_dir = run_of(), machine / "run"
    monkeypatch.setenv("PYTHONPATH", str(machine / "own"))
    result = train(run, run_dir)
    rows = read_jsonl(run_dir / "metrics.jsonl")
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5]
    assert {k: v for k, v in rows[1].items() if k != "step"} == {
        "train/success": 0.5,
        "tokens/response": 40.0,
        "loss": 0.2,  # verl sums over micro-batches and averages over ranks
        "loss/policy": 0.02,
        "clip_fraction": 0.5,
        "logprob_mismatch/mean": 0.003,  # 1.2 nats over 400 tokens
        "logprob_mismatch/max": 0.25,
        "memory/trainer": 41.5,
        "grad_norm": 0.25,
        "seconds/collect": 3.0,
        "seconds/train": 1.5,
        "rate/masked": 0.0,
    }
    assert (result["steps"], result["checkpoint"]) == (5, "checkpoints/step-000005")
    assert result["budget"] == {"tokens/response": 200.0} and result["final"] == {"train/success": 0.5}
    assert result["checkpoint_sha256"] == digest_with_names(run_dir / "checkpoints/step-000005")
    assert json.loads((run_dir / "result.json").read_text()) == result
    assert not list(run_dir.glob("trinity/**/global_step_*"))  # nothing resumes a finished run
    assert "--num-gpus=8" in (run_dir / "trinity/ray.log").read_text()
    assert "--node-ip-address=127.0.0.1" in (run_dir / "trinity/ray.log").read_text()
    # Modules of the user's own are importable in every process.
    path = (run_dir / "trinity/trinity.log").read_text().partition("PYTHONPATH ")[2].splitlines()[0]
    assert path.split(os.pathsep)[-1] == str(machine / "own")
    # The exported configuration asks for no flash-attn, which other machines lack.
    config = json.loads((run_dir / result["checkpoint"] / "config.json").read_text())
    assert not [key for key in config if "attn_implementation" in key]

    evaluation = evaluate_run(run_dir, task_set="one/train")
    assert evaluation["checkpoint"] == {"step": 5, "sha256": result["checkpoint_sha256"]}
    assert evaluation["episodes"] == len(read_jsonl(run_dir / "evaluations/one/train/episodes.jsonl")) > 0

    (machine / "environment/bin/trinity").write_text("#!/bin/sh\nexit 1\n")
    os.environ[VISIBLE] = ""  # monkeypatch puts it back
    assert train(run, run_dir) == result  # finished: neither Trinity nor a GPU is needed


def test_with_lora_both_engines_read_our_adapter_and_the_last_one_is_the_checkpoint(machine, monkeypatch):
    hub = machine / "hub" / "models--Qwen--Qwen2.5-1.5B-Instruct"
    small = STORED_MODELS / "math-1.5m"  # in place of the hub's, whose weights are not read
    shutil.copytree(small, hub / "snapshots" / "abc", ignore=shutil.ignore_patterns("*.safetensors"))
    (hub / "refs").mkdir()
    (hub / "refs" / "main").write_text("abc")
    for place in ("huggingface_hub.constants.HF_HUB_CACHE", "transformers.utils.hub.constants.HF_HUB_CACHE"):
        monkeypatch.setattr(place, str(hub.parent))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    run, run_dir = run_of("lora.rank=4"), machine / "run"
    result = train(run, run_dir)
    start, last = run_dir / "trinity/adapter", run_dir / result["checkpoint"]
    config = yaml.safe_load((run_dir / "trinity/config.yaml").read_text())
    (adapter,) = config["model"]["lora_configs"]
    assert (adapter["path"], adapter["lora_rank"], adapter["lora_alpha"]) == (str(start), 4, 32)
    assert config["synchronizer"]["sync_method"] == "checkpoint"
    assert config["trainer"]["save_hf_checkpoint"] == "never"
    files = sorted(path.name for path in last.glob("adapter_*"))
    assert files == ["adapter_config.json", "adapter_model.safetensors"]
    assert digest_with_names(last / "adapter_model.safetensors") == digest_with_names(
        start / "adapter_model.safetensors"
    )
    assert not list(run_dir.glob("trinity/**/global_step_*"))


def test_after_an_error_a_run_resumes_from_the_last_reported_checkpoint(machine, monkeypatch):
    """Step 4 fails; Trinity then saves a checkpoint of the untrained step 4. The valid one is of step 2."""
    run, run_dir = run_of(), machine / "run"
    monkeypatch.setenv("STANDIN_FAILS_AT", "4")
    message = "(?s)failed after 3 of 5 steps. The end of .*trainer.log.*CUDA out of mem"
    with pytest.raises(EngineError, match=message):
        train(run, run_dir)
    (job,) = run_dir.glob("trinity/nano/alfworld/*")
    assert {folder.name for folder in job.glob("global_step_*")} == {"global_step_2", "global_step_4"}
    assert not (run_dir / "checkpoints").exists() and not (run_dir / "result.json").exists()

    monkeypatch.delenv("STANDIN_FAILS_AT")
    result = train(run, run_dir)
    assert "begins at 2 of 5" in (run_dir / "trinity/trinity.log").read_text()
    assert [row["step"] for row in read_jsonl(run_dir / "metrics.jsonl")] == [1, 2, 3, 4, 5]
    train(run, machine / "quiet")
    assert result == json.loads((machine / "quiet/result.json").read_text())  # as without an error


def test_the_directory_of_another_run_is_rejected_and_unchanged(machine, monkeypatch):
    monkeypatch.setenv("STANDIN_FAILS_AT", "3")
    with pytest.raises(EngineError):
        train(run_of(), machine / "run")
    before = (machine / "run/manifest.json").read_bytes()
    with pytest.raises(CheckpointError, match="another configuration"):
        train(run_of(seed=1), machine / "run")
    assert (machine / "run/manifest.json").read_bytes() == before
    assert list((machine / "run").glob("trinity/nano/alfworld/*/global_step_2"))


def test_an_empty_adapter_ends_the_run_at_its_first_save(machine, monkeypatch):
    """As with peft 0.21, whose adapters verl 0.8 saves without a tensor."""
    adapter = machine / "empty"
    adapter.mkdir()
    save_file({}, adapter / "adapter_model.safetensors")
    monkeypatch.setenv("STANDIN_ADAPTER", str(adapter))
    monkeypatch.setattr(verl.Verl, "finished", lambda self: False)
    monkeypatch.setattr("r3l.trinity.engine.write_inputs", lambda run, place: None)
    with pytest.raises(
        EngineError, match=r"global_step_\d/actor/lora_adapter is empty or damaged.* peft 0.19"
    ):
        train(run_of("lora.rank=4"), machine / "run")


def test_a_resumed_run_samples_with_the_newest_adapter(machine, monkeypatch):
    adapter = machine / "adapter"
    adapter.mkdir()
    save_file({"a": torch.ones(1)}, adapter / "adapter_model.safetensors")
    monkeypatch.setenv("STANDIN_ADAPTER", str(adapter))
    monkeypatch.setattr("r3l.trinity.engine.write_inputs", lambda run, place: None)
    monkeypatch.setenv("STANDIN_FAILS_AT", "4")
    run = run_of("lora.rank=4")
    with pytest.raises(EngineError):
        train(run, machine / "run")
    assert named_adapter(machine / "run") == machine / "run/trinity/adapter"
    monkeypatch.setenv("STANDIN_FAILS_AT", "3")
    with pytest.raises(EngineError):
        train(run, machine / "run")
    (newest,) = (machine / "run/trinity").glob("nano/alfworld/*/global_step_2/actor/lora_adapter")
    assert named_adapter(machine / "run") == newest


def named_adapter(run_dir):
    config = yaml.safe_load((run_dir / "trinity/config.yaml").read_text())
    (adapter,) = config["model"]["lora_configs"]
    return Path(adapter["path"])


def test_without_flash_attn_a_plan_without_sequence_parallelism_is_needed(machine, monkeypatch):
    shutil.rmtree(machine / "environment/lib")
    with pytest.raises(ConfigError, match="sequence_parallel: 2, which verl has for flash-attn only"):
        train(run_of(), machine / "run")
    assert not (machine / "run").exists()
    assert train(run_of(model="qwen2.5-3b"), machine / "run")["steps"] == 5  # sequence_parallel: 1
    config = yaml.safe_load((machine / "run/trinity/config.yaml").read_text())
    overrides = config["trainer"]["trainer_config"]["model"]["override_config"]
    assert overrides == {"attn_implementation": "sdpa"}


def test_too_few_gpus_is_an_error_before_any_work(machine, monkeypatch):
    monkeypatch.setenv(VISIBLE, "0,1")
    with pytest.raises(ConfigError, match="'qwen2.5-1.5b' trains on 1 x 8 GPUs .*, but 2 are visible here"):
        train(run_of(), machine / "run")
    monkeypatch.setenv(VISIBLE, "0,1,2,3,4,5,6,7")
    message = "on 2 x 8 GPUs .*, and this is one machine: start it in a Slurm job"
    with pytest.raises(ConfigError, match=message):
        train(run_of("sampling.max_tokens=512", model="qwen3-4b"), machine / "run")
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "3")
    with pytest.raises(ConfigError, match="this is a Slurm job with 3"):
        train(run_of("sampling.max_tokens=512", model="qwen3-4b"), machine / "run")
    assert not (machine / "run").exists()


def test_a_running_cluster_must_have_the_planned_gpus(machine, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    monkeypatch.setenv(VISIBLE, "")
    count = machine / "environment/bin/python"
    program(count, "#!/bin/sh\nexit 1\n")
    with pytest.raises(ConfigError, match="no Ray cluster answers at RAY_ADDRESS=10.0.0.1:6379"):
        train(run_of(), machine / "run")
    program(count, "#!/bin/sh\necho 1 4\n")
    with pytest.raises(ConfigError, match="but the Ray cluster at RAY_ADDRESS=10.0.0.1:6379 has 4"):
        train(run_of(), machine / "run")
    assert not (machine / "run").exists()
    program(count, "#!/bin/sh\necho 1 8\n")
    assert train(run_of(), machine / "run")["steps"] == 5
    assert not (machine / "run/trinity/ray.log").exists()  # none was started


def test_in_a_job_of_two_nodes_the_other_one_joins_the_head(machine, monkeypatch):
    """`srun` is a stand-in, too, which only writes down its arguments."""
    tools = machine / "tools"
    tools.mkdir()
    program(tools / "srun", f'#!/bin/sh\necho "$SLURM_GPUS" "$@" > {machine}/srun.txt\nexec sleep 600\n')
    program(machine / "environment/bin/python", "#!/bin/sh\necho 2 16\n")
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    for name, value in {"JOB_ID": "1", "JOB_NUM_NODES": "2", "GPUS": "16"}.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    monkeypatch.setenv("SLURMD_NODENAME", "first")
    assert train(run_of("sampling.max_tokens=512", model="qwen3-4b"), machine / "run")["steps"] == 5
    called = (machine / "srun.txt").read_text()
    address = verl.own_address()
    assert called.startswith(" --overlap ") and "--exclude=first" in called
    assert f"--address={address}:" in called
    assert f"--node-ip-address={address}" in (machine / "run/trinity/ray.log").read_text()
    assert "'node_num': 2" in (machine / "run/trinity/trinity.log").read_text()
