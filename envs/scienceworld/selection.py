"""Which ScienceWorld problems there are: task types, their variations, and the splits that people use."""

from __future__ import annotations

from r3l.core.errors import ConfigError
from r3l.core.task import Task

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
SPLITS = {"r3l": ("train", "test"), "official": ("train", "dev", "test")}


def official_variations(task_type: str, split: str) -> range:
    """ScienceWorld's own split: two whole quarters of a type's variations train, one dev, the rest test."""
    count = VARIATIONS[task_type]
    quarter = count // 4
    ends = {"train": (0, 2 * quarter), "dev": (2 * quarter, 3 * quarter), "test": (3 * quarter, count)}
    return range(*ends[split])


def r3l_variations(task_type: str) -> range:
    """What the released code takes of a task type: the first half of its variations, rounded down (audit 3.4)."""
    return range(VARIATIONS[task_type] // 2)


def problem(task_type: str, variation: int, split: str, group: str | None = None) -> Task:
    """One problem, with the released simplifications ("easy"). ``group`` defaults to the task type."""
    payload = {"task": task_type, "variation": variation, "simplifications": "easy"}
    return Task(f"{task_type}-{variation}", "scienceworld", split, group or task_type, payload)


def problem_of(problem_id: str, split: str = "", group: str | None = None) -> Task:
    """The problem of an id such as ``find-animal-12``."""
    task_type, _, variation = problem_id.rpartition("-")
    return problem(task_type, int(variation), split, group)


def select(name: str, split: str) -> list[Task]:
    """The problems of ``r3l`` (train: 17 types, test: 13 other ones) or ``official`` (all 30), sorted by id.

    Raises ConfigError for an unknown name or split.
    """
    if split not in SPLITS.get(name, ()):
        known = ", ".join(f"{key}/{value}" for key, values in SPLITS.items() for value in values)
        raise ConfigError(
            f"ScienceWorld task set {name}/{split} is unknown; beside task sets of configs/task_sets: {known}"
        )
    if name == "official":
        problems = [problem(t, v, split) for t in VARIATIONS for v in official_variations(t, split)]
    else:
        types = [t for t in VARIATIONS if (t in R3L_TEST) == (split == "test")]
        problems = [problem(t, v, split) for t in types for v in r3l_variations(t)]
    return sorted(problems, key=lambda task: task.id)
