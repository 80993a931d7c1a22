"""Countdown by hand, and expressions against values known from how they were built."""

from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from puzzle_problems import generated
from r3l.envs.puzzles.engine.answer_engine import PUZZLES
from r3l.envs.puzzles.engine.base import CORRECT
from r3l.envs.puzzles.engine.countdown import MAX_TOKENS, numbers, parse, worth

KIND = PUZZLES["countdown"]
BY_HAND = {"numbers": [6, 2, 3], "target": 7, "expression": "6 + 3 - 2", "style": "compact"}
PRODUCT = {"numbers": [6, 98, 54, 34], "target": 230, "expression": "6*(98 - 54) - 34", "style": "released"}


def test_answers_by_hand():
    for right in ("6 + 3 - 2", "6-2+3", "(3+6)-2", "-2 + 6 + 3", "3 - (2 - 6)"):
        assert KIND.verify(BY_HAND, right), right
    assert KIND.verify({**BY_HAND, "target": 1}, "6 / (2 * 3)") and KIND.verify(
        {**BY_HAND, "target": 9}, "6/2*3"
    )
    for wrong in (
        "6 + 3 - 2 = 7",
        "7",
        "6 + 1",
        "6 + 3",
        "6 + 3 - 2 + 0",
        "6 + 3 - 2 - 2 + 2",
        "6 + 3 - 2.0",
        "6 + 3 2",
        "(6 + 3 - 2",
        "6 + 3 - 2)",
        "6 ** 3",
        "6 + 3 − 2",  # a minus sign of typography
        "+6 + 3 - 2",
        "",
    ):
        assert not KIND.verify(BY_HAND, wrong), wrong


def test_critiques_by_hand():
    critiques = {
        "6 + 2 + 3": "the expression is worth 11, not 7",
        "6 / (2 + 3)": "the expression is worth 6/5, not 7",
        "6 + 2": "numbers used wrongly: 3 used 0 times, given 1 times",
        "6 + 2 + 2": "numbers used wrongly: 2 used 2 times, given 1 times; 3 used 0 times, given 1 times",
        "6 + 3 - 2 = 7": "the answer is not one expression of whole numbers, operators and brackets",
    }
    assert {answer: KIND.critique(BY_HAND, answer) for answer in critiques} == critiques
    twos = {**BY_HAND, "numbers": [2, 2, 5]}
    assert KIND.critique(twos, "5 / (2 - 2)") == "the expression divides by zero"


def test_the_worked_solution_takes_off_half_the_excess():
    # 6 + 2 + 3 = 11 is 4 too large; a number that changes its sign takes off twice itself.
    assert KIND.steps(BY_HAND) == ["6 + 2 = 8", "8 + 3 = 11", "11 - 7 = 4, half 2", "take off 2", "6 + 3 - 2"]
    assert KIND.steps({**BY_HAND, "target": 11})[2:] == [
        "11 - 11 = 0, half 0",
        "take off nothing",
        "6 + 2 + 3",
    ]


def test_past_plus_and_minus_it_goes_bracket_by_bracket():
    assert KIND.steps(PRODUCT) == ["98 - 54 = 44", "6 * 44 = 264", "264 - 34 = 230", "6*(98 - 54) - 34"]


@pytest.mark.parametrize(
    ("text", "value"),
    [("2 + 3 * 4", 14), ("10 - 4 - 3", 3), ("24 / 4 / 2", 3), ("-2 * 3 + 10", 4), ("2 - -3", 5), ("((7))", 7)]
    + [("2 / -3 * 6", -4), ("8 / -4 / 2", -1), ("2 - -3 * 4", 14), ("-(2 + 3) * 4", -20), ("--2 * 3", 6)],
)
def test_operators_bind_as_in_arithmetic(text, value):
    assert worth(parse(text)) == value


def test_expressions_are_bounded():
    assert (
        parse("1" + "+1" * (MAX_TOKENS // 2 - 1)) is not None
        and parse("1" + "+1" * (MAX_TOKENS // 2)) is None
    )
    assert (
        parse("(" * 50 + "1" + ")" * 49) is None
        and parse("1" * 7) is None
        and parse("-" * 99 + "1") is not None
    )


LEAF = st.integers(0, 99).map(lambda n: (str(n), Fraction(n), [n]))


def _join(parts):
    (left, x, used), operator, (right, y, more) = parts
    if operator == "/":
        assume(y != 0)
        value = x / y
    else:
        value = {"+": x + y, "-": x - y, "*": x * y}[operator]
    return f"({left}){operator} ({right})", value, used + more


TREES = st.recursive(LEAF, lambda t: st.tuples(t, st.sampled_from("+-*/"), t).map(_join), max_leaves=6)


@settings(max_examples=150)
@given(TREES, st.integers(-2, 2))
def test_an_expression_is_worth_what_it_was_built_to_be(tree, off):
    text, value, used = tree
    assert worth(parse(text)) == value and numbers(parse(text)) == used
    data = {"numbers": used[::-1], "target": value + off, "expression": text, "style": "compact"}
    assert KIND.verify(data, text) == (off == 0)
    assert not KIND.verify({**data, "numbers": [*used, 7]}, text)


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.sampled_from(["nano", "rltf"]))
def test_the_generators_expression_verifies(index, size):
    problem = generated("countdown", size, index)
    assert (
        KIND.verify(problem.data, problem.answer) and KIND.critique(problem.data, problem.answer) == CORRECT
    )
    assert not KIND.verify({**problem.data, "target": problem.data["target"] + 1}, problem.answer)
