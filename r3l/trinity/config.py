"""The configuration of Trinity-RFT for a run, and the files that it names.

It is generated from the resolved run and a :class:`Place`. It names our classes by dotted path
(Registry.get), so a node only has to import this package, and each class gets the resolved run as ``run``.
It has every key whose default would change results, or has changed between the released fork and Trinity
0.6.0. Comments state the source of a value; "audit" is docs/audit.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from r3l.config import ClusterConfig, Run, build_method, find_model, locate, variant
from r3l.core.errors import ConfigError
from r3l.core.method import Method
from r3l.trinity.sizes import (
    cluster_of,
    experiences_per_step,
    planned_model,
    tokens_per_gpu,
)
from r3l.trinity.tasksets import TASK_KEY, write_tasksets

VERSION = "0.6.0"  # of Trinity-RFT; keys differ between versions, and unknown keys are errors
WORKFLOW = "r3l.trinity.workflow.MethodWorkflow"
ADVANTAGE = "r3l.trinity.advantage.MethodAdvantage"
LOSS = "r3l.trinity.loss.MethodLoss"
LOSS_WITH_REFERENCE = "r3l.trinity.loss.MethodLossWithReference"
MONITOR = "r3l.trinity.plugins.LinesMonitor"
ALGORITHMS = "r3l.trinity.plugins"
# Metrics of a micro-batch, from r3l.trinity.loss to r3l.trinity.verl.
MISMATCH_SUM = "logprob_mismatch/sum"
MISMATCH_TOKENS = "logprob_mismatch/tokens"
MISMATCH_MAX = "logprob_mismatch/max"
FLASH = "flash_attention_2"  # verl's default
RUNNERS_PER_ENGINE = 32  # released code (audit 4.2)
RUNNERS = 4  # processes on a CPU; our choice: sampling is faster the more requests share a batch
EVALUATE_EVERY = 20  # explorer steps; released code (audit 4.1)
TASK_SECONDS = 7200  # three times the longest published step, 2,318 s (results/stored/published/cost.csv)
SYNC_SECONDS = 12000  # released code (audit 4.1)
KEPT_CHECKPOINTS = 2  # the newest may be useless: the trainer also saves after an error in a step
Config = dict[str, Any]


@dataclass(frozen=True)
class Place:
    """Folders, backend and machines with which Trinity trains a run; not part of the run itself.

    ``folder``: Trinity writes its checkpoints, buffers and logs here. ``tasks``: folder with train.jsonl (a
    row per task in training order, ``{"id": ..., "occurrence": 0}``) and a file per evaluation (test.jsonl
    ...). ``tinker_url``: address of the server of backend tinker. ``nodes`` and ``gpus_per_node`` replace
    the numbers in the model's configuration. ``attention`` (verl): ``flash_attention_2``, or ``sdpa`` where
    flash-attn is not installed.
    """

    folder: Path
    tasks: Path
    backend: Literal["verl", "tinker"] = "verl"
    tinker_url: str = ""
    nodes: int | None = None
    gpus_per_node: int | None = None
    attention: str = FLASH

    @property
    def adapter(self) -> Path:
        """Folder of the initial LoRA adapter, which only the verl backend reads."""
        return self.folder / "adapter"


def _missing_teacher(run: Run, method: Method, place: Place) -> str:
    """The weights of the method's teacher that Trinity-RFT's rollout model lacks, in words; "" if none.

    The rollout model holds the weights that sample. With LoRA on verl these are the base checkpoint and an
    adapter; a request without the adapter is scored by the base checkpoint, a frozen teacher.
    """
    if method.teacher == "average":
        return "an average of the weights, which Trinity-RFT's rollout model does not hold"
    if method.teacher == "frozen" and place.backend == "tinker":
        return (
            "the base checkpoint, which Trinity-RFT's tinker backend does not score with after the first sync"
        )
    if method.teacher == "frozen" and not run.lora.rank:
        return (
            "the base checkpoint, whose weights Trinity-RFT's rollout model replaces at each sync unless an "
            "adapter trains (lora.rank above 0)"
        )
    return ""


def trinity_config(run: Run, place: Place) -> Config:
    """Trinity's configuration for ``run`` at ``place``, as `trinity run --config` reads it; writes nothing.

    Raises ConfigError if Trinity cannot train the method, because it trains nothing, needs earlier metrics,
    or needs a teacher whose weights Trinity does not hold. With verl it also raises ConfigError if the model
    has no GPUs planned, too few for training, or a plan of sequence_parallel above 1 without flash-attn.
    """
    # Refuse what Trinity cannot train.
    method = build_method(run)
    if not method.trains:
        raise ConfigError(
            f"method {run.method!r} trains nothing, so there is nothing to configure; use r3l evaluate",
        )
    if method.needs_history:
        raise ConfigError(
            f"method {run.method!r} reads the metrics of earlier steps, which Trinity-RFT's explorers do not "
            "have; use --engine local"
        )
    if lacking := _missing_teacher(run, method, place):
        raise ConfigError(
            f"method {run.method!r}, teacher: {method.teacher!r} needs {lacking}; "
            "set method_settings.teacher=live, or use --engine local"
        )

    # The parts of the configuration; every class of ours gets the run as an argument.
    run_args = {"run": run.model_dump(mode="json")}
    cluster = cluster_of(run, place.nodes, place.gpus_per_node) if place.backend == "verl" else None
    if place.backend == "tinker":
        sync_method = "memory"  # its trainer hangs with `checkpoint`
    else:
        sync_method = "checkpoint" if run.lora.rank else "nccl"  # Trinity syncs adapters only through files
    config = {
        "mode": "both",
        "project": run.tier,
        "group": run.env,
        # Names a folder and the Ray namespace, which keeps runs on one cluster apart.
        "name": re.sub(r"[^A-Za-z0-9._-]+", "_", f"{run.model_name()}-{run.method}-seed{run.seed}"),
        "checkpoint_root_dir": str(place.folder.absolute()),
        "continue_from_checkpoint": True,
        "algorithm": _algorithm(run, method, place, cluster, run_args),
        "model": _model(run, place),
        "buffer": _buffer(run, method, place, cluster, run_args),
        # No copy of every experience in a database.
        "data_processor": {"experience_pipeline": {"save_input": False}},
        "explorer": _explorer(run, cluster),
        "synchronizer": {
            "sync_method": sync_method,
            "sync_style": "fixed",  # as in the local engine; safe since the number of experiences is fixed
            "sync_interval": run.train.sync_interval,
            "sync_offset": 0,
            "sync_timeout": SYNC_SECONDS,
        },
        "trainer": _trainer(run, cluster, place),
        "monitor": {"monitor_type": MONITOR},
    }
    if cluster is not None:
        config["cluster"] = {"node_num": cluster.nodes, "gpu_per_node": cluster.gpus_per_node}
    return config


def as_yaml(run: Run, config: Config) -> str:
    """``config`` as the text of a YAML file; the first line is a comment with Trinity's version and the run.

    ``config`` contains the run several times; it is written once, as an anchor.
    """
    run_name = f"{run.cell}, seed {run.seed}, profile {run.profile}"
    head = f"# Trinity-RFT {VERSION}: {run_name} (r3l export trinity)\n"
    return head + str(yaml.safe_dump(config, sort_keys=False))


def write_inputs(run: Run, place: Place) -> None:
    """Write the files that :func:`trinity_config` names: the task sets, and perhaps a new LoRA adapter.

    The task sets go into ``place.tasks``. The adapter goes into ``place.adapter``, with verl and
    ``lora.rank`` above 0 only. Raises, before anything is written, CheckpointError if the model's
    configuration is missing, and ConfigError if the model lacks a projection of the adapter; DataError if a
    task set's data is missing. The message says how to get it.
    """
    if run.lora.rank and place.backend == "verl":
        from r3l.local import checkpoint  # imports torch, which takes a second
        from r3l.local.model import lora  # imports torch, which takes a second

        # Drawn from the run's seed: Trinity's own adapter would be drawn without a seed.
        lora.write_start(place.adapter, run.lora, run.seed, checkpoint.find(run.model))
    write_tasksets(run, place.tasks)


def algorithm_name(method: str, reference: bool = False) -> str:
    """Dotted path by which Trinity loads the algorithm class of ``method`` (in r3l.trinity.plugins).

    ``r3l`` and its variants (r3l@key=value): ``r3l.trinity.plugins.R3l``. ``reference``: the class with which
    the trainer also computes log-probs of the base checkpoint (``R3lWithReference``).
    """
    name = "".join(part.capitalize() for part in variant(method)[0].split("_"))
    return f"{ALGORITHMS}.{name}{'WithReference' if reference else ''}"


def _algorithm(
    run: Run,
    method: Method,
    place: Place,
    cluster: ClusterConfig | None,
    run_args: Config,
) -> Config:
    """Section ``algorithm``: the method's classes, their arguments, and the optimiser."""
    # N of the released configurations. One call of our workflow makes all rollouts of a task.
    settings = method.describe()
    rollouts = int(settings.get("group_size", 1)) + int(settings.get("reflected_rollouts", 0))
    # The tinker trainer reads the reference model's log-probs in any case.
    reference = method.kl_coef > 0 or place.backend == "tinker"
    experiences = experiences_per_step(run, method, cluster.trainer_gpus if cluster else 1)
    # Data-parallel ranks, over which verl's FSDP averages gradients; the loss compensates for the average.
    replicas = cluster.trainer_gpus // cluster.sequence_parallel if cluster else 1
    return {
        "algorithm_type": algorithm_name(run.method, reference),
        "repeat_times": rollouts,
        "sample_strategy": "default",
        "advantage_fn": ADVANTAGE,
        "advantage_fn_args": {**run_args, "experiences": experiences, "folder": str(place.folder)},
        "policy_loss_fn": LOSS_WITH_REFERENCE if method.kl_coef > 0 else LOSS,
        "policy_loss_fn_args": run_args | {"replicas": replicas},
        "kl_penalty_fn": "none",  # audit 0.8: no KL in the reward
        "kl_loss_fn": "none",  # the method's loss includes it
        "entropy_loss_fn": "none",  # audit 0.4: coefficient 0
        "bypass_old_logprobs": True,  # changed default: old log-probs are the sampler's
        "optimizer": {
            "lr": run.train.lr,
            "lr_warmup_steps": run.train.lr_warmup_steps,
            "lr_scheduler_type": "constant",  # audit 0.4
            "min_lr_ratio": 0.0,  # the default is 0.01 now
            "betas": list(run.train.betas),
            "weight_decay": run.train.weight_decay,
            "clip_grad": run.train.grad_clip,
        },
    }


