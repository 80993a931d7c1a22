"""Several probes side by side (`r3l table probe`): a row a model, the smallest first."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NotRequired

from typing_extensions import TypedDict

from r3l.core.errors import DataError
from r3l.files.json_files import Number, read_json
from r3l.report.table import Cell, Column, Table, table
from r3l.runs.manifest import TaskSetSummary

log = logging.getLogger(__name__)

Content = Mapping[str, Any]  # of a probe (r3l.probe.result)
SHARES = {  # keys of measures by their columns; measures of retries are after failures
    "base": "success",
    "valid": "reflections_valid",
    "right": "outcome_right",
    "guided": "retry_success",
    "no hint": "unguided_success",
    "start": "from_start_success",
    "fresh": "fresh_success",
}
DIFFERENCES = {"guided - fresh": "guided_minus_fresh", "equal tokens": "guided_minus_fresh_equal"}


class ProbedModel(TypedDict):
    """The model that a probe measured. Digest and size are None if a server has it."""

    name: str
    weights_sha256: str | None
    parameters: int | None


class JudgedTarget(TypedDict):
    """A measure's target in words, and whether it is met; None without a target or without a value."""

    target: str | None
    met: bool | None


class ProbeMeasure(TypedDict):
    """A measure of a probe with its 95 % interval.

    ``n``: number of observations, of ``tasks`` tasks. ``target``: its target in words; ``met``: whether it is
    reached.
    """

    value: Number | None
    low: Number | None
    high: Number | None
    n: int
    tasks: int | None
    target: NotRequired[str | None]
    met: NotRequired[bool | None]


class ProbeResult(TypedDict):
    """The keys of a probe's result file that tables and figures read (results/probe/*.json).

    A probe measures a fixed model without training; r3l.probe.result writes the file. ``label``: the
    printed name of the environment. ``measures``: by key of r3l.probe.measures.SECTIONS.
    """

    env: str
    label: str
    tier: str
    model: ProbedModel
    temperature: Number
    task_set: TaskSetSummary
    attempts: int
    tasks: int
    test: NotRequired[bool]
    measures: dict[str, ProbeMeasure]
    gate: NotRequired[dict[str, JudgedTarget]]
    reflection_schema: NotRequired[str]
    feedback: NotRequired[str]
    feedback_corruption: NotRequired[Number]
    expected: NotRequired[dict[str, Any]]  # r3l.report.map_rule.Expectation


def read(paths: Sequence[Path]) -> list[Content]:
    """Read result files of probes, sorted by environment, model size (unknown last), name and schema.

    Raises DataError for a file that is missing or not the result of a probe.
    """
    probes = []
    for path in paths:
        if not path.is_file():
            why = "is not a file" if path.exists() else "is missing"
            raise DataError(f"{path} {why}; name a file that r3l probe wrote (results/probe/*.json)")
        try:
            probes.append(read_json(path, ProbeResult))
        except DataError as error:
            raise DataError(f"{error}. A probe is what r3l probe wrote (results/probe/*.json)") from error

    def order(probe: Content) -> tuple[str, float, str, str]:
        size = probe["model"].get("parameters") or float("inf")
        return probe["env"], size, probe["model"]["name"], probe.get("reflection_schema", "")

    return sorted(probes, key=order)


def read_folders(folders: Sequence[Path]) -> list[Content]:
    """Read all probes in the results ``folders`` (probe/NAME.json); damaged ones give a warning, no error."""
    probes = []
    for path in [path for folder in folders for path in sorted((folder / "probe").glob("*.json"))]:
        try:
            probes += read([path])
        except (DataError, OSError) as error:
            log.warning("a probe is left out: %s", error)
    return probes


def name_of(probe: Content) -> str:
    """The printed name of a probe: its model, and how its reflections differ from the usual ones.

    That is their form, their author or their hints.
    """
    schema = probe.get("reflection_schema", "strict")
    feedback = probe.get("feedback", "self")
    wrong = probe.get("feedback_corruption", 0)
    parts = [
        probe["model"]["name"],
        *([] if schema == "strict" else [schema]),
        *([] if feedback == "self" else [f"feedback {feedback}"]),
        *([f"{wrong:.2g} wrong"] if wrong else []),
    ]
    return ", ".join(parts)


