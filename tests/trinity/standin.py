"""Stand-in for `trinity run` with the verl trainer, which needs GPUs: writes the same files.

Names and order of the files are those of Trinity 0.6.0 and verl 0.8 (trainer.py,
fsdp_checkpoint_manager.py): a checkpoint comes before the step's report, and the number of the newest
checkpoint after its files. The stand-in samples and trains nothing: it exports the weights of the nano
model, which transformers wrote. STANDIN_FAILS_AT=n: an error in step n, after which, as in Trinity, a
checkpoint of that number is saved all the same. STANDIN_ADAPTER: the adapter to save, else that of the start.
"""

import json
import os
import shutil
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]  # imports nothing of r3l: importing torch would take seconds
TIER = yaml.safe_load((ROOT / "configs/tiers/nano.yaml").read_text())
NANO = ROOT / "results/stored/models" / TIER["model"]
CONFIG = yaml.safe_load(Path(sys.argv[sys.argv.index("--config") + 1]).read_text())
JOB = Path(CONFIG["checkpoint_root_dir"], CONFIG["project"], CONFIG["group"], CONFIG["name"])
TRAINER = CONFIG["trainer"]
KEPT = []


def save(step, export):
    folder = JOB / f"global_step_{step}"
    (folder / "actor" / "huggingface").mkdir(parents=True, exist_ok=True)
    (folder / "actor" / "model_world_size_2_rank_0.pt").write_bytes(b"shard")
    if CONFIG["model"].get("lora_configs"):
        adapter = os.environ.get("STANDIN_ADAPTER") or CONFIG["model"]["lora_configs"][0]["path"]
        shutil.copytree(adapter, folder / "actor/lora_adapter", dirs_exist_ok=True)
    elif export:
        shutil.copytree(NANO, folder / "actor" / "huggingface", dirs_exist_ok=True)
        config = folder / "actor" / "huggingface" / "config.json"
        attention = {"attn_implementation": "flash_attention_2"}  # as verl's trainer leaves it
        config.write_text(json.dumps(json.loads(config.read_text()) | attention))
    if folder not in KEPT:
        KEPT.append(folder)
    while len(KEPT) > TRAINER["max_checkpoints_to_keep"]:
        shutil.rmtree(KEPT.pop(0))
    (JOB / "latest_checkpointed_iteration.txt").write_text(str(step))
    (JOB / "trainer_meta.json").write_text(json.dumps({"latest_iteration": step}))


def report(step):
    explorer = {
        "experience_pipeline/train/success": 0.5,
        "experience_pipeline/tokens/response": 40.0,
        "explorer/time/wait_explore_step": 3,
    }
    trainer = {
        "actor/loss": step / 10,
        "actor/final_loss": 0.01,
        "actor/loss/policy": 0.02,
        "actor/clip_fraction": 0.5,
        "actor/logprob_mismatch/sum": 1.2,
        "actor/logprob_mismatch/tokens": 400.0,
        "actor/logprob_mismatch/max": 0.25,
        "actor/perf/max_memory_allocated_gb": 41.5,
        "actor/grad_norm": 0.25,
        "actor/lr": 1e-6,
        "time/train_step": 1.5,
        "critic/score/mean": 0.0,
    }
    (JOB / "monitor").mkdir(exist_ok=True)
    for role, metrics in (("explorer", explorer), ("trainer", trainer)):
        with (JOB / f"monitor/steps-{role}.jsonl").open("a") as file:
            file.write(json.dumps({"step": step, **metrics}) + "\n")


def main():
    newest = JOB / "latest_checkpointed_iteration.txt"
    step = int(newest.read_text()) if newest.is_file() else 0
    explorer = JOB / "explorer_meta.json"
    assert (json.loads(explorer.read_text())["latest_iteration"] if explorer.is_file() else 0) == step
    JOB.mkdir(parents=True, exist_ok=True)
    print("PYTHONPATH", os.environ["PYTHONPATH"], flush=True)
    print("begins at", step, "of", TRAINER["total_steps"], "on", CONFIG["cluster"], flush=True)
    while step < TRAINER["total_steps"]:
        step += 1
        (JOB / "explorer_meta.json").write_text(json.dumps({"latest_iteration": step}))  # saved at every step
        if step == int(os.environ.get("STANDIN_FAILS_AT", 0)):
            (JOB / "log").mkdir(exist_ok=True)
            (JOB / "log" / "trainer.log").write_text("ERROR Error in Trainer: CUDA out of memory\n")
            break
        if step % TRAINER["save_interval"] == 0:
            save(step, export=step == TRAINER["total_steps"])
        report(step)
    save(step, export=True)


main()
