"""The result of a probe: measures with their targets, as JSON and as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from r3l.algorithm import R3L
from r3l.config import (
    EnvConfig,
    Run,
    Strict,
    base_checkpoint_of,
    build_method,
    environment_of,
    load,
    locate,
    validate,
)
from r3l.core.errors import ConfigError
from r3l.core.seeds import seed_of
from r3l.core.task import Task
from r3l.endpoint.options import models_in
from r3l.evaluation.served_model import Dialog, ServedModel, open_served_session
from r3l.evaluation.stored_runs import ATTEMPTS
from r3l.feedback.feedback import FeedbackSource
from r3l.files.cleanup import remove_unfinished
from r3l.files.digests import digest_with_names, file_sha256
from r3l.files.locks import locked
from r3l.files.paths import CONFIGS
from r3l.files.writing import writable, write_json_atomic
from r3l.files.yaml_files import read_yaml
from r3l.local.checkpoint import check_template
from r3l.local.session import open_session
from r3l.probe.attempts import SEED_WORD, ProbeAttempts
from r3l.probe.measures import SECTIONS, measures
from r3l.probe.play import play_probe
from r3l.report.map_rule import expectation, sentence
from r3l.report.probe_map import read_map
from r3l.report.table import Cell, Column, Section, Table
from r3l.report.teachers import BLIND, TEACHERS
from r3l.runs.check_chat_template import try_dialogs
from r3l.runs.gpu_locks import reserved_gpu
from r3l.runs.manifest import describe_task_set, hardware, versions
from r3l.runs.provenance import commit
from r3l.runs.session import PlaySession

SCHEMA = 2


class Target(Strict):
    """Target for one measure: bounds of its value, and a value that its whole interval must be above.

    None sets no bound. Its text is such as ``at least 0.1, interval above 0``.
    """

    at_least: float | None = None
    at_most: float | None = None
    interval_above: float | None = None

    def met(self, measure: Mapping[str, Any]) -> bool | None:
        """Whether a measure (its keys ``value`` and ``low``) meets the target.

        None if its value is unknown, or the interval if the target needs it.
        """
        value = measure["value"]
        low = measure["low"]
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
    """configs/probe_targets.yaml: targets by measure (a key of r3l.probe.measures.SECTIONS).

    ``gate``: targets for a model for which reflecting pays. ``targets``: targets for a good base checkpoint
    of tier nano. ``sources``: by key, where the values come from.
    """

    gate: dict[str, Target]
    targets: dict[str, Target]
    sources: dict[str, str]


@dataclass(frozen=True)
class Sample:
    """The tasks that a probe plays, and how often.

    ``task_set``: its name, None for the environment's validation set (the test set if there is none).
    ``tasks``: how many of its tasks, None for all; every probe of the task set draws the same ones
    (:func:`chosen`). ``attempts``: attempts at each task.
    """

    task_set: str | None = None
    tasks: int | None = None
    attempts: int = 8


def measure_probe(run: Run, sample: Sample, out: Path, served: ServedModel | None = None) -> dict[str, Any]:
    """Probe a fixed model without training it: play attempts, reflections and retries, and measure them.

    The model is the base checkpoint of ``run`` (a run of method R3L) or, if given, the ``served`` one. Writes
    the result (:func:`content_of`) as JSON to ``out`` and returns it. Finished attempts are kept in
    :func:`attempts_file`, so that a repeated call resumes; the result has the digest of that file. Waits for
    a GPU, unless the model is served or runs on a CPU. Raises ConfigError if a judge writes the reflections,
    if the chat template cannot render its dialogs, if the task set has fewer tasks than ``sample`` names, or
    if it is a test set although there is a validation set; RunDirectoryError if another process uses ``out``
    or it cannot be written.
    """
    # Refuse before any work: a judge, whose name and calls a probe's result would have to record, and test
    # tasks, since a probe is for choosing a model or a method.
    method = build_method(run)
    assert isinstance(method, R3L)
    if method.settings.feedback is FeedbackSource.JUDGE:
        raise ConfigError(
            "a probe takes reflections of the model (feedback=self) or of the environment's critic "
            "(feedback=environment), and feedback is 'judge': set another one"
        )
    settings = run.env_settings
    name = sample.task_set or settings.validation_task_set or settings.test_task_set
    if settings.validation_task_set and name in settings.tested().values():
        raise ConfigError(f"{name} is a test task set, and choices are made by a probe; use another one")
    # An unusable chat template ends the probe before any attempt; a server's may be unknown.
    if served is None:
        check_template(run, task_set=name)
    else:
        renderer = served.renderer(run)
        if renderer:
            try_dialogs(run, renderer, served.dialog is Dialog.MESSAGES, name)

    # What is probed: a resumed probe must have the same run, tasks and served model.
    tasks = chosen(environment_of(run.env).tasks(name), sample.tasks)
    described = describe_task_set(run.env, name)
    probed = {"run": run.fingerprint(), "task_set": described["sha256"]} | (served.identity if served else {})
    session_of: AbstractContextManager[PlaySession]
    if served:
        session_of = open_served_session(run, served)
    else:  # a fresh adapter would do nothing
        without_adapter = run.model_copy(update={"lora": run.lora.model_copy(update={"rank": 0})})
        session_of = open_session(without_adapter, base_checkpoint_of(run))

    # Play what is not played yet, and write the measures of all.
    device = "cpu" if served else run.device
    with writable(out), locked(out), reserved_gpu(device), session_of as session:
        remove_unfinished(out.parent, name=out.name)
        probe = play_probe(session, method.settings, tasks, sample.attempts, attempts_file(out), probed)
        content = content_of(run, described, probe, session)
        content["attempts_sha256"] = file_sha256(attempts_file(out))
        write_json_atomic(out, content)
    return content


def attempts_file(out: Path) -> Path:
    """Path of the file of a probe's attempts: JSON lines next to its result ``out``, one line per batch."""
    return out.with_suffix(ATTEMPTS)


