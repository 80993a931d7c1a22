"""Speed of the grader, and its worst case: answers a second over MATH-500, and a thousand hostile strings.

``r3l bench grader``. A pool of processes is measured beside one thread of this process without a deadline, the upper
limit of what a deadline may cost. Half of the answers are right (the gold answer), half wrong (the next item's).
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from r3l.bench.engines import machine, timed
from r3l.core.seeds import generator
from r3l.envs.math import grader
from r3l.envs.math.datasets import load
from r3l.envs.math.grader import MathGrade, grade
from r3l.envs.math.grading import DEADLINE, Grader

HOSTILE = 1_000
Pair = tuple[str, str | None]

# Shapes of answers that make sympy compute without end, its parser recurse, or either fail; N is a number up to 999.
_SHAPES = (
    "10^{10^{10^N}}",
    "9^{9^{9^{9^N}}}",
    "(N^{N^{N}})!",
    "\\sum_{k=1}^{10^9} k^N",
    "\\prod_{k=1}^{10^{N}} (1+\\frac{1}{k})",
    "\\int_0^{\\infty} e^{-x^N} \\sin(x^N) dx",
    "\\sqrt[N]{\\sqrt[N]{\\sqrt[N]{x^x^x}}}",
    "(x+1)^{N00000}",
    "\\frac{1}{\\frac{1}{\\frac{1}{0}}}",
    "\\binom{10^9}{N}",
    "\\lim_{x \\to 0} \\frac{\\sin(x^N)}{x^{x^x}}",
    "\\begin{pmatrix} N & x \\\\ y \\end{pmatrix}^{N}",
    "\\{N, \\{N, \\{N, x\\}\\}\\}",
    "\\left( N, \\right] \\cup [",
    "\\frac{N}{",
    "\\u0000\\u202e N \\text{\\boxed{",
)


def hostile(count: int, seed: int = 0) -> list[str]:
    """``count`` strings that a model might, by accident or not, put into its box; deep and long ones among them."""
    rng = generator(seed, "hostile")
    strings = []
    for k in range(count):
        number = int(rng.integers(2, 1_000))
        text = _SHAPES[k % len(_SHAPES)].replace("N", str(number))
        if k % 7 == 0:
            depth = int(rng.integers(2, 200))
            text = "\\sqrt{" * depth + text + "}" * depth
        elif k % 11 == 0:
            text = "+".join([text] * int(rng.integers(2, 80)))
        strings.append(text)
    return strings


def run(
    workers: int = 2, count: int = HOSTILE, items: int = 500, seed: int = 0, deadline: float = DEADLINE
) -> dict[str, Any]:
    """The report: ``answers_per_s`` of one thread and of ``workers`` processes, cold and with golds already parsed;
    for the hostile strings the slowest answer, how many took longer than the deadline, and statuses.
    """
    golds = [p.gold for p in load("math500")][:items]
    others = [*golds[1:], golds[0]]
    pairs: list[Pair] = [(g, g if k % 2 == 0 else o) for k, (g, o) in enumerate(zip(golds, others, strict=True))]
    logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that there is no deadline in one thread
    grade("x", "y")  # imports sympy: that is not grading
    report: dict[str, Any] = {"items": len(pairs), "workers": workers, "deadline_s": deadline}
    report["one_thread"] = _twice(lambda: [grade(g, a) for g, a in pairs], len(pairs), grader._parsed.cache_clear)
    with Grader(workers, deadline) as pool:
        pool.grade_all([("1", "x")] * 4 * workers)  # start the processes: that is not grading
        report["pool"] = _twice(lambda: pool.grade_all(pairs), len(pairs))
    report["pool_to_one_thread"] = report["pool"]["answers_per_s"] / report["one_thread"]["answers_per_s"]
    report["hostile"] = _hostile_report(workers, deadline, hostile(count, seed))
    return report | {"machine": machine()}


def _twice(
    call: Callable[[], list[MathGrade]], count: int, forget: Callable[[], None] = lambda: None
) -> dict[str, Any]:
    forget()
    (cold, verdicts), (warm, _) = timed(call), timed(call)
    speed = {"answers_per_s": count / cold, "answers_per_s_warm": count / warm}
    by = dict(sorted(Counter(v.by or v.status for v in verdicts).items()))
    return speed | {"correct": sum(v.correct for v in verdicts), "by": by}


def _hostile_report(workers: int, deadline: float, strings: Sequence[str]) -> dict[str, Any]:
    """``over``: answers that took more processor time than the deadline and what a kill may add to it."""
    began = time.perf_counter()
    with Grader(workers, deadline) as pool:
        grades = pool.grade_all([("\\frac{1}{2}", text) for text in strings])
        slowest, over = pool.slowest, pool.over
    return {
        "strings": len(strings),
        "slowest_cpu_s": slowest,
        "over": over,
        "statuses": dict(sorted(Counter(g.status for g in grades).items())),
        "right": sum(g.correct for g in grades),
        "wall_s": time.perf_counter() - began,
    }
