"""A regime card: measures beside their targets and the paper's numbers, as JSON and as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from r3l.config import Run, Strict, locate, validate
from r3l.core.environment import StopReason
from r3l.files.digests import sha256_of
from r3l.files.json_files import read_json
from r3l.files.paths import CONFIGS, KEPT
from r3l.files.yaml_files import read_yaml
from r3l.probe.measures import Measure, measures
from r3l.probe.records import Regime
from r3l.report import published
from r3l.report.table import Cell, Column, Section, Table
from r3l.runs.manifest import describe_task_set, hardware, versions
from r3l.runs.provenance import commit

SCHEMA = 1
WEIGHTS = "model.safetensors"
CARDS = KEPT / "probe"
SECTIONS: dict[str, dict[str, str]] = {
    "Attempts": {
        "success": "success",
        "success_easy": "success, easy half",
        "success_hard": "success, hard half",
        "easy_minus_hard": "easy minus hard",
        "reward": "mean reward",
        "expert_success": "the scripted expert's success",
        "unusable": "ended by an unusable response",
        "turns": "turns",
        "tokens": "generated tokens",
    },
    "Diagnosis of failures": {
        "critic_names": "the critic names a cause",
        "reflections_valid": "valid reflections",
        "oracle_exact": "pivot is the critic's",
        "oracle_near": "pivot within one turn of the critic's",
        "diagnosis_accurate": "pivot and cause right",
        "diagnosis_partial": "one of them right",
        "diagnosis_wrong": "neither right",
    },
    "Retries of failures, own reflection": {
        "retry_success": "guided, from the pivot",
        "retry_improved": "better than the attempt",
        "retry_right": "guided, right pivot",
        "retry_wrong": "guided, wrong pivot",
        "right_over_wrong": "right over wrong",
        "retry_unusable": "guided, ended by an unusable response",
        "unguided_success": "unguided, from the same pivot",
        "guided_minus_unguided": "guided minus unguided",
        "from_start_success": "guided, from the start",
        "fresh_success": "a fresh attempt",
        "guided_minus_fresh": "guided minus fresh",
        "guided_per_1000": "successes in 1,000 tokens: guided",
        "unguided_per_1000": "unguided",
        "from_start_per_1000": "guided, from the start",
        "fresh_per_1000": "a fresh attempt",
    },
    "Retries of failures, the critic's reflection": {
        "critic_guided": "guided, from its pivot",
        "critic_unguided": "unguided, from its pivot",
        "critic_guided_minus_unguided": "guided minus unguided",
    },
    "Actions": {
        "hint_followed": "the critic's hint is the first action",
        "own_hint_followed": "the model's own hint is",
        "names_shown": "name only what was shown",
    },
}
PUBLISHED = {  # our measure -> the paper's metric
    "oracle_near": "pivot_oracle_agreement",
    "retry_right": "retry_success_right_pivot",
    "retry_wrong": "retry_success_wrong_pivot",
    "retry_improved": "retry_improved",
    "diagnosis_accurate": "diagnosis_accurate",
    "diagnosis_partial": "diagnosis_partial",
    "diagnosis_wrong": "diagnosis_wrong",
}


class Target(Strict):
    """What a measure is to be: between ``at_least`` and ``at_most``, its interval above ``interval_above``."""

    at_least: float | None = None
    at_most: float | None = None
    interval_above: float | None = None

    def met(self, measure: Mapping[str, Any]) -> bool | None:
        """None where there is nothing to judge by."""
        value, low = measure["value"], measure["low"]
        if value is None or (self.interval_above is not None and low is None):
            return None
        return (
            (self.at_least is None or value >= self.at_least)
            and (self.at_most is None or value <= self.at_most)
            and (self.interval_above is None or low > self.interval_above)
        )

    def __str__(self) -> str:
        parts = []
        if self.at_least is not None and self.at_most is not None:
            parts.append(f"{self.at_least:g} to {self.at_most:g}")
        elif self.at_least is not None:
            parts.append(f"at least {self.at_least:g}")
        elif self.at_most is not None:
            parts.append(f"at most {self.at_most:g}")
        if self.interval_above is not None:
            parts.append(f"interval above {self.interval_above:g}")
        return ", ".join(parts)


class Targets(Strict):
    """configs/probe_targets.yaml. ``missed``: by environment and measure, why the start model misses a target."""

    targets: dict[str, Target]
    missed: dict[str, dict[str, str]] = {}
    sources: dict[str, str]


@cache
def _configured() -> Targets:
    path = CONFIGS / "probe_targets.yaml"
    return validate(Targets, read_yaml(path), str(path))


def targets() -> dict[str, Target]:
    """By measure."""
    return _configured().targets


def reasons(env: str) -> dict[str, str]:
    """Why the start model of an environment misses a target, by measure."""
    return _configured().missed.get(env, {})


def card(run: Run, label: str, task_set: str, regime: Regime) -> dict[str, Any]:
    """The content of a card. ``label``: of the environment in print."""
    attempts = regime.attempts
    failed = [attempt for attempt in attempts if not attempt.success]
    tasks = len({attempt.task for attempt in attempts})
    described = describe_task_set(run.env, task_set)
    return {
        "schema": SCHEMA,
        "env": run.env,
        "label": label,
        "tier": run.tier,
        "model": described_model(run.model),
        "seed": run.seed,
        "temperature": run.sampling.temperature,
        "prompts": run.prompts,
        "max_turns": run.env_settings.max_turns,
        "task_set": {key: described[key] for key in ("name", "sha256", "tasks")},
        "tasks": tasks,
        "attempts": len(attempts),
        "halves": regime.halves,
        "measures": {key: judged(key, measure) for key, measure in measures(regime).items()},
        "causes": _counted(a.critic.cause or "none: time ran out" for a in failed if a.critic),
        "invalid": _counted(a.own.invalid for a in failed if a.own and a.own.invalid),
        "seconds": {key: round(value, 1) for key, value in regime.seconds.items()}
        | {"an_attempt": round(regime.seconds.get("attempts", 0) / len(attempts), 4)},
        "paper": paper(label),
        "versions": versions(),
        "hardware": hardware(),
        "commit": commit(),
    }


def _counted(words: Any) -> dict[str, int]:
    """Most frequent first."""
    return dict(Counter(words).most_common())


def described_model(model: str) -> dict[str, Any]:
    """Which model: its name and weights, and of one that a supervised stage made its recipe and commit."""
    folder = Path(locate(model))
    manifest = read_json(folder / "sft.json") if (folder / "sft.json").is_file() else {}
    weights = folder / WEIGHTS
    return {
        "name": folder.name,
        "weights_sha256": sha256_of(weights) if weights.is_file() else None,
        "recipe": manifest.get("config", {}).get("name"),
        "parameters": manifest.get("parameters"),
        "commit": manifest.get("commit"),
    }


def judged(key: str, measure: Measure) -> dict[str, Any]:
    """A measure with its target and whether it is met; None where it has none, or nothing to judge by."""
    content = asdict(measure)
    target = targets().get(key)
    return content | {"target": str(target) if target else None, "met": target.met(content) if target else None}


def paper(label: str) -> dict[str, list[dict[str, Any]]]:
    """The paper's numbers on a benchmark by our measures: model, training step, value."""
    rows = [row for row in published.load() if row.benchmark == label and row.method == "R3L"]
    found: dict[str, list[dict[str, Any]]] = {}
    for key, metric in PUBLISHED.items():
        of_metric = [row for row in rows if row.metric == metric]
        if of_metric:
            found[key] = [{"model": r.backbone, "setting": r.setting, "value": float(r.value)} for r in of_metric]
    if "retry_right" in found:
        found["right_over_wrong"] = [
            {**right, "value": round(right["value"] / wrong["value"], 2)}
            for right, wrong in zip(found["retry_right"], found["retry_wrong"], strict=True)
        ]
    return found


