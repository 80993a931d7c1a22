"""Every key of the R3L release's YAML files: ours has the same value, says it elsewhere, or differs for a reason.

Ours is the Trinity configuration written for the file's method, environment and model under profile ``released_code``,
with the settings of the method.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import pytest
import yaml

from r3l.config import load, names, resolve
from r3l.config.model import ModelConfig
from r3l.files.paths import STORED
from r3l.original.clones import R3L
from r3l.trinity.config import Place, trinity_config
from tests.released.release import PROFILE, compare, git, source

FOLDER = "examples/R3L"
ENVIRONMENTS = {name: name for name in ("alfworld", "webshop", "scienceworld", "dapo", "gsm8k")} | {"math": "math500"}
SAME_NAME = {name: name for name in ("opmd", "grpo", "gspo", "dapo", "reflect_grpo", "critique_grpo")}
METHODS = SAME_NAME | {  # by the name of a file, and of a step-level one after its "step_"
    "opmd_R3L": "r3l",
    "opmd_R3L_w_o_credit": "r3l_no_credit",
    "opmd_R3L_w_o_reweight": "r3l_no_amplification",
    "opmd_reweight_adv": "r3l_no_reflection",
    "grpo_reweight_adv": "grpo_amplified",
    "RAFT": "raft",
}
BY_ALGORITHM = {  # a workflow that several algorithms share: the algorithm (or policy loss) of each method
    "R3L": {"opmd_reweight_adv": "r3l", "opmd": "r3l_no_amplification", "step_opmd_reweight_adv": "r3l"},
    "opmd_baseline": {"opmd": "opmd", "opmd_reweight_adv": "r3l_no_reflection"},
    "grpo_baseline": {"grpo": "grpo", "grpo_reweight_adv": "grpo_amplified", "gspo": "gspo"},
}
ONE_METHOD = SAME_NAME | {"raft_baseline": "raft", "raft": "raft", "R3L_w_o_credit": "r3l_no_credit"}
EVALUATED = "buffer.explorer_input.eval_tasksets"
WORKFLOW_ARGS = "buffer.explorer_input.taskset.workflow_args"
SAID_BY_SETTINGS = {  # released key: setting of the method
    "algorithm.policy_loss_fn_args.clip_range_low": "clip_low",
    "algorithm.policy_loss_fn_args.clip_range_high": "clip_high",
    "algorithm.policy_loss_fn_args.clip_range": "clip_high",
    "algorithm.policy_loss_fn_args.gamma": "shaping_gamma",
    f"{WORKFLOW_ARGS}.max_response_length": "overlong_max",
    f"{WORKFLOW_ARGS}.cache_length": "overlong_cache",
}
SAID_ELSEWHERE = {  # released key: key of our configuration
    "trainer.trainer_config.trainer.max_actor_ckpt_to_keep": "trainer.max_checkpoints_to_keep",
    "trainer.trainer_config.trainer.max_critic_ckpt_to_keep": "trainer.max_checkpoints_to_keep",
    "explorer.rollout_model.enable_thinking": "model.enable_thinking",
}
COMPUTED = {
    "algorithm.kl_loss_fn": lambda run, settings: settings["kl"],
    "algorithm.kl_loss_fn_args.kl_coef": lambda run, settings: settings["kl_coef"],
    "algorithm.policy_loss_fn_args.loss_agg_mode": lambda run, settings: {"traj_mean": "seq-mean-token-mean"}.get(
        settings["loss_agg"], settings["loss_agg"]
    ),
    "buffer.total_epochs": lambda run, settings: epochs(run),
    f"{WORKFLOW_ARGS}.enable_overlong_penalty": lambda run, settings: "overlong_max" in settings,
    f"{WORKFLOW_ARGS}.penalty_factor": lambda run, settings: 1.0,  # r3l.baselines.dapo
    "explorer.rollout_model.enable_history": lambda run, settings: run.samples == "turn",
}
ABSENT = "no such key"


class Reason(NamedTuple):
    """Why ours differs in keys that end so: an id of docs/audit.md. ``files``: a pattern; values: only where these."""

    key: str
    audit: str
    files: str = ""
    ours: object = None
    theirs: object = None

    def holds(self, case, ours, theirs):
        right = all(stated in (None, value) for stated, value in ((self.ours, ours), (self.theirs, theirs)))
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
OUR_NAMES = re.compile(  # of projects, runs, files and data: ours has its own (audit 4.5)
    r"project|name|checkpoint_root_dir|monitor\.monitor_type|.*experience_buffer\.(name|path)"
    rf"|(buffer\.explorer_input\.taskset|{EVALUATED}\.\d+)\.(name|path|subset_name|split|format\.\w+)"
)
FILE = re.compile(r"(?P<step>step_)?(?P<method>\w+?)(?P<boxed>_qwen)?_(?P<size>[\d.]+B)(?:_experiment)?$")
VARIABLE = re.compile(r"\$\{oc\.env:\w+,(.*)\}")


def plain(value):
    """A value as Trinity reads it: a variable's default, and ``1e-6``, which YAML takes for text, as a number."""
    if not isinstance(value, str):
        return value
    if match := VARIABLE.match(value):
        return match[1]
    try:
        return float(value)
    except ValueError:
        return value


