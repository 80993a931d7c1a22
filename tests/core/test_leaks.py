"""The audit of feedback for leaked answers: what counts as stated, told or quoted."""

import pytest

from r3l.core.leaks import Leak, leak_of

PROBLEM = "Ann has 12 apples. Ann finds 7."


@pytest.mark.parametrize(
    ("text", "leak"),
    [
        ("It is 42.", Leak.TOLD),
        ("try X = 42, then", Leak.TOLD),
        ("it is 142", None),
        ("look again", None),
    ],
)
def test_an_answer_is_stated_as_a_whole_word(text, leak):
    assert leak_of(text, 42, [PROBLEM]) is leak


def test_what_stands_in_the_problem_or_the_attempt_may_be_quoted():
    assert leak_of("compute 12 + 7", "7", [PROBLEM]) is Leak.QUOTED
    assert leak_of("the last result is 19", "19", [PROBLEM]) is Leak.TOLD
    assert leak_of("the last result is 19", "19", [PROBLEM, "12 + 7 = 19"]) is Leak.QUOTED


def test_case_and_spacing_do_not_hide_an_answer_of_several_words():
    assert leak_of("so ann is a  KNIGHT,\nben is a knave", "Ann is a knight, Ben is a knave", []) is Leak.TOLD
    assert leak_of("anything", " ", []) is None
