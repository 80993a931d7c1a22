"""Scores on training tasks are marked wherever they are shown; `r3l data check` compares problems, not ids."""

import json
import shutil

import pytest
from program import run

import r3l
from r3l.config import environment_of, resolve
from r3l.core.task import Task, shared_problems
from r3l.evaluation.evaluate import evaluate_run, training_warning
from r3l.evaluation.publishing import publish
from r3l.files.json_files import read_json

SMALL = {"train.steps": 1, "train.tasks_per_step": 1, "method_settings.group_size": 2, "workers": 0}
ENVIRONMENT = """
from r3l.core.environment import Observation
from r3l.envs.base.one_file import OneFileEngine, OneFileEnvironment

class Engine(OneFileEngine):
    def reset(self, task):
        return Observation("?")
    def step(self, action):
        return Observation("ok", reward=1.0, done=True, success=True)

class Dice(OneFileEnvironment):
    name, domain, rules = "dice", "dice", "Throw."
    def problem(self, rng):
        return {"number": int(rng.integers(LARGEST))}
    def make_engine(self, options):
        return Engine()
"""


def test_problems_are_equal_by_payload_and_without_one_by_id():
    def tasks(split, *payloads):
        return [Task(f"e-{split}-{k}", "e", split, payload=p) for k, p in enumerate(payloads)]

    train = tasks("train", {"number": 1}, {"number": 2})
    test = tasks("test", {"number": 2}, {"number": 3}, {})
    assert shared_problems(test, train) == [test[0]]
    assert shared_problems(test, [*train, Task("e-test-2", "e", "train")]) == [test[0], test[2]]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    where = tmp_path_factory.mktemp("trained") / "run"
    return r3l.train("math", "grpo", settings=SMALL | {"evaluation.tasks": 5}, run_dir=where)


def test_a_score_on_training_tasks_says_so(trained, monkeypatch, capsys):
    code, out, err = run(monkeypatch, capsys, "evaluate", trained, "--task-set", "chain/train")
    assert code == 0, err
    marked = "5 of 5 tasks are training tasks of this model (math chain/train)"
    assert f"warning: task set chain/train: {marked}" in out
    code, out, _ = run(monkeypatch, capsys, "evaluate", trained, "--task-set", "chain/train", "--markdown")
    assert marked in out
    code, out, _ = run(monkeypatch, capsys, "evaluate", trained)  # on its test tasks
    assert code == 0 and "training tasks of this model" not in out


def test_a_run_whose_test_is_its_training_set_is_marked_in_tables(monkeypatch, capsys, tmp_path):
    settings = SMALL | {"evaluation.tasks": 5, "env_settings.test_task_set": "chain/train"}
    same = r3l.train("math", "grpo", settings=settings, run_dir=tmp_path / "same")
    assert run(monkeypatch, capsys, "evaluate", same)[0] == 0
    assert "5 of 5 tasks are training tasks" in read_json(same / "evaluation.json")["task_set"]["warning"]
    code, out, err = run(monkeypatch, capsys, "table", "mathematics", same)
    assert code == 0 and "5 of 5 tasks are training tasks" in " ".join(out.split()), err


def test_a_model_that_begins_from_a_runs_checkpoint_knows_its_training_tasks(trained):
    tasks = environment_of("math").tasks("chain/train")[:3]
    (checkpoint,) = (trained / "checkpoints").glob("step-*")
    later = resolve("nano", "math", "zero_shot", 0, str(checkpoint))
    assert (
        training_warning(later, tasks) == "3 of 3 tasks are training tasks of this model (math chain/train)"
    )
    assert training_warning(resolve("nano", "math", "zero_shot", 0), tasks) == ""


def test_a_link_and_an_export_of_a_checkpoint_know_their_training_tasks(trained, tmp_path, caplog):
    tasks = environment_of("math").tasks("chain/train")[:3]
    (checkpoint,) = (trained / "checkpoints").glob("step-*")
    (tmp_path / "link").symlink_to(checkpoint)
    evaluate_run(trained)
    publish(trained, str(tmp_path / "export"))
    for model in ("link", "export"):
        later = resolve("nano", "math", "zero_shot", 0, str(tmp_path / model))
        marked = "3 of 3 tasks are training tasks of this model (math chain/train)"
        assert training_warning(later, tasks) == marked, model
    assert caplog.text == ""
    # A plain copy has lost its run: that is said.
    copied = shutil.copytree(checkpoint, tmp_path / "copy")
    assert training_warning(resolve("nano", "math", "zero_shot", 0, str(copied)), tasks) == ""
    assert f"{copied} was copied out of a run's directory" in caplog.text


@pytest.mark.parametrize(("largest", "key", "code"), [(10, "", 2), (10, "true", 0), (10**9, "", 0)])
def test_an_environment_of_ones_own_is_checked_by_its_problems(
    largest, key, code, monkeypatch, capsys, tmp_path
):
    tier = {"train_task_set": "train", "test_task_set": "test", "max_turns": 1, "model": "math-1.5m"}
    content = {
        "env": "dice",
        "label": "Dice",
        "code": f"dice{largest}:Dice",
        "tiers": {"nano": tier},
        "sources": {},
    }
    (tmp_path / "dice.yaml").write_text(json.dumps(content | ({"shared_problems": True} if key else {})))
    (tmp_path / f"dice{largest}.py").write_text(ENVIRONMENT + f"LARGEST = {largest}\n")
    monkeypatch.setenv("R3L_ENVS", str(tmp_path))
    found, out, err = run(monkeypatch, capsys, "data", "check", "--env", "dice")
    assert found == code
    if code:
        words = " ".join(err.split())
        assert (
            "100 of the 100 tasks of test" in words
            and "have the same problem (payload) as tasks of train" in words
        )