def _model(run: Run, place: Place) -> Config:
    """Section ``model``: the base checkpoint, limits in tokens, sampling, and a LoRA adapter."""
    described = find_model(run.model)
    config: Config = {
        "model_path": locate(run.model),
        "max_model_len": run.sampling.max_context,
        "max_prompt_tokens": run.sampling.max_context - run.sampling.max_tokens,  # audit 4.3
        "max_response_tokens": run.sampling.max_tokens,
        "enable_prompt_truncation": False,  # changed default: a full context ends the dialog and is counted
        "temperature": run.sampling.temperature,  # also of the trainer's log-probs
        "top_p": 1.0,  # audit 3.1
        "top_k": -1,  # changed default: an integer, -1 for all
        "logprobs": 0,  # audit 4.1: only the sampled token's
        "enable_thinking": described.thinking if described else False,
    }
    if place.backend == "tinker":
        config["tinker"] = {"enable": True, "base_url": place.tinker_url, "seed": run.seed}
    elif run.lora.rank:
        # vLLM and verl must start from the same adapter; Trinity's own would be drawn without a seed.
        adapter = {
            "name": "r3l",
            "path": str(place.adapter.absolute()),
            "base_model_name": config["model_path"],
            "lora_rank": run.lora.rank,
            "lora_alpha": run.lora.alpha,
        }
        config["lora_configs"] = [adapter]
    return config


