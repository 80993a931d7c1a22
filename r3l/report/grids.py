"""The tables of the HTML report: rows of r3l.report.tables, budget and switches, and counts of runs, cell by cell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from r3l.config import EnvConfig, load, variant
from r3l.report import budget, switches
from r3l.report.records import Record, by_method

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Cell:
    """What a table shows, what it sorts by (None: the text), and what hovering says."""

    text: str
    value: float | None = None
    title: str = ""


@dataclass(frozen=True)
class Grid:
    """A sortable table; ``filters`` are columns that a reader may narrow to one value: {column: value at first}."""

    title: str
    note: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    filters: Mapping[str, str]


def scores(rows: Sequence[Row]) -> Grid:
    """A table of r3l.report.tables; without the columns about the paper where nothing is comparable with it."""
    columns: dict[str, Callable[[Row], Cell]] = {
        "environment": lambda row: Cell(env_label(row["env"])),
        "tasks": lambda row: Cell(row["group"]),
        "method": lambda row: Cell(row["label"], title=row["method"]),
        "success": lambda row: _interval(row, "") if row["mean"] is not None else Cell("no run"),
        "seeds": lambda row: Cell(f"{row['seeds_done']}/{row['seeds_planned']}", row["seeds_done"]),
        "episodes": lambda row: _number(row["episodes"]),
        f"minus {rows[0]['baseline']}": lambda row: _interval(row, "difference_"),
        "p (Holm)": lambda row: _number(row["p_holm"]),
        "unread": lambda row: _share(row["parse_failure_rate"]),
        "truncated": lambda row: _share(row["truncation_rate"]),
        "rollouts": lambda row: _number(row["rollouts"]),
        "generated": lambda row: _number(row["generated_tokens"]),
        "trained": lambda row: _number(row["trained_tokens"]),
    }
    if any(row["paper"] is not None for row in rows):
        columns["paper"] = lambda row: _number(row["paper"])
        columns["verdict"] = lambda row: Cell(row["verdict"], title=row["verdict_reason"])
    cells = [[make(row) for make in columns.values()] for row in rows]
    return Grid(rows[0]["table"], "", list(columns), cells, {"environment": "", "tasks": "all"})


def budgets(records: Sequence[Record]) -> Grid:
    """Budget parity, all columns of r3l.report.budget that are not empty everywhere."""
    rows = budget.table(records)
    known = ("tier", "env", "model", "method", "label")
    numbers = [key for key in rows[0] if key not in known and any(row[key] is not None for row in rows)]
    cells = [
        [Cell(env_label(row["env"])), Cell(row["label"], title=row["method"]), *(_number(row[key]) for key in numbers)]
        for row in rows
    ]
    note = "Training only, means over seeds; relative_generated is against the cheapest method of the environment."
    columns = ["environment", "method", *(key.replace("_", " ") for key in numbers)]
    return Grid("Budget parity", note, columns, cells, {"environment": ""})


def endings(records: Sequence[Record]) -> list[Grid]:
    """How episodes ended, which reflections were of no use, and what was dropped: counts by reason."""
    return [
        _counts(
            "Test episodes by ending",
            "Share of the episodes; hover for the number.",
            records,
            lambda record: record["stops"],
        ),
        _counts(
            "Training episodes by ending",
            "Rollouts and retries. truncated: a response outgrew its limit; context: the dialog outgrew the model's.",
            records,
            lambda record: _under(record, "stop/"),
        ),
        _counts(
            "Reflections and critiques",
            "valid ones, critiques by who wrote them, and the unusable by reason (no retry follows those).",
            records,
            _reviews,
        ),
        _counts(
            "Dropped in training",
            "groups: refused by the method; rejected: not imitated; no_oracle_pivot: the environment has no reviewer; "
            "workers: lost with what they played, which was played again.",
            records,
            lambda record: _under(record, "dropped/"),
            shares=False,
        ),
    ]


def settings(records: Sequence[Record], manifests: Sequence[Row | None]) -> Grid:
    """Which profile each method ran under, what of it differs from ``paper``, and the engine's switches."""
    paper = {row["method"]: row["settings"] for tier in {r["tier"] for r in records} for row in switches.methods(tier)}
    found: dict[tuple[str, ...], list[Cell]] = {}
    for record, manifest in zip(records, manifests, strict=True):
        if manifest is not None:
            run, own = manifest["run"], manifest["method_settings"]
            base = paper.get(variant(record["method"])[0], {})
            changed = {key: value for key, value in own.items() if base.get(key) != value}
            options = run["env_settings"].get("options") or {}
            texts = (env_label(record["env"]), record["method_label"], run["profile"], _pairs(changed), _pairs(options))
            found.setdefault(texts, [Cell(text) for text in texts])
    note = "As the manifests have it. Empty: the method as the profile paper sets it; no option of the engine."
    columns = ["environment", "method", "profile", "set otherwise than paper", "engine"]
    return Grid("In force", note, columns, list(found.values()), {"environment": ""})


