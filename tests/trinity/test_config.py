"""Configurations for Trinity compared with the release's 249 files; needs no Trinity.

The audit's table of the released hyperparameters is results/stored/released/hyperparameters.yaml.
DIFFERENCES lists every difference with its reason.
"""

from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from r3l.config import build_method, resolve
from r3l.core.errors import ConfigError
from r3l.files.paths import ROOT
from r3l.trinity.config import Place, algorithm_name, trinity_config
from r3l.trinity.sizes import experiences_per_step

RELEASED = yaml.safe_load((ROOT / "results/stored/released/hyperparameters.yaml").read_text())
PLACE = Place(Path("runs"), Path("tasks"))
ENVS = list(RELEASED["environments"])
MODELS = list(RELEASED["models"])
OF_THE_METHOD = ("kl", "kl_coef", "opmd_tau", "clip_low", "clip_high", "overlong_max", "overlong_cache")
NOT_A_VALUE = ("released", "files", "train_tasks", "test_tasks", "methods", "environments", "models")
MATHEMATICS = {"dapo": 16059, "gsm8k": 7473, "math500": 7498}  # training problems of our frozen sets

# key: (profile: paper, released_code or both, why ours differs)
DIFFERENCES = {
    "train_batch_size": ("both", "a complete padded step; the release cuts 96 x N samples across groups"),
    "sync_style": ("both", "a step of the explorer is one of the trainer, so both may wait for each other"),
    "enable_prefix_caching": ("both", "a dialog's turns share their prefix; new weights clear the cache"),
    "enable_prompt_truncation": (
        "both",
        "a dialog that no longer fits ends and is counted; nothing is cut off its head",
    ),
    "max_token_len_per_gpu": ("both", "at least the longest dialog, as verl asserts; too few in the release"),
    "max_response_tokens": (
        "both",
        "a model sets one length for all environments; the release gives Qwen3 8192 on DAPO",
    ),
    "runner_per_model": ("both", "one number; the release has 16 in three files, as WebShop filled memory"),
    "save_interval": ("both", "a time limit costs half an hour at 1.5B, not eight hours"),
    "max_checkpoints_to_keep": ("both", "after an error the newest may be of a step that was not trained"),
    "n": ("paper", "one N for all methods; the release has 1 or 8 by method, environment and model"),
    "kl": ("paper", "the paper's objective has none"),
    "kl_coef": ("paper", "as kl"),
    "opmd_tau": ("paper", "the paper's objective has no such factor"),
    "lr_warmup_steps": ("paper", "none for all methods; the release warms up DAPO alone"),
}


def cells(profile):
    for method in RELEASED["methods"]:
        for env in ENVS:
            for model in MODELS:
                if not any(applies(entry, method, env, model) for entry in RELEASED["absent"]):
                    run = resolve("paper", env, f"{method}@profile={profile}", 0, model)
                    yield (method, env, model), run, trinity_config(run, PLACE)


def released(method, env, model):
    values = RELEASED["everything"] | RELEASED["models"][model]
    values |= RELEASED["environments"][env] | RELEASED["methods"][method]
    for exception in RELEASED["exceptions"]:
        if applies(exception, method, env, model):
            values |= exception
    return {key: value for key, value in values.items() if key not in NOT_A_VALUE}


def applies(entry, method, env, model):
    named = {"methods": method, "environments": env, "models": model}
    return all(value in entry[key] for key, value in named.items() if key in entry)


