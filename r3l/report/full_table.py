"""Every row of a table of scores, for a terminal and HTML: task groups, differences, invalid responses, budget."""

from __future__ import annotations

from collections.abc import Sequence

from r3l.report.feedback import COLUMN as FEEDBACK
from r3l.report.labels import env_label
from r3l.report.paired import MDE, MDE_NOTE, mde_text, p_cell
from r3l.report.paper_table import METHOD, baseline_label, notes_of_runs, plus_minus, task_set_names
from r3l.report.rows import Row
from r3l.report.table import Cell, Column, Table, table
from r3l.stats.comparison import Comparison
from r3l.stats.intervals import Interval


def full_table(rows: Sequence[Row], to_second: Sequence[Row] = ()) -> Table:
    """Every row: task groups, paired difference, invalid responses, budget. What has no run is named below;
    columns that say nothing are left out. ``to_second``: the same rows with another
    baseline, whose differences stand beside the first's."""
    shown = [row for row in rows if row.score is not None] or list(rows)
    absent = dict.fromkeys(f"{row.label} on {env_label(row.env)}" for row in rows if row.score is None)
    columns = [
        Column("tasks", lambda row: row.group, filter="all"),
        Column(METHOD, lambda row: Cell(row.label, title=row.method, runs="/".join(_place(row)[:-1]))),
        Column(FEEDBACK, drop=6),
        Column("success", lambda row: _bounds(row.score, row.unit) or "no run", right=True, no_wrap=True),
        Column("seeds", lambda row: "" if row.constant else Cell(_seeds(row), row.seeds_done), right=True),
        Column("episodes", lambda row: None if row.constant else row.episodes, ",", drop=5),
        Column("difference", lambda row: _bounds_of(row.difference), right=True, no_wrap=True),
        Column("p", lambda row: p_cell(row.difference and row.difference.p_adjusted), right=True),
        *(_minus(to_second) if to_second else ()),
        Column(MDE, lambda row: mde_text(row.difference), right=True, no_wrap=True, drop=3),
        Column("invalid", lambda row: row.parse_failure_rate, ".1%", drop=7),
        Column("truncated", lambda row: row.truncation_rate, ".1%", drop=8),
        Column("tokens", lambda row: _short(row.generated_tokens), right=True, drop=4),
        Column("paper", lambda row: row.paper.value, ".3f"),
        Column("verdict", lambda row: Cell(row.paper.verdict, title=row.paper.reason)),
    ]
    columns = [column for column in columns if any(column.cell(row).text for row in shown)]
    each = (
        f", of the differences to each of {baseline_label(rows)} and {baseline_label(to_second)}" if to_second else ""
    )
    incomparable = ""
    if all(row.paper.value is None for row in shown):
        reasons = {row.paper.reason for row in shown if row.paper.verdict == "not comparable" and not row.constant}
        incomparable = f"Not comparable with the paper ({'; '.join(sorted(reasons))})." if reasons else ""
        columns = [column for column in columns if column.name not in ("paper", "verdict")]
    labels = sorted({row.tier_label for row in rows if row.tier_label})
    return table(
        f"{rows[0].table}, tier {'; '.join(labels)}",
        columns,
        shown,
        f"Success of the last checkpoint on {', '.join(task_set_names(rows))}; ± is the 95 % interval over training "
        f"seeds; difference: to {baseline_label(rows)}, paired by task and seed; p: Holm-corrected{each}; {MDE_NOTE}; "
        "invalid: episodes ended by a response without a usable action; tokens: generated in training, means of the "
        "runs.",
        incomparable,
        f"Without a run: {', '.join(absent)}." if absent and len(shown) < len(rows) else "",
        *sorted({f"{env_label(row.env)}: {row.paper.reason}." for row in rows if row.constant}),
        *sorted({f"{row.task_set}: {row.warning}." for row in rows if row.warning}),
        *notes_of_runs(rows),
        by=lambda row: env_label(row.env),
    )


def _minus(rows: Sequence[Row]) -> list[Column]:
    """The differences of ``rows`` and their p-values, for the rows of the same places."""
    label, of = baseline_label(rows), {_place(row): row.difference for row in rows}
    return [
        Column(f"minus {label}", lambda row: _bounds_of(of[_place(row)]), right=True, no_wrap=True),
        Column(f"p ({label})", lambda row: p_cell(d.p_adjusted if (d := of[_place(row)]) else None), right=True),
    ]


def _place(row: Row) -> tuple[str, ...]:
    return row.tier, row.env, row.model, row.method, row.group


def _bounds_of(difference: Comparison | None) -> Cell | None:
    return _bounds(difference.effect.interval, sign="+") if difference else None


def _bounds(interval: Interval | None, unit: str | None = None, sign: str = "") -> Cell | None:
    if interval is None:
        return None
    bounds = "no interval" if interval.low is None else f"[{interval.low:.3f}, {interval.high:.3f}]"
    return Cell(plus_minus(interval, unit, sign), interval.mean, f"{bounds}, {interval.kind}" if interval.kind else "")


def _seeds(row: Row) -> str:
    """``1/3``: done, of those planned; ``15`` where there are more than were asked for."""
    return f"{row.seeds_done}/{row.seeds_planned}" if row.seeds_done <= row.seeds_planned else str(row.seeds_done)


def _short(count: int | None) -> Cell | None:
    if count is None:
        return None
    for size, letter in ((10**6, "M"), (10**3, "k")):
        if count >= size:
            return Cell(f"{count / size:.1f}{letter}", count, f"{count:,}")
    return Cell(str(count), count)
