"""Templated word problems that a nano model can learn: the solution has a line for each operation.

Ann has 12 apples. Ann finds 7. Ann eats 5. How many apples are left?
12 + 7 = 19
19 - 5 = 14
\boxed{14}
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from r3l.envs.base.answers import WrongLine
from r3l.envs.base.experts import ErrorModel
from r3l.envs.math.task_sets.published import Row

from r3l.core.errors import DataError
from r3l.core.seeds import generator
from r3l.core.task import Task

NAMES = ("Ann", "Ben", "Cora", "Dan", "Eve", "Finn")
THINGS = ("apples", "books", "coins", "pens", "shells", "stamps")
SIGN_OF = {"buys": "+", "finds": "+", "wins": "+", "eats": "-", "gives": "-", "loses": "-"}
MISREAD = ("finds", "gives")  # verbs that a systematic error reads as their opposite
LARGEST = 50  # for every number, so that a small model can learn all sums
# A hash of the text decides which splits a problem can be in, so that none is in two. "validation" shares
# the hashes of "train"; r3l.envs.math.task_sets.tasks keeps their problems apart. "warmstart" (the tasks of
# SFT) is in the seed addresses of the stored model's training data, so that it cannot be renamed.
BUCKETS = {"test": range(2), "train": range(2, 6), "validation": range(2, 6), "warmstart": range(6, 10)}


@dataclass(frozen=True)
class Operation:
    """A sentence of the story, such as "finds 7"."""

    verb: str
    operand: int

    @property
    def sign(self) -> str:
        return SIGN_OF[self.verb]

    def applied(self, value: int, sign: str | None = None) -> int:
        """The value after the operation on ``value``; ``sign``, "+" or "-", replaces the operation's sign."""
        return value + self.operand if (sign or self.sign) == "+" else value - self.operand


def problem(split: str, number: int, operations: int) -> Task:
    """Word problem ``number`` of ``split``, one of BUCKETS, with ``operations`` operations.

    Its group is ``easy`` for up to two operations, else ``hard``. The same arguments, its seed address, give
    the same problem. A problem whose hash belongs to another split is drawn again. The id is a hash of the
    text. Solution and critic read the operations in the payload.
    """
    rng = generator("arithmetic", split, number, operations)
    while True:
        name = str(rng.choice(NAMES))
        thing = str(rng.choice(THINGS))
        start = int(rng.integers(2, LARGEST))
        value = start
        drawn: list[Operation] = []
        for _ in range(operations):
            # Only operations that keep the value between 0 and LARGEST.
            room = {"+": LARGEST - value, "-": value}
            verb = str(rng.choice([verb for verb, sign in SIGN_OF.items() if room[sign] > 0]))
            drawn.append(Operation(verb, int(rng.integers(1, room[SIGN_OF[verb]] + 1))))
            value = drawn[-1].applied(value)
        story = " ".join(f"{name} {o.verb} {o.operand}." for o in drawn)
        text = f"{name} has {start} {thing}. {story} How many {thing} are left?"
        digest = hashlib.sha256(text.encode()).hexdigest()
        if int(digest, 16) % 10 in BUCKETS[split]:
            payload = {
                "problem": text,
                "answer": str(value),
                "start": start,
                "operations": [[o.verb, o.operand] for o in drawn],
            }
            group = "easy" if operations <= 2 else "hard"
            return Task(f"arithmetic/{digest[:12]}", "math", split, group, payload)


def operations(task: Task) -> list[Operation]:
    """The operations in the payload of a problem of this module. Raises DataError for any other task."""
    pairs = task.payload.get("operations")
    if pairs is None:
        raise DataError(f"task {task.id} is no arithmetic problem: its payload has no 'operations'")
    return [Operation(str(verb), int(operand)) for verb, operand in pairs]


def solution(task: Task) -> list[str]:
    """The lines of a correct response, each with its line break; the boxed answer is last.

    Raises DataError for a task that this module did not generate.
    """
    lines = []
    due = operations(task)
    value = int(task.payload["start"])
    for operation in due:
        lines.append(_line(value, operation.sign, operation.operand, operation.applied(value)))
        value = operation.applied(value)
    return [*lines, _answer(value)]


def next_line(task: Task, lines: Sequence[str], error_model: ErrorModel, rng: np.random.Generator) -> str:
    """The line that a solver with the errors of ``error_model`` writes after ``lines``, right or wrong.

    A systematic error reads the verbs in MISREAD as their opposite (at other verbs the line is right), any
    other is a result off by 1 or 10. The line computes with the result of the line before. If
    ``error_model.overlooks``, the last operation is left out, unless it is the only one. After the last
    operation, the boxed answer. Raises DataError for a task that this module did not generate.
    """
    due = operations(task)
    done = len(lines)
    value = int(lines[-1].rpartition("=")[2]) if lines else int(task.payload["start"])
    if done == len(due) or (error_model.overlooks and done == len(due) - 1 and done > 0):
        return _answer(value)
    operation = due[done]
    sign = operation.sign
    result = operation.applied(value)
    if rng.random() < error_model.rate:
        if rng.random() < error_model.systematic:
            sign = {"+": "-", "-": "+"}[sign] if operation.verb in MISREAD else sign
            result = operation.applied(value, sign)
        else:
            result += int(rng.choice([-10, -1, 1, 10]))
    return _line(value, sign, operation.operand, result)