def leaves(content, prefix=""):
    for key, value in content.items():
        if isinstance(value, dict) and value and key != "run":
            yield from leaves(value, f"{prefix}{key}.")
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            yield from leaves(value[0], f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def ours(run, config):
    """Values of the generated file under the released names; keys that several parts share must agree."""
    values = {}
    for path, value in leaves(config):
        values.setdefault(path.rpartition(".")[2], value)
    test = config["buffer"]["explorer_input"]["eval_tasksets"][0]
    train = config["buffer"]["explorer_input"]["taskset"]
    assert train["rollout_args"]["temperature"] == config["model"]["temperature"]
    own = config["algorithm"]["policy_loss_fn_args"]["run"]
    assert own == train["workflow_args"]["run"] == config["algorithm"]["advantage_fn_args"]["run"]
    settings = build_method(run).describe()
    return (
        values
        | {key: settings.get(key) for key in OF_THE_METHOD}
        | {
            "n": config["algorithm"]["repeat_times"],
            "eval_temperature": test["rollout_args"]["temperature"],
            "eval_repeat": test["repeat_times"],
            "max_turns": own["env_settings"]["max_turns"],
            "total_epochs": 20 if _steps_are_epochs(run, 20) else run.train.steps,
        }
    )


def _steps_are_epochs(run, epochs):
    tasks = RELEASED["environments"][run.env].get("train_tasks") or MATHEMATICS[run.env]
    return run.train.steps == epochs * tasks // run.train.tasks_per_step


@pytest.mark.parametrize("profile", ["paper", "released_code"])
def test_every_difference_from_the_released_files_is_known_and_explained(profile):
    different = defaultdict(list)
    for cell, run, config in cells(profile):
        mine = ours(run, config)
        for key, value in released(*cell).items():
            if mine[key] != value:
                different[key].append((*cell, mine[key], value))
    expected = {key for key, (where, _) in DIFFERENCES.items() if where in ("both", profile)}
    assert set(different) == expected, {key: different[key][:3] for key in set(different) ^ expected}


def test_learning_rate_batch_lengths_gpus_and_clips_of_the_paper_are_the_released_ones():
    """A few values by hand, independent of both the table and the generator."""
    config = trinity_config(resolve("paper", "alfworld", "grpo", 0, "qwen2.5-7b"), PLACE)
    assert config["algorithm"]["optimizer"]["lr"] == 1e-6
    assert config["buffer"]["batch_size"] == 96 and config["buffer"]["total_steps"] == 740
    assert config["model"]["max_model_len"] == 20480 and config["model"]["max_prompt_tokens"] == 19968
    assert config["cluster"] == {"node_num": 1, "gpu_per_node": 8}
    assert config["explorer"]["rollout_model"]["engine_num"] == 4
    assert config["trainer"]["ulysses_sequence_parallel_size"] == 4
    settings = config["algorithm"]["policy_loss_fn_args"]["run"]["method_settings"]
    assert (settings["clip_low"], settings["clip_high"], settings["kl"]) == (0.2, 0.2, "none")


@pytest.mark.parametrize(
    ("method", "model", "env", "experiences"),
    [
        ("grpo", "qwen2.5-1.5b", "alfworld", 96 * 8),
        ("r3l", "qwen2.5-1.5b", "alfworld", 96 * (4 + 4 + 4 + 4)),  # bases, retries, reflections, guided
        ("dapo", "qwen2.5-1.5b", "alfworld", 96 * 8),  # tasks that the method drops do not train
        ("reflect_grpo", "qwen2.5-1.5b", "alfworld", 96 * (4 + 4 + 4)),
        ("rltf_sd", "qwen2.5-1.5b", "alfworld", 96 * 24),
        ("r3l_no_reflection", "qwen2.5-1.5b", "alfworld", 96 * 8),
        ("grpo", "qwen3-4b", "webshop", 96 * 8 * 15),  # a turn is an experience
    ],
)
def test_the_trainer_waits_for_as_many_experiences_as_a_step_can_yield(method, model, env, experiences):
    config = trinity_config(resolve("paper", env, method, 0, model), PLACE)
    assert config["buffer"]["train_batch_size"] == experiences
    assert config["buffer"]["trainer_input"]["experience_buffer"]["capacity"] >= experiences


def test_a_step_divides_evenly_among_trainer_gpus():
    run = resolve("paper", "alfworld", "raft", 0, "llama-3.2-3b", ["train.tasks_per_step=3"])
    run = run.model_copy(update={"method_settings": {**run.method_settings, "group_size": 5}})
    assert experiences_per_step(run, build_method(run), 4) == 16  # 3 x 5 on four GPUs


def test_variants_keep_their_settings_and_their_methods_type():
    run = resolve("paper", "alfworld", "r3l@alpha=5,profile=released_code", 3, "qwen2.5-1.5b")
    config = trinity_config(run, PLACE)
    assert config["algorithm"]["algorithm_type"] == "r3l.trinity.plugins.R3lWithReference"  # k2 at 0.001
    assert config["algorithm"]["policy_loss_fn_args"]["run"]["method_settings"]["alpha"] == 5
    assert config["name"] == "qwen2.5-1.5b-r3l_alpha_5_profile_released_code-seed3"
    assert config["explorer"]["rollout_model"]["seed"] == 3
    assert algorithm_name("reflect_grpo") == "r3l.trinity.plugins.ReflectGrpo"


@pytest.mark.parametrize(
    ("teacher", "rank", "backend", "refusal"),
    [
        ("live", 0, "verl", None),
        ("live", 0, "tinker", None),
        ("frozen", 16, "verl", None),  # a request without the adapter
        (
            "frozen",
            0,
            "verl",
            "needs the base checkpoint, whose weights .* replaces at each sync unless an adapter",
        ),
        (
            "frozen",
            16,
            "tinker",
            "needs the base checkpoint, which Trinity-RFT's tinker backend does not score with",
        ),
        (
            "average",
            16,
            "verl",
            "needs an average of the weights, which Trinity-RFT's rollout model does not hold",
        ),
        (
            "average",
            0,
            "tinker",
            "needs an average of the weights, which Trinity-RFT's rollout model does not hold",
        ),
    ],
)
def test_teachers_whose_weights_trinity_lacks_are_refused_and_say_what_to_set(
    teacher, rank, backend, refusal
):
    run = resolve("paper", "alfworld", f"sdar@teacher={teacher}", 0, overrides=[f"lora.rank={rank}"])
    place = replace(PLACE, backend=backend)
    if refusal is None:
        assert trinity_config(run, place)["mode"] == "both"
    else:
        with pytest.raises(ConfigError, match=refusal) as refused:
            trinity_config(run, place)
        assert f"teacher: '{teacher}'" in str(refused.value)
        assert str(refused.value).endswith("set method_settings.teacher=live, or use --engine local")


def test_gpus_that_do_not_suffice_and_models_without_plan_are_errors_that_say_what_to_do():
    run = resolve("paper", "alfworld", "r3l", 0, "qwen3-4b")
    with pytest.raises(ConfigError, match="1 nodes of 8 GPUs leave 0 for training"):
        trinity_config(run, Place(Path("r"), Path("t"), nodes=1))
    with pytest.raises(ConfigError, match="planned are llama-3.1-8b, llama-3.2-3b, qwen2.5-1.5b"):
        trinity_config(resolve("paper", "alfworld", "r3l", 0, "Qwen/Other"), PLACE)
    with pytest.raises(ConfigError, match="trains nothing"):
        trinity_config(resolve("paper", "alfworld", "zero_shot", 0), PLACE)
