"""Every row of a table of scores for a terminal: task groups, paired difference, unread responses, budget, verdict."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from r3l.report.comparison import shown
from r3l.report.feedback import COLUMN as FEEDBACK
from r3l.report.rows import CONSTANT_ANSWER, LongRow, notes_of_runs, seeds_shown, task_set_names
from r3l.report.table import Cell, Column, Row, Section, Table
from r3l.report.tables.printed import plus_minus

LEFT, INTERVALS = ("tier", "env", "group", "method", FEEDBACK, "vs paper"), ("success", "difference", shown.WOULD_SHOW)


def table(rows: Sequence[LongRow]) -> Table:
    """One line a row, short numbers; what is the same in all rows stands outside."""
    labels = sorted({row["tier_label"] for row in rows})
    baseline = next((row["label"] for row in rows if row["method"] == row["baseline"]), rows[0]["baseline"])
    warnings = sorted({f"; {row['task_set']}: {row['warning']}" for row in rows if row["warning"]})
    constants = sorted({f"; {r['env']}: {r['verdict_reason']}" for r in rows if r["method"] == CONSTANT_ANSWER})
    columns = list(_cells(rows[0]))
    reasons = {r["verdict_reason"] for r in rows if r["verdict"] == "not comparable" and r["method"] != CONSTANT_ANSWER}
    incomparable = ""
    if reasons and all(row["paper"] is None for row in rows):
        incomparable = f"; not comparable with the paper ({'; '.join(sorted(reasons))})"
        columns.remove("vs paper")
    note = (
        f"success of the last checkpoint on {', '.join(task_set_names(rows))}; ± is the 95 % interval over training "
        f"seeds; difference is paired with {baseline}; {shown.NOTE}; unread: episodes ended by a response without a "
        "usable action; rollouts and tokens (generated, trained) are means of the training runs"
        f"{incomparable}{''.join([*warnings, *constants])}"
    )
    return Table(
        f"{rows[0]['table']}, tier {'; '.join(labels)}",
        [Column(name, right=name not in LEFT, no_wrap=name in INTERVALS) for name in columns],
        [Section("", [_cells(row) for row in part]) for _, part in groupby(rows, key=lambda row: row["group"])],
        [note, *notes_of_runs(rows)],
    )


def _cells(row: LongRow) -> Row:
    constant = row["method"] == CONSTANT_ANSWER
    texts = {
        "tier": row["tier"],
        "env": row["env"],
        "group": row["group"],
        "method": row["label"],
        FEEDBACK: row[FEEDBACK] or "",
        "success": "no run" if row["mean"] is None else plus_minus(row),
        "seeds": "" if constant else seeds_shown(row),
        "episodes": "" if constant else str(row["episodes"]),
        "difference": plus_minus(row, "difference_") if row["difference_mean"] is not None else "",
        shown.WOULD_SHOW: shown.would_show(row),
        "unread": "" if row["parse_failure_rate"] is None else f"{row['parse_failure_rate']:.1%}",
        "rollouts": _short(row["rollouts"]),
        "tokens": _short(row["generated_tokens"]),
        "trained": _short(row["trained_tokens"]),
        "vs paper": row["verdict"] if row["paper"] is None else _against(row),
    }
    return {name: Cell(text) for name, text in texts.items()}


def _against(row: LongRow) -> str:
    if row["paper_difference"] is None:
        return f"{row['paper']:.3f}: {row['verdict']}"
    return f"{row['paper']:.3f} ({row['paper_difference']:+.3f}): {row['verdict']}"


def _short(count: int | None) -> str:
    if count is None:
        return ""
    for size, letter in ((10**6, "M"), (10**3, "k")):
        if count >= size:
            return f"{count / size:.1f}{letter}"
    return str(count)