def all_switches() -> Grid:
    """Every switch of every method, in one line."""
    rows = switches.switches()
    cells = [[Cell(str(value)) for value in row.values()] for row in rows]
    return Grid("Every switch", "Letters and numbers are ids of our audit of the release.", list(rows[0]), cells, {})


def env_label(env: str) -> str:
    """An environment's name in prose."""
    return load("envs", env, EnvConfig).label


def _counts(
    title: str,
    note: str,
    records: Sequence[Record],
    count: Callable[[Record], Mapping[str, float]],
    shares: bool = True,
) -> Grid:
    """A row a method and environment, a column a reason, the commonest first; seeds are added up."""
    rows: list[tuple[Record, int, Counter[str]]] = []
    for bench in sorted({record.bench for record in records}):
        for seeds in by_method([r for r in records if r.bench == bench]).values():
            total: Counter[str] = Counter()
            for record in seeds:
                total.update(count(record))
            rows.append((seeds[0], len(seeds), total))
    together: Counter[str] = Counter()
    for _, _, total in rows:
        together.update(total)
    reasons = [reason for reason, number in together.most_common() if number]
    cells = [
        [Cell(env_label(first["env"])), Cell(first["method_label"], title=first["method"]), _number(seeds)]
        + [_count(total[reason], sum(total.values()), shares) for reason in reasons]
        for first, seeds, total in rows
        if sum(total.values())
    ]
    return Grid(title, note, ["environment", "method", "seeds", *reasons], cells, {"environment": ""})


def _count(number: float, total: float, shares: bool) -> Cell:
    if not number:
        return Cell("", 0.0)
    if not shares:
        return Cell(f"{number:,.0f}", number)
    return Cell(f"{number / total:.1%}", number / total, f"{number:,.0f} of {total:,.0f}")


def _under(record: Record, prefix: str) -> dict[str, float]:
    found = record.result["budget"].items()
    return {key.removeprefix(prefix): value for key, value in found if key.startswith(prefix)}


def _reviews(record: Record) -> dict[str, float]:
    kept = ("reflection/valid", "reflection/invalid/", "critique/by_", "critique/invalid/", "critique/unread")
    return {key: value for key, value in record.result["budget"].items() if key.startswith(kept)}


def _interval(row: Row, prefix: str) -> Cell:
    mean, low, high = (row[f"{prefix}{key}"] for key in ("mean", "low", "high"))
    if mean is None:
        return Cell("")
    sign = "+" if prefix else ""
    if low is None:
        return Cell(f"{mean:{sign}.3f}", mean, "one seed: no interval")
    return Cell(
        f"{mean:{sign}.3f} ± {(high - low) / 2:.3f}", mean, f"[{low:.3f}, {high:.3f}], {row[f'{prefix}interval']}"
    )


def _number(value: float | None) -> Cell:
    if value is None:
        return Cell("")
    return Cell(f"{value:,}" if isinstance(value, int) else f"{value:,.3f}".rstrip("0").rstrip("."), float(value))


def _share(value: float | None) -> Cell:
    return Cell("") if value is None else Cell(f"{value:.1%}", value)


def _pairs(values: Mapping[str, Any]) -> str:
    return "\n".join(f"{key}: {value}" for key, value in values.items())
