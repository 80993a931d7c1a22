"""Budget parity: what each method's training cost, in the same units, seeds averaged.

Tokens are of three kinds: sampled; scored (only read for their log-probs: a teacher's contexts, the base
checkpoint's pass for a KL); and trained.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import pandas as pd

from r3l.report.frame import BENCH, TOKENS, all_tasks, by_bench, by_method
from r3l.report.labels import FEEDBACK, FEEDBACK_NOTE, bench_label, written_by
from r3l.report.scores import mean_tokens
from r3l.report.table import Cell, Column, Table, table
from r3l.report.updates import training_of
from r3l.runs.step_metrics import rates

SUMS = {  # column: keys of result.json's budget
    "rollouts": ("rollouts",),
    "env_steps": ("env_steps",),
    "prompt_tokens": ("prompt/rollout", "prompt/reflection", "prompt/critique", "prompt/retry"),
    "rollout_tokens": ("tokens/rollout",),
    "reflection_tokens": ("tokens/reflection",),
    "critique_tokens": ("tokens/critique",),
    "retry_tokens": ("tokens/retry",),
    "judge_tokens": ("tokens/judge",),
    "retries": ("retry/count",),
    "dropped": ("dropped/groups", "dropped/rejected", "dropped/no_oracle_pivot", "dropped/workers"),
}
PHASES = ("seconds/rollout", "seconds/feedback", "seconds/retry", "seconds/collect", "seconds/train")
KINDS = {"sampled": "generated_tokens", "scored": "scored_tokens", "trained": "trained_tokens"}
COLUMNS = {  # printed name: column
    "success": "success",
    **KINDS,
    "x": "relative_generated",
    "rollouts": "rollouts",
    "env steps": "env_steps",
    "rollout": "rollout_tokens",
    "reflect": "reflection_tokens",
    "critique": "critique_tokens",
    "retry": "retry_tokens",
    "judge": "judge_tokens",
    "masked": "masked",
    "imitated": "imitated",
    "collect s": "seconds_collect",
    "train s": "seconds_train",
}
NOTE = (
    "Training only, means over seeds; success: of the last checkpoint, on test tasks. Tokens: sampled, "
    "while rolling out, reflecting, criticising or retrying; scored, which are read for their log-probs "
    "alone (teachers' contexts, the base checkpoint's pass for a KL, distilled retries under other weights "
    "than the trained ones), not recorded by runs of earlier versions if their method had such tokens; "
    "trained; judge: written by a judge; x: sampled tokens against the cheapest method of the environment; "
    "masked: sampled tokens without gradient; imitated: share of trained tokens; seconds as measured (runs "
    "side by side share the machine)."
)
NOT_RECORDED = "not recorded"


def budget_rows(runs: pd.DataFrame) -> pd.DataFrame:
    """Training costs, one row for each (tier, env, model, method) of ``runs``, as means over seeds.

    Columns: ``success`` (of the last checkpoint, on test tasks), the tokens TOKENS (None: not recorded), the
    counters SUMS and seconds PHASES (a counter that a seed lacks is 0), and the rates of r3l.runs.metrics
    made from mean counts. ``relative_generated``: generated tokens as a multiple of what the cheapest method
    of the same (tier, env, model) generated; None if nothing was generated.
    """
    rows: list[dict[str, Any]] = []
    for bench, here in by_bench(all_tasks(runs)).items():
        of_this: list[dict[str, Any]] = []
        for method, seeds in by_method(here).items():
            # Faults and seconds are in no result, so that a result repeats byte for byte.
            counts = [
                {**b, **training_of(path).measured} for b, path in zip(seeds.budget, seeds.path, strict=True)
            ]
            mean = {
                key: sum(c.get(key, 0) for c in counts) / len(counts) for key in sorted(set().union(*counts))
            }
            first = seeds.iloc[0]
            row = dict(zip(BENCH, bench, strict=True)) | {"method": method, "label": first.label}
            row |= {"feedback": written_by(first.feedback, seeds), "seeds": len(seeds)}
            row["success"] = round(float(seeds.success.mean()), 4)
            row |= mean_tokens(seeds)
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

    ``rows``: result of :func:`budget_rows`. ``every_column``: show all its columns that are not empty, not
    only COLUMNS.
    """
    columns = {key: name for name, key in COLUMNS.items()}
    if every_column:
        numbers = [*rows.columns[rows.columns.get_loc("seeds") + 1 :].drop("outdated")]
        columns = {key: columns.get(key, key.replace("_", " ")) for key in numbers if rows[key].notna().any()}
    lines = rows.to_dict("records")
    seen = [*by_bench(rows)]
    return table(
        "Budget parity",
        [
            Column("method", lambda row: Cell(row["label"], title=row["method"])),
            Column(FEEDBACK),
            *(
                Column(name, partial(_cell, key=key), form=".3f" if key == "success" else ",", no_wrap=True)
                for key, name in columns.items()
            ),
        ],
        lines,
        NOTE,
        FEEDBACK_NOTE,
        by=lambda row: bench_label((row["tier"], row["env"], row["model"]), seen),
    )


def _cell(row: Mapping[str, Any], key: str) -> Any:
    """The value of a column; words for tokens that were not recorded."""
    return NOT_RECORDED if key in TOKENS and row[key] is None else row[key]
