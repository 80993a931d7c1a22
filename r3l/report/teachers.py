"""Does the teacher teach? A row a method or probe, with what its teacher makes of successes and of failures.

Shown by `r3l table teachers`, `r3l figure teachers` and a section of the report.

A teacher is the policy with a hint in its prompt. D = log p of a sampled token under the teacher minus the
policy's. If the 95 % interval of D on successes minus D on failures includes 0, the teacher is blind: it was
not shown to tell them apart. Successes are mostly of easy tasks, and may read other hints than failures, so
the difference between attempts at one task with one kind of hint decides where it was measured, else the one
at equal hints. A method with a blind teacher is not ranked by its score, since what it learned is not shown
to come from its teacher.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from r3l.report.frame import all_tasks, by_bench, by_method
from r3l.report.labels import bench_label
from r3l.report.probes import Content, name_of
from r3l.report.table import Column, Table, table
from r3l.report.updates import TrainingColumns, training_of
from r3l.runs.metrics import TEACHER_CONTEXTS
from r3l.stats.intervals import MIN_SEEDS, t_interval

TEACHERS = {  # printed name of what a teacher of a probe sees, by its name in stored files
    "solution": "a solved attempt",
    "reflection": "the model's reflection",
}
BLIND = "blind teacher"
EQUAL_HINTS = (
    "Equal hints: attempts whose teacher reads a solved attempt; blank for runs older than this measure."
)
NO_TASK = "no task has both"
NOTE = (
    "D: log p of sampled tokens under the teacher minus the policy's, nats per token; difference: D on "
    "successes minus D on failures, with its 95 % interval over training seeds (means over updates), or "
    "over a probe's tasks. Same task: between attempts at one task with one kind of hint, over tasks with a "
    "success and a failure; blank for runs older than this measure, whose difference also compares easy "
    "tasks with hard ones. Blind teacher: the interval includes 0 (of the same task, else at equal hints, if "
    "measured), so the method is not ranked. Rank: by test success, among two or more methods of the environment whose "
    "teachers tell successes from failures. Hint in prompt: share of teachers' prompts that contain it. "
    "Feedback: share of hints that are feedback on a failure, not a solved attempt; successes read none, so "
    "between 0 and 1 the difference also compares hints. Gradient: the teacher's share of its squared norm, "
    "and the cosine with the rest."
)


class Difference(NamedTuple):
    """Mean D of successes and of failures, and their difference with its interval; None if not measured."""

    solved: float | None
    failed: float | None
    mean: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class TeacherRow:
    """How a teacher rates successes and failures, in the training of a method or in a probe.

    - ``solved``, ``failed``: mean D of successes and of failures, in nats per token; D: log p of a sampled
      token under the teacher minus the policy's
    - ``difference``: ``solved`` minus ``failed``, with its 95 % interval ``low`` to ``high``; all None if not
      measured
    - ``over``, ``count``: unit of the interval's sample (``seeds`` or ``tasks``), and their number
    - ``label``: the method's printed name, or which probe it is
    - ``shown``: share of the teacher's prompts that contain the hint
    - ``fed``: share of the hints that are feedback on a failure, where the others are solved attempts; None
      if the hints are of one other kind. Feedback is for failures alone, so above 0 and below 1
      ``difference`` compares the kinds of hint too
    - ``grad_share``, ``grad_cosine``: the teacher's share in the gradient of training, and the cosine between
      its part and the rest; None if not recorded
    - ``success``: mean test success of a method
    - ``same_solved``, ``same_failed``, ``same_difference``, ``same_low``, ``same_high``: the five figures of
      D over attempts whose teacher reads a solved attempt, so that hints are equal; ``fed_failed``: D of
      failures whose teacher reads feedback. None if not recorded
    - ``task_difference``, ``task_low``, ``task_high``: the difference between attempts at one task with one
      kind of hint, with its interval; None if not recorded. ``tasks_compared``: False if it was recorded, and
      no task has a success and a failure
    - ``rank``: the method's rank by ``success`` among methods whose teacher tells successes from failures,
      such as ``1 of 3``; None if it is the only one
    """

    tier: str
    env: str
    model: str
    label: str
    method: str | None
    over: str
    count: int
    shown: float | None
    fed: float | None
    solved: float | None
    failed: float | None
    difference: float | None
    low: float | None
    high: float | None
    grad_share: float | None = None
    grad_cosine: float | None = None
    success: float | None = None
    rank: str | None = None
    same_solved: float | None = None
    same_failed: float | None = None
    same_difference: float | None = None
    same_low: float | None = None
    same_high: float | None = None
    fed_failed: float | None = None
    task_difference: float | None = None
    task_low: float | None = None
    task_high: float | None = None
    tasks_compared: bool = True

    @property
    def decisive(self) -> Difference:
        """The difference that decides the verdict: of the same task, else at equal hints, where measured.

        The other differences also compare tasks, or kinds of hint.
        """
        if self.task_difference is not None or not self.tasks_compared:
            return Difference(self.solved, self.failed, self.task_difference, self.task_low, self.task_high)
        if self.same_low is None:
            return Difference(self.solved, self.failed, self.difference, self.low, self.high)
        same = self.same_difference, self.same_low, self.same_high
        return Difference(self.same_solved, self.same_failed, *same)

    @property
    def sees(self) -> bool:
        """True if the teacher finds successes likelier than failures: the decisive interval is above 0."""
        return self.decisive.low is not None and self.decisive.low > 0

    @property
    def verdict(self) -> str:
        """The method's rank, or why it has none.

        ``no successes or no failures``, ``no task has both``, ``needs 3 seeds`` (or ``2 tasks``), ``blind
        teacher`` (the decisive interval includes 0) or ``prefers failures``. A teacher without a rank that
        finds successes likelier than failures ``tells them apart``.
        """
        if self.difference is None:
            return "no successes or no failures"
        if not self.tasks_compared:
            return NO_TASK
        low = self.decisive.low
        high = self.decisive.high
        if low is None or high is None:
            return f"needs {MIN_SEEDS} seeds" if self.method else "needs 2 tasks"
        if low <= 0 <= high:
            return BLIND
        if not self.sees:
            return "prefers failures"
        return self.rank or "tells them apart"


def teacher_rows(runs: pd.DataFrame, probes: Sequence[Content] = ()) -> list[TeacherRow]:
    """A row for each method of ``runs`` whose metrics have teacher/*, and for each teacher of ``probes``.

    Sorted by tier, environment and model, then the largest decisive difference first, those without one
    last. Seeds without a step that has both successes and failures are left out of the difference.
    """
    rows = [
        _of_method(bench, method, seeds)
        for bench, here in by_bench(all_tasks(runs)).items()
        for method, seeds in by_method(here).items()
        if any(training_of(path).taught for path in seeds.path)
    ]
    rows += [row for probe in probes for row in _of_probe(probe)]

    def bench(row: TeacherRow) -> tuple[str, str, str]:
        return row.tier, row.env, row.model

    def difference(row: TeacherRow) -> float:
        return np.inf if row.decisive.mean is None else -row.decisive.mean

    # Ranks are by test success, among the methods of a bench whose teachers see the difference.
    ranked: list[TeacherRow] = []
    for _, of_bench_rows in groupby(sorted(rows, key=bench), key=bench):
        ordered = sorted(of_bench_rows, key=difference)
        scores = sorted(
            (row.success for row in ordered if row.sees and row.success is not None), reverse=True
        )
        for row in ordered:
            if row.sees and row.success is not None and len(scores) > 1:
                row = replace(row, rank=f"{scores.index(row.success) + 1} of {len(scores)}")
            ranked.append(row)
    return ranked


def _of_method(bench: tuple[str, str, str], method: str, seeds: pd.DataFrame) -> TeacherRow:
    """The row of a method: means over the updates of each seed, then over ``seeds``."""
    trainings = [training_of(path).columns for path in seeds.path]

    def recorded(columns: TrainingColumns, name: str) -> NDArray[np.float64]:
        """The metric at the updates with a teacher that recorded it."""
        with_teacher_U = ~np.isnan(columns[TEACHER_CONTEXTS])
        return columns[name][with_teacher_U & ~np.isnan(columns[name])]

    def by_seed(name: str) -> list[float]:
        values = [recorded(columns, name) for columns in trainings]
        return [float(np.mean(of_seed)) for of_seed in values if len(of_seed)]

    def mean(name: str) -> float | None:
        values = by_seed(name)
        return float(np.mean(values)) if values else None

    # The interval is over seeds; the share of prompts with the hint is over all prompts together.
    differences = by_seed("teacher/gap_difference")
    interval = t_interval(differences) if differences else None
    of_same = by_seed("teacher/gap_difference_by_solution")
    same = t_interval(of_same) if of_same else None
    of_tasks = by_seed("teacher/gap_difference_same_task")
    within = t_interval(of_tasks) if of_tasks else None
    contexts, shown, feedback, solutions = (
        sum(float(recorded(columns, f"teacher/{name}").sum()) for columns in trainings)
        for name in ("contexts", "with_feedback", "by_feedback", "by_solution")
    )
    hints = feedback + solutions
    return TeacherRow(
        *bench,
        label=seeds.iloc[0].label,
        method=method,
        over="seeds",
        count=len(differences) or len(seeds),
        shown=shown / contexts if contexts else None,
        fed=feedback / hints if hints else None,
        solved=mean("teacher/gap_success"),
        failed=mean("teacher/gap_failure"),
        difference=None if interval is None else interval.mean,
        low=None if interval is None else interval.low,
        high=None if interval is None else interval.high,
        grad_share=mean("teacher/grad_share"),
        grad_cosine=mean("teacher/grad_cosine"),
        success=float(np.mean(seeds.success)),
        same_solved=mean("teacher/gap_success_by_solution"),
        same_failed=mean("teacher/gap_failure_by_solution"),
        same_difference=None if same is None else same.mean,
        same_low=None if same is None else same.low,
        same_high=None if same is None else same.high,
        fed_failed=mean("teacher/gap_failure_by_feedback"),
        task_difference=None if within is None else within.mean,
        task_low=None if within is None else within.low,
        task_high=None if within is None else within.high,
    )


def _of_probe(probe: Content) -> Iterator[TeacherRow]:
    """A row for each teacher of a probe; none if the probe is older than the measures."""
    found = probe["measures"]
    keys = {  # of D on successes and on failures, their difference, and what prompts contain
        sees: (f"{name}_gap_solved", f"{name}_gap_failed", f"{name}_difference", f"{name}_shown")
        for name, sees in TEACHERS.items()
    }
    keys["the reflection, in guided retries"] = ("hint_gap", "hint_gap_failed", "hint_gap_difference", "")
    for sees, (solved, failed, difference, shown) in keys.items():
        if difference in found and (found[solved]["n"] or found[failed]["n"]):
            within = found.get(f"{difference}_same_task", {})
            yield TeacherRow(
                *(probe["tier"], probe["env"], probe["model"]["name"]),
                label=f"Probe of {name_of(probe)}: {sees}",
                method=None,
                over="tasks",
                count=max(found[solved]["tasks"], found[failed]["tasks"]),
                shown=found[shown]["value"] if shown else None,
                fed=None,
                solved=found[solved]["value"],
                failed=found[failed]["value"],
                difference=found[difference]["value"],
                low=found[difference]["low"],
                high=found[difference]["high"],
                task_difference=within.get("value"),
                task_low=within.get("low"),
                task_high=within.get("high"),
                tasks_compared=not within or within["value"] is not None,
            )


def flat(rows: Sequence[TeacherRow]) -> list[dict[str, Any]]:
    """The rows as flat records, for JSON or CSV output: their fields and the verdict, not rounded."""
    return [asdict(row) | {"verdict": row.verdict} for row in rows]


def teacher_table(rows: Sequence[TeacherRow]) -> Table:
    """The table of teachers, a section per environment; with D at equal hints if a row has it."""

    def interval(mean: float | None, low: float | None, high: float | None) -> str | None:
        if mean is None:
            return None
        bounds = "" if low is None else f" ({low:+.3f} to {high:+.3f})"
        return f"{mean:+.3f}{bounds}"

    def difference(row: TeacherRow) -> str | None:
        return interval(row.difference, row.low, row.high)

    def same_difference(row: TeacherRow) -> str | None:
        return interval(row.same_difference, row.same_low, row.same_high)

    def task_difference(row: TeacherRow) -> str | None:
        return interval(row.task_difference, row.task_low, row.task_high)

    by_hint = [
        Column("D successes, equal hints", lambda row: row.same_solved, "+.3f", drop=5),
        Column("D failures, equal hints", lambda row: row.same_failed, "+.3f", drop=5),
        Column("D failures, feedback", lambda row: row.fed_failed, "+.3f", drop=5),
        Column("difference, equal hints", same_difference, right=True, no_wrap=True, drop=4),
    ]
    recorded = any(row.same_failed is not None or row.fed_failed is not None for row in rows)
    seen = [(row.tier, row.env, row.model) for row in rows]
    return table(
        "Does the teacher teach?",
        [
            Column("method, or teacher of a probe", lambda row: row.label),
            Column("over", lambda row: f"{row.count} {row.over}", no_wrap=True),
            Column("hint in prompt", lambda row: row.shown, ".2f"),
            Column("feedback", lambda row: row.fed, ".2f", drop=4),
            Column("D successes", lambda row: row.solved, "+.3f", drop=3),
            Column("D failures", lambda row: row.failed, "+.3f", drop=3),
            Column("difference", difference, right=True, no_wrap=True),
            Column("difference, same task", task_difference, right=True, no_wrap=True),
            *(by_hint if recorded else []),
            # SDAR's is some 1e-5, which is not 0.
            Column("gradient share", lambda row: row.grad_share, ".2g", drop=1),
            Column("cosine", lambda row: row.grad_cosine, "+.2f", drop=2),
            Column("test success", lambda row: row.success, ".3f", drop=1),
            Column("rank", lambda row: row.verdict, no_wrap=True),
        ],
        rows,
        NOTE,
        EQUAL_HINTS if recorded else "",
        by=lambda row: bench_label((row.tier, row.env, row.model), seen),
    )
