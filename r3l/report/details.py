"""Every row of a table of scores for a terminal: task groups, paired difference, unread responses, budget, verdict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from r3l.report.layout import plus_minus
from r3l.report.tables import CONSTANT

TEXT, INTERVALS = ("tier", "env", "group", "method", "vs paper"), ("success", "difference")
Row = dict[str, Any]


def render(rows: Sequence[Row]) -> Table:
    """One line a row, short numbers; what is the same in all rows stands outside."""
    labels = sorted({row["tier_label"] for row in rows})
    baseline = next((row["label"] for row in rows if row["method"] == row["baseline"]), rows[0]["baseline"])
    task_sets = sorted(
        {f"{row['env']} {row['task_set']} ({row['task_set_sha256'][:12]})" for row in rows if row["task_set"]}
    )
    warnings = sorted({f"; {row['task_set']}: {row['warning']}" for row in rows if row["warning"]})
    constants = sorted({f"; {r['env']}: {r['verdict_reason']}" for r in rows if r["method"] == CONSTANT})
    cells = [_cells(row) for row in rows]
    reasons = {r["verdict_reason"] for r in rows if r["verdict"] == "not comparable" and r["method"] != CONSTANT}
    if reasons and all(row["paper"] is None for row in rows):
        note = f"; not comparable with the paper ({'; '.join(sorted(reasons))})"
        cells = [{k: v for k, v in line.items() if k != "vs paper"} for line in cells]
    else:
        note = ""
    shown = Table(
        title=f"{rows[0]['table']}, tier {'; '.join(labels)}",
        caption=f"success of the last checkpoint on {', '.join(task_sets)}; ± is the 95 % interval over training "
        f"seeds; difference is paired with {baseline}; unread: episodes ended by a response without a usable "
        "action; rollouts and tokens (generated, trained) are means of the training runs"
        f"{note}{''.join([*warnings, *constants])}",
    )
    for column in cells[0]:
        shown.add_column(column, justify="left" if column in TEXT else "right", no_wrap=column in INTERVALS)
    for before, row, line in zip([None, *rows], rows, cells, strict=False):
        if before and before["group"] != row["group"]:
            shown.add_section()
        shown.add_row(*line.values())
    return shown


def _cells(row: Row) -> dict[str, str]:
    return {
        "tier": row["tier"],
        "env": row["env"],
        "group": row["group"],
        "method": row["label"],
        "success": "no run" if row["mean"] is None else plus_minus(row),
        "seeds": "" if row["method"] == CONSTANT else f"{row['seeds_done']}/{row['seeds_planned']}",
        "episodes": "" if row["method"] == CONSTANT else str(row["episodes"]),
        "difference": plus_minus(row, "difference_") if row["difference_mean"] is not None else "",
        "unread": "" if row["parse_failure_rate"] is None else f"{row['parse_failure_rate']:.1%}",
        "rollouts": _short(row["rollouts"]),
        "tokens": _short(row["generated_tokens"]),
        "trained": _short(row["trained_tokens"]),
        "vs paper": row["verdict"] if row["paper"] is None else _against(row),
    }


def _against(row: Row) -> str:
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
