"""Task: one problem of one environment, and the order in which training meets them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from r3l.core.errors import DataError
from r3l.core.seeds import generator

T = TypeVar("T")


@dataclass(frozen=True)
class Task:
    """One problem.

    ``id`` is unique within its environment and stable across machines (task sets list ids), ``group`` is
    the stratum that results are reported by (``easy``/``hard``, a task family, ...), ``payload`` is
    whatever the environment needs to start it, JSON-serialisable so that it crosses process borders.
    ``occurrence``: how often the task stood in its training step before.
    """

    id: str
    env: str
    split: str
    group: str = ""
    payload: Mapping[str, Any] = field(default_factory=dict)
    occurrence: int = 0

    @property
    def address(self) -> str:
        """Its part of the address of a draw. A task that stands in a step again has one of its own: its group would
        else be the same rollouts, and weigh double. One text, as addresses are also sorted."""
        return f"{self.id}\x1f{self.occurrence}" if self.occurrence else self.id


def check_unique(tasks: Sequence[Task], task_set: str) -> None:
    """Raise DataError where two tasks have one id. Draws are addressed by it, and results are kept by it."""
    repeated = {id_: count for id_, count in Counter(task.id for task in tasks).items() if count > 1}
    if repeated:
        shown = ", ".join(f"{id_!r} ({count} times)" for id_, count in list(repeated.items())[:3])
        more = f" and {len(repeated) - 3} more" if len(repeated) > 3 else ""
        raise DataError(
            f"task set {task_set} has task ids that stand more than once: {shown}{more}. Give every task an id of its "
            "own (its draws follow from it), or leave the copies out"
        )


def tasks_of_step(tasks: Sequence[T], seed: int, number: int, count: int, extra: int = 0) -> list[T]:
    """The tasks of step ``number`` (from 1): consecutive slices of a shuffle per pass over the task set.

    Extra rounds draw from a shuffle of their own, so that the slices of later steps do not depend on them.
    """
    if extra:
        return [tasks[i] for i in generator(seed, "extra", number, extra).permutation(len(tasks))[:count]]
    order: list[T] = []
    first, last = (number - 1) * count, number * count
    for epoch in range(first // len(tasks), (last - 1) // len(tasks) + 1):
        order += [tasks[i] for i in generator(seed, "order", epoch).permutation(len(tasks))]
    skip = first - first // len(tasks) * len(tasks)
    return order[skip : skip + count]


def with_occurrences(tasks: Iterable[Task], drawn: Counter[str]) -> list[Task]:
    """``tasks`` of a step, each with its occurrence; ``drawn`` counts by id what the step has had, and is brought up to
    date."""
    numbered = []
    for task in tasks:
        numbered.append(replace(task, occurrence=drawn[task.id]))
        drawn[task.id] += 1
    return numbered
