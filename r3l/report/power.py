"""How many seeds a wanted difference takes, by the spread of finished runs, and what the stopping rule says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from r3l.report.compare import MethodComparison
from r3l.report.frame import all_tasks, by_bench
from r3l.report.labels import env_label, method_label
from r3l.report.registered import RULE
from r3l.report.table import Column, Table, table
from r3l.report.updates import updates
from r3l.runs.step_metrics import step_seconds
from r3l.stats.comparison import POWER, minimum_detectable_effect
from r3l.stats.power import PowerTarget, seeds_needed, spread_factors

SHOWN_SEEDS = (3, 5, 10, 20)  # numbers of seeds whose minimum detectable effect has a column


@dataclass(frozen=True)
class SeedPlan:
    """The seeds that one comparison takes, and their cost.

    ``seeds``: how many the wanted difference takes, finished ones included; None if the spread is unknown.
    ``core_seconds``: seconds times threads of training one seed of both methods, on average over the finished
    runs. ``seeds_due``: how many more the stopping rule asks for.
    """

    comparison: MethodComparison
    seeds: int | None
    core_seconds: float
    seeds_due: int

    @property
    def core_hours(self) -> float | None:
        """Core-hours to train both methods with all ``seeds``.

        None if ``seeds`` is None.
        """
        return None if self.seeds is None else self.seeds * self.core_seconds / 3600

    @property
    def core_hours_left(self) -> float | None:
        """Core-hours for the seeds that are not finished yet; None if ``seeds`` is None."""
        left = None if self.seeds is None else max(self.seeds - self.comparison.pairs, 0)
        return None if left is None else left * self.core_seconds / 3600

    def flat(self) -> dict[str, Any]:
        """The plan as one flat record for JSON output.

        Its keys: tier, env, model, method, against, pairs (seeds that both have), spread, seeds_needed,
        core_hours, core_hours_left, seeds_due.
        """
        keys = ("tier", "env", "model", "method", "against", "pairs", "spread")
        return {key: getattr(self.comparison, key) for key in keys} | {
            "seeds_needed": self.seeds,
            "core_hours": self.core_hours,
            "core_hours_left": self.core_hours_left,
            "seeds_due": self.seeds_due,
        }


def power_rows(
    compared: Sequence[MethodComparison], runs: pd.DataFrame, wanted: float, target: PowerTarget
) -> list[SeedPlan]:
    """A plan for each comparison: how many seeds detect a true difference of ``wanted`` in success.

    ``target``: level and power of the test. ``runs``: the compared runs, from which the cost of a seed is
    taken.
    """

    def core_seconds(seeds: pd.DataFrame) -> float:
        """Mean cost of one training run: its seconds times its threads."""
        if not len(seeds):
            return 0.0
        threads = seeds.iloc[0].manifest["run"].get("threads", 1)
        return float(np.mean([sum(map(step_seconds, updates(path))) for path in seeds.path]) * threads)

    plans = []
    of_benches = by_bench(all_tasks(runs))
    for row in compared:
        here = of_benches[row.tier, row.env, row.model]
        both = (here[here.method == name] for name in (row.method, row.against))
        seeds = None if row.spread is None else seeds_needed(row.spread, wanted, target.level, target.power)
        due = RULE.seeds_due(row.spread, row.pairs)
        plans.append(SeedPlan(row, seeds, sum(map(core_seconds, both)), due))
    return plans


def power_table(rows: Sequence[SeedPlan], wanted: float, target: PowerTarget) -> Table:
    """The table of ``rows``, a line each: finished seeds, spread, seeds needed, and their cost in core-hours.

    Further columns: minimum detectable effects of SHOWN_SEEDS seeds, and how many more seeds the stopping
    rule asks for. ``wanted``: the difference in success to detect, with which ``rows`` were made. ``target``:
    level and power of the test. Raises IndexError without rows.
    """

    def mde_of(seeds: int) -> Column:
        def cell(row: SeedPlan) -> float | None:
            spread = row.comparison.spread
            return spread and minimum_detectable_effect(seeds, target.level, target.power) * spread

        return Column(f"{seeds} seeds", cell, ".3f")

    # The spread of few seeds is known within a factor of three, which makes the needed seeds as uncertain.
    def spread_with_interval(row: SeedPlan) -> str:
        spread = row.comparison.spread
        if spread is None:
            return "unknown"
        low, high = (spread * factor for factor in spread_factors(row.comparison.pairs))
        return f"{spread:.3f} ({low:.3f} to {high:.3f})"

    def seeds_with_interval(row: SeedPlan) -> str:
        spread = row.comparison.spread
        if spread is None:
            return ""
        ends = (spread * factor for factor in spread_factors(row.comparison.pairs))
        low, high = (seeds_needed(end, wanted, target.level, target.power) for end in ends)
        return f"{row.seeds} ({low} to {high})"

    # The title and the notes hold for all rows, which are of one method, tier and task group.
    first = rows[0].comparison
    tasks = "" if first.group == "all" else f", {first.group} tasks"
    family = f" as the strictest of {target.comparisons} comparisons (Holm)" if target.comparisons > 1 else ""
    columns = [
        Column("env", lambda row: env_label(row.comparison.env)),
        Column("against", lambda row: row.comparison.label),
        Column("finished", lambda row: row.comparison.pairs, "d"),
        Column("spread", spread_with_interval, right=True),
        Column("seeds", seeds_with_interval, right=True),
        Column("core-hours", lambda row: row.core_hours, ".1f"),
        Column("left", lambda row: row.core_hours_left, ".1f"),
        *map(mde_of, SHOWN_SEEDS),
        Column("stopping rule", lambda row: f"{row.seeds_due} more seeds" if row.seeds_due else "stop"),
    ]
    return table(
        f"Seeds for {method_label(first.method)}, tier {first.tier}{tasks}: to show {wanted:g}",
        columns,
        rows,
        f"paired t-test over seeds, two-sided {100 * target.alpha:g} %{family}, power "
        f"{100 * target.power:g} %; spread: standard deviation of the paired differences of the finished "
        "seeds; in brackets its 95 % interval (chi-square) and what that makes of the seeds; core-hours: "
        "of training both methods, as long as the finished runs took; left: of seeds that are not finished; "
        "evaluation comes on top; k seeds: their minimum detectable effect",
        f"stopping rule: blocks of {RULE.block} seeds until the minimum detectable effect (two-sided "
        f"{100 * RULE.alpha:g} %, power {100 * POWER:g} %) is at most {RULE.difference:g}, {RULE.most} "
        "seeds at most; it sees the spread over seeds, never which method is ahead, and tests at a "
        "stricter level, since stopping where the spread happens to be small makes errors more frequent",
    )
