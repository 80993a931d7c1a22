"""Demonstrations from GSM8K's published solutions: a line for each step, with scripted errors.

The published ``Natalia sold 48/2 = <<48/2=24>>24 clips in May.`` becomes the line ``Natalia sold 48/2 = 24
clips in May.``, whose hint is ``compute 48/2``; ``#### 72`` becomes ``\\boxed{72}``. A scripted error swaps
an operation for its opposite or is off by 1 or 10, and later lines are computed from the wrong result.
Problems with annotations that are wrong are left out.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
from r3l.envs.base.answers import WrongLine
from r3l.envs.base.experts import ErrorModel
from r3l.envs.math.task_sets import datasets

from r3l.core.task import Task

NAME = "gsm8k_train"
SPLIT = "sft"
_ANNOTATED = re.compile(r"<<([^<>=]+)=([^<>=]+)>>")
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?|\.\d+")
# The formula in front of an annotation, which repeats it: `0.2 x 50 = $`. An x next to a letter is no sign.
_SAID = re.compile(r"(?:[\d\s.,$%()+\-−–*/×÷]|(?<![A-Za-z])[xX](?![A-Za-z]))*=\s*(\$?)\s*\Z")
_OPPOSITE = {"+": "-", "-": "+", "*": "+", "/": "*"}
_OPERATORS: Mapping[type[ast.AST], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_SLIPS = (-10, -1, 1, 10)  # as in r3l.envs.math.task_sets.arithmetic
_PLACES = 2  # decimals of a recomputed number


@cache
def tasks() -> tuple[Task, ...]:
    """GSM8K's training problems of the share ``sft`` with usable solutions, in their published order.

    A payload has ``steps``, as JSON. A step is a list of parts: text, or [expression, result, "$" or ""].
    Cached. Raises DataError if the data is missing.
    """
    solutions = datasets.solutions(NAME)
    usable = []
    for p in datasets.load(NAME):
        if datasets.share_of(p) != SPLIT:
            continue
        steps = _steps(solutions[p.id], p.gold)
        if steps is not None:
            payload = {"problem": p.problem, "answer": p.gold, "steps": steps}
            usable.append(Task(p.id, "math", SPLIT, p.lang, payload))
    return tuple(usable)


def task(index: int) -> Task:
    """Task ``index`` (from 0, unbounded) of :func:`tasks`; after the last one they repeat."""
    return tasks()[index % len(tasks())]


def solution(task: Task) -> list[str]:
    """The lines of a correct response to one of :func:`tasks`, each with its line break; the box is last."""
    return [*(_line(parts, {}) for parts in task.payload["steps"]), _answer(task.payload["answer"])]


def write(task: Task, prefix: Sequence[str], error_model: ErrorModel, rng: np.random.Generator) -> list[str]:
    """The lines of a complete response: ``prefix``, lines of the solution, then lines with scripted errors.

    Each new line has an error with probability ``error_model.rate``. A systematic error swaps an operation
    for its opposite, any other is off by 1 or 10; later lines compute with the wrong result. An error model
    that overlooks ends before the last computed step, unless that is the first or in ``prefix``.
    """
    lines = list(prefix)
    if lines and not lines[-1].endswith("\n"):
        return lines
    steps = task.payload["steps"]
    last = max(number for number, parts in enumerate(steps) if _expressions(parts))
    wrong: dict[str, str] = {}  # wrong numbers by the right ones: later steps are computed from them
    result = ""
    left_out = False
    for number, parts in enumerate(steps):
        given = number < len(prefix)
        left_out = error_model.overlooks and number == last and number > 0 and not given
        if left_out:
            break
        error = None
        if not given and rng.random() < error_model.rate:
            error = _error(parts, wrong, error_model, rng)
        line = _line(parts, wrong, error)
        if not given:
            lines.append(line)
        right = _result(parts)
        result = wrong.get(right, right) or result

    # Without the last computed step, the answer is the result before it.
    if not left_out:
        result = wrong.get(task.payload["answer"], task.payload["answer"])
    return [*lines, _answer(result)]


def first_wrong_line(task: Task, lines: Sequence[str]) -> WrongLine | None:
    """The first line that differs from the solution; its correction is the operation due, without the result.

    It compares texts, so that it is of use for scripted lines only. ``lines``: at least one. None if all
    lines are right.
    """
    steps = task.payload["steps"]
    for k, expected in enumerate(solution(task)):
        written = lines[k].strip() if k < len(lines) else ""
        if written == expected.strip():
            continue
        computations = _expressions(steps[k]) if k < len(steps) else []
        due = computations[0] if computations else ""
        if written.startswith("\\boxed"):
            cause = "a step is left out" if due else "another answer than the last result"
        else:
            cause = "wrong result" if f"{due} =" in written else "wrong operation"
        correction = f"compute {due}" if due else "give the last result"
        return WrongLine(min(k, len(lines) - 1), cause, correction)
    return None


def _steps(solution: str, gold: str) -> list[list[Any]] | None:
    """The steps of a published solution.

    None if there are none, if an annotation is wrong, or if no step has the gold answer as its result.
    """
    *lines, _ = solution.strip().splitlines()  # the last line is the answer
    steps = []
    for line in lines:
        if line.strip():
            parts = _parts(line.strip())
            if parts is None:
                return None
            steps.append(parts)
    if not any(_result(parts) == gold for parts in steps):
        return None
    return steps


def _parts(line: str) -> list[Any] | None:
    """A line as text and computations; None if an annotation is wrong or its result is not in the line."""
    parts: list[Any] = []
    end = 0
    for found in _ANNOTATED.finditer(line):
        expression = found[1].replace(" ", "")
        result = _plain(found[2])
        said = _NUMBER.match(line, found.end())
        value = _value(expression)
        if (
            value is None
            or said is None
            or _plain(said[0]) != result
            or abs(value - Fraction(result)) > Fraction(1, 100)
        ):
            return None
        # The text before the computation, without the formula that repeats it and without a dollar sign.
        text = line[end : found.start()].rstrip()
        dollar = "$" if text.endswith("$") else ""
        restated = _SAID.search(line[end : found.start()])
        if restated:
            text = line[end : end + restated.start()].rstrip()
            dollar = restated[1]
        else:
            text = text.removesuffix("$").rstrip()
        parts += [f"{text} " if text else "", [expression, result, dollar]]
        end = said.end()
    return [*parts, line[end:]] if parts else [line]


def _line(parts: Sequence[Any], wrong: dict[str, str], error: list[str] | None = None) -> str:
    """A step as a line, computed with the earlier results in ``wrong``; adds its own wrong result to them.

    ``error`` replaces the first computation: [expression, result].
    """
    written = []
    for part in parts:
        if isinstance(part, str):
            written.append(_with(part, wrong))
            continue
        _, right, dollar = part
        expression, result = error or _computed(part, wrong)
        error = None
        if result != right:
            wrong[right] = result
        written.append(f"{expression} = {dollar}{result}")
    return "".join(written) + "\n"


def _computed(part: Sequence[str], wrong: Mapping[str, str]) -> list[str]:
    """A computation again, as [expression, result], from the numbers in ``wrong``."""
    expression = _with(part[0], wrong)
    value = None if expression == part[0] else _value(expression)
    return [expression, part[1] if value is None else _written(value)]


def _error(
    parts: Sequence[Any], wrong: Mapping[str, str], error_model: ErrorModel, rng: np.random.Generator
) -> list[str] | None:
    """A wrong version of a step's first computation.

    None without a computation, or if its result is not positive.
    """
    first = next((part for part in parts if not isinstance(part, str)), None)
    if first is None:
        return None
    expression, result = _computed(first, wrong)
    signs = [k for k, sign in enumerate(expression) if sign in _OPPOSITE and k]
    systematic = bool(signs) and rng.random() < error_model.systematic
    # Both draws are always made, so that later draws do not depend on the kind of error.
    place = int(rng.integers(len(signs) or 1))
    slip = int(rng.choice(_SLIPS))
    if systematic:
        k = signs[place]
        expression = expression[:k] + _OPPOSITE[expression[k]] + expression[k + 1 :]
        value = _value(expression)
    else:
        value = Fraction(result) + slip
    if value is None or value <= 0:
        return None
    return [expression, _written(value)]


def _expressions(parts: Sequence[Any]) -> list[str]:
    return [part[0] for part in parts if not isinstance(part, str)]


def _result(parts: Sequence[Any]) -> str:
    """The result of the last computation of a step; "" without any."""
    return next((str(part[1]) for part in reversed(parts) if not isinstance(part, str)), "")


def _with(text: str, wrong: Mapping[str, str]) -> str:
    """``text`` with wrong numbers instead of the right ones."""
    return _NUMBER.sub(lambda found: wrong.get(_plain(found[0]), found[0]), text)


def _plain(number: str) -> str:
    """A number in the form that results are compared in: 1,200.50 is 1200.5."""
    bare = number.strip().replace(",", "").lstrip("$")
    try:
        return _written(Fraction(bare))
    except ValueError:
        return bare


def _written(value: Fraction) -> str:
    if value.denominator == 1:
        return str(value.numerator)
    return f"{float(value):.{_PLACES}f}".rstrip("0").rstrip(".")


def _value(expression: str) -> Fraction | None:
    """The value of an expression of numbers, + - * / and brackets; None for anything else."""
    try:
        return _evaluated(ast.parse(expression, mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, KeyError):
        return None


def _evaluated(node: ast.expr) -> Fraction:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return Fraction(str(node.value))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_evaluated(node.operand)
    if isinstance(node, ast.BinOp):
        return _OPERATORS[type(node.op)](_evaluated(node.left), _evaluated(node.right))
    raise ValueError("no arithmetic")


def _answer(result: str) -> str:
    return f"\\boxed{{{result}}}"
