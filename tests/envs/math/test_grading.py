"""Extraction and grading by hand, and the deadline: whatever it is asked, an answer comes, and it is counted."""

import pytest
from r3l.envs.base.answers import extract
from r3l.envs.math.grader import LONGEST, grade
from r3l.envs.math.grading import GRACE, Grader


@pytest.mark.parametrize(
    ("response", "strict", "flexible"),
    [
        (r"so \boxed{\frac{1}{2}}.", r"\frac{1}{2}", r"\frac{1}{2}"),
        (r"\boxed{1} or rather \boxed{2}", "2", "2"),
        (r"<think>\boxed{1}</think> none", None, None),
        (r"<think>1</think><answer>x = 2</answer>", "x = 2", "x = 2"),
        (r"<think>\boxed{1} so far", None, "1"),  # cut off while thinking
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
        hostile = [r"10^{10^{10}}", r"9^{9^{9^9}}", r"\sum_{k=1}^{10^9} k^{17}"]
        grades = [grader.grade("34", answer) for answer in hostile]
        assert not any(graded.correct for graded in grades)
        assert grader.slowest < 0.5 + GRACE + 0.2 and grader.over == 0
        assert grader.grade("34", "34").correct and sum(grader.counts.values()) == 4