def shown_value(key: str, measure: Mapping[str, Any]) -> str:
    """A value with its interval, for people."""
    value, low, high = (measure[part] for part in ("value", "low", "high"))
    if value is None:
        return "not applicable" if not measure["n"] else "no bound"
    number: Callable[[float], str] = (lambda x: f"{x:.1f}") if key in ("turns", "tokens") else (lambda x: f"{x:.3f}")
    bounds = "" if low is None and high is None else f" ({_bound(low, number)} to {_bound(high, number)})"
    return number(value) + bounds


def _bound(value: float | None, number: Callable[[float], str]) -> str:
    return "?" if value is None else number(value)


def shown_paper(key: str, content: Mapping[str, Any]) -> str:
    """The range of the paper's numbers over its models and training steps."""
    values = [row["value"] for row in content["paper"].get(key, [])]
    if not values:
        return ""
    low, high = min(values), max(values)
    return f"{low:.2f}" if low == high else f"{low:.2f} to {high:.2f}"


def verdict(measure: Mapping[str, Any]) -> str:
    """Whether a target is met, in a word."""
    if not measure["target"]:
        return ""
    return {True: "met", False: "missed", None: "not judged"}[measure["met"]]


def lines(content: Mapping[str, Any]) -> list[tuple[str, list[tuple[str, str]]]]:
    """(section, (key, label) of its measures that this card has), ends by reason among them."""
    sections = []
    for title, labels in SECTIONS.items():
        rows = [(key, label) for key, label in labels.items() if key in content["measures"]]
        sections.append((title, rows))
        if title == "Attempts":
            stops = [stop for stop in StopReason if content["measures"][f"stop_{stop}"]["value"]]
            sections.append(("How attempts end", [(f"stop_{stop}", stop.value) for stop in stops]))
    return sections


def table_of(content: Mapping[str, Any]) -> Table:
    """A card for the terminal."""
    columns = [
        Column("measure"),
        *(Column(name, right=name == "n") for name in ("value", "n", "target", "met", "paper")),
    ]
    sections = [
        Section(title, [_row(key, label, content) for key, label in rows]) for title, rows in lines(content) if rows
    ]
    return Table(title_of(content), columns, sections, notes_of(content))


def _row(key: str, label: str, content: Mapping[str, Any]) -> dict[str, Cell]:
    measure = content["measures"][key]
    texts = {
        "measure": label,
        "value": shown_value(key, measure),
        "n": f"{measure['n']:,}",
        "target": measure["target"] or "",
        "met": verdict(measure),
        "paper": shown_paper(key, content),
    }
    return {name: Cell(text) for name, text in texts.items()}


def title_of(content: Mapping[str, Any]) -> str:
    """What was measured."""
    model = content["model"]
    return (
        f"{content['label']}, start model {model['name']} ({(model['weights_sha256'] or 'unknown')[:12]}): "
        f"{content['attempts']:,} attempts at {content['tasks']} tasks of {content['task_set']['name']}, "
        f"temperature {content['temperature']:g}"
    )


def notes_of(content: Mapping[str, Any]) -> Sequence[str]:
    """Seconds, and the causes that the critic names most."""
    seconds = content["seconds"]
    notes = [f"An attempt took {seconds['an_attempt']:g} s; all of it {sum(seconds.values()):,.0f} s."]
    causes = list(content["causes"].items())[:5]
    if causes:
        notes.append("Causes named most: " + ", ".join(f"{cause} ({count})" for cause, count in causes) + ".")
    return notes
