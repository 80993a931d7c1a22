"""What DAPO's runs evaluate on the way under `released_code`: seven of the release's eight sets; needs no Trinity."""

from pathlib import Path

import pytest

from r3l.config import environment_of, names, resolve
from r3l.config.environment import EnvConfig
from r3l.config.files import load
from r3l.trinity.config import Place, trinity_config
from r3l.trinity.tasksets import write_tasksets

PLACE = Place(Path("runs"), Path("tasks"))
# names of the release's eval_tasksets (its folder dapo), in its order: ours; all but math-aime25 (audit 5.1)
SETS = {
    "dapo-eval": "dapo-test",
    "math-aime24": "dapo-aime24_test",
    "math-amc23": "dapo-amc23_test",
    "math-gsm8k": "dapo-gsm8k_test",
    "math-math500": "dapo-math500_test",
    "math-minervamath": "dapo-minerva_test",
    "math-olympiadbench": "dapo-olympiadbench_test",
}


def evaluated(env, profile):
    run = resolve("paper", env, f"r3l@profile={profile}", 0)
    return trinity_config(run, PLACE)["buffer"]["explorer_input"]["eval_tasksets"]


def test_dapo_evaluates_further_sets_under_released_code_and_its_own_under_paper():
    released = evaluated("dapo", "released_code")
    assert [one["name"] for one in released] == list(SETS.values())
    assert [one["split"] for one in released][:3] == ["test", "aime24_test", "amc23_test"]
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