def write(task: Task, prefix: Sequence[str], error_model: ErrorModel, rng: np.random.Generator) -> list[str]:
    """The lines of a complete response: ``prefix``, then lines by ``next_line`` up to the boxed answer.

    A ``prefix`` that ends with the answer is returned as it is.
    """
    lines = list(prefix)
    while not lines or lines[-1].endswith("\n"):
        lines.append(next_line(task, lines, error_model, rng))
    return lines


def first_wrong_line(task: Task, lines: Sequence[str]) -> WrongLine | None:
    """The first line that differs from the solution; its correction is the operation due, without the result.

    ``lines``: at least one line of a response; one that ends too early is wrong at its last line. None if
    all lines are right, and for problems that this module did not generate.
    """
    if "operations" not in task.payload:
        return None
    # Compare line by line; None means the answer. ``value``: the right result so far.
    right = solution(task)
    value = int(task.payload["start"])
    for k, (operation, expected) in enumerate(zip([*operations(task), None], right, strict=True)):
        written = lines[k].strip() if k < len(lines) else ""
        line = min(k, len(lines) - 1)  # a response that ends too early is wrong at its last line
        if written == expected.strip():
            if operation is not None:
                value = operation.applied(value)
        elif operation is None:
            return WrongLine(line, "another answer than the last result", "give the last result")
        else:
            if written.startswith("\\boxed"):
                cause = f"left out: {operation.verb} {operation.operand}"
            elif written.partition("=")[0].strip() == expected.partition("=")[0].strip():
                cause = "wrong result"
            else:
                cause = f"misread: {operation.verb} {operation.operand}"
            return WrongLine(line, cause, f"compute {value} {operation.sign} {operation.operand}")
    return None


def _line(value: int, sign: str, operand: int, result: int) -> str:
    return f"{value} {sign} {operand} = {result}\n"


def _answer(value: int) -> str:
    return f"\\boxed{{{value}}}"


@dataclass(frozen=True)
class Templated:
    """A set of word problems generated from templates, in the file layout of the published set ``layout``.

    Its problems are ``first`` to ``first + count - 1`` of ``split`` (see ``problem``).
    """

    layout: str
    split: str
    first: int
    count: int


TEMPLATED = {  # configs/task_sets/math_nano.yaml uses the numbers from 0; sizes: our choice, as there
    "gsm8k_templated": Templated("gsm8k", "test", 10_000, 200),
    "gsm8k_templated_train": Templated("gsm8k", "train", 10_000, 256),
    "math500_templated": Templated("math500", "test", 20_000, 200),
    "math_templated_train": Templated("math_train", "train", 20_000, 256),
    "dapo_templated_raw": Templated("dapo_raw", "train", 30_000, 456),
    "deepmath_templated_raw": Templated("deepmath_raw", "train", 40_000, 456),
}


def rows(templated: Templated) -> Iterator[Row]:
    """The problems of a set as rows of its published layout, in the order of their numbers.

    Problems with an even number have two operations, the others three.
    """
    for number in range(templated.first, templated.first + templated.count):
        yield _LAYOUTS[templated.layout](problem(templated.split, number, 2 + number % 2))


def _gsm8k(task: Task) -> Row:
    return {"question": task.payload["problem"], "answer": f"{_worked(task)}\n#### {task.payload['answer']}"}


def _math500(task: Task) -> Row:
    return {
        "unique_id": f"{task.id}.json",
        "problem": task.payload["problem"],
        "answer": task.payload["answer"],
    }


def _math_train(task: Task) -> Row:
    return {"problem": task.payload["problem"], "solution": _worked(task)}


def _dapo(task: Task) -> Row:
    prompt = [{"role": "user", "content": task.payload["problem"]}]
    return {"prompt": prompt, "reward_model": {"ground_truth": task.payload["answer"]}}


def _deepmath(task: Task) -> Row:
    return {"question": task.payload["problem"], "final_answer": task.payload["answer"]}


def _worked(task: Task) -> str:
    return "".join(solution(task))


_LAYOUTS: dict[str, Callable[[Task], Row]] = {
    "gsm8k": _gsm8k,
    "math500": _math500,
    "math_train": _math_train,
    "dapo_raw": _dapo,
    "deepmath_raw": _deepmath,
}