def chosen(tasks: Sequence[Task], count: int | None) -> list[Task]:
    """Draw ``count`` tasks at random, from the task groups (easy, hard) in turn; None: all, in their order.

    The draw depends only on the task ids, so every probe of a task set has the same tasks. Raises
    ConfigError if there are fewer tasks.
    """
    if count is None:
        return list(tasks)
    if count > len(tasks):
        raise ConfigError(f"--tasks is {count}, but the task set has {len(tasks)} tasks")
    groups: dict[str, list[Task]] = {}
    for task in sorted(tasks, key=lambda task: seed_of(SEED_WORD, "tasks", task.id)):
        groups.setdefault(task.group, []).append(task)
    # The first task of every group, then the second of every group, and so on.
    in_turn = []
    for group, of_group in groups.items():
        in_turn += [(k, group, task) for k, task in enumerate(of_group)]
    in_turn.sort(key=lambda entry: entry[:2])
    return [task for _, _, task in in_turn[:count]]


def content_of(
    run: Run, task_set: Mapping[str, Any], probe: ProbeAttempts, session: PlaySession
) -> dict[str, Any]:
    """The content of a probe's result file: the model, the conditions, and each measure with its target.

    "gate": the targets of a model in which reflecting pays, and whether they are met; "expected": what the
    stored map of probes and runs predicts of training; "causes" counts the causes that the critic names,
    "invalid" the reasons why reflections cannot be used; "examples" holds one such reflection for each
    reason. ``task_set``: its description in manifests.
    """
    # Which model, and how it is identified.
    attempts = probe.attempts
    reflections = [attempt.own for attempt in attempts if attempt.own]
    model = getattr(session, "model", None)  # a served one is not here
    start = Path(locate(run.model if model is None else base_checkpoint_of(run)))
    weights = start / "model.safetensors"

    # Measures, with the targets of their tier.
    wanted = validate(Targets, read_yaml(CONFIGS / "probe_targets.yaml"), "configs/probe_targets.yaml")
    targets = wanted.targets if run.tier == "nano" else wanted.gate
    found = {key: asdict(measure) for key, measure in measures(probe).items()}
    conditions = session.conditions()  # a server's
    answered_by = models_in(session.take_counts())
    return {
        "schema": SCHEMA,
        "env": run.env,
        "label": load("envs", run.env, EnvConfig).label,
        "tier": run.tier,
        "model": {
            "name": start.name,
            "weights_sha256": digest_with_names(weights) if weights.is_file() and model is not None else None,
            "parameters": None if model is None else sum(p.numel() for p in model.parameters()),
        },
        **({"agent": conditions | {"answered_by": answered_by}} if conditions else {}),
        "seed": run.seed,
        "temperature": run.sampling.temperature,
        "max_tokens": run.sampling.max_tokens,
        "reflection_schema": run.method_settings["reflection_schema"],
        "feedback": run.method_settings["feedback"],
        "feedback_corruption": run.method_settings["feedback_corruption"],
        "prompts": run.prompts,
        "max_turns": run.env_settings.max_turns,
        "task_set": {key: task_set[key] for key in ("name", "sha256", "tasks")},
        "test": task_set["name"] in run.env_settings.tested().values(),
        "tasks": len({attempt.task for attempt in attempts}),
        "attempts": len(attempts),
        "halves": probe.halves,
        "measures": {key: values | _judged(targets.get(key), values) for key, values in found.items()},
        "gate": {key: _judged(target, found[key]) for key, target in wanted.gate.items()},
        "expected": expectation(found["guided_minus_fresh"]["value"], read_map()),
        "not_measured": _not_measured(probe, model is not None),
        "causes": _counted(a.critic.cause or "none: time ran out" for a in attempts if a.critic),
        "invalid": _counted(own.invalid for own in reflections if own.invalid),
        "examples": {own.invalid: own.text for own in reversed(reflections) if own.invalid},
        "seconds": {key: round(value, 1) for key, value in probe.seconds.items()}
        | {"attempts_played": probe.now},
        "versions": versions(),
        "hardware": hardware(),
        "commit": commit(),
    }


