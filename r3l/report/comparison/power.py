"""How many seeds a wanted difference takes, by the spread of stored runs, and what it costs to run them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from r3l.evaluation.power import Goal, StoppingRule, seeds_needed, smallest_difference, uncertainty
from r3l.files.json_files import read_json
from r3l.report.labels import env_label, method_label
from r3l.report.records import Record
from r3l.report.rows import LongRow
from r3l.report.table import Cell, Column, Row, Table, table
from r3l.runs.metrics import step_seconds

SEEDS = (3, 5, 10, 20)  # of which a plan says what they could show
PLACE = ("tier", "env", "model", "method", "group", "against", "label", "pairs", "difference_mean", "spread")


def power_rows(compared: Sequence[LongRow], records: Sequence[Record], wanted: float, goal: Goal) -> list[LongRow]:
    """A row for each of :func:`compare`: the seeds that ``wanted`` takes, and what other numbers could show.

    ``core_hours``: of training both methods with that many seeds, as long as the stored runs took on average;
    ``core_hours_left``: of those that are not stored. Numbers are None where fewer than two seeds are common.
    """
    rows = []
    for comparison in compared:
        row = {key: comparison[key] for key in PLACE}
        bench = [record for record in records if record.bench == tuple(row[key] for key in ("tier", "env", "model"))]
        pair = sum(_core_seconds([r for r in bench if r["method"] == name]) for name in (row["method"], row["against"]))
        rows.append(row | _plan(row["spread"], row["pairs"], wanted, goal) | {"core_seconds": pair})
    for row in rows:
        row |= {"core_hours": None, "core_hours_left": None}
        if row["seeds_needed"] is not None:
            row["core_hours"] = row["seeds_needed"] * row["core_seconds"] / 3600
            row["core_hours_left"] = max(row["seeds_needed"] - row["pairs"], 0) * row["core_seconds"] / 3600
    return rows


def _plan(deviation: float | None, pairs: int, wanted: float, goal: Goal) -> LongRow:
    keys = ("spread_low", "spread_high", "seeds_needed", "seeds_needed_low", "seeds_needed_high", "smallest_difference")
    row: LongRow = dict.fromkeys(keys) | {"wanted": wanted, "shows": {}}
    if deviation is None:
        return row
    low, high = (deviation * factor for factor in uncertainty(pairs))
    needed = [seeds_needed(value, wanted, goal) for value in (deviation, low, high)]
    sizes = {seeds: smallest_difference(deviation, seeds, goal) for seeds in SEEDS}
    now = smallest_difference(deviation, pairs, goal)
    return dict(zip(keys, (low, high, *needed, now), strict=True)) | {"wanted": wanted, "shows": sizes}


def _core_seconds(seeds: Sequence[Record]) -> float:
    """Of one training run on average: its seconds, on as many cores as it has threads."""
    if not seeds:
        return 0.0
    threads = read_json(seeds[0].path.parent / "manifest.json")["run"].get("threads", 1)
    return float(np.mean([sum(map(step_seconds, record.metrics)) for record in seeds]) * threads)


def power_table(rows: Sequence[LongRow], goal: Goal) -> Table:
    """A line an environment and opponent."""
    first = rows[0]
    cells = [_cells(row) for row in rows]
    family = f" as the strictest of {goal.comparisons} comparisons (Holm)" if goal.comparisons > 1 else ""
    return table(
        f"Seeds for {method_label(first['method'])}, tier {first['tier']}{_tasks(first)}: to show {first['wanted']:g}",
        [Column(name, right=name not in ("env", "against")) for name in cells[0]],
        cells,
        f"paired t-test over seeds, two-sided {100 * goal.alpha:g} %{family}, power {100 * goal.power:g} %; spread: "
        "standard deviation of the paired differences of the stored seeds; in brackets its 95 % interval (chi-square) "
        f"and what that makes of the seeds{_doubt(rows)}; core-hours: of training both methods, as long as the stored "
        "runs took; left: of those that are not stored; evaluation comes on top; k seeds: the smallest difference that "
        "they can show",
    )


def _tasks(row: Mapping[str, Any]) -> str:
    return "" if row["group"] == "all" else f", {row['group']} tasks"


def _doubt(rows: Sequence[LongRow]) -> str:
    """How little few seeds say of a standard deviation."""
    pairs = sorted({row["pairs"] for row in rows if row["spread"] is not None})
    factors = [(seeds, *uncertainty(seeds)) for seeds in pairs]
    return "".join(f"; behind one of {n} seeds is {low:.2f} to {high:.2f} times as much" for n, low, high in factors)


def _cells(row: LongRow) -> Row:
    known = row["spread"] is not None
    texts = {
        "env": env_label(row["env"]),
        "against": row["label"],
        "stored": str(row["pairs"]),
        "spread": f"{row['spread']:.3f} ({row['spread_low']:.3f} to {row['spread_high']:.3f})" if known else "unknown",
        "seeds": f"{row['seeds_needed']} ({row['seeds_needed_low']} to {row['seeds_needed_high']})" if known else "",
        "core-hours": f"{row['core_hours']:.1f}" if known else "",
        "left": f"{row['core_hours_left']:.1f}" if known else "",
    }
    texts |= {f"{seeds} seeds": f"{row['shows'][seeds]:.3f}" if known else "" for seeds in SEEDS}
    return {name: Cell(text) for name, text in texts.items()}


def due_rows(rows: Sequence[LongRow], rule: StoppingRule, goal: Goal) -> list[LongRow]:
    """What ``rule`` says of each comparison of :func:`power_rows`."""
    keys = (*PLACE, "smallest_difference")
    return [
        {key: row[key] for key in keys} | {"seeds_due": rule.seeds_due(row["spread"], row["pairs"], goal)}
        for row in rows
    ]


def due_table(rows: Sequence[LongRow], rule: StoppingRule, goal: Goal) -> Table:
    """A line a comparison: stop, or how many seeds more."""
    first = rows[0]
    cells = [_due_cells(row, rule) for row in rows]
    return table(
        f"Another block of seeds? {method_label(first['method'])}, tier {first['tier']}{_tasks(first)}",
        [Column(name, right=name in ("seeds", "can show")) for name in cells[0]],
        cells,
        f"blocks of {rule.block} seeds until the smallest difference that they can show (two-sided "
        f"{100 * goal.level:.3g} %, power {100 * goal.power:g} %) is at most {rule.difference:g}, at most {rule.most} "
        f"seeds; the rule sees the spread over seeds, never which method is ahead; tested at {100 * goal.alpha:g} %, "
        "since stopping where the spread happens to be small makes errors more frequent",
    )


def _due_cells(row: LongRow, rule: StoppingRule) -> Row:
    due, seen = row["seeds_due"], row["smallest_difference"]
    if due:
        verdict = f"{due} more seeds"
    elif seen is not None and seen <= rule.difference:
        verdict = "stop: enough"
    else:
        verdict = f"stop: {rule.most} seeds are the most"
    texts = {
        "env": env_label(row["env"]),
        "against": row["label"],
        "seeds": str(row["pairs"]),
        "can show": "unknown" if seen is None else f"{seen:.3f}",
        "due": verdict,
    }
    return {name: Cell(text) for name, text in texts.items()}
