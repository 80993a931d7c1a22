"""Extraction and grading by hand, and the deadline: whatever it is asked, an answer comes."""

from pathlib import Path

import pytest
from r3l.envs.base.answers import extract
from r3l.envs.math.engine.grader import LONGEST, grade
from r3l.envs.math.engine.grader_process import Grader

from r3l.files.yaml_files import read_yaml

HERE = Path(__file__).parent


@pytest.mark.parametrize(("response", "strict", "flexible"), read_yaml(HERE / "answers.yaml")["answers"])
def test_extraction(response, strict, flexible):
    assert (extract(response, "strict"), extract(response, "flexible")) == (strict, flexible)


@pytest.mark.parametrize(
    ("gold", "answer", "correct", "by"),
    [
        ("18", "18", True, "text"),
        ("1234", "1,234.0", True, "number"),
        ("18", "19", False, "number"),
        (r"\frac{1}{2}", r"\dfrac{1}{2}", True, "text"),
        (r"\frac{1}{2}", "0.5", True, "number"),
        (r"\frac{1}{3}", "0.333333", True, "symbols"),
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


def test_what_cannot_be_read_is_wrong():
    with Grader() as grader:
        answers = [None, " ", "1" * (LONGEST + 1), "34"]
        assert [grader.grade("34", answer).status for answer in answers] == [
            "none",
            "none",
            "too_long",
            "graded",
        ]


def test_the_deadline_holds_and_the_next_answer_is_graded():
    with Grader(deadline=0.5) as grader:
        late = grader.grade("34", "9^{9^{9^{9}}}")
        assert (late.correct, late.status) == (False, "timeout")
        assert grader.grade("34", "34").correct


def test_the_first_answer_has_its_whole_deadline():
    """The grading process imports math-verify, which takes seconds, before it takes an answer."""
    with Grader(deadline=0.5) as grader:
        graded = grader.grade("x + 1", "1 + x")
    assert (graded.correct, graded.by) == (True, "symbols")


VARIANTS = read_yaml(HERE / "variants.yaml")


@pytest.mark.parametrize("kind", VARIANTS)
def test_variants_by_hand(kind):
    """What a reader knows, and math-verify alone often does not."""
    pairs = VARIANTS[kind]
    assert [pair for pair in pairs["right"] if not grade(*pair).correct] == []
    assert [pair for pair in pairs.get("wrong", []) if grade(*pair).correct] == []
