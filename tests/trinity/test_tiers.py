"""Grids, settings and task sets of the tiers for Trinity, paper and rltf; needs no Trinity."""

from pathlib import Path

import pytest

from r3l.config import resolve, trains
from r3l.trinity.config import Place, trinity_config
from r3l.trinity.tasksets import write_tasksets
from r3l.workflow import plan

PLACE = Place(Path("runs"), Path("tasks"))
STEPS = {  # RLTF's environments: batches of 32 in one epoch
    "knights_knaves": 619,
    "binary_matrix": 619,
    "shortest_path": 619,
    "deepmath": 3207,
    "dapo": 502,
    "countdown": 150,
}


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


def evaluated(env, profile):
    run = resolve("paper", env, f"r3l@profile={profile}", 0)
    return trinity_config(run, PLACE)["buffer"]["explorer_input"]["eval_tasksets"]


def test_dapo_evaluates_further_sets_under_released_code():
    """The eval_tasksets of the release's folder dapo, in its order, without math-aime25 (audit 5.1)."""
    released = evaluated("dapo", "released_code")
    further = [f"{name}_test" for name in ("aime24", "amc23", "gsm8k", "math500", "minerva", "olympiadbench")]
    assert [one["split"] for one in released] == ["test", *further]
    assert {(one["rollout_args"]["temperature"], one["repeat_times"]) for one in released} == {(0.4, 1)}
    assert [one["name"] for one in evaluated("dapo", "paper")] == ["dapo-test"]
    for env in ("gsm8k", "math500"):  # their folders evaluate only their own set
        assert [one["split"] for one in evaluated(env, "released_code")] == ["test"]


def test_every_set_has_a_file_of_its_tasks(tmp_path):
    further = "env_settings.further_test_task_sets=[gsm8k/test, math500/test]"
    run = resolve("nano", "math", "grpo", 0, overrides=["train.steps=1", further])
    write_tasksets(run, tmp_path)
    written = {path.name: len(path.read_text().splitlines()) for path in tmp_path.iterdir()}
    sizes = {"train.jsonl": run.train.tasks_per_step, "test.jsonl": 200}
    assert written == sizes | {"gsm8k_test.jsonl": 1319, "math500_test.jsonl": 500}
