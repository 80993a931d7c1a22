"""Blocks of docs/methods.md made from the registry, stored runs and probes (stored_tables.py fills them in).

In the table of methods the columns WRITTEN stay as they are in the page; every other one is made here.
"""

from __future__ import annotations

import importlib
import re
from typing import Any

import pandas as pd

from docs.site.pipe_table import Rows, pipe_table
from r3l.config import PROFILES, is_own, variant
from r3l.core.errors import DataError
from r3l.files.paths import STORED
from r3l.report import probes
from r3l.report.compare import compare_methods
from r3l.report.labels import env_label
from r3l.report.options import methods
from r3l.report.registered import Registered
from r3l.report.teachers import TeacherRow, teacher_rows
from r3l.stats.comparison import Verdict
from r3l.stats.intervals import MIN_SEEDS

TIER = "nano"
WRITTEN = ("what is played", "advantage A", "loss of a token", "source")
COLUMNS = (
    *(
        "method",
        "what is played",
        "advantage A",
        "loss of a token",
        "hint",
        "feedback by",
        "rollouts",
        "stored",
    ),
    *("differences", "source"),
)
HINTS = {  # what the setting teacher_sees shows a teacher
    "solution_or_feedback": "solved attempt, else feedback",
    "solution": "solved attempt",
    "feedback": "feedback",
    "nothing": "",
}
NUMBERED = re.compile(r"^\d+\. ", re.MULTILINE)
ESCAPED_PIPE = re.compile(r"(?<!\\)\|")


def filled_methods(body: str, runs: pd.DataFrame) -> str:
    """The table of all methods of the registry, in the order of the page; new ones follow.

    ``body``: the table as the page has it. ``runs``: the stored runs. Raises DataError for a method without a
    row in the page, since its columns WRITTEN are unknown.
    """
    lines = [ESCAPED_PIPE.split(line.strip())[1:-1] for line in body.strip().splitlines()]
    header, *rows = [[cell.strip() for cell in line] for line in lines if not line[0].startswith("---")]
    written = {row[0].strip("`"): dict(zip(header, row, strict=True)) for row in rows}
    registry = {row["method"]: row for row in methods(TIER) if not is_own("methods", row["method"])}
    if missing := sorted({*registry} - {*written}):
        raise DataError(
            f"docs/methods.md: the table of methods has no row for {', '.join(missing)}; add one with the "
            f"columns {', '.join(WRITTEN)}"
        )
    stored = _stored_environments(runs)
    found = [list(COLUMNS), ["---"] * len(COLUMNS)]
    for name in written:
        if name in registry:
            cells = {column: written[name].get(column, "") for column in WRITTEN}
            cells |= _generated(registry[name]) | {"stored": str(stored.get(name, "none"))}
            found.append([cells[column] for column in COLUMNS])
    return "\n".join(f"|{'|'.join(line)}|" for line in found)


def _generated(row: dict[str, Any]) -> dict[str, str]:
    """The cells of a method that its settings and its code give."""
    settings = row["settings"]
    module = row["code"].partition(":")[0]
    reads = bool(settings.get("feedback")) and settings.get("retries") != 0
    if "teacher_sees" in settings:
        hint = HINTS[settings["teacher_sees"]]
    elif not reads or settings.get("guidance") == "none":
        hint = ""
    else:
        hint = "reflection" if "reflection_schema" in settings else "critique"

    path = module.removeprefix("r3l.") if module.startswith("r3l.baselines.") else module
    points = len(NUMBERED.findall(importlib.import_module(module).__doc__ or ""))
    said = f"{points} points" if points else "code"
    counts = [str(row["rollouts"][profile]) for profile in PROFILES if profile != "released_code"]
    return {
        "method": f"`{row['method']}`",
        "hint": hint,
        "feedback by": settings["feedback"] if reads else "",
        "rollouts": "/".join(counts),
        "differences": f"[{said}](../{path.replace('.', '/')}.py)",
    }


