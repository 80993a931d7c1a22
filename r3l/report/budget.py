"""Budget parity: what each method's training cost, in the same units, seeds averaged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from r3l.report.feedback import COLUMN as FEEDBACK
from r3l.report.feedback import NOTE as FEEDBACK_NOTE
from r3l.report.labels import bench_label
from r3l.report.records import Bench, Record, by_method, feedback
from r3l.report.table import Cell, Column, Table, table
from r3l.runs.metrics import rates

SUMS = {  # column: keys of result.json's budget
    "rollouts": ("rollouts",),
    "env_steps": ("env_steps",),
    "prompt_tokens": ("prompt/rollout", "prompt/reflection", "prompt/critique", "prompt/retry"),
    "rollout_tokens": ("tokens/rollout",),
    "reflection_tokens": ("tokens/reflection",),
    "critique_tokens": ("tokens/critique",),
    "retry_tokens": ("tokens/retry",),
    "judge_tokens": ("tokens/judge",),
    "generated_tokens": ("tokens/generated",),
    "trained_tokens": ("tokens/trained",),
    "retries": ("retry/count",),
    "dropped": ("dropped/groups", "dropped/rejected", "dropped/no_oracle_pivot", "dropped/workers"),
}
PHASES = ("seconds/rollout", "seconds/feedback", "seconds/retry", "seconds/collect", "seconds/train")
COLUMNS = {  # in print: column
    "rollouts": "rollouts",
    "env steps": "env_steps",
    "rollout": "rollout_tokens",
    "reflect": "reflection_tokens",
    "critique": "critique_tokens",
    "retry": "retry_tokens",
    "judge": "judge_tokens",
    "x": "relative_generated",
    "trained": "trained_tokens",
    "masked": "masked",
    "imitated": "imitated",
    "collect s": "seconds_collect",
    "train s": "seconds_train",
}
NOTE = (
    "Training only, means over seeds. Tokens: generated while rolling out, reflecting, criticising, retrying; judge: "
    "written by a judge; x: all but the judge's against the cheapest method of the environment; masked: sampled tokens "
    "without gradient; imitated: share of trained tokens; seconds as measured (runs side by side share the machine)."
)


@dataclass(frozen=True)
class Spent:
    """The budget of a method in one (tier, env, model). ``numbers``: SUMS, the rates of r3l.runs.metrics, seconds;
    ``relative_generated``: tokens against the cheapest method of the same bench."""

    bench: Bench
    method: str
    label: str
    feedback: str | None
    seeds: int
    numbers: dict[str, float | None]
    relative_generated: float | None = None

    def flat(self) -> dict[str, Any]:
        values = vars(self)
        return {
            **dict(zip(("tier", "env", "model"), self.bench, strict=True)),
            **{key: values[key] for key in ("method", "label", "feedback", "seeds")},
            **self.numbers,
            "outdated": None,
            "relative_generated": self.relative_generated,  # outdated: of earlier versions
        }


def budget_rows(records: Sequence[Record]) -> list[Spent]:
    """One row a (tier, env, model, method)."""
    rows: list[Spent] = []
    for bench in sorted({record.bench for record in records}):
        of_bench = [_row(bench, s) for s in by_method([r for r in records if r.bench == bench]).values()]
        least = min((n for row in of_bench if (n := row.numbers["generated_tokens"])), default=0)
        rows += [replace(row, relative_generated=_ratio(row.numbers["generated_tokens"], least)) for row in of_bench]
    return rows


def _ratio(tokens: float | None, least: float) -> float | None:
    return round(tokens / least, 2) if tokens else None


def _row(bench: Bench, seeds: list[Record]) -> Spent:
    budgets = [record.counts for record in seeds]
    mean = {key: sum(b.get(key, 0) for b in budgets) / len(seeds) for key in sorted(set().union(*budgets))}
    seconds = {key: sum(m.get(key, 0.0) for s in seeds for m in s.metrics) / len(seeds) for key in PHASES}
    numbers: dict[str, float | None] = {
        name: round(sum(mean.get(key, 0) for key in keys)) for name, keys in SUMS.items()
    }
    numbers |= {name: None if value is None else round(value, 4) for name, value in rates(mean).items()}
    numbers |= {key.replace("/", "_"): round(value, 1) for key, value in seconds.items()}
    first = seeds[0]
    return Spent(bench, first.method, first.method_label, feedback(seeds), len(seeds), numbers)


def budget_table(rows: Sequence[Spent], columns: Sequence[str] = tuple(COLUMNS.values())) -> Table:
    """A line a method, the environments below each other. Nothing is marked as best."""
    names = {key: name for name, key in COLUMNS.items()}

    def number(key: str) -> Column:
        return Column(names.get(key, key.replace("_", " ")), lambda row: row.flat()[key], form=",", no_wrap=True)

    return table(
        "Budget parity",
        [
            Column("method", lambda row: Cell(row.label, title=row.method)),
            Column(FEEDBACK),
            *map(number, columns),
        ],
        rows,
        NOTE,
        FEEDBACK_NOTE,
        by=lambda row: bench_label(row.bench, [other.bench for other in rows]),
    )


def all_columns(rows: Sequence[Spent]) -> list[str]:
    """Those that are not empty everywhere."""
    return [key for key in (*rows[0].numbers, "relative_generated") if any(row.flat()[key] is not None for row in rows)]
