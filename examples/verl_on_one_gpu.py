"""Train one batch with verl's actor on one GPU, and with the local engine. No vLLM is started.

    r3l model fetch qwen2.5-coder-0.5b
    .venv-trinity/bin/python examples/verl_on_one_gpu.py          # that model; `make trinity` comes first
    .venv-trinity/bin/python examples/verl_on_one_gpu.py --nano   # the nano model, in float32

Prints loss, gradient norm, log-prob mismatch, seconds, tokens a second, and peak memory beside the formula of
`r3l doctor --tier paper`. Exit code 1 if the engines differ. Rows are random tokens: the time of a step and
the agreement of two engines do not depend on what they say.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import logging
import os
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import yaml

import r3l.trinity.config as ours
from r3l.config import ClusterConfig, Run, build_method, find_model, gpu_memory, resolve
from r3l.core.batching import TrajectoryRow, rows_of
from r3l.core.method import Method
from r3l.core.policy import FinishReason
from r3l.core.task import Task
from r3l.core.trajectory import Group, Trajectory, TrajectoryKind, Turn
from r3l.local.model.precision import MasterWeights
from r3l.local.session import load_network
from r3l.local.training.logprobs import token_logprobs
from r3l.local.training.trainer import Trainer
from r3l.trinity.sizes import experiences_per_step, tokens_per_gpu

GROUP = 8  # rows that share an advantage baseline
REPEATS = 3  # updates; the first one compiles kernels, the others are timed
# Largest relative difference of the gradient norm. float32: far above what CPUs show (1e-7 to 6e-6,
# results/notebook). bfloat16 has 8 bits, and the engines round in other places: a guess until a GPU runs this.
TOLERANCE = {"float32": 1e-4, "bfloat16": 0.05}


def run_of(model: str | None, rows: int, length: int, microbatch: int) -> Run:
    """A run of GRPO with all weights, whose step has ``rows`` of ``length`` tokens."""
    tier = "smol" if model else "nano"
    settings = {
        "method_settings.group_size": GROUP,
        "train.tasks_per_step": rows // GROUP,
        "train.tokens_per_microbatch": microbatch,
        "train.kl_metric_every": 0,
        "train.gradient_checkpointing": True,
        "train.lr": 1e-6,
        "sampling.max_context": length,
        "sampling.max_tokens": length // 4,
        "lora.rank": 0,
        "compute": "transformers",
    }
    return resolve(tier, "math", "grpo", 0, model, [f"{key}={value}" for key, value in settings.items()])


@torch.no_grad()
def random_rows(run: Run, method: Method, network: Any, rows: int, length: int) -> list[TrajectoryRow]:
    """Rows of random tokens, half prompt and half response, with the log-probs of ``network``."""
    drawn = torch.Generator().manual_seed(0)
    ids_B_T = torch.randint(0, network.config.vocab_size, (rows, length), generator=drawn)
    mask_1_T = torch.zeros(1, length)
    mask_1_T[:, length // 2 :] = 1
    groups = []
    for number in range(rows // GROUP):
        task = Task(f"random-{number}", run.env, "train")
        members = []
        for member in range(GROUP):
            ids_1_T = ids_B_T[None, number * GROUP + member].to(network.device)
            scored = token_logprobs(network, ids_1_T, mask_1_T.to(network.device), run.sampling.temperature)
            turn = Turn(
                observation="",
                response="",
                prompt_ids=tuple(ids_1_T[0, : length // 2].tolist()),
                response_ids=tuple(ids_1_T[0, length // 2 :].tolist()),
                logprobs=tuple(scored[0, length // 2 :].tolist()),
                finish_reason=FinishReason.END,
            )
            reward = float(member % 2)
            members.append(Trajectory(task, member, TrajectoryKind.BASE, [turn], reward))
        groups.append(Group(task, members))
    return rows_of(method, groups)


def local_engine(
    run: Run, rows: int, length: int, device: torch.device, dtype: torch.dtype
) -> dict[str, Any]:
    """The batch, and what the local engine's first update makes of it."""
    network, _ = load_network(run, ours.locate(run.model), "transformers")
    network.to(device)
    method = build_method(run)
    master_weights = MasterWeights(network, dtype)
    batch = random_rows(run, method, network, rows, length)
    trainer = Trainer(
        network,
        method,
        run.train,
        temperature=run.sampling.temperature,
        master_weights=master_weights,
        forward_pass="transformers",
    )
    timed = timed_updates(lambda: trainer.step(batch), device)
    return {"rows": batch, **timed}


