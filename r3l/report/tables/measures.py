"""What training itself counted, as a table: retries that improve, agreement with an oracle, cost of a step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from r3l.core.errors import check_known
from r3l.evaluation import statistics
from r3l.files.json_files import read_json
from r3l.report.feedback import COLUMN as FEEDBACK
from r3l.report.feedback import planned
from r3l.report.labels import env_label, method_label
from r3l.report.published import Reference, verdict
from r3l.report.records import Bench, Record, by_method, feedback, outdated
from r3l.report.rows import INTERVAL, LongRow, interval_columns
from r3l.report.tables.scores import nowhere
from r3l.runs.metrics import COLLECT_SECONDS, TRAIN_SECONDS, TRAINED_TOKENS, base_success, rates, summed

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
    run = read_json(record.path.parent / "manifest.json")["run"]
    return float(record.result["budget"].get("sampling_rounds", 0)) * int(run["train"]["tasks_per_step"])


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
COLUMNS = (
    *("table", "tier", "tier_label", "env", "model", "method", "label", FEEDBACK, "provenance", "measure", "unit"),
    *(*INTERVAL, "seeds_done", "seeds_planned", *verdict.COLUMNS, "outdated"),
)


def measure_rows(
    records: Sequence[Record],
    methods: Sequence[str],
    names: Sequence[str],
    seeds_planned: int,
    title: str,
    reference: Reference,
    benches: Sequence[Bench] = (),
) -> list[LongRow]:
    """A row for every (tier, env, model), method and measure: mean over training seeds, with its t-interval.

    ``benches``: what is planned beside the records. Raises ConfigError for a measure that is none.
    """
    for name in names:
        check_known("measure", name, MEASURES)
    rows = []
    for bench in sorted({*benches, *(record.bench for record in records)}):
        of_bench = [record for record in records if record.bench == bench]
        for method, seeds in by_method(of_bench, methods).items():
            place = {key: value for key, value in nowhere(bench).items() if key in COLUMNS}
            place |= {"tier_label": of_bench[0]["label"]} if of_bench else {}
            common = {"table": title, **place, "method": method, "label": "", "provenance": "ours"}
            common["label"] = seeds[0]["method_label"] if seeds else method_label(method)
            teacher = feedback(seeds) if seeds else {FEEDBACK: planned(method, bench[0])}
            counts = {"seeds_done": len(seeds), "seeds_planned": seeds_planned}
            for name in names:
                row = _row(seeds, name, seeds_planned, reference)
                rows.append(dict.fromkeys(COLUMNS) | common | teacher | {"measure": name} | counts | row)
    return rows


def _row(seeds: Sequence[Record], name: str, planned: int, reference: Reference) -> LongRow:
    measure = MEASURES[name]
    unit = {"unit": measure.unit}
    if not seeds:
        return unit | verdict.incomplete(None, "no run")
    values = [value for record in seeds if (value := measure.of(record)) is not None]
    if not values:
        return unit | verdict.not_comparable("none")
    interval = statistics.t_interval(values)
    first = seeds[0]
    label = reference.label(first["method"], first["method_label"])
    beside = reference.get(first["model"], env_label(first["env"]), label, name)
    if reason := verdict.other_tier(first["tier"]):
        judged = verdict.not_comparable(reason)
    elif beside is None:
        judged = verdict.not_comparable("the paper has no such number")
    elif measure.caveat:
        judged = verdict.incomplete(beside, measure.caveat) | {"verdict": "not comparable"}
    else:
        judged = verdict.compare(beside, interval, len(values), planned)
    return unit | interval_columns(interval) | {"seeds_done": len(values)} | judged | outdated(seeds)
