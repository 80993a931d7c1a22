"""How the test tasks of a run are played: which tasks, which named protocol, which deviations from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from r3l.config import Run, Variant, resolve
from r3l.config.files import flat
from r3l.config.protocol import NamedProtocol, protocol_of
from r3l.core.errors import ConfigError
from r3l.core.seeds import seed_of
from r3l.core.task import Task

# Sections of a run that decide how its test tasks are played ...
_PLAYED = ("prompts", "samples", "env_settings", "sampling", "evaluation")
# ... without the keys (and keys below them) that concern only training or speed.
_NOT_PLAYED = (
    "env_settings.train_task_set.",
    "env_settings.validation_task_set.",
    "env_settings.further_test_task_sets.",
    "env_settings.sft.",
    "sampling.temperature.",
    "sampling.feedback_max_tokens.",
    "sampling.tokens_per_batch.",
    "evaluation.batch.",
)


def select_tasks(run: Run, tasks: Sequence[Task]) -> list[Task]:
    """The tasks that an evaluation of ``run`` plays, in the order of ``tasks``.

    ``evaluation.tasks`` says how many (None: all) and ``evaluation.draw`` which ones. A draw depends only on
    the run's seed and the tasks' ids and groups, and a larger one contains every smaller one. ``by_group``
    takes from each group its share, as many at every seed. Raises ConfigError if there are fewer tasks.
    """
    wanted = run.evaluation.tasks
    if wanted is None:
        return list(tasks)
    if wanted > len(tasks):
        raise ConfigError(f"evaluation.tasks (-n) is {wanted}, but the task set has {len(tasks)} tasks")
    order = list(tasks)
    if run.evaluation.draw != "first":
        order.sort(key=lambda task: seed_of(run.seed, "evaluation tasks", task.id))
    if run.evaluation.draw == "by_group":
        # Webster's apportionment: task k of a group of n comes at (k + 1/2) / n, so that the first tasks of
        # any number have each group's share. Ties do not depend on the seed: seeds differ in no group's size.
        sizes = Counter(task.group for task in order)
        drawn: Counter[str] = Counter()
        turns = {}
        for task in order:
            turns[task.id] = (drawn[task.group] + 0.5) / sizes[task.group], seed_of("groups", task.group)
            drawn[task.group] += 1
        order.sort(key=lambda task: turns[task.id])
    chosen = {task.id for task in order[:wanted]}
    return [task for task in tasks if task.id in chosen]


def protocol_entry(run: Run, task_set: str) -> dict[str, Any]:
    """The protocol's part of evaluation.json, under the key ``protocol``; {} for a run without one.

    It has ``name``, ``label``, ``sha256`` (over name, measure and values) and ``success`` (the rule).
    ``deviations``: what this run on ``task_set`` does otherwise than the protocol; ``differs``: what every
    run of the protocol here does otherwise than the original. Raises ConfigError if the protocol's file has
    changed since the run began.
    """
    if run.protocol is None:
        return {}
    found = protocol_of(run.env, run.protocol)
    return {
        "protocol": {
            "name": found.config.protocol,
            "label": found.config.label,
            "sha256": found.sha256,
            "success": found.config.success,
            "deviations": deviations(run, found, task_set),
            "differs": found.config.differs,
        }
    }


def deviations(run: Run, protocol: NamedProtocol, task_set: str) -> list[str]:
    """The settings of ``run`` on ``task_set`` that decide a score and differ from the protocol's, sorted.

    One text each: ``KEY: VALUE (protocol: VALUE)``; [] if there are none.
    """

    def settings(run: Run) -> dict[str, Any]:
        values = flat(run.model_dump(mode="json", include={*_PLAYED}))
        return {key: value for key, value in values.items() if not f"{key}.".startswith(_NOT_PLAYED)}

    def shown(key: str, value: Any) -> str:
        unset = "all" if key == "evaluation.tasks" else "unset"
        return unset if value is None else str(value)

    # The same run with only the protocol's settings; a server is an engine, not a deviation.
    engine = (f"engine={run.engine}",) if run.engine == "server" else ()
    row = Variant("zero_shot", (f"protocol={protocol.config.protocol}", *engine))
    expected = settings(resolve(protocol.config.tier, run.env, row, run.seed, run.model))
    played = settings(run) | {"env_settings.test_task_set": task_set}
    keys = sorted(key for key in {**expected, **played} if expected.get(key) != played.get(key))
    return [
        f"{key}: {shown(key, played.get(key))} (protocol: {shown(key, expected.get(key))})" for key in keys
    ]
