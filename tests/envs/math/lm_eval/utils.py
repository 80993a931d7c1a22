"""lm-eval's side of the problem sets: the records, prompt, extraction and grader of ``r3l evaluate``.

lm-eval loads this file by its path, from beside the task definitions; r3l must be installed in the same environment.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from r3l.envs.math import datasets
from r3l.envs.math.benchmarks import MathBenchmark

from r3l.core.benchmark import BenchmarkItem, Reply


def load(set_name: str, **_: Any) -> dict[str, Any]:
    """The frozen set as a dataset with one split; further keywords are lm-eval's metadata."""
    from datasets import Dataset

    fields = ("id", "problem", "gold", "source", "sha256")
    return {"test": Dataset.from_list([{f: getattr(p, f) for f in fields} for p in datasets.load(set_name)])}


def prompt(doc: dict[str, Any]) -> str:
    """The user message of the standard protocol."""
    return _benchmark().opening(_item(doc))[0].content


def grades(doc: dict[str, Any], results: list[str]) -> dict[str, float]:
    """Strict and flexible grades of one response."""
    grading = _benchmark().grade(_item(doc), [Reply(results[0], "end", None)])
    return {rule: float(grade.correct) for rule, grade in grading.grades.items()}


def _item(doc: dict[str, Any]) -> BenchmarkItem:
    return BenchmarkItem(doc["id"], doc["source"], doc["problem"], doc["gold"], doc["sha256"])


@cache
def _benchmark() -> MathBenchmark:
    """One for the process: it keeps a grading process, which ends with this one."""
    return MathBenchmark()
