"""Extraction and grading by hand, and the deadline: whatever it is asked, an answer comes, and it is counted."""

from pathlib import Path

import pytest
from r3l.envs.base.answers import extract
from r3l.envs.math.grader import LONGEST, grade
from r3l.envs.math.grading import GRACE, Grader

from r3l.files.yaml_files import read_yaml


@pytest.mark.parametrize(
    ("response", "strict", "flexible"),
    [
        (r"so \boxed{\frac{1}{2}}.", r"\frac{1}{2}", r"\frac{1}{2}"),
        (r"\boxed{1} or rather \boxed{2}", "2", "2"),
        (r"<think>\boxed{1}</think> none", None, None),
        (r"<think>1</think><answer>x = 2</answer>", "x = 2", "x = 2"),
        (r"<think>\boxed{1} so far", None, None),  # cut off while thinking
        (r"I get \boxed{1}.</think>", None, None),  # the chat template opened the thought
        ("I get \\boxed{1}.</think>\n\nThe answer is \\boxed{2}.", "2", "2"),
        (r"<think>1</think> so <think>\boxed{2}</think> \boxed{3}", "3", "3"),
        (r"\boxed{24} (the tag </think> is not used)", "24", "24"),
        (r"\boxed{24} (no <think> was needed)", "24", "24"),
        (r"$\boxed 7$", "7", "7"),
        (r"so \boxed 1,200.", "1,200", "1,200"),
        (r"\boxed \frac{1}{2}", r"\frac{1}{2}", r"\frac{1}{2}"),
        (r"put it in \boxed and stop", None, None),
        (r"\boxed{\begin{pmatrix}3\\{4}\end{pmatrix}}", *[r"\begin{pmatrix}3\\{4}\end{pmatrix}"] * 2),
        (r"<answer>\boxed{2}</answer>", "2", "2"),
        ("The final answer is 5.", None, "5"),
        ("so\n#### 1,234", None, "1,234"),
        ("first 3, then $1,200", None, "$1,200"),
        (r"\boxed{2", None, "2"),
        (r"\boxed{}", None, None),
        ("no idea", None, None),
    ],
)
def test_extraction(response, strict, flexible):
    assert (extract(response, "strict"), extract(response, "flexible")) == (strict, flexible)


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("Altogether he paid 2,450, and was glad.", "2,450"),
        ("So 5, 6, 7, in this order", "7"),
        ("So p = .25", ".25"),
        ("That leaves 1 3/4 cups", "1 3/4"),
        ("The change is \u22127.", "\u22127"),
        ("The answer is 24. Shall I explain?", "24"),
        ("The answer is **3.5**. Done!", "3.5"),
        ("The answer is 24 eggs, because 9 + 15 = 24", "24 eggs"),
        ("The answer is 24. Now the answer is clear.", "24"),
        ("#### Working\n8*3=24\n#### Result\nThe answer is 24", "24"),
        ("#### 1. Setup\n3 boxes\n#### 2. Result\nThe answer is 24", "24"),
        ("#### Final answer\n24", "24"),
        ("so #### -5", "-5"),
        ("#### yes", "yes"),
    ],
)
def test_answers_that_were_said(response, answer):
    assert extract(response, "flexible") == answer and extract(response, "strict") is None


@pytest.mark.parametrize(
    ("gold", "answer", "correct", "by"),
    [
        ("18", "18", True, "text"),
        ("1234", "1,234.0", True, "number"),
        ("18", "19", False, "number"),
        (r"\frac{1}{2}", r"\dfrac{1}{2}", True, "text"),
        (r"\frac{1}{2}", "0.5", True, "symbols"),
        (r"\left( 3, \frac{\pi}{2} \right)", r"(3,\frac{\pi}{2})", True, "text"),
        ("(1,2)", r"\{1,2\}", False, "symbols"),  # math-verify alone takes an interval for a set
        ("[1,2)", "(1,2)", False, "symbols"),
        ("2, 8", "8, 2", True, "symbols"),
        ("p - q", "q - p", False, "symbols"),
    ],
)
def test_grading(gold, answer, correct, by):
    graded = grade(gold, answer)
    assert (graded.correct, graded.by, graded.status) == (correct, by, "graded")


def test_what_cannot_be_read_is_wrong_and_counted():
    with Grader() as grader:
        answers = [None, " ", "1" * (LONGEST + 1), "34"]
        assert [grader.grade("34", answer).status for answer in answers] == ["none", "none", "too_long", "graded"]
        assert grader.counts == {"none": 2, "too_long": 1, "graded": 1}


def test_the_deadline_holds_and_the_next_answer_is_graded():
    with Grader(deadline=0.5) as grader:
        assert not grader.grade("34", r"\sum_{k=1}^{10^9} k^{17}").correct
        assert grader.slowest < 0.5 + GRACE + 0.2 and grader.over == 0
        assert grader.grade("34", "34").correct and sum(grader.counts.values()) == 2


VARIANTS = read_yaml(Path(__file__).with_name("variants.yaml"))


@pytest.mark.parametrize("kind", VARIANTS)
def test_variants_by_hand(kind):
    """What a reader knows, and math-verify alone often does not."""
    pairs = VARIANTS[kind]
    assert [pair for pair in pairs["right"] if not grade(*pair).correct] == []
    assert [pair for pair in pairs.get("wrong", []) if grade(*pair).correct] == []
