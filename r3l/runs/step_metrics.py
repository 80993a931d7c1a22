"""Metrics of training steps: read from metrics.jsonl, added up over steps, and their rates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NotRequired

from pydantic import BeforeValidator
from typing_extensions import TypedDict

from r3l.files.json_files import Number, read_jsonl, read_jsonl_columns
from r3l.runs.metrics import (
    COLLECT_SECONDS,
    GENERATED_TOKENS,
    MEASURED,
    METRICS_BY_NAME,
    RATES,
    TEACHER_CONTEXTS,
    TIME,
    TRAIN_SECONDS,
    Counts,
    declared,
    is_total,
)
from r3l.runs.run_dir import METRICS


def _with_step(row: Any) -> Any:
    if isinstance(row, dict) and not isinstance(row.get("step"), int):
        raise ValueError("the step is missing, or is not an integer")
    return row


# One line of metrics.jsonl: the declared metrics of one step.
StepMetrics: Any = Annotated[dict[str, Number], BeforeValidator(_with_step)]


def read_metrics(run_dir: Path) -> list[dict[str, float]]:
    """The metrics of every step of a run, in order of the file; [] without one.

    A torn last line is skipped with a warning. Raises DataError for any other damaged line.
    """
    return read_jsonl(run_dir / METRICS, StepMetrics)


# Metrics that reports need of thousands of runs at once, in sets that are read together: of every run, of its
# rates, and of runs with a teacher.
KEPT = (
    *("rollouts", "retry/count", "stop/success", "retry/success"),
    *(GENERATED_TOKENS, TEACHER_CONTEXTS, *MEASURED),
)
OF_COUNTS = tuple(dict.fromkeys(name for rate in RATES for name in rate.counts))
OF_TEACHERS = tuple(name for name in METRICS_BY_NAME if name.startswith("teacher/"))


def read_columns(run_dir: Path, names: tuple[str, ...] = KEPT) -> dict[str, list[float | None]]:
    """The metrics ``names`` of a finished run: by name, the value of each step, None where it is missing.

    After the first call they come from the cache folder (``read_jsonl_columns``). Raises DataError for a
    line that is damaged, lacks its step, or has a text for one of these metrics.
    """
    return read_jsonl_columns(run_dir / METRICS, _step_with(names), names)


@cache
def _step_with(names: tuple[str, ...]) -> Any:
    """Type of a line as far as ``names`` go: a TypedDict, whose columns are checked without making rows."""
    keys: dict[str, Any] = {"step": int, **dict.fromkeys(names, NotRequired[Number])}
    return TypedDict("StepWith", keys)  # type: ignore[operator]


def members(counts: Counts, family: str) -> dict[str, float]:
    """The metrics of a family by the rest of their names: ``stop/success`` of ``stop`` is ``success``."""
    prefix = f"{family}/"
    return {name.removeprefix(prefix): n for name, n in counts.items() if name.startswith(prefix)}


def summed(rows: Iterable[Counts]) -> Counter[str]:
    """Sum of each metric over several steps, of whatever kind; meaningful only for counts and seconds."""
    total: Counter[str] = Counter()
    for row in rows:
        total.update(row)
    return total


def totals(rows: Iterable[Counts]) -> Counter[str]:
    """The budget of a run: sums over its steps of all metrics of kind TOTAL."""
    return summed({name: value for name, value in row.items() if is_total(name)} for row in rows)


def rates(counts: Counts) -> dict[str, float | None]:
    """Every rate of the counts of a step, or of the totals of a run; None if its denominator is 0."""
    return {rate.name: rate.of(counts) for rate in RATES}


def with_rates(row: Counts) -> dict[str, float]:
    """A step's metrics with its rates, as ``rate/NAME``; rates whose denominator is 0 are left out."""
    return {**row, **{f"rate/{name}": value for name, value in rates(row).items() if value is not None}}


def base_success(counts: Counts) -> float | None:
    """Success rate of base rollouts from counts as in :func:`rates`; None without base rollouts.

    For one step it equals ``train/success``; it is also right for early stored runs of Critique-GRPO, whose
    ``train/success`` leaves out rollouts that a refinement replaced.
    """
    bases = counts.get("rollouts", 0) - counts.get("retry/count", 0)
    return (counts.get("stop/success", 0) - counts.get("retry/success", 0)) / bases if bases else None


def with_rounded_times(row: Counts) -> dict[str, float]:
    """A step's metrics with seconds rounded to 0.1 ms, to save space: further digits mean nothing."""
    times = {name for name in row if (metric := declared(name)) and metric.kind is TIME}
    return {name: round(n, 4) if name in times else n for name, n in row.items()}


def step_seconds(row: Counts) -> float:
    """Seconds of a step: collecting and the update, without checkpoints and evaluation."""
    return row.get(COLLECT_SECONDS, 0) + row.get(TRAIN_SECONDS, 0)
