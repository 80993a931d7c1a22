"""Question sets of tier nano: templated problems in rows laid out as a published set's, and read, cleaned, split and
frozen as its rows are. They need no download, and a nano model can learn them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from r3l.envs.math.arithmetic import problem, solution
from r3l.envs.math.rows import Row

from r3l.core.task import Task


@dataclass(frozen=True)
class Templated:
    """``layout``: the published set whose rows these are like. ``split``, ``first`` and ``count``: which problems of
    r3l.envs.math.arithmetic, where a split says who may see a problem and numbers have no end.
    """

    layout: str
    split: str
    first: int
    count: int


TEMPLATED = {  # numbers from 0 on are those of configs/task_sets/math_nano.yaml; sizes: our choice, as there
    "gsm8k_nano": Templated("gsm8k", "test", 10_000, 200),
    "gsm8k_nano_train": Templated("gsm8k", "train", 10_000, 256),
    "math500_nano": Templated("math500", "test", 20_000, 200),
    "math_nano_train": Templated("math_train", "train", 20_000, 256),
    "dapo_nano_raw": Templated("dapo_raw", "train", 30_000, 456),
    "deepmath_nano_raw": Templated("deepmath_raw", "train", 40_000, 456),
}


def rows(templated: Templated) -> Iterator[Row]:
    """The rows of a set; problems of two and of three operations take turns."""
    for number in range(templated.first, templated.first + templated.count):
        yield _LAYOUTS[templated.layout](problem(templated.split, number, 2 + number % 2))


def _gsm8k(task: Task) -> Row:
    return {"question": task.payload["problem"], "answer": f"{_worked(task)}\n#### {task.payload['answer']}"}


def _math500(task: Task) -> Row:
    return {"unique_id": f"{task.id}.json", "problem": task.payload["problem"], "answer": task.payload["answer"]}


def _math_train(task: Task) -> Row:
    return {"problem": task.payload["problem"], "solution": _worked(task)}


def _dapo(task: Task) -> Row:
    asked = [{"role": "user", "content": task.payload["problem"]}]
    return {"prompt": asked, "reward_model": {"ground_truth": task.payload["answer"]}}


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
