"""Every row of a table of scores, for a terminal and HTML: task groups, differences, invalid responses, budget."""

from __future__ import annotations

from typing import Any

import pandas as pd

from r3l.report.feedback import COLUMN as FEEDBACK
from r3l.report.frame import CONSTANT_ANSWER
from r3l.report.labels import env_label
from r3l.report.paired import MDE, MDE_NOTE, mde_text, p_cell
from r3l.report.paper_table import METHOD, baseline_label, notes_of_runs, plus_minus, task_set_names
from r3l.report.table import Cell, Column, Table, table


def full_table(rows: pd.DataFrame, to_second: pd.DataFrame | None = None) -> Table:
    """Every row: task groups, paired difference, invalid responses, budget. What has no run is named below;
    columns that say nothing are left out. ``to_second``: the same rows with another
    baseline, whose differences stand beside the first's."""
    every = list(rows.itertuples())
    shown = [row for row in every if row.mean is not None] or every
    columns = [
        Column("tasks", lambda row: row.group, filter="all"),
        Column(METHOD, lambda row: Cell(row.label, title=row.method, runs="/".join(_place(row)[:-1]))),
        Column(FEEDBACK, drop=6),
        Column("success", lambda row: _interval(row) or "no run", right=True, no_wrap=True),
        Column("seeds", _seeds, right=True),
        Column("episodes", lambda row: None if row.method == CONSTANT_ANSWER else row.episodes, ",", drop=5),
        Column("difference", lambda row: _interval(row, "difference_"), right=True, no_wrap=True),
        Column("p", lambda row: p_cell(row.p_holm), right=True),
    ]
    compared_with = ""
    if to_second is not None and len(to_second):
        second = {_place(row): row for row in to_second.itertuples()}
        label = baseline_label(list(second.values()))
        compared_with = f", of the differences to each of {baseline_label(every)} and {label}"
        columns += [
            Column(
                f"minus {label}", lambda row: _interval(second[_place(row)], "difference_"), right=True, no_wrap=True
            ),
            Column(f"p ({label})", lambda row: p_cell(second[_place(row)].p_holm), right=True),
        ]
    columns += [
        Column(MDE, lambda row: mde_text(row.comparison), right=True, no_wrap=True, drop=3),
        Column("invalid", lambda row: row.parse_failure_rate, ".1%", drop=7),
        Column("truncated", lambda row: row.truncation_rate, ".1%", drop=8),
        Column("tokens", lambda row: _short(row.generated_tokens), right=True, drop=4),
        Column("paper", lambda row: row.paper, ".3f"),
        Column("verdict", lambda row: Cell(row.verdict, title=row.verdict_reason)),
    ]
    columns = [column for column in columns if any(column.cell(row).text for row in shown)]

    # Where the paper has none of the numbers, one note says why in place of two empty columns.
    incomparable = ""
    if all(row.paper is None for row in shown):
        methods = [row for row in shown if row.verdict == "not comparable" and row.method != CONSTANT_ANSWER]
        reasons = sorted({row.verdict_reason for row in methods})
        incomparable = f"Not comparable with the paper ({'; '.join(reasons)})." if reasons else ""
        columns = [column for column in columns if column.name not in ("paper", "verdict")]
    absent = dict.fromkeys(f"{row.label} on {env_label(row.env)}" for row in every if row.mean is None)
    constant = [row for row in every if row.method == CONSTANT_ANSWER]
    return table(
        f"{every[0].table}, tier {'; '.join(sorted({row.tier_label for row in every if row.tier_label}))}",
        columns,
        shown,
        f"Success of the last checkpoint on {', '.join(task_set_names(every))}; ± is the 95 % interval over training "
        f"seeds; difference: to {baseline_label(every)}, paired by task and seed; p: Holm-corrected{compared_with}; "
        f"{MDE_NOTE}; invalid: episodes ended by a response without a usable action; tokens: generated in training, "
        "means of the runs.",
        incomparable,
        f"Without a run: {', '.join(absent)}." if absent and len(shown) < len(every) else "",
        *sorted({f"{env_label(row.env)}: {row.verdict_reason}." for row in constant}),
        *sorted({f"{row.task_set}: {row.warning}." for row in every if row.warning}),
        *notes_of_runs(every),
        by=lambda row: env_label(row.env),
    )


def _place(row: Any) -> tuple[str, ...]:
    return row.tier, row.env, row.model, row.method, row.group


def _interval(row: Any, prefix: str = "") -> Cell | None:
    """A mean with its interval, or the difference's (``prefix``), whose bounds are shown when hovering."""
    names = ("mean", "low", "high", "points", "interval")
    mean, low, high, points, kind = (getattr(row, prefix + name) for name in names)
    if mean is None:
        return None
    bounds = "no interval" if low is None else f"[{low:.3f}, {high:.3f}]"
    text = plus_minus(mean, low, high, points, row.unit, "+" if prefix else "")
    return Cell(text, mean, f"{bounds}, {kind}" if kind else "")


def _seeds(row: Any) -> Cell | None:
    """``1/3``: one of three planned seeds is done; ``15`` where more are done than were planned."""
    if row.method == CONSTANT_ANSWER:
        return None
    done, planned = row.seeds_done, row.seeds_planned
    return Cell(f"{done}/{planned}" if done <= planned else str(done), done)


def _short(count: int | None) -> Cell | None:
    """``1.5M``, ``3.0k``; the exact count when hovering."""
    if count is None:
        return None
    for size, letter in ((10**6, "M"), (10**3, "k")):
        if count >= size:
            return Cell(f"{count / size:.1f}{letter}", count, f"{count:,}")
    return Cell(str(count), count)
