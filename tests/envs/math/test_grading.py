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


RIGHT = {
    "numbers apart": [
        ("7/4", "1 3/4"),
        ("-7/4", "-1 3/4"),
        (r"\frac{7}{4}", r"1\frac{3}{4}"),
        ("(3/2,3)", "(1 1/2, 3)"),
    ],
    "thousands": [("1000", r"1\,000"), ("1234567", "1 234 567"), ("1000", "1{,}000"), (r"10,\!080", "10080")],
    "signs": [("-7", "\u22127"), ("0.5", ".5"), ("1200", "1,200,"), (r"\frac{\pi}{2}", "π/2")],
    "unions": [
        (r"(1,2)\cup[4,5)", r"[4,5)\cup(1,2)"),
        (r"(1,2)\cup[4,5)", "[4,5) ∪ (1,2)"),
        (r"(-\infty,0)\cup\{1\}", r"\{1\}\cup(-\infty,0)"),
    ],
    "bases": [
        ("4210_5", "4210_{5}"),
        ("4210_{5}", "4210"),
        ("2516_8", r"2516_{\text{eight}}"),
        ("1A7_{16}", "1a7_16"),
        ("110_2", "110 base 2"),
        ("30", "30_{10}"),
    ],
    "units": [
        ("18", "18 dollars"),
        ("18", "18 eggs"),
        ("18", "18 people"),
        ("18", r"\$18 per day"),
        ("18", "18eggs"),
        ("18", "18~dollars"),
        ("1200", "1,200 people"),
        ("3/4", "3/4 cup"),
        ("18 dollars", "18"),
        ("18", "18 km/h"),
        (r"5.4 \text{ cents}", "5.4 cents"),
    ],
    "case": [(r"\text{Even}", "even"), ("Evelyn", "evelyn"), (r"\text{(C)}", "c"), ("x=5", "X=5")],
    "rounding": [("1/3", "0.333333"), ("50", r"50\%"), ("0.05", "5%")],
}
WRONG = {
    "numbers apart": [
        ("34", "3 4"),
        ("56", "5 6"),
        ("456", r"4\,5\,6"),
        ("89", "8~9"),
        ("11/2", "1 1/2"),
        ("8", "8 1/3"),
    ],
    "unions": [(r"(1,2)\cup[4,5)", r"[4,5]\cup(1,2)"), (r"(1,2)\cup[4,5)", r"(1,2)\cup(4,5)")],
    "bases": [
        ("4210_5", "4210_6"),
        ("52_8", "52_9"),
        ("15", "15_6"),
        ("1A7_{16}", "1B7_{16}"),
        ("4210_{5}", "421_{5}"),
    ],
    "units": [
        ("18", "18 thousand"),
        ("2", "2 dozen"),
        ("3", "3 fifths"),
        ("18", "18 or 19"),
        ("18", "18 and a half"),
        ("18", "18 dollars and fifty cents"),
        ("18", "18x"),
        ("18", "18 abc"),
        ("18", "18 pi"),
        ("18", "19 dollars"),
    ],
    "case": [("2X", "2x"), ("x", "X"), ("3R^2", "3r^2"), ("x+Y", "X+y"), (r"\Pi", r"\pi"), ("N", "n")],
    "rounding": [
        ("3/4^30", "5/4^30"),
        ("10^{-20}", "10^{-21}"),
        ("0", "10^{-9}"),
        ("x=10^{-20}", "x=10^{-21}"),
        (r"\{10^{-20},1\}", r"\{10^{-21},1\}"),
    ],
}


@pytest.mark.parametrize("kind", RIGHT)
def test_what_a_reader_knows_and_math_verify_does_not(kind):
    assert [pair for pair in RIGHT[kind] if not grade(*pair).correct] == []
    assert [pair for pair in WRONG.get(kind, []) if grade(*pair).correct] == []


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


VARIANTS = {  # kind: pairs (gold, answer) that are right to a reader, pairs that are wrong
    "number": ([("1234", "1,234"), ("27", "27.0"), ("0.5", ".5")], [("34", "35"), ("1", "1.01")]),
    "fraction": (
        [(r"\frac{1}{2}", answer) for answer in (r"\dfrac12", "1/2", "0.5")],
        [(r"\frac{1}{3}", "0.333"), (r"\frac{3}{4}", r"\frac{4}{3}")],
    ),
    "unit": (
        [("18", answer) for answer in (r"18\text{ dollars}", r"\$18", "18 dollars")]
        + [("60", r"60^\circ"), ("5", r"5\text{ cm}")],
        [("18", r"19\text{ dollars}")],
    ),
    "percent": ([("50", r"50\%"), (r"50\%", r"\frac{1}{2}")], [("50", "0.5")]),
    "root": (
        [(r"2\sqrt{3}", r"\sqrt{12}"), (r"\frac{\sqrt{2}}{2}", r"\frac{1}{\sqrt{2}}")],
        [(r"\sqrt{3}", "1.732")],
    ),
    "expression": ([("x^2+2x+1", "(x+1)^2"), ("p - q", "-q+p")], [("p - q", "q - p")]),
    "equation": ([("5", "x=5"), ("y=2x+1", "2x+1")], [("5", "x=6")]),
    "list": ([("2, 8", "8, 2"), ("-1, 2, -2", r"-2,-1,2")], [("2, 8", "2")]),
    "set": ([(r"\{1,2\}", r"\{2,1\}")], [(r"\{1,2\}", r"\{1,2,3\}"), (r"\{1,2\}", "(1,2)")]),
    "tuple": (
        [("(3,4)", "(3, 4)"), (r"\left( 3, \frac{\pi}{2} \right)", r"(3,\pi/2)")],
        [("(3,4)", "(4,3)")],
    ),
    "interval": (
        [("[0,1]", r"\left[0,1\right]"), (r"(-\infty,2)\cup(3,\infty)", r"(3,\infty) \cup (-\infty,2)")],
        [("[0,1)", "[0,1]")],
    ),
    "text": ([(r"\text{Evelyn}", "Evelyn"), (r"\text{(C)}", "C")], [(r"\text{(C)}", "D")]),
}


@pytest.mark.parametrize("kind", VARIANTS)
def test_variants_by_hand(kind):
    right, wrong = VARIANTS[kind]
    assert [pair for pair in right if not grade(*pair).correct] == []
    assert [pair for pair in wrong if grade(*pair).correct] == []