def verl_actor(
    run: Run, rows: list[TrajectoryRow], folder: Path, device: torch.device, dtype: torch.dtype
) -> dict[str, Any]:
    """What verl's FSDP2 actor makes of the batch under Trinity's worker, in this process as its only rank."""
    from transformers import AutoTokenizer
    from trinity.common import config_validator
    from trinity.common.config import load_config
    from trinity.trainer.verl.config import build_verl_config
    from trinity.trainer.verl.losses import build_trinity_loss
    from trinity.trainer.verl.monkey_patch import left_right_2_no_padding
    from trinity.trainer.verl.utils import to_data_proto
    from trinity.trainer.verl.workers import TrinityActorRolloutRefWorker
    from verl.utils import tensordict_utils as tu
    from verl.utils.metric import reduce_metrics

    from r3l.trinity.experience import training_batch

    # The configuration of a run of which one GPU trains; the GPU that samples is never used.
    cluster = ClusterConfig(nodes=1, gpus_per_node=2, engines=1)
    name = str(dtype).removeprefix("torch.")
    ours.cluster_of = lambda *args: cluster
    ours.planned_model = lambda run: type("Model", (), {"dtype": name})  # type: ignore[assignment]
    attention = ours.FLASH if importlib.util.find_spec("flash_attn") and device.type == "cuda" else "sdpa"
    config = ours.trinity_config(run, ours.Place(folder, folder / "tasks", attention=attention))
    if dtype == torch.float32:
        exact = {"mixed_precision": {"param_dtype": "fp32", "reduce_dtype": "fp32"}}
        config["trainer"]["trainer_config"]["actor"] = {"fsdp_config": exact}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    loaded = load_config(str(folder / "config.yaml"))
    for validator in config_validator.validators:
        validator.validate(loaded)
    settings = build_verl_config(loaded)

    worker = TrinityActorRolloutRefWorker(settings, role="actor_rollout")
    worker.init_model()
    worker._algo_config = loaded.algorithm
    worker.actor.set_loss_fn(build_trinity_loss(loaded.algorithm))

    # As Trinity's trainer: experiences to padded tensors, without padding to the actor.
    tokenizer = AutoTokenizer.from_pretrained(loaded.model.model_path)
    experiences = training_batch(rows, experiences_per_step(run, build_method(run)))
    data = to_data_proto(experiences, tokenizer.pad_token_id or 0, torch.nn.Module(), logging.getLogger())
    data.batch["old_log_probs"] = data.batch["rollout_log_probs"]
    size = settings.actor.ppo_mini_batch_size

    def update() -> dict[str, float]:
        tensors = left_right_2_no_padding(data.to_tensordict())
        tu.assign_non_tensor(
            tensors,
            calculate_entropy=False,
            global_batch_size=size,
            mini_batch_size=size,
            epochs=1,
            seed=42,
            dataloader_kwargs={"shuffle": False},
            temperature=loaded.model.temperature,
            compute_loss=True,
        )
        reported = reduce_metrics(tu.get(worker.actor.train_mini_batch(tensors), "metrics"))
        found = {key.removeprefix("actor/"): float(value) for key, value in reported.items()}
        mismatch = found[ours.MISMATCH_SUM] / found[ours.MISMATCH_TOKENS]
        return {**found, "logprob_mismatch/mean": mismatch}

    return {"attention": attention, **timed_updates(update, device)}


def timed_updates(update: Any, device: torch.device) -> dict[str, Any]:
    """Metrics of the first update, mean seconds of the later ones, and peak memory in GiB (0 on a CPU)."""
    cuda = device.type == "cuda"
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    first = update()
    seconds = []
    for _ in range(REPEATS - 1):
        began = time.perf_counter()
        update()
        if cuda:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    peak = torch.cuda.max_memory_allocated() / gpu_memory.GIB if cuda else 0.0
    return {"metrics": first, "seconds": sum(seconds) / len(seconds), "peak_gib": peak}


def only_rank(device: torch.device) -> None:
    """Make this process the only rank; on a CPU, replace what only CUDA has (tests/verl_cpu.py)."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    rank = {"RANK": 0, "WORLD_SIZE": 1, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1, "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in rank.items()}, MASTER_ADDR="127.0.0.1")
    if device.type == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
        import verl_cpu

        verl_cpu.prepare_process()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", default="qwen2.5-coder-0.5b", help="a file of configs/models")
    parser.add_argument("--nano", action="store_true", help="the nano model in float32")
    parser.add_argument("--rows", type=int, default=64, help="rows of the batch, a multiple of 8")
    parser.add_argument("--length", type=int, default=2048, help="tokens of a row")
    parser.add_argument("--microbatch", type=int, default=16384, help="tokens of a micro-batch")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dtype = torch.float32 if given.nano or device.type == "cpu" else torch.bfloat16
    name = str(dtype).removeprefix("torch.")
    run = run_of(None if given.nano else given.model, given.rows, given.length, given.microbatch)

    only_rank(device)
    local = local_engine(run, given.rows, given.length, device, dtype)
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    with tempfile.TemporaryDirectory() as folder:
        verl = verl_actor(run, local.pop("rows"), Path(folder), device, dtype)

    engines = {"local": local, "verl": verl}
    tokens = given.rows * given.length
    gradient = verl["metrics"]["grad_norm"] / local["metrics"]["grad_norm"] - 1
    report: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "dtype": name,
        "attention": verl["attention"],
        "gradient_difference": gradient,
        "agree": abs(gradient) <= TOLERANCE[name],
    }
    for engine, found in engines.items():
        kept = {key: found["metrics"][key] for key in ("loss", "grad_norm", "logprob_mismatch/mean")}
        rest = {"seconds": found["seconds"], "tokens_per_s": tokens / found["seconds"]}
        report[engine] = {**kept, **rest, "peak_gib": found["peak_gib"]}
    if model := find_model(run.model):
        microbatch = tokens_per_gpu(run, ClusterConfig(nodes=1, gpus_per_node=2, engines=1))
        plan = gpu_memory.training(model.architecture, microbatch, 1, name)
        report["formula_gib"] = plan.total / gpu_memory.GIB

    if given.json:
        print(json.dumps(report))
    else:
        print(yaml.safe_dump(report, sort_keys=False))
    return 0 if report["agree"] else 1


if __name__ == "__main__":
    sys.exit(main())
