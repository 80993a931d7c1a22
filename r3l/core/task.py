"""Task: one problem of one environment, and the order in which training draws tasks."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from r3l.core.errors import DataError
from r3l.core.seeds import generator

T = TypeVar("T")


@dataclass(frozen=True)
class Task:
    """One problem of the environment ``env``.

    - ``id``: unique within its environment and the same on every machine (task sets list ids).
    - ``split``: part of the environment's tasks that it belongs to, such as ``train``.
    - ``group``: the stratum by which results are reported (``easy`` or ``hard``, a task family, ...).
    - ``payload``: what the environment needs to start the task, as JSON, since it crosses processes.
    - ``occurrence``: how often the task was drawn earlier in the same training step.
    """

    id: str
    env: str
    split: str
    group: str = ""
    payload: Mapping[str, Any] = field(default_factory=dict)
    occurrence: int = 0

    @property
    def address(self) -> str:
        """The task's part of a seed address: its id, followed by ``occurrence`` if that is not 0.

        So a task that occurs twice in one step is played with other draws the second time.
        """
        # A single string, since addresses are also sorted.
        return f"{self.id}\x1f{self.occurrence}" if self.occurrence else self.id


def check_unique(tasks: Sequence[Task], task_set: str) -> None:
    """Raise DataError if two tasks share an id: ids are part of seed addresses and identify results.

    ``task_set``: its name, for the message.
    """
    repeated = {id_: count for id_, count in Counter(task.id for task in tasks).items() if count > 1}
    if repeated:
        shown = ", ".join(f"{id_!r} ({count} times)" for id_, count in list(repeated.items())[:3])
        more = f" and {len(repeated) - 3} more" if len(repeated) > 3 else ""
        raise DataError(
            f"task set {task_set} has duplicate task ids: {shown}{more}. Give every task its own id (draws "
            "depend on it), or remove the copies"
        )


def shared_problems(tasks: Iterable[Task], others: Iterable[Task]) -> list[Task]:
    """The ``tasks`` whose problem also occurs in ``others``, in their order.

    Two problems are the same if their payloads are equal or, for tasks without payload, their ids.
    """

    def problem(task: Task) -> str:
        # Ids of drawn problems contain the name of the split, so they differ for equal problems.
        return json.dumps(dict(task.payload), sort_keys=True) if task.payload else task.id

    known = {problem(task) for task in others}
    return [task for task in tasks if problem(task) in known]


def tasks_of_step(tasks: Sequence[T], seed: int, number: int, count: int, extra: int = 0) -> list[T]:
    """The ``count`` tasks of training step ``number`` (from 1); the same for the same ``seed``.

    Steps take consecutive slices of ``tasks`` in a shuffled order. Each epoch (one pass over all) has another
    order; a step at its end goes on into the next one. ``extra`` > 0: the number of an extra sampling round
    of the step, which takes its tasks (at most all, each once) from a separate shuffle, so that the tasks of
    later steps do not depend on it. Raises ValueError for no tasks.
    """
    if not tasks:
        raise ValueError("no tasks to train on")
    if extra:
        return [tasks[i] for i in generator(seed, "extra", number, extra).permutation(len(tasks))[:count]]
    # Shuffle the epochs that this step touches, and take its slice of them.
    order: list[T] = []
    first = (number - 1) * count
    last = number * count
    for epoch in range(first // len(tasks), (last - 1) // len(tasks) + 1):
        order += [tasks[i] for i in generator(seed, "order", epoch).permutation(len(tasks))]
    skip = first % len(tasks)
    return order[skip : skip + count]


def with_occurrences(tasks: Iterable[Task], drawn: Counter[str]) -> list[Task]:
    """Copies of ``tasks`` whose ``occurrence`` says how often each was drawn before in this step.

    ``drawn``: number of draws so far by task id; it is updated in place.
    """
    numbered = []
    for task in tasks:
        numbered.append(replace(task, occurrence=drawn[task.id]))
        drawn[task.id] += 1
    return numbered
