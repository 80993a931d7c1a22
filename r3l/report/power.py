"""How many seeds a wanted difference takes, by the spread of stored runs, and whether the stopping rule wants more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from r3l.evaluation.power import Goal, StoppingRule, minimum_detectable_effect, seeds_needed, uncertainty
from r3l.report.compare import Comparison
from r3l.report.labels import env_label, method_label
from r3l.report.records import Record
from r3l.report.table import Column, Table, table
from r3l.runs.metrics import step_seconds

SEEDS = (3, 5, 10, 20)  # whose minimum detectable effect is shown
RULE = StoppingRule()
RULE_GOAL = Goal(alpha=RULE.alpha)


@dataclass(frozen=True)
class Plan:
    """Of one comparison: ``seeds`` that the wanted difference takes, None where the spread is not known.

    ``core_hours``: of training both methods with that many seeds, as long as the stored runs took on average;
    ``core_hours_left``: of those that are not stored. ``seeds_due``: what the stopping rule wants next.
    """

    comparison: Comparison
    seeds: int | None
    core_seconds: float
    seeds_due: int

    @property
    def core_hours(self) -> float | None:
        return None if self.seeds is None else self.seeds * self.core_seconds / 3600

    @property
    def core_hours_left(self) -> float | None:
        """Of the seeds that are not stored."""
        left = None if self.seeds is None else max(self.seeds - self.comparison.pairs, 0)
        return None if left is None else left * self.core_seconds / 3600

    @property
    def spread(self) -> float | None:
        """The standard deviation of the paired differences of the stored seeds."""
        return self.comparison.difference.spread if self.comparison.difference else None

    def flat(self) -> dict[str, Any]:
        place = {key: getattr(self.comparison, key) for key in ("tier", "env", "model", "method", "against", "pairs")}
        plan = {"spread": self.spread, "seeds_needed": self.seeds, "core_hours": self.core_hours}
        return place | plan | {"core_hours_left": self.core_hours_left, "seeds_due": self.seeds_due}


def power_rows(compared: Sequence[Comparison], records: Sequence[Record], wanted: float, goal: Goal) -> list[Plan]:
    plans = []
    for row in compared:
        runs = [record for record in records if record.bench == (row.tier, row.env, row.model)]
        both = ([run for run in runs if run.method == name] for name in (row.method, row.against))
        spread = row.difference.spread if row.difference else None
        seeds = None if spread is None else seeds_needed(spread, wanted, goal)
        due = RULE.seeds_due(spread, row.pairs, RULE_GOAL)
        plans.append(Plan(row, seeds, sum(map(_core_seconds, both)), due))
    return plans


def _core_seconds(seeds: Sequence[Record]) -> float:
    """Of one training run on average: its seconds, on as many cores as it has threads."""
    if not seeds:
        return 0.0
    threads = seeds[0].manifest["run"].get("threads", 1)
    return float(np.mean([sum(map(step_seconds, record.metrics)) for record in seeds]) * threads)


def power_table(rows: Sequence[Plan], wanted: float, goal: Goal) -> Table:
    """A line an environment and opponent."""
    first = rows[0].comparison
    tasks = "" if first.group == "all" else f", {first.group} tasks"
    family = f" as the strictest of {goal.comparisons} comparisons (Holm)" if goal.comparisons > 1 else ""

    def detectable(seeds: int) -> Column:
        return Column(
            f"{seeds} seeds", lambda row: row.spread and minimum_detectable_effect(row.spread, seeds, goal), ".3f"
        )

    columns = [
        Column("env", lambda row: env_label(row.comparison.env)),
        Column("against", lambda row: row.comparison.label),
        Column("stored", lambda row: row.comparison.pairs, "d"),
        Column("spread", _spread, right=True),
        Column("seeds", lambda row: _needed(row, wanted, goal), right=True),
        Column("core-hours", lambda row: row.core_hours, ".1f"),
        Column("left", lambda row: row.core_hours_left, ".1f"),
        *map(detectable, SEEDS),
        Column("stopping rule", lambda row: f"{row.seeds_due} more seeds" if row.seeds_due else "stop"),
    ]
    return table(
        f"Seeds for {method_label(first.method)}, tier {first.tier}{tasks}: to show {wanted:g}",
        columns,
        rows,
        f"paired t-test over seeds, two-sided {100 * goal.alpha:g} %{family}, power {100 * goal.power:g} %; spread: "
        "standard deviation of the paired differences of the stored seeds; in brackets its 95 % interval (chi-square) "
        "and what that makes of the seeds; core-hours: of training both methods, as long as the stored runs took; "
        "left: of those that are not stored; evaluation comes on top; k seeds: their minimum detectable effect",
        f"stopping rule: blocks of {RULE.block} seeds until the minimum detectable effect (two-sided "
        f"{100 * RULE.alpha:g} %, power {100 * RULE_GOAL.power:g} %) is at most {RULE.difference:g}, {RULE.most} seeds "
        "at most; it sees the spread over seeds, never which method is ahead, and tests at a stricter level, since "
        "stopping where the spread happens to be small makes errors more frequent",
    )


def _spread(row: Plan) -> str:
    if row.spread is None:
        return "unknown"
    low, high = (row.spread * factor for factor in uncertainty(row.comparison.pairs))
    return f"{row.spread:.3f} ({low:.3f} to {high:.3f})"


def _needed(row: Plan, wanted: float, goal: Goal) -> str:
    if row.spread is None:
        return ""
    low, high = (seeds_needed(row.spread * factor, wanted, goal) for factor in uncertainty(row.comparison.pairs))
    return f"{row.seeds} ({low} to {high})"
