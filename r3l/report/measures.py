"""What training itself counted, as a table: retries that improve, agreement with an oracle, cost of a step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from r3l.core.errors import check_known
from r3l.report import published
from r3l.report.feedback import planned
from r3l.report.labels import env_label
from r3l.report.published import Reference
from r3l.report.records import Bench, Record, by_method, feedback
from r3l.report.rows import Row
from r3l.report.scores import missing, nowhere
from r3l.runs.metrics import COLLECT_SECONDS, TRAIN_SECONDS, TRAINED_TOKENS, base_success, rates, summed
from r3l.stats.intervals import t_interval

Unit = Literal["share", "turns", "tokens", "s"]
Better = Literal["high", "low", ""]


@dataclass(frozen=True)
class Measure:
    """A number of one training run; ``of`` returns None where a run had nothing to count.

    ``caveat``: why ours and the published number differ in kind.
    """

    label: str
    unit: Unit
    better: Better
    of: Callable[[Record], float | None]
    caveat: str = ""


def _rate(name: str) -> Callable[[Record], float | None]:
    return lambda record: rates(record.result["budget"])[name]


def _per_task(key: str) -> Callable[[Record], float | None]:
    """A total of the run per training task explored, counted as the paper's "sample": all rollouts of it together."""

    def value(record: Record) -> float | None:
        tasks = _tasks(record)
        return float(record.result["budget"].get(key, 0)) / tasks if tasks else None

    return value


def _tasks(record: Record) -> float:
    """Rounds of sampling times tasks a round; an extra round of DAPO fills up the batch only, so this is its bound."""
    tasks = int(record.manifest["run"]["train"]["tasks_per_step"])
    return float(record.result["budget"].get("sampling_rounds", 0)) * tasks


def _seconds_per_step(key: str) -> Callable[[Record], float | None]:
    def value(record: Record) -> float | None:
        spent = [float(line[key]) for line in record.metrics if key in line]
        return float(np.mean(spent)) if spent else None

    return value


def _train_success(record: Record) -> float | None:
    return base_success(record.result["budget"])


def _train_success_last(record: Record) -> float | None:
    return base_success(summed(record.metrics[-LAST:]))


LAST = 5  # updates; the learning curves' running mean has as many
JUDGED = "ours: by rule, against the critic's pivot and cause; the paper does not say who judged"
OUR_MACHINE = "seconds of another machine"
MEASURES = {
    "train_success": Measure("all updates", "share", "high", _train_success),
    "train_success_last": Measure(f"last {LAST} updates", "share", "high", _train_success_last),
    "retry_improved": Measure("retries that improve", "share", "high", _rate("retry_improved")),
    "pivot_oracle_agreement": Measure("oracle agreement", "share", "high", _rate("pivot_oracle_near")),
    "retry_success_right_pivot": Measure(
        "retry success, right pivot", "share", "high", _rate("retry_success_right_pivot")
    ),
    "retry_success_wrong_pivot": Measure(
        "retry success, wrong pivot", "share", "high", _rate("retry_success_wrong_pivot")
    ),
    "diagnosis_accurate": Measure("accurate", "share", "high", _rate("reflection_accurate"), JUDGED),
    "diagnosis_partial": Measure("partial", "share", "", _rate("reflection_partial"), JUDGED),
    "diagnosis_wrong": Measure("misdiagnosed", "share", "low", _rate("reflection_wrong"), JUDGED),
    "turns_per_task": Measure("turns a task", "turns", "low", _per_task("env_steps")),
    "trained_tokens_per_task": Measure("trained tokens a task", "tokens", "low", _per_task(TRAINED_TOKENS)),
    "rollout_seconds": Measure("rollout s a step", "s", "low", _seconds_per_step(COLLECT_SECONDS), OUR_MACHINE),
    "train_seconds": Measure("training s a step", "s", "low", _seconds_per_step(TRAIN_SECONDS), OUR_MACHINE),
}


def measure_rows(
    records: Sequence[Record],
    methods: Sequence[str],
    names: Sequence[str],
    seeds_planned: int,
    title: str,
    reference: Reference,
    benches: Sequence[Bench] = (),
) -> list[Row]:
    """A row for every (tier, env, model), method and measure: mean over training seeds, with its t-interval.

    ``benches``: what is planned beside the records. Raises ConfigError for a measure that is none.
    """
    for name in names:
        check_known("measure", name, MEASURES)
    rows = []
    for bench in sorted({*benches, *(record.bench for record in records)}):
        of_bench = [record for record in records if record.bench == bench]
        place = nowhere(bench) | ({"tier_label": of_bench[0].tier_label} if of_bench else {})
        for method, seeds in by_method(of_bench, methods).items():
            for name in names:
                row = missing(method, seeds_planned, "no run", measure=name, unit=MEASURES[name].unit, **place)
                teacher = feedback(seeds) if seeds else planned(method, bench[0])
                row = replace(row, table=title, feedback=teacher)
                rows.append(_measured(row, seeds, reference) if seeds else row)
    return rows


def _measured(row: Row, seeds: Sequence[Record], reference: Reference) -> Row:
    measure, first = MEASURES[row.measure], seeds[0]
    row = replace(row, label=first.method_label, seeds_done=len(seeds))
    values = [value for record in seeds if (value := measure.of(record)) is not None]
    if not values:
        return replace(row, paper=published.not_comparable("none"))
    interval = t_interval(values)
    number = reference.get(row.model, env_label(row.env), reference.label(row.method, row.label), row.measure)
    if reason := published.other_tier(row.tier):
        against = published.not_comparable(reason)
    elif number is None:
        against = published.not_comparable("the paper has no such number")
    elif measure.caveat:
        against = replace(published.incomplete(number, measure.caveat), verdict="not comparable")
    else:
        against = published.against(number, interval, len(values), row.seeds_planned)
    return replace(row, score=interval, seeds_done=len(values), paper=against)
