"""The sets of tier nano: templated problems that go through the published sets' readers, cleaning and freezing."""

import json

import pytest
from r3l.envs.math import Math, datasets
from r3l.envs.math.arithmetic import TEMPLATED, Templated, problem, rows

from r3l.config import resolve


@pytest.mark.parametrize("name", TEMPLATED)
def test_a_row_has_the_published_layout_and_is_read_as_one(name):
    made = TEMPLATED[name]
    task = problem(made.split, made.first, 2)
    first = next(rows(made))
    assert json.dumps(first)
    read = datasets.read_set(name, None)
    assert (read[0].problem, read[0].gold, len(read)) == (task.payload["problem"], task.payload["answer"], made.count)


def test_layouts_by_hand():
    text = problem("train", 30_000, 2).payload["problem"]
    (dapo,) = rows(Templated("dapo_raw", "train", 30_000, 1))
    assert dapo["prompt"] == [{"role": "user", "content": text}] and set(dapo["reward_model"]) == {"ground_truth"}
    (gsm8k,) = rows(Templated("gsm8k", "train", 30_000, 1))
    first, second, gold = gsm8k["answer"].partition("\\boxed")[0].split("\n")[:2] + [gsm8k["answer"].split("#### ")[1]]
    assert first.endswith(f"= {second.split()[0]}") and second.endswith(f"= {gold}")


@pytest.mark.parametrize(
    ("env", "train", "size"),
    [("gsm8k", "gsm8k_nano_train", 256), ("math500", "math_nano_train", 256), ("dapo", "dapo_nano_train", 255)]
    + [("deepmath", "deepmath_nano_train", 256)],
)
def test_environments_of_published_sets_have_a_nano_tier_without_a_download(monkeypatch, env, train, size):
    monkeypatch.delenv("R3L_MATH", raising=False)
    settings = resolve("nano", env, "r3l", 0).env_settings
    assert settings.train_task_set == f"{train}/train"
    taught, tested = Math().tasks(settings.train_task_set), Math().tasks(settings.test_task_set)
    assert (len(taught), len(tested)) == (size, 200)
    assert not {task.payload["problem"] for task in taught} & {task.payload["problem"] for task in tested}


def test_no_problem_of_a_nano_test_set_is_in_cleaned_training_data():
    tests = {p.problem for name in datasets.NANO_TEST_SETS for p in datasets.load(name)}
    trains = {p.problem for name in ("dapo_nano_train", "deepmath_nano_train") for p in datasets.load(name)}
    assert len(tests) > 390 and not tests & trains
