"""Every row of a table of scores in full: task groups, differences, endings, tokens."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import pandas as pd

from r3l.report.budget import KINDS, NOT_RECORDED
from r3l.report.frame import CONSTANT_ANSWER
from r3l.report.labels import FEEDBACK, MDE, MDE_NOTE, mde_text, p_cell, plus_minus
from r3l.report.paper_table import METHOD, baseline_label, notes_of_runs
from r3l.report.table import Cell, Column, Table, table


def full_table(rows: pd.DataFrame, to_second: pd.DataFrame | None = None) -> Table:
    """The table of every row of scores (at least one): all task groups, differences, endings, tokens.

    A section an environment. Rows without a run are named below, and empty columns are left out.
    ``to_second``: the same rows with another baseline, whose differences are shown too.
    """
    every = list(rows.itertuples())
    second = None if to_second is None else list(to_second.itertuples())
    label = baseline_label(second) if second else ""
    pairs = list(zip(every, second or [None] * len(every), strict=True))
    pairs = [pair for pair in pairs if pair[0].mean is not None] or pairs
    shown = [row for row, _ in pairs]
    to_label = [Column(f"minus {label}", right=True, no_wrap=True), Column(f"p ({label})", right=True)]
    columns = [
        Column("tasks", filter="all"),
        Column(METHOD),
        Column(FEEDBACK, drop=7),
        Column("success", right=True, no_wrap=True),
        Column("seeds", right=True),
        Column("episodes", form=",", drop=6),
        Column("difference", right=True, no_wrap=True),
        Column("p", right=True),
        *(to_label if second else []),
        Column(MDE, right=True, no_wrap=True, drop=3),
        Column("invalid", form=".1%", drop=8),
        Column("truncated", form=".1%", drop=9),
        *(Column(kind, right=True, drop=4 if kind == "sampled" else 5) for kind in KINDS),
        Column("paper", form=".3f"),
        Column("verdict"),
    ]
    lines = [_full_line(row, other, label) for row, other in pairs]
    columns = [column for column in columns if any(column.cell(line).text for line in lines)]

    # Where the paper has none of the numbers, one note says why instead of two empty columns.
    incomparable = ""
    if all(row.paper is None for row in shown):
        methods = [row for row in shown if row.verdict == "not comparable" and row.method != CONSTANT_ANSWER]
        reasons = sorted({row.verdict_reason for row in methods})
        incomparable = f"Not comparable with the paper ({'; '.join(reasons)})." if reasons else ""
        columns = [column for column in columns if column.name not in ("paper", "verdict")]

    compared_with = f", of the differences to each of {baseline_label(every)} and {label}" if second else ""
    absent = dict.fromkeys(f"{row.label} on {row.benchmark}" for row in every if row.mean is None)
    constant = [row for row in every if row.method == CONSTANT_ANSWER]
    return table(
        f"{every[0].table}, tier {'; '.join(sorted({row.tier_label for row in every if row.tier_label}))}",
        columns,
        lines,
        "Success of the last checkpoint; ± is the 95 % interval over training seeds; difference: to "
        f"{baseline_label(every)}, paired by task and seed; p: "
        f"Holm-corrected{compared_with}; {MDE_NOTE}; invalid: episodes ended by a response without a usable "
        "action; tokens sampled, scored (read for their log-probs alone) and trained: in training, means of "
        "the runs; r3l table budget has more.",
        incomparable,
        f"Without a run: {', '.join(absent)}." if absent and len(shown) < len(every) else "",
        *sorted({f"{row.benchmark}: {row.verdict_reason}." for row in constant}),
        *notes_of_runs(every),
        by=itemgetter("env"),
    )


def _full_line(row: Any, second: Any, label: str) -> dict[str, Any]:
    """The values of a row by column; ``second``: the same row against the baseline ``label``, or None."""
    done = row.seeds_done
    planned = row.seeds_planned
    # 1/3: one of three planned seeds is done; 15: more are done than were planned.
    seeds = Cell(f"{done}/{planned}" if done <= planned else str(done), done)
    is_constant = row.method == CONSTANT_ANSWER
    line = {
        "env": row.benchmark,  # of the section
        "tasks": row.group,
        METHOD: Cell(row.label, title=row.method, runs=f"{row.tier}/{row.env}/{row.model}/{row.method}"),
        FEEDBACK: row.feedback,
        "success": _interval(row) or "no run",
        "seeds": None if is_constant else seeds,
        "episodes": None if is_constant else row.episodes,
        "difference": _interval(row, "difference_"),
        "p": p_cell(row.p_holm),
        MDE: mde_text(row.comparison) if row.comparison else "",
        "invalid": row.parse_failure_rate,
        "truncated": row.truncation_rate,
        "paper": row.paper,
        "verdict": Cell(row.verdict, title=row.verdict_reason),
    }
    # Tokens as 1.5M, 3.0k or 120, with the exact count when hovering.
    for kind, column in KINDS.items() if done else ():
        count = getattr(row, column)
        if count is None:
            line[kind] = Cell(NOT_RECORDED)
        elif count < 10**3:
            line[kind] = Cell(str(count), count)
        else:
            short = f"{count / 10**6:.1f}M" if count >= 10**6 else f"{count / 10**3:.1f}k"
            line[kind] = Cell(short, count, f"{count:,}")
    if second:
        line[f"minus {label}"] = _interval(second, "difference_")
        line[f"p ({label})"] = p_cell(second.p_holm)
    return line


def _interval(row: Any, prefix: str = "") -> Cell | None:
    """A mean with its interval, or the difference's (``prefix``), whose bounds are shown when hovering."""
    names = ("mean", "low", "high", "points", "interval")
    mean, low, high, points, kind = (getattr(row, prefix + name) for name in names)
    if mean is None:
        return None
    bounds = "no interval" if low is None else f"[{low:.3f}, {high:.3f}]"
    text = plus_minus(mean, low, high, points, row.unit, "+" if prefix else "")
    return Cell(text, mean, f"{bounds}, {kind}" if kind else "")
