"""How the release reads answers, and its grader's two defects, counted on MATH-500 (packaged) and the other
sets, with the real math-verify.
"""

import pytest
from r3l.envs.math import MathOptions
from r3l.envs.math.engine.answer_engine import answer_in, check, check_in_actor, response_grader
from r3l.envs.math.task_sets.datasets import load

from r3l.core.task import Task


@pytest.fixture(scope="module")
def golds():
    return [p.gold for p in load("math500")]


@pytest.mark.slow
def test_an_always_right_model_scores_392_of_500_in_a_box_and_449_in_bare_text(golds):
    assert sum(check(gold, f"\\boxed{{{gold}}}") for gold in golds) == 392
    assert sum(check(gold, gold) for gold in golds) == 449


@pytest.mark.parametrize(
    ("gold", "answer", "main", "actor"),
    [
        ("34", "34", True, True),
        ("34", "\\boxed{34}", True, False),
        ("27.0", "27", True, False),
        ("1/2", "\\frac12", False, False),  # bare LaTeX is lost even in the main thread
        ("1/2", "$\\frac12$", True, False),
        ("#### 18", "18", True, True),
        ("B", "b", False, True),
    ],
)
def test_in_the_actor_thread_it_is_text_equality(gold, answer, main, actor):
    assert (check(gold, answer), check_in_actor(gold, answer)) == (main, actor)


THOUGHT = "<think>x</think>"


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        (f"{THOUGHT}<answer> 34 </answer>", "34"),
        (f"{THOUGHT}<ANSWER>34</Answer>", "34"),
        (f"{THOUGHT}<answer>\\boxed{{34}}</answer>", "\\boxed{34}"),  # the box stays
        (f"{THOUGHT}<answer>34</answer> no, <answer>35</answer>", "34"),  # the first
        ("<think>maybe <answer>34</answer></think><answer>35</answer>", "34"),  # also in the thinking
        (f"{THOUGHT}<answer>34</answer>\nAnswer: 35", "34"),
        (f"{THOUGHT}\nAnswer: 34\nAnswer: 35", "34"),
        (f"{THOUGHT} The final answer:\n  34 pies \n", "34 pies"),
        (f"{THOUGHT}<answer></answer>", ""),
        (f"{THOUGHT} Answer: ", None),
        (f"{THOUGHT} 34", None),
        (f"{THOUGHT} \\boxed{{34}}", None),
        ("<answer>34</answer>", None),  # thinking is mandatory
        ("<think>x <answer>34</answer>", None),
        ("<Think>x</Think><answer>34</answer>", None),
        ("", None),
    ],
)
def test_the_released_format(response, answer):
    assert answer_in(response) == answer


def test_the_environment_reads_and_grades_as_the_release_does():
    task = Task("t", "math", "test", payload={"answer": "34"})
    ours, theirs = (
        response_grader(MathOptions(extraction=extraction, grader=grader))
        for extraction, grader in (("strict", "ours"), ("released", "released"))
    )
    for response, strict, released in (
        (f"{THOUGHT}<answer>34</answer>", True, True),
        (f"{THOUGHT}<answer>\\boxed{{34}}</answer>", True, False),  # as the prompts ask for it
        (f"{THOUGHT}<answer>34.0</answer>", True, False),
        (f"{THOUGHT}Answer: 34", False, True),
        ("<answer>34</answer>", True, False),
    ):
        assert (ours(task, response).correct, theirs(task, response).correct) == (strict, released), response
