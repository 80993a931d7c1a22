"""The sets of tier nano: templated problems that go through the published sets' readers, cleaning and freezing."""

import json

import pytest
from r3l.envs.math import Math, datasets
from r3l.envs.math.arithmetic import TEMPLATED, problem, rows

from r3l.config import resolve


@pytest.mark.parametrize("name", TEMPLATED)
def test_a_row_has_the_published_layout_and_is_read_as_one(name):
    made = TEMPLATED[name]
    task = problem(made.split, made.first, 2)
    first = next(rows(made))
    assert json.dumps(first)
    read = datasets.read_set(name, None)
    assert (read[0].problem, read[0].gold, len(read)) == (task.payload["problem"], task.payload["answer"], made.count)


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
