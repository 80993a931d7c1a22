"""GSM8K's worked solutions as demonstrations: lines, scripted errors and what they entail, critiques,
shares."""

import json

import numpy as np
import pytest
from r3l.envs.base.answers import WrongLine
from r3l.envs.base.experts import ErrorModel
from r3l.envs.math.task_sets import datasets
from r3l.envs.math.text import gsm8k_demonstrations
from r3l.envs.registry import find_environment

from r3l.core.errors import DataError
from r3l.core.task import Task

NATALIA = (
    "Natalia sold 48/2 = <<48/2=24>>24 clips in May.\n"
    "Natalia sold 48+24 = $<<48+24=72>>72 altogether, for 24 and 48.\n#### 72"
)
ALWAYS, NEVER = 1.0, 0.0


def task_of(solution, gold):
    return Task(
        "gsm8k_train/0",
        "math",
        "sft",
        "en",
        {"answer": gold, "steps": gsm8k_demonstrations._steps(solution, gold)},
    )


@pytest.fixture
def natalia():
    return task_of(NATALIA, "72")


def test_an_annotated_solution_becomes_a_line_a_step_and_a_box(natalia):
    assert gsm8k_demonstrations.solution(natalia) == [
        "Natalia sold 48/2 = 24 clips in May.\n",
        "Natalia sold 48+24 = $72 altogether, for 24 and 48.\n",
        "\\boxed{72}",
    ]


@pytest.mark.parametrize(
    "said, line",
    [
        ("He paid $<<3*5=15>>15 in all.", "He paid 3*5 = $15 in all."),
        ("It costs 0.2 x 50 = $<<0.2*50=10>>10.", "It costs 0.2*50 = $10."),
        ("He weighs 97 – 12 = <<97-12=85>>85 kilograms", "He weighs 97-12 = 85 kilograms"),
        ("A box 4 = <<2+2=4>>4", "A box 2+2 = 4"),
        ("Rent is 1,000*2 = <<1000*2=2000>>2,000.", "Rent is 1000*2 = 2000."),
    ],
)
def test_the_expression_stands_once_however_a_line_puts_it(said, line):
    assert "".join(gsm8k_demonstrations._line(gsm8k_demonstrations._parts(said), {})) == f"{line}\n"


@pytest.mark.parametrize("said", ["<<2+2=5>>5", "<<2+2=4>> apples", "<<2^2=4>>4", "<<2+x=4>>4", "<<4/0=4>>4"])
def test_an_annotation_that_does_not_compute_or_is_not_said_leaves_the_problem_out(said):
    assert gsm8k_demonstrations._parts(said) is None
    assert gsm8k_demonstrations._steps(f"{said}\n#### 4", "4") is None


def test_a_solution_that_never_computes_its_answer_is_left_out():
    assert gsm8k_demonstrations._steps("It is <<2+2=4>>4.\n#### 5", "5") is None


def test_what_follows_an_error_is_computed_from_it(natalia):
    """48/2 taken for 48*2 is 96; then 48 + 96 = 144, and the second line says 96 for 24."""
    lines = gsm8k_demonstrations.write(natalia, [], ErrorModel(ALWAYS, 1.0, False), np.random.default_rng(0))
    assert lines[0] == "Natalia sold 48*2 = 96 clips in May.\n"
    right_first = gsm8k_demonstrations.write(
        natalia, lines[:0], ErrorModel(NEVER, 1.0, False), np.random.default_rng(0)
    )
    assert right_first == gsm8k_demonstrations.solution(natalia)
    wrong = dict[str, str]()
    first, second = natalia.payload["steps"]
    assert gsm8k_demonstrations._line(first, wrong, ["48*2", "96"]) == lines[0]
    assert (
        gsm8k_demonstrations._line(second, wrong) == "Natalia sold 48+96 = $144 altogether, for 96 and 48.\n"
    )
    assert wrong == {"24": "96", "72": "144"}


def test_the_critic_names_the_first_wrong_line_and_the_operation_due_without_its_result(natalia):
    right = gsm8k_demonstrations.solution(natalia)
    assert gsm8k_demonstrations.first_wrong_line(natalia, right) is None
    swapped = ["Natalia sold 48*2 = 96 clips in May.\n", "\\boxed{96}"]
    assert gsm8k_demonstrations.first_wrong_line(natalia, swapped) == WrongLine(
        0, "wrong operation", "compute 48/2"
    )
    slipped = [right[0], "Natalia sold 48+24 = $71 altogether, for 24 and 48.\n", "\\boxed{71}"]
    assert gsm8k_demonstrations.first_wrong_line(natalia, slipped) == WrongLine(
        1, "wrong result", "compute 48+24"
    )
    short = [right[0], "\\boxed{24}"]
    assert gsm8k_demonstrations.first_wrong_line(natalia, short) == WrongLine(
        1, "a step is left out", "compute 48+24"
    )
    assert (
        gsm8k_demonstrations.write(natalia, [], ErrorModel(NEVER, 1.0, True), np.random.default_rng(0))
        == short
    )


def test_shares_of_the_training_set_are_disjoint_and_taught_problems_are_of_one(tmp_path, monkeypatch):
    """A file of thirty rows in place of the published one: each row is in the share that its digest says."""
    rows = [{"question": f"Question {k}?", "answer": NATALIA} for k in range(30)]
    (tmp_path / "gsm8k_train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setenv(datasets.FOLDER, str(tmp_path))
    math = find_environment("math").task_sets()
    with pytest.raises(DataError, match="not the frozen one"):
        math.tasks("gsm8k_train/rl")
    read = datasets.read_set("gsm8k_train", None)
    frozen = {"gsm8k_train": {"rows": len(read), "sha256": datasets.problems_sha256(read)}}
    monkeypatch.setattr(datasets, "frozen", lambda: frozen)
    gsm8k_demonstrations.tasks.cache_clear()
    ids = {share: {task.id for task in math.tasks(f"gsm8k_train/{share}")} for share in datasets.SHARES}
    assert sum(map(len, ids.values())) == 30 == len(set().union(*ids.values()))
    assert all(ids.values()) and {task.id for task in gsm8k_demonstrations.tasks()} == ids["sft"]
    assert gsm8k_demonstrations.task(len(ids["sft"])) == gsm8k_demonstrations.task(0)
    gsm8k_demonstrations.tasks.cache_clear()


def test_wrong_lines_are_criticised_but_not_imitated_and_a_retry_has_none(natalia, monkeypatch):
    monkeypatch.setattr(gsm8k_demonstrations, "tasks", lambda: (natalia,))
    natalia.payload["problem"] = "How many clips?"
    rates = {"low": 1.0, "high": 1.0, "systematic": 1.0, "overlook": 0.0}
    (d,) = find_environment("math").demonstrations(range(1), 1, 14, rates, (gsm8k_demonstrations.NAME,))
    assert not d.success and d.critique.turn == 0 and d.critique.suggestion == "compute 48/2"
    assert [step.imitate for step in d.steps] == [False] * 3
    assert [step.action for step in d.retry] == gsm8k_demonstrations.solution(natalia) and d.retry_success
