"""The check of YAML files on made-up ones of the release's shape."""

import pytest
import yaml

from r3l.core.errors import ConfigError
from r3l.released.checks.configs import CHECKS
from r3l.released.compare import compare

(CHECK,) = CHECKS
GRPO = {
    "project": "any",
    "algorithm": {"algorithm_type": "grpo", "repeat_times": 8, "kl_loss_fn": "k3", "optimizer": {"lr": "1e-6"}},
    "model": {"model_path": "${oc.env:SOME_PATH,Qwen/Qwen2.5-1.5B-Instruct}", "max_response_tokens": 512},
    "buffer": {
        "total_epochs": 20,
        "explorer_input": {"default_workflow_type": "grpo_baseline_alfworld_workflow"},
    },
    "explorer": {"rollout_model": {"engine_num": 6, "seed": 0}},
}


@pytest.fixture
def clone(tmp_path):
    def write(name, content):
        path = tmp_path / "examples/R3L" / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(content))
        return tmp_path

    return write


def differences(folder):
    outcome = compare(CHECK, folder)
    return outcome.cases, {m.case["key"]: (m.ours, m.theirs, m.audit) for m in outcome.mismatches}


@pytest.mark.parametrize("content", ["a: [" * 30_000, "a: 1\na: 2", "a: !!python/object/apply:os.getcwd []", "1"])
def test_a_hostile_file_of_a_clone_is_one_error_that_names_it(clone, content):
    folder = clone("alfworld/grpo_1.5B", GRPO)
    (folder / "examples/R3L/alfworld/grpo_1.5B.yaml").write_text(content)
    with pytest.raises(ConfigError, match=r"grpo_1\.5B\.yaml"):
        differences(folder)


def test_equal_keys_are_equal_and_names_are_explained(clone):
    cases, found = differences(clone("alfworld/grpo_1.5B", GRPO))
    assert cases == 11
    assert found == {"project": ("paper", "any", "4.5")}


def test_another_value_and_an_unknown_key_are_unexplained(clone):
    content = GRPO | {"trainer": {"grad_clip": 2.0, "novelty": 1}, "project": "paper"}
    _, found = differences(clone("alfworld/grpo_1.5B", content))
    assert found == {"trainer.grad_clip": (1.0, 2.0, ""), "trainer.novelty": ("no such key", 1, "")}


def test_a_seed_is_explained_where_the_release_has_another_and_nowhere_else(clone):
    content = GRPO | {"explorer": {"rollout_model": {"seed": 42}}}
    gspo = {**content, "algorithm": {**GRPO["algorithm"], "policy_loss_fn": "gspo", "repeat_times": 1}}
    _, found = differences(clone("alfworld/grpo_1.5B", content))
    assert found["explorer.rollout_model.seed"] == (0, 42, "")
    _, found = differences(clone("alfworld/gspo_1.5B", gspo))  # the last of both files
    assert found["explorer.rollout_model.seed"] == (0, 42, "4.4")


def test_a_file_that_runs_another_method_than_its_name_says(clone):
    _, found = differences(clone("alfworld/opmd_1.5B", GRPO))
    assert found["buffer.explorer_input.default_workflow_type"] == ("opmd", "grpo", "")


def test_an_environment_that_this_project_has_no_runs_of(clone):
    assert differences(clone("countdown/grpo_1.5B", GRPO)) == (1, {"*": ("no such run", "a file", "B-38")})


def test_the_kl_that_a_file_leaves_to_its_algorithm(clone):
    algorithm = {key: value for key, value in GRPO["algorithm"].items() if key != "kl_loss_fn"}
    _, found = differences(clone("alfworld/grpo_1.5B", GRPO | {"algorithm": algorithm}))
    assert found["algorithm.kl_loss_fn"] == ("k3", "k2", "")