def names_of(probes: Sequence[Content]) -> list[str]:
    """The printed name of each probe, with its number of tasks if two of an environment have one name."""
    names = [(probe["label"], name_of(probe)) for probe in probes]
    return [
        f"{name[1]}, {probe['tasks']} tasks" if names.count(name) > 1 else name[1]
        for name, probe in zip(names, probes, strict=True)
    ]


def size_of(probe: Content) -> str | None:
    """The number of parameters of the probed model, such as ``1.5 M`` or ``0.49 B``; None if unknown."""
    count = probe["model"].get("parameters")
    return count and (f"{count / 1e9:.2g} B" if count >= 1e8 else f"{count / 1e6:.2g} M")


def probe_table(probes: Sequence[Content]) -> Table:
    """The table of probes, a section per environment: shares, and differences with their intervals."""

    def with_interval(probe: Content, key: str) -> Cell | None:
        measure = probe["measures"].get(key)
        if measure is None or measure["value"] is None:
            return None
        low = measure["low"]
        high = measure["high"]
        bounds = "" if low is None or high is None else f" ({low:.2f} to {high:.2f})"
        return Cell(f"{measure['value']:+.2f}{bounds}", measure["value"])

    def gate(probe: Content) -> str | None:
        """Number of the gate's targets that are met: ``3 of 4``."""
        if not probe.get("gate"):
            return None
        return f"{sum(bool(judged['met']) for judged in probe['gate'].values())} of {len(probe['gate'])}"

    # Shares as numbers, differences with their intervals.
    names = dict(zip(map(id, probes), names_of(probes), strict=True))
    columns = [
        Column("model", lambda probe: names[id(probe)], no_wrap=True),
        Column("size", size_of, right=True, no_wrap=True),
        *(Column(name, partial(_value, key=key), ".2f") for name, key in SHARES.items()),
        *(
            Column(name, partial(with_interval, key=key), right=True, no_wrap=True)
            for name, key in DIFFERENCES.items()
        ),
        Column("hint gap", lambda probe: _value(probe, "hint_gap"), ".2f"),
        Column("gate", gate, right=True),
    ]
    return table(
        "Probes: what reflecting and retrying give without training",
        columns,
        probes,
        "base: success of attempts; valid, right: reflections, their outcomes. Retries of failures from the "
        "pivot: guided, without the hint; guided from the start; another attempt. Empty: not measured. 95 % "
        "intervals.",
        by=lambda probe: probe["label"],
    )


def flat(probes: Sequence[Content]) -> list[dict[str, Any]]:
    """The probes as flat records for JSON or CSV output, one for each measure of each probe.

    A probe has a further record for each difference of R3L to GRPO that the map predicts
    (``expected_early``, ``expected_final``).
    """
    records = []
    for probe in probes:
        place = {
            **{key: probe[key] for key in ("env", "tier", "temperature")},
            "model": probe["model"]["name"],
            "parameters": probe["model"].get("parameters"),
            "reflection_schema": probe.get("reflection_schema", "strict"),
            "feedback": probe.get("feedback", "self"),
            "feedback_corruption": probe.get("feedback_corruption", 0.0),
            "task_set": probe["task_set"]["name"],
        }
        for key, measure in probe["measures"].items():
            values = {part: measure[part] for part in ("value", "low", "high", "n", "tasks")}
            records.append(place | {"measure": key} | values)
        expected = probe.get("expected") or {}
        for when in ("early", "final"):
            if difference := expected.get(when):
                values = {**difference, "n": expected["comparisons"], "tasks": None}
                records.append(place | {"measure": f"expected_{when}"} | values)
    return records


def _value(probe: Content, key: str) -> float | None:
    value: float | None = probe["measures"].get(key, {}).get("value")
    return value
