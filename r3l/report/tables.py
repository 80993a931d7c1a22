"""Tables of scores: a row per environment, method and task group, with interval, budget, provenance and verdict."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table

from r3l.config import ROOT, EnvConfig, load, load_method, variant
from r3l.core.errors import RunDirectoryError
from r3l.evaluation import statistics
from r3l.evaluation.statistics import Interval
from r3l.report.records import Record, by_method, groups
from r3l.tracking import write_text_atomic

PAPER_NUMBERS = ROOT / "results" / "stored" / "paper_numbers.csv"
PAPER_TABLES = ("Table1", "Table1(v1)/AppLlama(v2)")
PARSE_FAILURES = ("format", "inadmissible", "truncated")
TRUNCATIONS = ("truncated", "context")  # a response, or the whole dialog, outgrew its limit
BUDGET = ("rollouts", "env_steps", "tokens/generated", "tokens/trained")
DIGITS = 4
CONSTANT = "constant"  # in place of a method
TEXT, INTERVALS = ("tier", "env", "group", "method", "vs paper"), ("success", "difference")
Row = dict[str, Any]


def scores_table(
    records: Sequence[Record], methods: Sequence[str], baseline: str, seeds_planned: int, title: str = "Scores"
) -> list[Row]:
    """The rows of ``methods`` for every (tier, env, model) of ``records``; p-values are corrected together.

    Differences are paired with the runs of ``baseline`` that have the same seed. A method without runs has rows
    that say so.
    """
    rows: list[Row] = []
    for bench in sorted({record.bench for record in records}):
        chosen = [record for record in records if record.bench == bench]
        runs = by_method(chosen, methods)
        for group in groups(chosen):
            for method, seeds in runs.items():
                common = {"table": title, "baseline": baseline}
                row = _row(seeds, runs.get(baseline, []), group, seeds_planned) if seeds else None
                rows.append(common | (row or _missing(chosen[0], method, group, seeds_planned)))
            if "constant" in chosen[0]["panel"]:
                rows.append({"table": title, "baseline": baseline} | _constant(chosen[0], group))
    _correct(rows)
    return rows


def _constant(record: Record, group: str) -> Row:
    """What the best answer scores that looks at no problem: a method means something only beside it."""
    known = record["panel"]["constant"]
    return dict.fromkeys(_row([record], [], group, 0)) | {
        **_place(record, group),
        "method": CONSTANT,
        "label": "Constant answer",
        "provenance": "constant",
        "mean": _rounded(known["success"][group]),
        "seeds_done": 0,
        "seeds_planned": 0,
        "episodes": 0,
        "verdict": "not comparable",
        "verdict_reason": f"the answer is always {known['answer']}",
    }


def _missing(other: Record, method: str, group: str, planned: int) -> Row:
    """A planned method that nobody has run: nothing is blank that is known, nothing is invented."""
    label = load_method(variant(method)[0]).label + "".join(f" ({c})" for c in variant(method)[1])
    measured = dict.fromkeys(_row([other], [], group, planned))
    counts = {"method": method, "label": label, "seeds_done": 0, "seeds_planned": planned, "episodes": 0}
    return (
        measured
        | _place(other, group)
        | counts
        | {"provenance": "ours", "verdict": "incomplete", "verdict_reason": "no run"}
    )


def _place(record: Record, group: str) -> Row:
    return {
        "tier": record["tier"],
        "tier_label": record["label"],
        "env": record["env"],
        "model": record["model"],
        "group": group,
        "panel": record["panel"]["name"],
        "panel_sha256": record["panel"]["sha256"],
        "caution": record["panel"].get("caution", ""),
    }


def _row(seeds: list[Record], baseline: list[Record], group: str, planned: int) -> Row:
    first = seeds[0]
    scores = _matrix(seeds, group)
    measured = statistics.interval(scores, _generator())
    paper, verdict, why = _against_paper(first, group, measured, len(seeds), planned)
    episodes = [e for record in seeds for e in record.episodes if group in ("all", e["group"])]
    return {
        **_place(first, group),
        "method": first["method"],
        "label": first["method_label"],
        "provenance": "ours",
        **_interval("", measured),
        "seeds_done": len(seeds),
        "seeds_planned": planned,
        "episodes": len(episodes),
        **_difference(seeds, baseline, group),
        "paper": paper,
        "verdict": verdict,
        "verdict_reason": why,
        "parse_failure_rate": _share(episodes, PARSE_FAILURES),
        "truncation_rate": _share(episodes, TRUNCATIONS),
        **{key.replace("tokens/", "") + _unit(key): _mean_budget(seeds, key) for key in BUDGET},
    }


def _matrix(seeds: Sequence[Record], group: str) -> np.ndarray:
    """scores_S_T: the panel is one (checked when loading), so every seed has the same tasks."""
    return np.array([list(record.task_scores(group).values()) for record in seeds])


def _interval(prefix: str, found: Interval) -> Row:
    return {
        f"{prefix}mean": _rounded(found.mean),
        f"{prefix}low": _rounded(found.low),
        f"{prefix}high": _rounded(found.high),
        f"{prefix}interval": found.kind,
    }


def _difference(seeds: list[Record], baseline: list[Record], group: str) -> Row:
    """Paired with the baseline's runs of the same seeds; empty for the baseline itself and where none match."""
    names = ("difference_mean", "difference_low", "difference_high", "difference_interval")
    empty: Row = dict.fromkeys((*names, "probability_of_improvement", "p_value", "p_holm"))
    theirs = {record["seed"]: record for record in baseline}
    ours = [record for record in seeds if record["seed"] in theirs]
    if not ours or ours[0] is baseline[0]:
        return empty
    a = _matrix(ours, group)
    b = _matrix([theirs[record["seed"]] for record in ours], group)
    return empty | {
        **_interval("difference_", statistics.paired_difference(a, b, _generator())),
        "probability_of_improvement": _rounded(statistics.probability_of_improvement(a.mean(axis=1), b.mean(axis=1))),
        "p_value": statistics.paired_p_value((a - b).mean(axis=1)),
    }


