"""TaskSets: made to order, of different contents, committed, and loud when they differ."""

from collections import Counter

import pytest
from r3l.envs.base.task_sets import committed, tasks_sha256
from r3l.envs.puzzles import Puzzles
from r3l.envs.puzzles.engine.answer_engine import PUZZLES
from r3l.envs.puzzles.task_sets import tasks as module
from r3l.envs.puzzles.task_sets.tasks import TASK_SETS, Allocation, PuzzleDefinition

from r3l.core.errors import ConfigError, DataError

NANO = [f"{name}_nano" for name in PUZZLES]
GROUPS = {
    "knights_knaves": {
        "test": (60, 140),
        "train": (150, 450),
        "validation": (64, 64),
        "of": ("2 people", "4 people"),
    },
    "binary_matrix": {"test": (60, 140), "train": (150, 450), "validation": (64, 64), "of": ("3x3", "4x4")},
    "shortest_path": {
        "test": (150, 50),
        "train": (450, 150),
        "validation": (96, 32),
        "of": ("feasible", "infeasible"),
    },
    "countdown": {
        "test": (100, 100),
        "train": (300, 300),
        "validation": (64, 64),
        "of": ("3 numbers", "4 numbers"),
    },
}


@pytest.mark.parametrize("name", NANO)
def test_nano_panels_are_committed_grouped_and_apart(name):
    splits = {split: Puzzles().tasks(f"{name}/{split}") for split in ("train", "test", "validation")}
    kind = PUZZLES[name.removesuffix("_nano")]
    groups = GROUPS[kind.name]
    for split, tasks in splits.items():
        assert Counter(task.group for task in tasks) == dict(zip(groups["of"], groups[split], strict=True))
        assert [task.id for task in tasks] == sorted(task.id for task in tasks) == listed(name, split)
        assert tasks_sha256(tasks) == Puzzles().task_set_hash(f"{name}/{split}")
        assert all(set(task.payload) == {"puzzle", "data", "answer", "problem"} for task in tasks)
    keys = [kind.key(task.payload["data"]) for tasks in splits.values() for task in tasks]
    assert len(set(keys)) == len(keys) == 928
    spare = [TASK_SETS.spare_task(name, k) for k in range(1000)]
    assert not {kind.key(task.payload["data"]) for task in spare} & set(keys)
    kinds = 3 if kind.name == "knights_knaves" else 2  # those of 3 people are in no split
    assert len({task.group for task in spare}) == kinds and TASK_SETS.spare_task(name, 3) == spare[3]


def listed(name, split):
    return committed("puzzles", name)["splits"][split]["ids"]


@pytest.mark.parametrize("name", ["binary_matrix_rltf", "shortest_path_rltf"])
def test_no_matrix_of_the_test_set_is_among_the_first_training_problems(name):
    task_set = Allocation(TASK_SETS.definition(name))
    while len(task_set.splits["train"]) < 1500:
        task_set._make()
    keys = [task_set.puzzle.key(t.payload["data"]) for tasks in task_set.splits.values() for t in tasks]
    assert len(set(keys)) == len(keys) == 1700
    assert [t.id for t in task_set.splits["test"]] == [t.id for t in TASK_SETS.regenerate(name, "test")]


def test_a_task_with_a_wrong_answer_is_not_valid():
    task = TASK_SETS.regenerate("shortest_path_nano", "test")[0]
    TASK_SETS.validate(task)
    wrong = dict(task.payload) | {"answer": "left left left left"}
    with pytest.raises(DataError, match=f"task {task.id}: its answer does not verify"):
        TASK_SETS.validate(type(task)(task.id, task.env, task.split, task.group, wrong))


def allocation(**changes):
    wanted = TASK_SETS.definition("binary_matrix_nano").model_dump() | changes
    return Allocation(PuzzleDefinition.model_validate(wanted))


def test_a_group_that_never_comes_is_an_error(monkeypatch):
    monkeypatch.setattr(module, "_MAX_UNUSED", 50)
    with pytest.raises(ConfigError, match=r"still missing: \{'test': \{'5x5': 1\}\}"):
        allocation(splits={"test": {"5x5": 1}}).split("test")


@pytest.mark.parametrize(
    ("key", "value", "message"), [("p_zero", 2, "p_zero"), ("min_n", 5, "min_n is 5, more than max_n")]
)
def test_a_wrong_difficulty_is_an_error(key, value, message):
    wrong = {"seed": 0, "style": "compact", "min_n": 3, "max_n": 4, "p_zero": 0.25} | {key: value}
    with pytest.raises(ConfigError, match=rf"puzzles_binary_matrix_nano.yaml: difficulty: (?s:.*){message}"):
        allocation(difficulty=wrong).split("test")