def _buffer(
    run: Run,
    method: Method,
    place: Place,
    cluster: ClusterConfig | None,
    run_args: Config,
) -> Config:
    """Section ``buffer``: batch sizes, the task sets, and the queue from explorer to trainer."""
    experiences = experiences_per_step(run, method, cluster.trainer_gpus if cluster else 1)
    config: Config = {
        "batch_size": run.train.tasks_per_step,
        "train_batch_size": experiences,
        "total_epochs": 1,  # the task set has the tasks of all steps in order
        "total_steps": run.train.steps,
        "explorer_input": {"taskset": _taskset(run, place, run_args, "train", run.sampling.temperature)},
        "trainer_input": {
            "experience_buffer": {
                "name": "experiences",
                "storage_type": "queue",
                "capacity": 2 * experiences,  # the default of 10,000 may be less than a step
                "max_read_timeout": TASK_SECONDS,
                "replay_buffer": {"enable": False},  # audit 0.3: the released fork never replays
            }
        },
    }
    # On a CPU a run does as the local engine, which evaluates nothing during training.
    if place.backend == "verl":
        config["explorer_input"]["eval_tasksets"] = [
            _taskset(run, place, run_args, split, temperature=run.evaluation.temperature)
            for split in run.env_settings.tested()
        ]
    return config


