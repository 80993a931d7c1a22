"""The task sets of mathematics: generated templated problems, and published sets frozen by their sha256.

``NAME/SPLIT`` of configs/task_sets/math_NAME.yaml; ``SET/test`` and ``SET/train`` of ``datasets``. ``python
-m r3l.envs.math.task_sets.tasks DIR`` freezes all sets again from a folder with all files, after an intended
change of one.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from r3l.envs.base import task_sets
from r3l.envs.base.package import ConstantAnswer
from r3l.envs.base.task_sets import DefinedTaskSets, in_id_order
from r3l.envs.math.task_sets import datasets
from r3l.envs.math.task_sets.arithmetic import TEMPLATED, problem, solution

from r3l.core.errors import DataError
from r3l.core.task import Task
from r3l.files.writing import write_text_atomic

PACKAGED = ("gsm8k", "math500", "olympiadbench")  # MIT: may be redistributed


class MathDefinition(task_sets.TaskSetDefinition):
    """A generated task set, as configured in configs/task_sets/math_NAME.yaml.

    ``splits``: number of problems by split and group. ``operations``: number of operations in a problem, by
    group.
    """

    splits: Mapping[str, Mapping[str, int]]
    operations: Mapping[str, int]


class MathTaskSets(DefinedTaskSets[MathDefinition]):
    """The task sets of mathematics: generated ones, whose definitions are committed, and published ones.

    Published sets are checked when they are read, against the sha256 in ``sets.json``.
    """

    env = "math"
    definition_type = MathDefinition
    others = dict.fromkeys(datasets.SETS, ("train", "test")) | dict.fromkeys(
        datasets.DIVIDED, ("train", "test", *datasets.SHARES)
    )

    def tasks(self, task_set: str) -> list[Task]:
        name, split = self.parts(task_set)
        return self.regenerate(name, split) if name in self.others else super().tasks(task_set)

    def committed_hash(self, task_set: str) -> str:
        """The committed sha256 of a task set; ``unfrozen`` for a set without one.

        Runs on such a set can be planned, but loading it is an error.
        """
        name, _ = self.parts(task_set)
        if name in self.others:
            return str(datasets.frozen().get(name, {"sha256": "unfrozen"})["sha256"])
        return super().committed_hash(task_set)

    def regenerate(self, name: str, split: str) -> list[Task]:
        if name not in self.others:
            return list(_generated(name, split))
        tasks = []
        for r in datasets.load(name):
            if split in datasets.SHARES and datasets.share_of(r) != split:
                continue
            payload = {"problem": r.problem, "answer": r.gold}
            tasks.append(Task(r.id, self.env, split, r.lang, payload))
        return tasks

    def spare_task(self, name: str, index: int) -> Task:
        """Problem ``index`` (from 0) of the supervised stage (SFT), in no split of task set ``name``.

        As ``index`` grows, the number of operations goes from the task set's fewest to its most, again and
        again.
        """
        counts = self.definition(name).operations.values()
        fewest = min(counts)
        kinds = max(counts) - fewest + 1
        return problem("warmstart", index, fewest + index % kinds)

    def validate(self, task: Task) -> None:
        """Raise DataError unless the engine accepts the worked solution of ``task``, a generated problem."""
        from r3l.envs.math import MathOptions
        from r3l.envs.math.engine.answer_engine import create

        engine = create(MathOptions())
        engine.reset(task)
        for line in solution(task):
            now = engine.step(line)
        if not now.success:
            raise DataError(f"task {task.id}: its solution {solution(task)} is not accepted")

    def build(self, name: str) -> Path:
        """Generate the task set ``name`` and write its committed file; returns its path.

        A set of training data or of templated problems is cleaned and frozen instead (:func:`freeze`).
        """
        if name in datasets.CLEANING or name in TEMPLATED:
            return freeze(name, None)
        return super().build(name)

    def constant_answer(self, task_set: str) -> ConstantAnswer:
        """The most frequent gold answer of the task set, and the success rates of always giving it.

        It is one answer for all groups; the rates are by group and for ``all``. Answers are equal if their
        texts are. Reads all tasks.
        """
        answers = [(task.group, str(task.payload["answer"])) for task in self.tasks(task_set)]
        ((best, _),) = Counter(answer for _, answer in answers).most_common(1)
        groups: dict[str, list[bool]] = {"all": [answer == best for _, answer in answers]}
        for group, answer in answers:
            groups.setdefault(group, []).append(answer == best)
        return ConstantAnswer(best, {group: sum(right) / len(right) for group, right in groups.items()})


TASK_SETS = MathTaskSets()


@lru_cache(maxsize=8)
def _generated(name: str, split: str) -> tuple[Task, ...]:
    """The problems of a split of a generated task set, sorted by id.

    None is in an earlier split.
    """
    defined = TASK_SETS.definition(name)
    names = list(defined.splits)
    taken = {task.id for before in names[: names.index(split)] for task in _generated(name, before)}
    problems: dict[str, Task] = {}
    for group, count in defined.splits[split].items():
        number = 0
        size = len(problems) + count
        while len(problems) < size:
            task = problem(split, number, defined.operations[group])
            if task.id not in taken:
                problems.setdefault(task.id, task)
            number += 1
    return tuple(in_id_order(problems.values()))


def freeze(name: str, source: Path | None) -> Path:
    """Write number of rows and sha256 of the set ``name`` to ``sets.json``; returns that file.

    Training data is written as two parts, with the report of its cleaning. ``source``: a folder of data files
    (default: ``$R3L_MATH``, else the hub). Raises DataError for a set that cannot be found or read.
    """
    if name in datasets.CLEANING:
        parts, report = datasets.cleaned(name, source)
        content = {part: _frozen(problems) for part, problems in parts.items()}
        content[name]["cleaning"] = report.as_dict()
    else:
        content = {name: _frozen(datasets.read_set(name, source))}
    _write(datasets.frozen() | content)
    return datasets.FROZEN


def freeze_all(folder: Path) -> None:
    """Freeze all sets except DeepMath from a folder of data files.

    Writes ``sets.json`` and the data files that this package contains (``data/SET.jsonl.gz``).
    """
    sets = {name: datasets.read_set(name, folder) for name in datasets.SETS if name not in datasets.CLEANED}
    published = {datasets.key_of(p.problem) for p in datasets.read_set("dapo_raw", folder)}
    content = {name: _frozen(problems) for name, problems in sets.items()}
    for name in datasets.TEST_SETS:
        content[name]["in_dapo"] = [p.id for p in sets[name] if datasets.key_of(p.problem) in published]
    _write(datasets.frozen() | content)
    for name in PACKAGED:
        lines = "".join(json.dumps([p.id.partition("/")[2], p.problem, p.gold]) + "\n" for p in sets[name])
        path = datasets.PACKAGED / f"{name}.jsonl.gz"
        # Without a date, so that the bytes depend only on the set.
        path.write_bytes(gzip.compress(lines.encode(), 9, mtime=0))
    for name in ("dapo", "dapo_templated", "deepmath_templated"):
        freeze(name, folder)


def _frozen(problems: list[datasets.MathProblem]) -> dict[str, Any]:
    return {"rows": len(problems), "sha256": datasets.problems_sha256(problems)}


def _write(content: dict[str, dict[str, Any]]) -> None:
    write_text_atomic(datasets.FROZEN, json.dumps(content, indent=1) + "\n")
    datasets.frozen.cache_clear()


if __name__ == "__main__":
    freeze_all(Path(sys.argv[1]))
