"""Checks on a made-up release of one file: its ``grade`` rounds where ours does not, and fails on a negative mark."""

from r3l.original.clones import Release
from r3l.released.check import Check, Code

SOURCE = """
import os
import engine_that_nobody_has

BEST = 10


def grade(mark: engine_that_nobody_has.Mark) -> str:
    print("released code prints")
    if mark < 0:
        raise ValueError(mark)
    return {"grade": "best" if round(mark) == BEST else "other", "secret": os.environ.get("SECRET")}
"""
MADE_UP = Release("made up", "MADE_UP_RELEASE", "https://example.org/made-up", ("0000000",))
MARKS = (-1, 3, 9.6, 10)


def cases():
    return ({"mark": mark} for mark in MARKS)


def theirs(released, case):
    return released["grade"](case["mark"])


def ours(case):
    return {"grade": "best" if case["mark"] == 10 else "other", "secret": None}


def explain(case, ours, theirs):
    return "A-1" if case["mark"] == 9.6 else ""


CHECKS = (
    Check("made up", "grades", MADE_UP, (Code("school/grades.py", ("BEST", "grade")),), cases, theirs, ours, explain),
)
