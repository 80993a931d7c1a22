"""RLTF's own settings as a tier: every task and method resolves to them, and has a Trinity configuration."""

from pathlib import Path

import pytest

from r3l.config import build_method, resolve, trains
from r3l.trinity.config import Place, trinity_config
from r3l.workflow import plan

PLACE = Place(Path("runs"), Path("tasks"))
CONFIG, TABLE = plan.load(plan.workflow_content("rltf")), plan.tables()["table_rltf"]
STEPS = {  # batches of 32 in one epoch
    "knights_knaves": 619,
    "binary_matrix": 619,
    "shortest_path": 619,
    "deepmath": 3207,
    "dapo": 502,
    "countdown": 150,
}


def test_the_grid_has_rltfs_tasks_in_every_row_of_its_table():
    assert CONFIG.envs == [env for env in STEPS if env != "countdown"]
    assert set(CONFIG.columns(TABLE)) == set(STEPS)
    assert len(plan.runs(CONFIG, TABLE)) == len(STEPS) * len(TABLE.methods) * 3


@pytest.mark.parametrize("method", TABLE.methods)
@pytest.mark.parametrize("env", STEPS)
def test_every_task_and_method_has_the_settings_of_the_released_scripts(env, method):
    run = resolve("rltf", env, method, 0)
    assert (run.model, run.engine, run.train.steps) == ("llama-3.1-8b", "trinity", STEPS[env])
    assert (run.train.lr, run.train.betas, run.train.tasks_per_step) == (2e-5, (0.9, 0.95), 32)
    assert (run.sampling.max_tokens, run.sampling.temperature, run.evaluation.episodes_per_task) == (8096, 1.0, 4)
    assert run.env_settings.max_turns == 1
    assert run.env_settings.options == {"format_penalty": 0.1, "turns": "whole"}
    if trains(run):
        config = trinity_config(run, PLACE)
        tested = [one["split"] for one in config["buffer"]["explorer_input"]["eval_tasksets"]]
        further = ["math500_test", "aime24_test"] if env in ("dapo", "deepmath") else []
        assert tested == ["test", *further]
        assert config["algorithm"]["optimizer"]["lr"] == 2e-5


@pytest.mark.parametrize(("env", "start"), [("dapo", 0.0), ("deepmath", 0.0), ("knights_knaves", None)])
def test_self_distillation_starts_as_in_the_released_scripts(env, start):
    settings = resolve("rltf", env, "rltf_sd", 0).method_settings
    assert (settings["sd_coef_start"], settings["sd_coef"]) == (start, 0.1)


@pytest.mark.parametrize("method", ["rltf_grpo", "rltf_sd", "rltf_fm", "rltf_sft"])
def test_rltfs_methods_play_eight_first_attempts_and_a_second_after_each_failure(method):
    run = resolve("rltf", "knights_knaves", method, 0)
    rltf = build_method(run)
    assert (run.method_settings["group_size"], rltf.max_rollouts, run.method_settings["gamma"]) == (8, 16, 0.1)
