"""Tables of what training counted: retries that improve, agreement with an oracle, cost of a step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from r3l.core.errors import check_known
from r3l.report.budget import NOT_RECORDED
from r3l.report.frame import TOKENS, Bench, all_tasks, by_bench, by_method
from r3l.report.labels import planned_feedback_author, written_by
from r3l.report.published import PAPER_COLUMNS, Reference, against, paper_columns
from r3l.report.scores import INTERVAL, METHOD, PLACE, as_rows, interval_columns, missing, place_of
from r3l.report.updates import updates
from r3l.runs.metrics import COLLECT_SECONDS, TRAIN_SECONDS
from r3l.runs.step_metrics import base_success, rates, summed
from r3l.stats.intervals import t_interval

LAST = 5  # updates; the learning curves' running mean has as many
JUDGED = "ours: by rule, against the critic's pivot and cause; the paper does not say who judged"
OUR_MACHINE = "seconds of another machine"
COLUMNS = (
    "table",
    *PLACE,
    *METHOD,
    "unit",
    *INTERVAL,
    "seeds_done",
    "seeds_planned",
    *PAPER_COLUMNS,
    "outdated",
)


@dataclass(frozen=True)
class RunMeasure:
    """A number of one training run (:func:`measured`).

    ``label``: its printed name. ``unit``: ``share``, ``turns``, ``tokens`` or ``s``. ``better``: which side
    is best, ``high`` or ``low``; empty: neither. ``caveat``: why ours and the published number cannot be
    compared.
    """

    label: str
    unit: Literal["share", "turns", "tokens", "s"]
    better: Literal["high", "low", ""]
    caveat: str = ""


MEASURES = {
    "train_success": RunMeasure("all updates", "share", "high"),
    "train_success_last": RunMeasure(f"last {LAST} updates", "share", "high"),
    "retry_improved": RunMeasure("retries that improve", "share", "high"),
    "pivot_oracle_agreement": RunMeasure("oracle agreement", "share", "high"),
    "retry_success_right_pivot": RunMeasure("retry success, right pivot", "share", "high"),
    "retry_success_wrong_pivot": RunMeasure("retry success, wrong pivot", "share", "high"),
    "diagnosis_accurate": RunMeasure("accurate", "share", "high", JUDGED),
    "diagnosis_partial": RunMeasure("partial", "share", "", JUDGED),
    "diagnosis_wrong": RunMeasure("misdiagnosed", "share", "low", JUDGED),
    "turns_per_task": RunMeasure("turns a task", "turns", "low"),
    "sampled_tokens_per_task": RunMeasure("sampled tokens a task", "tokens", "low"),
    "scored_tokens_per_task": RunMeasure("scored tokens a task", "tokens", ""),
    "trained_tokens_per_task": RunMeasure("trained tokens a task", "tokens", "low"),
    "rollout_seconds": RunMeasure("rollout s a step", "s", "low", OUR_MACHINE),
    "train_seconds": RunMeasure("training s a step", "s", "low", OUR_MACHINE),
}
OF_TASKS = {  # column of a run, by the measure that divides it by tasks
    "turns_per_task": "env_steps",
    "sampled_tokens_per_task": "generated_tokens",
    "scored_tokens_per_task": "scored_tokens",
    "trained_tokens_per_task": "trained_tokens",
}
RATES = {  # of r3l.runs.metrics, where it has another name there
    "pivot_oracle_agreement": "pivot_oracle_near",
    "diagnosis_accurate": "reflection_accurate",
    "diagnosis_partial": "reflection_partial",
    "diagnosis_wrong": "reflection_wrong",
}


def measured(name: str, run: Any) -> float | None:
    """The measure ``name`` (a key of MEASURES) of one run; None if the run has nothing to count for it.

    ``run``: a row of r3l.report.frame. In the unit of MEASURES: of tasks, a mean per task explored in
    training; of seconds, a mean per update.
    """
    budget = run.budget
    match name:
        case "train_success":
            return base_success(budget)
        case "train_success_last":
            return base_success(summed(updates(run.path)[-LAST:]))
        case _ if name in OF_TASKS:
            # For each training task explored, which is the paper's "sample": all its rollouts together. An
            # extra round of DAPO only fills up the batch, so rounds times tasks a round bound the number of
            # tasks.
            per_round = run.manifest["run"].get("train", {}).get("tasks_per_step", 0)
            tasks = budget.get("sampling_rounds", 0) * per_round
            counts = {**budget, **{column: getattr(run, column) for column in TOKENS}}
            spent = float(counts.get(OF_TASKS[name], math.nan))
            return None if math.isnan(spent) or not tasks else spent / float(tasks)
        case "rollout_seconds" | "train_seconds":
            key = COLLECT_SECONDS if name == "rollout_seconds" else TRAIN_SECONDS
            seconds = [float(update[key]) for update in updates(run.path) if key in update]
            return float(np.mean(seconds)) if seconds else None
    return rates(budget)[RATES.get(name, name)]


def measure_rows(
    runs: pd.DataFrame,
    methods: Sequence[str],
    names: Sequence[str],
    seeds_planned: int,
    title: str,
    reference: Reference,
    planned_benches: Sequence[Bench] = (),
) -> pd.DataFrame:
    """A row for every (tier, env, model), method and measure: mean over training seeds, with its t-interval.

    ``names``: keys of MEASURES. ``title``: value of the column ``table`` in all rows. ``reference``: the
    published numbers to compare ours with. Methods without runs, and all of ``planned_benches``, have rows
    too. Columns are described in r3l.report.scores.as_rows. Raises ConfigError for an unknown measure.
    """
    for name in names:
        check_known("measure", name, MEASURES)
    rows: list[dict[str, Any]] = []
    of_benches = by_bench(all_tasks(runs))
    for bench in sorted({*planned_benches, *of_benches}):
        tier, _, model = bench
        here = of_benches.get(bench, runs.iloc[:0])
        place = place_of(bench) | ({"tier_label": here.iloc[0].tier_label} if len(here) else {})
        for method, seeds in by_method(here, methods).items():
            for name in names:
                known = place | {"measure": name, "unit": MEASURES[name].unit}
                row = missing(method, seeds_planned, "no run", **known)
                rows.append(row)
                if not len(seeds):
                    row["feedback"] = planned_feedback_author(method, tier)
                    continue
                first = seeds.iloc[0]
                row |= {"label": first.label, "feedback": written_by(first.feedback, seeds)}
                of_seeds = seeds[["path", "manifest", "budget", *TOKENS]].itertuples()
                counted = [measured(name, run) for run in of_seeds]
                values = [value for value in counted if value is not None]
                if not values:
                    reason = NOT_RECORDED if name in OF_TASKS else "none"
                    row |= {"seeds_done": len(seeds)} | paper_columns("not comparable", reason)
                    continue

                # Mean and interval over the seeds that counted something, against the published number.
                interval = t_interval(values)
                caveat = MEASURES[name].caveat
                number = reference.get(model, place["benchmark"], reference.label(method, first.label), name)
                paper = against(number, tier, interval, len(values), seeds_planned)
                if tier == "paper" and number and caveat:
                    paper = paper_columns("not comparable", caveat, number)
                row |= interval_columns(interval) | {"seeds_done": len(values)} | paper
    return as_rows(rows, table=title)
