"""The tiers that Trinity runs, paper and rltf: their grids, settings and task sets; needs no Trinity."""

from pathlib import Path

import pytest

from r3l.config import build_method, environment_of, names, resolve, trains
from r3l.config.environment import EnvConfig
from r3l.config.files import load
from r3l.trinity.config import Place, trinity_config, write_tasksets
from r3l.workflow import plan

PLACE = Place(Path("runs"), Path("tasks"))
STEPS = {  # of RLTF's environments: batches of 32 in one epoch
    "knights_knaves": 619,
    "binary_matrix": 619,
    "shortest_path": 619,
    "deepmath": 3207,
    "dapo": 502,
    "countdown": 150,
}


@pytest.mark.parametrize(
    ("tier", "table", "runs"),
    [
        ("paper", "table1", 4 * 4 * 15 * 3),  # environments, models, methods with zero-shot, seeds
        ("paper", "table2", 4 * 1 * 11 * 3),
        ("paper", "alpha", 4 * 1 * 5 * 3),
        ("paper", "table_rltf", 1 * 4 * 14 * 3),  # of its environments the tier has DAPO; none of its rows with a judge
        ("paper", "llama", 4 * 1 * 7 * 3),
        ("rltf", "table_rltf", len(STEPS) * len(plan.tables()["table_rltf"].methods) * 3),
    ],
)
def test_the_runs_of_a_table(tier, table, runs):
    planned = plan.runs(plan.load(plan.workflow_content(tier)), plan.tables()[table])
    assert len(planned) == runs and all(path.startswith(f"{tier}/") for path in planned)


@pytest.mark.parametrize("env", STEPS)
def test_every_method_has_the_settings_of_rltfs_scripts(env):
    for method in plan.tables()["table_rltf"].methods:
        run = resolve("rltf", env, method, 0)
        assert (run.model, run.engine, run.train.steps) == ("llama-3.1-8b", "trinity", STEPS[env])
        assert (run.train.lr, run.train.betas, run.train.tasks_per_step) == (2e-5, (0.9, 0.95), 32)
        assert (run.sampling.max_tokens, run.sampling.temperature) == (8096, 1.0)
        assert (run.evaluation.episodes_per_task, run.env_settings.max_turns) == (4, 1)
        assert run.env_settings.options == {"format_penalty": 0.1, "turns": "whole"}
        if trains(run):
            config = trinity_config(run, PLACE)
            tested = [one["split"] for one in config["buffer"]["explorer_input"]["eval_tasksets"]]
            further = ["math500_test", "aime24_test"] if env in ("dapo", "deepmath") else []
            assert tested == ["test", *further] and config["algorithm"]["optimizer"]["lr"] == 2e-5


@pytest.mark.parametrize(("env", "start"), [("dapo", 0.0), ("deepmath", 0.0), ("knights_knaves", None)])
def test_self_distillation_starts_as_in_the_released_scripts(env, start):
    settings = resolve("rltf", env, "rltf_sd", 0).method_settings
    assert (settings["sd_coef_start"], settings["sd_coef"]) == (start, 0.1)


@pytest.mark.parametrize("method", ["rltf_grpo", "rltf_sd", "rltf_fm", "rltf_sft"])
def test_rltfs_methods_play_eight_first_attempts_and_a_second_after_each_failure(method):
    run = resolve("rltf", "knights_knaves", method, 0)
    assert run.method_settings["group_size"] == 8 and run.method_settings["gamma"] == 0.1
    assert build_method(run).max_rollouts == 16


def evaluated(env, profile):
    run = resolve("paper", env, f"r3l@profile={profile}", 0)
    return trinity_config(run, PLACE)["buffer"]["explorer_input"]["eval_tasksets"]


def test_dapo_evaluates_further_sets_under_released_code():
    """The release's eval_tasksets of its folder dapo, in its order, but for math-aime25 (audit 5.1)."""
    released = evaluated("dapo", "released_code")
    further = [f"{name}_test" for name in ("aime24", "amc23", "gsm8k", "math500", "minerva", "olympiadbench")]
    assert [one["split"] for one in released] == ["test", *further]
    assert {(one["rollout_args"]["temperature"], one["repeat_times"]) for one in released} == {(0.4, 1)}
    assert [one["name"] for one in evaluated("dapo", "paper")] == ["dapo-test"]
    for env in ("gsm8k", "math500"):  # their folders evaluate their own set alone
        assert [one["split"] for one in evaluated(env, "released_code")] == ["test"]


@pytest.mark.parametrize("env", names("envs"))
def test_task_sets_that_a_profile_evaluates_are_known_and_no_part_of_the_fingerprint(env):
    config = load("envs", env, EnvConfig)
    for task_sets in config.further_test_task_sets.values():
        assert all(environment_of(env).task_set_hash(name) for name in task_sets)
    tier, further = next(iter(config.tiers)), "env_settings.further_test_task_sets=[x]"
    run, more = (resolve(tier, env, "grpo", 0, overrides=changes) for changes in ([], [further]))
    assert more.env_settings.further_test_task_sets == ["x"] and run.fingerprint() == more.fingerprint()


def test_every_set_has_a_file_of_its_tasks(tmp_path):
    further = "env_settings.further_test_task_sets=[gsm8k/test, math500/test]"
    run = resolve("nano", "math", "grpo", 0, overrides=["train.steps=1", further])
    write_tasksets(run, tmp_path)
    written = {path.name: len(path.read_text().splitlines()) for path in tmp_path.iterdir()}
    sizes = {"train.jsonl": run.train.tasks_per_step, "test.jsonl": 200}
    assert written == sizes | {"gsm8k_test.jsonl": 1319, "math500_test.jsonl": 500}