def _taskset(run: Run, place: Place, run_args: Config, split: str, temperature: float) -> Config:
    return {
        "name": f"{run.env}-{split}",
        "storage_type": "file",
        "path": str(place.tasks.absolute()),
        "split": split,
        "format": {"prompt_key": TASK_KEY},
        "default_workflow_type": WORKFLOW,
        "workflow_args": run_args,
        "rollout_args": {"temperature": temperature, "top_p": 1.0, "top_k": -1, "logprobs": 0},
        "data_selector": {"selector_type": "sequential"},  # audit 4.1
        **({"repeat_times": run.evaluation.episodes_per_task} if split != "train" else {}),
    }


def _explorer(run: Run, cluster: ClusterConfig | None) -> Config:
    """Section ``explorer``: its runners and rollout model, vLLM or without a ``cluster`` our server."""
    config: Config = {
        "runner_per_model": min(RUNNERS_PER_ENGINE, run.train.tasks_per_step) if cluster else RUNNERS,
        "max_timeout": TASK_SECONDS,
        "max_retry_times": 2,  # audit 0.1
        "concurrent_mode": "sequential",  # one call per task, which runs its rollouts concurrently
        "eval_interval": EVALUATE_EVERY,
        "eval_on_startup": cluster is not None,
        "rollout_model": {"engine_type": "tinker", "engine_num": 1, "seed": run.seed},
    }
    if cluster:
        config["rollout_model"] = {
            "engine_type": "vllm",
            "engine_num": cluster.engines,
            "tensor_parallel_size": cluster.tensor_parallel,
            "gpu_memory_utilization": cluster.sampling_memory,
            "dtype": planned_model(run).dtype,
            # Changed default: turns share a prefix. New weights clear the cache.
            "enable_prefix_caching": True,
            "enable_chunked_prefill": True,  # audit 4.1
            "enforce_eager": False,
            "seed": run.seed,  # released: 0 or 42 by method (audit 4.4)
        }
    return config


def _trainer(run: Run, cluster: ClusterConfig | None, place: Place) -> Config:
    """Section ``trainer``: verl, or without a ``cluster`` our server on a CPU (r3l.trinity.learner)."""
    shared = {"total_steps": run.train.steps, "grad_clip": run.train.grad_clip}
    if cluster is None:
        return {
            "trainer_type": "tinker",
            "save_interval": run.train.save_every,
            "fix_actor_microbatch_loss_scale": True,  # sums the losses of a step's samples, no mean
            **shared,
        }
    # An error now, not after both models are loaded.
    if cluster.sequence_parallel > 1 and place.attention != FLASH:
        raise ConfigError(
            f"configs/models/{run.model}.yaml plans sequence_parallel: {cluster.sequence_parallel}, which "
            "verl has for flash-attn only, and Trinity's environment has none: install it there (`make "
            "flash`), or plan sequence_parallel: 1, which needs more memory a GPU (`r3l doctor --tier "
            "paper` computes it)"
        )
    return {
        "trainer_type": "verl",
        "trainer_strategy": "fsdp2",  # changed default
        "save_interval": run.train.save_every,
        "max_checkpoints_to_keep": KEPT_CHECKPOINTS,
        "save_hf_checkpoint": "never" if run.lora.rank else "last",  # every checkpoint has the adapter
        "use_dynamic_bsz": True,  # audit 4.1
        "use_remove_padding": True,
        "balance_batch": True,
        "max_token_len_per_gpu": tokens_per_gpu(run, cluster),  # at least the longest dialog (audit B-32)
        "ulysses_sequence_parallel_size": cluster.sequence_parallel,
        "trainer_config": {"model": {"override_config": {"attn_implementation": place.attention}}},
        "fix_actor_microbatch_loss_scale": False,  # audit 0.4
        **shared,
    }
