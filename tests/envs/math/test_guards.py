"""Nothing that math-verify accepts is refused but by a guard with a name, and each guard has its reason."""

import multiprocessing

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from r3l.envs.math.engine.grader import grade
from r3l.envs.math.engine.guards import GUARDS, refused_by
from r3l.envs.math.task_sets.datasets import load

# What math-verify accepts and a reader does not, by the guard that refuses it.
REASONS = {
    "numbers": ("1.5", "1.5000001"),
    "bases": ("4210_5", "4210_6"),
    "side by side": ("7", "3 4"),
    "brackets": ("(6,3)", r"\{6,3\}"),
    "scales": ("2", r"2\text{ dozen}"),
    "units": (r"5\text{ cm}", "5 m"),
    "half of day": ("3:30 pm", "3:30 am"),
    "case": ("2X", "2x"),
    "rounding": ("x=10^{-20}", "x=10^{-21}"),
}
# Each writes an answer in another way, or changes it.
LAYOUTS = [
    "{}",
    r"\,{}\,",
    r"{}\;",
    "${}$",
    "x={}",
    "f(x) = {}",
    "{}.",
    "({})",
    r"\{{{}\}}",
    r"\left({}\right)",
    "{}, 7",
    "7,{}",
    "2({})",
    "-{}",
    r"{}\%",
    r"{}\text{{ cm}}",
    r"{}\text{{ thousand}}",
    "{} dollars",
    "{}=y",
    "{}^2",
]
PARTS = [
    *[
        "5",
        "3 4",
        "34",
        "12",
        "0.5",
        "1,200",
        "1 200",
        r"\frac{1}{2}",
        r"\frac 1 2",
        "1/2",
        r"2\sqrt{3}",
        r"\sqrt 3 2",
    ],
    *[
        "x+1",
        "1+x",
        "X+1",
        "2x+3y=6",
        "4x+6y=12",
        "x^2+px",
        r"\log_2 3",
        r"\frac{\ln 3}{\ln 2}",
        "(1,2)",
        "[1,2)",
    ],
    *[
        r"\{1,2\}",
        "1,2",
        "2, 1",
        "(1,2),(3,4)",
        r"\{(3,4),(1,2)\}",
        "10^{-20}",
        "10^{-21}",
        "4210_5",
        "4210_6",
        "A",
    ],
    *[
        "a",
        r"\text{east}",
        "2^3 5",
        "40",
        r"\pi",
        r"\frac{\pi}{2}",
        "(1,2)\\cup(3,4)",
        "50",
        r"\infty",
        "0.333333",
    ],
]


def _verdict(gold, answer):
    """math-verify as its manual says: both in a box, gold first."""
    from math_verify import parse, verify

    expected, given_ = (parse(f"\\boxed{{{text}}}", parsing_timeout=None) for text in (gold, answer))
    return bool(verify(expected, given_, timeout_seconds=None))


def accepted_by_math_verify(gold, answer, seconds=10):
    """Whether math-verify takes them for equal; None if it needs more than ``seconds``.

    In a process of its own, which is killed then: sympy can compute 10^(10^20) inside one call of C, where no
    alarm ends it.
    """
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=lambda: sender.send(_verdict(gold, answer)))
    process.start()
    sender.close()
    try:
        return receiver.recv() if receiver.poll(seconds) else None
    finally:
        process.kill()
        process.join()
        receiver.close()


@pytest.mark.parametrize("name", GUARDS)
def test_a_guard_refuses_what_math_verify_takes_for_equal(name):
    gold, answer = REASONS[name]
    assert accepted_by_math_verify(gold, answer)
    assert refused_by(gold, answer) == name
    assert not grade(gold, answer).correct


@settings(max_examples=150, deadline=None)
@given(*(st.builds(str.format, st.sampled_from(LAYOUTS), st.sampled_from(PARTS)) for _ in range(2)))
def test_what_math_verify_accepts_and_no_guard_refuses_is_right(gold, answer):
    accepted = accepted_by_math_verify(gold, answer)
    assume(accepted is not None)
    if accepted and refused_by(gold, answer) is None:
        assert grade(gold, answer).correct


@settings(max_examples=50, deadline=None)
@given(st.sampled_from([problem.gold for problem in load("math500")]), st.sampled_from(LAYOUTS[:4] + ["{}."]))
def test_gold_answers_in_any_layout_are_right(gold, layout):
    assert grade(gold, layout.format(gold)).correct