def _stored_environments(runs: pd.DataFrame) -> dict[str, int]:
    """Number of environments with stored runs at TIER, by method; variants of the writer of feedback and of the
    learning rate count, others do not.
    """
    found: dict[str, set[str]] = {}
    for method, env in set(zip(runs[runs.tier == TIER].method, runs[runs.tier == TIER].env, strict=True)):
        name, changes = variant(method)
        if all(change.startswith(("feedback=", "train.lr=")) for change in changes):
            found.setdefault(name, set()).add(env)
    return {name: len(envs) for name, envs in found.items()}


def verdicts_against(runs: pd.DataFrame, other: str) -> str:
    """The methods that the stored runs of TIER show to end ahead of ``other``, or behind.

    Each method is compared in all its environments, with Holm's correction over them. A difference at unequal
    learning rates says so.
    """
    nano = runs[runs.tier == TIER]
    shown: dict[Verdict, dict[str, list[str]]] = {Verdict.AHEAD: {}, Verdict.BEHIND: {}}
    trained = nano[nano.steps > 0]
    for method in dict.fromkeys(trained.method):
        if method == other or any("feedback" not in change for change in variant(method).changes):
            continue  # a variant has another rate or budget
        label = trained[trained.method == method].iloc[0].label
        for row in compare_methods(nano, method, [other]):
            if row.pairs < MIN_SEEDS or row.difference is None or row.difference.verdict not in shown:
                continue
            rates = " at unequal rates" if any("train.lr" in text for text in row.warnings) else ""
            effect = f"{env_label(row.env)} {row.difference.effect.mean:+.3f}{rates}"
            shown[row.difference.verdict].setdefault(label, []).append(effect)
    parts = []
    for verdict, by_label in shown.items():
        listed = "; ".join(f"{label} ({', '.join(effects)})" for label, effects in sorted(by_label.items()))
        where = f"*Ahead* of {other.upper()}" if verdict is Verdict.AHEAD else f"*Behind* {other.upper()}"
        parts.append(f"{where}: {listed or 'none'}.")
    return " ".join(parts)


def teachers(runs: pd.DataFrame, of_plan: Registered) -> str:
    """D of teachers on successes and on failures: in stored runs, and in probes of their base models.

    A row a teacher, environment by environment; in brackets the seeds or tasks of the interval. The column of
    equal hints is there once a stored run has recorded D by kind of hint.
    """
    nano = runs[runs.tier == of_plan.tier]
    benches = set(zip(nano.env, nano.model, strict=True))
    probed = [
        probe
        for probe in probes.read_folders([STORED])
        if probe["tier"] == of_plan.tier and (probe["env"], probe["model"]["name"]) in benches
    ]
    found = teacher_rows(nano, probed)
    equal_hints = any(row.same_difference is not None for row in found)
    rows: Rows = {}
    for row in found:
        name = row.label.replace(f"Probe of {row.model}: ", "probe, ")
        rows[f"{env_label(row.env)}: {name} ({row.count} {row.over})"] = _teacher(row, equal_hints)
    return pipe_table(rows)


def _teacher(row: TeacherRow, equal_hints: bool) -> dict[str, str]:
    """The cells of one teacher, with the difference at ``equal_hints``; empty where nothing was measured."""

    def number(value: float | None, form: str) -> str:
        return "" if value is None else format(value, form)

    def interval(mean: float | None, low: float | None, high: float | None) -> str:
        return number(mean, "+.3f") + ("" if low is None else f" ({low:+.3f} to {high:+.3f})")

    same = {"difference, equal hints": interval(row.same_difference, row.same_low, row.same_high)}
    return {
        "D successes": number(row.solved, "+.3f"),
        "D failures": number(row.failed, "+.3f"),
        "difference": interval(row.difference, row.low, row.high),
        "difference, same task": interval(row.task_difference, row.task_low, row.task_high),
        **(same if equal_hints else {}),
        "feedback": number(row.fed, ".2f"),
        "gradient": number(row.grad_share, ".2g"),
        "cosine": number(row.grad_cosine, "+.2f"),
        "test success": number(row.success, ".3f"),
        "verdict": row.verdict,
    }
