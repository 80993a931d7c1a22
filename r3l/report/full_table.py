"""Every row of a table of scores, for a terminal and HTML: task groups, differences, invalid responses,
budget."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import pandas as pd

from r3l.report.feedback import COLUMN as FEEDBACK
from r3l.report.frame import CONSTANT_ANSWER
from r3l.report.labels import env_label
from r3l.report.paired import MDE, MDE_NOTE, mde_text, p_cell
from r3l.report.paper_table import METHOD, baseline_label, notes_of_runs, plus_minus, task_set_names
from r3l.report.table import Cell, Column, Table, table


def full_table(rows: pd.DataFrame, to_second: pd.DataFrame | None = None) -> Table:
    """Every row: task groups, paired difference, invalid responses, budget. Rows without a run are named
    below, and empty columns are left out. ``to_second``: the same rows with another baseline, whose
    differences are shown too."""
    every = list(rows.itertuples())
    shown = [row for row in every if row.mean is not None] or every
    second: dict[tuple[str, ...], Any] = {}
    if to_second is not None:
        second = {_place(row): row for row in to_second.itertuples()}
    label = baseline_label(list(second.values())) if second else ""
    columns = [
        Column("tasks", filter="all"),
        Column(METHOD),
        Column(FEEDBACK, drop=6),
        Column("success", right=True, no_wrap=True),
        Column("seeds", right=True),
        Column("episodes", form=",", drop=5),
        Column("difference", right=True, no_wrap=True),
        Column("p", right=True),
        *(
            [Column(f"minus {label}", right=True, no_wrap=True), Column(f"p ({label})", right=True)]
            if second
            else []
        ),
        Column(MDE, right=True, no_wrap=True, drop=3),
        Column("invalid", form=".1%", drop=7),
        Column("truncated", form=".1%", drop=8),
        Column("tokens", right=True, drop=4),
        Column("paper", form=".3f"),
        Column("verdict"),
    ]
    lines = []
    for row in shown:
        is_constant = row.method == CONSTANT_ANSWER
        done, planned = row.seeds_done, row.seeds_planned
        line = {
            "env": env_label(row.env),  # of the section
            "tasks": row.group,
            METHOD: Cell(row.label, title=row.method, runs="/".join(_place(row)[:-1])),
            FEEDBACK: row.feedback,
            "success": _interval(row) or "no run",
            # 1/3: one of three planned seeds is done; 15: more are done than were planned.
            "seeds": None
            if is_constant
            else Cell(f"{done}/{planned}" if done <= planned else str(done), done),
            "episodes": None if is_constant else row.episodes,
            "difference": _interval(row, "difference_"),
            "p": p_cell(row.p_holm),
            MDE: mde_text(row.comparison),
            "invalid": row.parse_failure_rate,
            "truncated": row.truncation_rate,
            "tokens": _short(row.generated_tokens),
            "paper": row.paper,
            "verdict": Cell(row.verdict, title=row.verdict_reason),
        }
        if second:
            other = second[_place(row)]
            line |= {f"minus {label}": _interval(other, "difference_"), f"p ({label})": p_cell(other.p_holm)}
        lines.append(line)
    columns = [column for column in columns if any(column.cell(line).text for line in lines)]

    compared_with = f", of the differences to each of {baseline_label(every)} and {label}" if second else ""

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
        lines,
        f"Success of the last checkpoint on {', '.join(task_set_names(every))}; ± is the 95 % interval over training "
        f"seeds; difference: to {baseline_label(every)}, paired by task and seed; p: Holm-corrected{compared_with}; "
        f"{MDE_NOTE}; invalid: episodes ended by a response without a usable action; tokens: generated in training, "
        "means of the runs.",
        incomparable,
        f"Without a run: {', '.join(absent)}." if absent and len(shown) < len(every) else "",
        *sorted({f"{env_label(row.env)}: {row.verdict_reason}." for row in constant}),
        *sorted({f"{row.task_set}: {row.warning}." for row in every if row.warning}),
        *notes_of_runs(every),
        by=itemgetter("env"),
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


def _short(count: int | None) -> Cell | None:
    """``1.5M``, ``3.0k``; the exact count when hovering."""
    if count is None:
        return None
    for size, letter in ((10**6, "M"), (10**3, "k")):
        if count >= size:
            return Cell(f"{count / size:.1f}{letter}", count, f"{count:,}")
    return Cell(str(count), count)