def _correct(rows: list[Row]) -> None:
    tested = [row for row in rows if row["p_value"] is not None]
    for row, adjusted in zip(tested, statistics.holm([row["p_value"] for row in tested]), strict=True):
        row["p_value"], row["p_holm"] = _rounded(row["p_value"]), _rounded(adjusted)


def _against_paper(
    first: Record, group: str, measured: Interval, done: int, planned: int
) -> tuple[float | None, str, str]:
    """(paper's value, verdict, why). Only the paper tier's models and panels can be compared with it."""
    if first["tier"] != "paper":
        return None, "not comparable", f"{first['tier']} tier: neither the paper's models nor its games"
    value = paper_value(first["model"], load("envs", first["env"], EnvConfig).label, first["method_label"])
    if value is None or group != "all":
        return None, "not comparable", "the paper has no such number"
    if done < planned:
        return value, "incomplete", f"{done} of {planned} seeds"
    if measured.low is None or measured.high is None:
        return value, "incomplete", "one seed has no interval"
    inside = measured.low <= value <= measured.high
    return value, "within interval" if inside else "outside", measured.kind


def paper_value(model: str, env: str, method: str) -> float | None:
    """The published score in [0, 1], or None."""
    with PAPER_NUMBERS.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            wanted = (model, env, method)
            if row["table"] in PAPER_TABLES and (row["backbone"], row["benchmark"], row["method"]) == wanted:
                return float(row["value"])
    return None


def _share(episodes: Sequence[dict[str, Any]], reasons: tuple[str, ...]) -> float | None:
    return _rounded(sum(e["stop_reason"] in reasons for e in episodes) / len(episodes))


def _unit(key: str) -> str:
    return "_tokens" if key.startswith("tokens/") else ""


def _mean_budget(seeds: Sequence[Record], key: str) -> int:
    """Training only, averaged over seeds."""
    total = sum(float(record.result["budget"].get(key, 0)) for record in seeds)
    return round(total / len(seeds))


def _generator() -> np.random.Generator:
    return np.random.default_rng(0)  # one fixed generator an interval: tables regenerate to the same bytes


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(float(value), DIGITS)


