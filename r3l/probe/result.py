"""The probe of a model: measures beside their targets, as JSON and as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from r3l.algorithm import R3L
from r3l.config import EnvConfig, Run, Strict, build_method, environment_of, load, locate, validate
from r3l.core.errors import ConfigError
from r3l.core.seeds import seed_of
from r3l.core.task import Task
from r3l.files.digests import sha256_of
from r3l.files.paths import CONFIGS, KEPT
from r3l.files.writing import writable, write_json_atomic
from r3l.files.yaml_files import read_yaml
from r3l.local.checkpoint import check_template
from r3l.local.session import open_session
from r3l.probe.measures import SECTIONS, measures
from r3l.probe.play import Played, play_probe
from r3l.report.table import Cell, Column, Section, Table
from r3l.runs.manifest import describe_task_set, hardware, versions
from r3l.runs.provenance import commit

SCHEMA = 1
STORED_PROBES = KEPT / "probe"


class Target(Strict):
    """The value lies between ``at_least`` and ``at_most``, the lower end of its interval above ``interval_above``."""

    at_least: float | None = None
    at_most: float | None = None
    interval_above: float | None = None

    def met(self, measure: Mapping[str, Any]) -> bool | None:
        """None where the measure has no value, or no interval where the target needs one."""
        value, low = measure["value"], measure["low"]
        if value is None or (self.interval_above is not None and low is None):
            return None
        return (
            (self.at_least is None or value >= self.at_least)
            and (self.at_most is None or value <= self.at_most)
            and (self.interval_above is None or low > self.interval_above)
        )

    def __str__(self) -> str:
        bounds = {"at least": self.at_least, "at most": self.at_most, "interval above": self.interval_above}
        if self.at_least is not None and self.at_most is not None:
            bounds = {f"{self.at_least:g} to": self.at_most, "interval above": self.interval_above}
        return ", ".join(f"{words} {bound:g}" for words, bound in bounds.items() if bound is not None)


class Targets(Strict):
    """configs/probe_targets.yaml."""

    targets: dict[str, Target]
    sources: dict[str, str]


@dataclass(frozen=True)
class Sample:
    """``attempts`` at each task of a task set (None: the validation set), or at ``tasks`` of its tasks."""

    task_set: str | None = None
    tasks: int | None = None
    attempts: int = 8


def measure_probe(run: Run, sample: Sample, out: Path) -> dict[str, Any]:
    """Play with the model of ``run`` (a run of R3L), measure, and write the content to ``out``; returns it.

    Raises ConfigError where the task set is missing or is a test set, or the environment has no critic.
    """
    method = build_method(run)
    assert isinstance(method, R3L)
    name = sample.task_set or run.env_settings.validation_task_set
    if name is None:
        raise ConfigError(f"{run.env} has no validation task set in tier {run.tier}; give --task-set NAME/SPLIT")
    if name in run.env_settings.tested().values():
        raise ConfigError(f"{name} is a test task set, and choices are made by a probe; use another one")
    check_template(run)
    tasks = chosen(environment_of(run.env).tasks(name), sample.tasks)
    with writable(out), open_session(run, run.model) as session:
        played = play_probe(session, method.settings, tasks, sample.attempts)
        content = content_of(run, name, played)
        write_json_atomic(out, content)
    return content


def chosen(tasks: Sequence[Task], count: int | None) -> list[Task]:
    """``count`` tasks in an order drawn by address, the groups taking turns; all of them without a count."""
    if count is None:
        return list(tasks)
    if count > len(tasks):
        raise ConfigError(f"--tasks is {count}, but the task set has {len(tasks)} tasks")
    groups: dict[str, list[Task]] = {}
    for task in sorted(tasks, key=lambda task: seed_of("regime", "tasks", task.id)):
        groups.setdefault(task.group, []).append(task)
    turns = [(k, group, task) for group, of_group in groups.items() for k, task in enumerate(of_group)]
    return [task for _, _, task in sorted(turns, key=lambda turn: turn[:2])[:count]]


def content_of(run: Run, task_set: str, played: Played) -> dict[str, Any]:
    """What is stored of a probe. "causes" and "invalid" count what the critic names and why reflections fail."""
    attempts = played.attempts
    failed = [attempt for attempt in attempts if not attempt.success]
    described = describe_task_set(run.env, task_set)
    weights = Path(locate(run.model)) / "model.safetensors"
    targets = validate(Targets, read_yaml(CONFIGS / "probe_targets.yaml"), "configs/probe_targets.yaml").targets
    judged = {}
    for key, measure in measures(played).items():
        target, values = targets.get(key), asdict(measure)
        judged[key] = values | {"target": str(target) if target else None, "met": target and target.met(values)}
    return {
        "schema": SCHEMA,
        "env": run.env,
        "label": load("envs", run.env, EnvConfig).label,
        "tier": run.tier,
        "model": {
            "name": Path(locate(run.model)).name,
            "weights_sha256": sha256_of(weights) if weights.is_file() else None,
        },
        "seed": run.seed,
        "temperature": run.sampling.temperature,
        "prompts": run.prompts,
        "max_turns": run.env_settings.max_turns,
        "task_set": {key: described[key] for key in ("name", "sha256", "tasks")},
        "tasks": len({attempt.task for attempt in attempts}),
        "attempts": len(attempts),
        "halves": played.halves,
        "measures": judged,
        "causes": _counted(a.critic.cause or "none: time ran out" for a in failed if a.critic),
        "invalid": _counted(a.own.invalid for a in failed if a.own and a.own.invalid),
        "seconds": {key: round(value, 1) for key, value in played.seconds.items()}
        | {"an_attempt": round(played.seconds.get("attempts", 0) / len(attempts), 4)},
        "versions": versions(),
        "hardware": hardware(),
        "commit": commit(),
    }


def _counted(words: Iterable[str]) -> dict[str, int]:
    return dict(Counter(words).most_common())


def table_of(content: Mapping[str, Any]) -> Table:
    """A probe for the terminal."""
    model, seconds = content["model"], content["seconds"]
    title = (
        f"{content['label']}, model {model['name']} ({(model['weights_sha256'] or 'unknown')[:12]}): "
        f"{content['attempts']:,} attempts at {content['tasks']} tasks of {content['task_set']['name']}, "
        f"temperature {content['temperature']:g}"
    )
    notes = [f"An attempt took {seconds['an_attempt']:g} s; everything {sum(seconds.values()):,.0f} s."]
    if causes := list(content["causes"].items())[:5]:
        notes.append("Causes named most: " + ", ".join(f"{cause} ({count})" for cause, count in causes) + ".")
    columns = [Column(name, right=name == "n") for name in ("measure", "value", "n", "target", "met")]
    sections = [Section(name, list(_rows(content["measures"], keys))) for name, keys in SECTIONS.items()]
    return Table(title, columns, [section for section in sections if section.rows], notes)


def _rows(found: Mapping[str, Any], keys: Mapping[str, tuple[str, Any]]) -> Iterator[dict[str, Cell]]:
    for key, (label, _) in keys.items():
        if key not in found or (key.startswith("stop_") and not found[key]["value"]):
            continue
        measure = found[key]
        met = {True: "met", False: "missed", None: "not judged"}[measure["met"]] if measure["target"] else ""
        texts = (label, _value(key, measure), f"{measure['n']:,}", measure["target"] or "", met)
        yield dict(zip(("measure", "value", "n", "target", "met"), map(Cell, texts), strict=True))


def _value(key: str, measure: Mapping[str, Any]) -> str:
    """With its interval."""
    form = ".1f" if key in ("turns", "tokens") else ".3f"
    value, low, high = (
        "?" if measure[part] is None else f"{measure[part]:{form}}" for part in ("value", "low", "high")
    )
    if value == "?":
        return "no bound" if measure["n"] else "not applicable"
    return value if low == high == "?" else f"{value} ({low} to {high})"