def _judged(target: Target | None, values: Mapping[str, Any]) -> dict[str, Any]:
    return {"target": str(target) if target else None, "met": target and target.met(values)}


def _not_measured(probe: ProbeAttempts, has_model: bool) -> dict[str, str]:
    """Measures that this probe could not take, by printed name, each with the reason."""
    reasons = {}
    if not has_model:
        reasons["log-probs of retries"] = "a server does not score texts under another prompt"
    failed = [attempt for attempt in probe.attempts if not attempt.success]
    if failed and not any(attempt.critic for attempt in failed):
        reasons["agreement with the critic"] = "the environment's critic names no turn of these tasks"
    if probe.expert is None:
        reasons["the error-free expert"] = "the environment has none for these tasks"
    return reasons


def _counted(words: Iterable[str]) -> dict[str, int]:
    return dict(Counter(words).most_common())


def table_of(content: Mapping[str, Any]) -> Table:
    """The table that shows a probe's result in the terminal, in the sections of r3l.probe.measures.

    ``content``: see :func:`content_of`; also of a file that an earlier version wrote.
    """
    model = content["model"]
    title = (
        f"{content['label']}, model {model['name']} ({(model['weights_sha256'] or 'unknown')[:12]}): "
        f"{content['attempts']:,} attempts at {content['tasks']} tasks of {content['task_set']['name']}, "
        f"temperature {content['temperature']:g}"
    )
    notes = [f"Not measured: {what} ({why})." for what, why in content.get("not_measured", {}).items()]
    for words, key in (("Causes named most", "causes"), ("Reflections that cannot be used", "invalid")):
        counted = [f"{name} ({count})" for name, count in content[key].items()]
        if counted:
            notes.append(f"{words}: {', '.join(counted[:5])}.")
    if content.get("test"):
        notes.append("These are test tasks: what is chosen by this probe is no longer tested on them.")
    if "expected" in content:
        notes.append(sentence(content["expected"], content["measures"]["guided_minus_fresh"]["value"]))

    # The gate first, then a section for each part of the probe.
    columns = [Column(name, right=name == "n") for name in ("measure", "value", "n", "target", "met")]
    found = content["measures"]
    gate = content.get("gate", {})
    sections = []
    if gate:
        lines = [_line(LABELS[key], key, found[key] | judged) for key, judged in gate.items()]
        sections.append(Section("Gate: does reflecting pay?", lines))
    for name, keys in SECTIONS.items():
        # Stop reasons that never occurred are left out.
        shown = [key for key in keys if key in found and (found[key]["value"] or not key.startswith("stop_"))]
        if shown:
            sections.append(Section(name, [_line(keys[key][0], key, found[key]) for key in shown]))
    return Table(title, columns, sections, notes)


LABELS = {
    key: f"{name.partition(',')[0].lower()}: {label}"
    for name, keys in SECTIONS.items()
    for key, (label, *_) in keys.items()
}
# Of attempts at one task, since the other differences also compare tasks.
TEACHER_DIFFERENCES = {f"{name}_difference_same_task" for name in (*TEACHERS, "hint_gap")}


def _line(label: str, key: str, measure: Mapping[str, Any]) -> dict[str, Cell]:
    """A row of the table: label, value with its interval, observations, target, and whether it is met."""
    form = ".1f" if key in ("turns", "tokens") else ".3f"

    def text(part: str) -> str:
        return "?" if measure[part] is None else f"{measure[part]:{form}}"

    # The value, with its interval if it has one.
    value = text("value")
    if measure["value"] is None:
        value = "no bound" if measure["n"] else "not measured"
    elif measure["low"] is not None or measure["high"] is not None:
        value = f"{value} ({text('low')} to {text('high')})"

    # The verdict: on the target, or that a teacher is blind.
    met = ""
    if measure["target"]:
        met = {True: "met", False: "missed", None: "not judged"}[measure["met"]]
    if key in TEACHER_DIFFERENCES and measure["low"] is not None and measure["low"] <= 0 <= measure["high"]:
        met = BLIND  # not shown to tell successes from failures
    return {
        "measure": Cell(label),
        "value": Cell(value),
        "n": Cell(f"{measure['n']:,}"),
        "target": Cell(measure["target"] or ""),
        "met": Cell(met),
    }