def write_csv(rows: Sequence[Row], out: Path) -> None:
    """Atomic; empty cells are what does not exist."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    try:
        write_text_atomic(out, text.getvalue())
    except OSError as error:
        raise RunDirectoryError(f"{out} cannot be written ({error.strerror}); choose another with --out") from error


def render(rows: Sequence[Row]) -> RenderableType:
    """The table for a terminal; with several environments an overview, methods x environments, stands before it."""
    several = len({(row["tier"], row["env"], row["model"]) for row in rows}) > 1
    return Group(_overview(rows), _detailed(rows)) if several else _detailed(rows)


def _overview(rows: Sequence[Row]) -> Table:
    """Success over all tasks: a line a method, a column an environment."""
    columns = {(row["tier"], row["env"], row["model"]): row["env"] for row in rows}
    labels = {row["method"]: row["label"] for row in rows}
    cells = {(row["method"], row["tier"], row["env"], row["model"]): row for row in rows if row["group"] == "all"}
    shown = Table(
        title=f"{rows[0]['table']}, success over all tasks, tier {'; '.join(sorted({r['tier_label'] for r in rows}))}",
        caption="+- is the 95 % interval over training seeds; (done/planned seeds) where some are missing",
    )
    shown.add_column("method")
    for env in columns.values():
        shown.add_column(load("envs", env, EnvConfig).label, justify="right")
    for method, label in labels.items():
        shown.add_row(label, *(_overview_cell(cells.get((method, *column))) for column in columns))
    return shown


def _overview_cell(row: Row | None) -> str:
    if row is None or row["mean"] is None:
        return "" if row is None else "no run"
    if row["method"] == CONSTANT:
        return _plus_minus(row, "")
    complete = row["seeds_done"] == row["seeds_planned"]
    return _plus_minus(row, "") + ("" if complete else f" ({row['seeds_done']}/{row['seeds_planned']})")


def _detailed(rows: Sequence[Row]) -> Table:
    """One line a row, short numbers; what is the same in all rows stands outside."""
    labels = sorted({row["tier_label"] for row in rows})
    baseline = next((row["label"] for row in rows if row["method"] == row["baseline"]), rows[0]["baseline"])
    panels = sorted({f"{row['env']} {row['panel']} ({row['panel_sha256'][:12]})" for row in rows})
    cautions = sorted({f"; {row['panel']}: {row['caution']}" for row in rows if row["caution"]})
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
        caption=f"success of the last checkpoint on {', '.join(panels)}; +- is the 95 % interval over training "
        f"seeds; difference is paired with {baseline}; unread: episodes ended by a response without a usable "
        "action; rollouts and tokens (generated, trained) are means of the training runs"
        f"{note}{''.join([*cautions, *constants])}",
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
        "success": "no run" if row["mean"] is None else _plus_minus(row, ""),
        "seeds": "" if row["method"] == CONSTANT else f"{row['seeds_done']}/{row['seeds_planned']}",
        "episodes": "" if row["method"] == CONSTANT else str(row["episodes"]),
        "difference": _plus_minus(row, "difference_") if row["difference_mean"] is not None else "",
        "unread": "" if row["parse_failure_rate"] is None else f"{row['parse_failure_rate']:.1%}",
        "rollouts": _short(row["rollouts"]),
        "tokens": _short(row["generated_tokens"]),
        "trained": _short(row["trained_tokens"]),
        "vs paper": row["verdict"] if row["paper"] is None else f"{row['paper']:.3f}: {row['verdict']}",
    }


def _plus_minus(row: Row, prefix: str) -> str:
    mean, low, high = (row[f"{prefix}{key}"] for key in ("mean", "low", "high"))
    sign = "+" if prefix else ""
    if low is None:
        return f"{mean:{sign}.3f}"
    if abs((high - mean) - (mean - low)) < 2 * 10**-DIGITS:
        return f"{mean:{sign}.3f} +- {high - mean:.3f}"
    return f"{mean:{sign}.3f} [{low:.3f}, {high:.3f}]"


def _short(count: int | None) -> str:
    if count is None:
        return ""
    for size, letter in ((10**6, "M"), (10**3, "k")):
        if count >= size:
            return f"{count / size:.1f}{letter}"
    return str(count)
