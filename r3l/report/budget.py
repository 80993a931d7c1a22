"""Budget parity: what each method's training cost, in the same units, seeds averaged."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import pandas as pd

from r3l.report.frame import BENCH, benches, budgets, by_method, of_bench, whole
from r3l.report.labels import FEEDBACK, FEEDBACK_NOTE, bench_label, written_by
from r3l.report.table import Cell, Column, Table, table
from r3l.report.updates import measured
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


def budget_rows(runs: pd.DataFrame) -> pd.DataFrame:
    """One row a (tier, env, model, method): means over seeds of SUMS and of the seconds of PHASES, and the
    rates of r3l.runs.metrics made from mean counts.

    ``relative_generated``: generated tokens, against those of the cheapest method of the same (tier, env, model).
    """
    rows: list[dict[str, Any]] = []
    for bench in benches(runs):
        of_this: list[dict[str, Any]] = []
        for method, seeds in by_method(whole(of_bench(runs, bench))).items():
            # Faults and seconds are in no result, so that a result repeats byte for byte.
            counts = [{**b, **measured(path)} for b, path in zip(budgets(seeds), seeds.path, strict=True)]
            mean = {
                key: sum(c.get(key, 0) for c in counts) / len(counts) for key in sorted(set().union(*counts))
            }
            first = seeds.iloc[0]
            row = dict(zip(BENCH, bench, strict=True)) | {"method": method, "label": first.label}
            row |= {"feedback": written_by(first.feedback, seeds), "seeds": len(seeds)}
            row |= {name: round(sum(mean.get(key, 0) for key in keys)) for name, keys in SUMS.items()}
            row |= {name: None if value is None else round(value, 4) for name, value in rates(mean).items()}
            row |= {key.replace("/", "_"): round(mean.get(key, 0.0), 1) for key in PHASES}
            of_this.append(row | {"outdated": None})  # the column of earlier versions
        least = min((row["generated_tokens"] for row in of_this if row["generated_tokens"]), default=0)
        for row in of_this:
            row["relative_generated"] = (
                round(row["generated_tokens"] / least, 2) if row["generated_tokens"] else None
            )
        rows += of_this
    return pd.DataFrame(rows, dtype=object)


def budget_table(rows: pd.DataFrame, every_column: bool = False) -> Table:
    """The table of budgets: one line per method, a section per environment; nothing is marked as best.

    ``every_column``: show all columns that are not empty, instead of COLUMNS.
    """
    columns = {key: name for name, key in COLUMNS.items()}
    if every_column:
        numbers = [*rows.columns[rows.columns.get_loc("seeds") + 1 :].drop("outdated")]
        columns = {key: columns.get(key, key.replace("_", " ")) for key in numbers if rows[key].notna().any()}
    lines = rows.to_dict("records")
    seen = benches(rows)
    return table(
        "Budget parity",
        [
            Column("method", lambda row: Cell(row["label"], title=row["method"])),
            Column(FEEDBACK),
            *(Column(name, itemgetter(key), form=",", no_wrap=True) for key, name in columns.items()),
        ],
        lines,
        NOTE,
        FEEDBACK_NOTE,
        by=lambda row: bench_label((row["tier"], row["env"], row["model"]), seen),
    )
