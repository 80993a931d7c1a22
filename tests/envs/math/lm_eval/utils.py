"""lm-eval's side of the problem sets: the records, prompt, extraction and grader of ``r3l evaluate``.

lm-eval loads this file by its path, from the folder of the task definitions; r3l must be installed in the same
environment.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from r3l.envs.base.answers import extract
from r3l.envs.math.engine.grader_process import Grader
from r3l.envs.math.task_sets import datasets
from r3l.envs.math.text.dialogue import BOXED


def load(set_name: str, **_: Any) -> dict[str, Any]:
    """The frozen set as a dataset with one split; further keywords are lm-eval's metadata."""
    from datasets import Dataset

    fields = ("id", "problem", "gold", "source", "sha256")
    return {"test": Dataset.from_list([{f: getattr(p, f) for f in fields} for p in datasets.load(set_name)])}


def prompt(doc: dict[str, Any]) -> str:
    """The user message of option ``ask: boxed``."""
    return f"{doc['problem']}\n\n{BOXED}"


def grades(doc: dict[str, Any], results: list[str]) -> dict[str, float]:
    """Strict and flexible grades of one response."""
    rules = ("strict", "flexible")
    return {rule: float(_grader().grade(doc["gold"], extract(results[0], rule)).correct) for rule in rules}


@cache
def _grader() -> Grader:
    """One for the process: it keeps a grading process, which ends with this one."""
    return Grader()
