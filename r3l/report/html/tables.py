"""The tables of the HTML report: rows of scores, budget and options, and counts of runs, cell by cell."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from r3l.config import variant
from r3l.config.feedback import in_words_of_today
from r3l.config.options import method_options
from r3l.report import options
from r3l.report.comparison import shown
from r3l.report.feedback import COLUMN as FEEDBACK
from r3l.report.labels import env_label
from r3l.report.records import Record, by_method
from r3l.report.rows import LongRow, notes_of_runs, outdated_notes, seeds_shown
from r3l.report.table import Cell, Column, Row, Table, table
from r3l.report.tables import budget
from r3l.runs.metrics import members

ENVIRONMENT = Column("environment", filter="")


def scores(rows: Sequence[LongRow]) -> Table:
    """A table of scores; without methods that have no run in an environment, which a note names, and without the
    columns about the paper where nothing is comparable with it."""
    ran = [row for row in rows if row["mean"] is not None]
    none = dict.fromkeys(f"{row['label']} on {env_label(row['env'])}" for row in rows if row["mean"] is None)
    absent = f"Without a run: {', '.join(none)}." if none else ""
    rows = ran or rows
    cells: dict[str, Callable[[LongRow], Cell]] = {
        "environment": lambda row: Cell(env_label(row["env"])),
        "tasks": lambda row: Cell(row["group"]),
        "method": lambda row: Cell(row["label"], title=row["method"]),
        FEEDBACK: lambda row: Cell(row[FEEDBACK] or ""),
        "success": lambda row: _interval(row, "") if row["mean"] is not None else Cell("no run"),
        "seeds": lambda row: Cell(seeds_shown(row), row["seeds_done"]),
        "episodes": lambda row: _number(row["episodes"]),
        f"minus {rows[0]['baseline']}": lambda row: _interval(row, "difference_"),
        "p (Holm)": lambda row: _number(row["p_holm"]),
        shown.WOULD_SHOW: lambda row: Cell(shown.would_show(row), row["smallest_difference"]),
        "unread": lambda row: _share(row["parse_failure_rate"]),
        "truncated": lambda row: _share(row["truncation_rate"]),
        "rollouts": lambda row: _number(row["rollouts"]),
        "generated": lambda row: _number(row["generated_tokens"]),
        "trained": lambda row: _number(row["trained_tokens"]),
    }
    if any(row["paper"] is not None for row in rows):
        cells["paper"] = lambda row: _number(row["paper"])
        cells["verdict"] = lambda row: Cell(row["verdict"], title=row["verdict_reason"])
    columns = [ENVIRONMENT, Column("tasks", filter="all"), *map(Column, list(cells)[2:])]
    lines = [{name: of(row) for name, of in cells.items()} for row in rows]
    return table(rows[0]["table"], columns, lines, absent, *notes_of_runs(rows))


def budgets(records: Sequence[Record]) -> Table:
    """Budget parity, all columns of r3l.report.tables.budget that are not empty everywhere."""
    rows = budget.budget_rows(records)
    known = ("tier", "env", "model", "method", "label", FEEDBACK, "outdated")
    numbers = [key for key in rows[0] if key not in known and any(row[key] is not None for row in rows)]
    cells = [
        {"environment": Cell(env_label(row["env"])), "method": Cell(row["label"], title=row["method"])}
        | {FEEDBACK: Cell(row[FEEDBACK] or "")}
        | {key.replace("_", " "): _number(row[key]) for key in numbers}
        for row in rows
    ]
    note = "Training only, means over seeds; relative_generated is against the cheapest method of the environment."
    columns = [ENVIRONMENT, *map(Column, list(cells[0])[1:])]
    return table("Budget parity", columns, cells, note, *outdated_notes(rows))


def endings(records: Sequence[Record]) -> list[Table]:
    """How episodes ended, which reflections were of no use, and what was dropped: counts by reason."""
    return [
        _counts(
            "Test episodes by ending",
            "Share of the episodes; hover over one, or tap on it, for the number.",
            records,
            lambda record: record["stops"],
        ),
        _counts(
            "Training episodes by ending",
            "Rollouts and retries. truncated: a response outgrew its limit; context: the dialog outgrew the model's.",
            records,
            lambda record: members(record.result["budget"], "stop"),
        ),
        _counts(
            "Reflections and critiques",
            "Unusable ones by reason; no retry follows those.",
            records,
            _reflections,
        ),
        _counts(
            "Answers in feedback",
            "Reflections and critiques on tasks with a known answer. told: it stands neither in the problem nor in the "
            "attempt, and a teacher's text is not used; quoted: it stands there too. Older runs searched reflections "
            "only and did not tell the two apart.",
            records,
            _answers,
        ),
        _counts(
            "Dropped in training",
            "groups: refused by the method; rejected: not imitated; no_oracle_pivot: the environment has no critic; "
            "workers: lost with what they played, which was played again.",
            records,
            lambda record: members(record.counts, "dropped"),
            shares=False,
        ),
    ]


def settings(records: Sequence[Record], manifests: Sequence[LongRow | None]) -> Table:
    """What each method ran under: its parent and what it changes there, its profile and what differs from ``paper``.

    Environments in which all of that is the same share a row; hovering over a change gives its meaning and audit id.
    """
    known = {row["method"]: row for tier in {r["tier"] for r in records} for row in options.methods(tier)}
    meanings: dict[str, dict[str, str]] = defaultdict(dict)  # of the options of each method that extends none
    for option in method_options():
        for method in option.used_by.split(", "):
            meanings[method][option.option] = option.meaning
    rows: dict[tuple[str, ...], Row] = {}
    for record, manifest in zip(records, manifests, strict=True):
        if manifest is None:
            continue
        name, own = variant(record["method"])[0], in_words_of_today(manifest["run"]["method_settings"])
        config = known.get(name, {"settings": {}, "extends": None})
        paper = _as_json(config["settings"])
        parent = known[config["extends"]] if config["extends"] else None
        meaning = meanings[config["extends"] or name]
        but = options.changed(_as_json(parent["settings"]), own) if parent else {}
        cells = {
            "method": Cell(record["method_label"], title=record["method"]),
            "as": Cell(parent["label"] if parent else ""),
            "but": _changes(but, meaning),
            "profile": Cell(manifest["run"]["profile"]),
            "learning rate": _rate(manifest["run"]),
            "otherwise than paper": _changes(options.changed(paper, own), meaning),
            "engine": Cell(options.lines(manifest["run"]["env_settings"].get("options") or {})),
        }
        row = rows.setdefault(tuple(cell.text for cell in cells.values()), {"environment": Cell(""), **cells})
        environments = dict.fromkeys([*filter(None, row["environment"].text.split(", ")), env_label(record["env"])])
        row["environment"] = Cell(", ".join(environments))
    note = "As the manifests have it. Complete settings of a run stand under Runs; what an option means, below."
    columns = ["environment", "method", "as", "but", "profile", "learning rate", "otherwise than paper", "engine"]
    return table("In force", list(map(Column, columns)), list(rows.values()), note)


def _rate(run: Mapping[str, Any]) -> Cell:
    """With the file that it was chosen in, where `r3l tune` has chosen it."""
    rate, source = run.get("train", {}).get("lr"), run.get("rate_source", "")
    return Cell("" if rate is None else f"{rate:g}{', tuned' if source else ''}", title=source)


def _changes(values: LongRow, meaning: Mapping[str, str]) -> Cell:
    return Cell(options.lines(values), title="\n".join(f"{key}: {meaning.get(key, '')}" for key in values))


def _as_json(values: LongRow) -> dict[str, Any]:
    """As a manifest has them: lists for tuples."""
    content: dict[str, Any] = json.loads(json.dumps(values))
    return content


def all_options() -> Table:
    """Every option of every method, in one line."""
    rows = [vars(option) for option in method_options()]
    cells = [{name: Cell(str(value)) for name, value in row.items()} for row in rows]
    note = "Letters and numbers are ids of our audit of the release."
    return table("Every option", list(map(Column, rows[0])), cells, note)


def _counts(
    title: str,
    note: str,
    records: Sequence[Record],
    count: Callable[[Record], Mapping[str, float]],
    shares: bool = True,
) -> Table:
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
        {
            "environment": Cell(env_label(first["env"])),
            "method": Cell(first["method_label"], title=first["method"]),
            "seeds": _number(seeds),
        }
        | {reason: _count(total[reason], sum(total.values()), shares) for reason in reasons}
        for first, seeds, total in rows
        if sum(total.values())
    ]
    return table(title, [ENVIRONMENT, *map(Column, ("method", "seeds", *reasons))], cells, note)


def _count(number: float, total: float, shares: bool) -> Cell:
    if not number:
        return Cell("", 0.0)
    if not shares:
        return Cell(f"{number:,.0f}", number)
    share = number / total
    return Cell(f"{share:.1%}" if share >= 0.0005 else "< 0.1%", share, f"{number:,.0f} of {total:,.0f}")


def _reflections(record: Record) -> dict[str, float]:
    """Reflections and critiques by what became of them; each is counted once."""
    counts = record.result["budget"]
    unusable = {key: number for key, number in counts.items() if "/invalid/" in key}
    spoilt = counts.get("critique/not_json", 0) + sum(n for key, n in unusable.items() if key.startswith("critique/"))
    written = sum(counts.get(f"critique/by_{who}", 0) for who in ("environment", "model", "judge"))
    return {
        "reflections valid": counts.get("reflection/valid", 0),
        "critiques read": written - spoilt,
        "critiques not JSON, used as text": counts.get("critique/not_json", 0),
        **{key.replace("/invalid/", " unusable: "): number for key, number in unusable.items()},
    }


def _answers(record: Record) -> dict[str, float]:
    """Reflections and critiques by how they state the answer of their task; each is counted once."""
    counts = record.result["budget"]
    audited, stated, told, quoted = (
        counts.get(f"leak/{name}", 0) for name in ("guidance", "answer_stated", "told", "quoted")
    )
    apart = {"told": told, "quoted": quoted} if told + quoted else {"stated": stated}
    return {"not stated": audited - stated, **apart}


def _interval(row: LongRow, prefix: str) -> Cell:
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
