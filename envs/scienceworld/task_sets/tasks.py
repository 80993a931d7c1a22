"""Task sets of ScienceWorld: problems, splits and stored solutions.

``NAME/SPLIT`` of configs/task_sets/scienceworld_NAME.yaml has short problems with a stored solution;
``r3l/SPLIT`` and ``official/SPLIT`` are the selections of the paper's code and of ScienceWorld itself.
Listing a task set does not need the simulator.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator
from r3l.envs.base import task_sets
from r3l.envs.base.task_sets import DefinedTaskSets, DefinitionModel, in_id_order

from r3l.core.errors import ConfigError, DataError
from r3l.core.seeds import seed_of
from r3l.core.task import Task

OfficialSplit = Literal["train", "dev", "test"]
SOLUTIONS = Path(__file__).resolve().with_name("gold.json")

# Variations of each task type in scienceworld 1.2.3, in the order of its task numbers (getTaskMaxVariations).
VARIATIONS = {
    "boil": 30,
    "melt": 30,
    "freeze": 30,
    "change-the-state-of-matter-of": 30,
    "use-thermometer": 540,
    "measure-melting-point-known-substance": 436,
    "measure-melting-point-unknown-substance": 300,
    "power-component": 20,
    "power-component-renewable-vs-nonrenewable-energy": 20,
    "test-conductivity": 900,
    "test-conductivity-of-unknown-substances": 600,
    "find-living-thing": 300,
    "find-non-living-thing": 300,
    "find-plant": 300,
    "find-animal": 300,
    "grow-plant": 126,
    "grow-fruit": 126,
    "chemistry-mix": 32,
    "chemistry-mix-paint-secondary-color": 36,
    "chemistry-mix-paint-tertiary-color": 36,
    "lifespan-longest-lived": 125,
    "lifespan-shortest-lived": 125,
    "lifespan-longest-lived-then-shortest-lived": 125,
    "identify-life-stages-1": 14,
    "identify-life-stages-2": 10,
    "inclined-plane-determine-angle": 168,
    "inclined-plane-friction-named-surfaces": 1386,
    "inclined-plane-friction-unnamed-surfaces": 162,
    "mendelian-genetics-known-plant": 120,
    "mendelian-genetics-unknown-plant": 480,
}

# The 13 task types that R3L tests on; it trains on the other 17 (audit 3.4).
R3L_TEST = (
    "chemistry-mix-paint-tertiary-color",
    "find-animal",
    "find-non-living-thing",
    "freeze",
    "grow-fruit",
    "identify-life-stages-1",
    "inclined-plane-friction-unnamed-surfaces",
    "lifespan-longest-lived",
    "lifespan-longest-lived-then-shortest-lived",
    "measure-melting-point-unknown-substance",
    "mendelian-genetics-unknown-plant",
    "power-component-renewable-vs-nonrenewable-energy",
    "test-conductivity-of-unknown-substances",
)


def official_variations(task_type: str, split: str) -> range:
    """The variation numbers of ``split`` (train, dev or test) in ScienceWorld's own division of a task type.

    The first two quarters train, the third is dev, the rest test; a quarter is rounded down. Raises KeyError
    for an unknown task type or split.
    """
    count = VARIATIONS[task_type]
    quarter = count // 4
    ends = {"train": (0, 2 * quarter), "dev": (2 * quarter, 3 * quarter), "test": (3 * quarter, count)}
    return range(*ends[split])


def r3l_variations(task_type: str) -> range:
    """The variation numbers that the released code plays: the first half, rounded down (audit 3.4)."""
    return range(VARIATIONS[task_type] // 2)


def problem(task_type: str, variation: int, split: str, group: str | None = None) -> Task:
    """A problem as a task, with the simplifications of the released code ("easy").

    ``group``: its group in tables, by default the task type.
    """
    payload = {"task": task_type, "variation": variation, "simplifications": "easy"}
    return Task(f"{task_type}-{variation}", "scienceworld", split, group or task_type, payload)


def problem_of(problem_id: str, split: str = "", group: str | None = None) -> Task:
    """The problem with an id such as ``find-animal-12`` as a task, with the released code's simplifications.

    ``group``: its group in tables, by default the task type. Neither type nor variation is checked; raises
    ValueError if the id ends in no number.
    """
    task_type, _, variation = problem_id.rpartition("-")
    return problem(task_type, int(variation), split, group)


class TypeGroup(DefinitionModel):
    """A group of task types (``tasks``, such as find-animal) for which results are reported separately."""

    tasks: tuple[str, ...] = Field(min_length=1)


class ProblemSplit(DefinitionModel):
    """A split: ``counts`` problems of each group; its task types take turns.

    The problems come from the splits ``from`` (key) of ScienceWorld itself: train, dev, test. A split takes
    no problem of an earlier split in the definition.
    """

    source: tuple[OfficialSplit, ...] = Field(alias="from")
    counts: Mapping[str, int]


class ScienceWorldDefinition(task_sets.TaskSetDefinition):
    """Contents of configs/task_sets/scienceworld_NAME.yaml.

    ``groups``: task types by group. ``solve``: by official split, how many problems of each task type get a
    solution. ``max_actions``: length of the longest admitted solution. ``sft_from``: official splits from
    which SFT problems come.

    Validation fails for an unknown task type or group, and if ``sft_from`` or a split other than ``test``
    uses an official split that ``test`` uses.
    """

    groups: Mapping[str, TypeGroup]
    solve: Mapping[OfficialSplit, int]
    max_actions: int = Field(ge=1)
    splits: Mapping[str, ProblemSplit]
    sft_from: tuple[OfficialSplit, ...]

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for name, group in self.groups.items():
            unknown = sorted(set(group.tasks) - set(VARIATIONS))
            if unknown:
                raise ValueError(f"groups.{name}.tasks names unknown task types {', '.join(unknown)}")
        for name, split in self.splits.items():
            unknown = sorted(set(split.counts) - set(self.groups))
            if unknown:
                raise ValueError(f"splits.{name}.counts names unknown groups {', '.join(unknown)}")

        # Training problems must not come from an official split that test problems come from.
        tested = set(self.splits["test"].source) if "test" in self.splits else set()
        for name, split in self.splits.items():
            both = tested & set(split.source)
            if name != "test" and both:
                raise ValueError(f"splits {name} and test both draw from {min(both)!r}; separate them")
        if set(self.sft_from) & tested:
            raise ValueError("sft_from shares a split with splits.test; separate them")
        return self


class ScienceWorldTaskSets(DefinedTaskSets[ScienceWorldDefinition]):
    """The task sets of ScienceWorld.

    Those defined by a file of configs/task_sets have stored solutions. ``r3l`` and ``official`` have none:
    ``r3l`` is the released code's selection, 17 task types for training and the other 13 for testing,
    ``official`` ScienceWorld's own splits.
    """

    env = "scienceworld"
    definition_type = ScienceWorldDefinition
    others = {"r3l": ("train", "test"), "official": ("train", "dev", "test")}

    def regenerate(self, name: str, split: str) -> list[Task]:
        if name == "official":
            numbers = {t: official_variations(t, split) for t in VARIATIONS}
            return in_id_order(problem(t, v, split) for t in numbers for v in numbers[t])
        if name == "r3l":
            types = [t for t in VARIATIONS if (t in R3L_TEST) == (split == "test")]
            return in_id_order(problem(t, v, split) for t in types for v in r3l_variations(t))

        # Problems with a solution that no earlier split has; the task types of a group take turns.
        defined = self.definition(name)
        before = list(defined.splits)[: list(defined.splits).index(split)]
        taken = {task.id for earlier in before for task in self.regenerate(name, earlier)}
        tasks: list[Task] = []
        for group, count in defined.splits[split].counts.items():
            queues: list[list[str]] = []
            for task_type in defined.groups[group].tasks:
                candidates = _candidates(defined, task_type, defined.splits[split].source)
                queues.append([key for key in candidates if key not in taken])
            turns = []
            for row in zip_longest(*queues):
                turns += [key for key in row if key is not None]
            if len(turns) < count:
                raise ConfigError(
                    f"ScienceWorld task set {name}/{split}: {group} needs {count} of {len(turns)} problems"
                )
            tasks += [_with_solution(problem_id, split, group) for problem_id in turns[:count]]
        return in_id_order(tasks)

    def spare_task(self, name: str, index: int) -> Task:
        """SFT task ``index``: one of the problems with a solution that are in no split of task set ``name``.

        They are few: after the last one they begin again. Raises ConfigError for a negative index.
        """
        if index < 0:
            raise ConfigError(f"SFT task {index}: indices start at 0")
        problems = _spare_tasks(name)
        return problems[index % len(problems)]

    def validate(self, task: Task) -> None:
        """Play the stored solution, if there is one. Raises DataError if it does not reach score 100."""
        from r3l.envs.scienceworld.engine.simulator import ScienceWorldEngine

        if "solution" not in task.payload:
            return
        engine = ScienceWorldEngine()
        now = engine.reset(task)
        for action in task.payload["solution"]:
            now = engine.step(action)
        engine.close()
        if not now.success:
            raise DataError(f"ScienceWorld task {task.id}: its stored solution does not reach score 100")

    def sha256(self, tasks: Iterable[Task]) -> str:
        """Hex sha256 of id, group and payload of all ``tasks``, sorted by id."""
        digest = hashlib.sha256()
        for task in in_id_order(tasks):
            line = json.dumps([task.id, task.group, dict(task.payload)], sort_keys=True)
            digest.update(line.encode() + b"\n")
        return digest.hexdigest()

    def summary(self, tasks: Sequence[Task]) -> dict[str, Any]:
        content: dict[str, Any] = {"count": len(tasks), "sha256": self.sha256(tasks)}
        if all("solution" in task.payload for task in tasks):
            content["ids"] = [task.id for task in tasks]
        return content


TASK_SETS = ScienceWorldTaskSets()


@lru_cache(maxsize=8)
def _spare_tasks(name: str) -> list[Task]:
    """The problems with a solution that are in no split of ``name``, in random order."""
    defined = TASK_SETS.definition(name)
    taken = {task.id for split in defined.splits for task in TASK_SETS.regenerate(name, split)}
    problems = []
    for group, members in defined.groups.items():
        for task_type in members.tasks:
            candidates = _candidates(defined, task_type, defined.sft_from)
            problems += [_with_solution(key, "sft", group) for key in candidates if key not in taken]
    return sorted(problems, key=lambda task: seed_of("warmstart", name, task.id))


def _candidates(
    defined: ScienceWorldDefinition,
    task_type: str,
    sources: Sequence[OfficialSplit],
) -> list[str]:
    """Ids of a type's problems in ``sources`` whose solution has at most ``max_actions`` actions."""
    ids = [key for source in sources for key in to_solve(defined, task_type, source)]
    return [key for key in ids if key in solutions() and len(solutions()[key]) <= defined.max_actions]


def to_solve(defined: ScienceWorldDefinition, task_type: str, source: OfficialSplit) -> list[str]:
    """Ids of a task type's problems in an official split that get a stored solution.

    ``source``: the official split, train, dev or test. ``defined.solve[source]`` of them are drawn (none
    without an entry), by a seed from the task set's name, and listed in the drawn order.
    """
    ids = [f"{task_type}-{variation}" for variation in official_variations(task_type, source)]
    ids.sort(key=lambda key: seed_of("panel", defined.name, key))
    return ids[: defined.solve.get(source, 0)]


def _with_solution(problem_id: str, split: str, group: str) -> Task:
    task = problem_of(problem_id, split, group)
    return replace(task, payload={**task.payload, "solution": list(solutions()[problem_id])})


@cache
def solutions() -> dict[str, list[str]]:
    """The stored solutions, lists of actions, by problem id; read once. Raises DataError without their file.

    ``r3l.envs.scienceworld.task_sets.gold_solutions`` makes them.
    """
    try:
        return dict(json.loads(SOLUTIONS.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise DataError(f"{SOLUTIONS} is missing or damaged ({error}). Restore it: git checkout") from error
