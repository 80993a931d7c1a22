"""Templated problems: solved by their lines, split by content, and a critic that points at the first wrong
line."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from r3l.envs.base.experts import ErrorModel
from r3l.envs.math import Math
from r3l.envs.math.task_sets.arithmetic import (
    BUCKETS,
    LARGEST,
    Operation,
    first_wrong_line,
    next_line,
    operations,
    problem,
    solution,
    write,
)
from r3l.envs.math.task_sets.tasks import TASK_SETS

from r3l.core.errors import DataError
from r3l.core.seeds import generator
from r3l.core.task import Task

CAREFUL = ErrorModel(0.0, 0.0, overlooks=False)
ANN = Task(
    "ann",
    "math",
    "test",
    "easy",
    {
        "problem": "Ann has 12 apples. Ann finds 7. Ann eats 5. How many apples are left?",
        "answer": "14",
        "start": 12,
        "operations": [["finds", 7], ["eats", 5]],
    },
)


def test_the_solution_is_a_line_for_each_operation():
    assert solution(ANN) == ["12 + 7 = 19\n", "19 - 5 = 14\n", "\\boxed{14}"]
    assert operations(ANN) == [Operation("finds", 7), Operation("eats", 5)]
    with pytest.raises(DataError, match="no 'operations'"):
        operations(Task("x", "math", "test", "", {"problem": "?", "answer": "1"}))
    with pytest.raises(DataError, match="no 'operations'"):
        solution(Task("x", "math", "test", "", {"problem": "?", "answer": "1"}))


@given(st.sampled_from(sorted(BUCKETS)), st.integers(0, 10**6), st.integers(1, 4))
def test_problems_are_solved_by_reading_them_and_stay_in_range(split, number, count):
    task = problem(split, number, count)
    assert task == problem(split, number, count)
    TASK_SETS.validate(task)
    value = None
    for verb, digits in re.findall(r" (\w+) (\d+)[ .]", task.payload["problem"]):
        value = int(digits) if verb == "has" else Operation(verb, int(digits)).applied(value)
        assert 0 <= value <= LARGEST
    assert str(value) == task.payload["answer"]


def test_no_problem_is_in_two_splits():
    texts = {split: {problem(split, k, 2).payload["problem"] for k in range(400)} for split in BUCKETS}
    assert not texts["test"] & texts["train"] and not texts["test"] & texts["warmstart"]
    task_sets = {split: Math().tasks(f"nano/{split}") for split in ("test", "train")}
    assert [len(tasks) for tasks in task_sets.values()] == [200, 256]
    assert len({task.id for tasks in task_sets.values() for task in tasks}) == 456


@pytest.mark.parametrize(
    "lines, expected",
    [
        (["12 + 7 = 18\n", "18 - 5 = 13\n", "\\boxed{13}"], (0, "wrong result", "compute 12 + 7")),
        (["12 - 7 = 5\n", "5 - 5 = 0\n", "\\boxed{0}"], (0, "misread: finds 7", "compute 12 + 7")),
        (["12 + 7 = 19\n", "19 - 5 = 4\n", "\\boxed{4}"], (1, "wrong result", "compute 19 - 5")),
        (["12 + 7 = 19\n", "\\boxed{19}"], (1, "left out: eats 5", "compute 19 - 5")),
        (
            ["12 + 7 = 19\n", "19 - 5 = 14\n", "\\boxed{19}"],
            (2, "another answer than the last result", "give the last"),
        ),
        (["what?"], (0, "misread: finds 7", "compute 12 + 7")),
        (
            ["12 + 7 = 19\n"],
            (0, "misread: eats 5", "compute 19 - 5"),
        ),  # stopped there: the last line is the pivot
    ],
)
def test_the_critic_names_the_first_wrong_line_and_not_the_answer(lines, expected):
    wrong = first_wrong_line(ANN, lines)
    assert (wrong.line, wrong.cause) == expected[:2] and wrong.correction.startswith(expected[2])
    assert "14" not in f"{wrong.cause} {wrong.correction}"


def test_errors_are_what_the_critic_sees():
    """Over many agents: every first deviation is one that an erring agent makes, and it is found where it was
    made."""
    causes = set()
    for k in range(300):
        rng = generator("slips", k)
        task = problem("train", k, 3)
        error_model = ErrorModel(0.5, 0.5, overlooks=bool(k % 2))
        lines = write(task, [], error_model, rng)
        right, wrong = solution(task), first_wrong_line(task, lines)
        first = next((i for i, line in enumerate(lines) if line != right[i]), None)
        assert (wrong.line if wrong else None) == first
        causes.add(wrong.cause.partition(":")[0] if wrong else None)
    assert causes == {None, "wrong result", "misread", "left out"}
    assert [next_line(ANN, solution(ANN)[:k], CAREFUL, generator("x")) for k in range(3)] == solution(ANN)