def leaves(content, prefix=""):
    """Every key, dotted, with its value; items of lists by number."""
    if isinstance(content, dict | list):
        for key, value in content.items() if isinstance(content, dict) else enumerate(content):
            if key != "run":  # ours alone
                yield from leaves(value, f"{prefix}{key}.")
    else:
        yield prefix.removesuffix("."), plain(content)


def method_that_runs(content):
    """Our method by what a file runs: its workflow and algorithm, not its name."""
    workflow = content["buffer"]["explorer_input"]["default_workflow_type"].removesuffix("_workflow")
    algorithm = content["algorithm"]
    credit = "_w_o_credit" if workflow.endswith("_w_o_credit") else ""
    kind = workflow.removeprefix("step_").removesuffix(credit)
    for env in ("qwen_math", *ENVIRONMENTS, "countdown"):
        kind = kind.removesuffix(f"_{env}")
    known = BY_ALGORITHM.get(f"{kind}{credit}", {})
    name = known.get("gspo" if algorithm.get("policy_loss_fn") == "gspo" else algorithm["algorithm_type"])
    return name or ONE_METHOD.get(f"{kind}{credit}", f"{workflow} with {algorithm['algorithm_type']}")


def keys_of(content):
    """With the KL that a file leaves to its algorithm (audit 0.8)."""
    algorithm = content["algorithm"]
    keys = dict(leaves(content))
    if "kl_loss_fn" not in algorithm:
        has_kl = algorithm["algorithm_type"] in ("opmd", "opmd_reweight_adv", "multi_step_grpo", "grpo")
        keys["algorithm.kl_loss_fn"] = "k2" if has_kl else "none"
        keys["algorithm.kl_loss_fn_args.kl_coef"] = 0.001 if has_kl else 0.0
    return keys


@cache
def train_tasks():
    """Training tasks of an environment: the release's where the audit lists them, else our frozen sets'."""
    listed = yaml.safe_load((STORED / "released" / "hyperparameters.yaml").read_text())["environments"]
    known = {env: values["train_tasks"] for env, values in listed.items() if "train_tasks" in values}
    return known | {"dapo": 16059, "gsm8k": 7473, "math500": 7498}


def epochs(run):
    """20 where our number of steps is that of twenty epochs, cut to whole batches as the release cuts them."""
    tasks = train_tasks()[run.env]
    if 20 * tasks // run.train.tasks_per_step == run.train.steps:
        return 20
    return round(run.train.steps * run.train.tasks_per_step / tasks, 2)


@cache
def models():
    return {config.hub: config.model for config in (load("models", name, ModelConfig) for name in names("models"))}


def values_of(path, content):
    """(file and key, ours, released) of every key; one case for a whole file that this project has no run for."""
    place, match = PurePosixPath(path), FILE.match(PurePosixPath(path).stem)
    env, method = ENVIRONMENTS.get(place.parent.name), METHODS.get(match["method"]) if match else None
    if env is None or method is None:
        yield {"file": path, "key": "*"}, "no such run", "a file"
        return
    run = resolve("paper", env, f"{method}@profile={PROFILE}", 0, models()[plain(content["model"]["model_path"])])
    config = dict(leaves(trinity_config(run, Place(Path("runs"), Path("tasks")))))
    runs, settings = method_that_runs(content), run.method_settings
    boxed = "_qwen_math_" in content["buffer"]["explorer_input"]["default_workflow_type"]
    for key, theirs in keys_of(content).items():
        case = {"file": path, "key": key}
        if key.endswith("default_workflow_type"):
            yield case, method, f"{runs}{' with boxed answers' * boxed}"
        elif key.endswith(("algorithm_type", "policy_loss_fn", "sample_strategy")):
            yield case, method, runs
        elif key in SAID_BY_SETTINGS:
            yield case, settings.get(SAID_BY_SETTINGS[key], ABSENT), theirs
        elif key in COMPUTED:
            yield case, COMPUTED[key](run, settings), theirs
        else:
            yield case, config.get(SAID_ELSEWHERE.get(key, key), ABSENT), theirs


def reason(case, ours, theirs):
    """Names of projects, runs, files and data are ours; else the reason that holds."""
    key = case["key"]
    if OUR_NAMES.fullmatch(key) or (key.startswith(f"{EVALUATED}.") and ours == ABSENT):
        return "4.5"
    return next((known.audit for known in REASONS if known.holds(case, ours, theirs)), "")


def differences(path, content):
    """Asserts that each has a reason."""
    values = {(case["file"], case["key"]): (ours, theirs) for case, ours, theirs in values_of(path, content)}
    cases = [{"file": file, "key": key} for file, key in values]

    def side(number):
        return lambda case: values[case["file"], case["key"]][number]

    return compare(cases, side(0), side(1), reason)


@pytest.mark.released
@pytest.mark.parametrize("folder", ["alfworld", "webshop", "scienceworld", "dapo", "gsm8k", "math", "countdown"])
def test_yaml_files(folder):
    paths = git(R3L, "ls-tree", "-r", "--name-only", R3L.commits[0], f"{FOLDER}/{folder}/").split()
    files = [path for path in paths if path.endswith(".yaml")]
    assert len(files) > 10
    for path in files:
        differences(path, yaml.safe_load(source(R3L, path)))
