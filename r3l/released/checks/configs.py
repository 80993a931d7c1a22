"""Every key of the R3L release's YAML files: ours has the same value, says it elsewhere, or differs for a reason.

Ours is the configuration that `r3l trinity-config` writes for the file's method, environment and model under profile
``released_code``, with the settings of the method.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from r3l.config import Run, load, names, resolve
from r3l.config.model import ModelConfig
from r3l.files.paths import STORED
from r3l.files.yaml_files import read_yaml
from r3l.original.clones import R3L
from r3l.released.check import Case, Reading, Value
from r3l.released.ours import PROFILE
from r3l.released.run_files import FOLDER, RunFile, leaves, run_files
from r3l.trinity.config import Place, trinity_config

KL_BY_DEFAULT = {  # audit 0.8: (estimator, coefficient) of an algorithm where a file names none
    "opmd": ("k2", 0.001),
    "opmd_reweight_adv": ("k2", 0.001),
    "multi_step_grpo": ("k2", 0.001),
    "grpo": ("k2", 0.001),
}
EVALUATED = "buffer.explorer_input.eval_tasksets"
SAID_BY_SETTINGS = {  # released key: setting of the method
    "algorithm.policy_loss_fn_args.clip_range_low": "clip_low",
    "algorithm.policy_loss_fn_args.clip_range_high": "clip_high",
    "algorithm.policy_loss_fn_args.clip_range": "clip_high",
    "algorithm.policy_loss_fn_args.gamma": "shaping_gamma",
    "buffer.explorer_input.taskset.workflow_args.max_response_length": "overlong_max",
    "buffer.explorer_input.taskset.workflow_args.cache_length": "overlong_cache",
}
SAID_ELSEWHERE = {  # released key: key of our configuration
    "trainer.trainer_config.trainer.max_actor_ckpt_to_keep": "trainer.max_checkpoints_to_keep",
    "trainer.trainer_config.trainer.max_critic_ckpt_to_keep": "trainer.max_checkpoints_to_keep",
    "explorer.rollout_model.enable_thinking": "model.enable_thinking",
}
NAMES_THE_METHOD = ("algorithm_type", "policy_loss_fn", "sample_strategy")


@dataclass(frozen=True)
class Reason:
    """Why ours differs in keys that end so: an id of docs/audit.md. ``files``: a pattern; values: only where these."""

    key: str
    audit: str
    files: str = ""
    ours: Value = None
    theirs: Value = None

    def holds(self, case: Case, ours: Value, theirs: Value) -> bool:
        """Whether it is about this difference."""
        values = ((self.ours, ours), (self.theirs, theirs))
        right = all(stated is None or stated == value for stated, value in values)
        return right and case["key"].endswith(self.key) and bool(re.search(self.files, case["file"]))


REASONS = (
    Reason("rollout_model.seed", "4.4", "/(step_)?(dapo|gspo)_", 0, 42),
    Reason("max_token_len_per_gpu", "B-32", "", 20480),
    Reason("max_response_tokens", "4.3", "/dapo/step_", 4096, 8192),
    Reason("operators.0.name", "0.3", "", None, "OPMD_filter"),
    Reason("replay_buffer.enable", "0.3", "", False, True),
    Reason("replay_buffer.priority_fn", "0.3"),
    Reason("enable_prefix_caching", "4.5", "", True, False),
    Reason("max_actor_ckpt_to_keep", "4.5", "", 2, 1),
    Reason("max_critic_ckpt_to_keep", "4.5", "", 2, 1),
    Reason("sync_style", "4.5", "", "fixed"),
    Reason("runner_per_model", "4.5", "/webshop/grpo_reweight_adv", 32, 16),
    Reason("default_workflow_type", "B-4", "w_o_credit_3B", "r3l_no_credit", "r3l"),
    Reason("algorithm_type", "B-4", "w_o_credit_3B", "r3l_no_credit", "r3l"),
    Reason("default_workflow_type", "4.5", "_qwen_"),
    Reason("*", "B-38", "/countdown/"),
)
NAMES = re.compile(  # of projects, runs, files and data: ours has its own (audit 4.5)
    r"project|name|checkpoint_root_dir|monitor\.monitor_type|.*experience_buffer\.(name|path)"
    rf"|(buffer\.explorer_input\.taskset|{EVALUATED}\.\d+)\.(name|path|subset_name|split|format\.\w+)"
)
ABSENT = "no such key"


def read(clone: Path) -> Iterator[tuple[Case, Value, Value]]:
    """(file and key, ours, released) of every key; one case for a whole file that this project has no run for."""
    for file in run_files(clone):
        if file.env is None or file.method is None:
            yield {"file": file.path, "key": "*"}, "no such run", "a file"
            continue
        run = _run(file.env, file.method, file.hub)
        own = dict(leaves(_config(run)))
        keys = dict(leaves(file.content)) | _kl(file)
        for key, theirs in keys.items():
            case = {"file": file.path, "key": key}
            if key.endswith("default_workflow_type"):
                yield case, file.method, f"{file.named_method}{' with boxed answers' * file.boxed}"
            elif key.endswith(NAMES_THE_METHOD):
                yield case, file.method, file.named_method
            else:
                yield case, _ours(key, run, own), theirs


def explain(case: Case, ours: Value, theirs: Value) -> str:
    """Names of projects, runs, files and data are ours; else the reason that holds."""
    key = case["key"]
    if NAMES.fullmatch(key) or (key.startswith(f"{EVALUATED}.") and ours == ABSENT):
        return "4.5"
    return next((reason.audit for reason in REASONS if reason.holds(case, ours, theirs)), "")


def _kl(file: RunFile) -> dict[str, Value]:
    """The KL that a file leaves to its algorithm."""
    algorithm = file.content["algorithm"]
    if "kl_loss_fn" in algorithm:
        return {}
    estimator, coefficient = KL_BY_DEFAULT.get(algorithm["algorithm_type"], ("none", 0.0))
    return {"algorithm.kl_loss_fn": estimator, "algorithm.kl_loss_fn_args.kl_coef": coefficient}


def _ours(key: str, run: Run, config: dict[str, Value]) -> Value:
    settings = run.method_settings
    if key in SAID_BY_SETTINGS:
        return settings.get(SAID_BY_SETTINGS[key], ABSENT)
    if key in COMPUTED:
        return COMPUTED[key](run, settings)
    return config.get(SAID_ELSEWHERE.get(key, key), ABSENT)


def _epochs(run: Run, _: dict[str, Value]) -> float:
    """20 where our number of steps is that of twenty epochs, cut to whole batches as the release cuts them."""
    tasks = _train_tasks()[run.env]
    whole = 20 * tasks // run.train.tasks_per_step == run.train.steps
    return 20 if whole else round(run.train.steps * run.train.tasks_per_step / tasks, 2)


COMPUTED: dict[str, Callable[[Run, dict[str, Any]], Value]] = {
    "algorithm.kl_loss_fn": lambda run, settings: settings["kl"],
    "algorithm.kl_loss_fn_args.kl_coef": lambda run, settings: settings["kl_coef"],
    "algorithm.policy_loss_fn_args.loss_agg_mode": lambda run, settings: {"traj_mean": "seq-mean-token-mean"}.get(
        settings["loss_agg"], settings["loss_agg"]
    ),
    "buffer.total_epochs": _epochs,
    "buffer.explorer_input.taskset.workflow_args.enable_overlong_penalty": lambda run, settings: (
        "overlong_max" in settings
    ),
    "buffer.explorer_input.taskset.workflow_args.penalty_factor": lambda run, settings: 1.0,  # r3l.baselines.dapo
    "explorer.rollout_model.enable_history": lambda run, settings: run.samples == "turn",
}


@cache
def _train_tasks() -> dict[str, int]:
    """Training tasks of an environment: the release's where it lists them, else our frozen sets'."""
    listed = read_yaml(STORED / "released" / "hyperparameters.yaml")["environments"]
    known = {env: values["train_tasks"] for env, values in listed.items() if "train_tasks" in values}
    return known | {"dapo": 16059, "gsm8k": 7473, "math500": 7498}


@cache
def _models() -> dict[str, str]:
    configs = [load("models", name, ModelConfig) for name in names("models")]
    return {config.hub: config.model for config in configs}


def _run(env: str, method: str, hub: str) -> Run:
    return resolve("paper", env, f"{method}@profile={PROFILE}", 0, _models()[hub])


def _config(run: Run) -> Any:
    """Less the runs inside it, which are ours alone."""
    return _without_runs(trinity_config(run, Place(Path("runs"), Path("tasks"))))


def _without_runs(content: Any) -> Any:
    if isinstance(content, dict):
        return {key: _without_runs(value) for key, value in content.items() if key != "run"}
    return [_without_runs(item) for item in content] if isinstance(content, list) else content


CHECKS = (Reading("configs", "YAML files", R3L, FOLDER, read, explain),)
