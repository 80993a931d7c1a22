"""What a score was played by: which tasks, and under which named protocol with which deviations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from r3l.config import Run, Variant, resolve
from r3l.config.files import flat
from r3l.config.protocol import NamedProtocol, protocol_of
from r3l.core.errors import ConfigError
from r3l.core.seeds import seed_of

T = TypeVar("T")
# Sections of a run that decide how its test tasks are played.
_PLAYED = ("prompts", "samples", "env_settings", "sampling", "evaluation")
_IDLE = (  # beginnings of keys of them that concern training alone, or no score
    "env_settings.train_task_set.",
    "env_settings.validation_task_set.",
    "env_settings.further_test_task_sets.",
    "env_settings.sft.",
    "sampling.temperature.",
    "sampling.feedback_max_tokens.",
    "sampling.tokens_per_batch.",
    "evaluation.batch.",
)


def chosen(run: Run, tasks: Sequence[T], ids: Sequence[str]) -> list[T]:
    """Those of ``tasks``, which have these ``ids``, that an evaluation of ``run`` plays, in their order.

    A draw belongs to the run's seed and the ids alone, so that more tasks hold the fewer. Raises ConfigError where
    there are not so many.
    """
    wanted, places = run.evaluation.tasks, list(range(len(tasks)))
    if wanted is None:
        return list(tasks)
    if wanted > len(tasks):
        raise ConfigError(f"evaluation.tasks (-n) is {wanted}, but the task set has {len(tasks)} tasks")
    if run.evaluation.draw == "drawn":
        places.sort(key=lambda place: seed_of(run.seed, "evaluation tasks", ids[place]))
    return [tasks[place] for place in sorted(places[:wanted])]


def stated(run: Run, task_set: str) -> dict[str, Any]:
    """What evaluation.json says of the protocol of ``run``, played on ``task_set``; nothing where there is none.

    ``differs``: what every run of it does otherwise than the original.
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
    """``KEY: VALUE (protocol: VALUE)`` of everything that decides a score and is not as the protocol has it."""
    engine = (f"engine={run.engine}",) if run.engine == "server" else ()
    row = Variant("zero_shot", (f"protocol={protocol.config.protocol}", *engine))
    expected = _flat(resolve(protocol.config.tier, run.env, row, run.seed, run.model))
    played = _flat(run) | {"env_settings.test_task_set": task_set}
    keys = sorted(key for key in {**expected, **played} if expected.get(key) != played.get(key))
    return [f"{key}: {_shown(key, played.get(key))} (protocol: {_shown(key, expected.get(key))})" for key in keys]


def _flat(run: Run) -> dict[str, Any]:
    values = flat(run.model_dump(mode="json", include={*_PLAYED}))
    return {key: value for key, value in values.items() if not f"{key}.".startswith(_IDLE)}


def _shown(key: str, value: Any) -> str:
    unset = "all" if key == "evaluation.tasks" else "unset"
    return unset if value is None else str(value)
